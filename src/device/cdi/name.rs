//! Qualified names of devices, `VENDOR/CLASS=NAME`, and the kind of a file that breaks a rule.

use std::fmt;
use std::str::FromStr;

use super::Format;
use super::document::{self, Value};

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
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for QualifiedName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (kind, name) = text.split_once('=').ok_or(NameError::Form)?;
        check_kind(kind)?;
        check_device(name)?;
        match text.len() <= WHOLE_MAX {
            true => Ok(Self { kind: kind.to_owned(), name: name.to_owned() }),
            false => Err(NameError::Whole),
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
pub(super) fn check_kind(kind: &str) -> Result<&str, NameError> {
    let (vendor, class) = kind.split_once('/').ok_or(NameError::Form)?;
    let label = |text: &str, most| check(text, most, |c| c.is_ascii_alphabetic(), "_-.");
    label(vendor, VENDOR_MAX).map_err(NameError::Vendor)?;
    label(class, CLASS_MAX).map_err(NameError::Class)?;
    Ok(class)
}

/// Holds the name of a device to its grammar: letters and digits, with `_`, `-`, `.` and `:`
/// between (CDI 1.1.0, "CDI Devices"; the colon is in the name of a MIG instance, `0:1`).
pub(super) fn check_device(name: &str) -> Result<(), NameError> {
    check(name, DEVICE_MAX, |c| c.is_ascii_alphanumeric(), "_-.:").map_err(NameError::Device)
}

fn check(text: &str, most: usize, first: fn(char) -> bool, between: &str) -> Result<(), PartFault> {
    if text.is_empty() {
        return Err(PartFault::Empty);
    }
    if text.len() > most {
        return Err(PartFault::Long(most));
    }
    let known = |c: &char| c.is_ascii_alphanumeric() || between.contains(*c);
    if let Some(odd) = text.chars().find(|c| !known(c)) {
        return Err(PartFault::Character(odd));
    }
    match (text.starts_with(first), text.ends_with(|c: char| c.is_ascii_alphanumeric())) {
        (true, true) => Ok(()),
        (false, _) => Err(PartFault::Start),
        (true, false) => Err(PartFault::End),
    }
}

/// Why a text is no qualified name, or no kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// Not of the form.
    Form,
    /// Longer than a name may be.
    Whole,
    /// What stands before the slash.
    Vendor(PartFault),
    /// What stands behind the slash.
    Class(PartFault),
    /// The device.
    Device(PartFault),
}

/// What is wrong with a part of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartFault {
    /// Nothing there.
    Empty,
    /// More than so many characters.
    Long(usize),
    /// A character that it cannot have.
    Character(char),
    /// Its first character.
    Start,
    /// Its last character.
    End,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("not a qualified CDI name, VENDOR/CLASS=NAME"),
            Self::Whole => write!(f, "longer than {WHOLE_MAX} characters"),
            Self::Vendor(fault) => write!(f, "the vendor {fault}"),
            Self::Class(fault) => write!(f, "the class {fault}"),
            Self::Device(fault) => write!(f, "the device's name {fault}"),
        }
    }
}

impl fmt::Display for PartFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::Long(most) => write!(f, "is longer than {most} characters"),
            Self::Character(odd) => write!(f, "has the character {odd:?}"),
            Self::Start => f.write_str("begins with another character than it may"),
            Self::End => f.write_str("ends with another character than a letter or a digit"),
        }
    }
}

impl std::error::Error for NameError {}

/// The kind that a file means, where that is beyond doubt although the file breaks a rule: it is a
/// whole document, one key at its top and no other is called `kind` in whatever case, and the value
/// is a kind. What breaks the rule stands elsewhere then.
pub(super) fn kind_of(bytes: &[u8], format: Format) -> Option<String> {
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

    fn parse(text: &str) -> Result<QualifiedName, NameError> {
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
        use NameError::{Class, Device, Form, Vendor};
        use PartFault::{Character, Empty, End, Start};
        let odd = [
            ("", Form),
            ("nvidia.com/gpu", Form),
            ("gpu=0", Form),
            ("/dev/nvidia0", Form),
            ("=0", Form),
            ("/dev/x=0", Vendor(Empty)),
            ("v/=0", Class(Empty)),
            ("v/c=", Device(Empty)),
            ("0v/c=0", Vendor(Start)),
            ("v./c=0", Vendor(End)),
            ("v w/c=0", Vendor(Character(' '))),
            ("v/0=0", Class(Start)),
            ("v/c-=0", Class(End)),
            ("v/c/d=0", Class(Character('/'))),
            ("v/c:d=0", Class(Character(':'))),
            ("v/c=:0", Device(Start)),
            ("v/c=0:", Device(End)),
            ("v/c=0/0", Device(Character('/'))),
            ("v/c=0=0", Device(Character('='))),
            ("v/c=*", Device(Character('*'))),
            ("v/c=\u{e9}", Device(Character('\u{e9}'))),
            ("v/c=0\n", Device(Character('\n'))),
        ];
        for (text, error) in odd {
            assert_eq!(parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn each_part_and_the_whole_have_a_longest() {
        let long = |vendor, class, device| {
            let [vendor, class, device] = [vendor, class, device].map(|length| "x".repeat(length));
            parse(&format!("{vendor}/{class}={device}")).map(|_| ())
        };
        assert_eq!(long(253, 63, 194), Ok(()));
        assert_eq!(long(1, 1, 253), Ok(()));
        assert_eq!(long(253, 63, 195), Err(NameError::Whole));
        assert_eq!(long(254, 1, 1), Err(NameError::Vendor(PartFault::Long(253))));
        assert_eq!(long(1, 64, 1), Err(NameError::Class(PartFault::Long(63))));
        assert_eq!(long(1, 1, 254), Err(NameError::Device(PartFault::Long(253))));
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
