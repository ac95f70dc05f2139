//! Waiting for a descriptor, and no longer than to a deadline.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Waits until `fd` can be read from or written to, as `flags` say, or has failed, which is told
/// where that is done.
///
/// # Errors
/// `ETIMEDOUT`, else as `poll(2)`.
pub(super) fn wait(fd: impl AsFd, flags: PollFlags, deadline: Instant) -> Result<(), Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::ETIMEDOUT);
        }
        // Rounded up: with less than a millisecond left poll(2) would not wait at all.
        let timeout = PollTimeout::try_from(left + Duration::from_millis(1));
        match poll(&mut [PollFd::new(fd.as_fd(), flags)], timeout.unwrap_or(PollTimeout::MAX)) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
}
