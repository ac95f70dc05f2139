//! What a login inherits from sshd although it is a task of its job: cores, memory policy and priorities.
//!
//! From Linux 6.2 on a mask of cores that was set by `sched_setaffinity(2)`, as for sshd under systemd's `CPUAffinity=`,
//! stays with a process that moves to another cpuset (8f9ea86fdf99). So the mask is set here to what the job's cpuset
//! allows. A login that sshd's priorities put before the job's own tasks loses these, and gets the worst nice value and OOM
//! score of those that were looked at ([`TaskPriority`]), unless sshd's are worse.
//!
//! None of this confines: cpuset, weights and limits of the job's cgroup hold whatever a process inherits, and its user
//! may narrow the mask again. So a failure is logged as a warning and refuses no login.

use kernel::OperationError;
use kernel::priority::TaskPriority;
use kernel::proc::read_record;
use kernel::sys::attributes::{
    CpuMask, MemoryPolicy, get_cpus, get_io_priority, get_memory_policy, get_scheduling,
    get_timer_slack, set_cpus, set_io_priority, set_memory_policy, set_scheduling, set_timer_slack,
};
use std::fs::OpenOptions;
use std::io::{self, Write};

/// The file with the number that the kernel adds to a process's share of memory when it chooses what to kill. The
/// lower, the later (proc_pid_oom_score_adj(5)).
const OOM_FILE: &str = "/proc/self/oom_score_adj";
/// The names of the others in messages.
const CORES: &str = "the login's cores";
const SCHEDULING: &str = "the login's scheduling";
const IO_PRIORITY: &str = "the login's I/O priority";
const TIMER_SLACK: &str = "the login's timer slack";
/// Timer slack of the first process, which all others inherit (PR_SET_TIMERSLACK(2const)).
const TIMER_SLACK_NS: u64 = 50_000;

/// The attributes of this process, and of its calling thread. Those that cannot be read are `None`, and stay.
#[derive(Debug)]
pub(super) struct Attributes {
    cpus: Option<CpuMask>,
    memory_policy: Option<MemoryPolicy>,
    oom_score_adj: Option<i32>,
    scheduling: Option<libc::sched_attr>,
    io_priority: Option<i32>,
    timer_slack: Option<u64>,
    /// An error for each attribute that could not be read.
    unread: Vec<String>,
}

impl Attributes {
    /// Reads the attributes. The move changes some of them.
    pub(super) fn read() -> Self {
        let mut unread = Vec::new();
        let mut note_unread = |object, error: io::Error| {
            unread.push(OperationError::new("read", object, error).to_string());
        };
        let oom = read_record(OOM_FILE).map_err(|error| note_unread(OOM_FILE, error));
        Self {
            cpus: get_cpus().map_err(|error| note_unread(CORES, error)).ok(),
            // Containers usually deny it, and most nodes have no policy.
            memory_policy: get_memory_policy().ok(),
            oom_score_adj: oom.ok().and_then(|text| text.trim_end().parse().ok()),
            scheduling: get_scheduling()
                .map_err(|error| note_unread(SCHEDULING, error))
                .ok(),
            io_priority: get_io_priority()
                .map_err(|error| note_unread(IO_PRIORITY, error))
                .ok(),
            timer_slack: get_timer_slack()
                .map_err(|error| note_unread(TIMER_SLACK, error))
                .ok(),
            unread,
        }
    }

    /// Gives this process the cores of the job's cpuset, and takes what would put it before the job's tasks.
    /// `job_cpus` lists these cores as the kernel does; with `None` the job has no cpuset of its own, and cores and
    /// memory policy stay. Returns an error for each attribute that could not be read or changed, and one for cores
    /// that differ from the job's afterwards.
    pub(super) fn align(&self, job_cpus: Option<&str>, job: TaskPriority) -> Vec<String> {
        // Each attribute that was set, with the result.
        let mut changes = Vec::new();
        if let Some(raised) = self.raised_oom_score(job.oom_score) {
            changes.push((OOM_FILE, write_oom_score(raised)));
        }
        // The scheduling comes before the cores: a task with a deadline cannot change these.
        let lowered = |current| lower_scheduling(current, job.nice);
        if let Some(lowered) = self.scheduling.as_ref().and_then(lowered) {
            changes.push((SCHEDULING, set_scheduling(&lowered)));
        }
        if self.io_priority.is_some_and(is_raised_io_priority) {
            changes.push((IO_PRIORITY, set_io_priority(0)));
        }
        if self.timer_slack.is_some_and(|slack| slack < TIMER_SLACK_NS) {
            changes.push((TIMER_SLACK, set_timer_slack(TIMER_SLACK_NS)));
        }
        if job_cpus.is_some() {
            if self
                .memory_policy
                .is_some_and(|policy| policy != MemoryPolicy::DEFAULT)
            {
                let default = set_memory_policy(&MemoryPolicy::DEFAULT);
                changes.push(("the login's memory policy", default));
            }
            changes.push((CORES, set_cpus(&CpuMask::ALL)));
        }
        let mut errors = self.unread.clone();
        for (object, result) in changes {
            if let Err(error) = result {
                errors.push(OperationError::new("set", object, error).to_string());
            }
        }
        let Some(job_cpus) = job_cpus else {
            return errors;
        };
        // The kernel leaves out what the cpuset does not allow.
        let cpus = get_cpus().map_or_else(|error| error.to_string(), |mask| mask.to_string());
        if cpus != job_cpus {
            errors.push(format!(
                "the login's cores are {cpus}, and its job's {job_cpus}"
            ));
        }
        errors
    }

    /// Returns the score by which the kernel kills this process no later than its job's tasks; `None` if the process
    /// has that score, a higher one, or one that could not be read.
    fn raised_oom_score(&self, job_oom_score: i32) -> Option<i32> {
        let min = job_oom_score.max(0);
        self.oom_score_adj
            .and_then(|score| (score < min).then_some(min))
    }

    /// Puts the attributes back once the process has left the job. Errors are ignored: what stays is what the job's
    /// tasks have.
    pub(super) fn put_back(&self) {
        // Another cpuset may have changed mask and policy, whether the login had come to `align` or not.
        if let Some(mask) = self.cpus.filter(|mask| get_cpus().ok() != Some(*mask)) {
            let _ = set_cpus(&mask);
        }
        if let Some(policy) = self.memory_policy {
            if get_memory_policy().ok() != Some(policy) {
                let _ = set_memory_policy(&policy);
            }
        }
        let is_changed = |before: &libc::sched_attr| {
            get_scheduling().map_or(true, |now| {
                (now.sched_policy, now.sched_nice) != (before.sched_policy, before.sched_nice)
            })
        };
        if let Some(before) = self.scheduling.filter(is_changed) {
            let _ = set_scheduling(&before);
        }
        // `align` has lowered this one only if it was raised before.
        if let Some(before) = self
            .io_priority
            .filter(|before| is_raised_io_priority(*before))
        {
            let _ = set_io_priority(before);
        }
        // 0 is the slack of a real-time task, which has come back with its class.
        if let Some(before) = self
            .timer_slack
            .filter(|slack| (1..TIMER_SLACK_NS).contains(slack))
        {
            let _ = set_timer_slack(before);
        }
        if let Some(before) = self
            .oom_score_adj
            .filter(|before| read_oom_score() != Some(*before))
        {
            let _ = write_oom_score(before);
        }
    }
}

fn read_oom_score() -> Option<i32> {
    read_record(OOM_FILE).ok()?.trim_end().parse().ok()
}

fn write_oom_score(score: i32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(OOM_FILE)?;
    file.write_all(score.to_string().as_bytes())
}

/// Returns the scheduling for a thread that runs before the job's tasks by its class or its nice value: the default class,
/// and the nice value of the tasks, or 0 if theirs is better. `None` for scheduling that stays.
fn lower_scheduling(current: &libc::sched_attr, job_nice: i32) -> Option<libc::sched_attr> {
    let min_nice = job_nice.max(0);
    let raised = [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE];
    let has_raised_class = raised
        .into_iter()
        .any(|class| current.sched_policy == class.unsigned_abs());
    if !has_raised_class && current.sched_nice >= min_nice {
        return None;
    }
    let other = libc::SCHED_OTHER.unsigned_abs();
    Some(libc::sched_attr {
        sched_policy: if has_raised_class {
            other
        } else {
            current.sched_policy
        },
        sched_flags: current.sched_flags & libc::SCHED_FLAG_RESET_ON_FORK as u64,
        sched_nice: current.sched_nice.max(min_nice),
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
        ..*current
    })
}

/// Returns whether the disk serves an I/O priority before the default, which is best effort at level 4
/// (`linux/ioprio.h`).
fn is_raised_io_priority(value: i32) -> bool {
    const REAL_TIME: i32 = 1;
    const BEST_EFFORT: i32 = 2;
    const DEFAULT_LEVEL: i32 = 4;
    match value >> 13 {
        REAL_TIME => true,
        BEST_EFFORT => value & 7 < DEFAULT_LEVEL,
        // Without a class the nice value decides, and an idle task comes last.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduling(policy: i32, nice: i32, priority: u32) -> libc::sched_attr {
        libc::sched_attr {
            sched_policy: policy.unsigned_abs(),
            sched_nice: nice,
            sched_priority: priority,
            ..get_scheduling().unwrap()
        }
    }

    #[test]
    fn scheduling_before_tasks_of_the_job_becomes_theirs() {
        for (policy, nice, priority, job_nice, lowered) in [
            (libc::SCHED_OTHER, 0, 0, 0, None),
            (libc::SCHED_OTHER, 0, 0, -5, None),
            (libc::SCHED_OTHER, 5, 0, 5, None),
            (libc::SCHED_OTHER, 5, 0, 4, None),
            (libc::SCHED_IDLE, 0, 0, 0, None),
            (libc::SCHED_BATCH, 19, 0, 10, None),
            (libc::SCHED_OTHER, -1, 0, 0, Some((libc::SCHED_OTHER, 0))),
            (libc::SCHED_OTHER, -7, 0, -5, Some((libc::SCHED_OTHER, 0))),
            (libc::SCHED_OTHER, 0, 0, 10, Some((libc::SCHED_OTHER, 10))),
            (libc::SCHED_OTHER, 5, 0, 19, Some((libc::SCHED_OTHER, 19))),
            (libc::SCHED_BATCH, -20, 0, 0, Some((libc::SCHED_BATCH, 0))),
            (libc::SCHED_FIFO, 0, 1, 0, Some((libc::SCHED_OTHER, 0))),
            (libc::SCHED_RR, 7, 99, 10, Some((libc::SCHED_OTHER, 10))),
            (libc::SCHED_DEADLINE, 0, 0, 0, Some((libc::SCHED_OTHER, 0))),
        ] {
            let lowered =
                lowered.map(|(class, value): (i32, i32)| (class.unsigned_abs(), value, 0));
            let result = lower_scheduling(&scheduling(policy, nice, priority), job_nice);
            let result = result.map(|now| (now.sched_policy, now.sched_nice, now.sched_priority));
            assert_eq!(result, lowered, "{policy} {nice} {job_nice}");
        }
    }

    #[test]
    fn io_priority_above_the_default_is_raised() {
        let value = |class: i32, level: i32| class << 13 | level;
        for raised in [
            value(1, 0),
            value(1, 7),
            value(2, 0),
            value(2, 3),
            value(2, 8 | 3),
        ] {
            assert!(is_raised_io_priority(raised), "{raised}");
        }
        for usual in [0, 4, value(2, 4), value(2, 7), value(2, 8 | 4), value(3, 0)] {
            assert!(!is_raised_io_priority(usual), "{usual}");
        }
    }

    #[test]
    fn score_below_those_of_the_jobs_tasks_is_raised() {
        for (now, of_job, raised) in [
            (-1000, 0, Some(0)),
            (-1, -500, Some(0)),
            (0, 0, None),
            (500, 0, None),
            (0, 200, Some(200)),
            (-500, 200, Some(200)),
            (300, 200, None),
        ] {
            let attributes = Attributes {
                oom_score_adj: Some(now),
                ..Attributes::read()
            };
            assert_eq!(
                attributes.raised_oom_score(of_job),
                raised,
                "{now} {of_job}"
            );
        }
    }

    #[test]
    fn login_gets_every_core_of_a_cpuset_and_its_own_back() {
        let all = get_cpus().unwrap();
        let allowed = all.to_string();
        let first = allowed.split(['-', ',']).next().unwrap();
        let thread = nix::unistd::gettid().to_string();
        std::process::Command::new("taskset")
            .args(["-cp", first, &thread])
            .output()
            .unwrap();
        let before = Attributes::read();
        let pinned = before.cpus.unwrap();
        assert_eq!(pinned.to_string(), first);
        let align = |cpus| before.align(Some(cpus), TaskPriority::default());
        assert_eq!(
            align("8000"),
            [format!(
                "the login's cores are {allowed}, and its job's 8000"
            )]
        );
        assert_eq!(get_cpus().unwrap(), all);
        before.put_back();
        assert_eq!(get_cpus().unwrap(), pinned);
        assert_eq!(align(&allowed), [""; 0]);
        before.put_back();
        assert!(before.align(None, TaskPriority::default()).is_empty());
        assert_eq!(get_cpus().unwrap(), pinned);
    }
}
