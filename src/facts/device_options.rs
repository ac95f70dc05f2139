//! Parses names of devices for all commands: the same text is the same device, or the same mistake,
//! in a query and in a record.

use clap::Args;
use command::options::parse_value;
use helper::devices::Specifier;
use naming::GpuName;
use naming::cdi::QualifiedName;
use protocol::{self, parse_decimal};
use std::fmt::Display;
use std::str::FromStr;

/// The options that name devices, of `run`, `register` and `devices`.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct DeviceOptions {
    /// A device, ACCESS rw unless given; repeatable
    #[arg(long, value_name = "SPEC ACCESS", value_parser = parse_device)]
    pub device: Vec<Device>,
    /// A CDI device; repeatable
    #[arg(long, value_name = "VENDOR/CLASS=NAME", value_parser = parse_cdi)]
    pub cdi: Vec<String>,
    /// A GPU by number, UUID or PCI address; repeatable
    #[arg(long, value_name = "GPU", value_parser = parse_gpu)]
    pub gpu: Vec<String>,
    /// A resource in gres.conf, or NAME:TYPE:INDEX; repeatable
    #[arg(long, value_name = "NAME:INDEX,...", value_parser = parse_gres)]
    pub gres: Vec<Gres>,
    /// A directory whose files name devices
    #[arg(long, value_name = "DIRECTORY", value_parser = parse_directory)]
    pub device_dir: Vec<String>,
}

/// A specifier with its access, and its text on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// As it was given.
    pub text: String,
    /// What it means.
    pub specifier: Specifier,
}

/// The name of a generic resource with its type, and indexes.
pub type Gres = (String, Vec<u32>);

/// Parses `SPEC` or `SPEC ACCESS`.
///
/// # Errors
///
/// A text that names the mistake.
pub fn parse_device(text: &str) -> Result<Device, String> {
    Ok(Device {
        text: text.to_owned(),
        specifier: parse_value(text)?,
    })
}

/// Checks `VENDOR/CLASS=NAME`; returns the same text.
///
/// # Errors
///
/// A text that names the mistake.
pub fn parse_cdi(text: &str) -> Result<String, String> {
    require_single::<QualifiedName>(text, "CDI device")
}

/// Checks the name of a GPU or a MIG instance; returns the same text.
///
/// # Errors
///
/// A text that names the mistake.
pub fn parse_gpu(text: &str) -> Result<String, String> {
    require_single::<GpuName>(text, "GPU")
}

/// Checks that a text is one name, not a list; returns the same text.
fn require_single<T: FromStr<Err: Display>>(text: &str, kind: &str) -> Result<String, String> {
    match parse_value::<T>(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) if text.contains(',') => Err(format!("one {kind} per option")),
        Err(error) => Err(error),
    }
}

/// Parses `NAME:N` or `NAME:TYPE:N`, also with several numbers and commas between them: the name with
/// its type, and the numbers.
///
/// # Errors
///
/// A text with the accepted forms.
pub fn parse_gres(text: &str) -> Result<Gres, &'static str> {
    const FORM: &str = "not NAME:INDEX,... or NAME:TYPE:INDEX,...";
    let (name, numbers) = text.rsplit_once(':').ok_or(FORM)?;
    let parts: Vec<&str> = name.split(':').collect();
    if parts.len() > 2 || parts.contains(&"") {
        return Err(FORM);
    }
    let is_of_range = |c: char| c.is_ascii_digit() || ",-[]".contains(c);
    if numbers.contains('-') && numbers.chars().all(is_of_range) {
        return Err("ranges are not taken; give every index, as in gpu:0,1,2");
    }
    let numbers: Option<_> = numbers.split(',').map(parse_decimal).collect();
    Ok((name.to_owned(), numbers.ok_or(FORM)?))
}

/// Parses an absolute path of a directory.
///
/// # Errors
///
/// A text with the accepted form.
pub fn parse_directory(text: &str) -> Result<String, &'static str> {
    text.starts_with('/')
        .then(|| text.to_owned())
        .ok_or("not the absolute path of a directory")
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
            assert_eq!(
                parse_gres(text),
                Ok((name.into(), numbers.into())),
                "{text}"
            );
        }
        for text in [
            "",
            "gpu",
            "gpu:",
            ":1",
            "::1",
            "gpu::1",
            ":a100:1",
            "gpu:a:b:1",
            "gpu:1,",
            "gpu:+1",
            "gpu:01",
            "gpu:-",
            "gpu:a100-sxm",
            "gpu:4294967296",
            "gpu:1 ",
        ] {
            assert!(parse_gres(text).is_err(), "{text}");
        }
        for text in ["gpu:0-3", "gpu:[0-3]", "gpu:a100:0,2-3"] {
            assert!(
                parse_gres(text)
                    .unwrap_err()
                    .starts_with("ranges are not taken; "),
                "{text}"
            );
        }
        assert!(
            parse_gres("gpu:a100-sxm")
                .unwrap_err()
                .starts_with("not NAME:INDEX,... ")
        );
    }

    #[test]
    fn mistake_is_reported_with_accepted_form() {
        let gpu = |text| parse_gpu(text).unwrap_err();
        assert!(
            gpu("nvidia0").starts_with("not the name of a GPU: "),
            "{}",
            gpu("nvidia0")
        );
        assert_eq!(gpu("0,1"), "one GPU per option");
        assert_eq!(
            parse_cdi("v/c=0,1").unwrap_err(),
            "one CDI device per option"
        );
        assert_eq!(parse_cdi("v/c=").unwrap_err(), "the device's name is empty");
        assert_eq!(
            parse_device("@HPC").unwrap_err(),
            "no name of a preset: @hpc, or @ and a name of lower-case letters, digits, _, -, . and :"
        );
    }
}
