//! Properties of every allowlist: names of all kinds together, on a node with all kinds of devices.

mod deviations;
mod mapper;
mod node;
mod rules;

use std::collections::BTreeMap;

use super::{AllowlistError, build_allowlist};
use crate::testing::Random;
use helper::devices::{DeviceName, DeviceRequest, JobAllowlist, Policy, Specifier};
use node::{AMD, MIG, NVIDIA, WholeNode};
use protocol::{Access, DeviceType};

/// The devices and majors that a list opens, with all their accesses.
type OpenDevices = BTreeMap<(DeviceType, u32, Option<u32>), Access>;

const SPECIFIERS: [&str; 18] = [
    "/dev/nvidia0 r",
    "/dev/nvidia1 w",
    "/dev/nvidia* r",
    "/dev/dri/renderD*",
    "/dev/sda*",
    "/dev/sda m",
    "/dev/gone",
    "/dev/null r",
    "/dev/char/195:0 m",
    "/dev/block/8:1 r",
    "char-nvidia* r",
    "char-195 w",
    "char-pts r",
    "block-sd",
    "char-none",
    "@hpc",
    "no specifier",
    "/dev/loop0",
];

fn gpu(name: impl Into<String>) -> DeviceName {
    DeviceName::Gpu(name.into())
}

fn cdi(name: &str) -> DeviceName {
    DeviceName::Cdi(name.into())
}

fn gres(name: &str, index: u32) -> DeviceName {
    DeviceName::Gres {
        name: name.into(),
        index,
    }
}

fn dir(name: &str) -> DeviceName {
    DeviceName::Dir(format!("/run/list/{name}").into())
}

/// Returns names that resolve on the whole node.
fn valid_names() -> Vec<DeviceName> {
    let mut names: Vec<DeviceName> = ["nvidia:0", "nvidia:1"].map(gpu).into();
    names.extend((0..5).map(|number| gpu(format!("rocm:{number}"))));
    names.extend(["0000:63:00.0", "0000:73:00.0"].map(gpu));
    names.extend(NVIDIA.iter().map(|(address, ..)| gpu(*address)));
    names.extend(AMD.iter().map(|(address, ..)| gpu(*address)));
    names.extend(NVIDIA.iter().map(|(.., uuid)| gpu(format!("GPU-{uuid}"))));
    names.push(gpu(format!("MIG-GPU-{}/1/0", NVIDIA[1].2)));
    names.push(gpu(format!("MIG-{MIG}")));
    names.extend([
        gres("gpu", 0),
        gres("card:h100", 1),
        gres("gpu", 2),
        gres("gpu", 3),
    ]);
    names.push(gres("disk", 0));
    names.extend(["one", "all", "none", "mixed", "empty"].map(dir));
    names.extend(["nvidia.com/gpu=0", "nvidia.com/gpu=1:0", "amd.com/gpu=4"].map(cdi));
    names.extend([DeviceName::AllGpus, DeviceName::Imex(3)]);
    names
}

/// Returns names that refuse a list.
fn invalid_names() -> Vec<DeviceName> {
    vec![
        gpu("0"),
        gpu("8"),
        gpu("9"),
        gpu("nvidia:2"),
        gpu("rocm:5"),
        gpu("flux:0"),
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

/// The devices that a job and its site request.
#[derive(Clone, Debug)]
struct Request {
    policy: Policy,
    allow: Vec<&'static str>,
    names: Vec<DeviceName>,
    site: Vec<&'static str>,
}

impl Request {
    fn new(policy: Policy) -> Self {
        Self {
            policy,
            allow: Vec::new(),
            names: Vec::new(),
            site: Vec::new(),
        }
    }

    fn random(random: &mut Random) -> Self {
        let valid = valid_names();
        let invalid = invalid_names();
        let policy = random.one_of(&[Policy::Strict, Policy::Closed, Policy::Auto]);
        let mut request = Self::new(policy);
        for _ in 0..random.below(5) {
            request.allow.push(random.one_of(&SPECIFIERS));
        }
        for _ in 0..random.below(6) {
            request
                .names
                .push(valid[random.below(valid.len() as u32) as usize].clone());
        }
        if random.below(6) == 0 {
            request
                .names
                .push(invalid[random.below(invalid.len() as u32) as usize].clone());
        }
        for _ in 0..random.below(3) {
            request.site.push(random.one_of(&SPECIFIERS));
        }
        request
    }

    fn resolve(&self, node: &WholeNode) -> Result<JobAllowlist, AllowlistError> {
        let pair = |text: &&str| {
            let (spec, access) = text.split_once(' ').unwrap_or((text, "rw"));
            (spec.to_owned(), access.to_owned())
        };
        let allow: Vec<_> = self.allow.iter().map(pair).collect();
        let site: Vec<Specifier> = self
            .site
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect();
        let request = DeviceRequest {
            policy: self.policy,
            allow: &allow,
        };
        build_allowlist(&request, &self.names, &site, &node.resolver())
    }

    fn open(&self, node: &WholeNode) -> Option<OpenDevices> {
        self.resolve(node)
            .ok()
            .map(|allowlist| open_devices(&allowlist))
    }

    /// Each part alone, as the request of a job that is given nothing else.
    fn split(&self) -> Vec<Self> {
        let strict = Self::new(Policy::Strict);
        let allow = self.allow.iter().map(|spec| Self {
            allow: vec![spec],
            ..strict.clone()
        });
        let names = self.names.iter().map(|name| Self {
            names: vec![name.clone()],
            ..strict.clone()
        });
        let mut parts: Vec<_> = allow.chain(names).collect();
        if self.policy != Policy::Strict {
            parts.push(Self::new(Policy::Closed));
            let site = self.site.iter().map(|spec| Self {
                allow: vec![spec],
                ..strict.clone()
            });
            parts.extend(site);
        }
        parts
    }
}

fn open_devices(allowlist: &JobAllowlist) -> OpenDevices {
    let mut devices = OpenDevices::new();
    for rule in allowlist.list.rules() {
        let access = devices
            .entry((rule.kind(), rule.major(), rule.minor()))
            .or_default();
        *access = access.union(rule.access());
    }
    devices
}

fn union(mut one: OpenDevices, other: OpenDevices) -> OpenDevices {
    for (device, more) in other {
        let access = one.entry(device).or_default();
        *access = access.union(more);
    }
    one
}

#[test]
fn valid_names_resolve_and_one_invalid_name_refuses_the_list() {
    let node = WholeNode::new();
    for name in valid_names() {
        let request = Request {
            names: vec![name],
            ..Request::new(Policy::Strict)
        };
        assert!(
            request.resolve(&node).is_ok(),
            "{request:?}: {:?}",
            request.resolve(&node)
        );
    }
    for name in invalid_names() {
        for at in [0, 1] {
            let mut request = Request {
                names: vec![gpu("nvidia:0")],
                ..Request::new(Policy::Strict)
            };
            request.names.insert(at, name.clone());
            assert!(request.resolve(&node).is_err(), "{request:?}");
        }
    }
}

/// So the order never matters, and another name never removes a device.
#[test]
fn list_opens_the_devices_of_each_name_and_refuses_if_one_refuses() {
    let node = WholeNode::new();
    let mut random = Random::new(5);
    let mut refused = 0;
    for _ in 0..300 {
        let request = Request::random(&mut random);
        let parts: Option<Vec<OpenDevices>> = request
            .split()
            .iter()
            .map(|part| part.open(&node))
            .collect();
        let expected = parts.map(|parts| parts.into_iter().fold(OpenDevices::new(), union));
        refused += u32::from(expected.is_none());
        assert_eq!(request.open(&node), expected, "{request:?}");
    }
    assert!((20..100).contains(&refused), "{refused}");
}

#[test]
fn every_rule_is_a_device_of_the_node_and_no_name_covers_a_major() {
    let node = WholeNode::new();
    let numbers = node.numbers();
    let mut random = Random::new(13);
    for _ in 0..200 {
        let mut request = Request::random(&mut random);
        request.policy = Policy::Strict;
        let Some(open) = request.open(&node) else {
            continue;
        };
        for (kind, major, minor) in open.keys() {
            match minor {
                Some(minor) => {
                    assert!(
                        numbers.contains(&(*kind, *major, *minor)),
                        "{major}:{minor}, {request:?}"
                    );
                }
                None => {
                    let covers_major =
                        |spec: &&str| spec.starts_with("char-") || spec.starts_with("block-");
                    assert!(request.allow.iter().any(covers_major), "{request:?}");
                }
            }
        }
        request.allow.clear();
        let other_open = request.open(&node).unwrap_or_default();
        let exact = |((_, _, minor), access): (&(_, _, Option<u32>), &Access)| {
            minor.is_some() && Access::RW.contains(*access)
        };
        assert!(other_open.iter().all(exact), "{request:?}");
    }
}

/// No name opens the capability that configures MIG, the card node of a partition, or another GPU.
#[test]
fn name_opens_no_device_of_another_gpu() {
    let node = WholeNode::new();
    let minors = |name: &DeviceName, major: u32| -> Vec<u32> {
        let request = Request {
            names: vec![name.clone()],
            ..Request::new(Policy::Strict)
        };
        let open = request.open(&node).unwrap();
        let own = open.keys().filter(|(_, of, _)| *of == major);
        own.filter_map(|(_, _, minor)| *minor).collect()
    };
    assert_eq!(minors(&gpu("nvidia:0"), 195), [1, 255]);
    assert_eq!(minors(&gpu("nvidia:1"), 195), [0, 255]);
    assert_eq!(minors(&gpu("nvidia:0"), 226), [1, 129]);
    assert_eq!(minors(&gpu("rocm:0"), 226), [136]);
    assert_eq!(minors(&gpu("rocm:3"), 226), [139]);
    assert_eq!(minors(&gpu("rocm:4"), 226), [16, 144]);
    assert_eq!(minors(&gpu("63:00.0"), 261), [0]);
    assert_eq!(minors(&gpu("73:00.0"), 226), [32, 160]);
    assert_eq!(minors(&dir("mixed"), 235), [30, 31]);
    assert_eq!(minors(&DeviceName::AllGpus, 195), [0, 1, 255]);
    for name in valid_names() {
        assert!(!minors(&name, 235).contains(&1), "{name}");
    }
}

#[test]
fn every_name_of_a_gpu_opens_the_same_devices() {
    let node = WholeNode::new();
    let open = |name: &DeviceName| {
        let request = Request {
            names: vec![name.clone()],
            ..Request::new(Policy::Strict)
        };
        request.open(&node).unwrap()
    };
    let upper = NVIDIA[0].2.to_uppercase();
    let same: [Vec<DeviceName>; 3] = [
        vec![
            gpu("nvidia:0"),
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
        vec![
            gpu("rocm:4"),
            gpu("44:00.0"),
            gres("gpu", 2),
            gres("GPU", 2),
            cdi("amd.com/gpu=4"),
        ],
        vec![
            gpu("rocm:2"),
            gres("gpu", 3),
            gres("GPU", 3),
            cdi("amd.com/gpu=2"),
        ],
    ];
    for names in same {
        for name in &names {
            assert_eq!(open(name), open(&names[0]), "{name} and {}", names[0]);
        }
    }
    let instance = [
        gpu(format!("MIG-GPU-{}/1/0", NVIDIA[1].2)),
        gpu(format!("MIG-{MIG}")),
        gpu(format!("MIG-{}", MIG.to_uppercase())),
    ];
    let devices = |name: &DeviceName| open(name).into_keys().collect::<Vec<_>>();
    assert_eq!(devices(&instance[0]), devices(&instance[1]));
    assert_eq!(open(&instance[1]), open(&instance[2]));
}

/// `gres.conf` names the node that programs compute through, and no nodes for drawing.
#[test]
fn gres_conf_opens_only_named_drm_nodes() {
    let node = WholeNode::new();
    let open = |name: DeviceName| {
        let request = Request {
            names: vec![name],
            ..Request::new(Policy::Strict)
        };
        request.open(&node).unwrap()
    };
    let mut all = open(gpu("nvidia:0"));
    let by_gres = open(gres("gpu", 1));
    all.retain(|(_, major, _), _| *major != 226);
    assert_eq!(by_gres, all);
}
