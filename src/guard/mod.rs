//! The guard of a cgroup that is no job's: nothing in it or below opens a guarded device.
//!
//! systemd runs what a user starts outside of jobs below a slice of the user's own, whatever has
//! become of their logins. Which devices are guarded, and whose slices, is for
//! [`crate::resolve`] to say.

#![forbid(unsafe_code)]

mod error;

pub use error::{Error, Result};

use crate::bpf::{self, Guard};
use crate::cgroup::{self, Dir, Mount, Place, Stamp, subtree};
use crate::plan::{Allowlist, CgroupPath, JobId};
use std::time::Instant;

/// The slice in which systemd runs a user's service manager and sessions (`user@.service`,
/// logind), and everything that these start.
///
/// # Errors
/// None: it is a path for every number.
pub fn slice(uid: u32) -> Result<CgroupPath> {
    let path = format!("/user.slice/user-{uid}.slice");
    path.parse().map_err(|_| Error::Path(path))
}

/// What there is of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The cgroup is not there: of a user's slice, that the user runs nothing outside of jobs.
    NoSlice,
    /// There is none.
    Unguarded,
    /// There is one.
    Guarded {
        /// Whether it is the one that was asked for, alone and in force.
        current: bool,
    },
}

/// What there is of the guard at a cgroup. Changes nothing.
///
/// # Errors
/// [`Error`] where it cannot be told, or where the composition rules let no guard be there.
pub fn state(at: &CgroupPath, list: &Allowlist) -> Result<State> {
    with(at, State::NoSlice, |place| state_of(place, list))
}

fn state_of(place: &Place, list: &Allowlist) -> Result<State> {
    if Guard::new(place.levels(), list).holds()? {
        return Ok(State::Guarded { current: true });
    }
    match bpf::stands(place.dir()?)? {
        true => Ok(State::Guarded { current: false }),
        false => Ok(State::Unguarded),
    }
}

/// What became of a guard that was to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ensured {
    /// The cgroup is not there.
    NoSlice,
    /// It was there.
    Held,
    /// It has been attached, or has taken the place of another.
    Attached,
    /// The cgroup is this job's, or has it below: such a one is not guarded.
    HoldsJob(JobId),
}

/// Makes sure of the guard at a cgroup, unless that is a job's or has one below.
///
/// # Errors
/// [`Error`]; nothing is attached then, and what was attached stays.
pub fn ensure(at: &CgroupPath, list: &Allowlist, deadline: Instant) -> Result<Ensured> {
    with(at, Ensured::NoSlice, |place| ensure_at(place, list, deadline))
}

fn ensure_at(place: &Place, list: &Allowlist, deadline: Instant) -> Result<Ensured> {
    let guard = Guard::new(place.levels(), list);
    // Where it holds there is no job: `register` takes it off.
    if guard.holds()? {
        return Ok(Ensured::Held);
    }
    let dir = place.dir()?;
    // Under it, so that no job is registered meanwhile: that takes guards off under it as well.
    let lock = bpf::lock_of(dir, deadline)?;
    if let Some(job) = job_within(dir)? {
        return Ok(Ensured::HoldsJob(job));
    }
    guard.attach(&lock)?;
    Ok(Ensured::Attached)
}

/// Takes the guard off a cgroup; whether there was one.
///
/// # Errors
/// [`Error`].
pub fn remove(at: &CgroupPath, deadline: Instant) -> Result<bool> {
    with(at, false, |place| lift(place.dir()?, deadline))
}

/// As [`remove`], of an open cgroup.
///
/// # Errors
/// [`Error`].
pub fn lift(dir: &Dir, deadline: Instant) -> Result<bool> {
    Ok(bpf::lift(dir, &bpf::lock_of(dir, deadline)?)?)
}

/// Does something with a cgroup, or answers `gone` where it is not there: a slice goes with the
/// last process in it, at any moment.
fn with<T>(at: &CgroupPath, gone: T, work: impl FnOnce(&Place) -> Result<T>) -> Result<T> {
    let find = || Ok::<_, Error>(subtree::unless_gone(Mount::open()?.place(at))?);
    let Some(place) = find()? else { return Ok(gone) };
    match work(&place) {
        Err(_) if find()?.is_none() => Ok(gone),
        result => result,
    }
}

/// The job that the cgroup is stamped for, or one below it.
fn job_within(dir: &Dir) -> Result<Option<JobId>> {
    let mut job = None;
    subtree::walk(dir, |dir| {
        if let Some(stamp) = subtree::unless_gone(Stamp::read(dir))?.flatten() {
            job = Some(stamp.job);
        }
        Ok::<_, cgroup::Error>(())
    })?;
    Ok(job)
}
