//! Kills cgroup subtrees, for the keeper and for `job-adopt`.

use kernel::cgroup::{Dir, list_own_processes, walk};
use kernel::sys::pidfd::{pidfd_open, pidfd_send_signal};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::Instant;

/// How to kill the processes of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillMode {
    /// By `cgroup.kill`; one by one if the kernel lacks that file (before Linux 5.14).
    Cgroup,
    /// By `cgroup.kill` and also one by one.
    EachProcess,
}

/// Kills every process in the cgroup and below. Processes that survive can be seen in the cgroup.
///
/// `cgroup.kill` signals only the first thread of each process (`__cgroup_kill` in
/// `kernel/cgroup/cgroup.c`). That has no effect if this thread has ended before the others, and
/// before Linux 5.14 the file is missing. So [`KillMode::EachProcess`], for a second attempt, also
/// signals each process, until the deadline.
pub fn kill(dir: &Dir, mode: KillMode, deadline: Instant) {
    if dir.write("cgroup.kill", "1").is_ok() && mode == KillMode::Cgroup {
        return;
    }
    send_signal(dir, Signal::SIGKILL, None, deadline);
}

/// Sends a signal to each process in the cgroup and below, or to those of them whose numbers are in `only`. It ends
/// early at the deadline and after an error: the caller looks at what is left.
pub(crate) fn send_signal(
    dir: &Dir,
    signal: Signal,
    only: Option<&BTreeSet<i32>>,
    deadline: Instant,
) {
    let _ = walk(dir, deadline, |inner| {
        // Signal only processes listed before and after `pidfd_open`: a reused PID fails one of the
        // two checks.
        let listed = list_own_processes(inner)?;
        let held: Vec<_> = listed
            .into_iter()
            .filter(|pid| only.is_none_or(|pids| pids.contains(pid)))
            .filter_map(|pid| Some((pid, pidfd_open(pid).ok()?)))
            .collect();
        let still_listed: BTreeSet<i32> = list_own_processes(inner)?.into_iter().collect();
        for (_, pidfd) in held.iter().filter(|(pid, _)| still_listed.contains(pid)) {
            let _ = pidfd_send_signal(pidfd.as_fd(), signal as i32);
        }
        Ok(())
    });
}
