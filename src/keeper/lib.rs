//! The keeper: one small process for each leaf below a Flux unit.
//!
//! Flux ends the processes in a job's unit itself and none below it, so logins there would outlive
//! the job. The keeper waits for the end of the IMP, which ends with the job. It then asks every
//! process in the leaf to end, kills those that remain, and removes the leaf, and the unit's cgroup if
//! the service manager does not. It runs as root outside session and job, gets everything as
//! descriptors, and reads no configuration: the login brings the time that programs have to save. It
//! holds a lock while it runs ([`kernel::lock::open_keepers_file`]). On a termination signal it first
//! ends the logins: no login may be in a leaf without a keeper.

#![forbid(unsafe_code)]

mod fuse;
pub mod grace;
pub mod sshd;
pub mod subtree;
pub mod survivors;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;

use grace::{Logins, ask_to_end};
use kernel::OperationError;
use kernel::cgroup::{self, Dir, Membership, ignore_gone, list_processes, read_event, walk};
use kernel::lock;
use kernel::log::{self, Line, Severity};
use kernel::sys::child::KeeperFds;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{MsgFlags, recv, send};
use protocol::{CgroupPath, LeafName};
use protocol::{END_GRACE_SECONDS_MAX, KEEPER_READY, KEEPER_STAY};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};
use subtree::{KillMode, kill, send_signal};
use survivors::describe_unkillable;
use thiserror::Error;

/// The process name (`comm`), instead of the number of the executable's descriptor.
const PROCESS_NAME: &std::ffi::CStr = c"job-adopt-keep";
/// How long the processes of a leaf may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);
/// First pause between two rounds of killing; each is twice as long as the one before.
const KILL_PAUSE: Duration = Duration::from_millis(1);
/// Longest pause between two rounds of killing.
const KILL_PAUSE_MAX: Duration = Duration::from_millis(250);
/// How long the service manager has to remove the unit's cgroup itself.
const UNIT_REMOVAL_GRACE: Duration = Duration::from_secs(2);

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let _ = nix::sys::prctl::set_name(PROCESS_NAME);
    // The module did not start this process.
    let Ok(handed) = KeeperFds::take() else {
        return ExitCode::from(2);
    };
    // The kernel must not kill the keeper for memory: the logins would outlive their job.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    // A signal holds one descriptor for each process of a cgroup. With fewer, some would miss it.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    match keep_leaf(handed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let line = Line::new(Severity::Error).with("keeper", std::process::id());
            log::write(
                &[line.with("error", error)],
                Severity::Debug,
                "job-adopt",
                "",
            );
            ExitCode::FAILURE
        }
    }
}

/// Leaves the login's cgroup and mounts, takes the lock, waits for the job's end and then ends the leaf. It returns
/// earlier if the login fails and the leaf is empty.
///
/// # Errors
///
/// [`KeeperError::SecondKeeper`] if another keeper of the leaf lives; an error of a step before the lock; as
/// [`kill_until_removed`] and [`remove_unit_cgroup`].
fn keep_leaf(handed: KeeperFds<OwnedFd>) -> Result<(), KeeperError> {
    // The lock lasts as long as its file is open.
    let KeeperFds {
        talk,
        watched,
        above,
        leaf,
        keepers,
        root,
    } = handed;
    let signals = block_termination_signals()
        .map_err(|errno| OperationError::new("take", "signals", errno))?;
    leave_login_cgroup(&Dir::new(root, ""))?;
    leave_login_mounts();
    let unit = Dir::new(above, "");
    let leaf = Dir::new(leaf, LeafName::DEFAULT);
    let byte = lock::byte_range(leaf.identity()?.1);
    let is_locked = lock::try_lock(&keepers, &byte);
    if !is_locked.map_err(|errno| OperationError::new("lock", "keepers", errno))? {
        return Err(KeeperError::SecondKeeper);
    }
    // If the login has ended meanwhile, its socket reports the end of the stream below.
    let _ = send(talk.as_raw_fd(), KEEPER_READY, MsgFlags::MSG_NOSIGNAL);
    let mut login = Some(talk);
    let mut grace = Duration::ZERO;
    loop {
        let ready = wait_for_event([watched.as_fd(), signals.as_fd()], login.as_ref())?;
        // The job may end at the moment at which its first login has joined.
        if let Some(login) = login.take_if(|_| ready.login) {
            match receive_grace(&login) {
                Some(received) => grace = received,
                // The login has failed. A leaf with other logins stays, and keeps this keeper.
                None => {
                    if try_remove_leaf(&unit, &leaf) {
                        return Ok(());
                    }
                }
            }
        }
        if ready.end {
            let mut logins = LeafLogins {
                leaf: &leaf,
                end: Instant::now() + grace,
            };
            ask_to_end(&mut logins, grace);
            kill_until_removed(&unit, &leaf, Instant::now() + KILL_TIMEOUT)?;
            return Ok(remove_unit_cgroup(&unit)?);
        }
    }
}

/// Receives the message of a login that stays: how long programs have to save. `None` without the message.
fn receive_grace(login: &OwnedFd) -> Option<Duration> {
    let mut message = [0; KEEPER_STAY.len() + 1];
    let length = recv(login.as_raw_fd(), &mut message, MsgFlags::MSG_DONTWAIT).ok()?;
    let (seconds, text) = message.split_last()?;
    (length == message.len() && text == KEEPER_STAY)
        .then(|| Duration::from_secs((*seconds).min(END_GRACE_SECONDS_MAX).into()))
}

/// The processes in a leaf.
struct LeafLogins<'a> {
    leaf: &'a Dir,
    /// End of the grace, and so of each walk.
    end: Instant,
}

impl Logins for LeafLogins<'_> {
    fn list(&mut self) -> BTreeSet<i32> {
        let listing = list_processes(self.leaf, self.end);
        listing.all.into_iter().collect()
    }

    fn send(&mut self, pids: &BTreeSet<i32>, signal: Signal) {
        send_signal(self.leaf, signal, Some(pids), self.end);
    }
}

/// The descriptors that became readable.
struct Ready {
    /// The IMP has ended, or a termination signal has come.
    end: bool,
    /// The login has sent its message or closed its socket.
    login: bool,
}

/// Waits until one of the descriptors that mean the end, or the login's socket, is readable, closed or faulty.
fn wait_for_event(
    ends: [BorrowedFd<'_>; 2],
    login: Option<&OwnedFd>,
) -> Result<Ready, KeeperError> {
    let login = login.map(AsFd::as_fd);
    let mut fds: Vec<PollFd<'_>> = ends
        .into_iter()
        .chain(login)
        .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
        .collect();
    loop {
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(OperationError::new("wait for", "end", errno).into()),
            Ok(_) => break,
        }
    }
    // An event that nix does not know counts: a keeper that misses the end would stay for ever.
    let has_event = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
    let (end_fds, login_fds) = fds.split_at(2);
    Ok(Ready {
        end: end_fds.iter().any(has_event),
        login: login_fds.iter().any(has_event),
    })
}

/// Removes the leaf if it is empty; returns whether it is gone. A new cgroup with its name does not
/// count as the leaf and stays.
fn try_remove_leaf(unit: &Dir, leaf: &Dir) -> bool {
    match leaf.read("cgroup.events") {
        Ok(_) => unit.remove_child(LeafName::DEFAULT).is_ok(),
        Err(error) => error.is_gone(),
    }
}

/// Reason why a keeper could not do its work.
#[derive(Debug, Error)]
enum KeeperError {
    /// A cgroup cannot be read, entered or removed.
    #[error("{0}")]
    Cgroup(#[from] cgroup::Error),
    /// A system call failed.
    #[error("{0}")]
    System(#[from] OperationError),
    /// Another keeper holds the lock.
    #[error("the leaf has a keeper already")]
    SecondKeeper,
    /// Processes survived the deadline: their number, their cgroup, and what holds those that no signal ends.
    #[error("{0} processes of logins outlive their job in {1}{2}")]
    Survivors(usize, String, String),
}

/// Blocks the termination signals, so that they can be read instead of ending the process.
fn block_termination_signals() -> nix::Result<SignalFd> {
    let signals: SigSet = [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ]
    .into_iter()
    .collect();
    signals.thread_block()?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)
}

/// Moves to the root of the mount. If that can hold no process, as in a container, moves to the
/// cgroup of the system's first process, which outlives everything as well.
fn leave_login_cgroup(root: &Dir) -> Result<(), KeeperError> {
    let Err(error) = enter(root) else {
        return Ok(());
    };
    let first = Membership::read(1)?;
    match first.unified().map(str::parse::<CgroupPath>) {
        Some(Ok(path)) => {
            let mut dir = root.clone();
            for name in path.relative().split('/') {
                dir = dir.child(name)?;
            }
            Ok(enter(&dir)?)
        }
        // The first process is in the root as well, or in no cgroup of version 2.
        _ => Err(error.into()),
    }
}

/// Joins the mount namespace of the system's first process.
///
/// Private mounts of a login, as `pam_namespace` makes them, would otherwise last as long as the
/// job. Ignores a failure: the keeper can do its work in any mount namespace.
fn leave_login_mounts() {
    if let Ok(first) = File::open("/proc/1/ns/mnt") {
        let _ = setns(first, CloneFlags::CLONE_NEWNS);
    }
}

/// Moves this process into a cgroup.
fn enter(dir: &Dir) -> cgroup::Result<()> {
    dir.write("cgroup.procs", "0")
}

/// Kills the processes in the leaf and below until the leaf can be removed or is gone. It repeats, since a login on
/// its way into the leaf may arrive between two rounds.
///
/// # Errors
///
/// [`KeeperError::Survivors`] at the deadline; [`KeeperError::Cgroup`] if the leaf exists and its `cgroup.events`
/// cannot be read.
fn kill_until_removed(unit: &Dir, leaf: &Dir, deadline: Instant) -> Result<(), KeeperError> {
    let mut pause = KILL_PAUSE;
    let mut mode = KillMode::Cgroup;
    loop {
        // `None` if the leaf is gone, or has no such event.
        let is_populated = ignore_gone(read_event(leaf, "populated"))?.flatten();
        let may_have_processes = is_populated != Some(false);
        if may_have_processes {
            kill(leaf, mode, deadline);
            mode = KillMode::EachProcess;
        }
        let is_gone = ignore_gone(leaf.read("cgroup.events"))?.is_none();
        if is_gone || try_remove_tree(unit, leaf, deadline) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let survivors = list_processes(leaf, Instant::now() + KILL_PAUSE_MAX).all;
            let membership = survivors
                .first()
                .and_then(|pid| Membership::read(*pid).ok());
            let cgroup = membership
                .as_ref()
                .and_then(Membership::unified)
                .unwrap_or_default();
            let cause = describe_unkillable(&survivors)
                .map_or_else(String::new, |which| format!("; cannot be killed: {which}"));
            return Err(KeeperError::Survivors(
                survivors.len(),
                cgroup.to_owned(),
                cause,
            ));
        }
        sleep(pause);
        pause = (pause * 2).min(KILL_PAUSE_MAX);
    }
}

/// Removes the leaf with the cgroups below it, the deepest first; returns whether the leaf was removed.
fn try_remove_tree(unit: &Dir, leaf: &Dir, deadline: Instant) -> bool {
    let mut children = Vec::new();
    // Errors here and below show by a leaf that cannot be removed.
    let _ = walk(leaf, deadline, |dir| {
        for name in dir.children()? {
            children.push((dir.clone(), name));
        }
        Ok(())
    });
    for (dir, name) in children.iter().rev() {
        let _ = dir.remove_child(name);
    }
    unit.remove_child(LeafName::DEFAULT).is_ok()
}

/// Removes the unit's cgroup, unless it has processes or is gone.
///
/// The service manager should do that. But a manager that meets logins when the job has ended leaves it for later,
/// and may forget the unit before it learns that they are gone, as systemd 252 did. The cgroup would then stay for
/// good.
///
/// # Errors
///
/// The errors of [`read_event`], [`Dir::identity`], [`Dir::parent`], [`Dir::child`], [`Dir::children`] and
/// [`Dir::remove_child`].
fn remove_unit_cgroup(unit: &Dir) -> cgroup::Result<()> {
    sleep(UNIT_REMOVAL_GRACE);
    if ignore_gone(read_event(unit, "populated"))?.flatten() != Some(false) {
        return Ok(());
    }
    let identity = unit.identity()?;
    let parent = unit.parent()?;
    for name in parent.children()? {
        let Some(child) = ignore_gone(parent.child(&name))? else {
            continue;
        };
        // A new cgroup may have the unit's name by now.
        if child.identity()? == identity {
            return parent.remove_child(name);
        }
    }
    Ok(())
}
