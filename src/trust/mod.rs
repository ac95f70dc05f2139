//! Reading what only root can have written.
//!
//! Records and configuration decide who may log in and which devices they see, so each file is
//! believed only after the kernel has been asked about the open descriptor: a regular file, owned
//! by root, writable by nobody else, with one name, of bounded size, below directories of which
//! the same holds. No symbolic link is followed, so a path that was checked is the path that was
//! read.

#![forbid(unsafe_code)]

mod error;

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::dir::Dir;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag};

pub use error::{Distrust, TrustError};

/// Who has to own a file, and from which directory on.
#[derive(Clone, Debug)]
pub struct Trust {
    owner: u32,
    other: Option<u32>,
    anchor: PathBuf,
}

impl Trust {
    /// Everything from `/` on has to be root's.
    pub fn root() -> Self {
        Self { owner: 0, other: None, anchor: PathBuf::from("/") }
    }

    /// Everything below `anchor` has to be `owner`'s; `anchor` and what is above it are taken as
    /// they are.
    pub fn below(anchor: &Path, owner: u32) -> Self {
        Self { owner, other: None, anchor: anchor.to_owned() }
    }

    /// The same, but that what belongs to `uid` is believed as well.
    pub fn or_owned_by(self, uid: u32) -> Self {
        Self { other: Some(uid), ..self }
    }

    /// Whose files are believed: root, but in a test.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Opens a directory after checking it and every directory on the way.
    /// Errors: [`TrustError`] names the first directory that is missing, a link, someone else's, or
    /// writable by others; also a path outside the anchor or with `..` in it.
    pub fn dir(&self, path: &Path) -> Result<TrustedDir, TrustError> {
        let relative = path
            .strip_prefix(&self.anchor)
            .map_err(|_| TrustError::new(path, Distrust::Outside))?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        let mut dir = nix::fcntl::open(&self.anchor, flags | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|errno| TrustError::new(&self.anchor, Distrust::Open(errno)))?;
        let mut shown = self.anchor.clone();
        if self.anchor == Path::new("/") {
            self.check_dir(&dir, &shown)?;
        }
        for component in relative.components() {
            let Component::Normal(name) = component else {
                return Err(TrustError::new(path, Distrust::Outside));
            };
            shown.push(name);
            dir = open_below(&dir, Path::new(name), flags, &shown)?;
            self.check_dir(&dir, &shown)?;
        }
        Ok(TrustedDir { trust: self.clone(), dir, path: shown })
    }

    /// Reads a file of at most `limit` bytes after checking it and every directory on the way.
    pub fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, TrustError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(TrustError::new(path, Distrust::Outside));
        };
        self.dir(parent)?.read(Path::new(name), limit)
    }

    fn check_dir(&self, dir: &OwnedFd, shown: &Path) -> Result<(), TrustError> {
        let stat = nix::sys::stat::fstat(dir)
            .map_err(|errno| TrustError::new(shown, Distrust::Open(errno)))?;
        self.check_owner(stat.st_uid, stat.st_mode, shown)
    }

    fn check_owner(&self, uid: u32, mode: u32, shown: &Path) -> Result<(), TrustError> {
        if uid != self.owner && Some(uid) != self.other {
            return Err(TrustError::new(shown, Distrust::Owner(uid)));
        }
        // A write grant by an access control list shows in the group bits, which are its mask.
        if mode & 0o022 != 0 {
            return Err(TrustError::new(shown, Distrust::Writable(mode & 0o7777)));
        }
        Ok(())
    }
}

/// A directory that has been checked; the descriptor stays on it whatever happens to its path.
#[derive(Debug)]
pub struct TrustedDir {
    trust: Trust,
    dir: OwnedFd,
    path: PathBuf,
}

/// What a name in a directory stands for.
#[derive(Debug)]
pub enum Entry {
    /// A directory, which has been checked.
    Dir(TrustedDir),
    /// A regular file.
    File,
    /// A character device, as where `/dev/null` is mounted over a file.
    CharDevice,
    /// A symbolic link, a pipe, a socket or a block device.
    Other,
}

impl AsFd for TrustedDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

impl TrustedDir {
    /// The path by which it was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens and checks a directory in this one.
    pub fn dir(&self, name: &Path) -> Result<Self, TrustError> {
        let path = self.path.join(name);
        let dir = open_below(&self.dir, name, OFlag::O_PATH | OFlag::O_DIRECTORY, &path)?;
        self.trust.check_dir(&dir, &path)?;
        Ok(Self { trust: self.trust.clone(), dir, path })
    }

    /// The names in the directory, sorted, without those that begin with a dot. A name that is no
    /// UTF-8 is given with replacement characters, which no name of ours has.
    /// Errors: [`Distrust::Open`] where it cannot be listed, [`Distrust::Crowded`] past `limit`
    /// names.
    pub fn names(&self, limit: usize) -> Result<Vec<String>, TrustError> {
        self.list(limit, |name| !name.starts_with('.'))
    }

    /// As [`TrustedDir::names`], those that begin with a dot included.
    pub fn all_names(&self, limit: usize) -> Result<Vec<String>, TrustError> {
        self.list(limit, |name| name != "." && name != "..")
    }

    fn list(&self, limit: usize, wanted: fn(&str) -> bool) -> Result<Vec<String>, TrustError> {
        let failed = |errno| TrustError::new(&self.path, Distrust::Open(errno));
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut dir = Dir::openat(self.dir.as_fd(), ".", flags, Mode::empty()).map_err(failed)?;
        let mut names = Vec::new();
        for entry in dir.iter() {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if !wanted(&name) {
                continue;
            }
            if names.len() >= limit {
                return Err(TrustError::new(&self.path, Distrust::Crowded(limit)));
            }
            names.push(name);
        }
        names.sort_unstable();
        Ok(names)
    }

    /// What the entry of this name is, for a caller to whom a file says all by its name. A
    /// directory is checked as [`Trust::dir`] does; of a file only the type is looked at, since in
    /// a directory that has been checked nobody else can have named it.
    pub fn entry(&self, name: &Path) -> Result<Entry, TrustError> {
        let path = self.path.join(name);
        let fd = open_below(&self.dir, name, OFlag::O_PATH, &path)?;
        let stat = nix::sys::stat::fstat(&fd)
            .map_err(|errno| TrustError::new(&path, Distrust::Open(errno)))?;
        match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFDIR => {
                self.trust.check_owner(stat.st_uid, stat.st_mode, &path)?;
                Ok(Entry::Dir(Self { trust: self.trust.clone(), dir: fd, path }))
            }
            SFlag::S_IFREG => Ok(Entry::File),
            SFlag::S_IFCHR => Ok(Entry::CharDevice),
            _ => Ok(Entry::Other),
        }
    }

    /// Reads a file of at most `limit` bytes in this directory.
    /// Errors: [`TrustError`] where it is missing, a link, no regular file, someone else's,
    /// writable by others, has a second name, or is larger.
    pub fn read(&self, name: &Path, limit: u64) -> Result<Vec<u8>, TrustError> {
        let path = self.path.join(name);
        let distrust = |why| TrustError::new(&path, why);
        // Without O_NONBLOCK, opening a FIFO that somebody left here would wait for its writer.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = File::from(open_below(&self.dir, name, flags, &path)?);
        let meta = file.metadata().map_err(|error| distrust(Distrust::from_io(&error)))?;
        if !meta.is_file() {
            return Err(distrust(Distrust::NotRegular));
        }
        self.trust.check_owner(meta.uid(), meta.mode(), &path)?;
        if meta.nlink() != 1 {
            return Err(distrust(Distrust::Links(meta.nlink())));
        }
        let mut bytes = Vec::new();
        let mut bounded = file.take(limit.saturating_add(1));
        bounded.read_to_end(&mut bytes).map_err(|error| distrust(Distrust::from_io(&error)))?;
        if bytes.len() as u64 > limit {
            return Err(distrust(Distrust::TooLarge(limit)));
        }
        Ok(bytes)
    }
}

fn open_below(
    dir: &OwnedFd,
    name: &Path,
    flags: OFlag,
    shown: &Path,
) -> Result<OwnedFd, TrustError> {
    openat(dir, name, flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| TrustError::new(shown, Distrust::Open(errno)))
}

#[cfg(test)]
pub(crate) mod tests;
