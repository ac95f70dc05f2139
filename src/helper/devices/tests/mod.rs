//! What holds of every allowlist: names of all kinds beside each other, on a node that has all kinds
//! of devices.

mod node;

use std::collections::BTreeMap;

use super::{
    AllowlistError, DeviceName, DeviceRequest, JobAllowlist, Policy, Specifier, build_allowlist,
};
use crate::testing::Random;
use node::{AMD, MIG, NVIDIA, WholeNode};
use protocol::{Access, DeviceType};

/// What a list opens: every device, or major, with its accesses together.
type Opened = BTreeMap<(DeviceType, u32, Option<u32>), Access>;

const SPECIFIERS: [&str; 18] = [
    "/dev/nvidia0 r", "/dev/nvidia1 w", "/dev/nvidia* r", "/dev/dri/renderD*", "/dev/sda*",
    "/dev/sda m", "/dev/gone", "/dev/null r", "/dev/char/195:0 m", "/dev/block/8:1 r",
    "char-nvidia* r", "char-195 w", "char-pts r", "block-sd", "char-none", "@hpc", "no specifier",
    "/dev/loop0",
];

fn gpu(name: impl Into<String>) -> DeviceName {
    DeviceName::Gpu(name.into())
}

fn cdi(name: &str) -> DeviceName {
    DeviceName::Cdi(name.into())
}

fn gres(name: &str, index: u32) -> DeviceName {
    DeviceName::Gres { name: name.into(), index }
}

fn dir(name: &str) -> DeviceName {
    DeviceName::Dir(format!("/run/list/{name}").into())
}

/// Names that resolve on the whole node.
fn good() -> Vec<DeviceName> {
    let mut names: Vec<DeviceName> = (0..9).map(|index| gpu(index.to_string())).collect();
    names.extend(NVIDIA.iter().map(|(address, ..)| gpu(*address)));
    names.extend(AMD.iter().map(|(address, ..)| gpu(*address)));
    names.extend(NVIDIA.iter().map(|(.., uuid)| gpu(format!("GPU-{uuid}"))));
    names.push(gpu(format!("MIG-GPU-{}/1/0", NVIDIA[1].2)));
    names.push(gpu(format!("MIG-{MIG}")));
    names.extend([gres("gpu", 0), gres("card:h100", 1), gres("gpu", 2), gres("gpu", 3)]);
    names.push(gres("disk", 0));
    names.extend(["one", "all", "none", "mixed", "empty"].map(dir));
    names.extend(["nvidia.com/gpu=0", "nvidia.com/gpu=1:0", "amd.com/gpu=4"].map(cdi));
    names.extend([DeviceName::AllGpus, DeviceName::Imex(3)]);
    names
}

/// Names each of which refuses.
fn bad() -> Vec<DeviceName> {
    vec![
        gpu("9"),
        gpu("0000:74:00.0"),
        gpu("GPU-00000000-0000-0000-0000-000000000000"),
        gpu(format!("MIG-GPU-{}/1/0", NVIDIA[0].2)),
        gpu("nvidia0"),
        cdi("nvidia.com/gpu=7"),
        cdi("nvidia.com/gpu=old"),
        cdi("nvidia.com/gpu=twice"),
        cdi("site.org/fpga=0"),
        cdi("all"),
        gres("gpu", 4),
        gres("card:mi300", 0),
        gres("licence", 0),
        dir("bad"),
        dir("gone"),
    ]
}

/// Names that a job asks for, and the site, which [`Asked::resolve`] makes a list of.
#[derive(Clone, Debug)]
struct Asked {
    policy: Policy,
    allow: Vec<&'static str>,
    named: Vec<DeviceName>,
    site: Vec<&'static str>,
}

impl Asked {
    fn of(policy: Policy) -> Self {
        Self { policy, allow: Vec::new(), named: Vec::new(), site: Vec::new() }
    }

    fn random(random: &mut Random) -> Self {
        let (good, bad) = (good(), bad());
        let policy = random.one_of(&[Policy::Strict, Policy::Closed, Policy::Auto]);
        let mut asked = Self::of(policy);
        for _ in 0..random.below(5) {
            asked.allow.push(random.one_of(&SPECIFIERS));
        }
        for _ in 0..random.below(6) {
            asked.named.push(good[random.below(good.len() as u32) as usize].clone());
        }
        if random.below(6) == 0 {
            asked.named.push(bad[random.below(bad.len() as u32) as usize].clone());
        }
        for _ in 0..random.below(3) {
            asked.site.push(random.one_of(&SPECIFIERS));
        }
        asked
    }

    fn resolve(&self, node: &WholeNode) -> Result<JobAllowlist, AllowlistError> {
        let pair = |text: &&str| {
            let (spec, access) = text.split_once(' ').unwrap_or((text, "rw"));
            (spec.to_owned(), access.to_owned())
        };
        let allow: Vec<_> = self.allow.iter().map(pair).collect();
        let site: Vec<Specifier> = self.site.iter().filter_map(|text| text.parse().ok()).collect();
        let wanted =
            DeviceRequest { policy: self.policy, allow: &allow, names: self.named.clone() };
        build_allowlist(&wanted, &site, &node.resolver())
    }

    fn opened(&self, node: &WholeNode) -> Option<Opened> {
        self.resolve(node).ok().map(|resolved| opened(&resolved))
    }

    /// Each part alone, as the list of a job that is given nothing else.
    fn parts(&self) -> Vec<Self> {
        let strict = Self::of(Policy::Strict);
        let allow = self.allow.iter().map(|spec| Self { allow: vec![spec], ..strict.clone() });
        let named =
            self.named.iter().map(|name| Self { named: vec![name.clone()], ..strict.clone() });
        let mut parts: Vec<_> = allow.chain(named).collect();
        if self.policy != Policy::Strict {
            parts.push(Self::of(Policy::Closed));
            let site = self.site.iter().map(|spec| Self { allow: vec![spec], ..strict.clone() });
            parts.extend(site);
        }
        parts
    }
}

fn opened(resolved: &JobAllowlist) -> Opened {
    let mut opened = Opened::new();
    for rule in resolved.list.rules() {
        let access = opened.entry((rule.kind(), rule.major(), rule.minor())).or_default();
        *access = access.union(rule.access());
    }
    opened
}

fn both(mut one: Opened, other: Opened) -> Opened {
    for (device, more) in other {
        let access = one.entry(device).or_default();
        *access = access.union(more);
    }
    one
}

#[test]
fn good_names_are_good_and_bad_ones_refuse_whatever_stands_beside_them() {
    let node = WholeNode::new();
    for name in good() {
        let asked = Asked { named: vec![name], ..Asked::of(Policy::Strict) };
        assert!(asked.resolve(&node).is_ok(), "{asked:?}: {:?}", asked.resolve(&node));
    }
    for name in bad() {
        for at in [0, 1] {
            let mut asked = Asked { named: vec![gpu("0")], ..Asked::of(Policy::Strict) };
            asked.named.insert(at, name.clone());
            assert!(asked.resolve(&node).is_err(), "{asked:?}");
        }
    }
}

/// From which follows that the order never matters and that one more name takes nothing away.
#[test]
fn names_together_open_what_each_opens_and_refuse_where_one_refuses() {
    let node = WholeNode::new();
    let mut random = Random::new(5);
    let mut refused = 0;
    for _ in 0..300 {
        let asked = Asked::random(&mut random);
        let each: Option<Vec<Opened>> =
            asked.parts().iter().map(|part| part.opened(&node)).collect();
        let expected = each.map(|each| each.into_iter().fold(Opened::new(), both));
        refused += u32::from(expected.is_none());
        assert_eq!(asked.opened(&node), expected, "{asked:?}");
    }
    assert!((20..100).contains(&refused), "{refused}");
}

#[test]
fn every_rule_is_a_device_of_this_node_and_no_name_stands_for_a_whole_major() {
    let node = WholeNode::new();
    let numbers = node.numbers();
    let mut random = Random::new(13);
    for _ in 0..200 {
        let mut asked = Asked::random(&mut random);
        asked.policy = Policy::Strict;
        let Some(opened) = asked.opened(&node) else { continue };
        for (kind, major, minor) in opened.keys() {
            match minor {
                Some(minor) => {
                    assert!(
                        numbers.contains(&(*kind, *major, *minor)),
                        "{major}:{minor}, {asked:?}"
                    );
                }
                None => {
                    let whole =
                        |spec: &&str| spec.starts_with("char-") || spec.starts_with("block-");
                    assert!(asked.allow.iter().any(whole), "{asked:?}");
                }
            }
        }
        asked.allow.clear();
        let opened = asked.opened(&node).unwrap_or_default();
        let exact = |((_, _, minor), access): (&(_, _, Option<u32>), &Access)| {
            minor.is_some() && Access::RW.contains(*access)
        };
        assert!(opened.iter().all(exact), "{asked:?}");
    }
}

/// Neither the capability that configures MIG nor the card node of a partition, and no GPU that was
/// not named.
#[test]
fn a_name_opens_nothing_of_another_gpu() {
    let node = WholeNode::new();
    let minors = |name: &DeviceName, major: u32| -> Vec<u32> {
        let asked = Asked { named: vec![name.clone()], ..Asked::of(Policy::Strict) };
        let opened = asked.opened(&node).unwrap();
        let own = opened.keys().filter(|(_, of, _)| *of == major);
        own.filter_map(|(_, _, minor)| *minor).collect()
    };
    assert_eq!(minors(&gpu("0"), 195), [1, 255]);
    assert_eq!(minors(&gpu("1"), 195), [0, 255]);
    assert_eq!(minors(&gpu("0"), 226), [1, 129]);
    assert_eq!(minors(&gpu("2"), 226), [136]);
    assert_eq!(minors(&gpu("5"), 226), [139]);
    assert_eq!(minors(&gpu("6"), 226), [16, 144]);
    assert_eq!(minors(&gpu("7"), 261), [0]);
    assert_eq!(minors(&gpu("8"), 226), [32, 160]);
    assert_eq!(minors(&dir("mixed"), 235), [30, 31]);
    assert_eq!(minors(&DeviceName::AllGpus, 195), [0, 1, 255]);
    for name in good() {
        assert!(!minors(&name, 235).contains(&1), "{name}");
    }
}

#[test]
fn one_gpu_is_the_same_whatever_it_is_called() {
    let node = WholeNode::new();
    let opened = |name: &DeviceName| {
        let asked = Asked { named: vec![name.clone()], ..Asked::of(Policy::Strict) };
        asked.opened(&node).unwrap()
    };
    let upper = NVIDIA[0].2.to_uppercase();
    let same: [Vec<DeviceName>; 3] = [
        vec![
            gpu("0"),
            gpu("0000:1b:00.0"),
            gpu("1b:00.0"),
            gpu("0000:1B:00.0"),
            gpu("00000000:1b:00.0"),
            gpu(format!("GPU-{}", NVIDIA[0].2)),
            gpu(format!("GPU-{upper}")),
            cdi("nvidia.com/gpu=0"),
            cdi(&format!("nvidia.com/gpu=GPU-{}", NVIDIA[0].2)),
            dir("one"),
        ],
        vec![gpu("6"), gpu("44:00.0"), gres("gpu", 2), gres("GPU", 2), cdi("amd.com/gpu=4")],
        vec![gpu("4"), gres("gpu", 3), gres("GPU", 3), cdi("amd.com/gpu=2")],
    ];
    for names in same {
        for name in &names {
            assert_eq!(opened(name), opened(&names[0]), "{name} and {}", names[0]);
        }
    }
    let instance = [
        gpu(format!("MIG-GPU-{}/1/0", NVIDIA[1].2)),
        gpu(format!("MIG-{MIG}")),
        gpu(format!("MIG-{}", MIG.to_uppercase())),
    ];
    let devices = |name: &DeviceName| opened(name).into_keys().collect::<Vec<_>>();
    assert_eq!(devices(&instance[0]), devices(&instance[1]));
    assert_eq!(opened(&instance[1]), opened(&instance[2]));
}

/// Slurm's file names the node that programs compute by, and has no need of those for drawing.
#[test]
fn slurms_file_leaves_out_what_it_does_not_name() {
    let node = WholeNode::new();
    let opened = |name: DeviceName| {
        let asked = Asked { named: vec![name], ..Asked::of(Policy::Strict) };
        asked.opened(&node).unwrap()
    };
    let (mut all, named) = (opened(gpu("0")), opened(gres("gpu", 1)));
    all.retain(|(_, major, _), _| *major != 226);
    assert_eq!(named, all);
}
