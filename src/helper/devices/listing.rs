//! What directories that only root can have written hold.

use std::os::fd::AsFd;
use std::path::Path;

use nix::dir::Dir;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag};

use crate::kernel::trust::{Distrust, TrustError, TrustedDir, open_below};

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

impl TrustedDir {
    /// The names in the directory, sorted, without those that begin with a dot. A name that is no
    /// UTF-8 is given with replacement characters, which no name of ours has.
    /// Fails: [`Distrust::Open`] where it cannot be listed, [`Distrust::Crowded`] past `limit`
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
    /// directory is checked as [`crate::kernel::trust::Trust::dir`] does; of a file only the type is looked at, since in
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
}
