//! The socket of a step's daemon in slurmd's spool directory.

use super::connection::socket_error;
use super::{Error, Result};
use kernel::trust::TrustedDir;
use nix::fcntl::AtFlags;
use nix::sys::stat::{SFlag, fstatat};
use protocol::{JobId, NodeName, parse_decimal};
use std::fmt;

/// Number of the step that a job's logins belong to (`SLURM_EXTERN_CONT` of `slurm.h`).
pub const EXTERN_STEP: u32 = 0xffff_fffc;

/// Name of the socket of a job's extern step: `NODE_JOB.4294967292`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketName {
    /// Name of the node in Slurm's configuration.
    pub node: NodeName,
    /// Id of the job, in decimal digits.
    pub job: JobId,
}

impl SocketName {
    /// Converts node and job; `None` for an id that is no number.
    pub fn from_job(node: &NodeName, job: &JobId) -> Option<Self> {
        parse_decimal(job.as_str())?;
        Some(Self {
            node: node.clone(),
            job: job.clone(),
        })
    }
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}.{EXTERN_STEP}", self.node, self.job)
    }
}

/// Reads the time at which a socket was created, in seconds since the epoch: that of its last change, since a daemon
/// changes its socket only once, when it opens the new socket to all users.
///
/// # Errors
///
/// [`Error::SocketGone`] without such a file; [`Error::UntrustedSocket`] for a file that is no socket or
/// does not belong to `owner`; [`Error::SystemCall`] as `stat(2)`.
pub fn socket_created_at(spool: &TrustedDir, name: &SocketName, owner: u32) -> Result<i64> {
    let stat = fstatat(
        spool,
        name.to_string().as_str(),
        AtFlags::AT_SYMLINK_NOFOLLOW,
    )
    .map_err(|errno| socket_error("stat", errno))?;
    let is_socket = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFSOCK.bits();
    if is_socket && stat.st_uid == owner {
        Ok(stat.st_ctime)
    } else {
        Err(Error::UntrustedSocket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    fn own_uid() -> u32 {
        nix::unistd::Uid::effective().as_raw()
    }

    #[test]
    fn only_socket_of_expected_owner_is_trusted() {
        let scratch = Scratch::new();
        let spool = scratch.trust().dir(scratch.path()).unwrap();
        let name = SocketName::from_job(&"n".parse().unwrap(), &"1".parse().unwrap()).unwrap();
        let path = scratch.path().join(name.to_string());
        let created_at = |owner| socket_created_at(&spool, &name, owner);
        assert_eq!(created_at(own_uid()), Err(Error::SocketGone));
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(created_at(own_uid()).unwrap() > 0);
        assert_eq!(created_at(own_uid() + 1), Err(Error::UntrustedSocket));
        std::fs::rename(&path, scratch.path().join("real")).unwrap();
        symlink("real", &path).unwrap();
        assert_eq!(created_at(own_uid()), Err(Error::UntrustedSocket), "a link");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert_eq!(created_at(own_uid()), Err(Error::UntrustedSocket), "a file");
    }
}
