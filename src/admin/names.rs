//! Names of devices as every command takes them: the same text is the same device, or the same
//! mistake, whether it is asked about or recorded.

use crate::helper::devices::cdi::{Invalid, QualifiedName};
use crate::helper::devices::{GpuName, GpuNameError, Specifier, SpecifierError};
use crate::protocol::{self, JobId, decimal};
use crate::schedulers::flux::FluxId;
use clap::Args;
use std::fmt;

/// The options that name devices, of `run`, `register` and `devices`.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(super) struct DeviceOptions {
    /// A device; may be repeated, ACCESS is rw unless given
    #[arg(long, value_name = "SPEC ACCESS", value_parser = device)]
    pub(super) device: Vec<Device>,
    /// A CDI device; may be repeated
    #[arg(long, value_name = "VENDOR/CLASS=NAME", value_parser = cdi)]
    pub(super) cdi: Vec<String>,
    /// A GPU by number, UUID or PCI address; may be repeated
    #[arg(long, value_name = "GPU", value_parser = gpu)]
    pub(super) gpu: Vec<String>,
    /// A resource in gres.conf, or NAME:TYPE:INDEX; may be repeated
    #[arg(long, value_name = "NAME:INDEX,...", value_parser = gres)]
    pub(super) gres: Vec<Gres>,
    /// A directory whose entries name devices
    #[arg(long, value_name = "DIRECTORY", value_parser = directory)]
    pub(super) device_dir: Vec<String>,
}

/// A specifier with its access, and as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) text: String,
    pub(super) specifier: Specifier,
}

/// The name of a generic resource with its type, and indexes.
pub(super) type Gres = (String, Vec<u32>);

/// A job's id. With Flux's own sign in front it is put into the form that is stored.
///
/// # Errors
/// As for a [`JobId`].
pub(super) fn job_id(text: &str) -> Result<JobId, protocol::Invalid> {
    let of_flux = text.starts_with('\u{192}').then(|| FluxId::job(text)).flatten();
    of_flux.map_or_else(|| text.parse(), Ok)
}

/// `SPEC` or `SPEC ACCESS`.
pub(super) fn specifier(text: &str) -> Result<Specifier, Mistake> {
    text.parse().map_err(Mistake::Specifier)
}

/// The same, kept as it was written.
pub(super) fn device(text: &str) -> Result<Device, Mistake> {
    Ok(Device { text: text.to_owned(), specifier: specifier(text)? })
}

/// `VENDOR/CLASS=NAME`, as it was written.
pub(super) fn cdi(text: &str) -> Result<String, Mistake> {
    let name: Result<QualifiedName, _> = text.parse();
    name.map(|_| text.to_owned()).map_err(|error| match text.contains(',') {
        true => Mistake::Several("CDI device"),
        false => Mistake::Cdi(error),
    })
}

/// A GPU or a MIG instance, as it was written.
pub(super) fn gpu(text: &str) -> Result<String, Mistake> {
    let name: Result<GpuName, _> = text.parse();
    name.map(|_| text.to_owned()).map_err(|error| match text.contains(',') {
        true => Mistake::Several("GPU"),
        false => Mistake::Gpu(error),
    })
}

/// `NAME:N` and `NAME:TYPE:N`, and several numbers with commas between them: the name with its type,
/// and the numbers.
pub(super) fn gres(text: &str) -> Result<Gres, Mistake> {
    let (name, numbers) = text.rsplit_once(':').ok_or(Mistake::Gres)?;
    let parts: Vec<&str> = name.split(':').collect();
    if parts.len() > 2 || parts.contains(&"") {
        return Err(Mistake::Gres);
    }
    let ranges = |c: char| c.is_ascii_digit() || ",-[]".contains(c);
    if numbers.contains('-') && numbers.chars().all(ranges) {
        return Err(Mistake::Range);
    }
    let numbers: Option<_> = numbers.split(',').map(decimal).collect();
    Ok((name.to_owned(), numbers.ok_or(Mistake::Gres)?))
}

/// An absolute path of a directory.
pub(super) fn directory(text: &str) -> Result<String, Mistake> {
    text.starts_with('/').then(|| text.to_owned()).ok_or(Mistake::Directory)
}

/// Why a text is no name of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    Specifier(SpecifierError),
    Cdi(Invalid),
    Gpu(GpuNameError),
    /// A list, where each of these has an option of its own.
    Several(&'static str),
    Gres,
    /// A range of indexes.
    Range,
    Directory,
}

impl std::error::Error for Mistake {}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Specifier(error) => error.fmt(f),
            Self::Cdi(error) => error.fmt(f),
            Self::Gpu(error) => error.fmt(f),
            Self::Several(what) => write!(f, "one {what} per option"),
            Self::Gres => f.write_str("not NAME:INDEX,... or NAME:TYPE:INDEX,..."),
            Self::Range => f.write_str("ranges are not taken; give every index, as in gpu:0,1,2"),
            Self::Directory => f.write_str("not the absolute path of a directory"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_have_a_name_and_indexes() {
        for (text, name, numbers) in [
            ("gpu:3", "gpu", &[3][..]),
            ("gpu:0,2", "gpu", &[0, 2]),
            ("gpu:a100-sxm:1,0", "gpu:a100-sxm", &[1, 0]),
        ] {
            assert_eq!(gres(text), Ok((name.into(), numbers.into())), "{text}");
        }
        for text in [
            "", "gpu", "gpu:", ":1", "::1", "gpu::1", ":a100:1", "gpu:a:b:1", "gpu:1,", "gpu:+1",
            "gpu:01", "gpu:-", "gpu:a100-sxm", "gpu:4294967296", "gpu:1 ",
        ] {
            assert!(matches!(gres(text), Err(Mistake::Gres | Mistake::Range)), "{text}");
        }
        for text in ["gpu:0-3", "gpu:[0-3]", "gpu:a100:0,2-3"] {
            assert_eq!(gres(text), Err(Mistake::Range), "{text}");
        }
        assert_eq!(gres("gpu:a100-sxm"), Err(Mistake::Gres));
    }

    #[test]
    fn an_id_of_fluxs_may_have_its_sign() {
        let read = |text| job_id(text).map(|id| id.to_string());
        assert_eq!(read("\u{192}uZZybuNNy"), Ok("fuZZybuNNy".into()));
        for same in ["fuZZybuNNy", "4242", "a.b"] {
            assert_eq!(read(same), Ok(same.into()));
        }
        for text in ["\u{192}", "\u{192}0", "\u{192}111", "", "a/b"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_mistake_says_what_would_be_right() {
        let gpu = |text| gpu(text).unwrap_err().to_string();
        assert!(gpu("nvidia0").starts_with("not the name of a GPU: "), "{}", gpu("nvidia0"));
        assert_eq!(gpu("0,1"), "one GPU per option");
        assert_eq!(cdi("v/c=0,1").unwrap_err().to_string(), "one CDI device per option");
        assert_eq!(cdi("v/c=").unwrap_err().to_string(), "the device's name is empty");
        let preset = specifier("@hcp").unwrap_err().to_string();
        assert_eq!(preset, "there is no such preset, only @hpc");
    }
}
