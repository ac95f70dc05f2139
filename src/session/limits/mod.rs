//! The resource limits of a job's own process, for the login (getrlimit(2)).
//!
//! The helper names the process and is not believed: it has to be the user's and in the job. Users
//! may lower limits of their own processes as they like, so that what is taken is what they can
//! choose; see [`table`] for what is left out for that.

mod error;
mod source;
mod table;

pub use error::LimitsFailure;
pub(super) use source::limits_of;
pub(super) use table::Limits;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use table::{Kind, Limit};

/// Limits on their way to a login: those that the calling process had before.
#[derive(Debug, Default)]
pub(super) struct Setting {
    before: Vec<(Kind, Limit)>,
}

impl Setting {
    /// Sets them on the calling process, all or none: a hard limit that was lowered is not to be
    /// had back without `CAP_SYS_RESOURCE`, so what may fail comes first. That is raising one; and
    /// `nofile`, which no process may have above `fs.nr_open`, and which is first in the table.
    ///
    /// # Errors
    /// [`LimitsFailure::Set`]; those set so far stay until [`Setting::take_back`].
    pub(super) fn put(&mut self, wanted: &Limits) -> Result<(), LimitsFailure> {
        for lowers in [false, true] {
            for (kind, limit) in wanted.iter() {
                let now = current(kind.resource).map_err(|errno| failed(kind, limit, errno))?;
                if now != *limit && (limit.hard < now.hard) == lowers {
                    setrlimit(kind.resource, limit.soft, limit.hard)
                        .map_err(|errno| failed(kind, limit, errno))?;
                    self.before.push((*kind, now));
                }
            }
        }
        Ok(())
    }

    /// Leaves them as they are now.
    pub(super) fn keep(&mut self) {
        self.before.clear();
    }

    /// Sets those of before, as far as that is allowed.
    pub(super) fn take_back(&mut self) {
        for (kind, limit) in self.before.drain(..).rev() {
            let _ = setrlimit(kind.resource, limit.soft, limit.hard);
        }
    }
}

fn current(resource: Resource) -> Result<Limit, Errno> {
    getrlimit(resource).map(|(soft, hard)| Limit { soft, hard })
}

fn failed(kind: &Kind, limit: &Limit, errno: Errno) -> LimitsFailure {
    LimitsFailure::Set { name: kind.name, limit: limit.to_string(), errno }
}
