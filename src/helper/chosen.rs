//! Reading a choice, without privilege.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag};

use crate::kernel::choice::{Choices, FILE, UserDir, facts_of, permissions};
use crate::kernel::sys::file::Facts;
use crate::kernel::trust::{Distrust, TrustError};
use crate::protocol::JobId;

/// Most bytes of the file: a job's id and the end of its line.
const FILE_MAX: u64 = 65;
/// What nobody but the owner may have: leave to write.
const OTHERS_WRITE: u32 = 0o022;

impl Choices {
    /// The job that the user wants; `None` where there is no directory of theirs, or no file in it.
    /// This waits for nobody.
    /// Errors: [`TrustError`] where the file cannot be trusted to be this user's choice.
    pub(crate) fn read(&self, uid: u32) -> Result<Option<JobId>, TrustError> {
        let base = match self.trust.dir(&self.dir) {
            Ok(base) => base,
            Err(error) if error.is_missing() => return Ok(None),
            Err(error) => return Err(error),
        };
        match self.find(&base, uid)? {
            Some(dir) => dir.read(uid),
            None => Ok(None),
        }
    }
}

impl UserDir {
    fn read(self, uid: u32) -> Result<Option<JobId>, TrustError> {
        self.facts.is_only(uid).map_err(|wrong| TrustError::new(&self.path, wrong))?;
        let path = self.path.join(FILE);
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let found = match openat(&self.fd, FILE, flags, Mode::empty()) {
            Ok(found) => found,
            Err(Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(TrustError::cannot("open", &path, errno)),
        };
        let facts = facts_of(&found, &path)?;
        let text = match self.facts.may_hold(&facts, uid) {
            Ok(()) => read(&found, &path)?,
            Err(wrong) => return Err(TrustError::new(&path, wrong)),
        };
        parse(&text).map(Some).map_err(|wrong| TrustError::new(&path, wrong))
    }
}

impl Facts {
    /// Whether nobody but this user may write it.
    pub(crate) fn is_only(&self, uid: u32) -> Result<(), Distrust> {
        match permissions(self) {
            _ if self.uid != uid => Err(Distrust::Owner(self.uid)),
            mode if mode & OTHERS_WRITE != 0 => Err(Distrust::Mode(mode)),
            _ => Ok(()),
        }
    }

    /// Whether a file in this directory may be a choice of this user's.
    pub(crate) fn may_hold(&self, file: &Self, uid: u32) -> Result<(), Distrust> {
        match file {
            _ if file.mount != self.mount => Err(Distrust::Mounted),
            _ if file.mode & SFlag::S_IFMT.bits() != SFlag::S_IFREG.bits() => {
                Err(Distrust::NotRegular)
            }
            _ if file.links != 1 => Err(Distrust::Links(file.links)),
            _ if file.size > FILE_MAX => Err(Distrust::TooLarge(FILE_MAX)),
            _ => file.is_only(uid),
        }
    }
}

/// Reads the file by the descriptor that found it, so no other can have taken its place. `O_NONBLOCK`
/// keeps the call from waiting for a lease on the file (fcntl(2)).
fn read(found: &OwnedFd, path: &Path) -> Result<Vec<u8>, TrustError> {
    let by_fd = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = open(by_fd.as_str(), flags, Mode::empty())
        .map_err(|errno| TrustError::cannot("open", path, errno))?;
    let mut text = Vec::new();
    File::from(file)
        .take(FILE_MAX + 1)
        .read_to_end(&mut text)
        .map_err(|error| TrustError::cannot("read", path, error))?;
    Ok(text)
}

/// The id that a choice is: alone on the one line of its file.
/// Errors: [`Distrust::TooLarge`], [`Distrust::Lacks`].
pub fn parse(text: &[u8]) -> Result<JobId, Distrust> {
    if text.len() as u64 > FILE_MAX {
        return Err(Distrust::TooLarge(FILE_MAX));
    }
    let line = std::str::from_utf8(text).ok().and_then(|text| text.strip_suffix('\n'));
    line.and_then(|id| id.parse().ok()).ok_or(Distrust::Lacks("job's id"))
}
