//! Device filters of other owners, and queries of all attached filters.

use std::process::Command;

use super::{Cgroup, Outcome, Tool};

/// How a filter is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flags {
    /// No flag: no filter can be attached below.
    None,
    /// `BPF_F_ALLOW_OVERRIDE`.
    Override,
    /// `BPF_F_ALLOW_MULTI`.
    Multi,
}

impl Flags {
    pub(crate) const ALL: [Self; 3] = [Self::None, Self::Override, Self::Multi];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Override => "override",
            Self::Multi => "multi",
        }
    }
}

/// A program that is attached to a cgroup, or effective in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttachedFilter {
    pub(crate) id: u32,
    pub(crate) flags: Flags,
    pub(crate) name: String,
}

impl AttachedFilter {
    /// Returns whether the name has our form: `ja_` and 12 hexadecimal digits.
    pub(crate) fn is_ours(&self) -> bool {
        self.name.strip_prefix("ja_").is_some_and(|hash| {
            hash.len() == 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    }

    fn parse(line: &str) -> Self {
        let mut words = line.split(' ');
        let mut next = || words.next().unwrap_or_else(|| panic!("{line}"));
        let id = next().parse().unwrap();
        let word = next();
        let flags = Flags::ALL
            .into_iter()
            .find(|flags| flags.name() == word)
            .unwrap();
        Self {
            id,
            flags,
            name: next().to_owned(),
        }
    }
}

fn filter(verb: &str, cgroup: &Cgroup, rest: &[&str]) -> Outcome {
    Outcome::run(
        Command::new(Tool::Filter.path())
            .arg(verb)
            .arg(cgroup.dir())
            .args(rest),
    )
}

impl Cgroup {
    /// Attaches a filter of another owner, which denies these character devices (`195:1`).
    pub(crate) fn attach(&self, flags: Flags, name: &str, denied: &[&str]) -> &Self {
        self.try_attach(flags, name, denied).ok();
        self
    }

    /// Attaches a filter like [`Cgroup::attach`], and returns the outcome if the kernel refuses it.
    pub(crate) fn try_attach(&self, flags: Flags, name: &str, denied: &[&str]) -> Outcome {
        filter("attach", self, &[&[flags.name(), name], denied].concat())
    }

    /// Detaches one program.
    pub(crate) fn detach(&self, attached: &AttachedFilter) {
        filter("detach", self, &[&attached.id.to_string()]).ok();
    }

    /// Lists the programs that are attached directly to this cgroup.
    pub(crate) fn filters(&self) -> Vec<AttachedFilter> {
        filter("list", self, &[])
            .ok()
            .stdout
            .lines()
            .map(AttachedFilter::parse)
            .collect()
    }

    /// Lists the programs that are effective here, with those of ancestors. The kernel does not
    /// report their flags.
    pub(crate) fn effective(&self) -> Vec<AttachedFilter> {
        filter("effective", self, &[])
            .ok()
            .stdout
            .lines()
            .map(AttachedFilter::parse)
            .collect()
    }

    /// Lists our filters that are attached directly to this cgroup.
    pub(crate) fn our_filters(&self) -> Vec<AttachedFilter> {
        self.filters()
            .into_iter()
            .filter(AttachedFilter::is_ours)
            .collect()
    }
}
