//! Files and directories, by descriptors.

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, SFlag, fstat};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

/// How often a racing rename is met with another try.
const RACE_TRIES: usize = 8;

/// Opens what is below `dir`: through no symbolic link, no mount point, and nothing above.
/// Errors: `ELOOP` or `ENOTDIR` for a link, `EXDEV` for a mount point or a way out, `EAGAIN` where
/// renames keep racing, else as `open(2)`.
pub fn open_beneath(dir: impl AsFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS
        | ResolveFlag::RESOLVE_NO_XDEV;
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve);
    for _ in 0..RACE_TRIES {
        match openat2(&dir, path, how) {
            Err(Errno::EAGAIN) => {}
            // Before Linux 5.6, and under seccomp filters that do not know the call.
            Err(Errno::ENOSYS | Errno::EPERM) => return open_by_names(dir.as_fd(), path, flags),
            result => return result,
        }
    }
    Err(Errno::EAGAIN)
}

/// [`open_beneath`] where `openat2(2)` is not to be had: one component after the other, each on the
/// file system of `dir`.
fn open_by_names(dir: BorrowedFd<'_>, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let system = fstat(dir)?.st_dev;
    let mut found: Option<OwnedFd> = None;
    for component in path.components() {
        let Component::Normal(name) = component else { return Err(Errno::EINVAL) };
        let above = found.as_ref().map_or(dir, AsFd::as_fd);
        let fd = openat(above, name, flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
        let stat = fstat(&fd)?;
        if stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFLNK.bits() {
            return Err(Errno::ELOOP);
        }
        if stat.st_dev != system {
            return Err(Errno::EXDEV);
        }
        found = Some(fd);
    }
    found.ok_or(Errno::EINVAL)
}

/// Reads a file to its end.
/// Errors: `EFBIG` past `most` bytes, else as `read(2)`.
pub fn read_to_end(file: OwnedFd, most: u64) -> io::Result<Vec<u8>> {
    // Most of the kernel's files are short, and none tells its length.
    let mut bytes = Vec::with_capacity(4096);
    File::from(file).take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(Errno::EFBIG.into()) } else { Ok(bytes) }
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
    pub links: libc::nlink_t,
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

    #[test]
    fn links_and_other_file_systems_are_not_opened() {
        let dev = std::fs::File::open("/dev").unwrap();
        let beneath = |path: &str| open_beneath(&dev, path.as_ref(), OFlag::O_PATH);
        let by_names = |path: &str| open_by_names(dev.as_fd(), path.as_ref(), OFlag::O_PATH);
        for find in [&beneath as &dyn Fn(&str) -> nix::Result<OwnedFd>, &by_names] {
            let errno = |path| find(path).unwrap_err();
            assert_eq!(errno("stdin"), Errno::ELOOP);
            assert_eq!(errno("fd/0"), Errno::ELOOP);
            assert_eq!(errno("pts/ptmx"), Errno::EXDEV);
            assert_eq!(errno("job-adopt-none"), Errno::ENOENT);
            assert!(matches!(errno("../etc"), Errno::EXDEV | Errno::EINVAL));
            assert!(matches!(errno(""), Errno::ENOENT | Errno::EINVAL));
            assert!(find("null").is_ok());
        }
    }

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
