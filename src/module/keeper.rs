//! Starts the keeper of a leaf, and checks that it runs.
//!
//! A keeper ends the logins of a job whose scheduler does not (see the crate `keeper`).

use crate::ask::{open_trusted_executable, timeout_failure};
use crate::context::Adoption;
use crate::error::Failure;
use kernel::OperationError;
use kernel::cgroup::CgroupChain;
use kernel::lock::{has_keeper, open_keepers_file};
use kernel::sys::child::{KeeperFds, spawn_keeper};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, send, socketpair};
use nix::sys::stat::Mode;
use protocol::{END_GRACE_SECONDS_MAX, KEEPER_READY, KEEPER_STAY, Reason};
use std::ffi::CString;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Proof that the leaf has a live keeper.
#[derive(Debug)]
pub(super) struct KeeperCheck {
    /// The file with a lock for each leaf.
    keepers: OwnedFd,
    /// The leaf's inode.
    pub(super) leaf: u64,
}

impl KeeperCheck {
    /// Opens the file of locks for a check of this leaf.
    pub(super) fn open(leaf: &CgroupChain) -> Result<Self, Failure> {
        Ok(Self {
            keepers: open_keepers_file()?,
            leaf: leaf.dir()?.identity()?.1,
        })
    }

    /// Returns whether a keeper of the leaf holds its lock now.
    pub(super) fn has_keeper(&self) -> Result<bool, Failure> {
        Ok(has_keeper(&self.keepers, self.leaf)?)
    }

    /// Requires that the keeper still runs.
    pub(super) fn require_keeper(&self) -> Result<(), Failure> {
        if self.has_keeper()? {
            Ok(())
        } else {
            Err(keeper_gone())
        }
    }
}

/// Returns the failure for a keeper that has ended.
fn keeper_gone() -> Failure {
    let cause =
        "no keeper lives that would end the login with its job; its last words are in the log";
    Failure::new(Reason::AdoptionFailed, cause)
}

/// A keeper that this login has started. Its drop without [`KeeperHandle::confirm_login`] means
/// that the login failed: an empty leaf and its keeper then go.
#[derive(Debug)]
pub(super) struct KeeperHandle {
    socket: OwnedFd,
    /// Seconds that programs have to save at the end of the job.
    end_grace: u8,
}

impl KeeperHandle {
    /// Tells the keeper that the login stays in the leaf, and how long programs have to save at its end.
    pub(super) fn confirm_login(self) {
        let message = [KEEPER_STAY, &[self.end_grace]].concat();
        let _ = send(self.socket.as_raw_fd(), &message, MsgFlags::MSG_NOSIGNAL);
    }
}

/// Opens the keeper's executable, which is in the helper's directory.
pub(super) fn open_keeper_executable(adoption: &Adoption<'_>) -> Result<OwnedFd, Failure> {
    let path = Path::new(&adoption.context.settings.helper).with_file_name("keeper");
    open_trusted_executable("keeper", &path.to_string_lossy())
}

/// Starts a keeper of the leaf, which ends the logins there once the process behind the pidfd `watched` has ended.
/// Waits until the keeper holds its lock.
///
/// # Errors
///
/// The executable is not trusted, the keeper ends at once, or the budget is used up.
pub(super) fn start_keeper(
    leaf: &CgroupChain,
    watched: BorrowedFd<'_>,
    adoption: &Adoption<'_>,
) -> Result<KeeperHandle, Failure> {
    let failed = |step: &str, errno: Errno| OperationError::new("start keeper:", step, errno);
    let executable = open_keeper_executable(adoption)?;
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| failed("/dev/null", errno))?;
    let (keeper_socket, socket) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .map_err(|errno| failed("socketpair", errno))?;
    // Open the file a second time: a query through the keeper's own open file would not see its
    // lock.
    let keepers = open_keepers_file()?;
    // The id of a job has no NUL.
    let title = CString::new(format!("job-adopt keeper {}", adoption.plan.job)).unwrap_or_default();
    let handed = KeeperFds {
        talk: keeper_socket.as_fd(),
        watched,
        above: leaf.job()?.0.as_fd(),
        leaf: leaf.dir()?.as_fd(),
        keepers: keepers.as_fd(),
        root: leaf.root()?.as_fd(),
    };
    let executable = executable.as_fd();
    let null = null.as_fd();
    spawn_keeper(executable, &title, null, handed)
        .map_err(|failure| failed(failure.step, failure.errno))?;
    // Close our copy of the keeper's end: otherwise its death gives no EOF.
    drop(keeper_socket);
    let mut socket = UnixStream::from(socket);
    let mut packet = [0; KEEPER_READY.len()];
    let result = loop {
        // A timeout of zero is invalid.
        let timeout = adoption
            .context
            .budget
            .remaining()
            .max(Duration::from_millis(1));
        match socket
            .set_read_timeout(Some(timeout))
            .and_then(|()| socket.read(&mut packet))
        {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => break result,
        }
    };
    match result {
        Ok(_) if packet == KEEPER_READY => Ok(KeeperHandle {
            socket: socket.into(),
            // The plan has at most 60.
            end_grace: u8::try_from(adoption.plan.end_grace).unwrap_or(END_GRACE_SECONDS_MAX),
        }),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(timeout_failure("the keeper")),
        _ => Err(keeper_gone()),
    }
}
