//! `unregister`: makes a job unknown, for an epilog.

use super::ending::{Ending, end};
use super::options::Known;
use super::register::PATIENCE;
use super::{Error, Options, Output, config, help, now, require_root, show};
use crate::cgroup::{self, Mount, Stamp};
use crate::lock::Lock;
use crate::log::{Line, Severity};
use crate::plan::{CgroupPath, JobId};
use crate::registry::{Known as KnownJob, Place, Record, Registry};
use crate::resolve::Config;
use crate::trust::Trust;
use std::ffi::OsString;
use std::time::{Duration, Instant};

const KNOWN: [Known; 2] = [Known::Once("--conf"), Known::Once("--timeout")];
/// Seconds that the end of a job's processes is waited for.
const TIMEOUT: u64 = 10;

pub(super) fn command(
    arguments: impl IntoIterator<Item = OsString>,
    output: &mut Output<'_>,
) -> Result<u8, Error> {
    let options = Options::parse("unregister", &KNOWN, arguments)?;
    if options.has("--help") {
        return show(help::UNREGISTER, output);
    }
    let ([id], None) = (options.operands.as_slice(), &options.rest) else {
        return Err(options.usage("exactly one job id is needed"));
    };
    let id = id.to_string_lossy();
    let id: JobId = id.parse().map_err(|error| options.usage(format!("id {id}: {error}")))?;
    let seconds = options.parsed("--timeout", "number of seconds")?.unwrap_or(TIMEOUT);
    require_root("unregister")?;
    if unregister(&id, &config(&options)?, Duration::from_secs(seconds))? == 0 {
        writeln!(output.out, "no job {id} is registered")?;
    }
    Ok(super::EXIT_FINE)
}

/// Makes the jobs of an id unknown and ends what is theirs to end; returns how many there were.
///
/// # Errors
/// [`Error`] for the first thing that failed; everything else was done all the same, and the same
/// call again takes up what is left.
pub(super) fn unregister(id: &JobId, config: &Config, timeout: Duration) -> Result<usize, Error> {
    let jobs = withdraw(id, config)?;
    let deadline = Instant::now() + timeout;
    let mut first = None;
    for job in &jobs {
        if let Err(error) = finish(job, id, &config.registry, deadline) {
            super::log(
                line(Severity::Error, job, id).with("error", error.text().unwrap_or_default()),
            );
            first = first.or(Some(error));
        }
    }
    first.map_or(Ok(jobs.len()), Err)
}

/// From here on no login joins: first the stamp goes, then the record.
fn withdraw(id: &JobId, config: &Config) -> Result<Vec<KnownJob>, Error> {
    let trust = Trust::root();
    let _lock = Lock::take(Lock::REGISTRY, Instant::now() + PATIENCE)?;
    config.registry.purge(&trust, now())?;
    let jobs = config.registry.find(&trust, id)?;
    for job in &jobs {
        let stamp = job.record.as_ref().map_or(Ok(()), withdraw_stamp);
        config.registry.withdraw(job.uid, id, now())?;
        stamp?;
    }
    Ok(jobs)
}

fn withdraw_stamp(record: &Record) -> Result<(), Error> {
    let Place::Cgroup(path) = &record.place else { return Ok(()) };
    let Some(place) = place(path)? else { return Ok(()) };
    let own = Stamp { uid: record.uid, job: record.id.clone() };
    // Somebody else's job may be in a cgroup of this name by now.
    match Stamp::read(place.dir()?) {
        Ok(Some(found)) if found == own => Ok(Stamp::withdraw(place.dir()?)?),
        Ok(_) => Ok(()),
        Err(error) if error.is_gone() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Tells the logins, ends them, removes what we made, and forgets the job.
fn finish(job: &KnownJob, id: &JobId, registry: &Registry, deadline: Instant) -> Result<(), Error> {
    let mut ending = Ending::default();
    match &job.record {
        Ok(record) => {
            if let Place::Cgroup(path) = &record.place {
                if let Some(place) = place(path)? {
                    ending = end(&place, record, deadline)?;
                }
            }
        }
        Err(cause) => {
            // Which cgroup it was nobody knows any more.
            registry.forget(job.uid, id)?;
            return Err(Error::failed("read record of job", id, cause));
        }
    }
    let _lock = Lock::take(Lock::REGISTRY, Instant::now() + PATIENCE)?;
    registry.forget(job.uid, id)?;
    super::log(
        line(Severity::Info, job, id)
            .with("logins", ending.logins)
            .with("terminals", ending.terminals),
    );
    Ok(())
}

/// The job's cgroup; `None` where it is gone.
fn place(path: &CgroupPath) -> Result<Option<cgroup::Place>, Error> {
    match Mount::open()?.place(path) {
        Ok(place) => Ok(Some(place)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn line(severity: Severity, job: &KnownJob, id: &JobId) -> Line {
    Line::new(severity).with("action", "unregister").with("job", id).with("uid", job.uid)
}
