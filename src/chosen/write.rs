//! Making a choice and undoing it, as the user.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::{
    ChoiceError, Choices, FILE, FILE_MODE, USER_MODE, UserDir, Wrong, permissions, system,
};
use crate::failed::Failed;
use crate::plan::JobId;

impl Choices {
    /// Chooses a job for the next logins of the calling user.
    ///
    /// # Errors
    /// [`ChoiceError::Missing`] before the directory was made; [`ChoiceError::Wrong`] where the
    /// user has changed it so that the helper could not read a choice in it.
    pub fn put(&self, uid: u32, id: &JobId) -> Result<(), ChoiceError> {
        let dir = self.own(uid)?;
        let mode = permissions(&dir.facts);
        if mode != USER_MODE {
            return Err(ChoiceError::Wrong(dir.path, Wrong::Mode(mode)));
        }
        // Of two at once, the later rename counts.
        let unfinished = format!(".{FILE}.{}", std::process::id());
        let written = dir.write(&unfinished, id);
        if written.is_err() {
            let _ = unlinkat(&dir.fd, unfinished.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        written
    }

    /// Chooses none; `false` where none was chosen.
    ///
    /// # Errors
    /// As [`Choices::put`].
    pub fn clear(&self, uid: u32) -> Result<bool, ChoiceError> {
        let dir = self.own(uid)?;
        match unlinkat(&dir.fd, FILE, UnlinkatFlags::NoRemoveDir) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(system("remove", &dir.path.join(FILE), errno)),
        }
    }

    fn own(&self, uid: u32) -> Result<UserDir, ChoiceError> {
        let missing = || ChoiceError::Missing(self.user_dir(uid));
        let base = self.trust.dir(&self.dir).map_err(|error| match error.is_missing() {
            true => missing(),
            false => ChoiceError::Distrusted(error),
        })?;
        let dir = self.find(&base, uid)?.ok_or_else(missing)?;
        match dir.facts.uid {
            owner if owner == uid => Ok(dir),
            owner => Err(ChoiceError::Wrong(dir.path, Wrong::Owner(owner))),
        }
    }
}

impl UserDir {
    fn write(&self, unfinished: &str, id: &JobId) -> Result<(), ChoiceError> {
        let path = self.path.join(FILE);
        let failed = |errno| system("write", &path, errno);
        let mut file = File::from(self.create(unfinished).map_err(failed)?);
        fchmod(&file, Mode::from_bits_truncate(FILE_MODE)).map_err(failed)?;
        writeln!(file, "{id}").map_err(|error| {
            ChoiceError::System(Failed::new("write", path.to_string_lossy(), error))
        })?;
        renameat(&self.fd, unfinished, &self.fd, FILE).map_err(failed)
    }

    /// Creates a file of that name, in place of one that a process of the same number has left.
    fn create(&self, name: &str) -> nix::Result<OwnedFd> {
        match unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        openat(&self.fd, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)
    }
}
