//! The job that a user wants the next logins to join, of several on this node (`job-adopt use`).
//!
//! The choice is the text of one file in a directory that the user owns. So it says what this user
//! wants and no more: it chooses among the user's running jobs, and any other text is ignored.
//!
//! | who | does what |
//! |---|---|
//! | root, in sshd | makes the directory: owner the user, group the helper's, mode 02750 |
//! | the user | writes the file, and replaces it by rename |
//! | user `job-adopt` | reads it, with care |
//!
//! A user may mount a file system over this directory and never answer who looks there. So directory
//! and file are held by descriptors that open nothing (`O_PATH`), and are used only if they lie on the
//! same mount as root's directory above.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, mkdirat};
use nix::unistd::{Gid, Uid, fchownat};

use crate::sys::file::{Facts, facts};
use crate::trust::{Distrust, Trust, TrustError, TrustedDir, set_mode};

/// Where the directories of users are.
pub const DIR: &str = "/run/job-adopt/use";

/// Name of the file in it.
pub const FILE: &str = "job";

/// Mode of a user's directory: what the user makes in it has the group of it, and others see
/// nothing.
pub const USER_MODE: u32 = 0o2750;

/// The choices of all users of a node.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Where the directories of users are.
    pub dir: PathBuf,
    /// Whose directory that has to be.
    pub trust: Trust,
}

/// The directory of one user.
pub struct UserDir {
    /// A descriptor that opens nothing.
    pub fd: OwnedFd,
    /// Its path, for messages.
    pub path: PathBuf,
    /// What the kernel told about it.
    pub facts: Facts,
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
    pub fn find(&self, base: &TrustedDir, uid: u32) -> Result<Option<UserDir>, TrustError> {
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

    /// Makes a user's directory, whose files `group` may read, and missing directories above it. An
    /// existing directory of this user gets the right group and mode. Any number of logins may do so
    /// at once. Errors: a directory of anybody but root and the user is left alone and refused.
    pub fn make(&self, uid: u32, group: u32) -> Result<(), TrustError> {
        let base = self.trust.make_dir(&self.dir)?;
        let dir = match self.find(&base, uid)? {
            Some(dir) => dir,
            None => {
                let path = self.user_dir(uid);
                // Nobody's but root's until it is as it should be.
                match mkdirat(&base, uid.to_string().as_str(), Mode::S_IRWXU) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(errno) => return Err(TrustError::cannot("mkdir", &path, errno)),
                }
                self.find(&base, uid)?
                    .ok_or_else(|| TrustError::new(&path, Distrust::Open(Errno::ENOENT)))?
            }
        };
        dir.hand_over(uid, group, self.trust.owner())
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
        set_mode(&self.fd, USER_MODE)
            .map_err(|errno| TrustError::cannot("chmod", &self.path, errno))?;
        let (uid, group) = (Uid::from_raw(uid), Gid::from_raw(group));
        fchownat(&self.fd, "", Some(uid), Some(group), AtFlags::AT_EMPTY_PATH)
            .map_err(|errno| TrustError::cannot("chown", &self.path, errno))
    }
}

/// What the kernel tells about an open file or directory, whose path is for messages.
///
/// # Errors
/// [`TrustError`] where it tells nothing.
pub fn facts_of(fd: &impl AsFd, path: &Path) -> Result<Facts, TrustError> {
    facts(fd.as_fd()).map_err(|error| TrustError::cannot("stat", path, error))
}

/// The mode without the type of the file.
pub fn permissions(facts: &Facts) -> u32 {
    facts.mode & !SFlag::S_IFMT.bits()
}
