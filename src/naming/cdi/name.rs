//! Qualified device names, `VENDOR/CLASS=NAME`, and the kind of a file that breaks a rule.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::Format;
use super::document;

/// Maximum characters of a qualified name. A specification may define longer names, by which nothing can be asked for.
const QUALIFIED_NAME_MAX: usize = 512;
const VENDOR_MAX: usize = 253;
const CLASS_MAX: usize = 63;
/// Maximum characters of a label of a domain (RFC 1123).
const LABEL_MAX: usize = 63;

/// A qualified name. It always names one device of one kind: even `all` is a device, which exists if
/// a specification defines it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifiedName {
    kind: String,
    name: String,
}

impl QualifiedName {
    /// `VENDOR/CLASS`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The name of the device without the kind.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for QualifiedName {
    type Err = QualifiedNameError;

    /// Parses `VENDOR/CLASS=NAME`.
    fn from_str(text: &str) -> Result<Self, QualifiedNameError> {
        let (kind, name) = text.split_once('=').ok_or_else(no_qualified_name)?;
        parse_class(kind)?;
        check_device_name(name)?;
        if text.len() > QUALIFIED_NAME_MAX {
            let why = format!("longer than {QUALIFIED_NAME_MAX} characters");
            return Err(QualifiedNameError(why));
        }
        Ok(Self {
            kind: kind.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.name)
    }
}

/// Checks the grammar of `VENDOR/CLASS` and returns the class (CDI 1.1.0, "Kind"). Both begin with a
/// letter and end with a letter or a digit. The class has letters, digits, `_`, `-` and `.` between.
///
/// The vendor is a DNS subdomain: labels of letters, digits and `-` within, of at most 63 characters. The
/// reference code takes `_` and any order of `-` and `.` as well, and refuses what begins with a digit.
/// What either of both refuses is refused here, so that every runtime reads an accepted name alike.
pub(super) fn parse_class(kind: &str) -> Result<&str, QualifiedNameError> {
    let (vendor, class) = split_kind(kind)?;
    for label in vendor.split('.') {
        let is_within = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let has_hyphen_at_edge = label.starts_with('-') || label.ends_with('-');
        if label.is_empty()
            || label.len() > LABEL_MAX
            || has_hyphen_at_edge
            || !label.chars().all(is_within)
        {
            let why = "the vendor is no DNS subdomain, such as vendor.example";
            return Err(QualifiedNameError(why.to_owned()));
        }
    }
    Ok(class)
}

/// Splits a kind into vendor and class, both as the reference code takes them.
fn split_kind(kind: &str) -> Result<(&str, &str), QualifiedNameError> {
    let (vendor, class) = kind.split_once('/').ok_or_else(no_qualified_name)?;
    let is_letter = |c: char| c.is_ascii_alphabetic();
    check_part("vendor", vendor, VENDOR_MAX, is_letter, "_-.")?;
    check_part("class", class, CLASS_MAX, is_letter, "_-.")?;
    Ok((vendor, class))
}

/// Checks the grammar of a device name: letters and digits, with `_`, `-`, `.` and `:` between (CDI
/// 1.1.0, "CDI Devices"; names of MIG instances, such as `0:1`, have a colon).
pub(super) fn check_device_name(name: &str) -> Result<(), QualifiedNameError> {
    check_part(
        "device's name",
        name,
        usize::MAX,
        |c| c.is_ascii_alphanumeric(),
        "_-.:",
    )
}

/// Checks a part of a name: its length, its first and last character, and those `between`, besides letters and
/// digits. `part` names it in the error.
fn check_part(
    part: &str,
    text: &str,
    max: usize,
    is_first: fn(char) -> bool,
    between: &str,
) -> Result<(), QualifiedNameError> {
    let fault = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > max {
        format!("is longer than {max} characters")
    } else if let Some(character) = text
        .chars()
        .find(|c| !c.is_ascii_alphanumeric() && !between.contains(*c))
    {
        format!("has the character {character:?}")
    } else if !text.starts_with(is_first) {
        "begins with another character than it may".to_owned()
    } else if !text.ends_with(|c: char| c.is_ascii_alphanumeric()) {
        "ends with another character than a letter or a digit".to_owned()
    } else {
        return Ok(());
    };
    Err(QualifiedNameError(format!("the {part} {fault}")))
}

/// Why a text is no qualified name, no kind or no device name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct QualifiedNameError(String);

/// The error of a text without `/` or `=`.
fn no_qualified_name() -> QualifiedNameError {
    QualifiedNameError("not a qualified CDI name, VENDOR/CLASS=NAME".to_owned())
}

/// Finds the kind of a file that breaks a rule, if the kind is certain: the file is one complete document, has the
/// key `kind` at its top and no other spelling of it, such as `Kind`, and the value is a kind, as the reference
/// code takes it. Such a file defines devices of that kind or none. `None` if any of this does not hold.
pub(super) fn find_kind(bytes: &[u8], format: Format) -> Option<String> {
    let document = document::parse_document(bytes, format).ok()?;
    if document.second_document.is_some() {
        return None;
    }
    let mut top = document.value.into_object().ok()?;
    let value = top.remove("kind")?;
    if top.keys().any(|key| key.eq_ignore_ascii_case("kind")) {
        return None;
    }
    let kind = value.into_text().ok()?;
    split_kind(&kind).ok()?;
    Some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<QualifiedName, QualifiedNameError> {
        text.parse()
    }

    #[test]
    fn parsed_name_is_displayed_the_same() {
        let names = [
            "nvidia.com/gpu=0",
            "nvidia.com/gpu=0:1",
            "nvidia.com/gpu=GPU-edfee158-11c1-52b8-0517-92f30e7fac88",
            "intel.com/gpu=0000-00-02-0-0x56c0",
            "a/b=c",
            "a/b=0",
            "V-1.2x.Y/C.d-e_f9=A:b.c-d_e",
            "nvidia.com/gpu=all",
        ];
        for text in names {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        let name = parse("nvidia.com/gpu=0").unwrap();
        assert_eq!((name.kind(), name.name()), ("nvidia.com/gpu", "0"));
    }

    #[test]
    fn error_names_the_invalid_part() {
        const DOMAIN: &str = "the vendor is no DNS subdomain, such as vendor.example";
        let form = "not a qualified CDI name, VENDOR/CLASS=NAME";
        let odd = [
            ("", form),
            ("nvidia.com/gpu", form),
            ("gpu=0", form),
            ("/dev/nvidia0", form),
            ("=0", form),
            ("/dev/x=0", "the vendor is empty"),
            ("v/=0", "the class is empty"),
            ("v/c=", "the device's name is empty"),
            (
                "0v/c=0",
                "the vendor begins with another character than it may",
            ),
            (
                "v./c=0",
                "the vendor ends with another character than a letter or a digit",
            ),
            ("v w/c=0", "the vendor has the character ' '"),
            ("v_w.com/c=0", DOMAIN),
            ("v..com/c=0", DOMAIN),
            ("v-.com/c=0", DOMAIN),
            ("v.-com/c=0", DOMAIN),
            (
                "v/0=0",
                "the class begins with another character than it may",
            ),
            (
                "v/c-=0",
                "the class ends with another character than a letter or a digit",
            ),
            ("v/c/d=0", "the class has the character '/'"),
            ("v/c:d=0", "the class has the character ':'"),
            (
                "v/c=:0",
                "the device's name begins with another character than it may",
            ),
            (
                "v/c=0:",
                "the device's name ends with another character than a letter or a digit",
            ),
            ("v/c=0/0", "the device's name has the character '/'"),
            ("v/c=0=0", "the device's name has the character '='"),
            ("v/c=*", "the device's name has the character '*'"),
            ("v/c=\u{e9}", "the device's name has the character '\u{e9}'"),
            ("v/c=0\n", "the device's name has the character '\\n'"),
        ];
        for (text, error) in odd {
            assert_eq!(parse(text).unwrap_err().to_string(), error, "{text:?}");
        }
    }

    #[test]
    fn length_of_each_part_and_of_the_name_is_bounded() {
        let parse_long = |vendor, class, device| {
            let at_dot = |at: &usize| at % (LABEL_MAX + 1) == 0;
            let vendor: String = (1..=vendor)
                .map(|at| if at_dot(&at) { '.' } else { 'x' })
                .collect();
            let [class, device] = [class, device].map(|length| "x".repeat(length));
            parse(&format!("{vendor}/{class}={device}"))
                .map(drop)
                .map_err(|error| error.to_string())
        };
        assert_eq!(parse_long(253, 63, 194), Ok(()));
        assert_eq!(parse_long(1, 1, 508), Ok(()));
        // A file with such a device can be used for the others.
        assert_eq!(check_device_name(&"x".repeat(600)), Ok(()));
        assert!(parse(&format!("{}/c=0", "x".repeat(LABEL_MAX))).is_ok());
        assert!(parse(&format!("{}/c=0", "x".repeat(LABEL_MAX + 1))).is_err());
        assert_eq!(
            parse_long(253, 63, 195),
            Err("longer than 512 characters".to_owned())
        );
        assert_eq!(
            parse_long(254, 1, 1),
            Err("the vendor is longer than 253 characters".to_owned())
        );
        assert_eq!(
            parse_long(1, 64, 1),
            Err("the class is longer than 63 characters".to_owned())
        );
        assert_eq!(
            parse_long(1, 1, 509),
            Err("longer than 512 characters".to_owned())
        );
    }

    fn json(text: &str) -> Option<String> {
        find_kind(text.as_bytes(), Format::Json)
    }

    #[test]
    fn complete_document_has_a_kind_despite_other_faults() {
        let kind = Some("v.com/gpu".to_owned());
        assert_eq!(
            json(r#"{"kind":"v_w..com/gpu"}"#).as_deref(),
            Some("v_w..com/gpu")
        );
        for text in [
            r#"{"kind":"v.com/gpu"}"#,
            r#"{"devices":[{"kind":"w.com/gpu"}],"unknown":1,"kind":"v.com/gpu"}"#,
        ] {
            assert_eq!(json(text), kind, "{text}");
        }
        assert_eq!(
            find_kind(b"kind: v.com/gpu\ndevices: no\n", Format::Yaml),
            kind
        );
    }

    #[test]
    fn ambiguous_document_has_no_kind() {
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
        for text in [
            "kind: v.com/gpu\nkind: v.com/gpu\n",
            "kind: v.com/gpu\n---\nkind: x/y\n",
        ] {
            assert_eq!(find_kind(text.as_bytes(), Format::Yaml), None, "{text}");
        }
        assert_eq!(
            find_kind(b"{\"kind\":\"v.com/gpu\",\"a\":\"\xff\"}", Format::Json),
            None
        );
    }
}
