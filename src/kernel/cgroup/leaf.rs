//! The cgroup that a job's logins are put into, and whether it can take one now (cgroup-v2.rst,
//! "Core Interface Files").

use super::{Dir, Error, Place, Result};
use crate::protocol::LeafName;

/// Which cgroup of a job takes its logins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeafKind {
    /// The job's own cgroup: it has no children and hands no controllers down.
    Own,
    /// A child of that name, which may not be there yet.
    Child(LeafName),
}

impl LeafKind {
    /// The child that a record names is always used. Otherwise the job's own cgroup, or the
    /// default child where the job's own can hold no process, or already has children of its own.
    pub fn choose(job: &Dir, wanted: Option<&LeafName>) -> Result<Self> {
        let state = State::read(job)?;
        match wanted {
            Some(name) => Ok(Self::Child(name.clone())),
            None if state.hands_down || state.has_children => Self::default_child(),
            None => Ok(Self::Own),
        }
    }

    /// The child named [`LeafName::DEFAULT`].
    pub fn default_child() -> Result<Self> {
        let name = LeafName::DEFAULT.parse();
        name.map(Self::Child).map_err(|_| Error::Malformed { object: "leaf name".into() })
    }

    /// Name of the child, where it is one.
    pub fn child(&self) -> Option<&LeafName> {
        match self {
            Self::Own => None,
            Self::Child(name) => Some(name),
        }
    }
}

/// A leaf that is there.
#[derive(Debug)]
pub struct Leaf {
    /// The leaf first, then every cgroup above it.
    place: Place,
    kind: LeafKind,
}

impl Leaf {
    /// Opens the leaf of a job; gives the job back when the leaf is a child that is not there.
    /// Errors: [`Error::Unfit`] for a child that can take no process.
    pub fn open(job: Place, kind: LeafKind) -> Result<std::result::Result<Self, Place>> {
        let LeafKind::Child(name) = &kind else { return Ok(Ok(Self { place: job, kind })) };
        match job.dir()?.child(name.as_str()) {
            Ok(dir) => {
                let state = State::read(&dir)?;
                if state.hands_down || state.has_children {
                    let why = "is to take logins and is no leaf";
                    return Err(Error::Unfit { object: dir.path().to_owned(), why });
                }
                Ok(Ok(Self { place: job.below(dir), kind }))
            }
            Err(error) if error.is_gone() => Ok(Err(job)),
            Err(error) => Err(error),
        }
    }

    /// The leaf first, then every cgroup above it.
    pub fn levels(&self) -> &[Dir] {
        self.place.levels()
    }

    /// The leaf's directory.
    pub fn dir(&self) -> Result<&Dir> {
        self.place.dir()
    }

    /// Index of the job's own cgroup in [`Leaf::levels`].
    pub fn job_level(&self) -> usize {
        usize::from(self.kind.child().is_some())
    }

    /// The root of the mount.
    pub fn root(&self) -> Result<&Dir> {
        self.place.root()
    }

    /// The job's own cgroup.
    pub fn job(&self) -> Result<&Dir> {
        self.levels().get(self.job_level()).ok_or(Error::NotMounted)
    }

    /// Own cgroup or child.
    pub fn kind(&self) -> &LeafKind {
        &self.kind
    }

    /// The job's place again, without the leaf.
    pub fn into_job(self) -> Place {
        if self.kind.child().is_some() { self.place.above() } else { self.place }
    }
}

/// What a login has to know of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// It hands controllers to its children, so that it can hold no process itself.
    hands_down: bool,
    /// It has child cgroups.
    has_children: bool,
}

impl State {
    /// Reads the state of one cgroup.
    /// Errors: [`Error::Unfit`] for a threaded or invalid one, which takes no process.
    fn read(dir: &Dir) -> Result<Self> {
        let kind = dir.read("cgroup.type")?.unwrap_or_default();
        let why = match kind.trim_end() {
            "domain" | "domain threaded" => None,
            "threaded" => Some("is threaded and takes threads only"),
            "domain invalid" => Some("is in an invalid domain and takes no process"),
            _ => Some("has an unknown cgroup.type"),
        };
        if let Some(why) = why {
            return Err(Error::Unfit { object: dir.path().to_owned(), why });
        }
        let controllers = dir.read("cgroup.subtree_control")?.unwrap_or_default();
        Ok(Self { hands_down: !controllers.trim().is_empty(), has_children: dir.has_children()? })
    }
}

/// Whether any of these cgroups is frozen or about to be: moving below one would stop us at once,
/// inside sshd (`cgroup.freeze` is what was asked for, `frozen` in `cgroup.events` what is).
/// Errors: as [`Dir::read`]; kernels before 5.2 have no freezer here, and the root never has.
pub fn frozen_level(levels: &[Dir]) -> Result<Option<&Dir>> {
    for dir in levels {
        let wanted = dir.read("cgroup.freeze")?.is_some_and(|text| text.trim_end() == "1");
        if wanted {
            return Ok(Some(dir));
        }
    }
    match levels.first() {
        Some(leaf) if event(leaf, "frozen")? == Some(true) => Ok(Some(leaf)),
        _ => Ok(None),
    }
}

/// One flag of `cgroup.events`; `None` where the kernel has none of that name.
pub fn event(dir: &Dir, key: &str) -> Result<Option<bool>> {
    let events = dir.read("cgroup.events")?.unwrap_or_default();
    Ok(events.lines().find_map(|line| {
        let (found, value) = line.split_once(' ')?;
        (found == key).then(|| value.trim() == "1")
    }))
}
