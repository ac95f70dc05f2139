//! The way back: whatever happens between the first change and the proof, also a panic or the
//! death of sshd, nothing of this login stays behind.

use super::{Budget, Failure};
use crate::cgroup::{Dir, Leaf, LeafKind, MadeMark, Origin, Place};
use crate::plan::LeafName;
use crate::sys::child::{Child, WATCH_CREATED, WatchdogSpec, spawn_watchdog};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, send, socketpair};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// What has been changed so far, and how to change it back. Dropping it does so.
#[derive(Debug)]
pub(super) struct Undo {
    origin: Origin,
    job: Dir,
    made: Option<LeafName>,
    moved: bool,
    watchdog: Watchdog,
}

impl Undo {
    /// Opens the way back and starts the watchdog; changes nothing yet.
    ///
    /// # Errors
    /// [`Failure::Cgroup`] where the login's own cgroup cannot be opened, [`Failure::Watchdog`].
    pub(super) fn prepare(job: &Place, kind: &LeafKind, budget: &Budget) -> Result<Self, Failure> {
        let origin = Origin::open(job.root()?)?;
        let job = job.dir()?.try_clone()?;
        let watchdog = Watchdog::start(&origin, &job, kind, budget)?;
        Ok(Self { origin, job, made: None, moved: false, watchdog })
    }

    /// This login has made the leaf of that name.
    pub(super) fn made_leaf(&mut self, name: &LeafName) {
        self.made = Some(name.clone());
        self.watchdog.tell_created();
    }

    /// Marks a leaf that this login has made as one of ours.
    ///
    /// # Errors
    /// As [`MadeMark::set`].
    pub(super) fn mark_leaf(&self, leaf: &Leaf) -> Result<(), Failure> {
        if self.made.is_some() {
            MadeMark::set(leaf.dir()?)?;
        }
        Ok(())
    }

    /// From here on the login may be in the leaf.
    pub(super) fn moving(&mut self) {
        self.moved = true;
    }

    /// Everything stays as it is now.
    pub(super) fn commit(mut self) {
        self.made = None;
        self.moved = false;
    }

    /// Changes everything back and returns the failure to report: the one that led here, or that
    /// the way back is barred as well.
    pub(super) fn run(mut self, failure: Failure) -> Failure {
        match self.back() {
            Ok(()) => failure,
            Err(error) => Failure::Stuck(Box::new(failure), error),
        }
    }

    fn back(&mut self) -> crate::cgroup::Result<()> {
        let result = if std::mem::take(&mut self.moved) { self.origin.back() } else { Ok(()) };
        if let Some(name) = self.made.take() {
            // Another login may have joined meanwhile; then the leaf is theirs.
            let _ = self.job.remove_child(name.as_str());
        }
        result
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = self.back();
    }
}

/// A process outside the job that sets a frozen login free and tidies up after a dead one. It
/// ends when this is dropped; our death it sees as the end of `progress`.
#[derive(Debug)]
struct Watchdog {
    _child: Child,
    progress: OwnedFd,
}

impl Watchdog {
    fn start(
        origin: &Origin,
        job: &Dir,
        kind: &LeafKind,
        budget: &Budget,
    ) -> Result<Self, Failure> {
        let error = |errno: nix::Error| Failure::Watchdog(errno.into());
        // A socket rather than a pipe: a write to a dead reader must not raise SIGPIPE in sshd.
        let (reader, progress) =
            socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)
                .map_err(error)?;
        let name = kind.child().map_or(LeafName::DEFAULT, LeafName::as_str);
        let leaf = CString::new(name).ok();
        let child = spawn_watchdog(&WatchdogSpec {
            progress: reader.as_fd(),
            origin: origin.as_fd(),
            job: job.as_fd(),
            leaf: leaf.as_deref(),
            patience_ms: i32::try_from(budget.left().as_millis()).unwrap_or(i32::MAX).max(1),
        })
        .map_err(Failure::Watchdog)?;
        Ok(Self { _child: child, progress })
    }

    fn tell_created(&self) {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let _ = send(self.progress.as_raw_fd(), &[WATCH_CREATED], flags);
    }
}
