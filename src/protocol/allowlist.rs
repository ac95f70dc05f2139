//! What a job may open, resolved: numbers only.

use std::fmt;
use std::str::FromStr;

use super::environment::Variable;
use super::schema::{AbsolutePath, DecodeError, Field, Invalid, Reader, Text, Writer, decimal};

/// Most entries that an allowlist may hold.
pub const MAX_ENTRIES: usize = 1024;
/// Most [`Probe`]s of one login.
pub const MAX_PROBES: usize = 64;
/// Largest device major (`MAJOR()` of `linux/kdev_t.h`: 12 bits).
pub const MAJOR_MAX: u32 = (1 << 12) - 1;
/// Largest device minor (`MINOR()` of `linux/kdev_t.h`: 20 bits).
pub const MINOR_MAX: u32 = (1 << 20) - 1;

const RULE: Invalid = Invalid(
    "a device is TYPE:MAJOR:MINOR:ACCESS with a type of b or c, a major of at most 4095, and a minor \
     of -1 or at most 1048575",
);
const ACCESS: Invalid = Invalid("device access is not one to three letters out of r, w, m");
const FULL: Invalid = Invalid("allowlist has more than 1024 entries");
const PROBE: Invalid =
    Invalid("a probe is TYPE:MAJOR:MINOR:rw and a path of at most 32 bytes below /dev");

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
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The set of these bits; `None` where a bit is set that the kernel does not know.
    pub fn from_bits(bits: u32) -> Option<Self> {
        (bits <= 7).then_some(Self(bits))
    }

    /// Both sets together.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every access of `other` is in this set.
    pub fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }
}

impl FromStr for Access {
    type Err = Invalid;

    /// One to three letters out of `r`, `w` and `m`, repeats allowed, as in `DeviceAllow=`.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let set = text.bytes().try_fold(Self::NONE, |set, letter| match letter {
            b'r' => Some(set.union(Self::READ)),
            b'w' => Some(set.union(Self::WRITE)),
            b'm' => Some(set.union(Self::MKNOD)),
            _ => None,
        });
        set.filter(|_| (1..=3).contains(&text.len())).ok_or(ACCESS)
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
    /// An entry of checked numbers; `minor` of `None` means every minor of the major. A number out of
    /// range and no access at all are errors.
    pub fn new(
        kind: DeviceType,
        major: u32,
        minor: Option<u32>,
        access: Access,
    ) -> Result<Self, Invalid> {
        if major > MAJOR_MAX || minor.is_some_and(|minor| minor > MINOR_MAX) {
            return Err(RULE);
        }
        if access == Access::NONE { Err(ACCESS) } else { Ok(Self { kind, major, minor, access }) }
    }

    /// Block or character device.
    pub fn kind(&self) -> DeviceType {
        self.kind
    }

    /// Device major, 0 to [`MAJOR_MAX`].
    pub fn major(&self) -> u32 {
        self.major
    }

    /// Device minor, 0 to [`MINOR_MAX`]; `None` means every minor.
    pub fn minor(&self) -> Option<u32> {
        self.minor
    }

    /// What may be done with the device; never empty.
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
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let fields: Vec<&str> = text.split(':').collect();
        let [kind, major, minor, access] = *fields.as_slice() else { return Err(RULE) };
        let kind = match kind {
            "b" => DeviceType::Block,
            "c" => DeviceType::Char,
            _ => return Err(RULE),
        };
        let minor = match minor {
            "-1" => None,
            digits => Some(decimal(digits).ok_or(RULE)?),
        };
        Self::new(kind, decimal(major).ok_or(RULE)?, minor, access.parse()?)
    }
}

impl Text for DeviceRule {
    const MOST: usize = MAX_ENTRIES;
}

/// What a job may open. An empty list allows nothing.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Allowlist(Vec<DeviceRule>);

impl Allowlist {
    /// A list that allows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry, unless it stands already; one past [`MAX_ENTRIES`] is an error.
    pub fn push(&mut self, rule: DeviceRule) -> Result<(), Invalid> {
        if self.0.contains(&rule) {
            return Ok(());
        }
        if self.0.len() >= MAX_ENTRIES {
            return Err(FULL);
        }
        self.0.push(rule);
        Ok(())
    }

    /// The entries in the order in which they were added.
    pub fn rules(&self) -> &[DeviceRule] {
        &self.0
    }
}

impl Field for Allowlist {
    fn write(&self, key: &str, out: &mut Writer) {
        self.0.write(key, out);
    }

    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let rules: Vec<DeviceRule> = Field::read(key, input)?;
        let mut list = Self::new();
        let added = rules.iter().try_for_each(|rule| list.push(*rule));
        match added {
            Ok(()) if list.0 == rules => Ok(list),
            _ => Err(DecodeError::value(key)),
        }
    }
}

/// A device node of the scheduler's, which a login is tried on once it is in its job: its path, and
/// the numbers that it must have. Written as `c:195:0:rw /dev/nvidia0`, and perhaps the variable that
/// names it for programs behind that, as `CUDA_VISIBLE_DEVICES=0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Type, major and minor; both numbers are given, and the access is `rw`.
    pub device: DeviceRule,
    /// Its path, below `/dev` and of at most 32 bytes.
    pub path: AbsolutePath,
    /// A list of GPUs with this one alone.
    pub variable: Option<Variable>,
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.device, self.path)?;
        self.variable.iter().try_for_each(|variable| write!(f, " {variable}"))
    }
}

impl FromStr for Probe {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let (device, rest) = text.split_once(' ').ok_or(PROBE)?;
        let (path, variable) = rest.split_once(' ').map_or((rest, None), |(a, b)| (a, Some(b)));
        let variable = variable.map(Variable::of_gpu).transpose()?;
        let probe = Self { device: device.parse()?, path: path.parse()?, variable };
        let single = probe.device.minor().is_some() && probe.device.access() == Access::RW;
        let in_dev = path.starts_with("/dev/") && path.len() <= 32;
        if single && in_dev && probe.to_string() == text { Ok(probe) } else { Err(PROBE) }
    }
}

impl Text for Probe {
    const MOST: usize = MAX_PROBES;
}

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
            "", "c", "c:1:3", "c:1:3:", "c:1:3:rwmX", "c:1:3:rwmr", "c: 1:3:rw", "c:1:+3:rw",
            "c:-1:3:rw", "c:1:-2:rw", "c:4096:0:r", "c:1:1048576:r", "x:1:3:r", "c:1:3:r:",
            "c:01:3:r", "c:1:99999999999:r", "C:1:3:r", "c:1:3:R",
        ] {
            assert!(text.parse::<DeviceRule>().is_err(), "{text} was taken");
        }
    }

    #[test]
    fn list_is_bounded_and_without_doubles() {
        let mut list = Allowlist::new();
        for minor in 0..MAX_ENTRIES as u32 {
            let rule = DeviceRule::new(DeviceType::Char, 1, Some(minor), Access::RW).unwrap();
            list.push(rule).unwrap();
            list.push(rule).unwrap();
        }
        assert_eq!(list.rules().len(), MAX_ENTRIES);
        let rule = DeviceRule::new(DeviceType::Block, 1, None, Access::RW).unwrap();
        assert_eq!(list.push(rule), Err(FULL));
    }

    #[test]
    fn a_probe_is_read_back() {
        let longest = format!("b:259:3:rw /dev/{}", "d".repeat(27));
        for text in ["c:195:0:rw /dev/nvidia0", "c:226:128:rw /dev/dri/renderD128", &longest] {
            assert_eq!(text.parse::<Probe>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nothing_else_is_one() {
        let long = format!("c:195:0:rw /dev/{}", "d".repeat(28));
        for text in [
            "c:195:0:rw /dev/nvidia0 CUDA_VISIBLE_DEVICES=0,1",
            "c:195:0:rw /dev/nvidia0 CUDA_VISIBLE_DEVICES=",
            "c:195:0:rw /dev/nvidia0 CUDA_VISIBLE_DEVICES",
            "c:195:0:rw /dev/nvidia0 CUDA_VISIBLE_DEVICES=0 ",
            "c:195:0:rw /dev/nvidia0 GPU_DEVICE_ORDINAL=0",
            "c:195:0:rw /dev/nvidia0 SLURM_JOB_ID=7",
            "c:195:0:rw /dev/nvidia0 LD_PRELOAD=/tmp/x",
            "",
            "c:195:0:rw",
            "/dev/nvidia0",
            "c:195:-1:rw /dev/nvidia0",
            "c:195:0:r /dev/nvidia0",
            "c:195:0:rwm /dev/nvidia0",
            "c:0195:0:rw /dev/nvidia0",
            "c:195:0:wr /dev/nvidia0",
            "c:195:0:rw  /dev/nvidia0",
            "c:195:0:rw /etc/nvidia0",
            "c:195:0:rw /device/nvidia0",
            "c:195:0:rw /dev/",
            "c:195:0:rw /dev/../etc/x",
            "c:195:0:rw dev/nvidia0",
            &long,
        ] {
            assert!(text.parse::<Probe>().is_err(), "{text}");
        }
    }

    #[test]
    fn errors_name_the_bounds() {
        let bounds = format!("at most {MAJOR_MAX}, and a minor of -1 or at most {MINOR_MAX}");
        assert!(RULE.to_string().ends_with(&bounds), "{RULE}");
        assert!(FULL.to_string().ends_with(&format!("than {MAX_ENTRIES} entries")), "{FULL}");
    }
}
