//! Descriptors that stand for processes: a signal through one cannot meet a process that took over
//! the number. What the kernel says of a namespace (ioctl_ns(2)), and a descriptor that another
//! process sends.

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

/// A descriptor that stands for this process, whatever becomes of its number.
/// Errors: `ESRCH` when there is none, `ENOSYS` before Linux 5.3.
pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers only.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: it makes a descriptor.
    unsafe { super::made_fd(result) }
}

/// Sends a signal to the process behind a descriptor.
/// Errors: `ESRCH` when it is gone, `EPERM` where it is none of ours to signal.
pub fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: a null siginfo means that the kernel fills one in, as kill(2) does.
    super::checked(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    })
    .map(drop)
}

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
    // SAFETY: it makes a descriptor.
    unsafe { super::made_fd(owner.into()) }
}

/// Returns the uid of the account that owns the user namespace of a process; `None` if it is this process's
/// own. Of nested ones the outermost below this process's counts: its owner is an account of the node.
///
/// # Errors
///
/// As `open(2)`: `ENOENT` or `ESRCH` for a process that is gone, `EACCES` without the right to look;
/// `EPERM` for a namespace that is not below this process's.
pub fn namespace_owner(pid: i32) -> io::Result<Option<u32>> {
    let own = std::fs::metadata("/proc/self/ns/user")?.ino();
    let mut namespace = File::open(format!("/proc/{pid}/ns/user"))?;
    if namespace.metadata()?.ino() == own {
        return Ok(None);
    }
    loop {
        // Of a user namespace this is the one above.
        let above = File::from(owner(namespace.as_fd())?);
        if above.metadata()?.ino() == own {
            break;
        }
        namespace = above;
    }
    let mut uid: libc::uid_t = 0;
    // SAFETY: NS_GET_OWNER_UID writes a uid_t, for which the pointer is good.
    let result = unsafe { libc::ioctl(namespace.as_raw_fd(), 0xb704, &raw mut uid) };
    super::checked(result.into()).map(|_| Some(uid))
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
