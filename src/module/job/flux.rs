//! A job of Flux: the kernel says whose it is, by the processes in its unit.
//!
//! The login goes into a leaf below the unit, where Flux neither waits for it nor ends it: a keeper
//! does that, of which this is our end (see the crate `keeper`).

use crate::Failure;
use crate::ask::{executable, none_in_time};
use crate::ruling::Adoption;
use crate::undo::Undo;
use kernel::Failed;
use kernel::cgroup::{Dir, Membership, Place};
use kernel::lock::{Lock, has_keeper, open_keepers_file};
use kernel::proc::{Proc, Process};
use kernel::sys::child::{KeeperFds, spawn_keeper};
use kernel::sys::pidfd::pidfd_open;
use kernel::trust::Trust;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, send, socketpair};
use nix::sys::stat::Mode;
use protocol::{CgroupPath, KEEPER_READY, KEEPER_STAY, Reason, Request};
use schedulers::flux::{self, Shell, unit_at};
use std::ffi::CString;
use std::fmt;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Refuses a path other than that of the plan's job below this account's service manager, and an
/// account that cannot be Flux's.
pub(super) fn require_unit(
    adoption: &Adoption<'_>,
    path: &CgroupPath,
    flux: u32,
) -> Result<(), Failure> {
    let unit = unit_at(path.as_str(), flux);
    let is_jobs = unit.is_some_and(|unit| unit.id == adoption.plan.job.as_str());
    match is_jobs && flux != 0 && flux != adoption.uid() {
        true => Ok(()),
        false => {
            let why = format!("{path} is not the job's unit, if Flux runs as uid {flux}");
            Err(Failure::Why(Reason::AdoptionFailed, why))
        }
    }
}

/// The IMP of this user's job, held by a descriptor that no other process takes over.
#[derive(Debug)]
pub struct Imp {
    pub pid: i32,
    pidfd: OwnedFd,
    flux: u32,
    /// Whose shell it has started.
    pub user: u32,
}

impl Imp {
    /// Finds it in the unit's own cgroup.
    /// Errors: [`Failure::Why`]; [`Failure::Gone`] for a unit that went away.
    pub(super) fn find(unit: &Dir, flux: u32, user: u32) -> Result<Self, Failure> {
        let pid = flux::find_imp(&processes(unit)?, flux).ok_or_else(ended)?;
        let pidfd = pidfd_open(pid).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => ended(),
            _ => Failed::new("hold process", pid.to_string(), error).into(),
        })?;
        let imp = Self { pid, pidfd, flux, user };
        // Another process may have the number by now: what counts is seen once it is held.
        imp.look(unit, starting)?;
        Ok(imp)
    }

    /// The text of the unit's file, which names the devices that a unit without a filter should have. The
    /// IMP attaches a filter before it starts the shell. The shell has been seen, so none will come.
    /// Errors: for a file that is not the account's or root's, or no text.
    pub(super) fn unit_text(&self, unit: &Place) -> Result<String, Failure> {
        let run = format!("/run/user/{}", self.flux);
        let (_, name) = unit.dir()?.path().rsplit_once('/').unwrap_or_default();
        let file = format!("{run}/systemd/transient/{name}");
        let trust = Trust::below(Path::new(&run), self.flux).or_owned_by(0);
        let unknown = |why: &dyn fmt::Display| {
            let why = format!("no filter is in force at the job's unit, and its file {why}");
            Failure::Why(Reason::CannotConfine, why)
        };
        let text = trust.read(Path::new(&file), Request::UNIT_BYTES_MAX as u64);
        let text = text.map_err(|error| unknown(&error))?;
        // A request cannot carry a NUL (RFC 38).
        let text = String::from_utf8(text).ok().filter(|text| !text.contains('\0'));
        text.ok_or_else(|| unknown(&"is no text"))
    }

    /// Requires that it is still there, with the user's shell.
    pub(super) fn require(&self, unit: &Dir) -> Result<(), Failure> {
        self.look(unit, ended)
    }

    /// Requires an IMP in this unit, alive, with a child that is the user's; `childless` is what it
    /// means if there is none.
    fn look(&self, unit: &Dir, childless: fn() -> Failure) -> Result<(), Failure> {
        let is_imp = Proc::here().process(self.pid).is_ok_and(|one| flux::is_imp(&one, self.flux));
        let here = Membership::of(self.pid);
        let here = here.as_ref().is_ok_and(|found| found.unified() == Some(unit.path()));
        let shell = self.shell(unit);
        if !is_imp || !here || !self.is_alive() {
            return Err(ended());
        }
        let why = match shell {
            Shell::Of(uid) if uid == self.user => return Ok(()),
            Shell::None => return Err(childless()),
            Shell::Of(uid) => format!("the job's shell is uid {uid}'s"),
            Shell::Several => "the job's IMP has children of several users'".to_owned(),
        };
        Err(Failure::Why(Reason::AdoptionFailed, why))
    }

    fn shell(&self, unit: &Dir) -> Shell {
        let shell = |all: &[Process]| flux::find_shell(&Proc::here(), self.pid, all, self.flux);
        match shell(&[]) {
            // Not every kernel lists a process's children.
            Shell::None => shell(&processes(unit).unwrap_or_default()),
            listed => listed,
        }
    }

    /// A pidfd is readable once its process has ended (pidfd_open(2)).
    fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO) == Ok(0)
    }
}

impl AsFd for Imp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// The first processes right in the unit's cgroup.
fn processes(unit: &Dir) -> kernel::cgroup::Result<Vec<Process>> {
    let text = unit.read("cgroup.procs")?.unwrap_or_default();
    let pids = text.lines().take(flux::UNIT_PROCESSES_MAX).filter_map(|pid| pid.parse().ok());
    Ok(pids.filter_map(|pid| Proc::here().process(pid).ok()).collect())
}

/// Why the unit takes no login: it has no shell any more.
fn ended() -> Failure {
    Failure::why(Reason::Ended, "the job's unit has no IMP with a shell any more")
}

/// The same of a unit that has no shell yet.
fn starting() -> Failure {
    Failure::why(Reason::Starting, "the job's IMP has not started its shell yet")
}

/// That a keeper of this leaf lives.
#[derive(Debug)]
pub(super) struct Keep {
    keepers: OwnedFd,
    /// The leaf's inode.
    leaf: u64,
}

impl Keep {
    fn lives(&self) -> Result<bool, Failure> {
        Ok(has_keeper(&self.keepers, self.leaf)?)
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
pub(crate) struct Started(OwnedFd);

impl Started {
    /// The login is in the leaf for good.
    pub(crate) fn keep(self) {
        let _ = send(self.0.as_raw_fd(), KEEPER_STAY, MsgFlags::MSG_NOSIGNAL);
    }
}

/// Starts a keeper unless one lives.
/// Errors: for an executable that is not fit to be run, one that ends at once, and at the end of the
/// budget.
pub(super) fn ensure_keeper(
    leaf: &Place,
    imp: &Imp,
    adoption: &Adoption<'_>,
    undo: &mut Undo,
) -> Result<Keep, Failure> {
    let keep = Keep { keepers: open_keepers_file()?, leaf: leaf.dir()?.identity()?.1 };
    if keep.lives()? {
        return Ok(keep);
    }
    // All logins of the job take this lock; no cgroup that has our filter has this inode.
    let _lock = Lock::take(keep.leaf, adoption.deadline())?;
    if !keep.lives()? {
        undo.keeper = Some(start_keeper(leaf, imp, adoption)?);
    }
    Ok(keep)
}

/// Opens the executable, which lies beside the helper.
pub(super) fn keeper_executable(adoption: &Adoption<'_>) -> Result<OwnedFd, Failure> {
    let path = Path::new(&adoption.means.settings.helper).with_file_name("keeper");
    executable("keeper", &path.to_string_lossy())
}

fn start_keeper(leaf: &Place, imp: &Imp, adoption: &Adoption<'_>) -> Result<Started, Failure> {
    let failed = |step: &str, errno: Errno| Failed::new("start keeper:", step, errno);
    let executable = keeper_executable(adoption)?;
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| failed("/dev/null", errno))?;
    let (theirs, talk) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(|errno| failed("socketpair", errno))?;
    // Another open file than the one by which we look: it would not see a lock of its own.
    let keepers = open_keepers_file()?;
    let title = CString::new(format!("job-adopt keeper {}", adoption.plan.job)).unwrap_or_default();
    let handed = KeeperFds {
        talk: theirs.as_fd(),
        watched: imp.as_fd(),
        above: leaf.job()?.0.as_fd(),
        leaf: leaf.dir()?.as_fd(),
        keepers: keepers.as_fd(),
        root: leaf.root()?.as_fd(),
    };
    let (executable, null) = (executable.as_fd(), null.as_fd());
    spawn_keeper(executable, &title, null, handed)
        .map_err(|failure| failed(failure.step, failure.errno))?;
    // The keeper must hold the only other end, so that its death is seen.
    drop(theirs);
    let mut talk = UnixStream::from(talk);
    let mut packet = [0; KEEPER_READY.len()];
    let heard = loop {
        // None at all would be for ever.
        let left = adoption.means.budget.left().max(Duration::from_millis(1));
        match talk.set_read_timeout(Some(left)).and_then(|()| talk.read(&mut packet)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            heard => break heard,
        }
    };
    match heard {
        Ok(_) if packet == KEEPER_READY => Ok(Started(talk.into())),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(none_in_time("the keeper")),
        _ => Err(none_lives()),
    }
}
