//! What holds of every allowlist, whichever names it comes from: the ones of all kinds mixed, on a
//! node that has all kinds of devices.

mod node;
mod promises;

use std::collections::BTreeMap;

use super::{Named, Policy, Resolved, Specifier, Unfit, Wanted, allowlist};
use crate::plan::{Access, DeviceType};
use crate::random::Random;
use node::{AMD, MIG, NVIDIA, WholeNode};

/// What a list opens: every device, or major, with its accesses together.
type Opened = BTreeMap<(DeviceType, u32, Option<u32>), Access>;

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

fn gpu(name: impl Into<String>) -> Named {
    Named::Gpu(name.into())
}

fn cdi(name: &str) -> Named {
    Named::Cdi(name.into())
}

fn gres(name: &str, index: u32) -> Named {
    Named::Gres { name: name.into(), index }
}

fn dir(name: &str) -> Named {
    Named::Dir(format!("/run/list/{name}").into())
}

/// Names that resolve on the whole node.
fn good() -> Vec<Named> {
    let mut names: Vec<Named> = (0..9).map(|index| gpu(index.to_string())).collect();
    names.extend(NVIDIA.iter().map(|(address, ..)| gpu(*address)));
    names.extend(AMD.iter().map(|(address, ..)| gpu(*address)));
    names.extend(NVIDIA.iter().map(|(.., uuid)| gpu(format!("GPU-{uuid}"))));
    names.push(gpu(format!("MIG-GPU-{}/1/0", NVIDIA[1].2)));
    names.push(gpu(format!("MIG-{MIG}")));
    names.extend([gres("gpu", 0), gres("card:h100", 1), gres("gpu", 2), gres("gpu", 3)]);
    names.push(gres("disk", 0));
    names.extend(["one", "all", "none", "mixed", "empty"].map(dir));
    names.extend(["nvidia.com/gpu=0", "nvidia.com/gpu=1:0", "amd.com/gpu=4"].map(cdi));
    names.extend([Named::AllGpus, Named::Imex(3)]);
    names
}

/// Names each of which refuses.
fn bad() -> Vec<Named> {
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

/// A mix of names, which [`Mix::resolve`] makes a list of.
#[derive(Clone, Debug)]
struct Mix {
    policy: Policy,
    allow: Vec<&'static str>,
    named: Vec<Named>,
    site: Vec<&'static str>,
}

impl Mix {
    fn of(policy: Policy) -> Self {
        Self { policy, allow: Vec::new(), named: Vec::new(), site: Vec::new() }
    }

    fn random(random: &mut Random) -> Self {
        let (good, bad) = (good(), bad());
        let policy = random.one_of(&[Policy::Strict, Policy::Closed, Policy::Auto]);
        let mut mix = Self::of(policy);
        for _ in 0..random.below(5) {
            mix.allow.push(random.one_of(&SPECIFIERS));
        }
        for _ in 0..random.below(6) {
            mix.named.push(good[random.below(good.len() as u32) as usize].clone());
        }
        if random.below(6) == 0 {
            mix.named.push(bad[random.below(bad.len() as u32) as usize].clone());
        }
        for _ in 0..random.below(3) {
            mix.site.push(random.one_of(&SPECIFIERS));
        }
        mix
    }

    fn resolve(&self, node: &WholeNode) -> Result<Resolved, Unfit> {
        let pair = |text: &&str| {
            let (spec, access) = text.split_once(' ').unwrap_or((text, "rw"));
            (spec.to_owned(), access.to_owned())
        };
        let allow: Vec<_> = self.allow.iter().map(pair).collect();
        let site: Vec<Specifier> = self.site.iter().filter_map(|text| text.parse().ok()).collect();
        let wanted = Wanted { policy: self.policy, allow: &allow, named: self.named.clone() };
        allowlist(&wanted, &site, &node.resolver())
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

fn opened(resolved: &Resolved) -> Opened {
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

fn shuffled<T>(mut list: Vec<T>, random: &mut Random) -> Vec<T> {
    for last in (1..list.len()).rev() {
        list.swap(last, random.below(last as u32 + 1) as usize);
    }
    list
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort_unstable();
    texts.dedup();
    texts
}
