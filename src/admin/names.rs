//! Names of devices as every command takes them: the same text is the same device, or the same
//! mistake, whether it is asked about or recorded.

use super::command_line::value;
use clap::Args;
use helper::devices::cdi::QualifiedName;
use helper::devices::{GpuName, Specifier};
use helper::sources::FluxId;
use protocol::{self, JobId, parse_decimal};
use std::fmt::Display;
use std::str::FromStr;

/// The options that name devices, of `run`, `register` and `devices`.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(super) struct DeviceOptions {
    /// A device, ACCESS rw unless given; repeatable
    #[arg(long, value_name = "SPEC ACCESS", value_parser = device)]
    pub(super) device: Vec<Device>,
    /// A CDI device; repeatable
    #[arg(long, value_name = "VENDOR/CLASS=NAME", value_parser = cdi)]
    pub(super) cdi: Vec<String>,
    /// A GPU by number, UUID or PCI address; repeatable
    #[arg(long, value_name = "GPU", value_parser = gpu)]
    pub(super) gpu: Vec<String>,
    /// A resource in gres.conf, or NAME:TYPE:INDEX; repeatable
    #[arg(long, value_name = "NAME:INDEX,...", value_parser = gres)]
    pub(super) gres: Vec<Gres>,
    /// A directory whose files name devices
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
/// Fails: as for a [`JobId`].
pub(super) fn job_id(text: &str) -> Result<JobId, protocol::InvalidText> {
    let of_flux = text.starts_with('\u{192}').then(|| FluxId::parse_job_id(text)).flatten();
    of_flux.map_or_else(|| text.parse(), Ok)
}

/// `SPEC` or `SPEC ACCESS`.
pub(super) fn device(text: &str) -> Result<Device, String> {
    Ok(Device { text: text.to_owned(), specifier: value(text)? })
}

/// `VENDOR/CLASS=NAME`, as it was written.
pub(super) fn cdi(text: &str) -> Result<String, String> {
    one::<QualifiedName>(text, "CDI device")
}

/// A GPU or a MIG instance, as it was written.
pub(super) fn gpu(text: &str) -> Result<String, String> {
    one::<GpuName>(text, "GPU")
}

/// The text as it was written, of a name that stands for one device.
fn one<T: FromStr<Err: Display>>(text: &str, what: &str) -> Result<String, String> {
    match value::<T>(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) if text.contains(',') => Err(format!("one {what} per option")),
        Err(error) => Err(error),
    }
}

/// `NAME:N` and `NAME:TYPE:N`, and several numbers with commas between them: the name with its type,
/// and the numbers.
pub(super) fn gres(text: &str) -> Result<Gres, &'static str> {
    const FORM: &str = "not NAME:INDEX,... or NAME:TYPE:INDEX,...";
    let (name, numbers) = text.rsplit_once(':').ok_or(FORM)?;
    let parts: Vec<&str> = name.split(':').collect();
    if parts.len() > 2 || parts.contains(&"") {
        return Err(FORM);
    }
    let ranges = |c: char| c.is_ascii_digit() || ",-[]".contains(c);
    if numbers.contains('-') && numbers.chars().all(ranges) {
        return Err("ranges are not taken; give every index, as in gpu:0,1,2");
    }
    let numbers: Option<_> = numbers.split(',').map(parse_decimal).collect();
    Ok((name.to_owned(), numbers.ok_or(FORM)?))
}

/// An absolute path of a directory.
fn directory(text: &str) -> Result<String, &'static str> {
    text.starts_with('/').then(|| text.to_owned()).ok_or("not the absolute path of a directory")
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
            assert!(gres(text).is_err(), "{text}");
        }
        for text in ["gpu:0-3", "gpu:[0-3]", "gpu:a100:0,2-3"] {
            assert!(gres(text).unwrap_err().starts_with("ranges are not taken; "), "{text}");
        }
        assert!(gres("gpu:a100-sxm").unwrap_err().starts_with("not NAME:INDEX,... "));
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
        let gpu = |text| gpu(text).unwrap_err();
        assert!(gpu("nvidia0").starts_with("not the name of a GPU: "), "{}", gpu("nvidia0"));
        assert_eq!(gpu("0,1"), "one GPU per option");
        assert_eq!(cdi("v/c=0,1").unwrap_err(), "one CDI device per option");
        assert_eq!(cdi("v/c=").unwrap_err(), "the device's name is empty");
        assert_eq!(device("@hcp").unwrap_err(), "there is no such preset, only @hpc");
    }
}
