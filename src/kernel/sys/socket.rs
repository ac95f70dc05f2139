//! Receives descriptors over Unix sockets.

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Receives one byte and the descriptor that comes with it; `None` at the end of the stream, and unless exactly one
/// descriptor comes.
///
/// # Errors
///
/// As `recvmsg(2)`.
pub fn receive_fd(socket: BorrowedFd<'_>) -> nix::Result<Option<OwnedFd>> {
    let mut byte = [0];
    // Room for all that one message may have (`SCM_MAX_FD` of the kernel), so that none is lost without being closed.
    let mut control = nix::cmsg_space!([RawFd; 253]);
    let mut slices = [IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags)?;
    let mut received = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(fds) = part {
            // SAFETY: the kernel has just made these descriptors for us, and names each once.
            received.extend(
                fds.into_iter()
                    .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
            );
        }
    }
    // Several are closed without a look at them.
    let only = received.pop();
    if received.is_empty() {
        Ok(only)
    } else {
        Ok(None)
    }
}
