//! A job's policy and entries, put together into one allowlist.

use std::fmt;
use std::str::FromStr;

use super::{Resolver, Specifier};
use crate::plan::{Allowlist, MAX_ENTRIES};

/// `DevicePolicy`, with the meaning of systemd.resource-control(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// With a list as `closed`; without one, no containment.
    #[default]
    Auto,
    /// The list and the standard pseudo-devices.
    Closed,
    /// The list alone.
    Strict,
}

impl Policy {
    /// The name in a record.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Closed => "closed",
            Self::Strict => "strict",
        }
    }
}

impl FromStr for Policy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Auto, Self::Closed, Self::Strict]
            .into_iter()
            .find(|policy| policy.as_str() == text)
            .ok_or(())
    }
}

/// What every job but a `strict` one may open.
const BASELINE: [(&str, &str); 8] = [
    ("/dev/null", "rwm"),
    ("/dev/zero", "rwm"),
    ("/dev/full", "rwm"),
    ("/dev/random", "rwm"),
    ("/dev/urandom", "rwm"),
    ("/dev/tty", "rwm"),
    ("/dev/ptmx", "rwm"),
    ("char-pts", "rw"),
];

/// A job's allowlist, and what it asked for in vain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// What the job may open.
    pub list: Allowlist,
    /// Entries that this node cannot resolve, each with the reason. Leaving one out only tightens.
    pub dropped: Vec<String>,
}

/// A job's devices resolve to more than [`MAX_ENTRIES`] entries. A part of them would be a list
/// that nobody wrote, so there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the job's devices resolve to more than {MAX_ENTRIES} entries")
    }
}

impl std::error::Error for TooMany {}

/// The allowlist of a job that is to be contained: the pseudo-devices first, then the job's own
/// entries in the form of `DeviceAllow` (specifier and access), then the site's. Under
/// [`Policy::Strict`] the job's own alone; [`Policy::Auto`] is `closed` here, since whether a job
/// is contained at all is the record's to say.
///
/// # Errors
/// [`TooMany`].
pub fn allowlist(
    policy: Policy,
    entries: &[(String, String)],
    site: &[Specifier],
    resolver: &Resolver,
) -> Result<Resolved, TooMany> {
    let mut resolved = Resolved::default();
    if policy != Policy::Strict {
        for (spec, access) in BASELINE {
            resolved.add_text(spec, access, resolver)?;
        }
    }
    for (spec, access) in entries {
        resolved.add_text(spec, access, resolver)?;
    }
    if policy != Policy::Strict {
        for specifier in site {
            resolved.add(specifier, resolver)?;
        }
    }
    Ok(resolved)
}

impl Resolved {
    fn add_text(&mut self, spec: &str, access: &str, resolver: &Resolver) -> Result<(), TooMany> {
        match Specifier::new(spec, access) {
            Ok(specifier) => self.add(&specifier, resolver),
            Err(error) => {
                self.dropped.push(format!("{spec} {access}: {error}"));
                Ok(())
            }
        }
    }

    fn add(&mut self, specifier: &Specifier, resolver: &Resolver) -> Result<(), TooMany> {
        match resolver.resolve(specifier) {
            Ok(rules) => {
                rules.into_iter().try_for_each(|rule| self.list.push(rule)).map_err(|_| TooMany)
            }
            Err(error) => {
                self.dropped.push(format!("{specifier}: {error}"));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::trust::tests::Scratch;

    const BASE: [&str; 8] = [
        "c:1:3:rwm",
        "c:1:5:rwm",
        "c:1:7:rwm",
        "c:1:8:rwm",
        "c:1:9:rwm",
        "c:5:0:rwm",
        "c:5:2:rwm",
        "c:136:-1:rw",
    ];

    /// A node whose `/dev` is links to this one's and whose driver list is fixed.
    fn node() -> Scratch {
        let scratch = Scratch::new();
        scratch.dir("dev");
        for name in ["null", "zero", "full", "random", "urandom", "tty", "ptmx"] {
            symlink(format!("/dev/{name}"), scratch.path().join("dev").join(name)).unwrap();
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
        allowlist(policy, &entries, &site, &Resolver::new(node.path())).unwrap()
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
        let resolver = Resolver::new(scratch.path());
        assert_eq!(allowlist(Policy::Strict, &entries, &[], &resolver), Err(TooMany));
    }

    #[test]
    fn only_three_policies() {
        assert_eq!("closed".parse(), Ok(Policy::Closed));
        for bad in ["", "Closed", "closed ", "open", "none"] {
            assert_eq!(bad.parse::<Policy>(), Err(()), "{bad:?}");
        }
    }
}
