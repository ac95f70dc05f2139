//! Device nodes: their type and numbers, and the descriptors by which they are read.

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, major, minor};
use protocol::DeviceType;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use thiserror::Error;

/// Flags with which no driver notices that its node is opened (`O_PATH` of open(2)).
pub(super) const NODE_FLAGS: OFlag = OFlag::O_PATH
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);
/// Maximum bytes of a file that stands for a device node.
const STAND_IN_BYTES_MAX: u64 = 32;

/// The type and numbers of a device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceNode {
    /// Character or block device.
    pub kind: DeviceType,
    /// Device major, as the kernel reports it.
    pub major: u32,
    /// Device minor, as the kernel reports it.
    pub minor: u32,
}

impl DeviceNode {
    /// Takes type and numbers from the status of a file.
    ///
    /// # Errors
    ///
    /// [`NodeError::NotADevice`] for a file of another type.
    pub(super) fn from_stat(stat: &FileStat) -> Result<Self, NodeError> {
        let kind = match file_type(stat) {
            SFlag::S_IFCHR => DeviceType::Char,
            SFlag::S_IFBLK => DeviceType::Block,
            _ => return Err(NodeError::NotADevice),
        };
        // The kernel has no larger number than 32 bits; one would fit no rule.
        let [major, minor] = [major(stat.st_rdev), minor(stat.st_rdev)]
            .map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        Ok(Self { kind, major, minor })
    }

    /// Parses `c 195:0` or `b 7:1`; `None` for another text.
    fn parse(text: &str) -> Option<Self> {
        let (kind, numbers) = text.split_once(' ')?;
        let kind = match kind {
            "c" => DeviceType::Char,
            "b" => DeviceType::Block,
            _ => return None,
        };
        let (major, minor) = numbers.split_once(':')?;
        Some(Self {
            kind,
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }

    /// Reads a regular file that stands for a device node below another root than `/`.
    ///
    /// # Errors
    ///
    /// [`NodeError::NotADevice`] for any other content, and for a file that cannot be read.
    pub(super) fn read_stand_in(fd: &OwnedFd) -> Result<Self, NodeError> {
        // An O_PATH descriptor cannot be read, so the file is opened again through it.
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(STAND_IN_BYTES_MAX).read_to_string(&mut text))
            .map_err(|_| NodeError::NotADevice)?;
        Self::parse(text.trim_end()).ok_or(NodeError::NotADevice)
    }
}

impl fmt::Display for DeviceNode {
    /// Writes type and numbers as ls(1) does, but with a colon: `c 195:0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:{}", self.kind.letter(), self.major, self.minor)
    }
}

/// The type of a file, without its permissions.
pub(super) fn file_type(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// A file or directory that is open, and its attributes.
#[derive(Debug)]
pub(super) struct OpenedFile {
    pub(super) fd: OwnedFd,
    pub(super) stat: FileStat,
}

impl OpenedFile {
    /// Reads the attributes of an open file.
    pub(super) fn new(fd: OwnedFd) -> Result<Self, NodeError> {
        let stat = fstat(&fd).map_err(NodeError::Open)?;
        Ok(Self { fd, stat })
    }

    /// Opens a file of this directory.
    ///
    /// # Errors
    ///
    /// [`NodeError`], also if it is a symbolic link or `..`, or if everyone may write the directory.
    pub(super) fn open(&self, name: &str) -> Result<Self, NodeError> {
        if name == ".." {
            return Err(NodeError::SymbolicLink);
        }
        self.require_private()?;
        let fd = openat(&self.fd, name, NODE_FLAGS, Mode::empty()).map_err(NodeError::Open)?;
        let file = Self::new(fd)?;
        if file_type(&file.stat) == SFlag::S_IFLNK {
            return Err(NodeError::SymbolicLink);
        }
        Ok(file)
    }

    /// Reads the target of a symbolic link in this directory; `None` if the name is no link.
    ///
    /// # Errors
    ///
    /// [`NodeError`] if there is no such name, the target is no UTF-8, or everyone may write the directory.
    pub(super) fn read_link(&self, name: &str) -> Result<Option<String>, NodeError> {
        self.require_private()?;
        match readlinkat(&self.fd, name) {
            Ok(target) => target
                .into_string()
                .map(Some)
                .map_err(|_| NodeError::SymbolicLink),
            Err(Errno::EINVAL) => Ok(None),
            Err(errno) => Err(NodeError::Open(errno)),
        }
    }

    /// Requires that not everyone may write this directory.
    pub(super) fn require_private(&self) -> Result<(), NodeError> {
        if self.stat.st_mode & Mode::S_IWOTH.bits() != 0 {
            return Err(NodeError::WorldWritableParent);
        }
        Ok(())
    }
}

/// Why there is no device node at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NodeError {
    /// The path cannot be opened.
    #[error("{}", .0.desc())]
    Open(Errno),
    /// A component is a symbolic link or `..`.
    #[error("there is a symbolic link or .. in the path")]
    SymbolicLink,
    /// Everyone may write a directory of the path.
    #[error("in a directory that everyone may write")]
    WorldWritableParent,
    /// The file has another type.
    #[error("not a device")]
    NotADevice,
}

impl NodeError {
    /// Tells whether nothing exists at the path.
    pub fn is_absent(self) -> bool {
        self == Self::Open(Errno::ENOENT)
    }
}
