//! Measures the time of one phase.

use std::time::{Duration, Instant};

/// The time for a whole phase, from its first step to its last.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    start: Instant,
    deadline: Instant,
}

impl Budget {
    /// Starts a budget now.
    pub fn start(length: Duration) -> Self {
        let start = Instant::now();
        Self { start, deadline: start + length }
    }

    /// Returns the time at which it is used up.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the remaining time.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Returns the elapsed milliseconds.
    pub fn elapsed_ms(&self) -> u128 {
        self.start.elapsed().as_millis()
    }
}
