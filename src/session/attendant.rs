//! Our end of the attendant: see [`crate::sys::child`].

use super::{Budget, Fault};
use crate::sys::child::{AttendantSpec, Child, HelperSpec, Report, Watch, spawn_attendant};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// A process beside sshd that starts the helper and then looks after the move. It ends when this
/// is dropped; our own death it sees as the end of `talk`.
#[derive(Debug)]
pub(super) struct Attendant {
    _child: Child,
    talk: OwnedFd,
}

impl Attendant {
    /// Starts it, and with it the helper.
    ///
    /// # Errors
    /// [`Fault::Start`].
    pub(super) fn start(helper: HelperSpec<'_>, watch: Option<Watch<'_>>) -> Result<Self, Fault> {
        // No pipe: a write to a dead reader must not raise SIGPIPE in sshd. And in packets, so
        // that a path arrives whole or not at all.
        let (theirs, talk) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .map_err(|errno| Fault::Start { step: "socketpair", source: errno.into() })?;
        let child = spawn_attendant(&AttendantSpec { talk: theirs.as_fd(), helper, watch })
            .map_err(|source| Fault::Start { step: "clone", source })?;
        Ok(Self { _child: child, talk })
    }

    /// How the helper ended.
    ///
    /// # Errors
    /// [`Fault::Timeout`], or [`Fault::Ended`] for an attendant that died.
    pub(super) fn report(&self, budget: &Budget) -> Result<Report, Fault> {
        let gone = || Fault::Ended("its attendant is gone".into());
        wait_for(&self.talk, budget)?;
        let mut packet = [0; Report::MAX];
        let length =
            recv(self.talk.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT).map_err(|_| gone())?;
        Report::decode(packet.get(..length).unwrap_or_default()).ok_or_else(gone)
    }

    /// A leaf of this path, below the mount, is about to be made by this login.
    pub(super) fn making(&self, path: &str) {
        self.tell(path.trim_start_matches('/').as_bytes());
    }

    /// The leaf that was told of is not this login's.
    pub(super) fn not_made(&self) {
        self.tell(&[0]);
    }

    fn tell(&self, packet: &[u8]) {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let _ = send(self.talk.as_raw_fd(), packet, flags);
    }
}

/// Waits until there is something to read, or the end of it.
///
/// # Errors
/// [`Fault::Timeout`] when the budget is used up first.
pub(super) fn wait_for(fd: &OwnedFd, budget: &Budget) -> Result<(), Fault> {
    loop {
        let left = budget.left();
        if left.is_zero() {
            return Err(Fault::Timeout);
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(Fault::Start { step: "poll", source: errno.into() }),
        }
    }
}
