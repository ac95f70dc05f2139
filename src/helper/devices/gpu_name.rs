//! The names of GPUs (logical number, PCI address, UUID, MIG instance), and the other device names
//! that the keys of a record contain beside specifiers. Each of them must resolve.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

use protocol::parse_decimal;

/// The name of one GPU of the node, or of one part of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuName {
    /// The n-th GPU of the node, from 0, in the order that `topology` gives.
    Index(u32),
    /// The GPU at this PCI address.
    Pci(PciAddress),
    /// NVIDIA's UUID, `GPU-` and 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12.
    Uuid(Uuid),
    /// A MIG instance by the UUID of its parent and the numbers of its GPU instance and its compute
    /// instance: `MIG-GPU-UUID/GI/CI`, as drivers before R470 name it.
    Instance {
        /// UUID of the parent GPU.
        gpu: Uuid,
        /// GPU instance, 0 to 14.
        gi: u32,
        /// Compute instance, 0 to 7.
        ci: u32,
    },
    /// A MIG instance by its own UUID: `MIG-UUID`.
    Mig(Uuid),
}

/// Largest number of a GPU instance (`/proc/driver/nvidia-caps/mig-minors`).
const GI_MAX: u32 = 14;
/// Largest number of a compute instance.
const CI_MAX: u32 = 7;

/// A UUID without a prefix. It is kept in lower case, since drivers differ in the case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(String);

/// Lengths of the groups of a UUID (RFC 9562, section 4).
const GROUP_LENGTHS: [usize; 5] = [8, 4, 4, 4, 12];

impl FromStr for Uuid {
    type Err = GpuNameError;

    fn from_str(text: &str) -> Result<Self, GpuNameError> {
        let groups: Vec<&str> = text.split('-').collect();
        let hex = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
        let lengths = groups.iter().map(|group| group.len()).eq(GROUP_LENGTHS);
        match lengths && groups.iter().all(hex) {
            true => Ok(Self(text.to_ascii_lowercase())),
            false => Err(GpuNameError),
        }
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Address of a PCI function. Addresses are ordered by domain, bus, device and function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u32,
    device: u32,
    function: u32,
}

impl FromStr for PciAddress {
    type Err = GpuNameError;

    /// Parses `DDDD:BB:DD.F` in hexadecimal digits. The domain has four to eight of them, or is left
    /// out if it is 0.
    fn from_str(text: &str) -> Result<Self, GpuNameError> {
        let (front, function) = text.split_once('.').ok_or(GpuNameError)?;
        let mut parts = front.rsplit(':');
        let device = parse_hex(parts.next(), 2..=2)?;
        let bus = parse_hex(parts.next(), 2..=2)?;
        let domain = match parts.next() {
            None => 0,
            part => parse_hex(part, 4..=8)?,
        };
        let function = parse_hex(Some(function), 1..=1)?;
        match parts.next().is_none() && device < 32 && function < 8 {
            true => Ok(Self { domain, bus, device, function }),
            false => Err(GpuNameError),
        }
    }
}

fn parse_hex(part: Option<&str>, digits: RangeInclusive<usize>) -> Result<u32, GpuNameError> {
    let part = part.ok_or(GpuNameError)?;
    let is_hex = digits.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u32::from_str_radix(part, 16).ok()).flatten().ok_or(GpuNameError)
}

impl PciAddress {
    /// Returns the number of the domain.
    pub fn domain(self) -> u32 {
        self.domain
    }

    /// Returns the number of the function within its device, 0 to 7.
    pub fn function(self) -> u32 {
        self.function
    }

    /// Returns the number that a function has within its domain (`PCI_DEVID`, include/linux/pci.h).
    pub fn device_number(self) -> u32 {
        self.bus << 8 | self.device << 3 | self.function
    }

    /// Returns the addresses of all functions that a device can have.
    pub fn functions_of_device(self) -> impl Iterator<Item = Self> {
        (0..8).map(move |function| Self { function, ..self })
    }
}

impl fmt::Display for PciAddress {
    /// Writes the name of the function's directory below `/sys/bus/pci/devices`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl FromStr for GpuName {
    type Err = GpuNameError;

    fn from_str(text: &str) -> Result<Self, GpuNameError> {
        if let Some(rest) = text.strip_prefix("MIG-GPU-") {
            let mut parts = rest.split('/');
            let gpu = parts.next().ok_or(GpuNameError)?.parse()?;
            let gi = parse_number(parts.next(), GI_MAX)?;
            let ci = parse_number(parts.next(), CI_MAX)?;
            let is_complete = parts.next().is_none();
            return is_complete.then_some(Self::Instance { gpu, gi, ci }).ok_or(GpuNameError);
        }
        if let Some(uuid) = text.strip_prefix("MIG-") {
            return uuid.parse().map(Self::Mig);
        }
        if let Some(uuid) = text.strip_prefix("GPU-") {
            return uuid.parse().map(Self::Uuid);
        }
        match text.contains('.') {
            true => text.parse().map(Self::Pci),
            false => parse_number(Some(text), u32::MAX).map(Self::Index),
        }
    }
}

fn parse_number(part: Option<&str>, max: u32) -> Result<u32, GpuNameError> {
    part.and_then(parse_decimal).filter(|number| *number <= max).ok_or(GpuNameError)
}

impl fmt::Display for GpuName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Pci(address) => address.fmt(f),
            Self::Uuid(uuid) => write!(f, "GPU-{uuid}"),
            Self::Instance { gpu, gi, ci } => write!(f, "MIG-GPU-{gpu}/{gi}/{ci}"),
            Self::Mig(uuid) => write!(f, "MIG-{uuid}"),
        }
    }
}

/// The error of a text that is no name of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not the name of a GPU: its number, PCI address, GPU-UUID, MIG-UUID or MIG-GPU-UUID/GI/CI")]
pub struct GpuNameError;

/// The name of a device or of a set of devices that a job was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// A CDI device, `VENDOR/CLASS=NAME`, not parsed yet.
    Cdi(String),
    /// A GPU, not parsed yet.
    Gpu(String),
    /// All NVIDIA GPUs of the node.
    AllGpus,
    /// A channel between the nodes of an NVLink domain (IMEX), by its number.
    Imex(u32),
    /// A generic resource of Slurm by the name and the index that `gres.conf` gives it.
    Gres {
        /// `NAME` or `NAME:TYPE`.
        name: String,
        /// Index among the files of that name on the node, from 0.
        index: u32,
    },
    /// The devices that a directory lists by the names of its files.
    Dir(PathBuf),
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cdi(name) => f.write_str(name),
            Self::Gpu(name) if name.parse::<u32>().is_ok() => write!(f, "GPU {name}"),
            Self::Gpu(name) => f.write_str(name),
            Self::AllGpus => f.write_str("all GPUs"),
            Self::Imex(channel) => write!(f, "imex/{channel}"),
            Self::Gres { name, index } => write!(f, "{name}:{index}"),
            Self::Dir(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "edfee158-11c1-52b8-0517-92f30e7fac88";

    #[test]
    fn every_form_of_a_name_is_parsed_and_displayed() {
        let forms = [
            ("0", "0".to_owned()),
            ("1b:00.0", "0000:1b:00.0".to_owned()),
            ("00000000:1B:1F.7", "0000:1b:1f.7".to_owned()),
            ("10000:1b:00.0", "10000:1b:00.0".to_owned()),
        ];
        let prefixed = ["GPU-", "MIG-", "MIG-GPU-"].map(|prefix| {
            let suffix = if prefix == "MIG-GPU-" { "/14/7" } else { "" };
            (format!("{prefix}{}{suffix}", UUID.to_uppercase()), format!("{prefix}{UUID}{suffix}"))
        });
        let forms = forms.into_iter().map(|(text, displayed)| (text.to_owned(), displayed));
        for (text, displayed) in forms.chain(prefixed) {
            assert_eq!(text.parse::<GpuName>().unwrap().to_string(), displayed);
        }
    }

    #[test]
    fn other_texts_are_no_gpu_name() {
        let invalid = [
            "",
            "00",
            "01",
            "-1",
            "+1",
            " 1",
            "4294967296",
            "nvidia0",
            "GPU-",
            "GPU-0",
            "1b:00",
            "1b:00.8",
            "1b:20.0",
            "b:00.0",
            "0:1b:00.0",
            "0000:1b:00.0.0",
            "0000:0000:1b:00.0",
            "000000000:1b:00.0",
            "all",
            "MIG-0:0",
            "GPU-????????-????-????-????-????????????",
        ];
        for text in invalid {
            assert_eq!(text.parse::<GpuName>(), Err(GpuNameError), "{text:?}");
        }
        for suffix in ["", "/0", "/0/0/0", "/15/0", "/0/8", "/00/0", "/0/", "//0"] {
            let text = format!("MIG-GPU-{UUID}{suffix}");
            assert_eq!(text.parse::<GpuName>(), Err(GpuNameError), "{text:?}");
        }
        assert!(format!("GPU-{UUID}0").parse::<GpuName>().is_err());
    }

    #[test]
    fn pci_addresses_sort_by_domain_and_bus() {
        let address = |text: &str| text.parse::<PciAddress>().unwrap();
        assert!(address("0000:0a:00.0") < address("0000:1b:00.0"));
        assert!(address("0000:ff:00.0") < address("0001:00:00.0"));
    }
}
