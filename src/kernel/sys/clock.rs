//! The time of day, as numbers and for the texts that people read.

use std::mem::MaybeUninit;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since the epoch; 0 where the clock stands before it.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// A local time, but for the year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// 0 to 11.
    pub month: i32,
    /// 1 to 31.
    pub day: i32,
    /// 0 to 23.
    pub hour: i32,
    /// 0 to 59.
    pub minute: i32,
    /// 0 to 60.
    pub second: i32,
}

/// The local time at `epoch` seconds since the epoch; `None` where it cannot be represented.
pub fn local_time(epoch: i64) -> Option<LocalTime> {
    let mut broken_down = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are valid for the call; localtime_r(3) writes the whole structure
    // when it does not return null.
    let result = unsafe { libc::localtime_r(&raw const epoch, broken_down.as_mut_ptr()) };
    if result.is_null() {
        return None;
    }
    // SAFETY: not null, so it was written.
    let tm = unsafe { broken_down.assume_init() };
    Some(LocalTime {
        month: tm.tm_mon,
        day: tm.tm_mday,
        hour: tm.tm_hour,
        minute: tm.tm_min,
        second: tm.tm_sec,
    })
}
