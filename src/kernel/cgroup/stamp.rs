//! Our marks on a cgroup's directory: extended attributes of the namespace `trusted` (xattr(7)). Only
//! root can set or see them, and they end with the directory.

use super::{Dir, Error, Result};
use crate::kernel::sys;
use crate::protocol::JobId;
use std::ffi::CStr;
use std::fmt;
use std::os::fd::AsFd;

pub(crate) const STAMP: &CStr = c"trusted.job_adopt";
const PIN: &CStr = c"trusted.job_adopt_pin";
pub(crate) const NAMESPACE: &CStr = c"trusted.job_adopt_namespace";

/// Whose job a cgroup is: `uid:id`. Set by `register`, withdrawn first of all by `unregister`, so
/// a stamp that stands also says that the job is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The owner's numeric user id.
    pub uid: u32,
    /// The job.
    pub job: JobId,
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.job)
    }
}

impl Stamp {
    /// Reads a directory's stamp; `None` when it has none.
    /// Errors: as `fgetxattr(2)`; [`Error::Wrong`] for a stamp that is not of the form
    /// `uid:id`.
    pub fn read(dir: &Dir) -> Result<Option<Self>> {
        let Some(value) = get(dir, STAMP)? else { return Ok(None) };
        let malformed = || Error::malformed(&format!("stamp of {}", dir.path()));
        let text = String::from_utf8(value).map_err(|_| malformed())?;
        let (uid, job) = text.split_once(':').ok_or_else(malformed)?;
        let stamp = Self {
            uid: uid.parse().map_err(|_| malformed())?,
            job: job.parse().map_err(|_| malformed())?,
        };
        if stamp.to_string() == text { Ok(Some(stamp)) } else { Err(malformed()) }
    }

    /// Refuses a directory that does not carry exactly this stamp.
    /// Errors: [`Error::Wrong`] without a stamp or with another one, else as [`Stamp::read`].
    pub fn require(&self, dir: &Dir) -> Result<()> {
        let why = match Self::read(dir)? {
            Some(found) if found == *self => return Ok(()),
            Some(_) => "is stamped for another job",
            None => "is not stamped for a job",
        };
        Err(Error::unfit(dir.path(), why))
    }
}

/// Name of the mark "this directory was made by us", which lets us empty and remove it.
pub const MADE: &CStr = c"trusted.job_adopt_made";

/// Marks a directory; a mark that stands already is no failure.
pub(crate) fn mark(dir: &Dir, name: &CStr) -> Result<()> {
    match sys::file::set_xattr(dir.as_fd(), name, b"1", libc::XATTR_CREATE) {
        Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
            Err(dir.failed("mark", "", error))
        }
        _ => Ok(()),
    }
}

/// Whether a directory has a mark of this name.
pub(crate) fn is_marked(dir: &Dir, name: &CStr) -> Result<bool> {
    get(dir, name).map(|value| value.is_some())
}

/// The id of the pin that we attached to a cgroup; `None` without one. A pin is a copy of somebody
/// else's filter, and its program looks the same, so the id is kept in an attribute.
pub fn pin(dir: &Dir) -> Result<Option<u32>> {
    let value = get(dir, PIN)?;
    Ok(value.and_then(|value| std::str::from_utf8(&value).ok()?.parse().ok()))
}

/// Marks a pin, in place of the last one.
pub(crate) fn mark_pin(dir: &Dir, id: u32) -> Result<()> {
    sys::file::set_xattr(dir.as_fd(), PIN, id.to_string().as_bytes(), 0)
        .map_err(|error| dir.failed("mark", "", error))
}

/// What `register` was told to find the job's namespace of mounts by: a path, or the number of a process.
pub fn namespace(dir: &Dir) -> Result<Option<String>> {
    let malformed = |_| Error::malformed(&format!("namespace of {}", dir.path()));
    get(dir, NAMESPACE)?.map(|value| String::from_utf8(value).map_err(malformed)).transpose()
}

fn get(dir: &Dir, name: &CStr) -> Result<Option<Vec<u8>>> {
    match sys::file::get_xattr(dir.as_fd(), name) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(None),
        Err(error) => Err(dir.failed("read mark of", "", error)),
    }
}
