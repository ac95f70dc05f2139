//! One entry of an allowlist, and its numeric form.

use super::MAX_ENTRIES;
use std::fmt;
use std::str::FromStr;

/// Largest device major (`MAJOR()` of `linux/kdev_t.h`: 12 bits).
pub const MAJOR_MAX: u32 = (1 << 12) - 1;
/// Largest device minor (`MINOR()` of `linux/kdev_t.h`: 20 bits).
pub const MINOR_MAX: u32 = (1 << 20) - 1;

/// Kind of a device node. The numbers are `BPF_DEVCG_DEV_*` of `linux/bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum DeviceType {
    /// Block device, `b` in the numeric form.
    Block = 1,
    /// Character device, `c` in the numeric form.
    Char = 2,
}

impl DeviceType {
    /// The letter of the numeric form.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::Block => 'b',
            Self::Char => 'c',
        }
    }
}

/// A set of accesses. The bits are `BPF_DEVCG_ACC_*` of `linux/bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Access(u32);

impl Access {
    /// Nothing at all.
    pub const NONE: Self = Self(0);
    /// `mknod(2)` of the node.
    pub const MKNOD: Self = Self(1);
    /// Opening for reading.
    pub const READ: Self = Self(2);
    /// Opening for writing.
    pub const WRITE: Self = Self(4);
    /// Opening for both.
    pub const RW: Self = Self(6);
    /// Everything.
    pub const ALL: Self = Self(7);

    /// The bits as the kernel numbers them, 0 to 7.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The set of these bits; `None` where a bit is set that the kernel does not know.
    #[must_use]
    pub fn from_bits(bits: u32) -> Option<Self> {
        (bits <= 7).then_some(Self(bits))
    }

    /// Both sets together.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every access of `other` is in this set.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }
}

impl FromStr for Access {
    type Err = RuleError;

    /// One to three letters out of `r`, `w` and `m`, repeats allowed, as in `DeviceAllow=`.
    fn from_str(text: &str) -> Result<Self, RuleError> {
        if text.is_empty() || text.len() > 3 {
            return Err(RuleError::Access);
        }
        text.bytes().try_fold(Self::NONE, |set, letter| match letter {
            b'r' => Ok(set.union(Self::READ)),
            b'w' => Ok(set.union(Self::WRITE)),
            b'm' => Ok(set.union(Self::MKNOD)),
            _ => Err(RuleError::Access),
        })
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (set, letter) in [(Self::READ, "r"), (Self::WRITE, "w"), (Self::MKNOD, "m")] {
            if self.contains(set) {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

/// One entry: a device, or all minors of a major, and what may be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceRule {
    kind: DeviceType,
    major: u32,
    minor: Option<u32>,
    access: Access,
}

impl DeviceRule {
    /// An entry of checked numbers; `minor` of `None` means every minor of the major.
    ///
    /// # Errors
    /// A major over [`MAJOR_MAX`], a minor over [`MINOR_MAX`], or no access at all.
    pub fn new(
        kind: DeviceType,
        major: u32,
        minor: Option<u32>,
        access: Access,
    ) -> Result<Self, RuleError> {
        if major > MAJOR_MAX {
            return Err(RuleError::Major);
        }
        if minor.is_some_and(|minor| minor > MINOR_MAX) {
            return Err(RuleError::Minor);
        }
        if access == Access::NONE {
            return Err(RuleError::Access);
        }
        Ok(Self { kind, major, minor, access })
    }

    /// Block or character device.
    #[must_use]
    pub fn kind(&self) -> DeviceType {
        self.kind
    }

    /// Device major, 0 to [`MAJOR_MAX`].
    #[must_use]
    pub fn major(&self) -> u32 {
        self.major
    }

    /// Device minor, 0 to [`MINOR_MAX`]; `None` means every minor.
    #[must_use]
    pub fn minor(&self) -> Option<u32> {
        self.minor
    }

    /// What may be done with the device; never empty.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }
}

impl fmt::Display for DeviceRule {
    /// The numeric form of the Flux IMP, `c:195:0:rw`, with `-1` for every minor.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minor = self.minor.map_or(-1, i64::from);
        write!(f, "{}:{}:{minor}:{}", self.kind.letter(), self.major, self.access)
    }
}

impl FromStr for DeviceRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let mut fields = text.split(':');
        let mut next = || fields.next().ok_or(RuleError::Form);
        let kind = match next()? {
            "b" => DeviceType::Block,
            "c" => DeviceType::Char,
            _ => return Err(RuleError::Form),
        };
        let major = decimal(next()?).ok_or(RuleError::Major)?;
        let minor = match next()? {
            "-1" => None,
            digits => Some(decimal(digits).ok_or(RuleError::Minor)?),
        };
        let access = next()?.parse()?;
        if fields.next().is_some() {
            return Err(RuleError::Form);
        }
        Self::new(kind, major, minor, access)
    }
}

/// Decimal digits only: no sign, no blank, no leading zero, so that one number has one spelling.
pub(crate) fn decimal(text: &str) -> Option<u32> {
    let canonical = text == "0" || !text.starts_with('0');
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (canonical && digits).then(|| text.parse().ok())?
}

/// Why an entry is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// Not of the form `TYPE:MAJOR:MINOR:ACCESS`.
    Form,
    /// The major is no number or out of range.
    Major,
    /// The minor is no number or out of range.
    Minor,
    /// The access is not one to three letters out of `r`, `w` and `m`.
    Access,
    /// The list holds [`MAX_ENTRIES`] already.
    Full,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("device entry is not of the form TYPE:MAJOR:MINOR:ACCESS"),
            Self::Major => write!(f, "device major is not a number from 0 to {MAJOR_MAX}"),
            Self::Minor => write!(f, "device minor is not -1 or a number from 0 to {MINOR_MAX}"),
            Self::Access => f.write_str("device access is not one to three letters out of r, w, m"),
            Self::Full => write!(f, "allowlist has more than {MAX_ENTRIES} entries"),
        }
    }
}

impl std::error::Error for RuleError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_form_round_trips() {
        for text in ["c:195:0:rw", "b:7:-1:rwm", "c:4095:1048575:m", "c:0:0:r"] {
            assert_eq!(text.parse::<DeviceRule>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn laxities_of_scanf_are_refused() {
        for text in [
            "",
            "c",
            "c:1:3",
            "c:1:3:",
            "c:1:3:rwmX",
            "c:1:3:rwmr",
            "c: 1:3:rw",
            "c:1:+3:rw",
            "c:-1:3:rw",
            "c:1:-2:rw",
            "c:4096:0:r",
            "c:1:1048576:r",
            "x:1:3:r",
            "c:1:3:r:",
            "c:01:3:r",
            "c:1:99999999999:r",
            "C:1:3:r",
            "c:1:3:R",
        ] {
            assert!(text.parse::<DeviceRule>().is_err(), "{text} was taken");
        }
    }
}
