//! `unregister`: ends a job's logins and removes the job from the registry, for an epilog.

use super::ending::{EndedLogins, end_logins};
use super::usage::Usage;
use super::{names, pin, stamped_cgroup, strays};
use crate::accounts::require_root;
use crate::error::Error;
use crate::exit_status::EXIT_FINE;
use crate::options::{Conf, OPERATION_TIMEOUT};
use crate::output::{Output, log};
use clap::Args;
use helper::Config;
use helper::jobs::records::{LoginTarget, Record, RegisteredJob, Registry};
use kernel::cgroup::{self, Mount, Stamp, ignore_gone};
use kernel::lock::Lock;
use kernel::log::{Line, Severity};
use kernel::sys::clock;
use kernel::trust::Trust;
use protocol::JobId;
use std::time::{Duration, Instant};

/// Longest second attempt to end a job, after the strays.
const SECOND_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// Make a job unknown and end its logins, for an epilog (root)
#[derive(Debug, Args)]
#[command(after_help = "\
Ends everything in a cgroup that job-adopt made, and only the logins in another. An unknown ID is no failure.")]
pub(crate) struct Options {
    /// The job
    #[arg(value_parser = names::parse_job_id)]
    id: JobId,
    /// How long to wait for the end of processes, at most 3600
    #[arg(long, value_name = "SECONDS", default_value_t = OPERATION_TIMEOUT.as_secs())]
    #[arg(value_parser = clap::value_parser!(u64).range(..=3600))]
    timeout: u64,
    /// Then end what the owner has running here without a job
    #[arg(long)]
    strays: bool,
    #[command(flatten)]
    conf: Conf,
}

pub(crate) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let Options { id, timeout, strays, conf } = options;
    require_root("unregister job")?;
    let (registry, fault) = Config::read_registry(&conf.path()?, &Trust::root())?;
    if let Some(fault) = fault {
        output.warn(format_args!("warning: {fault}; only the registry is read of it"));
    }
    let mut end_strays =
        |uid| if *strays { strays::end_user_strays(&conf.read()?, uid, output) } else { Ok(()) };
    let owners = unregister(id, &registry, Duration::from_secs(*timeout), &mut end_strays)?;
    if owners.is_empty() {
        writeln!(output.out, "no job {id} is registered")?;
    }
    Ok(EXIT_FINE)
}

/// Unregisters the jobs of an id, and ends their logins and the strays of their owners. Returns these
/// owners.
///
/// # Errors
///
/// [`Error`] for the first step that failed. All other steps were done, and a second call does the
/// rest: a job stays in the registry until its processes and those strays have ended.
pub(super) fn unregister(
    id: &JobId,
    registry: &Registry,
    timeout: Duration,
    end_strays: &mut dyn FnMut(u32) -> Result<(), Error>,
) -> Result<Vec<u32>, Error> {
    let mut errors = Vec::new();
    let jobs = withdraw_jobs(id, registry, &mut errors)?;
    let deadline = Instant::now() + timeout;
    for (job, record) in &jobs {
        let mut ended = EndedLogins::default();
        let mut result = end_job(record.as_ref(), deadline, &mut ended);
        let strays_ended = end_strays(job.uid);
        if result.is_err() {
            // A stray may have held up the first attempt, for example by a file system of its own that
            // does not answer.
            let deadline = Instant::now() + SECOND_ATTEMPT_TIMEOUT.min(timeout);
            result = end_job(record.as_ref(), deadline, &mut ended);
        }
        let result = result.and(strays_ended);
        if let Err(error) = result.and_then(|()| forget_job(job, registry, ended)) {
            log(log_line(Severity::Error, job).with("error", &error));
            errors.push(error);
        }
    }
    if let Err(error) = unpin_namespaces(registry) {
        errors.push(error);
    }
    match errors.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(jobs.iter().map(|(job, _)| job.uid).collect()),
    }
}

fn unpin_namespaces(registry: &Registry) -> Result<(), Error> {
    let _lock = Lock::take(Lock::REGISTRY_OFFSET, Instant::now() + OPERATION_TIMEOUT)?;
    pin::unpin_ended_jobs(registry, &Trust::root())
}

/// Withdraws the stamps and then the records of an id's jobs, after which no login joins them. Returns
/// the jobs, each with the record that names its cgroup.
///
/// Other failures, for example a note that a full file system does not take, go to `errors`: they do
/// not prevent the end of the logins.
fn withdraw_jobs(
    id: &JobId,
    registry: &Registry,
    errors: &mut Vec<Error>,
) -> Result<Vec<(RegisteredJob, Option<Record>)>, Error> {
    let trust = Trust::root();
    let _lock = Lock::take(Lock::REGISTRY_OFFSET, Instant::now() + OPERATION_TIMEOUT)?;
    let removed = registry.remove_old_notes(&trust, clock::now());
    errors.extend(removed.err().map(Error::from));
    let mut jobs = Vec::new();
    for job in registry.find_jobs(&trust, id)? {
        let record = withdraw_stamp(&job).unwrap_or_else(|error| {
            errors.push(error);
            job.record.clone().ok()
        });
        match registry.withdraw_job(job.uid, &job.id) {
            Ok(true) => {
                let result = registry.write_end_note(job.uid, &job.id, clock::now());
                errors.extend(result.err().map(Error::from));
            }
            Ok(false) => {}
            Err(error) => errors.push(error.into()),
        }
        jobs.push((job, record));
    }
    Ok(jobs)
}

/// Withdraws the stamp of a job. Returns its record, or the readable part of a broken one. It trusts
/// that part only if the cgroup had the job's own stamp, or if an earlier call has withdrawn the stamp.
fn withdraw_stamp(job: &RegisteredJob) -> Result<Option<Record>, Error> {
    let Some(record) = job.record.as_ref().ok().or(job.salvage.as_ref()) else { return Ok(None) };
    let own_stamp = Stamp { uid: record.uid, job: record.id.clone() };
    let place = open_cgroup(record)?;
    let dir = place.as_ref().map(cgroup::CgroupChain::dir).transpose()?;
    let stamp = dir.map(|dir| ignore_gone(Stamp::read(dir))).transpose()?.flatten().flatten();
    let is_ours = match (dir, stamp) {
        (Some(dir), Some(stamp)) if stamp == own_stamp => {
            stamped_cgroup::withdraw_stamp(dir)?;
            true
        }
        // The cgroup of this name now belongs to another job.
        (_, Some(_)) => false,
        (_, None) => job.ending || job.record.is_ok(),
    };
    Ok(is_ours.then(|| record.clone()))
}

/// Opens the job's cgroup, if its record names one and it still exists.
fn open_cgroup(record: &Record) -> Result<Option<cgroup::CgroupChain>, Error> {
    let LoginTarget::Cgroup(path) = &record.target else { return Ok(None) };
    Ok(ignore_gone(Mount::open()?.open_chain(path))?)
}

/// Notifies the logins, ends them, and removes the cgroups that this project made. Updates `ended` even
/// if it fails.
fn end_job(
    record: Option<&Record>,
    deadline: Instant,
    ended: &mut EndedLogins,
) -> Result<(), Error> {
    let Some(record) = record else { return Ok(()) };
    match open_cgroup(record)? {
        Some(place) => end_logins(&place, record, deadline, ended),
        None => Ok(()),
    }
}

/// Removes a job that has ended from the registry.
fn forget_job(job: &RegisteredJob, registry: &Registry, ended: EndedLogins) -> Result<(), Error> {
    let _lock = Lock::take(Lock::REGISTRY_OFFSET, Instant::now() + OPERATION_TIMEOUT)?;
    registry.forget_job(job.uid, &job.id)?;
    if let Err(cause) = &job.record {
        return Err(Error::failed("read record of job", &job.id, cause));
    }
    let line = log_line(Severity::Info, job).with("logins", ended.logins);
    let line = line.with("terminals", ended.terminals);
    let show = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
    let Usage { memory_peak, cpu_usec, .. } = ended.usage;
    let line = line.with("login_memory_peak", show(memory_peak));
    log(line.with("login_cpu_ms", show(cpu_usec.map(|usec| usec / 1000))));
    Ok(())
}

fn log_line(severity: Severity, job: &RegisteredJob) -> Line {
    Line::new(severity).with("action", "unregister").with("job", &job.id).with("uid", job.uid)
}
