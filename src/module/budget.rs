//! Measures the time of one phase.

use std::time::{Duration, Instant};

/// The time for a whole phase, from its first step to its last, by the monotonic clock (`timeout=`).
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    start: Instant,
    deadline: Instant,
}

impl Budget {
    /// Starts a budget of this length now.
    pub fn start(length: Duration) -> Self {
        let start = Instant::now();
        Self {
            start,
            deadline: start + length,
        }
    }

    /// The time at which it is used up.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The time that is left; zero once it is used up.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Whole milliseconds since the start, also past the deadline; `ms=` in the log.
    pub fn elapsed_ms(&self) -> u128 {
        self.start.elapsed().as_millis()
    }
}
