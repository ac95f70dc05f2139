//! Our end of the keeper: see [`crate::keeper`].

use super::flux::Imp;
use crate::kernel::cgroup::Place;
use crate::kernel::failed::Failed;
use crate::kernel::lock::{Keepers, Lock};
use crate::kernel::sys::child::{Handed, KeeperSpec, spawn_keeper};
use crate::module::Failure;
use crate::module::ask::{executable as open_executable, none_in_time};
use crate::module::ruling::Adoption;
use crate::module::undo::Undo;
use crate::protocol::{KEEP, READY, Reason};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, send, socketpair};
use nix::sys::stat::Mode;
use std::ffi::CString;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// That a keeper of this leaf lives.
#[derive(Debug)]
pub(super) struct Keep {
    keepers: Keepers,
    /// The leaf's inode.
    leaf: u64,
}

impl Keep {
    fn lives(&self) -> Result<bool, Failure> {
        Ok(self.keepers.has(self.leaf)?)
    }

    /// Looks once more.
    pub(super) fn verify(&self) -> Result<(), Failure> {
        if self.lives()? { Ok(()) } else { Err(none_lives()) }
    }
}

/// After one was started, or found.
fn none_lives() -> Failure {
    let why =
        "no keeper lives that would end the login with its job; its last words are in the log";
    Failure::why(Reason::AdoptionFailed, why)
}

/// A keeper that this login has started. Dropped, it tells the keeper that nothing came of the
/// login: where nobody else is in the leaf, both go.
#[derive(Debug)]
pub(in crate::module) struct Started(OwnedFd);

impl Started {
    /// The login is in the leaf for good.
    pub(in crate::module) fn keep(self) {
        let _ = send(self.0.as_raw_fd(), KEEP, MsgFlags::MSG_NOSIGNAL);
    }
}

/// Starts a keeper unless one lives.
/// Errors: for an executable that is not fit to be run, one that ends at once, and at the end of the
/// budget.
pub(super) fn ensure(
    leaf: &Place,
    imp: &Imp,
    adoption: &Adoption<'_>,
    undo: &mut Undo,
) -> Result<Keep, Failure> {
    let keepers = Keepers::open()?;
    let keep = Keep { keepers, leaf: leaf.dir()?.identity()?.1 };
    if keep.lives()? {
        return Ok(keep);
    }
    // All logins of the job take this lock; no cgroup that has our filter has this inode.
    let _lock = Lock::take(keep.leaf, adoption.deadline())?;
    if !keep.lives()? {
        undo.started(start(leaf, imp, adoption)?);
    }
    Ok(keep)
}

/// Opens the executable, which lies beside the helper.
pub(super) fn executable(adoption: &Adoption<'_>) -> Result<OwnedFd, Failure> {
    let path = Path::new(&adoption.means.settings.helper).with_file_name("keeper");
    open_executable("keeper", &path.to_string_lossy())
}

fn start(leaf: &Place, imp: &Imp, adoption: &Adoption<'_>) -> Result<Started, Failure> {
    let failed = |step: &str, errno: Errno| Failed::new("start keeper:", step, errno);
    let executable = executable(adoption)?;
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| failed("/dev/null", errno))?;
    let (theirs, talk) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(|errno| failed("socketpair", errno))?;
    // Another open file than the one by which we look: it would not see a lock of its own.
    let keepers = Keepers::open()?;
    let title = CString::new(format!("job-adopt keeper {}", adoption.plan.job)).unwrap_or_default();
    let handed = Handed {
        talk: theirs.as_fd(),
        watched: imp.as_fd(),
        above: leaf.job()?.0.as_fd(),
        leaf: leaf.dir()?.as_fd(),
        keepers: keepers.0.as_fd(),
        root: leaf.root()?.as_fd(),
    };
    let (executable, null) = (executable.as_fd(), null.as_fd());
    spawn_keeper(&KeeperSpec { executable, title: &title, null, handed })
        .map_err(|failure| failed(failure.step, Errno::from_raw(failure.errno)))?;
    // The keeper must hold the only other end, so that its death is seen.
    drop(theirs);
    let mut talk = UnixStream::from(talk);
    let mut packet = [0; READY.len()];
    let heard = loop {
        // None at all would be for ever.
        let left = adoption.means.budget.left().max(Duration::from_millis(1));
        match talk.set_read_timeout(Some(left)).and_then(|()| talk.read(&mut packet)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            heard => break heard,
        }
    };
    match heard {
        Ok(_) if packet == READY => Ok(Started(talk.into())),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(none_in_time("the keeper")),
        _ => Err(none_lives()),
    }
}
