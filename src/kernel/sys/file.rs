//! Opens and reads files by descriptors of directories, and reads and sets their attributes.

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::{Mode, SFlag};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

/// Tries to open a path while others rename its components.
const RACE_TRIES: usize = 8;

/// Opens a path below `dir`. It follows no symbolic link, crosses no mount point, and does not leave `dir`.
///
/// # Errors
///
/// `ELOOP` or `ENOTDIR` for a link; `EXDEV` for a mount point or a path that leaves `dir`; `EAGAIN` if
/// renames race every try; else as `open(2)`.
pub fn open_beneath(dir: impl AsFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS
        | ResolveFlag::RESOLVE_NO_XDEV;
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(resolve);
    for _ in 0..RACE_TRIES {
        match openat2(&dir, path, how) {
            Err(Errno::EAGAIN) => {}
            // Linux before 5.6, or a seccomp filter that does not know the call.
            Err(Errno::ENOSYS | Errno::EPERM) => return open_by_names(dir.as_fd(), path, flags),
            result => return result,
        }
    }
    Err(Errno::EAGAIN)
}

/// Opens a path as [`open_beneath`] does, without `openat2(2)`. It opens each component in turn, and refuses a link
/// or another mount there before it looks up the next one, so that no file system behind a mount point is called.
/// `EINVAL` for a path that is empty or absolute, begins with `.`, or has `..`.
fn open_by_names(dir: BorrowedFd<'_>, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let status = |fd: BorrowedFd<'_>| {
        read_file_status(fd).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
    };
    let mount = status(dir)?.mount;
    let mut opened: Option<OwnedFd> = None;
    let path_flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    for component in path.components() {
        let Component::Normal(name) = component else {
            return Err(Errno::EINVAL);
        };
        let parent = opened.as_ref().map_or(dir, AsFd::as_fd);
        let fd = openat(parent, name, path_flags, Mode::empty())?;
        let file = status(fd.as_fd())?;
        if file.mode & SFlag::S_IFMT.bits() == SFlag::S_IFLNK.bits() {
            return Err(Errno::ELOOP);
        }
        if file.mount != mount {
            return Err(Errno::EXDEV);
        }
        opened = Some(fd);
    }
    let opened = opened.ok_or(Errno::EINVAL)?;
    // Open the same file again, whatever its name leads to by now.
    let link = format!("/proc/self/fd/{}", opened.as_raw_fd());
    open(
        link.as_str(),
        flags.difference(OFlag::O_NOFOLLOW) | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
}

/// Initial capacity for a file of the kernel. Most are shorter, and the kernel does not report their length.
const BUFFER_BYTES: usize = 4096;

/// Reads a file to its end.
///
/// # Errors
///
/// `EFBIG` past `bytes_max` bytes; else as `read(2)`.
pub fn read_to_end(file: OwnedFd, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(BUFFER_BYTES);
    File::from(file)
        .take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        Err(Errno::EFBIG.into())
    } else {
        Ok(bytes)
    }
}

/// Reads a regular file of this length, and nothing that is appended meanwhile. A file of length 0, as the kernel has,
/// is read to its end.
///
/// # Errors
///
/// As [`read_to_end`].
pub fn read_regular(file: OwnedFd, length: u64, bytes_max: u64) -> io::Result<Vec<u8>> {
    // A file that is too long is read as well, for the error.
    if length == 0 || length > bytes_max {
        return read_to_end(file, bytes_max);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    File::from(file).take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file of the kernel that is one record (`single_open` in `fs/seq_file.c`): a read that does not fill
/// the buffer returns all of it, so that no other one is needed.
///
/// # Errors
///
/// As [`read_to_end`].
pub fn read_record(file: OwnedFd, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut buffer = [0; BUFFER_BYTES];
    let length = nix::unistd::read(&file, &mut buffer)?;
    let mut bytes = buffer.get(..length).unwrap_or_default().to_vec();
    if length == buffer.len() {
        bytes.append(&mut read_to_end(
            file,
            bytes_max.saturating_sub(BUFFER_BYTES as u64),
        )?);
    }
    Ok(bytes)
}

/// Maximum bytes of an extended attribute that is read.
const XATTR_BYTES_MAX: usize = 256;

/// Reads an extended attribute of an open file, at most 256 bytes.
///
/// # Errors
///
/// `ENODATA` if the file does not have it; `ERANGE` if it is longer.
pub fn get_xattr(fd: BorrowedFd<'_>, name: &CStr) -> io::Result<Vec<u8>> {
    let mut value = vec![0_u8; XATTR_BYTES_MAX];
    // SAFETY: the name is NUL-terminated; the buffer is ours and of the length given.
    let length = super::checked(unsafe {
        libc::fgetxattr(
            fd.as_raw_fd(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    } as libc::c_long)?;
    value.truncate(usize::try_from(length).unwrap_or(0));
    Ok(value)
}

/// Sets an extended attribute of an open file.
///
/// # Errors
///
/// `EPERM` without the right to set it; `EEXIST` with the flag `XATTR_CREATE` if the file has it already.
pub fn set_xattr(
    fd: BorrowedFd<'_>,
    name: &CStr,
    value: &[u8],
    flags: libc::c_int,
) -> io::Result<()> {
    let length = value.len();
    let value = value.as_ptr().cast();
    // SAFETY: the name is NUL-terminated; the call only reads the value, of the length given.
    let result = unsafe { libc::fsetxattr(fd.as_raw_fd(), name.as_ptr(), value, length, flags) };
    super::checked(result.into()).map(drop)
}

/// Attributes of an open file (statx(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Number of the mount on which it was opened; before Linux 5.8, number of the device.
    pub mount: u64,
    /// Number of the file system's device.
    pub file_system: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Uid of the owner.
    pub uid: u32,
    /// Gid of the group.
    pub gid: u32,
    /// Number of names.
    pub links: libc::nlink_t,
    /// Length in bytes.
    pub size: u64,
    /// Device that a device node stands for.
    pub device: u64,
}

/// Reads the attributes of an open file that the kernel has already. It does not ask a file system that is
/// remote or of a user (`AT_STATX_DONT_SYNC`), so that none can block the caller; the mount's number shows
/// such a file system.
///
/// # Errors
///
/// As `statx(2)`.
pub fn read_file_status(fd: BorrowedFd<'_>) -> io::Result<FileStatus> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let mask = libc::STATX_BASIC_STATS | libc::STATX_MNT_ID;
    // SAFETY: an all-zero statx is a valid one.
    let mut statx: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the empty path is NUL-terminated, the descriptor is open while it is borrowed, and the
    // structure is ours and of this type.
    let result = unsafe { libc::statx(fd.as_raw_fd(), c"".as_ptr(), flags, mask, &raw mut statx) };
    super::checked(libc::c_long::from(result))?;
    let file_system = libc::makedev(statx.stx_dev_major, statx.stx_dev_minor);
    let has_mount = statx.stx_mask & libc::STATX_MNT_ID != 0;
    Ok(FileStatus {
        mount: if has_mount {
            statx.stx_mnt_id
        } else {
            file_system
        },
        file_system,
        mode: statx.stx_mode.into(),
        uid: statx.stx_uid,
        gid: statx.stx_gid,
        links: statx.stx_nlink.into(),
        size: statx.stx_size,
        device: libc::makedev(statx.stx_rdev_major, statx.stx_rdev_minor),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_and_other_file_system_are_not_opened() {
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
    fn long_record_and_regular_file_are_read_to_their_ends() {
        let scratch = crate::testing::Scratch::new();
        for length in [
            0,
            1,
            BUFFER_BYTES - 1,
            BUFFER_BYTES,
            BUFFER_BYTES + 1,
            3 * BUFFER_BYTES,
        ] {
            let text = "x".repeat(length);
            let path = scratch.file("file", &text);
            let open = || OwnedFd::from(File::open(&path).unwrap());
            let max = 3 * BUFFER_BYTES as u64;
            assert_eq!(read_record(open(), max).unwrap(), text.as_bytes());
            assert_eq!(
                read_regular(open(), length as u64, max).unwrap(),
                text.as_bytes()
            );
            assert_eq!(read_regular(open(), 0, max).unwrap(), text.as_bytes());
        }
        let path = scratch.file("file", &"x".repeat(BUFFER_BYTES + 2));
        let open = || OwnedFd::from(File::open(&path).unwrap());
        let max = BUFFER_BYTES as u64 + 1;
        assert!(read_record(open(), max).is_err());
        assert!(read_regular(open(), max + 1, max).is_err());
    }

    #[test]
    fn status_has_mount_type_and_owner() {
        let status = |path| read_file_status(std::fs::File::open(path).unwrap().as_fd()).unwrap();
        assert_ne!(status("/proc").mount, status("/").mount);
        assert_eq!(status("/proc/1").mount, status("/proc").mount);
        let zero = status("/dev/zero");
        assert_eq!(zero.mode & libc::S_IFMT, libc::S_IFCHR);
        assert_eq!((zero.uid, zero.size, zero.links), (0, 0, 1));
    }
}
