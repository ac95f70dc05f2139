//! Resolved device allowlists: types, numbers and accesses of devices, without names.

use std::fmt;
use std::str::FromStr;

use super::environment::Variable;
use super::names::{AbsolutePath, parse_decimal};
use super::schema::{DecodeError, Field, InvalidText, Reader, Text, Writer};

/// Maximum entries of an allowlist. A reply has room for all of them.
pub const ALLOWLIST_ENTRIES_MAX: usize = 1024;
/// Maximum [`Probe`]s of one login. Each costs three system calls.
pub const PROBES_MAX: usize = 64;
/// Maximum bytes of the path of a [`Probe`].
const PROBE_PATH_BYTES_MAX: usize = 32;
/// Largest device major (`MAJOR()` of `linux/kdev_t.h`: 12 bits).
pub const MAJOR_MAX: u32 = (1 << 12) - 1;
/// Largest device minor (`MINOR()` of `linux/kdev_t.h`: 20 bits).
pub const MINOR_MAX: u32 = (1 << 20) - 1;

const INVALID_RULE: InvalidText = InvalidText(
    "a device is TYPE:MAJOR:MINOR:ACCESS with a type of b or c, a major of at most 4095, and a minor \
     of -1 or at most 1048575",
);
const INVALID_ACCESS: InvalidText =
    InvalidText("device access is not one to three letters out of r, w, m");
const FULL_LIST: InvalidText = InvalidText("allowlist has more than 1024 entries");
const INVALID_PROBE: InvalidText =
    InvalidText("a probe is TYPE:MAJOR:MINOR:rw and a path of at most 32 bytes below /dev");

/// The type of a device node. The numbers are `BPF_DEVCG_DEV_*` of `linux/bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum DeviceType {
    /// Block device, `b` in the numeric form.
    Block = 1,
    /// Character device, `c` in the numeric form.
    Char = 2,
}

impl DeviceType {
    /// The letter of the numeric form: `b` or `c`.
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
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// Creating the node with `mknod(2)`.
    pub const MKNOD: Self = Self(1);
    /// Opening for reading.
    pub const READ: Self = Self(2);
    /// Opening for writing.
    pub const WRITE: Self = Self(4);
    /// Opening for reading and writing.
    pub const RW: Self = Self(6);
    /// Every access that the kernel knows.
    pub const ALL: Self = Self(7);

    /// The bits as the kernel numbers them, 0 to 7.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Converts the kernel's bits; `None` if a bit is set that the kernel does not know.
    pub fn from_bits(bits: u32) -> Option<Self> {
        (bits <= 7).then_some(Self(bits))
    }

    /// Joins the accesses of both sets.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Tells whether every access of `other` is in this set.
    pub fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }
}

impl FromStr for Access {
    type Err = InvalidText;

    /// Parses one to three letters out of `r`, `w` and `m`. They may repeat, as in `DeviceAllow=`.
    fn from_str(text: &str) -> Result<Self, InvalidText> {
        if !(1..=3).contains(&text.len()) {
            return Err(INVALID_ACCESS);
        }
        let mut set = Self::NONE;
        for letter in text.bytes() {
            set = set.union(match letter {
                b'r' => Self::READ,
                b'w' => Self::WRITE,
                b'm' => Self::MKNOD,
                _ => return Err(INVALID_ACCESS),
            });
        }
        Ok(set)
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

/// An entry of an allowlist: a device, or all minors of a major, and the allowed accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceRule {
    kind: DeviceType,
    major: u32,
    minor: Option<u32>,
    access: Access,
}

impl DeviceRule {
    /// Checks the numbers of an entry. `minor` of `None` means every minor of the major.
    ///
    /// # Errors
    ///
    /// A major or minor out of range; an empty set of accesses.
    pub fn from_numbers(
        kind: DeviceType,
        major: u32,
        minor: Option<u32>,
        access: Access,
    ) -> Result<Self, InvalidText> {
        if major > MAJOR_MAX || minor.is_some_and(|minor| minor > MINOR_MAX) {
            return Err(INVALID_RULE);
        }
        if access == Access::NONE {
            return Err(INVALID_ACCESS);
        }
        Ok(Self {
            kind,
            major,
            minor,
            access,
        })
    }

    /// The type of the device.
    pub fn kind(&self) -> DeviceType {
        self.kind
    }

    /// The device's major, 0 to [`MAJOR_MAX`].
    pub fn major(&self) -> u32 {
        self.major
    }

    /// The device's minor, 0 to [`MINOR_MAX`]; `None` means every minor.
    pub fn minor(&self) -> Option<u32> {
        self.minor
    }

    /// The allowed accesses, at least one.
    pub fn access(&self) -> Access {
        self.access
    }
}

impl fmt::Display for DeviceRule {
    /// Writes the numeric form of the Flux IMP, `c:195:0:rw`, with `-1` for every minor.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minor = self.minor.map_or(-1, i64::from);
        write!(
            f,
            "{}:{}:{minor}:{}",
            self.kind.letter(),
            self.major,
            self.access
        )
    }
}

impl FromStr for DeviceRule {
    type Err = InvalidText;

    /// Parses the form `TYPE:MAJOR:MINOR:ACCESS` that `Display` writes, with `-1` for every minor.
    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let fields: Vec<&str> = text.split(':').collect();
        let [kind, major, minor, access] = *fields.as_slice() else {
            return Err(INVALID_RULE);
        };
        let kind = match kind {
            "b" => DeviceType::Block,
            "c" => DeviceType::Char,
            _ => return Err(INVALID_RULE),
        };
        let minor = match minor {
            "-1" => None,
            digits => Some(parse_decimal(digits).ok_or(INVALID_RULE)?),
        };
        let major = parse_decimal(major).ok_or(INVALID_RULE)?;
        Self::from_numbers(kind, major, minor, access.parse()?)
    }
}

impl Text for DeviceRule {
    const ITEMS_MAX: usize = ALLOWLIST_ENTRIES_MAX;
}

/// The devices that a job may open, each entry once. An empty list allows nothing.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Allowlist(Vec<DeviceRule>);

impl Allowlist {
    /// Creates an empty list, which allows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry unless the list has it already.
    ///
    /// # Errors
    ///
    /// A new entry for a list that has [`ALLOWLIST_ENTRIES_MAX`] entries.
    pub fn push(&mut self, rule: DeviceRule) -> Result<(), InvalidText> {
        if self.0.contains(&rule) {
            return Ok(());
        }
        if self.0.len() >= ALLOWLIST_ENTRIES_MAX {
            return Err(FULL_LIST);
        }
        self.0.push(rule);
        Ok(())
    }

    /// The entries, in the order in which they were added.
    pub fn rules(&self) -> &[DeviceRule] {
        &self.0
    }
}

impl Field for Allowlist {
    fn write(&self, key: &str, out: &mut Writer) {
        self.0.write(key, out);
    }

    /// Reads the list; an entry that stands twice is an error.
    fn read(key: &str, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let rules: Vec<DeviceRule> = Field::read(key, input)?;
        let mut list = Self::new();
        for rule in &rules {
            list.push(*rule)
                .map_err(|_| DecodeError::invalid_value(key))?;
        }
        // A shorter list would mean that an entry stood twice.
        if list.0 != rules {
            return Err(DecodeError::invalid_value(key));
        }
        Ok(list)
    }
}

/// A device node of a GPU. After the move the privileged half asks the kernel whether the login can open
/// it. The text form is `c:195:0:rw /dev/nvidia0`; a variable that names the GPU to programs may follow,
/// for example ` CUDA_VISIBLE_DEVICES=0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Type and numbers that the node must have. It is one device, and its access is `rw`.
    pub device: DeviceRule,
    /// Path of the node, below `/dev` and of at most 32 bytes.
    pub path: AbsolutePath,
    /// Variable that lists this GPU alone; `None` if programs count GPUs by themselves.
    pub variable: Option<Variable>,
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.device, self.path)?;
        if let Some(variable) = &self.variable {
            write!(f, " {variable}")?;
        }
        Ok(())
    }
}

impl FromStr for Probe {
    type Err = InvalidText;

    /// Parses the form that `Display` writes. A probe of all minors, with another access than `rw`, or with a path
    /// outside of `/dev` or too long is an error.
    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let (device, rest) = text.split_once(' ').ok_or(INVALID_PROBE)?;
        let (path, variable) = match rest.split_once(' ') {
            Some((path, variable)) => (path, Some(Variable::parse_gpu_list(variable)?)),
            None => (rest, None),
        };
        let probe = Self {
            device: device.parse()?,
            path: path.parse()?,
            variable,
        };
        let is_one_device = probe.device.minor().is_some() && probe.device.access() == Access::RW;
        let is_in_dev = path.starts_with("/dev/") && path.len() <= PROBE_PATH_BYTES_MAX;
        let is_canonical = probe.to_string() == text;
        if !is_one_device || !is_in_dev || !is_canonical {
            return Err(INVALID_PROBE);
        }
        Ok(probe)
    }
}

impl Text for Probe {
    const ITEMS_MAX: usize = PROBES_MAX;
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
    fn rule_that_only_scanf_accepts_is_refused() {
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

    #[test]
    fn list_is_limited_and_has_each_entry_once() {
        let mut list = Allowlist::new();
        let of_numbers =
            |kind, minor| DeviceRule::from_numbers(kind, 1, minor, Access::RW).unwrap();
        for minor in 0..ALLOWLIST_ENTRIES_MAX as u32 {
            let rule = of_numbers(DeviceType::Char, Some(minor));
            list.push(rule).unwrap();
            list.push(rule).unwrap();
        }
        assert_eq!(list.rules().len(), ALLOWLIST_ENTRIES_MAX);
        assert_eq!(
            list.push(of_numbers(DeviceType::Block, None)),
            Err(FULL_LIST)
        );
    }

    #[test]
    fn probe_round_trips() {
        let longest = format!("b:259:3:rw /dev/{}", "d".repeat(27));
        for text in [
            "c:195:0:rw /dev/nvidia0",
            "c:226:128:rw /dev/dri/renderD128",
            &longest,
        ] {
            assert_eq!(text.parse::<Probe>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn malformed_probe_is_refused() {
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
        assert!(
            INVALID_RULE.to_string().ends_with(&bounds),
            "{INVALID_RULE}"
        );
        let bound = format!("than {ALLOWLIST_ENTRIES_MAX} entries");
        assert!(FULL_LIST.to_string().ends_with(&bound), "{FULL_LIST}");
    }
}
