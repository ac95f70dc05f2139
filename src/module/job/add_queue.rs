//! The queue of logins that a step daemon adds to its job, one after the other.
//!
//! On cgroup v1 an add takes some 30 to 60 ms, so that the last of 256 logins at once waits for many seconds. A
//! daemon that hangs looks the same to each of them. What tells them apart are the logins that it does add: each
//! touches the directory of the job's step, which only root can.

use crate::budget::Budget;
use kernel::cgroup::Dir;
use std::time::{Duration, Instant};

/// Maximum time in a queue that moves: ten times what 512 logins at once to a job on cgroup v1 took. The daemon serves them
/// in no order.
const QUEUE_TIME_MAX: Duration = Duration::from_secs(300);
/// Number of looks at the queue within the length of a budget.
const LOOKS_PER_BUDGET: u32 = 5;

/// The place of one login in the queue of a step daemon.
pub(super) struct AddQueue<'a> {
    /// When the login came.
    pub(super) entered: Instant,
    step: &'a Dir,
    /// How long the daemon may add nobody.
    patience: Duration,
    /// When it has added nobody for too long.
    deadline: Instant,
    /// When the last login was added; `None` before the first look.
    last_add: Option<(i64, i64)>,
}

impl<'a> AddQueue<'a> {
    /// Enters the queue of the daemon of a step, at first for the rest of the budget.
    pub(super) fn enter(step: &'a Dir, budget: &Budget) -> Self {
        Self {
            entered: Instant::now(),
            step,
            patience: budget.length(),
            deadline: budget.deadline(),
            last_add: None,
        }
    }

    /// Returns until when to wait before the next look at the queue; `None` if it has not moved for the length of the
    /// budget, or if the login has been in it for too long.
    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        let now = Instant::now();
        // Ignore an error: the job is gone then, and the daemon will not answer.
        let last_add = self.step.changed_at().ok();
        if self.last_add.is_some() && last_add != self.last_add {
            self.deadline = now + self.patience;
        }
        self.last_add = last_add;
        let deadline = self.deadline.min(self.entered + QUEUE_TIME_MAX);
        (now < deadline).then(|| deadline.min(now + self.patience / LOOKS_PER_BUDGET))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::fs::File;

    fn step(scratch: &Scratch) -> Dir {
        Dir::new(
            File::open(scratch.path()).unwrap().into(),
            "/job/step_extern",
        )
    }

    #[test]
    fn login_waits_as_long_as_others_are_added() {
        let scratch = Scratch::new();
        let step = step(&scratch);
        let budget = Budget::start(Duration::from_secs(5));
        let mut queue = AddQueue::enter(&step, &budget);
        let first = queue.next_deadline().unwrap();
        assert!(first <= Instant::now() + Duration::from_secs(1));
        // The budget is over, and nobody was added.
        queue.deadline = Instant::now();
        assert_eq!(queue.next_deadline(), None);
        scratch.file("task_special", "");
        assert!(queue.next_deadline().is_some());
        assert!(queue.deadline > Instant::now() + Duration::from_secs(4));
        queue.deadline = Instant::now();
        assert_eq!(queue.next_deadline(), None, "one add counts once");
        step.touch().unwrap();
        assert!(queue.next_deadline().is_some());
    }

    #[test]
    fn login_waits_no_longer_than_five_minutes() {
        let scratch = Scratch::new();
        let step = step(&scratch);
        let budget = Budget::start(Duration::from_secs(5));
        let mut queue = AddQueue::enter(&step, &budget);
        assert!(queue.next_deadline().is_some());
        queue.entered -= QUEUE_TIME_MAX;
        step.touch().unwrap();
        assert_eq!(queue.next_deadline(), None);
    }
}
