//! The process at one end of a TCP connection of this network namespace, by the kernel's socket
//! diagnostics (sock_diag(7)).
//!
//! One question about one socket, for which neither root nor `/proc` is needed. The cgroup is the
//! one that the socket was made in: to move the process afterwards does not change it.

mod message;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, connect, recv, send,
    socket,
};

use super::plain;
use super::wait;
use thiserror::Error;

pub use message::read;

/// How long the kernel is waited for; it answers while it is asked.
const TIME: Duration = Duration::from_millis(100);
const ANSWER_MAX: usize = 8192;

/// Whose socket it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The uid that made it.
    pub uid: u32,
    /// Id of the cgroup v2 that it was made in: the inode number of its directory.
    pub cgroup: u64,
}

/// Why the kernel did not say.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("socket diagnostics: {0}")]
pub struct DiagError(String);

impl DiagError {
    fn of(what: &str, errno: Errno) -> Self {
        Self(format!("{what}: {}", errno.desc()))
    }

    /// The answer is not as `linux/inet_diag.h` has it.
    pub(crate) fn malformed() -> Self {
        Self("an answer that has no meaning".to_owned())
    }
}

/// The owner of the end `local` of an established connection to `remote`. `None` where there is no
/// such connection here, nobody has it any more, or the kernel, before Linux 5.8 or without cgroup
/// v2, knows no cgroup of it.
pub fn owner(local: SocketAddr, remote: SocketAddr) -> Result<Option<Owner>, DiagError> {
    let (local, remote) = (plain(local), plain(remote));
    let Some(question) = message::question(local, remote) else { return Ok(None) };
    let socket = asked(&question)?;
    let mut bytes = [0; ANSWER_MAX];
    let length = answer(&socket, &mut bytes, Instant::now() + TIME)?;
    // One that was longer than the room for it is shorter than it says.
    message::read(bytes.get(..length).ok_or_else(DiagError::malformed)?, local, remote)
}

/// A socket that only the kernel can write to, with the question put.
fn asked(question: &[u8]) -> Result<OwnedFd, DiagError> {
    let system = |call| move |errno| DiagError::of(call, errno);
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let protocol = SockProtocol::NetlinkSockDiag;
    let socket = socket(AddressFamily::Netlink, SockType::Datagram, flags, protocol)
        .map_err(system("socket NETLINK_SOCK_DIAG"))?;
    connect(socket.as_raw_fd(), &NetlinkAddr::new(0, 0)).map_err(system("connect"))?;
    send(socket.as_raw_fd(), question, MsgFlags::MSG_DONTWAIT).map_err(system("send"))?;
    Ok(socket)
}

fn answer(socket: &OwnedFd, bytes: &mut [u8], deadline: Instant) -> Result<usize, DiagError> {
    let failed = |errno| DiagError::of("recv", errno);
    wait(socket, PollFlags::POLLIN, deadline).map_err(failed)?;
    recv(socket.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT).map_err(failed)
}
