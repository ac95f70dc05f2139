//! Reads the time of day, as a number and for texts that people read.

use std::time::{SystemTime, UNIX_EPOCH};

/// The seconds since the epoch; 0 if the clock stands before the epoch.
pub fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Converts seconds since the epoch to local time; `None` for a time that `tm` cannot represent.
pub fn local_time(epoch: i64) -> Option<libc::tm> {
    // SAFETY: zeroed memory is a tm.
    let mut time: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call (localtime_r(3)).
    let result = unsafe { libc::localtime_r(&raw const epoch, &raw mut time) };
    (!result.is_null()).then_some(time)
}
