//! Names of devices on a command line.

use super::super::{Error, Options};
use crate::device::{GpuName, Named, Specifier};
use crate::legible::legible;
use std::fmt::Display;

/// A device that was asked for, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) text: String,
    pub(super) what: What,
}

/// Which way of naming it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Specifier(Specifier),
    Named(Named),
}

/// Everything that the command line names: operands first, then options by their kind.
///
/// # Errors
/// [`Error::Usage`] for a name that no way of naming devices has.
pub(super) fn asked(options: &Options) -> Result<Vec<Asked>, Error> {
    let mut all = Vec::new();
    for operand in options.operands.iter().chain(options.rest.iter().flatten()) {
        let text = operand.to_str().ok_or_else(|| {
            options.usage(format!("operand {} is no UTF-8", legible(&operand.to_string_lossy())))
        })?;
        all.extend(of_operand(text, options)?);
    }
    for text in options.values("--device") {
        all.push(specifier(text, options)?);
    }
    all.extend(options.values("--cdi").map(cdi));
    all.extend(options.values("--gpu").map(gpu));
    for text in options.values("--gres") {
        let wrong = || wrong(options, text, "is not NAME:INDEX,...");
        all.extend(gres(text).ok_or_else(wrong)?);
    }
    for text in options.values("--device-dir") {
        if !text.starts_with('/') {
            return Err(wrong(options, text, "is no absolute path of a directory"));
        }
        all.push(named(text, Named::Dir(text.into())));
    }
    Ok(all)
}

/// What a name without an option in front of it can only be.
fn of_operand(text: &str, options: &Options) -> Result<Vec<Asked>, Error> {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
    if begins(&["/", "char-", "block-", "@"]) {
        return Ok(vec![specifier(text, options)?]);
    }
    if text.contains('=') {
        return Ok(vec![cdi(text)]);
    }
    if begins(&["GPU-", "MIG-"]) || text.parse::<GpuName>().is_ok() {
        return Ok(vec![gpu(text)]);
    }
    let why = "is no specifier, CDI name, GPU or NAME:INDEX";
    gres(text).ok_or_else(|| wrong(options, text, why))
}

fn specifier(text: &str, options: &Options) -> Result<Asked, Error> {
    match text.parse() {
        Ok(specifier) => Ok(Asked { text: text.to_owned(), what: What::Specifier(specifier) }),
        Err(error) => Err(wrong(options, text, format_args!("is {error}"))),
    }
}

fn cdi(text: &str) -> Asked {
    named(text, Named::Cdi(text.to_owned()))
}

fn gpu(text: &str) -> Asked {
    named(text, Named::Gpu(text.to_owned()))
}

/// `NAME:N`, `NAME:TYPE:N`, and several numbers with commas between them.
fn gres(text: &str) -> Option<Vec<Asked>> {
    let (name, numbers) = text.rsplit_once(':').filter(|(name, _)| !name.is_empty())?;
    let one = |number: &str| {
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let index = digits.then(|| number.parse().ok()).flatten()?;
        Some(named(&format!("{name}:{index}"), Named::Gres { name: name.to_owned(), index }))
    };
    numbers.split(',').map(one).collect()
}

fn named(text: &str, name: Named) -> Asked {
    Asked { text: text.to_owned(), what: What::Named(name) }
}

fn wrong(options: &Options, text: &str, why: impl Display) -> Error {
    options.usage(format!("{} {why}", legible(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    const UUID: &str = "edfee158-11c1-52b8-0517-92f30e7fac88";

    fn read(line: &[&str]) -> Result<Vec<Asked>, Error> {
        let words = line.iter().map(OsString::from);
        asked(&Options::parse("devices", &super::super::KNOWN, words)?)
    }

    fn shown(line: &[&str]) -> Vec<String> {
        let shown = |asked: Asked| match asked.what {
            What::Specifier(specifier) => format!("specifier {specifier}"),
            What::Named(Named::Cdi(name)) => format!("cdi {name}"),
            What::Named(Named::Gpu(name)) => format!("gpu {name}"),
            What::Named(Named::Gres { name, index }) => format!("gres {name} {index}"),
            What::Named(other) => format!("{other:?}"),
        };
        read(line).unwrap().into_iter().map(shown).collect()
    }

    #[test]
    fn every_name_is_known_by_its_form() {
        for (text, kind) in [
            ("/dev/nvidia0 rwm", "specifier /dev/nvidia0 rwm"),
            ("/dev/disk/by-id/a=b", "specifier /dev/disk/by-id/a=b rw"),
            ("char-pts", "specifier char-pts rw"),
            ("block-loop r", "specifier block-loop r"),
            ("nvidia.com/gpu=0", "cdi nvidia.com/gpu=0"),
            ("0", "gpu 0"),
            ("0000:1b:00.0", "gpu 0000:1b:00.0"),
            ("GPU-x", "gpu GPU-x"),
            ("gpu:3", "gres gpu 3"),
            ("gpu:a100:3", "gres gpu:a100 3"),
        ] {
            assert_eq!(shown(&[text]), [kind], "{text}");
        }
        let (gpu, mig) = (format!("GPU-{UUID}"), format!("MIG-GPU-{UUID}/1/0"));
        assert_eq!(shown(&[&gpu, &mig]), [format!("gpu {gpu}"), format!("gpu {mig}")]);
        assert_eq!(shown(&["gpu:0,2"]), ["gres gpu 0", "gres gpu 2"]);
    }

    #[test]
    fn options_say_what_a_name_is() {
        let line = ["--gpu", "a", "--cdi=b", "--gres", "g:1", "--device", "/dev/null r", "0"];
        let expected = ["gpu 0", "specifier /dev/null r", "cdi b", "gpu a", "gres g 1"];
        assert_eq!(shown(&line), expected);
        assert_eq!(shown(&["--device-dir", "/a"]), [r#"Dir("/a")"#]);
        assert_eq!(shown(&["--", "char-pts"]), ["specifier char-pts rw"]);
    }

    #[test]
    fn anything_else_is_a_mistake() {
        for line in [
            ["nvidia0", ""],
            ["/etc/devices", ""],
            ["/dev/null x", ""],
            ["gpu:", ""],
            ["gpu:+1", ""],
            ["gpu:1,", ""],
            [":1", ""],
            ["--gres", "gpu"],
            ["--device", "null"],
            ["--device-dir", "a"],
        ] {
            let words: Vec<&str> = line.into_iter().filter(|word| !word.is_empty()).collect();
            assert!(matches!(read(&words), Err(Error::Usage(..))), "{line:?}");
        }
        let Err(Error::Usage(_, what)) = read(&["a\u{1b}[1m"]) else { panic!() };
        assert!(what.starts_with("a?[1m is no"), "{what}");
    }
}
