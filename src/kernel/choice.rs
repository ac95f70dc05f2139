//! Makes and finds the directories in which users choose one of their jobs (`job-adopt use`).
//!
//! A choice is the text of one file in a directory that the user owns. It can only choose among the user's
//! running jobs: any other text is ignored.
//!
//! | who | does what |
//! |---|---|
//! | root, in sshd | makes the directory: owner the user, group the helper's, mode 02750 |
//! | the user | writes the file, and replaces it by rename |
//! | user `job-adopt` | reads it, with care |
//!
//! A user may mount a file system over this directory that never answers. So directory and file are opened
//! with `O_PATH`, which does not call the file system, and are used only if they are on the same mount as
//! root's directory above.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, mkdirat};
use nix::unistd::{Gid, Uid, fchownat};

use crate::sys::file::{FileStatus, read_file_status};
use crate::trust::{Distrust, Trust, TrustError, TrustedDir, set_mode};

/// Directory that contains the users' directories.
pub const DIR: &str = "/run/job-adopt/use";

/// Name of the file in a user's directory.
pub const FILE: &str = "job";

/// Mode of a user's directory. New files get the group of the directory, and other accounts see nothing.
pub const USER_MODE: u32 = 0o2750;

/// The choices of all users of a node.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Directory that contains the users' directories.
    pub dir: PathBuf,
    /// Accounts that may own this directory.
    pub trust: Trust,
}

/// The directory of one user.
pub struct UserDir {
    /// Descriptor with `O_PATH`.
    pub fd: OwnedFd,
    /// Path for messages.
    pub path: PathBuf,
    /// Status of the directory when it was opened.
    pub status: FileStatus,
}

impl Choices {
    /// The choices of this node.
    pub fn host() -> Self {
        Self::below(Path::new("/"), Trust::root())
    }

    /// The choices of a node whose files are below `root`.
    pub fn below(root: &Path, trust: Trust) -> Self {
        Self {
            dir: root.join(DIR.trim_start_matches('/')),
            trust,
        }
    }

    /// The path of a user's directory: the uid in decimal below [`Choices::dir`].
    pub fn user_dir(&self, uid: u32) -> PathBuf {
        self.dir.join(uid.to_string())
    }

    /// Finds the directory of a user in `base`; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// [`Distrust::Open`] for a link or a file that is no directory; [`Distrust::Mounted`] if it is on
    /// another mount than `base`.
    pub fn find(&self, base: &TrustedDir, uid: u32) -> Result<Option<UserDir>, TrustError> {
        let path = self.user_dir(uid);
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = match openat(base, uid.to_string().as_str(), flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(TrustError::new(&path, Distrust::Open(errno))),
        };
        let dir = UserDir {
            status: read_status(&fd, &path)?,
            fd,
            path,
        };
        if dir.status.mount != read_status(base, base.path())?.mount {
            return Err(TrustError::new(&dir.path, Distrust::Mounted));
        }
        Ok(Some(dir))
    }

    /// Makes a user's directory, whose files `group` may read, and missing directories above it. An existing
    /// directory of this user gets the right group and mode. Any number of logins may do so at once.
    ///
    /// # Errors
    ///
    /// [`Distrust::WrongOwner`] for a directory of an account other than root and the user, which stays as it is;
    /// as [`Choices::find`] and [`Trust::make_dir`].
    pub fn make(&self, uid: u32, group: u32) -> Result<(), TrustError> {
        let base = self.trust.make_dir(&self.dir)?;
        let dir = match self.find(&base, uid)? {
            Some(dir) => dir,
            None => {
                let path = self.user_dir(uid);
                // Only root can use the directory until it is complete.
                match mkdirat(&base, uid.to_string().as_str(), Mode::S_IRWXU) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(errno) => return Err(TrustError::from_error("mkdir", &path, errno)),
                }
                self.find(&base, uid)?
                    .ok_or_else(|| TrustError::new(&path, Distrust::Open(Errno::ENOENT)))?
            }
        };
        dir.give_to_user(uid, group, self.trust.owner())
    }
}

impl UserDir {
    /// Gives the directory to the user. This is the last step: a directory that its `creator`, who is root, still owns
    /// is unfinished.
    fn give_to_user(self, uid: u32, group: u32, creator: u32) -> Result<(), TrustError> {
        let status = &self.status;
        if status.uid != uid && status.uid != creator {
            return Err(TrustError::new(
                &self.path,
                Distrust::WrongOwner(status.uid),
            ));
        }
        if (status.uid, status.gid, permissions(status)) == (uid, group, USER_MODE) {
            return Ok(());
        }
        set_mode(&self.fd, USER_MODE)
            .map_err(|errno| TrustError::from_error("chmod", &self.path, errno))?;
        let uid = Uid::from_raw(uid);
        let group = Gid::from_raw(group);
        fchownat(&self.fd, "", Some(uid), Some(group), AtFlags::AT_EMPTY_PATH)
            .map_err(|errno| TrustError::from_error("chown", &self.path, errno))
    }
}

/// Reads the status of an open file or directory. The path is for messages.
///
/// # Errors
///
/// [`Distrust::Cannot`] with the error of `statx(2)`.
pub fn read_status(fd: &impl AsFd, path: &Path) -> Result<FileStatus, TrustError> {
    read_file_status(fd.as_fd()).map_err(|error| TrustError::from_error("stat", path, error))
}

/// The mode without the type of the file.
pub fn permissions(status: &FileStatus) -> u32 {
    status.mode & !SFlag::S_IFMT.bits()
}
