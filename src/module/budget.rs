//! Measures the time of one phase.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The time for a whole phase, from its first step to its last, by the monotonic clock (`timeout=`). The time in the
/// queue of a daemon that admits others does not count.
#[derive(Clone, Debug)]
pub struct Budget {
    length: Duration,
    start: Instant,
    deadline: Cell<Instant>,
}

impl Budget {
    /// Starts a budget of this length now.
    pub fn start(length: Duration) -> Self {
        let start = Instant::now();
        Self {
            length,
            start,
            deadline: (start + length).into(),
        }
    }

    /// The length with which it started.
    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// Adds time that does not count.
    pub(crate) fn extend(&self, by: Duration) {
        self.deadline.set(self.deadline() + by);
    }

    /// The time at which it is used up.
    pub fn deadline(&self) -> Instant {
        self.deadline.get()
    }

    /// The time that is left; zero once it is used up.
    pub fn remaining(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    /// Whole milliseconds since the start, also past the deadline; `ms=` in the log.
    pub fn elapsed_ms(&self) -> u128 {
        self.start.elapsed().as_millis()
    }
}
