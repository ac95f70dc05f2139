//! Names of devices on a command line.

use super::super::names::{self, Mistake};
use super::super::{Error, Options};
use crate::device::{Named, Specifier};
use crate::legible::legible;
use crate::plan::decimal;

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
        all.extend(of_operand(text).map_err(|why| options.usage(why))?);
    }
    all.extend(names::each(options, "--device", specifier)?);
    all.extend(names::each(options, "--cdi", cdi)?);
    all.extend(names::each(options, "--gpu", gpu)?);
    all.extend(names::each(options, "--gres", gres)?.into_iter().flatten());
    all.extend(names::each(options, "--device-dir", directory)?);
    Ok(all)
}

/// What a name without an option in front of it can only be.
fn of_operand(text: &str) -> Result<Vec<Asked>, String> {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
    let one = |asked: Result<Asked, Mistake>| asked.map(|asked| vec![asked]);
    let asked = if text.is_empty() {
        return Err("an operand is empty".to_owned());
    } else if begins(&["/", "char-", "block-", "@"]) {
        one(specifier(text))
    } else if text.contains('=') {
        one(cdi(text))
    } else if text == "all" {
        Ok(vec![named(text, Named::AllGpus)])
    } else if let Some(channel) = text.strip_prefix("imex/") {
        let channel = decimal(channel)
            .ok_or_else(|| format!("{}: not imex/ and the number of a channel", legible(text)))?;
        Ok(vec![named(text, Named::Imex(channel))])
    } else if begins(&["GPU-", "MIG-"]) || is_gpu(text) {
        one(gpu(text))
    } else if text.contains(':') {
        gres(text)
    } else {
        let what = "no specifier, CDI name, GPU, NAME:INDEX, imex/N or all";
        return Err(format!("{}: {what}", legible(text)));
    };
    asked.map_err(|mistake| mistake.about(text))
}

/// Whether this is a GPU, or a list of them, which is told to be one too many.
fn is_gpu(text: &str) -> bool {
    text.split(',').all(|part| names::gpu(part).is_ok())
}

fn specifier(text: &str) -> Result<Asked, Mistake> {
    let specifier = names::specifier(text)?;
    Ok(Asked { text: text.to_owned(), what: What::Specifier(specifier) })
}

fn cdi(text: &str) -> Result<Asked, Mistake> {
    Ok(named(text, Named::Cdi(names::cdi(text)?)))
}

fn gpu(text: &str) -> Result<Asked, Mistake> {
    Ok(named(text, Named::Gpu(names::gpu(text)?)))
}

fn gres(text: &str) -> Result<Vec<Asked>, Mistake> {
    let (name, indexes) = names::gres(text)?;
    let one = |index| named(&format!("{name}:{index}"), Named::Gres { name: name.clone(), index });
    Ok(indexes.into_iter().map(one).collect())
}

fn directory(text: &str) -> Result<Asked, Mistake> {
    Ok(named(text, Named::Dir(names::directory(text)?.into())))
}

fn named(text: &str, name: Named) -> Asked {
    Asked { text: text.to_owned(), what: What::Named(name) }
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
            ("all", "AllGpus"),
            ("imex/2048", "Imex(2048)"),
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
        let line = ["--gpu", "1", "--cdi=a/b=c", "--gres", "g:1", "--device", "/dev/null r", "0"];
        let expected = ["gpu 0", "specifier /dev/null r", "cdi a/b=c", "gpu 1", "gres g 1"];
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
            ["/dev/null ", ""],
            ["nvidia.com/gpu=", ""],
            ["GPU-x", ""],
            ["0,1", ""],
            ["01", ""],
            ["imex/", ""],
            ["imex/01", ""],
            ["imex/4294967296", ""],
            ["gpu:", ""],
            ["gpu:01", ""],
            ["gpu::1", ""],
            ["gpu:0-3", ""],
            ["gpu:+1", ""],
            ["gpu:1,", ""],
            [":1", ""],
            ["--gres", "gpu"],
            ["--gres", "gpu:0-3"],
            ["--gres", "gpu:01"],
            ["--gpu", "nvidia0"],
            ["--gpu", "0,1"],
            ["--gpu", "all"],
            ["--cdi", "nvidia.com/gpu"],
            ["--cdi", "nvidia.com/gpu=0,1"],
            ["--device", "null"],
            ["--device-dir", "a"],
            ["--gpu=", "0"],
            ["--cdi=", "0"],
            ["--gres=", "0"],
            ["--device=", "0"],
            ["--device-dir=", "0"],
        ] {
            let words: Vec<&str> = line.into_iter().filter(|word| !word.is_empty()).collect();
            assert!(matches!(read(&words), Err(Error::Usage(..))), "{line:?}");
        }
    }

    #[test]
    fn a_mistake_is_told_with_the_option_that_has_it() {
        for (line, begin) in [
            (&["a\u{1b}[1m"][..], "a?[1m: no specifier, "),
            (&["@hcp"], "@hcp: there is no such preset"),
            (&["0,1"], "0,1: one GPU per option"),
            (&["gpu:0-3"], "gpu:0-3: ranges are not taken"),
            (&[""], "an operand is empty"),
            (&["--gpu", "nvidia0"], "option --gpu: nvidia0: not the name of a GPU: "),
            (&["--gpu", ""], "option --gpu: the value is empty"),
            (&["--device", "@hcp"], "option --device: @hcp: there is no such preset"),
        ] {
            let Err(Error::Usage(_, what)) = read(line) else { panic!("{line:?}") };
            assert!(what.starts_with(begin), "{what}");
        }
    }
}
