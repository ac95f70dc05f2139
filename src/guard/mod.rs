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
    Ok(match see_to(at, list, None)? {
        Ensured::NoSlice => State::NoSlice,
        Ensured::Held => State::Guarded { current: true },
        _ => match find(at)? {
            None => State::NoSlice,
            Some(place) if bpf::stands(place.dir()?)? => State::Guarded { current: false },
            Some(_) => State::Unguarded,
        },
    })
}

/// The job that keeps a cgroup from being guarded: it is the job's, or has it below.
///
/// # Errors
/// [`Error`] where it cannot be told.
pub fn job_in(at: &CgroupPath) -> Result<Option<JobId>> {
    match find(at)? {
        Some(place) => match job_within(place.dir()?) {
            (None, Some(error)) => Err(error.into()),
            (job, _) => Ok(job),
        },
        None => Ok(None),
    }
}

/// What became of a guard that was to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ensured {
    /// The cgroup is not there.
    NoSlice,
    /// It was there.
    Held,
    /// It is missing, and was only looked for.
    Missing,
    /// It has been attached, or has taken the place of another.
    Attached,
}

/// Makes sure of the guard at a cgroup of which the caller knows that it holds no job. Without a
/// deadline it is only looked for.
///
/// # Errors
/// [`Error`]; nothing is attached then, and what was attached stays.
pub fn see_to(at: &CgroupPath, list: &Allowlist, deadline: Option<Instant>) -> Result<Ensured> {
    let Some(place) = find(at)? else { return Ok(Ensured::NoSlice) };
    match see_to_it(&place, list, deadline) {
        // A slice goes with the last process in it, at any moment.
        Err(_) if find(at)?.is_none() => Ok(Ensured::NoSlice),
        result => result,
    }
}

fn see_to_it(place: &Place, list: &Allowlist, deadline: Option<Instant>) -> Result<Ensured> {
    let guard = Guard::new(place.levels(), list);
    if guard.holds()? {
        return Ok(Ensured::Held);
    }
    let Some(deadline) = deadline else { return Ok(Ensured::Missing) };
    guard.attach(&bpf::lock_of(place.dir()?, deadline)?)?;
    Ok(Ensured::Attached)
}

/// What became of a guard of a cgroup that may hold a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It holds none.
    Free(Ensured),
    /// None was found, and not all of it could be looked through, for this reason: it is guarded
    /// all the same. A user decides what is in the slice, and is not to decide by that.
    Unseen(Ensured, String),
    /// The cgroup is this job's, or has it below: it is not guarded.
    HoldsJob(JobId),
}

/// As [`see_to`], where the cgroup is looked through for jobs first: that of one is rid of its
/// guard.
///
/// # Errors
/// [`Error`].
pub fn ensure(at: &CgroupPath, list: &Allowlist, deadline: Instant) -> Result<Judged> {
    let Some(place) = find(at)? else { return Ok(Judged::Free(Ensured::NoSlice)) };
    match ensure_it(&place, list, deadline) {
        Err(_) if find(at)?.is_none() => Ok(Judged::Free(Ensured::NoSlice)),
        result => result,
    }
}

fn ensure_it(place: &Place, list: &Allowlist, deadline: Instant) -> Result<Judged> {
    let dir = place.dir()?;
    // Under it, so that no job is registered meanwhile: that takes guards off under it as well.
    let lock = bpf::lock_of(dir, deadline)?;
    let (job, cut) = job_within(dir);
    if let Some(job) = job {
        bpf::lift(dir, &lock)?;
        return Ok(Judged::HoldsJob(job));
    }
    let guard = Guard::new(place.levels(), list);
    let mut done = Ensured::Held;
    if !guard.holds()? {
        guard.attach(&lock)?;
        done = Ensured::Attached;
    }
    Ok(match cut {
        None => Judged::Free(done),
        Some(error) => Judged::Unseen(done, error.to_string()),
    })
}

/// Takes the guard off a cgroup; whether there was one.
///
/// # Errors
/// [`Error`].
pub fn remove(at: &CgroupPath, deadline: Instant) -> Result<bool> {
    let Some(place) = find(at)? else { return Ok(false) };
    match lift(place.dir()?, deadline) {
        Err(_) if find(at)?.is_none() => Ok(false),
        result => result,
    }
}

/// As [`remove`], of an open cgroup.
///
/// # Errors
/// [`Error`].
pub fn lift(dir: &Dir, deadline: Instant) -> Result<bool> {
    Ok(bpf::lift(dir, &bpf::lock_of(dir, deadline)?)?)
}

/// A cgroup that is there.
fn find(at: &CgroupPath) -> Result<Option<Place>> {
    Ok(subtree::unless_gone(Mount::open()?.place(at))?)
}

/// The job that the cgroup is stamped for, or one below it; and why there may be one that was not
/// seen.
fn job_within(dir: &Dir) -> (Option<JobId>, Option<cgroup::Error>) {
    let mut job = None;
    let walked = subtree::walk(dir, |dir| {
        if let Some(stamp) = subtree::unless_gone(Stamp::read(dir))?.flatten() {
            job = Some(stamp.job);
        }
        Ok(())
    });
    (job, walked.err())
}
