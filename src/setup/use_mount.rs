//! The file system of `job-adopt use`, which systemd mounts at each boot.

use super::file_change::{Content, FileChange, at};
use command::error::Error;
use std::path::{Path, PathBuf};

pub(super) const MOUNT_UNIT: &str = r"run-job\x2dadopt-use.mount";
/// The place of the mount.
pub(super) const MOUNT_POINT: &str = "/run/job-adopt/use";
/// The folder whose links systemd mounts at boot.
const WANTS_DIR: &str = "/etc/systemd/system/local-fs.target.wants";
/// The folders of units.
const UNIT_DIRS: [&str; 3] = [
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/usr/local/lib/systemd/system",
];

/// Finds the unit that is installed.
pub(super) fn find_unit(root: &Path) -> Option<PathBuf> {
    UNIT_DIRS
        .into_iter()
        .map(|folder| Path::new(folder).join(MOUNT_UNIT))
        .find(|unit| at(root, unit).exists())
}

/// Plans the link that has systemd mount it at boot: to `unit`, or none.
///
/// # Errors
///
/// [`Error::Failed`] if the link cannot be read.
pub(super) fn plan_link(root: &Path, unit: Option<PathBuf>) -> Result<Option<FileChange>, Error> {
    let link = Path::new(WANTS_DIR).join(MOUNT_UNIT);
    if unit.is_some() && Content::read(&at(root, &link))?.is_some() {
        return Ok(None);
    }
    FileChange::plan(root, link, unit.map(Content::Link))
}
