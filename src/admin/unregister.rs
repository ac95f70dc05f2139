//! `unregister`: makes a job unknown, for an epilog.

use super::ending::{Ending, end};
use super::{Conf, Error, Output, PATIENCE, names, pin, require_root, strays};
use clap::Args;
use helper::Config;
use helper::records::{LoginTarget, Record, RegisteredJob, Registry};
use kernel::cgroup::{self, Mount, Stamp, unless_gone};
use kernel::lock::Lock;
use kernel::log::{Line, Severity};
use kernel::sys::clock;
use kernel::trust::Trust;
use protocol::JobId;
use std::time::{Duration, Instant};

/// Time for the second attempt to end a job, after the strays.
const AFTER_STRAYS: Duration = Duration::from_secs(2);

/// Make a job unknown and end its logins, for an epilog (root)
#[derive(Debug, Args)]
#[command(after_help = "\
Ends everything in a cgroup that job-adopt made, and only the logins in another. An unknown ID is no failure.")]
pub(super) struct Options {
    /// The job
    #[arg(value_parser = names::parse_job_id)]
    id: JobId,
    /// How long to wait for the end of processes, at most 3600
    #[arg(long, value_name = "SECONDS", default_value_t = PATIENCE.as_secs())]
    #[arg(value_parser = clap::value_parser!(u64).range(..=3600))]
    timeout: u64,
    /// Then end what the owner has running here without a job
    #[arg(long)]
    strays: bool,
    #[command(flatten)]
    conf: Conf,
}

pub(super) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let Options { id, timeout, strays, conf } = options;
    require_root("unregister job")?;
    let (registry, fault) = Config::read_registry(&conf.path()?, &Trust::root())?;
    if let Some(fault) = fault {
        output.warn(format_args!("warning: {fault}; only the registry is read of it"));
    }
    let mut end_strays = |uid| match strays {
        true => strays::end_all(&conf.read()?, uid, output),
        false => Ok(()),
    };
    let owners = unregister(id, &registry, Duration::from_secs(*timeout), &mut end_strays)?;
    if owners.is_empty() {
        writeln!(output.out, "no job {id} is registered")?;
    }
    Ok(super::EXIT_FINE)
}

/// Makes the jobs of an id unknown, and ends what is theirs to end and the strays of their owners; returns
/// these owners.
///
/// # Errors
///
/// [`Error`] for the first thing that failed. Everything else was done all the same, and the same call
/// again takes up what is left: a job stays known until its processes and those strays have ended.
pub(super) fn unregister(
    id: &JobId,
    registry: &Registry,
    timeout: Duration,
    end_strays: &mut dyn FnMut(u32) -> Result<(), Error>,
) -> Result<Vec<u32>, Error> {
    let mut troubles = Vec::new();
    let jobs = withdraw(id, registry, &mut troubles)?;
    let deadline = Instant::now() + timeout;
    for (job, record) in &jobs {
        let mut ended = end_job(record.as_ref(), deadline);
        let strays_ended = end_strays(job.uid);
        if ended.is_err() {
            // What a stray held up, as the file system of a user does that does not answer, ends now.
            ended = end_job(record.as_ref(), Instant::now() + AFTER_STRAYS.min(timeout));
        }
        let ended = ended.and_then(|ending| strays_ended.map(|()| ending));
        if let Err(error) = ended.and_then(|ending| forget(job, registry, ending)) {
            super::log(line(Severity::Error, job).with("error", &error));
            troubles.push(error);
        }
    }
    if let Err(error) = unpin(registry) {
        troubles.push(error);
    }
    match troubles.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(jobs.iter().map(|(job, _)| job.uid).collect()),
    }
}

fn unpin(registry: &Registry) -> Result<(), Error> {
    let _lock = Lock::take(Lock::REGISTRY_OFFSET, Instant::now() + PATIENCE)?;
    pin::sweep(registry, &Trust::root())
}

/// From here on no login joins: first the stamp goes, then the record. What fails besides, such as
/// a note that a full file system does not take, is no reason to let the logins live. Returns the
/// jobs, each with what is known of where it is.
fn withdraw(
    id: &JobId,
    registry: &Registry,
    troubles: &mut Vec<Error>,
) -> Result<Vec<(RegisteredJob, Option<Record>)>, Error> {
    let trust = Trust::root();
    let _lock = Lock::take(Lock::REGISTRY_OFFSET, Instant::now() + PATIENCE)?;
    let purged = registry.remove_old_notes(&trust, clock::now());
    troubles.extend(purged.err().map(Error::from));
    let mut placed = Vec::new();
    for job in registry.find_jobs(&trust, id)? {
        let record = withdraw_stamp(&job).unwrap_or_else(|error| {
            troubles.push(error);
            job.record.clone().ok()
        });
        match registry.withdraw_job(job.uid, &job.id) {
            Ok(true) => {
                let noted = registry.write_end_note(job.uid, &job.id, clock::now());
                troubles.extend(noted.err().map(Error::from));
            }
            Ok(false) => {}
            Err(error) => troubles.push(error.into()),
        }
        placed.push((job, record));
    }
    Ok(placed)
}

/// Withdraws the stamp of a job. Returns what tells where it is: its record, or what is left of a
/// broken one, which is believed only where the job's own stamp stood, or where an earlier call has
/// withdrawn it.
fn withdraw_stamp(job: &RegisteredJob) -> Result<Option<Record>, Error> {
    let Some(record) = job.record.as_ref().ok().or(job.salvage.as_ref()) else { return Ok(None) };
    let own = Stamp { uid: record.uid, job: record.id.clone() };
    let place = cgroup_of(record)?;
    let dir = place.as_ref().map(cgroup::Place::dir).transpose()?;
    let found = dir.map(|dir| unless_gone(Stamp::read(dir))).transpose()?.flatten().flatten();
    let ours = match (dir, found) {
        (Some(dir), Some(found)) if found == own => {
            super::placed::withdraw_stamp(dir)?;
            true
        }
        // Somebody else's job is in a cgroup of this name by now.
        (_, Some(_)) => false,
        (_, None) => job.ending || job.record.is_ok(),
    };
    Ok(ours.then(|| record.clone()))
}

/// The job's cgroup, where its record names one and it is still there.
fn cgroup_of(record: &Record) -> Result<Option<cgroup::Place>, Error> {
    let LoginTarget::Cgroup(path) = &record.target else { return Ok(None) };
    Ok(unless_gone(Mount::open()?.place(path))?)
}

/// Tells the logins, ends them, and removes what we made.
fn end_job(record: Option<&Record>, deadline: Instant) -> Result<Ending, Error> {
    let Some(record) = record else { return Ok(Ending::default()) };
    match cgroup_of(record)? {
        Some(place) => end(&place, record, deadline),
        None => Ok(Ending::default()),
    }
}

/// Forgets a job that has ended.
fn forget(job: &RegisteredJob, registry: &Registry, ending: Ending) -> Result<(), Error> {
    let _lock = Lock::take(Lock::REGISTRY_OFFSET, Instant::now() + PATIENCE)?;
    registry.forget_job(job.uid, &job.id)?;
    if let Err(cause) = &job.record {
        return Err(Error::failed("read record of job", &job.id, cause));
    }
    super::log(
        line(Severity::Info, job).with("logins", ending.logins).with("terminals", ending.terminals),
    );
    Ok(())
}

fn line(severity: Severity, job: &RegisteredJob) -> Line {
    Line::new(severity).with("action", "unregister").with("job", &job.id).with("uid", job.uid)
}
