//! The time of day, as numbers and for the texts that people read.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since the epoch; 0 where the clock stands before it.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The local time at `epoch` seconds since the epoch; `None` where it cannot be represented.
pub fn local_time(epoch: i64) -> Option<libc::tm> {
    // SAFETY: zeroed memory is a tm.
    let mut time: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call (localtime_r(3)).
    let result = unsafe { libc::localtime_r(&raw const epoch, &raw mut time) };
    (!result.is_null()).then_some(time)
}
