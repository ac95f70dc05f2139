//! Kills a cgroup with everything below it, for the keeper and for `job-adopt`.

use kernel::cgroup::{Dir, Result, own_processes, walk};
use kernel::sys::pidfd::{pidfd_open, pidfd_send_signal};
use nix::fcntl::{OFlag, openat};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::Instant;

/// Writes a file of the interface.
/// Errors: as `write(2)`; `ENOENT` where the kernel has no such file.
pub fn write(dir: &Dir, file: &str, text: &str) -> Result<()> {
    let fd = openat(dir, file, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| dir.failed("open", file, errno))?;
    nix::unistd::write(&fd, text.as_bytes())
        .map(drop)
        .map_err(|errno| dir.failed("write", file, errno))
}

/// Kills what is in a cgroup and below it. What this cannot, shows in what is left. The kernel signals
/// the first thread of each process alone (`__cgroup_kill` in `kernel/cgroup/cgroup.c`), which does
/// nothing where that has ended before the others, and before Linux 5.14 not even that: so `again`,
/// where it was tried before, goes through the processes as well, until the deadline.
pub fn kill(dir: &Dir, again: bool, deadline: Instant) {
    if write(dir, "cgroup.kill", "1").is_ok() && !again {
        return;
    }
    let _ = walk(dir, deadline, |dir| {
        // A number that another process took over meanwhile is not listed a second time, or its
        // descriptor stands for no process any more.
        let before = own_processes(dir)?;
        let held: Vec<_> =
            before.into_iter().filter_map(|pid| Some((pid, pidfd_open(pid).ok()?))).collect();
        let still: BTreeSet<i32> = own_processes(dir)?.into_iter().collect();
        for (_, pidfd) in held.iter().filter(|(pid, _)| still.contains(pid)) {
            let _ = pidfd_send_signal(pidfd.as_fd(), Signal::SIGKILL as i32);
        }
        Ok(())
    });
}
