//! A job's policy and entries, put together into one allowlist.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Found, Named, Resolver, Specifier, Unresolved};
use crate::protocol::{Access, Allowlist, DeviceRule, DeviceType, MAX_ENTRIES, words};

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
    use crate::kernel::trust::tests::Scratch;

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
}
