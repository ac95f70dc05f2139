//! The kind of a file that is no valid specification.

use std::fmt;

use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use super::{Format, QualifiedName};

/// The kind that a file means, where that is beyond doubt although the file breaks a rule: its
/// syntax is right to the end, one key at its top and no other is called `kind` in whatever case,
/// and the value is a kind. What breaks the rule is elsewhere then.
pub(super) fn of(bytes: &[u8], format: Format) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let kind = match format {
        Format::Json => {
            let mut reader = serde_json::Deserializer::from_str(text);
            let kind = reader.deserialize_map(Top).ok()?;
            reader.end().ok()?;
            kind?
        }
        Format::Yaml => None?,
    };
    let name: QualifiedName = format!("{kind}=0").parse().ok()?;
    (name.kind() == kind).then_some(kind)
}

/// The value of the one key `kind` of a document.
struct Top;

impl<'de> Visitor<'de> for Top {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut kinds: Vec<(String, serde_json::Value)> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if key.eq_ignore_ascii_case("kind") {
                kinds.push((key, map.next_value()?));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(match kinds.as_slice() {
            [(key, serde_json::Value::String(kind))] if key == "kind" => Some(kind.clone()),
            _ => None,
        })
    }
}
