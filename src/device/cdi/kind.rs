//! The kind of a file that is no valid specification.

use super::document::{self, Value};
use super::{Format, QualifiedName};

/// The kind that a file means, where that is beyond doubt although the file breaks a rule: it is a
/// whole document, one key at its top and no other is called `kind` in whatever case, and the value
/// is a kind. What breaks the rule stands elsewhere then.
pub(super) fn of(bytes: &[u8], format: Format) -> Option<String> {
    let Ok(Value::Object(mut top)) = document::read(bytes, format) else { return None };
    let value = top.remove("kind")?;
    if top.keys().any(|key| key.eq_ignore_ascii_case("kind")) {
        return None;
    }
    let kind = value.into_text().ok()?;
    let name: QualifiedName = format!("{kind}=0").parse().ok()?;
    Some(name.kind().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Option<String> {
        of(text.as_bytes(), Format::Json)
    }

    #[test]
    fn a_whole_document_tells_its_kind_whatever_else_is_wrong() {
        let kind = Some("v.com/gpu".to_owned());
        for text in [
            r#"{"kind":"v.com/gpu"}"#,
            r#"{"devices":[{"kind":"w.com/gpu"}],"unknown":1,"kind":"v.com/gpu"}"#,
        ] {
            assert_eq!(json(text), kind, "{text}");
        }
        assert_eq!(of(b"kind: v.com/gpu\ndevices: no\n", Format::Yaml), kind);
    }

    #[test]
    fn where_the_kind_may_be_another_there_is_none() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"kind":"v.com/gpu""#,
            r#"{"kind":"v.com/gpu"} {}"#,
            r#"{"kind":"v.com/gpu","kind":"v.com/gpu"}"#,
            r#"{"kind":"v.com/gpu","Kind":"w.com/gpu"}"#,
            r#"{"KIND":"v.com/gpu"}"#,
            r#"{"kind":["v.com/gpu"]}"#,
            r#"{"kind":1}"#,
            r#"{"kind":"v.com"}"#,
            r#"{"kind":"v.com/gpu "}"#,
            r#"{"kind":"v.com/gpu=1"}"#,
        ] {
            assert_eq!(json(text), None, "{text}");
        }
        for text in ["kind: v.com/gpu\nkind: v.com/gpu\n", "kind: v.com/gpu\n---\nkind: x/y\n"] {
            assert_eq!(of(text.as_bytes(), Format::Yaml), None, "{text}");
        }
        assert_eq!(of(b"{\"kind\":\"v.com/gpu\",\"a\":\"\xff\"}", Format::Json), None);
    }
}
