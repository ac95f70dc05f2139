//! The one spelling of a device: `SPEC` or `SPEC ACCESS`.

use std::fmt;
use std::str::FromStr;

use crate::plan::{Access, DeviceType};

/// A device or a class of devices, and what may be done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Specifier {
    pub(super) name: Name,
    access: Access,
}

/// What a specifier names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// The device node at this path, which begins with `/dev/`.
    Path(String),
    /// Every device of the drivers with this name in `/proc/devices`.
    Class(DeviceType, String),
}

impl Specifier {
    /// A specifier whose access is written apart, as in `DeviceAllow`.
    ///
    /// # Errors
    /// [`SpecifierError`] for an access string that is none (looked at first), and for a name that
    /// is neither `/dev/…`, `char-NAME` nor `block-NAME`.
    pub fn new(spec: &str, access: &str) -> Result<Self, SpecifierError> {
        let access = access.parse().map_err(|_| SpecifierError::Access)?;
        Ok(Self { name: Name::parse(spec)?, access })
    }

    /// What may be done with the device.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }
}

impl FromStr for Specifier {
    type Err = SpecifierError;

    /// `SPEC` alone means `rw`.
    fn from_str(text: &str) -> Result<Self, SpecifierError> {
        match text.split_once(' ') {
            Some((spec, access)) => Self::new(spec, access),
            None => Ok(Self { name: Name::parse(text)?, access: Access::RW }),
        }
    }
}

impl fmt::Display for Specifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.access)
    }
}

impl Name {
    fn parse(spec: &str) -> Result<Self, SpecifierError> {
        if spec.chars().any(char::is_control) {
            return Err(SpecifierError::Unknown);
        }
        if let Some(class) = spec.strip_prefix("char-") {
            return Self::class(DeviceType::Char, class);
        }
        if let Some(class) = spec.strip_prefix("block-") {
            return Self::class(DeviceType::Block, class);
        }
        let below = spec.strip_prefix("/dev/").ok_or(SpecifierError::Unknown)?;
        if below.is_empty() || below.split('/').any(|part| part == "..") {
            return Err(SpecifierError::Unknown);
        }
        // These name the descriptors of whoever looks, here the helper's own.
        if matches!(below, "stdin" | "stdout" | "stderr") || below.starts_with("fd/") {
            return Err(SpecifierError::Unknown);
        }
        Ok(Self::Path(spec.to_owned()))
    }

    fn class(kind: DeviceType, class: &str) -> Result<Self, SpecifierError> {
        if class.is_empty() {
            return Err(SpecifierError::Unknown);
        }
        Ok(Self::Class(kind, class.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.write_str(path),
            Self::Class(DeviceType::Char, class) => write!(f, "char-{class}"),
            Self::Class(DeviceType::Block, class) => write!(f, "block-{class}"),
        }
    }
}

/// Why a text is no specifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecifierError {
    /// It is neither a path below `/dev/` nor `char-NAME` nor `block-NAME`.
    Unknown,
    /// The access is not one to three letters out of `r`, `w` and `m`.
    Access,
}

impl fmt::Display for SpecifierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "not a path below /dev, char-NAME or block-NAME",
            Self::Access => "access is not one to three letters out of r, w, m",
        })
    }
}

impl std::error::Error for SpecifierError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling() {
        for (text, shown) in [
            ("/dev/null", "/dev/null rw"),
            ("/dev/nvidia0 rwm", "/dev/nvidia0 rwm"),
            ("char-pts mr", "char-pts rm"),
            ("block-loop w", "block-loop w"),
            ("char-/dev/tty", "char-/dev/tty rw"),
            ("/dev/a-b:c rr", "/dev/a-b:c r"),
        ] {
            assert_eq!(text.parse::<Specifier>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn anything_else_is_none() {
        let unknown = [
            "",
            "null",
            "/dev",
            "/dev/",
            "dev/null",
            "/sys/x",
            "/devil",
            "char-",
            "block-",
            "char",
            "/dev/../etc/x",
            "/dev/a/..",
            "/dev/fd/0",
            "/dev/stdin",
            "/dev/a\nb",
            "c:1:3",
        ];
        for text in unknown {
            assert_eq!(text.parse::<Specifier>(), Err(SpecifierError::Unknown), "{text:?}");
        }
        for text in
            ["/dev/null ", "/dev/null  rw", "/dev/null rw ", "/dev/null rwmr", "/dev/null z"]
        {
            assert_eq!(text.parse::<Specifier>(), Err(SpecifierError::Access), "{text:?}");
        }
    }

    #[test]
    fn the_access_is_looked_at_first() {
        assert_eq!(Specifier::new("nothing", ""), Err(SpecifierError::Access));
        assert_eq!(Specifier::new("nothing", "r"), Err(SpecifierError::Unknown));
    }

    #[test]
    fn a_path_may_hold_a_blank_where_the_access_is_apart() {
        let specifier = Specifier::new("/dev/a b", "r").unwrap();
        assert_eq!(specifier.name, Name::Path("/dev/a b".into()));
    }
}
