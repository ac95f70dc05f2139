//! The cgroup that is asked about.

use super::super::Error;
use super::Options;
use crate::cgroup::{self, Dir, Leaf, LeafKind, Mount, Place};
use crate::failed::Failed;
use crate::legible::legible;
use crate::plan::{CgroupPath, JobId};
use crate::registry::{self, Record};
use crate::trust::Trust;

/// A cgroup, as `--cgroup` or `--job` names it.
#[derive(Debug)]
pub(super) enum Target {
    Cgroup(Place),
    Leaf(Leaf),
}

impl Target {
    /// # Errors
    /// [`Error::Failed`] for a cgroup that cannot be opened, and a job that the registry does not
    /// have, or has no cgroup of.
    pub(super) fn of(options: &Options) -> Result<Self, Error> {
        if let Some(path) = &options.cgroup {
            return open(path).map(Self::Cgroup);
        }
        let Some(id) = &options.job else { return Err(super::wrong("give --cgroup or --job")) };
        let record = record(id, options)?;
        let path = match &record.place {
            registry::Place::Cgroup(path) => path,
            registry::Place::Via(via) => {
                let cause = format!("{} knows its cgroup; give --cgroup", via.as_str());
                return Err(Error::failed("find cgroup of job", id, cause));
            }
        };
        let place = open(path)?;
        let kind = LeafKind::choose(place.dir()?, record.leaf.as_ref())?;
        Ok(match Leaf::open(place, kind)? {
            Ok(leaf) => Self::Leaf(leaf),
            // No login has made it yet: what holds at the job will hold in it.
            Err(job) => Self::Cgroup(job),
        })
    }

    /// The cgroup itself first, for a job that of its logins; the root last.
    pub(super) fn levels(&self) -> &[Dir] {
        match self {
            Self::Cgroup(place) => place.levels(),
            Self::Leaf(leaf) => leaf.levels(),
        }
    }

    /// Path of the cgroup itself.
    pub(super) fn path(&self) -> &str {
        self.levels().first().map_or("/", Dir::path)
    }
}

fn open(path: &CgroupPath) -> Result<Place, Error> {
    Mount::open()?.place(path).map_err(not_opened)
}

/// The path of a cgroup looks like that of any file, so the error says what it is of.
fn not_opened(error: cgroup::Error) -> Error {
    match error {
        cgroup::Error::System(Failed { operation, object, source }) => {
            Error::failed(operation, format_args!("cgroup {}", legible(&object)), source)
        }
        error => error.into(),
    }
}

/// The one record of this id.
fn record(id: &JobId, options: &Options) -> Result<Record, Error> {
    let failed = |cause: String| Error::failed("read record of job", id, cause);
    let mut known = options.conf.read()?.registry.find(&Trust::root(), id)?;
    match (known.pop(), known.len()) {
        (None, _) => Err(failed("the registry has none".into())),
        (Some(only), 0) => only.record.map_err(failed),
        (Some(_), others) => Err(failed(format!("the registry has {} of them", others + 1))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;

    #[test]
    fn a_cgroup_that_is_not_there_is_called_one() {
        let failed = Failed::new("open", "/no\nexist", Errno::ENOENT);
        let text = not_opened(cgroup::Error::System(failed)).text().unwrap();
        assert!(text.starts_with("open cgroup /no?exist: No such file"), "{text}");
    }
}
