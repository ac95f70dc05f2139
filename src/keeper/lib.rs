//! The keeper: one small process for each leaf below a unit of Flux's.
//!
//! Flux ends what stands in a job's unit itself and nothing below it, so that logins there would
//! outlive the job. The keeper waits on the IMP, which ends with the job, then kills whatever is in
//! the leaf and removes it, and the unit's cgroup where nobody else does. It runs as root outside
//! session and job, is given everything as descriptors, parses nothing and reads no configuration.
//! That it lives, a lock tells ([`kernel::lock::open_keepers_file`]). Told to end before the job does, it
//! ends the logins first: none is to be in a leaf that nobody keeps.

#![forbid(unsafe_code)]

pub mod subtree;

use kernel::Failed;
use kernel::cgroup::{self, Dir, Membership, event, processes, unless_gone, walk};
use kernel::lock;
use kernel::log::{self, Line, Severity};
use kernel::sys::child::KeeperFds;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{MsgFlags, recv, send};
use protocol::{CgroupPath, LeafName};
use protocol::{KEEPER_READY, KEEPER_STAY};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};
use subtree::kill;
use thiserror::Error;

/// How the kernel knows it (`comm`), in place of the number of a descriptor.
const NAME: &std::ffi::CStr = c"job-adopt-keep";
/// Longest wait for the processes of a leaf to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let _ = nix::sys::prctl::set_name(NAME);
    let handed = match KeeperFds::take() {
        Ok(handed) => handed,
        Err(_) => return ExitCode::from(2),
    };
    // No memory is worth it: the logins would outlive their job.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    match keep(handed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            let line = Line::new(Severity::Error).with("keeper", std::process::id());
            log::write(&[line.with("error", trouble)], Severity::Debug, "job-adopt", "");
            ExitCode::FAILURE
        }
    }
}

/// Leaves the login's cgroup and mounts, takes the lock, waits for the end, and brings it about for the
/// leaf.
fn keep(handed: KeeperFds<OwnedFd>) -> Result<(), Trouble> {
    // The lock is held for as long as its file is open.
    let KeeperFds { talk, watched, above, leaf, keepers, root } = handed;
    let told = signals().map_err(|errno| Failed::new("take", "signals", errno))?;
    leave(&Dir::new(root, ""))?;
    leave_mounts();
    let (above, leaf) = (Dir::new(above, ""), Dir::new(leaf, LeafName::DEFAULT));
    let byte = lock::byte_range(leaf.identity()?.1);
    let alone = lock::try_lock(&keepers, &byte);
    if !alone.map_err(|errno| Failed::new("lock", "keepers", errno))? {
        return Err(Trouble::Another);
    }
    // One who has gone meanwhile shows as the end of what it says.
    let _ = send(talk.as_raw_fd(), KEEPER_READY, MsgFlags::MSG_NOSIGNAL);
    let mut talk = Some(talk);
    loop {
        let (ended, spoken) = wait([watched.as_fd(), told.as_fd()], talk.as_ref())?;
        if ended {
            empty(&above, &leaf, Instant::now() + PATIENCE)?;
            return Ok(release(&above)?);
        }
        if let Some(talk) = talk.take_if(|_| spoken) {
            let mut word = [0; KEEPER_STAY.len()];
            let length = recv(talk.as_raw_fd(), &mut word, MsgFlags::MSG_DONTWAIT);
            // The login has failed. Where others are in the leaf, it is theirs now.
            if length != Ok(KEEPER_STAY.len()) && is_gone(&above, &leaf) {
                return Ok(());
            }
        }
    }
}

/// Waits until one of two is readable: the process has ended, or this one is to; or until something was
/// said.
fn wait(ends: [BorrowedFd<'_>; 2], talk: Option<&OwnedFd>) -> Result<(bool, bool), Trouble> {
    let talk = talk.map(AsFd::as_fd);
    let mut fds: Vec<PollFd<'_>> =
        ends.into_iter().chain(talk).map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    loop {
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Failed::new("wait for", "end", errno).into()),
            Ok(_) => break,
        }
    }
    let any: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
    Ok((any.iter().take(2).any(|any| *any), any.get(2).copied().unwrap_or(false)))
}

/// Removes the leaf unless somebody is in it; whether it is gone. Another one of its name is not ours.
fn is_gone(above: &Dir, leaf: &Dir) -> bool {
    match leaf.read("cgroup.events") {
        Ok(_) => above.remove_child(LeafName::DEFAULT).is_ok(),
        Err(error) => error.is_gone(),
    }
}

/// What kept a keeper from its work.
#[derive(Debug, Error)]
enum Trouble {
    #[error("{0}")]
    Cgroup(#[from] cgroup::Error),
    #[error("{0}")]
    Failed(#[from] Failed),
    /// There is one already.
    #[error("the leaf has a keeper already")]
    Another,
    /// Processes that did not end: how many, and where they are.
    #[error("{0} processes of logins outlive their job in {1}")]
    Left(usize, String),
}

/// Takes the signals by which a process is told to end, so that they do not end it.
fn signals() -> nix::Result<SignalFd> {
    let asked: SigSet =
        [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT].into_iter().collect();
    asked.thread_block()?;
    SignalFd::with_flags(&asked, SfdFlags::SFD_CLOEXEC)
}

/// Moves to the root of the mount. Where that can hold no process, as in a container, to where the
/// system's first process is, which outlives everything as well.
fn leave(root: &Dir) -> Result<(), Trouble> {
    let Err(error) = enter(root) else { return Ok(()) };
    let first = Membership::of(1)?;
    match first.unified().map(str::parse::<CgroupPath>) {
        Some(Ok(path)) => {
            let mut dir = root.try_clone()?;
            for name in path.relative().split('/') {
                dir = dir.child(name)?;
            }
            Ok(enter(&dir)?)
        }
        _ => Err(error.into()),
    }
}

/// Sees what the system's first process sees. Mounts that a login has to itself, as `pam_namespace`
/// makes them, would otherwise be there for as long as the job; where they cannot be left, they are.
fn leave_mounts() {
    if let Ok(first) = File::open("/proc/1/ns/mnt") {
        let _ = setns(first, CloneFlags::CLONE_NEWNS);
    }
}

fn enter(dir: &Dir) -> cgroup::Result<()> {
    subtree::write(dir, "cgroup.procs", "0")
}

/// Pause between two rounds, at first; doubled up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// Kills what is in the leaf until it can be removed. A login that is still on its way into it may
/// arrive between two rounds.
/// Errors: [`Trouble::Left`] at the deadline.
fn empty(above: &Dir, leaf: &Dir, deadline: Instant) -> Result<(), Trouble> {
    let mut pause = PAUSE;
    let mut again = false;
    loop {
        if unless_gone(event(leaf, "populated"))?.flatten() != Some(false) {
            kill(leaf, std::mem::replace(&mut again, true), deadline);
        }
        if unless_gone(leaf.read("cgroup.events"))?.is_none() || removed(above, leaf, deadline) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let left = processes(leaf, Instant::now() + PAUSE_MAX).all;
            let place = left.first().and_then(|pid| Membership::of(*pid).ok());
            let place = place.as_ref().and_then(Membership::unified).unwrap_or_default();
            return Err(Trouble::Left(left.len(), place.to_owned()));
        }
        sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Removes the leaf with what is below it; whether that went.
fn removed(above: &Dir, leaf: &Dir, deadline: Instant) -> bool {
    let mut below = Vec::new();
    let _ = walk(leaf, deadline, |dir| {
        for name in dir.children()? {
            below.push((dir.try_clone()?, name));
        }
        Ok(())
    });
    for (dir, name) in below.iter().rev() {
        let _ = dir.remove_child(name);
    }
    above.remove_child(LeafName::DEFAULT).is_ok()
}

/// What its service manager has to remove it by itself.
const GRACE: Duration = Duration::from_secs(2);

/// Removes the cgroup of a unit that nothing runs in any more.
///
/// That is its service manager's to do. But a manager that meets logins where the job has ended
/// leaves it for later, and may forget the unit before it hears that they are gone, as systemd 252
/// was seen to do: then nobody would remove it.
/// Errors: as [`subtree::children`] and [`Dir::remove_child`].
fn release(unit: &Dir) -> cgroup::Result<()> {
    sleep(GRACE);
    if unless_gone(event(unit, "populated"))?.flatten() != Some(false) {
        return Ok(());
    }
    let identity = unit.identity()?;
    let parent = unit.parent()?;
    for name in parent.children()? {
        let Some(child) = unless_gone(parent.child(&name))? else { continue };
        // Whatever has taken its name is not it.
        if child.identity()? == identity {
            return parent.remove_child(name);
        }
    }
    Ok(())
}
