//! Whether a cgroup can take a login now (cgroup-v2.rst, "Core Interface Files").

use super::{Dir, Error, Result};

/// What a login has to know of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// It hands controllers to its children, so that it can hold no process itself.
    pub hands_down: bool,
    /// It has child cgroups.
    pub has_children: bool,
}

impl State {
    /// Reads the state of one cgroup.
    /// Errors: [`Error::Unfit`] for a threaded or invalid one, which takes no process.
    pub fn read(dir: &Dir) -> Result<Self> {
        let kind = dir.read("cgroup.type")?.unwrap_or_default();
        let why = match kind.trim_end() {
            "domain" | "domain threaded" => None,
            "threaded" => Some("is threaded and takes threads only"),
            "domain invalid" => Some("is in an invalid domain and takes no process"),
            _ => Some("has an unknown cgroup.type"),
        };
        if let Some(why) = why {
            return Err(Error::Unfit { object: dir.path().to_owned(), why });
        }
        let controllers = dir.read("cgroup.subtree_control")?.unwrap_or_default();
        Ok(Self { hands_down: !controllers.trim().is_empty(), has_children: dir.has_children()? })
    }
}

/// Whether any of these cgroups is frozen or about to be: moving below one would stop us at once,
/// inside sshd (`cgroup.freeze` is the wish, `frozen` in `cgroup.events` the fact).
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
