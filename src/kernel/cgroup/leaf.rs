//! The cgroup that a job's logins are put into, and whether it can take one now (cgroup-v2.rst,
//! "Core Interface Files").

use super::{Dir, Error, Place, Result};
use crate::protocol::LeafName;

/// The child of a job's cgroup that takes its logins, which may not be there yet; `None` where the job's
/// own does. The child that a record names is always used. Otherwise it is the default one where the
/// job's own cgroup can hold no process, or already has children of its own.
pub fn choose(job: &Dir, wanted: Option<&LeafName>) -> Result<Option<LeafName>> {
    let is_leaf = is_leaf(job)?;
    Ok(wanted.cloned().or_else(|| (!is_leaf).then(LeafName::default)))
}

impl Place {
    /// The leaf of this job: a child of that name, or the job's own cgroup. Gives the job back where
    /// there is no such child.
    /// Fails: [`Error::Unfit`] for a child that can take no process.
    pub fn leaf(self, child: Option<&LeafName>) -> Result<std::result::Result<Self, Self>> {
        let Some(name) = child else { return Ok(Ok(self)) };
        match self.dir()?.child(name.as_str()) {
            Ok(dir) if is_leaf(&dir)? => Ok(Ok(self.below(dir))),
            Ok(dir) => {
                let why = "is to take logins and is no leaf";
                Err(Error::Unfit { object: dir.path().to_owned(), why })
            }
            Err(error) if error.is_gone() => Ok(Err(self)),
            Err(error) => Err(error),
        }
    }
}

/// Whether a cgroup can hold processes itself: it has no children, and hands no controllers to any.
/// Errors: [`Error::Unfit`] for a threaded or invalid one, which takes no process.
fn is_leaf(dir: &Dir) -> Result<bool> {
    let kind = dir.read("cgroup.type")?.unwrap_or_default();
    let why = match kind.trim_end() {
        "domain" | "domain threaded" => {
            let controllers = dir.read("cgroup.subtree_control")?.unwrap_or_default();
            return Ok(controllers.trim().is_empty() && !dir.has_children()?);
        }
        "threaded" => "is threaded and takes threads only",
        "domain invalid" => "is in an invalid domain and takes no process",
        _ => "has an unknown cgroup.type",
    };
    Err(Error::Unfit { object: dir.path().to_owned(), why })
}

/// Whether any of these cgroups is frozen or about to be: moving below one would stop us at once,
/// inside sshd (`cgroup.freeze` is what was asked for, `frozen` in `cgroup.events` what is).
/// Errors: as [`Dir::read`]; kernels before 5.2 have no freezer here, and the root never has.
pub fn frozen_level(levels: &[Dir]) -> Result<Option<&Dir>> {
    for dir in levels {
        let wanted = dir.read("cgroup.freeze")?.is_some_and(|text| text.trim_end() == "1");
        if wanted {
            return Ok(Some(dir));
        }
    }
    match levels.first() {
        Some(leaf) if event(leaf, "frozen")? == Some(true) => Ok(Some(leaf)),
        _ => Ok(None),
    }
}

/// One flag of `cgroup.events`; `None` where the kernel has none of that name.
pub fn event(dir: &Dir, key: &str) -> Result<Option<bool>> {
    let events = dir.read("cgroup.events")?.unwrap_or_default();
    Ok(events.lines().find_map(|line| {
        let (found, value) = line.split_once(' ')?;
        (found == key).then(|| value.trim() == "1")
    }))
}
