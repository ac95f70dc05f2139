//! Making a user's directory, as root.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, mkdirat};
use nix::unistd::{Gid, Uid, fchownat};

use super::{ChoiceError, Choices, USER_MODE, UserDir, Wrong, permissions, system};
use crate::trust::TrustedDir;

/// Mode of the directories above the users'.
const BASE_MODE: u32 = 0o755;

impl Choices {
    /// Makes the directory of a user, whose choices the group `group` may read, and those above it
    /// where they are missing. One that is there is as good as made; of one that is the user's own,
    /// group and mode are set right. Any number of logins may do so at once.
    ///
    /// # Errors
    /// [`ChoiceError`]; what is there and is neither root's nor the user's own stays as it is.
    pub fn make(&self, uid: u32, group: u32) -> Result<(), ChoiceError> {
        let base = self.base(&self.dir)?;
        let dir = match self.find(&base, uid)? {
            Some(dir) => dir,
            None => {
                let path = self.user_dir(uid);
                // Nobody's but root's until it is as it should be.
                match mkdirat(&base, uid.to_string().as_str(), Mode::S_IRWXU) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(errno) => return Err(system("mkdir", &path, errno)),
                }
                self.find(&base, uid)?.ok_or_else(|| system("open", &path, Errno::ENOENT))?
            }
        };
        dir.hand_over(uid, group, self.trust.owner())
    }

    /// Opens a directory of root's, and makes it and those above it where they are missing.
    fn base(&self, path: &Path) -> Result<TrustedDir, ChoiceError> {
        let missing = match self.trust.dir(path) {
            Ok(dir) => return Ok(dir),
            Err(error) if error.is_missing() => ChoiceError::Distrusted(error),
            Err(error) => return Err(ChoiceError::Distrusted(error)),
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(missing);
        };
        let parent = self.base(parent)?;
        let made = mkdirat(&parent, name, Mode::from_bits_truncate(BASE_MODE));
        let dir = parent.dir(Path::new(name)).map_err(ChoiceError::Distrusted)?;
        match made {
            // The helper has to get through it, whatever our caller's umask is.
            Ok(()) => set_mode(&dir, BASE_MODE).map_err(|errno| system("chmod", path, errno))?,
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(system("mkdir", path, errno)),
        }
        Ok(dir)
    }
}

impl UserDir {
    /// Gives it to the user. That comes last, so that one that is the maker's was not finished.
    fn hand_over(self, uid: u32, group: u32, maker: u32) -> Result<(), ChoiceError> {
        let facts = &self.facts;
        if facts.uid != uid && facts.uid != maker {
            return Err(ChoiceError::Wrong(self.path, Wrong::Owner(facts.uid)));
        }
        if (facts.uid, facts.gid, permissions(facts)) == (uid, group, USER_MODE) {
            return Ok(());
        }
        set_mode(&self.fd, USER_MODE).map_err(|errno| system("chmod", &self.path, errno))?;
        let (uid, group) = (Uid::from_raw(uid), Gid::from_raw(group));
        fchownat(&self.fd, "", Some(uid), Some(group), AtFlags::AT_EMPTY_PATH)
            .map_err(|errno| system("chown", &self.path, errno))
    }
}

/// Sets the mode of what was only found (`O_PATH`), which `fchmod(2)` refuses.
fn set_mode(fd: &impl AsFd, mode: u32) -> nix::Result<()> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let mode = Mode::from_bits_truncate(mode);
    fchmodat(AT_FDCWD, path.as_str(), mode, FchmodatFlags::FollowSymlink)
}
