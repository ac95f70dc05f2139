//! Queries namespaces by their files (ioctl_ns(2)).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// The `CLONE_NEW` number of a namespace. The file must be of nsfs: to another file this request may
/// mean anything.
///
/// # Errors
///
/// As `ioctl(2)`.
pub fn namespace_kind(fd: BorrowedFd<'_>) -> io::Result<libc::c_int> {
    // SAFETY: NS_GET_NSTYPE of linux/nsfs.h has no argument.
    let kind = unsafe { libc::ioctl(fd.as_raw_fd(), 0xb703) };
    super::checked(kind.into()).map(|_| kind)
}

/// Reads the number by which the kernel decides whether a mount namespace may be bound in another one. The file must be a
/// mount namespace of nsfs.
///
/// # Errors
///
/// `ENOTTY` for a kernel before 6.11.
pub fn mount_namespace_number(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut number = 0_u64;
    // SAFETY: NS_GET_MNTNS_ID writes a number of 64 bits, for which the pointer is good.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), 0x8008_b705, &raw mut number) };
    super::checked(result.into()).map(|_| number)
}

/// Opens the user namespace whose root may change a namespace; for a user namespace, the one above it. The
/// file must be of nsfs: to another file this request may mean anything.
///
/// # Errors
///
/// `EPERM` if the namespace to be opened is neither that of this process nor below it.
pub fn owning_user_namespace(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: NS_GET_USERNS has no argument.
    let owner = unsafe { libc::ioctl(fd.as_raw_fd(), 0xb701) };
    // SAFETY: the request makes a descriptor.
    unsafe { super::fd_from_syscall(owner.into()) }
}

/// The uid of the account that owns the user namespace of a process; `None` if it is this process's
/// own. Of nested ones the outermost below this process's counts: its owner is an account of the node.
///
/// # Errors
///
/// As `open(2)`: `ENOENT` or `ESRCH` for a process that is gone, `EACCES` without the right to read it;
/// `EPERM` for a namespace that is not below this process's.
pub fn namespace_owner(pid: i32) -> io::Result<Option<u32>> {
    let current = std::fs::metadata("/proc/self/ns/user")?.ino();
    let mut namespace = File::open(format!("/proc/{pid}/ns/user"))?;
    if namespace.metadata()?.ino() == current {
        return Ok(None);
    }
    loop {
        let parent = File::from(owning_user_namespace(namespace.as_fd())?);
        if parent.metadata()?.ino() == current {
            break;
        }
        namespace = parent;
    }
    let mut uid: libc::uid_t = 0;
    // SAFETY: NS_GET_OWNER_UID writes a uid_t, for which the pointer is good.
    let result = unsafe { libc::ioctl(namespace.as_raw_fd(), 0xb704, &raw mut uid) };
    super::checked(result.into()).map(|_| Some(uid))
}
