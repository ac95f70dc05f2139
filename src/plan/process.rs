//! Numbers of processes that cross the boundary.

use std::fmt;

/// Largest number of a process: below `PID_MAX_LIMIT` of `linux/threads.h`, on 64-bit machines.
const PID_MAX: i64 = 4_194_303;

/// Number of a process, 2 to 4,194,303: never the system's first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId(i32);

impl ProcessId {
    /// The process of this number; `None` where none can have it.
    #[must_use]
    pub fn new(number: i64) -> Option<Self> {
        let number = i32::try_from(number).ok()?;
        (2..=PID_MAX).contains(&number.into()).then_some(Self(number))
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> i32 {
        self.0
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
