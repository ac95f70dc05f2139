//! What names turned out to stand for, or why they stand for nothing; and the allowlist that is made of
//! it under a job's policy.

use super::{Named, Node, Resolver, Specifier};
use crate::protocol::{Access, Allowlist, DeviceRule, DeviceType, MAX_ENTRIES, MINOR_MAX, words};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use thiserror::Error;

/// A device, or all devices of a major.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// The path of the node, or the class where every minor of a major is meant.
    pub node: String,
    /// Its numbers, and what may be done with it.
    pub rule: DeviceRule,
}

impl Device {
    /// The device of a node.
    /// Fails: numbers that the kernel does not have, or no access.
    pub fn of(path: &str, node: Node, access: Access) -> Result<Self, DeviceError> {
        let rule = DeviceRule::new(node.kind, node.major, Some(node.minor), access);
        let rule = rule.map_err(|error| DeviceError::at(path, error))?;
        Ok(Self { node: path.to_owned(), rule })
    }
}

/// Everything that names stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The devices, in the order of the names.
    pub devices: Vec<Device>,
    /// What an administrator should know, as of a device that will be missed.
    pub warnings: Vec<String>,
}

impl Found {
    /// Adds what another name stands for.
    pub fn extend(&mut self, other: Self) {
        for device in other.devices {
            if !self.devices.contains(&device) {
                self.devices.push(device);
            }
        }
        for warning in other.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

impl From<Vec<Device>> for Found {
    fn from(devices: Vec<Device>) -> Self {
        Self { devices, ..Self::default() }
    }
}

/// Why a name stands for no device: a text that names the file or device at fault and, where
/// somebody can do something about it, says what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError {
    text: String,
    absent: bool,
}

impl DeviceError {
    pub(super) fn new(text: impl fmt::Display) -> Self {
        Self { text: text.to_string(), absent: false }
    }

    /// The fault of a file, a directory or a device node.
    pub(super) fn at(object: impl fmt::Display, fault: impl fmt::Display) -> Self {
        Self::new(format_args!("{object}: {fault}"))
    }

    /// There is simply no such device node.
    pub(super) fn absent(text: impl fmt::Display) -> Self {
        Self { absent: true, ..Self::new(text) }
    }

    /// Whether there is simply no such device node.
    pub fn is_absent(&self) -> bool {
        self.absent
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Not an [`std::error::Error`] itself, so that any that is can become one.
impl<E: std::error::Error> From<E> for DeviceError {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

/// A name that had to resolve and does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// The name.
    pub name: String,
    /// Why it stands for nothing.
    pub why: DeviceError,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}

/// NVIDIA's GPUs and their control devices (`NV_MAJOR_DEVICE_NUMBER`,
/// `kernel-open/common/inc/nv.h`).
pub(super) const NVIDIA: u32 = 195;
/// Minors of the GPUs among them; the ones above are reserved and the control devices'.
pub(super) const NVIDIA_GPUS: RangeInclusive<u32> = 0..=247;
/// DRM (`include/drm/drm_drv.h`).
pub(super) const DRM: u32 = 226;
/// Minors of its render nodes (`drivers/gpu/drm/drm_drv.c`).
pub(super) const DRM_RENDER: RangeInclusive<u32> = 128..=191;
/// Accelerators that draw nothing (`include/drm/drm_accel.h`).
pub(super) const ACCEL: u32 = 261;

/// Number of GPUs that are named one by one: NVIDIA's own nodes, else DRM render nodes, else
/// accelerators, so that a GPU with nodes of two of these counts once. Of MIG instances the parent
/// counts, of AMD's partitions each. A rule for all minors counts as none, since how many there are
/// is not known.
pub fn gpu_count(list: &Allowlist) -> u32 {
    let kinds = [(NVIDIA, NVIDIA_GPUS), (DRM, DRM_RENDER), (ACCEL, 0..=MINOR_MAX)];
    let counts = kinds.map(|(major, among)| minors(list.rules(), major, among).len());
    let count = counts.into_iter().find(|count| *count > 0).unwrap_or(0);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The minors in a range that rules for character devices of a major name.
pub(super) fn minors<'a>(
    rules: impl IntoIterator<Item = &'a DeviceRule>,
    major: u32,
    among: RangeInclusive<u32>,
) -> BTreeSet<u32> {
    let chars = rules.into_iter().filter(|rule| rule.kind() == DeviceType::Char);
    let minors = chars.filter(|rule| rule.major() == major).filter_map(|rule| rule.minor());
    minors.filter(|minor| among.contains(minor)).collect()
}

words! {
    /// `DevicePolicy`, with the meaning of systemd.resource-control(5).
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    Policy {
        /// With a list as `closed`; without one, no containment.
        #[default]
        Auto = "auto",
        /// The list and the standard pseudo-devices.
        Closed = "closed",
        /// The list alone.
        Strict = "strict",
    }
}

/// What every job but a `strict` one may open.
const BASELINE: [(&str, &str); 7] = [
    ("/dev/null", "rwm"),
    ("/dev/zero", "rwm"),
    ("/dev/full", "rwm"),
    ("/dev/random", "rwm"),
    ("/dev/urandom", "rwm"),
    ("/dev/tty", "rwm"),
    ("/dev/ptmx", "rwm"),
];

/// What a job asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// `closed` or `strict`; [`Policy::Auto`] is `closed` here, since whether a job is contained at
    /// all is the record's to say.
    pub policy: Policy,
    /// Specifiers and accesses, in the form of `DeviceAllow`.
    pub allow: &'a [(String, String)],
    /// Devices by other names, each of which has to resolve.
    pub named: Vec<Named>,
}

/// A job's allowlist, and what there is to say about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// What the job may open.
    pub list: Allowlist,
    /// Entries that this node cannot resolve, each with the reason. Leaving one out only tightens.
    pub dropped: Vec<String>,
    /// What an administrator should know.
    pub warnings: Vec<String>,
}

/// Why a job has no allowlist.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unfit {
    /// A name that has to resolve does not.
    #[error("{0}")]
    Unresolved(Unresolved),
    /// A part of the devices would be a list that nobody wrote, so there is none.
    #[error("the job's devices resolve to more than {MAX_ENTRIES} entries")]
    TooMany,
}

/// The allowlist of a job that is to be contained: the pseudo-devices first, then the job's own
/// devices, then the `site`'s; under [`Policy::Strict`] the job's own alone.
pub fn allowlist(
    wanted: &Wanted<'_>,
    site: &[Specifier],
    resolver: &Resolver,
) -> Result<Resolved, Unfit> {
    let mut resolved = Resolved::default();
    if wanted.policy != Policy::Strict {
        for (spec, access) in BASELINE {
            resolved.add_text(spec, access, resolver)?;
        }
        // `char-pts`, whose major never changes: the kernel takes long to list all (`/proc/devices`).
        let rule = DeviceRule::new(DeviceType::Char, 136, None, Access::RW);
        rule.and_then(|rule| resolved.list.push(rule)).map_err(|_| Unfit::TooMany)?;
    }
    for (spec, access) in wanted.allow {
        resolved.add_text(spec, access, resolver)?;
    }
    resolved.take(resolver.named(&wanted.named).map_err(Unfit::Unresolved)?)?;
    if wanted.policy != Policy::Strict {
        for specifier in site {
            resolved.add(specifier, resolver)?;
        }
    }
    Ok(resolved)
}

impl Resolved {
    fn add_text(&mut self, spec: &str, access: &str, resolver: &Resolver) -> Result<(), Unfit> {
        match Specifier::new(spec, access) {
            Ok(specifier) => self.add(&specifier, resolver),
            Err(error) => {
                self.dropped.push(format!("{spec} {access}: {error}"));
                Ok(())
            }
        }
    }

    fn add(&mut self, specifier: &Specifier, resolver: &Resolver) -> Result<(), Unfit> {
        match resolver.specifier(specifier) {
            Ok(found) => self.take(found),
            Err(error) => {
                self.dropped.push(format!("{specifier}: {error}"));
                Ok(())
            }
        }
    }

    fn take(&mut self, found: Found) -> Result<(), Unfit> {
        for device in found.devices {
            self.list.push(device.rule).map_err(|_| Unfit::TooMany)?;
        }
        self.warnings.extend(found.warnings);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::devices::{Settings, Tree};
    use crate::testing::Scratch;

    const BASE: [&str; 8] = [
        "c:1:3:rwm", "c:1:5:rwm", "c:1:7:rwm", "c:1:8:rwm", "c:1:9:rwm", "c:5:0:rwm", "c:5:2:rwm",
        "c:136:-1:rw",
    ];

    /// A node with the pseudo-devices and a fixed driver list.
    fn node() -> Scratch {
        let scratch = Scratch::new();
        for (name, number) in [
            ("null", "1:3"),
            ("zero", "1:5"),
            ("full", "1:7"),
            ("random", "1:8"),
            ("urandom", "1:9"),
            ("tty", "5:0"),
            ("ptmx", "5:2"),
        ] {
            scratch.file(&format!("dev/{name}"), &format!("c {number}"));
        }
        scratch.file("proc/devices", "Character devices:\n136 pts\n195 nvidia\n");
        scratch
    }

    fn resolve(
        node: &Scratch,
        policy: Policy,
        entries: &[(&str, &str)],
        site: &[&str],
    ) -> Resolved {
        let own = |(spec, access): &(&str, &str)| ((*spec).to_owned(), (*access).to_owned());
        let entries: Vec<_> = entries.iter().map(own).collect();
        let site: Vec<_> = site.iter().map(|text| text.parse().unwrap()).collect();
        let wanted = Wanted { policy, allow: &entries, named: Vec::new() };
        allowlist(&wanted, &site, &resolver(node)).unwrap()
    }

    fn resolver(node: &Scratch) -> Resolver {
        Resolver::new(Tree::laid_out(node.path(), node.trust()), Settings::default())
    }

    fn rules(resolved: &Resolved) -> Vec<String> {
        resolved.list.rules().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn strict_is_the_list_alone() {
        let node = node();
        let resolved = resolve(&node, Policy::Strict, &[("char-nvidia", "r")], &["/dev/full"]);
        assert_eq!(rules(&resolved), ["c:195:-1:r"]);
        assert_eq!(rules(&resolve(&node, Policy::Strict, &[], &[])), [""; 0]);
    }

    #[test]
    fn closed_adds_the_pseudo_devices_and_the_sites() {
        let node = node();
        for policy in [Policy::Closed, Policy::Auto] {
            let resolved = resolve(&node, policy, &[("char-nvidia", "rw")], &["char-pts m"]);
            let expected: Vec<_> = BASE.into_iter().chain(["c:195:-1:rw", "c:136:-1:m"]).collect();
            assert_eq!(rules(&resolved), expected);
            assert!(resolved.dropped.is_empty());
        }
    }

    #[test]
    fn what_does_not_resolve_is_named_and_left_out() {
        let node = node();
        let entries =
            [("/dev/nvidia7", "rw"), ("char-nvidia", "x"), ("/sys/x", "r"), ("char-pts", "")];
        let resolved = resolve(&node, Policy::Closed, &entries, &["/dev/fuse"]);
        assert_eq!(rules(&resolved), BASE);
        let named: Vec<_> =
            resolved.dropped.iter().map(|why| why.split_once(": ").unwrap().0).collect();
        assert_eq!(
            named,
            ["/dev/nvidia7 rw", "char-nvidia x", "/sys/x r", "char-pts ", "/dev/fuse rw"]
        );
    }

    #[test]
    fn a_narrow_entry_takes_nothing_from_the_pseudo_devices() {
        let resolved = resolve(&node(), Policy::Closed, &[("/dev/null", "r")], &[]);
        assert!(rules(&resolved).contains(&"c:1:3:rwm".to_owned()));
    }

    #[test]
    fn too_many_are_refused_and_not_cut() {
        let scratch = Scratch::new();
        let lines: String = (0..1025).map(|major| format!("{major} same\n")).collect();
        scratch.file("proc/devices", &format!("Block devices:\n{lines}"));
        let entries = [("block-same".to_owned(), "r".to_owned())];
        let wanted = Wanted { policy: Policy::Strict, allow: &entries, named: Vec::new() };
        assert_eq!(allowlist(&wanted, &[], &resolver(&scratch)), Err(Unfit::TooMany));
    }

    #[test]
    fn only_three_policies() {
        assert_eq!("closed".parse(), Ok(Policy::Closed));
        for bad in ["", "Closed", "closed ", "open", "none"] {
            assert!(bad.parse::<Policy>().is_err(), "{bad:?}");
        }
    }

    fn count_of(rules: &[&str]) -> u32 {
        let mut list = Allowlist::new();
        for rule in rules {
            list.push(rule.parse().unwrap()).unwrap();
        }
        gpu_count(&list)
    }

    #[test]
    fn gpus_are_counted_once_and_control_nodes_never() {
        assert_eq!(count_of(&[]), 0);
        assert_eq!(count_of(&["c:195:0:rw", "c:195:0:r", "c:195:3:rw", "c:195:255:rw"]), 2);
        assert_eq!(count_of(&["c:195:254:rw", "c:195:255:rw", "b:195:1:rw", "c:195:-1:rw"]), 0);
        assert_eq!(count_of(&["c:226:0:rw", "c:226:128:rw", "c:226:129:rw", "c:226:192:rw"]), 2);
        assert_eq!(count_of(&["c:195:0:rw", "c:226:128:rw", "c:226:129:rw"]), 1);
        assert_eq!(count_of(&["c:195:247:rw", "c:195:248:rw"]), 1);
        assert_eq!(count_of(&["c:195:3:rw", "c:235:426:r", "c:235:427:r", "c:235:435:r"]), 1);
        assert_eq!(count_of(&["c:261:0:rw", "c:261:1:rw", "c:261:-1:rw"]), 2);
        assert_eq!(count_of(&["c:226:128:rw", "c:226:129:rw", "c:261:0:rw"]), 2);
    }
}
