use nix::errno::Errno;

use super::*;
use crate::devices::{DeviceSettings, Resolver};
use crate::node::{DeviceError, NodeError, Tree};
use crate::testing::Random;
use crate::testing::Scratch;
use protocol::DeviceRule;

const DRIVERS: &str = "Character devices:\n  1 mem\n 10 misc\n136 pts\n137 pts\n195 nvidia\n\
                       195 nvidiactl\n226 drm\n235 nvidia-caps\n238 kfd\n261 accel\n262 habanalabs\n\
                       510 nvidia-uvm\n\nBlock devices:\n  7 loop\n  8 sd\n226 odd\n";

fn resolve(scratch: &Scratch, text: &str) -> Result<crate::node::ResolvedDevices, DeviceError> {
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    Resolver::new(tree, DeviceSettings::default()).resolve_specifier(&text.parse().unwrap())
}

fn resolve_rules(scratch: &Scratch, text: &str) -> Result<Vec<String>, DeviceError> {
    let resolved = resolve(scratch, text)?;
    Ok(resolved
        .devices
        .iter()
        .map(|device| device.rule.to_string())
        .collect())
}

fn warnings(scratch: &Scratch, text: &str) -> Vec<String> {
    resolve(scratch, text).unwrap().warnings
}

fn node() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("proc/devices", DRIVERS);
    scratch
}

#[test]
fn parsed_specifier_is_displayed_in_its_one_spelling() {
    for (text, displayed) in [
        ("/dev/null", "/dev/null rw"),
        ("/dev/nvidia0 rwm", "/dev/nvidia0 rwm"),
        ("/dev/sda*", "/dev/sda* rw"),
        ("/dev/cpu/*/[a-z]? r", "/dev/cpu/*/[a-z]? r"),
        ("/dev/char/195:0", "/dev/char/195:0 rw"),
        ("/dev/block/7:1048575 w", "/dev/block/7:1048575 w"),
        ("char-pts mr", "char-pts rm"),
        ("block-loop w", "block-loop w"),
        ("char-/dev/tty", "char-/dev/tty rw"),
        ("char-nvidia*", "char-nvidia* rw"),
        ("char-195", "char-195 rw"),
        ("block-4095 r", "block-4095 r"),
        ("@hpc", "@hpc rw"),
        ("@hpc r", "@hpc r"),
        ("@fpga0", "@fpga0 rw"),
        ("@ve:1 r", "@ve:1 r"),
        ("/dev/a-b:c rr", "/dev/a-b:c r"),
    ] {
        let specifier: Specifier = text.parse().unwrap();
        assert_eq!(specifier.to_string(), displayed);
        assert_eq!(displayed.parse(), Ok(specifier));
    }
}

#[test]
fn other_texts_are_no_specifier() {
    let unknown_forms = [
        "",
        "null",
        "/dev",
        "/dev/",
        "dev/null",
        "/sys/x",
        "/devil",
        "char-",
        "block-",
        "char",
        "*",
        "/*",
        "/d*/null",
        "/dev/../etc/x",
        "/dev/a/..",
        "/dev/*/../x",
        "/dev/fd/0",
        "/dev/fd/*",
        "/dev//fd/0",
        "/dev/./stdin",
        "/dev/fd",
        "/dev/.",
        "/dev/stdin",
        "/dev/a\nb",
        "/dev/*\n",
        "char-\n*",
        "c:1:3",
    ];
    for text in unknown_forms {
        assert_eq!(
            text.parse::<Specifier>(),
            Err(SpecifierError::UnknownForm),
            "{text:?}"
        );
    }
    for text in ["/dev/shm/x", "/dev/shm/*", "/dev//./mqueue/x*"] {
        assert_eq!(
            text.parse::<Specifier>(),
            Err(SpecifierError::UserWritableDirectory),
            "{text:?}"
        );
    }
    for text in [
        "/dev/null ",
        "/dev/null r w",
        "/dev/null\t",
        "/dev/null rwmr",
        "/dev/null z",
    ] {
        assert_eq!(
            text.parse::<Specifier>(),
            Err(SpecifierError::InvalidAccess),
            "{text:?}"
        );
    }
    for text in [
        "/dev/char/",
        "/dev/char/x",
        "/dev/char/1",
        "/dev/char/01:0",
        "/dev/char/1:-1",
        "/dev/char/1:*",
        "/dev/block/4096:0",
        "/dev/block/0:1048576",
        "/dev/char/1:0/",
        "/dev//char/1:0",
        "/dev/./block/*",
        "char-4096",
        "char-0195",
        "block-99999999999",
    ] {
        assert_eq!(
            text.parse::<Specifier>(),
            Err(SpecifierError::InvalidNumbers),
            "{text:?}"
        );
    }
    for text in ["@", "@HPC", "@@hpc", "@2", "@a/b", "@-", "@hpc@"] {
        assert_eq!(
            text.parse::<Specifier>(),
            Err(SpecifierError::UnknownPreset),
            "{text:?}"
        );
    }
    for text in [
        "/dev/[",
        "/dev/[a/b]",
        "/dev/\\*",
        "char-[z-a]",
        "/dev/*/*/*/*/*",
    ] {
        let error = text.parse::<Specifier>();
        assert_eq!(error, Err(SpecifierError::InvalidPattern), "{text:?}");
    }
    for text in ["/dev/**", "/dev/**/msr", "/dev/cpu/a**b r"] {
        let error = text.parse::<Specifier>();
        assert_eq!(error, Err(SpecifierError::RecursivePattern), "{text:?}");
    }
}

#[test]
fn blanks_and_tabs_separate_an_access() {
    let expected: Specifier = "/dev/cxi* r".parse().unwrap();
    for text in ["/dev/cxi*  r", "/dev/cxi*\tr", "/dev/cxi* \t r\t "] {
        assert_eq!(text.parse(), Ok(expected.clone()), "{text:?}");
    }
}

#[test]
fn entry_of_a_site_without_a_device_is_skipped_with_its_reason() {
    let scratch = node();
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    for (text, shown, why) in [
        ("", "an empty entry", "names no device, and is skipped"),
        ("/run/x r", "/run/x r", "is not below /dev, and is skipped"),
        ("/", "/", "is not below /dev, and is skipped"),
    ] {
        let entry = Specifier::parse_site_entry(text).unwrap();
        assert_eq!(entry.to_string(), shown);
        assert_eq!(entry.skip_reason(), Some(why));
        let error = super::resolve(&tree, &entry, &BTreeMap::new()).unwrap_err();
        assert_eq!(error.to_string(), why);
        assert!(text.parse::<Specifier>().is_err());
    }
    for text in ["null", "/dev", "/dev/../run/x", "/dev/shm/x", "/dev/**"] {
        assert!(Specifier::parse_site_entry(text).is_err(), "{text}");
    }
    let entry = Specifier::parse_site_entry("/dev/null").unwrap();
    assert_eq!(entry.skip_reason(), None);
}

#[test]
fn invalid_access_is_reported_before_an_unknown_form() {
    assert_eq!(
        Specifier::new("nothing", ""),
        Err(SpecifierError::InvalidAccess)
    );
    assert_eq!(
        Specifier::new("nothing", "r"),
        Err(SpecifierError::UnknownForm)
    );
}

#[test]
fn path_may_contain_a_blank_if_the_access_is_separate() {
    let specifier = Specifier::new("/dev/a b", "r").unwrap();
    assert_eq!(specifier.selector, Selector::Path("/dev/a b".into()));
}

#[test]
fn plain_path_follows_links() {
    let scratch = Scratch::new();
    scratch.file("dev/file", "");
    scratch.file("dev/null", "c 1:3");
    std::os::unix::fs::symlink("null", scratch.path().join("dev/zero")).unwrap();
    std::os::unix::fs::symlink("gone", scratch.path().join("dev/dangling")).unwrap();
    assert_eq!(
        resolve_rules(&scratch, "/dev/zero r"),
        Ok(vec!["c:1:3:r".into()])
    );
    assert_eq!(
        resolve_rules(&scratch, "/dev/file"),
        Err(NodeError::NotADevice.into())
    );
    let missing = DeviceError::absent(NodeError::Open(Errno::ENOENT));
    assert_eq!(resolve_rules(&scratch, "/dev/dangling"), Err(missing));
}

#[test]
fn path_pattern_resolves_to_exact_devices_without_links() {
    let scratch = node();
    scratch.file("dev/sda", "b 8:0");
    scratch.file("dev/sda1", "b 8:1");
    scratch.file("dev/sdb", "b 8:16");
    std::os::unix::fs::symlink("sdb", scratch.path().join("dev/sdax")).unwrap();
    assert_eq!(
        resolve_rules(&scratch, "/dev/sda*"),
        Ok(vec!["b:8:0:rw".into(), "b:8:1:rw".into()])
    );
    assert_eq!(
        resolve_rules(&scratch, "/dev/sdc*"),
        Err(DeviceError::absent("no device node matches"))
    );
    assert_eq!(
        resolve(&scratch, "/dev/sdb*").unwrap().devices[0].node,
        "/dev/sdb"
    );
}

#[test]
fn class_covers_every_minor() {
    let scratch = Scratch::new();
    let error = resolve_rules(&scratch, "char-pts").unwrap_err().to_string();
    assert!(error.starts_with("read /proc/devices: "), "{error}");
    let other_scratch = node();
    let pts = vec!["c:136:-1:rw".to_owned(), "c:137:-1:rw".to_owned()];
    assert_eq!(resolve_rules(&other_scratch, "char-pts"), Ok(pts.clone()));
    assert_eq!(resolve_rules(&other_scratch, "char-p*"), Ok(pts));
    assert_eq!(
        resolve_rules(&other_scratch, "block-loop m"),
        Ok(vec!["b:7:-1:m".into()])
    );
    assert_eq!(
        resolve_rules(&other_scratch, "block-[ls]*"),
        Ok(vec!["b:7:-1:rw".into(), "b:8:-1:rw".into()])
    );
    assert_eq!(
        resolve_rules(&other_scratch, "char-nvidia-uvm"),
        Ok(vec!["c:510:-1:rw".into()])
    );
    for text in [
        "char-loop",
        "char-nvidia-frontend",
        "char-loo?",
        "block-pts",
        "char-PTS",
    ] {
        assert_eq!(
            resolve_rules(&other_scratch, text),
            Err(DeviceError::new("not in /proc/devices")),
            "{text}"
        );
    }
}

#[test]
fn class_without_wild_characters_matches_the_whole_name() {
    let scratch = node();
    assert_eq!(
        resolve_rules(&scratch, "char-nvidia r"),
        Ok(vec!["c:195:-1:r".into()])
    );
    let all = ["c:195:-1:r", "c:235:-1:r", "c:510:-1:r"].map(String::from);
    assert_eq!(resolve_rules(&scratch, "char-nvidia* r"), Ok(all.to_vec()));
}

#[test]
fn major_without_a_driver_does_not_resolve() {
    let scratch = node();
    assert_eq!(
        resolve_rules(&scratch, "char-10"),
        Ok(vec!["c:10:-1:rw".into()])
    );
    assert_eq!(
        resolve_rules(&scratch, "block-8 r"),
        Ok(vec!["b:8:-1:r".into()])
    );
    assert_eq!(
        resolve_rules(&scratch, "char-8"),
        Err(DeviceError::new("not in /proc/devices"))
    );
    assert_eq!(
        resolve_rules(&scratch, "char-240"),
        Err(DeviceError::new("not in /proc/devices"))
    );
}

#[test]
fn numbers_resolve_without_a_node() {
    let scratch = Scratch::new();
    assert_eq!(
        resolve_rules(&scratch, "/dev/char/195:0"),
        Ok(vec!["c:195:0:rw".into()])
    );
    assert_eq!(
        resolve_rules(&scratch, "/dev/block/7:1 r"),
        Ok(vec!["b:7:1:r".into()])
    );
}

#[test]
fn hpc_preset_is_the_existing_devices_without_those_that_manage_the_fabric() {
    let scratch = node();
    let resolved = resolve(&scratch, "@hpc").unwrap();
    assert_eq!(resolved, crate::node::ResolvedDevices::default());
    for (name, number) in [
        ("fuse", "10:229"),
        ("infiniband/uverbs0", "231:192"),
        ("infiniband/uverbs1", "231:193"),
        ("infiniband/umad0", "231:0"),
        ("infiniband/issm0", "231:64"),
        ("infiniband/rdma_cm", "10:120"),
        ("cxi0", "505:0"),
        ("gdrdrv", "503:0"),
        ("nvidia0", "195:0"),
        ("kmsg", "1:11"),
    ] {
        scratch.file(&format!("dev/{name}"), &format!("c {number}"));
    }
    let all = [
        "c:10:229:rw",
        "c:231:192:rw",
        "c:231:193:rw",
        "c:10:120:rw",
        "c:505:0:rw",
        "c:503:0:rw",
    ];
    assert_eq!(resolve_rules(&scratch, "@hpc").unwrap(), all);
    assert!(warnings(&scratch, "@hpc").is_empty());
    assert!(
        resolve_rules(&scratch, "@hpc r")
            .unwrap()
            .iter()
            .all(|rule| rule.ends_with(":r"))
    );
    for path in HPC_PATHS {
        assert!(Selector::parse(path).is_ok(), "{path}");
    }
}

#[test]
fn whole_major_of_gpus_gives_a_warning() {
    let scratch = node();
    for (text, driver) in [
        ("char-nvidia", "nvidia, nvidiactl"),
        ("char-nvidiactl r", "nvidia, nvidiactl"),
        ("char-195", "nvidia, nvidiactl"),
        ("char-226", "drm"),
        ("char-dr?", "drm"),
        ("char-nvidia-caps", "nvidia-caps"),
        ("char-accel", "accel"),
        ("char-habanalabs", "habanalabs"),
        (
            "char-*",
            "accel, drm, habanalabs, nvidia, nvidia-caps, nvidiactl",
        ),
    ] {
        let specifier: Specifier = text.parse().unwrap();
        let warning = format!(
            "{specifier} opens the GPUs of every job on this node: all devices of {driver}"
        );
        assert_eq!(warnings(&scratch, text), [warning]);
    }
    for text in [
        "char-pts",
        "char-kfd",
        "char-nvidia-uvm",
        "block-odd",
        "/dev/char/195:0",
    ] {
        assert!(warnings(&scratch, text).is_empty(), "{text}");
    }
}

#[test]
fn pattern_that_opens_several_gpus_gives_a_warning() {
    let scratch = node();
    scratch.file("dev/nvidia0", "c 195:0");
    scratch.file("dev/nvidiactl", "c 195:255");
    assert!(warnings(&scratch, "/dev/nvidia*").is_empty());
    scratch.file("dev/nvidia1", "c 195:1");
    let warning = "/dev/nvidia* rw opens 2 GPUs, whichever job they belong to";
    assert_eq!(warnings(&scratch, "/dev/nvidia*"), [warning]);
}

#[test]
fn host_resolves_dev_null() {
    let resolver = Resolver::new(Tree::host(), DeviceSettings::default());
    let resolved = resolver
        .resolve_specifier(&"/dev/null rwm".parse().unwrap())
        .unwrap();
    assert_eq!(
        resolved.devices.first().unwrap().rule.to_string(),
        "c:1:3:rwm"
    );
    let other_resolved = resolver
        .resolve_specifier(&"/dev/nul[l] r".parse().unwrap())
        .unwrap();
    assert_eq!(
        other_resolved.devices.first().unwrap().rule.to_string(),
        "c:1:3:r"
    );
}

/// Tells whether a text is a class or a major, which cover all minors.
fn is_class_or_major(text: &str) -> bool {
    text.starts_with("char-") || text.starts_with("block-")
}

#[test]
fn only_classes_and_majors_cover_every_minor() {
    let scratch = Scratch::new();
    let drivers = "Character devices:\n102 x\n136 pts\n195 nvidia\n510 nvidia-uvm\n";
    scratch.file("proc/devices", drivers);
    for (number, name) in ["sda", "sda1", "nvidia0", "cpu/0/msr", "fuse"]
        .iter()
        .enumerate()
    {
        scratch.file(
            &format!("dev/{name}"),
            &format!("c {}:{number}", 100 + number),
        );
    }
    let mut random = Random::new(11);
    let pieces = [
        "*", "?", "/", "s", "da", "nvidia", "0", "cpu", "195", ":", "[!a]", "[0-9]",
    ];
    let starts = [
        "/dev/",
        "char-",
        "block-",
        "/dev/char/",
        "/dev/block/",
        "@hpc",
        "",
    ];
    let mut counts = [0, 0];
    for _ in 0..20_000 {
        let start = random.one_of(&starts);
        let rest: String = (0..random.below(6))
            .map(|_| random.one_of(&pieces))
            .collect();
        let text = format!("{start}{rest}");
        let Ok(specifier) = text.parse::<Specifier>() else {
            continue;
        };
        assert_eq!(
            specifier.to_string().parse(),
            Ok(specifier.clone()),
            "{text}"
        );
        let Ok(resolved) = resolve(&scratch, &text) else {
            continue;
        };
        let has_all_minors = |rule: &DeviceRule| rule.minor().is_none();
        for device in &resolved.devices {
            assert_eq!(
                has_all_minors(&device.rule),
                is_class_or_major(&text),
                "{text}"
            );
            assert_eq!(device.rule.access(), specifier.access, "{text}");
        }
        counts[usize::from(is_class_or_major(&text))] += 1;
    }
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}

#[test]
fn name_of_a_site_stands_for_its_devices() {
    let scratch = node();
    scratch.file("dev/xrt0", "c 10:60");
    scratch.file("dev/xrt0_ctl", "c 10:61");
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    let entries = |texts: &[&str]| -> Vec<Specifier> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    };
    let settings = DeviceSettings {
        names: BTreeMap::from([
            (
                "fpga0".to_owned(),
                entries(&["/dev/xrt0", "/dev/xrt0_ctl r"]),
            ),
            ("part".to_owned(), entries(&["/dev/xrt0", "/dev/xrt1"])),
        ]),
        ..DeviceSettings::default()
    };
    let resolver = Resolver::new(tree, settings);
    let rules = |text: &str| {
        let resolved = resolver.resolve_specifier(&text.parse().unwrap());
        resolved
            .map(|resolved| {
                let rules = resolved
                    .devices
                    .iter()
                    .map(|device| device.rule.to_string());
                rules.collect::<Vec<_>>()
            })
            .map_err(|error| error.to_string())
    };
    let both = |one: &str, other: &str| Ok(vec![one.to_owned(), other.to_owned()]);
    assert_eq!(rules("@fpga0"), both("c:10:60:rw", "c:10:61:r"));
    assert_eq!(rules("@fpga0 r"), both("c:10:60:r", "c:10:61:r"));
    assert_eq!(rules("@fpga0 w"), Ok(vec!["c:10:60:w".to_owned()]));
    let known = "[devices] of job_adopt.conf has @fpga0, @part";
    assert_eq!(rules("@fpga1"), Err(known.to_owned()));
    // A part of an accelerator is none.
    assert!(rules("@part").unwrap_err().starts_with("/dev/xrt1 rw: "));
    let without = resolve(&scratch, "@fpga0").unwrap_err();
    assert_eq!(without.to_string(), "job_adopt.conf has no [devices]");
}
