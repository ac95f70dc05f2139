use std::collections::BTreeMap;

use super::*;
use crate::device::{Found, Policy, ResolveError, Resolver, Settings, Tree, Wanted, allowlist};
use crate::plan::DeviceRule;
use crate::random::Random;
use crate::trust::tests::Scratch;

/// What a list opens: every device, or major, with its accesses together.
type Opened = BTreeMap<(DeviceType, u32, Option<u32>), Access>;

const SEVERAL: [&str; 14] = [
    "/dev/sda*",
    "/dev/sda r",
    "/dev/sda1 w",
    "/dev/*/*/msr r",
    "/dev/nvidia0",
    "/dev/gone",
    "/dev/char/100:2 m",
    "/dev/block/8:0 r",
    "char-nvidia* r",
    "char-195 w",
    "char-none",
    "@hpc",
    "@hpc r",
    "char-*pts",
];

fn node() -> Scratch {
    let scratch = Scratch::new();
    let drivers = "Character devices:\n102 x\n136 pts\n195 nvidia\n510 nvidia-uvm\n";
    scratch.file("proc/devices", drivers);
    let names = ["sda", "sda1", "nvidia0", "cpu/0/msr", "fuse", "infiniband/uverbs0", "cxi0"];
    for (number, name) in names.iter().enumerate() {
        scratch.file(&format!("dev/{name}"), &format!("c {}:{number}", 100 + number));
    }
    scratch
}

fn resolver(scratch: &Scratch) -> Resolver {
    Resolver::new(Tree::laid_out(scratch.path(), scratch.trust()), Settings::default())
}

fn found(scratch: &Scratch, text: &str) -> Result<Found, ResolveError> {
    resolver(scratch).specifier(&text.parse().unwrap())
}

fn opened(scratch: &Scratch, texts: &[&str]) -> Opened {
    let pair = |text: &&str| {
        let (spec, access) = text.split_once(' ').unwrap_or((text, "rw"));
        (spec.to_owned(), access.to_owned())
    };
    let allow: Vec<_> = texts.iter().map(pair).collect();
    let wanted = Wanted { policy: Policy::Strict, allow: &allow, named: Vec::new() };
    let mut opened = Opened::new();
    for rule in allowlist(&wanted, &[], &resolver(scratch)).unwrap().list.rules() {
        let access = opened.entry((rule.kind(), rule.major(), rule.minor())).or_default();
        *access = access.union(rule.access());
    }
    opened
}

#[test]
fn the_order_of_specifiers_never_matters_and_one_more_never_takes_away() {
    let scratch = node();
    let mut random = Random::new(13);
    for _ in 0..300 {
        let mut texts: Vec<_> = (0..random.below(8)).map(|_| random.one_of(&SEVERAL)).collect();
        let before = opened(&scratch, &texts);
        let at = random.below(texts.len() as u32 + 1) as usize;
        texts.rotate_left(at);
        texts.reverse();
        assert_eq!(opened(&scratch, &texts), before, "{texts:?}");
        texts.insert(at, random.one_of(&SEVERAL));
        let after = opened(&scratch, &texts);
        for (device, access) in before {
            assert!(after.get(&device).is_some_and(|more| more.contains(access)), "{texts:?}");
        }
    }
}

/// Whether a text says itself that it stands for all minors.
fn is_whole(text: &str) -> bool {
    text.starts_with("char-") || text.starts_with("block-")
}

#[test]
fn only_a_class_or_a_major_stands_for_every_minor() {
    let scratch = node();
    let mut random = Random::new(11);
    let pieces = ["*", "?", "/", "s", "da", "nvidia", "0", "cpu", "195", ":", "[!a]", "[0-9]"];
    let starts = ["/dev/", "char-", "block-", "/dev/char/", "/dev/block/", "@hpc", ""];
    let mut resolved = [0, 0];
    for _ in 0..20_000 {
        let start = random.one_of(&starts);
        let end: String = (0..random.below(6)).map(|_| random.one_of(&pieces)).collect();
        let text = format!("{start}{end}");
        let Ok(specifier) = text.parse::<Specifier>() else { continue };
        assert_eq!(specifier.to_string().parse(), Ok(specifier.clone()), "{text}");
        let Ok(found) = found(&scratch, &text) else { continue };
        let whole = |rule: &DeviceRule| rule.minor().is_none();
        for device in &found.devices {
            assert_eq!(whole(&device.rule), is_whole(&text), "{text}");
            assert_eq!(device.rule.access(), specifier.access(), "{text}");
        }
        resolved[usize::from(is_whole(&text))] += 1;
    }
    assert!(resolved.iter().all(|count| *count > 100), "{resolved:?}");
}
