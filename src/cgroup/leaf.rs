//! The cgroup that a job's logins are put into.

use super::{Dir, Error, Place, Result, State};
use crate::plan::LeafName;

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
