//! The helper's time: each of its waits and deadlines uses a [`Clock`], so that unit tests move time
//! instead of spending it.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

#[cfg(test)]
pub(crate) mod manual;

/// The clock of a query, which every deadline of the query carries.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The clocks of the system.
    System,
    /// The clock of a unit test.
    #[cfg(test)]
    #[expect(private_interfaces, reason = "only unit tests of this crate have it")]
    Manual(&'static manual::ManualClock),
}

impl Clock {
    /// The moment from which waits begin.
    pub fn now(self) -> Instant {
        match self {
            Self::System => Instant::now(),
            #[cfg(test)]
            Self::Manual(clock) => clock.now(),
        }
    }

    /// The time of day, in seconds since the epoch.
    pub fn seconds_since_epoch(self) -> i64 {
        match self {
            Self::System => kernel::sys::clock::now(),
            #[cfg(test)]
            Self::Manual(clock) => clock.seconds_since_epoch(),
        }
    }

    /// The deadline after that time.
    pub fn deadline_after(self, time: Duration) -> Deadline {
        Deadline {
            clock: self,
            instant: self.now() + time,
        }
    }

    /// Waits for that time.
    pub(crate) fn sleep(self, time: Duration) {
        match self {
            Self::System => std::thread::sleep(time),
            #[cfg(test)]
            Self::Manual(clock) => _ = clock.poll(&mut [], time),
        }
    }

    /// Waits until a descriptor is ready, at most for that time and a millisecond. Returns the number of ready
    /// descriptors.
    ///
    /// # Errors
    ///
    /// As `poll(2)`.
    pub(crate) fn poll(self, poll_fds: &mut [PollFd<'_>], time: Duration) -> Result<i32, Errno> {
        match self {
            Self::System => {
                // With less than a millisecond poll(2) would not wait.
                let time = PollTimeout::try_from(time + Duration::from_millis(1));
                poll(poll_fds, time.unwrap_or(PollTimeout::MAX))
            }
            #[cfg(test)]
            Self::Manual(clock) => clock.poll(poll_fds, time),
        }
    }
}

/// The end of a query, with the clock that shows it.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    clock: Clock,
    instant: Instant,
}

impl Deadline {
    /// The deadline after that time, by the system's clock.
    pub fn after(time: Duration) -> Self {
        Clock::System.deadline_after(time)
    }

    /// The clock.
    pub fn clock(self) -> Clock {
        self.clock
    }

    /// The moment, for calls that wait by the system's clock.
    pub fn instant(self) -> Instant {
        self.instant
    }

    /// Tells whether the moment is over.
    pub fn has_passed(self) -> bool {
        self.clock.now() >= self.instant
    }

    /// The time until the moment; zero once it is over.
    pub fn remaining(self) -> Duration {
        self.instant.saturating_duration_since(self.clock.now())
    }

    /// The deadline after that time, or this one if it is earlier.
    #[must_use]
    pub fn within(self, time: Duration) -> Self {
        Self {
            instant: self.instant.min(self.clock.now() + time),
            ..self
        }
    }

    /// Waits until the descriptor is ready for `events`, has an error or has been closed by its peer.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` at the deadline; as `poll(2)`.
    pub(crate) fn wait_until_ready(self, fd: impl AsFd, events: PollFlags) -> Result<(), Errno> {
        loop {
            let remaining = self.remaining();
            if remaining.is_zero() {
                return Err(Errno::ETIMEDOUT);
            }
            match self
                .clock
                .poll(&mut [PollFd::new(fd.as_fd(), events)], remaining)
            {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::manual::ManualClock;
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn deadline_is_over_at_its_moment() {
        let clock = ManualClock::new();
        let deadline = clock.clock().deadline_after(2 * SECOND);
        assert_eq!(
            (deadline.remaining(), deadline.has_passed()),
            (2 * SECOND, false)
        );
        clock.advance(2 * SECOND);
        assert_eq!(
            (deadline.remaining(), deadline.has_passed()),
            (Duration::ZERO, true)
        );
        clock.advance(SECOND);
        assert_eq!(
            (deadline.remaining(), deadline.has_passed()),
            (Duration::ZERO, true)
        );
    }

    #[test]
    fn deadline_within_a_time_is_never_later() {
        let clock = ManualClock::new();
        let deadline = clock.clock().deadline_after(2 * SECOND);
        assert_eq!(deadline.within(SECOND).remaining(), SECOND);
        assert_eq!(deadline.within(3 * SECOND).remaining(), 2 * SECOND);
    }

    #[test]
    fn wait_ends_with_the_descriptor_or_the_deadline() {
        let clock = ManualClock::new();
        let (own, peer) = UnixStream::pair().unwrap();
        let wait = || {
            clock
                .clock()
                .deadline_after(2 * SECOND)
                .wait_until_ready(&own, PollFlags::POLLIN)
        };
        assert_eq!(
            (wait(), clock.elapsed()),
            (Err(Errno::ETIMEDOUT), 2 * SECOND)
        );
        clock.run_at(3 * SECOND, move || (&peer).write_all(b"x").unwrap());
        assert_eq!((wait(), clock.elapsed()), (Ok(()), 3 * SECOND));
        assert_eq!(
            (wait(), clock.elapsed()),
            (Ok(()), 3 * SECOND),
            "it is still ready"
        );
    }

    #[test]
    fn system_clock_waits_for_a_descriptor() {
        let (own, peer) = UnixStream::pair().unwrap();
        let deadline = Deadline::after(60 * SECOND);
        drop(peer);
        assert_eq!(deadline.wait_until_ready(&own, PollFlags::POLLIN), Ok(()));
        assert!(!deadline.has_passed() && deadline.remaining() > SECOND);
        assert_eq!(
            Deadline::after(Duration::ZERO).wait_until_ready(&own, PollFlags::POLLIN),
            Err(Errno::ETIMEDOUT)
        );
    }
}
