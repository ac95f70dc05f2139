//! A cgroup to try things in, which is gone afterwards.
//!
//! It is made in the root of the mount: below the cgroup of this process a filter of somebody
//! else's may keep others from being attached, and a cgroup there that hands controllers down takes
//! no process. systemd leaves cgroups alone that it did not make, and nothing is asked of this one
//! that changes the root: it is there for some milliseconds, and no controller is handed to it.

use crate::cgroup::{Dir, Error, Mount};
use nix::sys::signal::{SIGKILL, SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::unistd::{Pid, getpid};
use std::path::Path;
use std::time::{Duration, Instant};

/// What every name begins with; the pid namespace and the process follow.
const PREFIX: &str = "job-adopt-check-";
/// What asks a process to end.
const ENDING: [Signal; 5] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGPIPE];
/// How long its last process may take to go.
const REMOVAL: Duration = Duration::from_secs(2);

/// The cgroup. It is emptied and removed when this is dropped; until then this process is not ended
/// by what can be put off.
#[derive(Debug)]
pub(super) struct Scratch {
    root: Dir,
    name: String,
    dir: Dir,
    before: SigSet,
}

impl Scratch {
    /// Makes it below the mount of the node whose root is `root`, and removes what an earlier one
    /// left that was killed.
    ///
    /// # Errors
    /// As `mkdir(2)`: `EROFS` for a mount that is read-only.
    pub(super) fn make(root: &Path) -> Result<Self, Error> {
        let mount = Mount::below(root)?;
        let top = mount.root().try_clone()?;
        let space = namespace();
        sweep(&top, &space);
        let mut before = SigSet::empty();
        let ending: SigSet = ENDING.into_iter().collect();
        // Where it fails they are not put off, and the next call sweeps.
        let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&ending), Some(&mut before));
        let name = format!("{PREFIX}{space}-{}", getpid());
        let made = top.make_child(&name).and_then(|_| top.child(&name));
        match made {
            Ok(dir) => Ok(Self { root: top, name, dir, before }),
            Err(error) => {
                let _ = top.remove_child(&name);
                restore(&before);
                Err(error)
            }
        }
    }

    /// Its directory.
    pub(super) fn dir(&self) -> &Dir {
        &self.dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.root, &self.dir, &self.name);
        restore(&self.before);
    }
}

fn restore(before: &SigSet) {
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(before), None);
}

/// Ends what is in it and removes it, as long as that may take.
fn remove(root: &Dir, dir: &Dir, name: &str) {
    let deadline = Instant::now() + REMOVAL;
    while root.remove_child(name).is_err() && Instant::now() < deadline {
        let procs = dir.read("cgroup.procs").ok().flatten().unwrap_or_default();
        for pid in procs.lines().filter_map(|pid| pid.parse().ok()).filter(|pid| *pid > 1) {
            let _ = kill(Pid::from_raw(pid), SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Numbers of processes are of one pid namespace: by the inode of ours.
fn namespace() -> String {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().chars().filter(char::is_ascii_digit).collect()
}

/// Removes those of this pid namespace whose process is gone.
fn sweep(top: &Dir, space: &str) {
    for name in top.children().unwrap_or_default() {
        let Some(name) = name.to_str() else { continue };
        let pid = name.strip_prefix(&format!("{PREFIX}{space}-"));
        let Some(pid) = pid.and_then(|pid| pid.parse().ok()) else { continue };
        if let (Err(_), Ok(dir)) = (kill(Pid::from_raw(pid), None), top.child(name)) {
            remove(top, &dir, name);
        }
    }
}
