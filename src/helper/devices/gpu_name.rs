//! The names of GPUs (logical number, PCI address, UUID, MIG instance), and of what else the keys of
//! a record name beside specifiers. Each of them has to resolve.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

use crate::protocol::decimal;

/// One GPU of the node, or one part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuName {
    /// The n-th GPU of the node, from 0, in the order that `topology` gives.
    Index(u32),
    /// The GPU at this PCI address.
    Pci(PciAddress),
    /// NVIDIA's UUID, `GPU-` and 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12.
    Uuid(Uuid),
    /// A MIG instance by its parent's UUID and the numbers of its GPU instance and its compute
    /// instance: `MIG-GPU-UUID/GI/CI`, as drivers before R470 name it.
    Instance {
        /// The parent.
        gpu: Uuid,
        /// GPU instance, 0 to 14.
        gi: u32,
        /// Compute instance, 0 to 7.
        ci: u32,
    },
    /// A MIG instance by its own UUID: `MIG-UUID`.
    Mig(Uuid),
}

/// Largest number of a GPU instance and of a compute instance
/// (`/proc/driver/nvidia-caps/mig-minors`).
const GI_MAX: u32 = 14;
const CI_MAX: u32 = 7;

/// A UUID in lower case, without a prefix: drivers differ in the case that they write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(String);

/// Lengths of the groups of a UUID (RFC 9562, section 4).
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

impl FromStr for Uuid {
    type Err = GpuNameError;

    fn from_str(text: &str) -> Result<Self, GpuNameError> {
        let groups: Vec<&str> = text.split('-').collect();
        let hex = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
        let lengths = groups.iter().map(|group| group.len()).eq(GROUPS);
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

/// Address of a PCI function; ordered as the bus is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u32,
    device: u32,
    function: u32,
}

impl FromStr for PciAddress {
    type Err = GpuNameError;

    /// `DDDD:BB:DD.F` in hexadecimal digits; the domain may have four to eight of them, or be left
    /// out where it is 0.
    fn from_str(text: &str) -> Result<Self, GpuNameError> {
        let (front, function) = text.split_once('.').ok_or(GpuNameError)?;
        let mut parts = front.rsplit(':');
        let device = hex(parts.next(), 2..=2)?;
        let bus = hex(parts.next(), 2..=2)?;
        let domain = match parts.next() {
            None => 0,
            part => hex(part, 4..=8)?,
        };
        let function = hex(Some(function), 1..=1)?;
        match parts.next().is_none() && device < 32 && function < 8 {
            true => Ok(Self { domain, bus, device, function }),
            false => Err(GpuNameError),
        }
    }
}

fn hex(part: Option<&str>, digits: std::ops::RangeInclusive<usize>) -> Result<u32, GpuNameError> {
    let part = part.ok_or(GpuNameError)?;
    let good = digits.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    good.then(|| u32::from_str_radix(part, 16).ok()).flatten().ok_or(GpuNameError)
}

impl fmt::Display for PciAddress {
    /// As sysfs names the directory below `/sys/bus/pci/devices`.
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
            let gi = number(parts.next(), GI_MAX)?;
            let ci = number(parts.next(), CI_MAX)?;
            let whole = parts.next().is_none();
            return whole.then_some(Self::Instance { gpu, gi, ci }).ok_or(GpuNameError);
        }
        if let Some(uuid) = text.strip_prefix("MIG-") {
            return uuid.parse().map(Self::Mig);
        }
        if let Some(uuid) = text.strip_prefix("GPU-") {
            return uuid.parse().map(Self::Uuid);
        }
        match text.contains('.') {
            true => text.parse().map(Self::Pci),
            false => number(Some(text), u32::MAX).map(Self::Index),
        }
    }
}

fn number(part: Option<&str>, most: u32) -> Result<u32, GpuNameError> {
    part.and_then(decimal).filter(|number| *number <= most).ok_or(GpuNameError)
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

/// A text is no name of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not the name of a GPU: its number, PCI address, GPU-UUID, MIG-UUID or MIG-GPU-UUID/GI/CI")]
pub struct GpuNameError;

/// A device or a set of devices that a job was given by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// A CDI device, `VENDOR/CLASS=NAME`; not looked at yet.
    Cdi(String),
    /// A GPU; not looked at yet.
    Gpu(String),
    /// All GPUs of NVIDIA's on the node.
    AllGpus,
    /// A channel between the nodes of an NVLink domain (IMEX), by its number.
    Imex(u32),
    /// A generic resource of Slurm's by the name and the index that `gres.conf` gives it.
    Gres {
        /// `NAME` or `NAME:TYPE`.
        name: String,
        /// Index among the files of that name on the node, from 0.
        index: u32,
    },
    /// What a directory lists by the names of its files.
    Dir(PathBuf),
}

impl fmt::Display for Named {
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
    fn every_form_is_read_and_written() {
        let forms = [
            ("0", "0".to_owned()),
            ("1b:00.0", "0000:1b:00.0".to_owned()),
            ("00000000:1B:1F.7", "0000:1b:1f.7".to_owned()),
            ("10000:1b:00.0", "10000:1b:00.0".to_owned()),
        ];
        let prefixed = ["GPU-", "MIG-", "MIG-GPU-"].map(|prefix| {
            let end = if prefix == "MIG-GPU-" { "/14/7" } else { "" };
            (format!("{prefix}{}{end}", UUID.to_uppercase()), format!("{prefix}{UUID}{end}"))
        });
        let forms = forms.into_iter().map(|(text, shown)| (text.to_owned(), shown));
        for (text, shown) in forms.chain(prefixed) {
            assert_eq!(text.parse::<GpuName>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn anything_else_is_none() {
        let odd = [
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
        for text in odd {
            assert_eq!(text.parse::<GpuName>(), Err(GpuNameError), "{text:?}");
        }
        for end in ["", "/0", "/0/0/0", "/15/0", "/0/8", "/00/0", "/0/", "//0"] {
            let text = format!("MIG-GPU-{UUID}{end}");
            assert_eq!(text.parse::<GpuName>(), Err(GpuNameError), "{text:?}");
        }
        assert!(format!("GPU-{UUID}0").parse::<GpuName>().is_err());
    }

    #[test]
    fn addresses_are_ordered_as_the_bus_is() {
        let address = |text: &str| text.parse::<PciAddress>().unwrap();
        assert!(address("0000:0a:00.0") < address("0000:1b:00.0"));
        assert!(address("0000:ff:00.0") < address("0001:00:00.0"));
    }
}
