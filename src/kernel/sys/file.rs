//! Files and directories: what `nix` has no safe form for.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Opens a directory below `dir` by `openat2(2)`: no symbolic link, no mount point, nothing above.
/// Errors: `ENOSYS` before Linux 5.6, `EPERM` where a seccomp filter stands in the way, `EAGAIN`
/// when a rename raced, `ELOOP` for a link, `EXDEV` for a way out, else as `open(2)`.
pub fn open_dir_beneath(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    open_beneath(dir, name, libc::O_RDONLY | libc::O_DIRECTORY)
}

/// Gets hold of a file below `dir` in the same way, without opening it (`O_PATH`): a driver sees
/// nothing of it.
pub fn find_beneath(dir: BorrowedFd<'_>, path: &CStr) -> io::Result<OwnedFd> {
    open_beneath(dir, path, libc::O_PATH)
}

fn open_beneath(dir: BorrowedFd<'_>, path: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    const RESOLVE: u64 = libc::RESOLVE_BENEATH
        | libc::RESOLVE_NO_SYMLINKS
        | libc::RESOLVE_NO_MAGICLINKS
        | libc::RESOLVE_NO_XDEV;
    // SAFETY: an all-zero open_how is valid, and later fields of it mean "nothing" when zero.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC) as u64;
    how.resolve = RESOLVE;
    // SAFETY: the path is NUL-terminated, `how` is initialised and of the size given.
    let fd = super::checked(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            dir.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    })?;
    let fd = libc::c_int::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads an extended attribute of an open file, at most 256 bytes.
/// Errors: `ENODATA` when there is none, `ERANGE` when it is longer.
pub fn get_xattr(fd: BorrowedFd<'_>, name: &CStr) -> io::Result<Vec<u8>> {
    let mut value = vec![0_u8; 256];
    // SAFETY: the name is NUL-terminated; the buffer is ours and of the length given.
    let length = super::checked(unsafe {
        libc::fgetxattr(fd.as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    } as libc::c_long)?;
    value.truncate(usize::try_from(length).unwrap_or(0));
    Ok(value)
}

/// Sets an extended attribute of an open file.
/// Errors: `EPERM` without the right to; with the flag `XATTR_CREATE`, `EEXIST` when there is one of
/// that name.
pub fn set_xattr(
    fd: BorrowedFd<'_>,
    name: &CStr,
    value: &[u8],
    flags: libc::c_int,
) -> io::Result<()> {
    let (length, value) = (value.len(), value.as_ptr().cast());
    // SAFETY: the name is NUL-terminated; the value is read only and of the length given.
    let result = unsafe { libc::fsetxattr(fd.as_raw_fd(), name.as_ptr(), value, length, flags) };
    super::checked(result.into()).map(drop)
}

/// What an open file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Number of the mount that it was opened on; before Linux 5.8, of the device below it.
    pub mount: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// How many names it has.
    pub links: u64,
    /// Its length in bytes.
    pub size: u64,
    /// The device that it stands for, of a node.
    pub device: u64,
}

/// What an open file is, as far as the kernel knows it already: a file system that answers from
/// elsewhere is not asked (`AT_STATX_DONT_SYNC`), and may be told by its mount.
pub fn facts(fd: BorrowedFd<'_>) -> io::Result<Facts> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let mask = libc::STATX_BASIC_STATS | libc::STATX_MNT_ID;
    // SAFETY: an all-zero statx is a valid one.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the empty path is NUL-terminated, the descriptor is open while it is borrowed, and the
    // structure is ours and of this type.
    let result = unsafe { libc::statx(fd.as_raw_fd(), c"".as_ptr(), flags, mask, &raw mut found) };
    super::checked(libc::c_long::from(result))?;
    let device = u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor);
    let has_mount = found.stx_mask & libc::STATX_MNT_ID != 0;
    Ok(Facts {
        mount: if has_mount { found.stx_mnt_id } else { device },
        mode: found.stx_mode.into(),
        uid: found.stx_uid,
        gid: found.stx_gid,
        links: found.stx_nlink.into(),
        size: found.stx_size,
        device: libc::makedev(found.stx_rdev_major, found.stx_rdev_minor),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn mounts_are_told_apart_and_files_are_what_they_are() {
        let facts = |path| facts(std::fs::File::open(path).unwrap().as_fd()).unwrap();
        assert_ne!(facts("/proc").mount, facts("/").mount);
        assert_eq!(facts("/proc/1").mount, facts("/proc").mount);
        let zero = facts("/dev/zero");
        assert_eq!(zero.mode & libc::S_IFMT, libc::S_IFCHR);
        assert_eq!((zero.uid, zero.size, zero.links), (0, 0, 1));
    }
}
