//! How late the kernel serves a task, and how early it ends it: what a scheduler may lower for a whole job.

use crate::proc::{Proc, read_record};
use crate::sys::attributes::get_scheduling_of;
use std::io::{self, ErrorKind};

/// The nice value and the OOM score of a task: the higher, the worse. The default is what a task has by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskPriority {
    /// The nice value (sched(7)).
    pub nice: i32,
    /// The number that the kernel adds when it chooses what to kill (proc_pid_oom_score_adj(5)).
    pub oom_score: i32,
}

impl TaskPriority {
    /// Reads what the first thread of a process has.
    ///
    /// # Errors
    ///
    /// `ESRCH` or `ENOENT` for a process that is gone; as `sched_getattr(2)` and [`read_record`].
    pub fn read(pid: i32) -> io::Result<Self> {
        let nice = get_scheduling_of(pid)?.sched_nice;
        let score = read_record(Proc::host().dir(pid).join("oom_score_adj"))?;
        let oom_score = score.trim_end().parse();
        Ok(Self {
            nice,
            oom_score: oom_score.map_err(|_| ErrorKind::InvalidData)?,
        })
    }

    /// Returns the worst of both in each.
    #[must_use]
    pub fn worst(self, other: Self) -> Self {
        Self {
            nice: self.nice.max(other.nice),
            oom_score: self.oom_score.max(other.oom_score),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_of_process_is_read_and_the_worst_counts() {
        let pid = nix::unistd::getpid().as_raw();
        let current = TaskPriority::read(pid).unwrap();
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let own = stat.rsplit_once(") ").unwrap().1.split(' ').nth(16);
        assert_eq!(own.unwrap().parse(), Ok(current.nice));
        assert!(TaskPriority::read(i32::MAX).is_err());
        let task = |nice, oom_score| TaskPriority { nice, oom_score };
        assert_eq!(task(5, -3).worst(task(-2, 7)), task(5, 7));
    }
}
