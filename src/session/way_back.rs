//! The way back, opened before anything is changed.

use super::{Budget, Failure};
use crate::cgroup::{Dir, Mount, Origin};
use crate::sys::child::{Child, WatchdogSpec, spawn_watchdog};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, send, socketpair};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Where the login came from, and a process that looks after it from there.
#[derive(Debug)]
pub(super) struct WayBack {
    origin: Origin,
    watchdog: Option<Watchdog>,
}

impl WayBack {
    /// Opens the login's own cgroup and starts the watchdog there. This is done while the helper
    /// is at work: the fork then costs the login nothing where a second processor is idle.
    ///
    /// # Errors
    /// [`Failure::Cgroup`] where the login's own cgroup cannot be opened, [`Failure::Watchdog`].
    pub(super) fn open(budget: &Budget) -> Result<Self, Failure> {
        let mount = Mount::open()?;
        let origin = Origin::open(mount.root())?;
        let watchdog = Watchdog::start(&origin, mount.root(), budget)?;
        Ok(Self { origin, watchdog: Some(watchdog) })
    }

    /// Tells the watchdog of a leaf that this login has made.
    pub(super) fn made(&self, leaf: &Dir) {
        if let Some(watchdog) = &self.watchdog {
            watchdog.tell_made(leaf);
        }
    }

    /// Tells the watchdog to end; what else there is to do can be done meanwhile.
    pub(super) fn call_off_watch(&self) {
        if let Some(watchdog) = &self.watchdog {
            watchdog.child.kill();
        }
    }

    /// Waits for the watchdog's end. Only then is it proof to read back where the login is: a watchdog whose
    /// patience runs out moves it.
    pub(super) fn end_watch(&mut self) {
        self.watchdog = None;
    }

    /// Goes back.
    ///
    /// # Errors
    /// As [`Origin::back`].
    pub(super) fn go(&self) -> crate::cgroup::Result<()> {
        self.origin.back()
    }
}

/// A process outside the job that sets a frozen login free and tidies up after a dead one. It
/// ends when this is dropped; our death it sees as the end of `progress`.
#[derive(Debug)]
struct Watchdog {
    child: Child,
    progress: OwnedFd,
}

impl Watchdog {
    fn start(origin: &Origin, root: &Dir, budget: &Budget) -> Result<Self, Failure> {
        // Not a pipe: a write to a dead reader must not raise SIGPIPE in sshd. And in packets, so
        // that a path arrives whole or not at all.
        let (reader, progress) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .map_err(|errno| Failure::Watchdog(errno.into()))?;
        let patience = i32::try_from(budget.left().as_millis()).unwrap_or(i32::MAX);
        let child = spawn_watchdog(&WatchdogSpec {
            progress: reader.as_fd(),
            origin: origin.as_fd(),
            root: root.as_fd(),
            patience_ms: patience.max(1),
        })
        .map_err(Failure::Watchdog)?;
        Ok(Self { child, progress })
    }

    fn tell_made(&self, leaf: &Dir) {
        let path = leaf.path().trim_start_matches('/').as_bytes();
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let _ = send(self.progress.as_raw_fd(), path, flags);
    }
}
