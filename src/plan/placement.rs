//! Where a job's logins go.

use super::{AbsolutePath, CgroupPath, JobId, LeafName, NodeName, SourceName};

/// Where a job's logins go, as its source says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Into a cgroup, which carries our stamp.
    Cgroup {
        /// The job's cgroup.
        path: CgroupPath,
        /// The child that the record wants its logins in; else the privileged half decides.
        leaf: Option<LeafName>,
    },
    /// Where the daemon of the job's extern step puts them (slurmstepd).
    Extern {
        /// The directory of the daemon's socket: `SlurmdSpoolDir` of slurm.conf(5).
        spool: AbsolutePath,
        /// The node's name in the socket's.
        node: NodeName,
    },
    /// Into a leaf below the unit that the job's shell runs in (Flux, `sdexec`).
    Unit {
        /// The unit's cgroup.
        path: CgroupPath,
        /// Uid of the account that Flux runs as, whose service manager has the unit.
        flux: u32,
    },
}

impl Placement {
    /// The source that places so.
    #[must_use]
    pub fn source(&self) -> SourceName {
        match self {
            Self::Cgroup { .. } => SourceName::Registry,
            Self::Extern { .. } => SourceName::Slurm,
            Self::Unit { .. } => SourceName::Flux,
        }
    }

    /// The job's cgroup, where it is known beforehand.
    #[must_use]
    pub fn cgroup(&self) -> &str {
        match self {
            Self::Cgroup { path, .. } | Self::Unit { path, .. } => path.as_str(),
            Self::Extern { .. } => "",
        }
    }

    /// What evidence and log call it.
    #[must_use]
    pub fn shown(&self, job: &JobId) -> String {
        match self {
            Self::Cgroup { path, .. } | Self::Unit { path, .. } => path.to_string(),
            Self::Extern { spool, node } => format!("{spool}/{node}_{job}"),
        }
    }
}
