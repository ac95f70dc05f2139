//! Qualified names of devices, `VENDOR/CLASS=NAME`, and the kind of a file that breaks a rule.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::Format;
use super::document;

/// Characters of a whole name, of a vendor, of a class and of a device.
const WHOLE_MAX: usize = 512;
const VENDOR_MAX: usize = 253;
const CLASS_MAX: usize = 63;
const DEVICE_MAX: usize = 253;

/// A qualified name. It names one device of one kind and nothing else: `all` is a device if a
/// specification has one of that name.
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

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for QualifiedName {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let (kind, name) = text.split_once('=').ok_or_else(no_name)?;
        check_kind(kind)?;
        check_device(name)?;
        match text.len() <= WHOLE_MAX {
            true => Ok(Self { kind: kind.to_owned(), name: name.to_owned() }),
            false => Err(Invalid(format!("longer than {WHOLE_MAX} characters"))),
        }
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.name)
    }
}

/// Holds `VENDOR/CLASS` to its grammar: each begins with a letter, ends with a letter or a digit,
/// and has letters, digits, `_`, `-` and `.` between (CDI 1.1.0, "Kind").
///
/// Gives the class.
pub(super) fn check_kind(kind: &str) -> Result<&str, Invalid> {
    let (vendor, class) = kind.split_once('/').ok_or_else(no_name)?;
    let letter = |c: char| c.is_ascii_alphabetic();
    check("vendor", vendor, VENDOR_MAX, letter, "_-.")?;
    check("class", class, CLASS_MAX, letter, "_-.")?;
    Ok(class)
}

/// Holds the name of a device to its grammar: letters and digits, with `_`, `-`, `.` and `:`
/// between (CDI 1.1.0, "CDI Devices"; the colon is in the name of a MIG instance, `0:1`).
pub(super) fn check_device(name: &str) -> Result<(), Invalid> {
    check("device's name", name, DEVICE_MAX, |c| c.is_ascii_alphanumeric(), "_-.:")
}

fn check(
    part: &str,
    text: &str,
    most: usize,
    first: fn(char) -> bool,
    between: &str,
) -> Result<(), Invalid> {
    let known = |c: &char| c.is_ascii_alphanumeric() || between.contains(*c);
    let fault = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > most {
        format!("is longer than {most} characters")
    } else if let Some(odd) = text.chars().find(|c| !known(c)) {
        format!("has the character {odd:?}")
    } else if !text.starts_with(first) {
        "begins with another character than it may".to_owned()
    } else if !text.ends_with(|c: char| c.is_ascii_alphanumeric()) {
        "ends with another character than a letter or a digit".to_owned()
    } else {
        return Ok(());
    };
    Err(Invalid(format!("the {part} {fault}")))
}

/// Why a text is no qualified name, or no kind.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Invalid(String);

fn no_name() -> Invalid {
    Invalid("not a qualified CDI name, VENDOR/CLASS=NAME".to_owned())
}

/// The kind that a file means, where that is beyond doubt although the file breaks a rule: it is one
/// whole document, one key at its top and no other is called `kind` in whatever case, and the value
/// is a kind. What breaks the rule stands elsewhere then.
pub(super) fn kind_of(bytes: &[u8], format: Format) -> Option<String> {
    let document = document::read(bytes, format).ok().filter(|it| it.second.is_none())?;
    let mut top = document.value.into_object().ok()?;
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

    fn parse(text: &str) -> Result<QualifiedName, Invalid> {
        text.parse()
    }

    #[test]
    fn names_are_read_and_written() {
        let names = [
            "nvidia.com/gpu=0",
            "nvidia.com/gpu=0:1",
            "nvidia.com/gpu=GPU-edfee158-11c1-52b8-0517-92f30e7fac88",
            "intel.com/gpu=0000-00-02-0-0x56c0",
            "a/b=c",
            "a/b=0",
            "V-1_2.x/C.d-e_f9=A:b.c-d_e",
            "nvidia.com/gpu=all",
        ];
        for text in names {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        let name = parse("nvidia.com/gpu=0").unwrap();
        assert_eq!((name.kind(), name.name()), ("nvidia.com/gpu", "0"));
    }

    #[test]
    fn what_is_wrong_is_told_by_part() {
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
            ("0v/c=0", "the vendor begins with another character than it may"),
            ("v./c=0", "the vendor ends with another character than a letter or a digit"),
            ("v w/c=0", "the vendor has the character ' '"),
            ("v/0=0", "the class begins with another character than it may"),
            ("v/c-=0", "the class ends with another character than a letter or a digit"),
            ("v/c/d=0", "the class has the character '/'"),
            ("v/c:d=0", "the class has the character ':'"),
            ("v/c=:0", "the device's name begins with another character than it may"),
            ("v/c=0:", "the device's name ends with another character than a letter or a digit"),
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
    fn each_part_and_the_whole_have_a_longest() {
        let long = |vendor, class, device| {
            let [vendor, class, device] = [vendor, class, device].map(|length| "x".repeat(length));
            parse(&format!("{vendor}/{class}={device}"))
                .map(drop)
                .map_err(|error| error.to_string())
        };
        assert_eq!(long(253, 63, 194), Ok(()));
        assert_eq!(long(1, 1, 253), Ok(()));
        assert_eq!(long(253, 63, 195), Err("longer than 512 characters".to_owned()));
        assert_eq!(long(254, 1, 1), Err("the vendor is longer than 253 characters".to_owned()));
        assert_eq!(long(1, 64, 1), Err("the class is longer than 63 characters".to_owned()));
        assert_eq!(
            long(1, 1, 254),
            Err("the device's name is longer than 253 characters".to_owned())
        );
    }

    fn json(text: &str) -> Option<String> {
        kind_of(text.as_bytes(), Format::Json)
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
        assert_eq!(kind_of(b"kind: v.com/gpu\ndevices: no\n", Format::Yaml), kind);
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
            assert_eq!(kind_of(text.as_bytes(), Format::Yaml), None, "{text}");
        }
        assert_eq!(kind_of(b"{\"kind\":\"v.com/gpu\",\"a\":\"\xff\"}", Format::Json), None);
    }
}
