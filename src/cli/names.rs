//! Names of devices as every command takes them: the same text is the same device, or the same
//! mistake, whether it is asked about or recorded.

use super::{Error, Options};
use crate::device::cdi::{NameError, QualifiedName};
use crate::device::{GpuName, GpuNameError, Specifier, SpecifierError};
use crate::flux::FluxId;
use crate::legible::legible;
use crate::plan::{self, JobId, decimal};
use std::fmt;

/// Reads every value of an option.
///
/// # Errors
/// [`Error::Usage`] naming the option and the value that is no name.
pub(super) fn each<T>(
    options: &Options,
    option: &str,
    read: impl Fn(&str) -> Result<T, Mistake>,
) -> Result<Vec<T>, Error> {
    let one = |text: &str| {
        let read = if text.is_empty() { Err(Mistake::Empty) } else { read(text) };
        read.map_err(|mistake| options.usage(format!("option {option}: {}", mistake.about(text))))
    };
    options.values(option).map(one).collect()
}

/// A job's id. Flux's own sign in front of one becomes the letter that stands for it in names of
/// files and units.
///
/// # Errors
/// As for a [`JobId`].
pub(super) fn job_id(text: &str) -> Result<JobId, plan::NameError> {
    let of_flux = text.starts_with('\u{192}').then(|| FluxId::read(text)).flatten();
    of_flux.map_or_else(|| text.parse(), |id| id.to_string().parse())
}

/// `SPEC` or `SPEC ACCESS`.
pub(super) fn specifier(text: &str) -> Result<Specifier, Mistake> {
    text.parse().map_err(Mistake::Specifier)
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
pub(super) fn gres(text: &str) -> Result<(String, Vec<u32>), Mistake> {
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
    /// There is no text.
    Empty,
    Specifier(SpecifierError),
    Cdi(NameError),
    Gpu(GpuNameError),
    /// A list, where each of these has an option of its own.
    Several(&'static str),
    Gres,
    /// A range of indexes.
    Range,
    Directory,
}

impl Mistake {
    /// The text and what is wrong with it.
    pub(super) fn about(self, text: &str) -> String {
        match self {
            Self::Empty => self.to_string(),
            mistake => format!("{}: {mistake}", legible(text)),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the value is empty"),
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
        let gpu = |text| gpu(text).unwrap_err().about(text);
        assert!(
            gpu("nvidia0").starts_with("nvidia0: not the name of a GPU: "),
            "{}",
            gpu("nvidia0")
        );
        assert_eq!(gpu("0,1"), "0,1: one GPU per option");
        assert_eq!(
            cdi("v/c=0,1").unwrap_err().about("v/c=0,1"),
            "v/c=0,1: one CDI device per option"
        );
        assert_eq!(cdi("v/c=").unwrap_err().about("v/c="), "v/c=: the device's name is empty");
        let preset = specifier("@hcp").unwrap_err().about("@hcp");
        assert_eq!(preset, "@hcp: there is no such preset, only @hpc");
        assert!(gpu("a\u{1b}[1m").starts_with("a?[1m: not"));
    }
}
