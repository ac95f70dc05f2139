//! Where the cgroup v2 hierarchy is mounted, as far as looking needs it.

use std::fmt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

/// The cgroup v2 mount below `root`: `/sys/fs/cgroup`, or on a hybrid node its `unified`.
///
/// # Errors
/// [`MountError`] where neither is one.
pub fn cgroup_mount(root: &Path) -> Result<PathBuf, MountError> {
    let mut cause = None;
    for path in ["sys/fs/cgroup", "sys/fs/cgroup/unified"] {
        let path = root.join(path);
        match statfs(&path) {
            Ok(stat) if stat.filesystem_type() == CGROUP2_SUPER_MAGIC => return Ok(path),
            Ok(_) | Err(Errno::ENOENT) => {}
            Err(errno) => cause = Some((path, errno)),
        }
    }
    Err(MountError(cause))
}

/// No cgroup v2 mount; where looking for one failed, the path and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountError(Option<(PathBuf, Errno)>);

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some((path, errno)) => write!(f, "{}: statfs: {errno}", path.display()),
            None => f.write_str("no cgroup v2 mount at /sys/fs/cgroup or /sys/fs/cgroup/unified"),
        }
    }
}

impl std::error::Error for MountError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::tests::Scratch;

    #[test]
    fn a_plain_directory_is_no_mount() {
        let scratch = Scratch::new();
        assert_eq!(cgroup_mount(scratch.path()), Err(MountError(None)));
        scratch.dir("sys/fs/cgroup/unified");
        assert_eq!(cgroup_mount(scratch.path()), Err(MountError(None)));
    }
}
