//! The names of GPUs: logical number, PCI address, UUID, MIG instance.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use helper::node::PciAddress;
use helper::node::nvidia::Uuid;
use helper::node::topology::{AccelDriver, Numbering};
use protocol::parse_decimal;

/// The name of one GPU of the node, or of one part of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuName {
    /// The n-th GPU of the node, from 0, by PCI address.
    Index(u32),
    /// The GPU that somebody gives this number: `flux:N`, `rocm:N`, `nvidia:N`.
    Numbered(Numbering, u32),
    /// The n-th accelerator of a driver, by PCI address: `qaic:N`.
    Accelerator(AccelDriver, u32),
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

impl FromStr for GpuName {
    type Err = GpuNameError;

    fn from_str(text: &str) -> Result<Self, GpuNameError> {
        Self::parse(text).ok_or(GpuNameError)
    }
}

impl GpuName {
    /// Parses a name; its beginning, or a dot in it, shows which form it must have. `None` for a text that has not
    /// this form.
    fn parse(text: &str) -> Option<Self> {
        if let Some(instance) = text.strip_prefix("MIG-GPU-") {
            return Self::parse_instance(instance);
        }
        if let Some(uuid) = text.strip_prefix("MIG-") {
            return uuid.parse().ok().map(Self::Mig);
        }
        if let Some(uuid) = text.strip_prefix("GPU-") {
            return uuid.parse().ok().map(Self::Uuid);
        }
        if text.contains('.') {
            return text.parse().ok().map(Self::Pci);
        }
        match text.split_once(':') {
            Some((owner, number)) => {
                let number = parse_decimal(number)?;
                if let Ok(numbering) = owner.parse() {
                    return Some(Self::Numbered(numbering, number));
                }
                let driver = owner.parse().ok()?;
                Some(Self::Accelerator(driver, number))
            }
            None => parse_decimal(text).map(Self::Index),
        }
    }

    /// Parses `UUID/GI/CI`; `None` for another text, or a number that no instance has.
    fn parse_instance(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let [gpu, gi, ci] = *parts.as_slice() else {
            return None;
        };
        Some(Self::Instance {
            gpu: gpu.parse().ok()?,
            gi: parse_decimal(gi).filter(|gi| *gi <= GI_MAX)?,
            ci: parse_decimal(ci).filter(|ci| *ci <= CI_MAX)?,
        })
    }
}

impl fmt::Display for GpuName {
    /// Writes a spelling that parses to the same name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Numbered(numbering, index) => write!(f, "{numbering}:{index}"),
            Self::Accelerator(driver, index) => write!(f, "{driver}:{index}"),
            Self::Pci(address) => address.fmt(f),
            Self::Uuid(uuid) => write!(f, "GPU-{uuid}"),
            Self::Instance { gpu, gi, ci } => write!(f, "MIG-GPU-{gpu}/{gi}/{ci}"),
            Self::Mig(uuid) => write!(f, "MIG-{uuid}"),
        }
    }
}

/// The error of a text that is no name of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "not the name of a GPU: its number, flux:N, rocm:N, nvidia:N, habanalabs:N, qaic:N, amdxdna:N, \
     intel_vpu:N, PCI address, GPU-UUID, MIG-UUID or MIG-GPU-UUID/GI/CI"
)]
pub struct GpuNameError;

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "edfee158-11c1-52b8-0517-92f30e7fac88";

    #[test]
    fn every_form_of_a_name_is_parsed_and_displayed() {
        let forms = [
            ("0", "0".to_owned()),
            ("flux:0", "flux:0".to_owned()),
            ("rocm:63", "rocm:63".to_owned()),
            ("nvidia:7", "nvidia:7".to_owned()),
            ("habanalabs:0", "habanalabs:0".to_owned()),
            ("intel_vpu:1", "intel_vpu:1".to_owned()),
            ("1b:00.0", "0000:1b:00.0".to_owned()),
            ("00000000:1B:1F.7", "0000:1b:1f.7".to_owned()),
            ("10000:1b:00.0", "10000:1b:00.0".to_owned()),
        ];
        let prefixed = ["GPU-", "MIG-", "MIG-GPU-"].map(|prefix| {
            let suffix = if prefix == "MIG-GPU-" { "/14/7" } else { "" };
            (
                format!("{prefix}{}{suffix}", UUID.to_uppercase()),
                format!("{prefix}{UUID}{suffix}"),
            )
        });
        let forms = forms
            .into_iter()
            .map(|(text, displayed)| (text.to_owned(), displayed));
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
            "flux:",
            "flux:01",
            "flux:0:0",
            "Flux:0",
            "hwloc:0",
            "accel:0",
            "qaic:",
            ":0",
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
}
