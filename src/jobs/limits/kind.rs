//! The kinds of limits of a cgroup, and how much one allows.

use command::number_list::NumberList;
use kernel::cgroup::Dir;
use std::fmt;

/// A limit of cgroup v2 (cgroup-v2.rst) by its names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LimitKind {
    pub(super) option: &'static str,
    pub(super) controller: &'static str,
    /// The file that sets it.
    pub(super) file: &'static str,
    /// The file that shows what is in force.
    pub(super) effective: &'static str,
    /// The property of systemd (systemd.resource-control(5)).
    pub(super) property: &'static str,
}

pub(super) const CORES: LimitKind = LimitKind {
    option: "--cores",
    controller: "cpuset",
    file: "cpuset.cpus",
    effective: "cpuset.cpus.effective",
    property: "AllowedCPUs",
};

pub(super) const MEMORY_NODES: LimitKind = LimitKind {
    option: "--memory-nodes",
    controller: "cpuset",
    file: "cpuset.mems",
    effective: "cpuset.mems.effective",
    property: "AllowedMemoryNodes",
};

pub(super) const MEMORY: LimitKind = LimitKind {
    option: "--memory",
    controller: "memory",
    file: "memory.max",
    effective: "memory.max",
    property: "MemoryMax",
};

pub(super) const MEMORY_HIGH: LimitKind = LimitKind {
    option: "--memory-high",
    controller: "memory",
    file: "memory.high",
    effective: "memory.high",
    property: "MemoryHigh",
};

pub(super) const SWAP: LimitKind = LimitKind {
    option: "--swap",
    controller: "memory",
    file: "memory.swap.max",
    effective: "memory.swap.max",
    property: "MemorySwapMax",
};

/// How much a limit allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    Numbers(NumberList),
    /// `None` for no limit.
    Bytes(Option<u64>),
}

impl fmt::Display for Amount {
    /// Shows the amount as the kernel does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numbers(list) => list.fmt(f),
            Self::Bytes(Some(bytes)) => bytes.fmt(f),
            Self::Bytes(None) => f.write_str("max"),
        }
    }
}

/// A limit and its amount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) kind: &'static LimitKind,
    pub(super) amount: Amount,
}

impl Limit {
    pub(super) fn new(kind: &'static LimitKind, amount: Amount) -> Self {
        Self { kind, amount }
    }

    /// Explains why the cgroup has another value in the limit's file than was asked for: a cgroup `above` lacks some of
    /// the cores or memory nodes, or else nobody has set the limit.
    pub(super) fn explain_difference(&self, above: &[Dir], mount: &str) -> String {
        let unset = format!(
            "set {} of its unit, or write it to {}",
            self.kind.property, self.kind.file
        );
        let Amount::Numbers(requested) = &self.amount else {
            return unset;
        };
        for dir in above {
            let list = dir.read(self.kind.effective).ok().flatten();
            let list = list.and_then(|text| text.trim_end().parse::<NumberList>().ok());
            if let Some(list) = list.filter(|list| !list.contains_all(requested)) {
                return format!("{mount}{} above has {list} only", dir.path());
            }
        }
        unset
    }
}

/// Returns the limit of a kind among others.
pub(super) fn find_limit<'a>(limits: &'a [Limit], kind: &LimitKind) -> Option<&'a Limit> {
    limits.iter().find(|limit| limit.kind == kind)
}
