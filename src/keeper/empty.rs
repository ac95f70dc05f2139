//! Emptying a leaf, and removing it.

use super::{Trouble, place_of};
use crate::cgroup::{Dir, event};
use crate::keeper::subtree::{processes, unless_gone, walk};
use crate::plan::LeafName;
use crate::sys::process::{pidfd_open, pidfd_send_signal};
use nix::sys::signal::Signal;
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Pause between two rounds, at first; doubled up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// Kills what is in the leaf until it can be removed. A login that is still on its way into it may
/// arrive between two rounds.
///
/// # Errors
/// [`Trouble::Left`] at the deadline.
pub(super) fn empty(above: &Dir, leaf: &Dir, deadline: Instant) -> Result<(), Trouble> {
    let mut pause = PAUSE;
    let mut first = true;
    loop {
        if unless_gone(event(leaf, "populated"))?.flatten() != Some(false) {
            // The kernel signals the first thread of each process alone (`__cgroup_kill` in
            // `kernel/cgroup/cgroup.c`), and before Linux 5.14 not even that.
            let killed = leaf.write("cgroup.kill", "1").is_ok();
            if !killed || !std::mem::take(&mut first) {
                one_by_one(leaf);
            }
        }
        if unless_gone(leaf.read("cgroup.events"))?.is_none() || removed(above, leaf) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let left = processes(leaf).all;
            let place = left.first().map(|pid| place_of(*pid)).unwrap_or_default();
            return Err(Trouble::Left(left.len(), place));
        }
        sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Those that are in the leaf before as well as after they were taken hold of: a number that
/// another process took over meanwhile is not there a second time, or stands for none any more.
fn one_by_one(leaf: &Dir) {
    let before = processes(leaf).all;
    let held: Vec<_> =
        before.into_iter().filter_map(|pid| Some((pid, pidfd_open(pid).ok()?))).collect();
    let still = processes(leaf).all;
    for (_, pidfd) in held.iter().filter(|(pid, _)| still.contains(pid)) {
        let _ = pidfd_send_signal(pidfd.as_fd(), Signal::SIGKILL as i32);
    }
}

/// Removes the leaf with what is below it; whether that went.
fn removed(above: &Dir, leaf: &Dir) -> bool {
    let mut below = Vec::new();
    let _ = walk(leaf, |dir| {
        for name in dir.children()? {
            below.push((dir.try_clone()?, name));
        }
        Ok(())
    });
    for (dir, name) in below.iter().rev() {
        let _ = dir.remove_child(name);
    }
    above.remove_child(LeafName::DEFAULT).is_ok()
}
