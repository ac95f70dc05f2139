//! Checks Flux jobs: the processes in the unit prove who owns the job.
//!
//! The login goes into a leaf below the unit, where Flux neither waits for it nor ends it. A keeper
//! ends it (see the crate `keeper`); this file starts keepers and checks that they run.

use crate::Failure;
use crate::ask::{open_trusted_executable, timeout_failure};
use crate::ruling::Adoption;
use crate::undo::Undo;
use kernel::OperationError;
use kernel::cgroup::{CgroupChain, Dir, Membership};
use kernel::lock::{Lock, has_keeper, open_keepers_file};
use kernel::proc::{Proc, Process};
use kernel::sys::child::{KeeperFds, spawn_keeper};
use kernel::sys::pidfd::pidfd_open;
use kernel::trust::{Trust, TrustError};
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

/// Requires that the path is the unit of the plan's job below this account's service manager, and
/// that the account can be the one of Flux.
pub(super) fn require_unit(
    adoption: &Adoption<'_>,
    path: &CgroupPath,
    flux: u32,
) -> Result<(), Failure> {
    let unit = unit_at(path.as_str(), flux);
    let is_unit_of_job = unit.is_some_and(|unit| unit.id == adoption.plan.job.as_str());
    match is_unit_of_job && flux != 0 && flux != adoption.uid() {
        true => Ok(()),
        false => {
            let cause = format!("{path} is not the job's unit, if Flux runs as uid {flux}");
            Err(Failure::new(Reason::AdoptionFailed, cause))
        }
    }
}

/// The IMP of this user's job. A pidfd keeps it distinct from a later process with the same number.
#[derive(Debug)]
pub struct Imp {
    pub pid: i32,
    pidfd: OwnedFd,
    flux: u32,
    /// The user of the shell that it has started.
    pub user: u32,
}

impl Imp {
    /// Finds the IMP in the unit's own cgroup.
    ///
    /// # Errors
    ///
    /// [`Failure::CheckFailed`] if there is none with this user's shell; [`Failure::CgroupGone`] if
    /// the unit is gone.
    pub(super) fn find(unit: &Dir, flux: u32, user: u32) -> Result<Self, Failure> {
        let pid = flux::find_imp(&read_unit_processes(unit)?, flux).ok_or_else(unit_ended)?;
        let pidfd = pidfd_open(pid).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => unit_ended(),
            _ => OperationError::new("hold process", pid.to_string(), error).into(),
        })?;
        let imp = Self { pid, pidfd, flux, user };
        // Check the process behind the pidfd: another one may have the number by now.
        imp.require_shell(unit, unit_starting)?;
        Ok(imp)
    }

    /// Reads the text of the unit's file, with the devices that a unit without a filter should
    /// have. The IMP attaches a filter before it starts the shell. The shell runs, so no filter
    /// will follow.
    ///
    /// # Errors
    ///
    /// [`Reason::CannotConfine`] if another account than the one of Flux or root can write the
    /// file, if a user's file system may be mounted there, or if it is no text.
    pub(super) fn unit_text(&self, unit: &CgroupChain) -> Result<String, Failure> {
        let (_, name) = unit.dir()?.path().rsplit_once('/').unwrap_or_default();
        let unreadable = |why: &dyn fmt::Display| {
            let cause = format!("no filter is in force at the job's unit, and its file {why}");
            Failure::new(Reason::CannotConfine, cause)
        };
        let text = read_transient_unit(self.flux, Path::new(name));
        let text = text.map_err(|error| unreadable(&error))?;
        // A request cannot carry a NUL (RFC 38).
        let text = String::from_utf8(text).ok().filter(|text| !text.contains('\0'));
        text.ok_or_else(|| unreadable(&"is no text"))
    }

    /// Requires that the IMP is alive, with the user's shell.
    pub(super) fn require(&self, unit: &Dir) -> Result<(), Failure> {
        self.require_shell(unit, unit_ended)
    }

    /// Requires a living IMP in this unit, with the user's shell as its child; `no_shell` makes the
    /// failure for an IMP without a child.
    fn require_shell(&self, unit: &Dir, no_shell: fn() -> Failure) -> Result<(), Failure> {
        let process = Proc::host().read_process(self.pid);
        let is_imp = process.is_ok_and(|process| flux::is_imp(&process, self.flux));
        let cgroups = Membership::read(self.pid);
        let is_in_unit =
            cgroups.as_ref().is_ok_and(|cgroups| cgroups.unified() == Some(unit.path()));
        let shell = self.find_shell(unit);
        if !is_imp || !is_in_unit || !self.is_alive() {
            return Err(unit_ended());
        }
        let cause = match shell {
            Shell::Of(uid) if uid == self.user => return Ok(()),
            Shell::None => return Err(no_shell()),
            Shell::Of(uid) => format!("the job's shell is uid {uid}'s"),
            Shell::Several => "the job's IMP has children of several users'".to_owned(),
        };
        Err(Failure::new(Reason::AdoptionFailed, cause))
    }

    fn find_shell(&self, unit: &Dir) -> Shell {
        let find = |all: &[Process]| flux::find_shell(&Proc::host(), self.pid, all, self.flux);
        match find(&[]) {
            // Some kernels do not list a process's children.
            Shell::None => find(&read_unit_processes(unit).unwrap_or_default()),
            listed => listed,
        }
    }

    /// Returns whether the IMP runs. A pidfd is readable once its process has ended
    /// (pidfd_open(2)).
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

/// Reads the file of a unit that the service manager of this account has made for as long as it runs.
fn read_transient_unit(uid: u32, name: &Path) -> Result<Vec<u8>, TrustError> {
    let users = Trust::root().dir(Path::new("/run/user"))?;
    let units =
        users.dir_of_account(uid)?.dir(Path::new("systemd"))?.dir(Path::new("transient"))?;
    units.read(name, Request::UNIT_BYTES_MAX as u64)
}

/// Reads the first processes in the unit's own cgroup.
fn read_unit_processes(unit: &Dir) -> kernel::cgroup::Result<Vec<Process>> {
    let text = unit.read("cgroup.procs")?.unwrap_or_default();
    let pids = text.lines().take(flux::UNIT_PROCESSES_MAX).filter_map(|pid| pid.parse().ok());
    Ok(pids.filter_map(|pid| Proc::host().read_process(pid).ok()).collect())
}

/// Returns the failure for a unit that has no shell any more.
fn unit_ended() -> Failure {
    Failure::new(Reason::Ended, "the job's unit has no IMP with a shell any more")
}

/// Returns the failure for a unit that has no shell yet.
fn unit_starting() -> Failure {
    Failure::new(Reason::Starting, "the job's IMP has not started its shell yet")
}

/// Proof that the leaf has a live keeper.
#[derive(Debug)]
pub(super) struct KeeperCheck {
    /// The file with a lock for each leaf.
    keepers: OwnedFd,
    /// The leaf's inode.
    leaf: u64,
}

impl KeeperCheck {
    fn has_keeper(&self) -> Result<bool, Failure> {
        Ok(has_keeper(&self.keepers, self.leaf)?)
    }

    /// Requires that the keeper still runs.
    pub(super) fn require_keeper(&self) -> Result<(), Failure> {
        if self.has_keeper()? { Ok(()) } else { Err(keeper_gone()) }
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
pub(crate) struct KeeperHandle(OwnedFd);

impl KeeperHandle {
    /// Tells the keeper that the login stays in the leaf.
    pub(crate) fn confirm_login(self) {
        let _ = send(self.0.as_raw_fd(), KEEPER_STAY, MsgFlags::MSG_NOSIGNAL);
    }
}

/// Starts a keeper unless the leaf has one.
///
/// # Errors
///
/// The executable is not trusted, the keeper ends at once, or the budget is used up.
pub(super) fn ensure_keeper(
    leaf: &CgroupChain,
    imp: &Imp,
    adoption: &Adoption<'_>,
    undo: &mut Undo,
) -> Result<KeeperCheck, Failure> {
    let check = KeeperCheck { keepers: open_keepers_file()?, leaf: leaf.dir()?.identity()?.1 };
    if check.has_keeper()? {
        return Ok(check);
    }
    // All logins of the job take this lock. No lock of filters has its number: such a lock has the
    // inode of a job's own cgroup.
    let _lock = Lock::take(check.leaf, adoption.deadline())?;
    if !check.has_keeper()? {
        undo.keeper = Some(start_keeper(leaf, imp, adoption)?);
    }
    Ok(check)
}

/// Opens the keeper's executable, which is in the helper's directory.
pub(super) fn open_keeper_executable(adoption: &Adoption<'_>) -> Result<OwnedFd, Failure> {
    let path = Path::new(&adoption.context.settings.helper).with_file_name("keeper");
    open_trusted_executable("keeper", &path.to_string_lossy())
}

/// Starts a keeper, and waits until it holds its lock.
fn start_keeper(
    leaf: &CgroupChain,
    imp: &Imp,
    adoption: &Adoption<'_>,
) -> Result<KeeperHandle, Failure> {
    let failed = |step: &str, errno: Errno| OperationError::new("start keeper:", step, errno);
    let executable = open_keeper_executable(adoption)?;
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| failed("/dev/null", errno))?;
    let (keeper_socket, socket) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(|errno| failed("socketpair", errno))?;
    // Open the file a second time: a query through the keeper's own open file would not see its
    // lock.
    let keepers = open_keepers_file()?;
    let title = CString::new(format!("job-adopt keeper {}", adoption.plan.job)).unwrap_or_default();
    let handed = KeeperFds {
        talk: keeper_socket.as_fd(),
        watched: imp.as_fd(),
        above: leaf.job()?.0.as_fd(),
        leaf: leaf.dir()?.as_fd(),
        keepers: keepers.as_fd(),
        root: leaf.root()?.as_fd(),
    };
    let (executable, null) = (executable.as_fd(), null.as_fd());
    spawn_keeper(executable, &title, null, handed)
        .map_err(|failure| failed(failure.step, failure.errno))?;
    // Close our copy of the keeper's end: otherwise its death gives no EOF.
    drop(keeper_socket);
    let mut socket = UnixStream::from(socket);
    let mut packet = [0; KEEPER_READY.len()];
    let result = loop {
        // A timeout of zero is invalid.
        let timeout = adoption.context.budget.remaining().max(Duration::from_millis(1));
        match socket.set_read_timeout(Some(timeout)).and_then(|()| socket.read(&mut packet)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => break result,
        }
    };
    match result {
        Ok(_) if packet == KEEPER_READY => Ok(KeeperHandle(socket.into())),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(timeout_failure("the keeper")),
        _ => Err(keeper_gone()),
    }
}
