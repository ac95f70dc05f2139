//! Names of devices on a command line.

use super::super::names::{self, Device, Gres};
use super::Options;
use helper::devices::{DeviceName, Specifier};
use protocol::parse_decimal;

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
    Named(DeviceName),
}

/// What an operand names, which may be several devices.
#[derive(Clone, Debug)]
pub(super) struct Operand(Vec<Asked>);

/// Everything that the command line names: operands first, then options by their kind.
pub(super) fn asked(options: &Options) -> Vec<Asked> {
    let Options { operands, named: names, .. } = options;
    let mut all: Vec<Asked> = operands.iter().flat_map(|operand| operand.0.clone()).collect();
    all.extend(names.device.iter().map(device));
    all.extend(names.cdi.iter().map(|text| named(text, DeviceName::Cdi(text.clone()))));
    all.extend(names.gpu.iter().map(|text| named(text, DeviceName::Gpu(text.clone()))));
    all.extend(names.gres.iter().flat_map(gres));
    all.extend(names.device_dir.iter().map(|text| named(text, DeviceName::Dir(text.into()))));
    all
}

/// What a name without an option in front of it can only be.
/// Fails: why no way of naming devices has it.
pub(super) fn operand(text: &str) -> Result<Operand, String> {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
    let one = |named: Asked| vec![named];
    let asked = if begins(&["/", "char-", "block-", "@"]) {
        one(device(&names::device(text)?))
    } else if text.contains('=') {
        one(named(text, DeviceName::Cdi(names::cdi(text)?)))
    } else if text == "all" {
        one(named(text, DeviceName::AllGpus))
    } else if let Some(channel) = text.strip_prefix("imex/") {
        let channel = parse_decimal(channel).ok_or("not imex/ and the number of a channel")?;
        one(named(text, DeviceName::Imex(channel)))
    } else if begins(&["GPU-", "MIG-"]) || is_gpu(text) {
        one(named(text, DeviceName::Gpu(names::gpu(text)?)))
    } else if text.contains(':') {
        gres(&names::gres(text)?)
    } else {
        return Err("no specifier, CDI name, GPU, NAME:INDEX, imex/N or all".into());
    };
    Ok(Operand(asked))
}

/// Whether this is a GPU, or a list of them, which is told to be one too many.
fn is_gpu(text: &str) -> bool {
    text.split(',').all(|part| names::gpu(part).is_ok())
}

fn device(device: &Device) -> Asked {
    Asked { text: device.text.clone(), what: What::Specifier(device.specifier.clone()) }
}

fn gres((name, indexes): &Gres) -> Vec<Asked> {
    let one =
        |index| named(&format!("{name}:{index}"), DeviceName::Gres { name: name.clone(), index });
    indexes.iter().copied().map(one).collect()
}

fn named(text: &str, name: DeviceName) -> Asked {
    Asked { text: text.to_owned(), what: What::Named(name) }
}

#[cfg(test)]
mod tests {
    use super::super::super::Error;
    use super::super::super::command_line::{Asked as Line, Command, parse};
    use super::*;
    use std::ffi::OsString;

    const UUID: &str = "edfee158-11c1-52b8-0517-92f30e7fac88";

    fn read(line: &[&str]) -> Result<Vec<Asked>, Error> {
        let words: Vec<OsString> = ["devices"].iter().chain(line).map(OsString::from).collect();
        let Line::Command(Command::Devices(options)) = parse(&words, "")? else {
            panic!("{line:?}")
        };
        Ok(asked(&options))
    }

    fn shown(line: &[&str]) -> Vec<String> {
        let shown = |asked: Asked| match asked.what {
            What::Specifier(specifier) => format!("specifier {specifier}"),
            What::Named(DeviceName::Cdi(name)) => format!("cdi {name}"),
            What::Named(DeviceName::Gpu(name)) => format!("gpu {name}"),
            What::Named(DeviceName::Gres { name, index }) => format!("gres {name} {index}"),
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
            assert!(matches!(read(&words), Err(Error::Input(_))), "{line:?}");
        }
    }

    #[test]
    fn a_mistake_is_told_with_the_option_that_has_it() {
        for (line, begin) in [
            (&["a\u{1b}[1m"][..], "'a?[1m' for '[NAME]...': no specifier, "),
            (&["@hcp"], "'@hcp' for '[NAME]...': there is no such preset"),
            (&["0,1"], "'0,1' for '[NAME]...': one GPU per option"),
            (&["gpu:0-3"], "'gpu:0-3' for '[NAME]...': ranges are not taken"),
            (&[""], "'' for '[NAME]...': no specifier, "),
            (&["--gpu", "nvidia0"], "'nvidia0' for '--gpu <GPU>': not the name of a GPU: "),
            (&["--gpu", ""], "'' for '--gpu <GPU>': "),
            (&["--device", "@hcp"], "'@hcp' for '--device <SPEC ACCESS>': there is no such preset"),
        ] {
            let what = read(line).unwrap_err().to_string();
            assert!(what.starts_with(&format!("devices: invalid value {begin}")), "{what}");
        }
    }
}
