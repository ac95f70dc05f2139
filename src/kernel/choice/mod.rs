//! The job that a user wants the next logins to join, of several on this node (`job-adopt use`).
//!
//! The choice is the text of one file in a directory that is the user's own, so nothing in it is
//! believed but that this user wants it: it chooses among the user's running jobs, and anything else
//! is left unused.
//!
//! | who | does what |
//! |---|---|
//! | root, in sshd | makes the directory: owner the user, group the helper's, mode 02750 |
//! | the user | writes the file, and replaces it by rename |
//! | user `job-adopt` | reads it, with care |
//!
//! A user may mount a file system of their own over what is theirs and leave whoever looks there
//! without an answer. So the directory and the file are held by descriptors that open nothing
//! (`O_PATH`), and are used only where they lie on the mount that root's directory lies on.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, mkdirat};
use nix::unistd::{Gid, Uid, fchownat};

use crate::kernel::sys::file::{Facts, facts};
use crate::kernel::trust::{Distrust, Trust, TrustError, TrustedDir};

/// Where the directories of users are.
pub const DIR: &str = "/run/job-adopt/use";

/// Name of the file in it.
pub const FILE: &str = "job";

/// Mode of a user's directory: what the user makes in it has the group of it, and others see
/// nothing.
pub(crate) const USER_MODE: u32 = 0o2750;
/// Mode of the directories above the users'.
const BASE_MODE: u32 = 0o755;

/// The choices of all users of a node.
#[derive(Clone, Debug)]
pub struct Choices {
    pub(crate) dir: PathBuf,
    pub(crate) trust: Trust,
}

/// The directory of one user.
pub(crate) struct UserDir {
    pub(crate) fd: OwnedFd,
    pub(crate) path: PathBuf,
    pub(crate) facts: Facts,
}

impl Choices {
    /// The choices of this node.
    pub fn here() -> Self {
        Self::below(Path::new("/"), Trust::root())
    }

    /// Those of a node whose files lie below `root` and are believed as `trust` says.
    pub fn below(root: &Path, trust: Trust) -> Self {
        Self { dir: root.join(DIR.trim_start_matches('/')), trust }
    }

    /// The directory of one user.
    pub fn user_dir(&self, uid: u32) -> PathBuf {
        self.dir.join(uid.to_string())
    }

    /// Finds the directory of a user in `base`; `None` where there is none.
    pub(crate) fn find(&self, base: &TrustedDir, uid: u32) -> Result<Option<UserDir>, TrustError> {
        let path = self.user_dir(uid);
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = match openat(base, uid.to_string().as_str(), flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(TrustError::new(&path, Distrust::Open(errno))),
        };
        let dir = UserDir { facts: facts_of(&fd, &path)?, fd, path };
        if dir.facts.mount != facts_of(base, base.path())?.mount {
            return Err(TrustError::new(&dir.path, Distrust::Mounted));
        }
        Ok(Some(dir))
    }

    /// Makes the directory of a user, whose choices the group `group` may read, and those above it
    /// where they are missing. One that is there is as good as made; of one that is the user's own,
    /// group and mode are set right. Any number of logins may do so at once.
    /// Errors: what is there and is neither root's nor the user's own stays as it is.
    pub fn make(&self, uid: u32, group: u32) -> Result<(), TrustError> {
        let base = self.base(&self.dir)?;
        let dir = match self.find(&base, uid)? {
            Some(dir) => dir,
            None => {
                let path = self.user_dir(uid);
                // Nobody's but root's until it is as it should be.
                match mkdirat(&base, uid.to_string().as_str(), Mode::S_IRWXU) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(errno) => return Err(failed("mkdir", &path, errno)),
                }
                self.find(&base, uid)?
                    .ok_or_else(|| TrustError::new(&path, Distrust::Open(Errno::ENOENT)))?
            }
        };
        dir.hand_over(uid, group, self.trust.owner())
    }

    /// Opens a directory of root's, and makes it and those above it where they are missing.
    fn base(&self, path: &Path) -> Result<TrustedDir, TrustError> {
        let missing = match self.trust.dir(path) {
            Err(error) if error.is_missing() => error,
            found => return found,
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(missing);
        };
        let parent = self.base(parent)?;
        let made = mkdirat(&parent, name, Mode::from_bits_truncate(BASE_MODE));
        let dir = parent.dir(Path::new(name))?;
        match made {
            // The helper has to get through it, whatever our caller's umask is.
            Ok(()) => set_mode(&dir, BASE_MODE).map_err(|errno| failed("chmod", path, errno))?,
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(failed("mkdir", path, errno)),
        }
        Ok(dir)
    }
}

impl UserDir {
    /// Gives it to the user. That comes last, so that one that is the maker's was not finished.
    fn hand_over(self, uid: u32, group: u32, maker: u32) -> Result<(), TrustError> {
        let facts = &self.facts;
        if facts.uid != uid && facts.uid != maker {
            return Err(TrustError::new(&self.path, Distrust::Owner(facts.uid)));
        }
        if (facts.uid, facts.gid, permissions(facts)) == (uid, group, USER_MODE) {
            return Ok(());
        }
        set_mode(&self.fd, USER_MODE).map_err(|errno| failed("chmod", &self.path, errno))?;
        let (uid, group) = (Uid::from_raw(uid), Gid::from_raw(group));
        fchownat(&self.fd, "", Some(uid), Some(group), AtFlags::AT_EMPTY_PATH)
            .map_err(|errno| failed("chown", &self.path, errno))
    }
}

/// Sets the mode of what was only found (`O_PATH`), which `fchmod(2)` refuses.
fn set_mode(fd: &impl AsFd, mode: u32) -> nix::Result<()> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let mode = Mode::from_bits_truncate(mode);
    fchmodat(AT_FDCWD, path.as_str(), mode, FchmodatFlags::FollowSymlink)
}

pub(crate) fn facts_of(fd: &impl AsFd, path: &Path) -> Result<Facts, TrustError> {
    facts(fd.as_fd()).map_err(|error| failed("stat", path, error))
}

pub(crate) fn permissions(facts: &Facts) -> u32 {
    facts.mode & !SFlag::S_IFMT.bits()
}

/// That this operation on what is there failed.
pub(crate) fn failed(
    operation: &'static str,
    path: &Path,
    error: impl Into<io::Error>,
) -> TrustError {
    let errno = Errno::from_raw(error.into().raw_os_error().unwrap_or(0));
    TrustError::new(path, Distrust::Cannot { operation, errno })
}

#[cfg(test)]
mod tests;
