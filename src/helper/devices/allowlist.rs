//! A job's allowlist, made of the devices that it requests under its policy.

use crate::devices::{Resolver, Specifier};
use crate::node::{ContainerParts, ResolvedDevices, nvidia};
use protocol::{ALLOWLIST_ENTRIES_MAX, Access, Allowlist, DeviceRule, DeviceType, string_enum};
use serde::{Deserialize, Serialize};
use thiserror::Error;

string_enum! {
    /// `DevicePolicy`, with the meaning of systemd.resource-control(5).
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    Policy {
        /// `closed` if there is a list; no containment without one.
        #[default]
        Auto = "auto",
        /// The list and the standard pseudo-devices.
        Closed = "closed",
        /// The list alone.
        Strict = "strict",
    }
}

/// The pseudo-devices that every job but a `strict` one may open.
const BASELINE: [(&str, &str); 7] = [
    ("/dev/null", "rwm"),
    ("/dev/zero", "rwm"),
    ("/dev/full", "rwm"),
    ("/dev/random", "rwm"),
    ("/dev/urandom", "rwm"),
    ("/dev/tty", "rwm"),
    ("/dev/ptmx", "rwm"),
];

/// The devices that a job requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRequest<'a> {
    /// `closed` or `strict`. [`Policy::Auto`] counts as `closed` here, since the record decides
    /// whether the job is contained at all.
    pub policy: Policy,
    /// Specifiers and accesses, in the form of `DeviceAllow`.
    pub allow: &'a [(String, String)],
}

/// A job's allowlist, with what was left out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobAllowlist {
    /// The devices that the job may open.
    pub list: Allowlist,
    /// Entries that this node cannot resolve, each with the reason. Leaving one out only tightens.
    pub dropped: Vec<String>,
    /// Warnings for an administrator.
    pub warnings: Vec<String>,
    /// What the list lacks since a driver is not loaded yet ([`ResolvedDevices::late`]).
    pub late: Vec<String>,
    /// What specifications give to containers beside the devices.
    pub container: ContainerParts,
}

/// The error of a list that is too long. A part of it would be a list that no one wrote, so there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the job's devices resolve to more than {ALLOWLIST_ENTRIES_MAX} entries")]
pub struct TooManyEntries;

/// Builds the allowlist of a job: the pseudo-devices first, then the job's own devices, with those that it has by other
/// names (`named`) last, then those that the `site` gives every job; under [`Policy::Strict`] the job's own devices alone. A
/// specifier that does not resolve is dropped, with its reason.
///
/// # Errors
///
/// [`TooManyEntries`] for more than [`ALLOWLIST_ENTRIES_MAX`] entries.
pub fn build_allowlist(
    request: &DeviceRequest<'_>,
    named: ResolvedDevices,
    site: &[Specifier],
    resolver: &Resolver,
) -> Result<JobAllowlist, TooManyEntries> {
    let mut allowlist = JobAllowlist::default();
    if request.policy != Policy::Strict {
        for (spec, access) in BASELINE {
            allowlist.add_spec_text(spec, access, resolver)?;
        }
        // The major of `char-pts` never changes, and the kernel takes long to list all majors.
        // Its rule is valid, so that only the length of the list can fail.
        let rule = DeviceRule::from_numbers(DeviceType::Char, 136, None, Access::RW);
        let result = rule.and_then(|rule| allowlist.list.push(rule));
        result.map_err(|_| TooManyEntries)?;
    }
    for (spec, access) in request.allow {
        allowlist.add_spec_text(spec, access, resolver)?;
    }
    allowlist.add_devices(named)?;
    if request.policy != Policy::Strict {
        for specifier in site {
            allowlist.add_specifier(specifier, resolver)?;
        }
    }
    let incomplete = nvidia::describe_incomplete_instances(&resolver.tree, allowlist.list.rules());
    // It only explains the list: what cannot be read for that is no fault of the list.
    allowlist.warnings.extend(incomplete.unwrap_or_default());
    Ok(allowlist)
}

impl JobAllowlist {
    /// Adds the devices of a specifier that is not parsed yet. One that cannot be parsed or resolved is dropped.
    ///
    /// # Errors
    ///
    /// [`TooManyEntries`].
    fn add_spec_text(
        &mut self,
        spec: &str,
        access: &str,
        resolver: &Resolver,
    ) -> Result<(), TooManyEntries> {
        match Specifier::new(spec, access) {
            Ok(specifier) => self.add_specifier(&specifier, resolver),
            Err(error) => {
                self.dropped.push(format!("{spec} {access}: {error}"));
                Ok(())
            }
        }
    }

    /// Adds the devices of a specifier. One that this node cannot resolve is dropped.
    ///
    /// # Errors
    ///
    /// [`TooManyEntries`].
    fn add_specifier(
        &mut self,
        specifier: &Specifier,
        resolver: &Resolver,
    ) -> Result<(), TooManyEntries> {
        match resolver.resolve_specifier(specifier) {
            Ok(resolved) => self.add_devices(resolved),
            Err(error) => {
                self.dropped.push(format!("{specifier}: {error}"));
                Ok(())
            }
        }
    }

    /// Adds the devices of a specifier, all or none. One that this node cannot resolve, or whose devices are too many,
    /// is dropped.
    pub(crate) fn add_if_fits(&mut self, specifier: &Specifier, resolver: &Resolver) {
        let before = self.clone();
        if let Err(error) = self.add_specifier(specifier, resolver) {
            *self = before;
            self.dropped.push(format!("{specifier}: {error}"));
        }
    }

    /// Adds devices, their warnings, and what their specifications give to containers.
    ///
    /// # Errors
    ///
    /// [`TooManyEntries`]; some of the devices are in the list then.
    fn add_devices(&mut self, resolved: ResolvedDevices) -> Result<(), TooManyEntries> {
        for device in resolved.devices {
            self.list.push(device.rule).map_err(|_| TooManyEntries)?;
        }
        self.warnings.extend(resolved.warnings);
        self.late.extend(resolved.late);
        self.container.extend(resolved.container);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::DeviceSettings;
    use crate::node::Tree;
    use crate::testing::Scratch;

    const BASE_RULES: [&str; 8] = [
        "c:1:3:rwm",
        "c:1:5:rwm",
        "c:1:7:rwm",
        "c:1:8:rwm",
        "c:1:9:rwm",
        "c:5:0:rwm",
        "c:5:2:rwm",
        "c:136:-1:rw",
    ];

    /// Lays out a node with the pseudo-devices and two drivers.
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
    ) -> JobAllowlist {
        let owned = |(spec, access): &(&str, &str)| ((*spec).to_owned(), (*access).to_owned());
        let entries: Vec<_> = entries.iter().map(owned).collect();
        let site: Vec<_> = site.iter().map(|text| text.parse().unwrap()).collect();
        let request = DeviceRequest {
            policy,
            allow: &entries,
        };
        build_allowlist(&request, ResolvedDevices::default(), &site, &resolver(node)).unwrap()
    }

    fn resolver(node: &Scratch) -> Resolver {
        Resolver::new(
            Tree::with_root(node.path(), node.trust()),
            DeviceSettings::default(),
        )
    }

    fn rules(resolved: &JobAllowlist) -> Vec<String> {
        resolved
            .list
            .rules()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn strict_policy_allows_the_list_alone() {
        let node = node();
        let resolved = resolve(
            &node,
            Policy::Strict,
            &[("char-nvidia", "r")],
            &["/dev/full"],
        );
        assert_eq!(rules(&resolved), ["c:195:-1:r"]);
        assert_eq!(rules(&resolve(&node, Policy::Strict, &[], &[])), [""; 0]);
    }

    #[test]
    fn closed_and_auto_add_the_pseudo_devices_and_those_of_the_site() {
        let node = node();
        for policy in [Policy::Closed, Policy::Auto] {
            let resolved = resolve(&node, policy, &[("char-nvidia", "rw")], &["char-pts m"]);
            let expected: Vec<_> = BASE_RULES
                .into_iter()
                .chain(["c:195:-1:rw", "c:136:-1:m"])
                .collect();
            assert_eq!(rules(&resolved), expected);
            assert!(resolved.dropped.is_empty());
        }
    }

    #[test]
    fn unresolvable_entries_are_dropped_and_named() {
        let node = node();
        let entries = [
            ("/dev/nvidia7", "rw"),
            ("char-nvidia", "x"),
            ("/sys/x", "r"),
            ("char-pts", ""),
        ];
        let resolved = resolve(&node, Policy::Closed, &entries, &["/dev/fuse"]);
        assert_eq!(rules(&resolved), BASE_RULES);
        let dropped: Vec<_> = resolved
            .dropped
            .iter()
            .map(|why| why.split_once(": ").unwrap().0)
            .collect();
        assert_eq!(
            dropped,
            [
                "/dev/nvidia7 rw",
                "char-nvidia x",
                "/sys/x r",
                "char-pts ",
                "/dev/fuse rw"
            ]
        );
    }

    #[test]
    fn narrow_entry_keeps_the_access_of_a_pseudo_device() {
        let resolved = resolve(&node(), Policy::Closed, &[("/dev/null", "r")], &[]);
        assert!(rules(&resolved).contains(&"c:1:3:rwm".to_owned()));
    }

    #[test]
    fn too_many_entries_are_refused_and_not_cut() {
        let scratch = Scratch::new();
        let lines: String = (0..1025).map(|major| format!("{major} same\n")).collect();
        scratch.file("proc/devices", &format!("Block devices:\n{lines}"));
        let entries = [("block-same".to_owned(), "r".to_owned())];
        let request = DeviceRequest {
            policy: Policy::Strict,
            allow: &entries,
        };
        assert_eq!(
            build_allowlist(
                &request,
                ResolvedDevices::default(),
                &[],
                &resolver(&scratch)
            ),
            Err(TooManyEntries)
        );
    }

    /// CUDA finds no device then, and nothing else says why.
    #[test]
    fn part_of_a_mig_instance_is_named() {
        let node = node();
        node.file(
            "proc/devices",
            "Character devices:\n195 nvidia\n235 nvidia-caps\n",
        );
        let table = "config 1\ngpu0/gi1/access 12\ngpu0/gi2/access 21\ngpu0/gi2/ci0/access 22\n";
        node.file("proc/driver/nvidia-caps/mig-minors", table);
        node.file("dev/nvidia0", "c 195:0");
        for (instance, minor) in [("gi2", 21), ("gi2/ci0", 22)] {
            node.file(
                &format!("proc/driver/nvidia/capabilities/gpu0/mig/{instance}/access"),
                &format!("DeviceFileMinor: {minor}\n"),
            );
            let path = format!("dev/nvidia-caps/nvidia-cap{minor}");
            node.file(&path, &format!("c 235:{minor}"));
        }
        let gpu = ("/dev/nvidia0", "rw");
        let [gi, ci] = [21, 22].map(|minor| format!("/dev/nvidia-caps/nvidia-cap{minor}"));
        let [gi, ci] = [(gi.as_str(), "r"), (ci.as_str(), "r")];
        for (entries, lacks) in [
            (vec![gpu, gi, ci], None),
            (vec![gpu], None),
            (vec![gpu, gi], Some("that of a compute instance in it")),
            (vec![gpu, ci], Some("that of the GPU instance")),
            (vec![gi, ci], Some("the node of the GPU")),
        ] {
            let resolved = resolve(&node, Policy::Strict, &entries, &[]);
            assert_eq!(rules(&resolved).len(), entries.len(), "{resolved:?}");
            let expected = lacks.map(|lacks| {
                format!(
                    "the list has a capability of MIG instance gpu0/gi2 and not {lacks}: no program \
                     can use it"
                )
            });
            assert_eq!(resolved.warnings, Vec::from_iter(expected), "{entries:?}");
        }
    }

    #[test]
    fn unknown_policies_are_refused() {
        assert_eq!("closed".parse(), Ok(Policy::Closed));
        for bad in ["", "Closed", "closed ", "open", "none"] {
            assert!(bad.parse::<Policy>().is_err(), "{bad:?}");
        }
    }
}
