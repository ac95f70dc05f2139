//! The keeper: one small process for each leaf below a unit of Flux's.
//!
//! Flux ends what stands in a job's unit itself and nothing below it, so that logins there would
//! outlive the job. The keeper waits on the IMP, which ends with the job, then kills whatever is in
//! the leaf and removes it, and the unit's cgroup where nobody else does. It runs as root outside
//! session and job, is given everything as descriptors, parses nothing and reads no configuration.
//! That it lives, a lock tells ([`crate::lock::Keepers`]).

#![forbid(unsafe_code)]

mod empty;
mod leave;
pub mod subtree;
mod unit;

use crate::cgroup::{self, Dir, Membership};
use crate::failed::Failed;
use crate::lock::Keepers;
use crate::log::{self, Line, Severity, Speaker};
use crate::plan::LeafName;
use crate::sys::child::Handed;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What a keeper says once it holds the lock and waits.
pub const READY: &[u8] = b"ready";
/// What it is told once a login is in the leaf for good.
pub const KEEP: &[u8] = b"keep";

/// How the kernel knows it (`comm`), in place of the number of a descriptor.
const NAME: &std::ffi::CStr = c"job-adopt-keep";
/// Longest wait for the processes of a leaf to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let _ = nix::sys::prctl::set_name(NAME);
    let handed = match Handed::take() {
        Ok(handed) => handed,
        Err(_) => return ExitCode::from(2),
    };
    match Keeper::settle(handed).and_then(Keeper::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            tell(&trouble);
            ExitCode::FAILURE
        }
    }
}

fn tell(trouble: &Trouble) {
    let line = Line::new(Severity::Error).with("keeper", std::process::id()).with("error", trouble);
    let speaker = Speaker { process: "job-adopt", prefix: "" };
    log::write(&[line], Severity::Debug, speaker);
}

/// A keeper in its place.
struct Keeper {
    talk: Option<OwnedFd>,
    watched: OwnedFd,
    above: Dir,
    leaf: Dir,
    /// Held until the end.
    _keepers: Keepers,
}

impl Keeper {
    /// Leaves the login's cgroup and mounts, and takes the lock.
    fn settle(handed: Handed) -> Result<Self, Trouble> {
        let Handed { talk, watched, above, leaf, keepers, root } = handed;
        leave::leave(&Dir::new(root, ""))?;
        leave::leave_mounts();
        let leaf = Dir::new(leaf, LeafName::DEFAULT);
        let keepers = Keepers::from(keepers);
        if !keepers.take(leaf.identity()?.1)? {
            return Err(Trouble::Another);
        }
        let talk = Some(talk);
        Ok(Self { talk, watched, above: Dir::new(above, ""), leaf, _keepers: keepers })
    }

    /// Waits for the end, and brings it about for the leaf.
    fn run(mut self) -> Result<(), Trouble> {
        if let Some(talk) = &self.talk {
            // One who has gone meanwhile shows as the end of what it says.
            let _ = send(talk.as_raw_fd(), READY, MsgFlags::MSG_NOSIGNAL);
        }
        loop {
            let (ended, spoken) = self.wait()?;
            if ended {
                empty::empty(&self.above, &self.leaf, Instant::now() + PATIENCE)?;
                return Ok(unit::release(&self.above)?);
            }
            if let Some(talk) = self.talk.take_if(|_| spoken) {
                let mut word = [0; KEEP.len()];
                let length = recv(talk.as_raw_fd(), &mut word, MsgFlags::MSG_DONTWAIT);
                // The login has failed. Where others are in the leaf, it is theirs now.
                if length != Ok(KEEP.len()) && self.leaf_is_gone() {
                    return Ok(());
                }
            }
        }
    }

    /// Whether the process has ended, and whether something was said.
    fn wait(&self) -> Result<(bool, bool), Trouble> {
        let mut fds = vec![PollFd::new(self.watched.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.talk.iter().map(|talk| PollFd::new(talk.as_fd(), PollFlags::POLLIN)));
        loop {
            match poll(&mut fds, PollTimeout::NONE) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(Trouble::Poll(errno)),
                Ok(_) => break,
            }
        }
        let mut any = fds.iter().map(|fd| fd.any().unwrap_or(true));
        Ok((any.next().unwrap_or(true), any.next().unwrap_or(false)))
    }

    /// Removes the leaf unless somebody is in it; whether it is gone. Another one of its name is
    /// not ours.
    fn leaf_is_gone(&self) -> bool {
        match self.leaf.read("cgroup.events") {
            Ok(_) => self.above.remove_child(LeafName::DEFAULT).is_ok(),
            Err(error) => error.is_gone(),
        }
    }
}

/// What kept a keeper from its work.
#[derive(Debug)]
enum Trouble {
    Cgroup(cgroup::Error),
    Lock(Failed),
    Poll(Errno),
    /// There is one already.
    Another,
    /// Processes that did not end: how many, and where they are.
    Left(usize, String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup(error) => error.fmt(f),
            Self::Lock(error) => error.fmt(f),
            Self::Poll(errno) => write!(f, "poll: {}", errno.desc()),
            Self::Another => f.write_str("the leaf has a keeper already"),
            Self::Left(count, path) => {
                write!(f, "{count} processes of logins outlive their job in {path}")
            }
        }
    }
}

impl From<cgroup::Error> for Trouble {
    fn from(error: cgroup::Error) -> Self {
        Self::Cgroup(error)
    }
}

impl From<Failed> for Trouble {
    fn from(error: Failed) -> Self {
        Self::Lock(error)
    }
}

/// Where a process that is left is, for the log.
fn place_of(pid: i32) -> String {
    let found = Membership::of(pid).ok();
    found.and_then(|found| found.unified().map(str::to_owned)).unwrap_or_default()
}
