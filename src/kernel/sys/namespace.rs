//! What the kernel says of a namespace (ioctl_ns(2)), and a descriptor that another process sends.

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Which `CLONE_NEW` a namespace is. Only for files of nsfs: to others this request may mean anything.
pub fn kind(fd: BorrowedFd<'_>) -> io::Result<libc::c_int> {
    // SAFETY: NS_GET_NSTYPE of linux/nsfs.h has no argument.
    let kind = unsafe { libc::ioctl(fd.as_raw_fd(), 0xb703) };
    super::checked(kind.into()).map(|_| kind)
}

/// The user namespace whose root may change it. Likewise.
/// Errors: `EPERM` for one that is none of ours to see.
pub fn owner(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: NS_GET_USERNS has no argument.
    let owner = unsafe { libc::ioctl(fd.as_raw_fd(), 0xb701) };
    super::checked(owner.into())?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(owner) })
}

/// Receives one byte, and the descriptor that comes with it; `None` unless it is exactly one.
pub fn receive(socket: BorrowedFd<'_>) -> nix::Result<Option<OwnedFd>> {
    let (mut byte, mut room) = ([0], nix::cmsg_space!([RawFd; 1]));
    let mut slices = [IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut room), flags)?;
    let mut found = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(fds) = part {
            // SAFETY: the kernel has just made these descriptors for us, and names each once.
            found.extend(fds.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok(found.pop().filter(|_| found.is_empty()))
}
