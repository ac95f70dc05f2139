//! Finds the processes of the logins of a running job, wherever its logins are placed.

use super::cgroup_members::read_processes;
use super::logins::list_logins;
use crate::jobs::NodeJob;
use crate::process::Process;
use command::error::Error;
use helper::jobs::ExternSocket;
use kernel::cgroup::{CgroupChain, Dir, Listing, Membership, Mount, MountInfo, ignore_gone, v1};
use protocol::{AbsolutePath, CgroupPath, LeafName, NodeName, Placement};
use schedulers::stepd::{ROOT_UID, step_of_daemon};
use std::time::Instant;

impl NodeJob {
    /// Lists the processes of the job's logins, for Slurm all of the extern step; none if the job is over.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if its cgroup cannot be found or read.
    pub fn list_login_processes(&self, deadline: Instant) -> Result<Listing<Process>, Error> {
        let none = Listing {
            all: Vec::new(),
            cut: None,
        };
        if let Placement::Extern { spool, node } = &self.placement {
            let step = self.open_extern_step(spool, node, deadline)?;
            return Ok(step.map_or(none, |dir| read_processes(&dir, deadline)));
        }
        let Some(place) = self.open_cgroup()? else {
            return Ok(none);
        };
        list_logins(place.dir()?, self.leaf(), self.uid, deadline)
    }

    /// Opens the cgroup of a Slurm job's extern step, which the step's daemon shows; `None` if the job is over, or if
    /// its id is none of Slurm's.
    fn open_extern_step(
        &self,
        spool: &AbsolutePath,
        node: &NodeName,
        deadline: Instant,
    ) -> Result<Option<Dir>, Error> {
        let Some(socket) = ExternSocket::from_job(spool, node, &self.id) else {
            return Ok(None);
        };
        match socket.connect(ROOT_UID, deadline) {
            Ok(daemon) => open_step_of_daemon(daemon.pid),
            Err(schedulers::stepd::Error::SocketGone) => Ok(None),
            Err(error) => Err(Error::failed("query", socket.path().display(), error)),
        }
    }

    /// The name of the leaf in the job's record; `None` if the record has none, and for a scheduler's job.
    pub fn leaf(&self) -> Option<&LeafName> {
        match &self.placement {
            Placement::Cgroup { leaf, .. } => leaf.as_ref(),
            Placement::Unit { .. } | Placement::Extern { .. } => None,
        }
    }

    /// Opens the job's cgroup; `None` if it is gone, and for a Slurm job.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if cgroup v2 is not mounted, or the cgroup cannot be opened.
    pub fn open_cgroup(&self) -> Result<Option<CgroupChain>, Error> {
        match &self.placement {
            Placement::Cgroup { path, .. } | Placement::Unit { path, .. } => open_chain(path),
            Placement::Extern { .. } => Ok(None),
        }
    }
}

fn open_chain(path: &CgroupPath) -> Result<Option<CgroupChain>, Error> {
    Ok(ignore_gone(Mount::open()?.open_chain(path))?)
}

/// Opens the cgroup of the extern step of this daemon, on cgroup v1 in the freezer hierarchy; `None` if the
/// daemon has ended. The cgroup has logins and Slurm's own processes.
fn open_step_of_daemon(daemon_pid: i32) -> Result<Option<Dir>, Error> {
    let Some(membership) = ignore_gone(Membership::read(daemon_pid))? else {
        return Ok(None);
    };
    if let Some(job) = v1::JobCgroups::from_daemon(&membership) {
        let levels = ignore_gone(job.open_freezers(&MountInfo::read_all()?))?;
        return Ok(levels.and_then(|levels| levels.last().cloned()));
    }
    let Some(path) = membership.unified().and_then(step_of_daemon) else {
        return Ok(None);
    };
    let place = open_chain(&path)?;
    Ok(place.as_ref().map(CgroupChain::dir).transpose()?.cloned())
}
