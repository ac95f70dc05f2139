//! A temporary cgroup in which `check` tries the kernel.

use keeper::subtree::{self, KillMode};
use kernel::cgroup::{self, Dir, Mount};
use nix::sys::signal::kill;
use nix::unistd::{Pid, getpid};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest wait for processes to leave the cgroup.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between two attempts to remove it.
const REMOVAL_INTERVAL: Duration = Duration::from_millis(1);

/// Prefix of the cgroups' names; the pid namespace and the process follow.
const NAME_PREFIX: &str = "job-adopt-check-";

/// A cgroup for trials, in the root of the mount.
///
/// Below the cgroup of this process another program's filter may prevent attaching more, and a cgroup
/// there that hands controllers down takes no process. This one exists for some milliseconds, gets no
/// controller, and systemd leaves cgroups alone that it did not make. `drop` removes it; if this
/// process was killed before, the next check does.
#[derive(Debug)]
pub(super) struct TrialCgroup {
    root: Dir,
    name: String,
    pub(super) dir: Dir,
}

impl TrialCgroup {
    /// Creates the cgroup in the mount of the node whose root is `root`, and removes those of checks
    /// that were killed.
    ///
    /// # Errors
    ///
    /// The errors of `mkdir(2)`: `EROFS` for a mount that is read-only.
    pub(super) fn create(root: &Path) -> Result<Self, cgroup::Error> {
        let top = Mount::open_below(root)?.root().clone();
        // A process number is valid in one pid namespace; the name has the inode of this one.
        let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let namespace = link
            .to_string_lossy()
            .replace(|c: char| !c.is_ascii_digit(), "");
        let prefix = format!("{NAME_PREFIX}{namespace}-");
        for name in top.children()? {
            let Some(name) = name.to_str() else { continue };
            let pid = name.strip_prefix(&prefix).and_then(|pid| pid.parse().ok());
            // The call sends no signal: it fails if the check that made this cgroup is gone.
            if pid.is_some_and(|pid| kill(Pid::from_raw(pid), None).is_err()) {
                remove(&top, name);
            }
        }
        let own_name = format!("{prefix}{}", getpid());
        top.make_child(&own_name)?;
        Ok(Self {
            dir: top.child(&own_name)?,
            root: top,
            name: own_name,
        })
    }
}

impl Drop for TrialCgroup {
    fn drop(&mut self) {
        remove(&self.root, &self.name);
    }
}

/// Kills every process in a trial cgroup and removes it. If it cannot be removed, the next check tries again.
fn remove(root: &Dir, name: &str) {
    let Ok(dir) = root.child(name) else { return };
    let deadline = Instant::now() + REMOVAL_TIMEOUT;
    subtree::kill(&dir, KillMode::Cgroup, deadline);
    // A killed process is in the cgroup until the kernel has ended it.
    while root.remove_child(name).is_err() && Instant::now() < deadline {
        sleep(REMOVAL_INTERVAL);
    }
}
