//! A clock that unit tests move.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollTimeout, poll};

use crate::clock::Clock;

/// The time of day at which every manual clock starts.
const START_SECONDS: i64 = 1_795_201_200;

/// Acts for the peers of the code under test: receives the time since the clock's start, and returns when
/// it acts next, if nothing happens before.
type Actor = Box<dyn FnMut(Duration) -> Option<Duration>>;

/// A clock that stands still except during waits, which end at once. All actors act before a wait, and
/// whenever one of them is due during it.
pub(crate) struct ManualClock {
    start: Instant,
    elapsed: Cell<Duration>,
    actors: RefCell<Vec<Actor>>,
}

impl ManualClock {
    /// Makes a clock. It is never freed, so that [`Clock`] stays a plain value.
    pub(crate) fn new() -> &'static Self {
        Box::leak(Box::new(Self {
            start: Instant::now(),
            elapsed: Cell::default(),
            actors: RefCell::default(),
        }))
    }

    pub(crate) fn clock(&'static self) -> Clock {
        Clock::Manual(self)
    }

    /// The time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.elapsed.get()
    }

    pub(crate) fn now(&self) -> Instant {
        self.start + self.elapsed.get()
    }

    pub(crate) fn seconds_since_epoch(&self) -> i64 {
        START_SECONDS + i64::try_from(self.elapsed.get().as_secs()).unwrap()
    }

    /// Moves the clock without any actor.
    pub(crate) fn advance(&self, time: Duration) {
        self.elapsed.set(self.elapsed.get() + time);
    }

    pub(crate) fn add_actor(&self, actor: impl FnMut(Duration) -> Option<Duration> + 'static) {
        self.actors.borrow_mut().push(Box::new(actor));
    }

    /// Does something once, at that time after the start.
    pub(crate) fn run_at(&self, time: Duration, action: impl FnOnce() + 'static) {
        let mut pending = Some(action);
        self.add_actor(move |elapsed| {
            if elapsed < time {
                return Some(time);
            }
            if let Some(act) = pending.take() {
                act();
            }
            None
        });
    }

    /// Does something at the first wait, and again after each `interval`.
    pub(crate) fn every(&self, interval: Duration, mut action: impl FnMut() + 'static) {
        let mut next = Duration::ZERO;
        self.add_actor(move |elapsed| {
            if elapsed >= next {
                action();
                next = elapsed + interval;
            }
            Some(next)
        });
    }

    /// Waits as `poll(2)`, in the time of this clock: until a descriptor is ready, it moves the clock from one time
    /// at which an actor is due to the next, and at last to the end of the wait.
    pub(crate) fn poll(&self, poll_fds: &mut [PollFd<'_>], time: Duration) -> Result<i32, Errno> {
        let end = self.elapsed.get() + time;
        loop {
            let elapsed = self.elapsed.get();
            let mut actors = self.actors.borrow_mut();
            // All actors act here, before the descriptors are looked at. A time that has passed moves no clock.
            let due = actors.iter_mut().filter_map(|actor| actor(elapsed));
            let next = due.filter(|next| *next > elapsed).min().unwrap_or(end);
            let ready = poll(poll_fds, PollTimeout::ZERO)?;
            if ready > 0 || elapsed >= end {
                return Ok(ready);
            }
            self.elapsed.set(next.min(end));
        }
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManualClock({:?})", self.elapsed.get())
    }
}
