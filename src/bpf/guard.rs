//! The guard: a deny list on a cgroup that is no job's, by the rules that a job's filter goes by.

use super::compose::{Demand, Obstacle, Reach};
use super::confine::{Outcome, Want, lock, look, settle};
use super::point::{Ours, detach};
use super::{Error, Ground, Level, Purpose, Result, deny};
use crate::cgroup::{Dir, PinMark};
use crate::lock::Lock;
use crate::plan::Allowlist;
use std::time::Instant;

/// A guard that is to hold at a cgroup.
pub struct Guard<'a> {
    /// The cgroup first, the root last.
    levels: &'a [Dir],
    want: Want,
}

impl<'a> Guard<'a> {
    /// One that refuses what is listed; `levels` are the cgroup first and the root of the mount
    /// last.
    #[must_use]
    pub fn new(levels: &'a [Dir], list: &Allowlist) -> Self {
        let ours = Ours::new(Purpose::Guard, deny(list));
        Self { levels, want: Want { demand: Demand::Enforce, ours } }
    }

    fn ground(&self) -> Ground<'a> {
        Ground { levels: self.levels, job: 0, reach: Reach::Job }
    }

    /// Whether exactly this one is there and in force. Changes nothing.
    ///
    /// # Errors
    /// As [`super::confine`].
    pub fn holds(&self) -> Result<bool> {
        look(self.ground(), &self.want)?
            .map_or(Ok(false), |outcome| self.held(&outcome).map(|()| true))
    }

    /// Makes it hold, in place of any other guard there. The lock is that of the cgroup
    /// ([`lock_of`]).
    ///
    /// # Errors
    /// As [`super::confine`]; [`Error::Obstacle`] also for an `ALLOW_OVERRIDE` filter right there.
    pub fn attach(&self, lock: &Lock) -> Result<()> {
        self.held(&settle(self.ground(), &self.want, lock)?)
    }

    /// There is no child to go to: the guard is for the cgroup itself.
    fn held(&self, outcome: &Outcome) -> Result<()> {
        match outcome {
            Outcome::Holds(_) => Ok(()),
            Outcome::NeedChild => {
                let object = self.levels.first().map(|dir| dir.path().to_owned());
                let why = Obstacle::LeafOverridden;
                Err(Error::Obstacle { object: object.unwrap_or_default(), why })
            }
        }
    }
}

/// The right to change the filters of a cgroup, where nobody else has it.
///
/// # Errors
/// [`Error::Locked`] at the deadline.
pub fn lock_of(dir: &Dir, deadline: Instant) -> Result<Lock> {
    lock(dir, deadline)
}

/// Whether any guard is on a cgroup itself.
///
/// # Errors
/// As [`Level::read`].
pub fn stands(dir: &Dir) -> Result<bool> {
    Ok(Level::read(dir)?.ours(Purpose::Guard).next().is_some())
}

/// Takes every guard off a cgroup, and then a pin that was there for it alone; whether there was a
/// guard. The lock is that of the cgroup.
///
/// # Errors
/// As `bpf(2)`.
pub fn lift(dir: &Dir, _lock: &Lock) -> Result<bool> {
    let level = Level::read(dir)?;
    let mut found = false;
    for guard in level.ours(Purpose::Guard) {
        detach(dir, guard)?;
        found = true;
    }
    // On its own it would only keep a later program of the level above from running here.
    let mark = PinMark::read(dir).map_err(|error| {
        Error::system("read mark of", dir.path(), std::io::Error::other(error.to_string()))
    })?;
    match Level::read(dir)?.programs.as_slice() {
        [pin] if found && Some(pin.id()) == mark => detach(dir, pin)?,
        _ => {}
    }
    Ok(found)
}
