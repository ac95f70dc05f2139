//! Finds the daemon of a Slurm job's extern step by its socket, and a job's cgroup by the daemon's.

use kernel::cgroup::Membership;
use protocol::{AbsolutePath, CgroupPath, JobId, NodeName, Placement};
use schedulers::stepd::{Connection, Error, Result, SocketName, connect_to_daemon, job_of_daemon};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The socket at which the daemon of a job's extern step listens. The `owner` of a daemon is root, but in a test.
#[derive(Clone, Debug)]
pub struct ExternSocket(PathBuf);

impl ExternSocket {
    /// Makes the path of a job's socket in the spool directory of a node; `None` for an id that is no number.
    pub fn from_job(spool: &AbsolutePath, node: &NodeName, job: &JobId) -> Option<Self> {
        let name = SocketName::from_job(node, job)?;
        Some(Self(Path::new(spool.as_str()).join(name.to_string())))
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Connects to the daemon.
    ///
    /// # Errors
    ///
    /// [`Error::SocketGone`] if the job is over; [`Error::Timeout`] at the deadline; as [`connect_to_daemon`].
    pub fn connect(&self, owner: u32, deadline: Instant) -> Result<Connection> {
        // With a deadline it is never `None`.
        connect_to_daemon(&self.0, owner, Some(deadline))?.ok_or(Error::Timeout)
    }

    /// Reads the cgroups of the daemon; `None` if it cannot be connected to in time, or is hidden (`hidepid` of
    /// proc(5)).
    pub fn read_cgroups(&self, owner: u32, deadline: Instant) -> Option<Membership> {
        let daemon = self.connect(owner, deadline).ok()?;
        Membership::read(daemon.pid).ok()
    }
}

/// Finds the cgroup of a job on cgroup v2. The placement of a Slurm job names none, so it is derived from the cgroup of
/// the daemon; `None` as [`ExternSocket::read_cgroups`], and for a daemon that is in no cgroup of a job.
pub fn find_cgroup(
    id: &JobId,
    placement: &Placement,
    owner: u32,
    deadline: Instant,
) -> Option<CgroupPath> {
    match placement {
        Placement::Cgroup { path, .. } | Placement::Unit { path, .. } => Some(path.clone()),
        Placement::Extern { spool, node } => {
            let socket = ExternSocket::from_job(spool, node, id)?;
            job_of_daemon(socket.read_cgroups(owner, deadline)?.unified()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    #[test]
    fn daemon_is_found_by_its_socket_and_its_account() {
        let scratch = Scratch::new();
        let spool: AbsolutePath = scratch.path().to_str().unwrap().parse().unwrap();
        let node: NodeName = "n1".parse().unwrap();
        let socket = |job: &str| ExternSocket::from_job(&spool, &node, &job.parse().unwrap());
        assert!(socket("f2bLbcUR").is_none(), "no number");
        let socket = socket("7").unwrap();
        assert_eq!(socket.path(), scratch.path().join("n1_7.4294967292"));
        let owner = nix::unistd::geteuid().as_raw();
        let deadline = Instant::now() + Duration::from_secs(60);
        let connect = |uid| socket.connect(uid, deadline).map(|daemon| daemon.pid);
        assert_eq!(connect(owner), Err(Error::SocketGone));
        let _daemon = UnixListener::bind(socket.path()).unwrap();
        let pid = i32::try_from(std::process::id()).unwrap();
        assert_eq!(connect(owner), Ok(pid));
        assert_eq!(connect(owner + 1), Err(Error::WrongPeerUid(owner)));
        let cgroups = socket.read_cgroups(owner, deadline).unwrap();
        assert_eq!(cgroups, Membership::read(pid).unwrap());
        // The tests' own process is in no cgroup of a step.
        let placement = Placement::Extern { spool, node };
        let id = "7".parse().unwrap();
        assert_eq!(find_cgroup(&id, &placement, owner, deadline), None);
    }
}
