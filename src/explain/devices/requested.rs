//! Names of devices on a command line: operands, whose form tells their kind, and options.

use super::Options;
use facts::device_options::{self, Device, Gres};
use helper::devices::{DeviceName, Specifier};
use protocol::parse_decimal;

/// A name of devices, with its text on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestedName {
    pub(super) text: String,
    pub(super) kind: NameKind,
}

/// The kinds of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    Specifier(Specifier),
    Named(DeviceName),
}

/// An operand, which may name several devices.
#[derive(Clone, Debug)]
pub(super) struct Operand(Vec<RequestedName>);

/// Lists all names on the command line: first the operands, then the options by their kind.
pub(super) fn requested_names(options: &Options) -> Vec<RequestedName> {
    let Options {
        operands,
        named: by_option,
        ..
    } = options;
    let operands = operands.iter().flat_map(|operand| operand.0.clone());
    let mut all: Vec<RequestedName> = operands.collect();
    all.extend(by_option.device.iter().map(specifier));
    all.extend(
        by_option
            .cdi
            .iter()
            .map(|text| named(text, DeviceName::Cdi(text.clone()))),
    );
    all.extend(
        by_option
            .gpu
            .iter()
            .map(|text| named(text, DeviceName::Gpu(text.clone()))),
    );
    all.extend(by_option.gres.iter().flat_map(expand_gres));
    all.extend(
        by_option
            .device_dir
            .iter()
            .map(|text| named(text, DeviceName::Dir(text.into()))),
    );
    all
}

/// Parses a name without an option, whose form tells its kind.
///
/// # Errors
///
/// A text that says why the name has no known form.
pub(super) fn parse_operand(text: &str) -> Result<Operand, String> {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
    let all = if begins(&["/", "char-", "block-", "@"]) {
        vec![specifier(&device_options::parse_device(text)?)]
    } else if text.contains('=') {
        vec![named(
            text,
            DeviceName::Cdi(device_options::parse_cdi(text)?),
        )]
    } else if text == "all" {
        vec![named(text, DeviceName::AllGpus)]
    } else if let Some(channel) = text.strip_prefix("imex/") {
        let channel = parse_decimal(channel).ok_or("not imex/ and the number of a channel")?;
        vec![named(text, DeviceName::Imex(channel))]
    } else if begins(&["GPU-", "MIG-"]) || is_gpu(text) {
        vec![named(
            text,
            DeviceName::Gpu(device_options::parse_gpu(text)?),
        )]
    } else if text.contains(':') {
        expand_gres(&device_options::parse_gres(text)?)
    } else {
        return Err("no specifier, CDI name, GPU, NAME:INDEX, imex/N or all".into());
    };
    Ok(Operand(all))
}

/// Returns whether a text is a GPU, or a list of GPUs, which is then refused with the right reason.
fn is_gpu(text: &str) -> bool {
    text.split(',')
        .all(|part| device_options::parse_gpu(part).is_ok())
}

fn specifier(device: &Device) -> RequestedName {
    let kind = NameKind::Specifier(device.specifier.clone());
    RequestedName {
        text: device.text.clone(),
        kind,
    }
}

/// Returns one name for each index of a resource.
fn expand_gres((name, indexes): &Gres) -> Vec<RequestedName> {
    let mut all = Vec::new();
    for index in indexes.iter().copied() {
        let device = DeviceName::Gres {
            name: name.clone(),
            index,
        };
        all.push(named(&format!("{name}:{index}"), device));
    }
    all
}

fn named(text: &str, name: DeviceName) -> RequestedName {
    RequestedName {
        text: text.to_owned(),
        kind: NameKind::Named(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use command::error::Error;
    use std::ffi::OsString;

    const UUID: &str = "edfee158-11c1-52b8-0517-92f30e7fac88";

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse_line(line: &[&str]) -> Result<Vec<RequestedName>, Error> {
        let words: Vec<OsString> = ["devices"].iter().chain(line).map(OsString::from).collect();
        let parsed = Line::try_parse_from(words).map_err(|error| Error::usage("devices", error))?;
        Ok(requested_names(&parsed.options))
    }

    fn shown(line: &[&str]) -> Vec<String> {
        let shown = |name: RequestedName| match name.kind {
            NameKind::Specifier(specifier) => format!("specifier {specifier}"),
            NameKind::Named(DeviceName::Cdi(name)) => format!("cdi {name}"),
            NameKind::Named(DeviceName::Gpu(name)) => format!("gpu {name}"),
            NameKind::Named(DeviceName::Gres { name, index }) => format!("gres {name} {index}"),
            NameKind::Named(other) => format!("{other:?}"),
        };
        parse_line(line).unwrap().into_iter().map(shown).collect()
    }

    #[test]
    fn form_of_operand_tells_kind() {
        for (text, kind) in [
            ("/dev/nvidia0 rwm", "specifier /dev/nvidia0 rwm"),
            ("/dev/disk/by-id/a=b", "specifier /dev/disk/by-id/a=b rw"),
            ("char-pts", "specifier char-pts rw"),
            ("block-loop r", "specifier block-loop r"),
            ("nvidia.com/gpu=0", "cdi nvidia.com/gpu=0"),
            ("0", "gpu 0"),
            ("flux:0", "gpu flux:0"),
            ("nvidia:1", "gpu nvidia:1"),
            ("0000:1b:00.0", "gpu 0000:1b:00.0"),
            ("all", "AllGpus"),
            ("imex/2048", "Imex(2048)"),
            ("gpu:3", "gres gpu 3"),
            ("gpu:a100:3", "gres gpu:a100 3"),
        ] {
            assert_eq!(shown(&[text]), [kind], "{text}");
        }
        let gpu = format!("GPU-{UUID}");
        let mig = format!("MIG-GPU-{UUID}/1/0");
        assert_eq!(
            shown(&[&gpu, &mig]),
            [format!("gpu {gpu}"), format!("gpu {mig}")]
        );
        assert_eq!(shown(&["gpu:0,2"]), ["gres gpu 0", "gres gpu 2"]);
    }

    #[test]
    fn option_tells_kind_of_name() {
        let line = [
            "--gpu",
            "1",
            "--cdi=a/b=c",
            "--gres",
            "g:1",
            "--device",
            "/dev/null r",
            "0",
        ];
        let expected = [
            "gpu 0",
            "specifier /dev/null r",
            "cdi a/b=c",
            "gpu 1",
            "gres g 1",
        ];
        assert_eq!(shown(&line), expected);
        assert_eq!(shown(&["--device-dir", "/a"]), [r#"Dir("/a")"#]);
        assert_eq!(shown(&["--", "char-pts"]), ["specifier char-pts rw"]);
    }

    #[test]
    fn name_of_unknown_form_is_an_input_error() {
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
            assert!(
                matches!(parse_line(&words), Err(Error::Usage { .. })),
                "{line:?}"
            );
        }
    }
}
