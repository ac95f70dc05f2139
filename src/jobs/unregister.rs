//! `unregister`: ends a job's logins and removes the job from the registry, for an epilog.

use super::ending::{Attempt, EndedLogins, end_logins, name_unkillable};
use super::{pin, stamped_cgroup, strays};
use clap::Args;
use command::accounts::require_root;
use command::error::Error;
use command::exit_status::EXIT_FINE;
use command::options::parse_job_id;
use command::options::{Conf, OPERATION_TIMEOUT};
use command::output::{Output, log};
use facts::logins::KnownLogins;
use facts::usage::Usage;
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
Ends everything in a cgroup that job-adopt made, and only the logins in another. An unknown ID is no failure, unless the
configuration has a fault.
Exit status: 0 fine, 2 wrong usage, 3 failed, 4 processes are left that no signal ends.")]
pub struct Options {
    /// The job
    #[arg(value_parser = parse_job_id)]
    id: JobId,
    /// How long to wait for the end of processes, end_grace included, at most 3600; end_grace and 10 more unless given
    #[arg(long, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=3600))]
    timeout: Option<u64>,
    /// Then end what the owner has running here without a job
    #[arg(long)]
    strays: bool,
    #[command(flatten)]
    conf: Conf,
}

/// Runs `unregister`: ends the logins of the jobs with the id and, if asked, the strays of their owners. An
/// id without a job is no failure. If the configuration has a fault, it warns and uses only the lines that it needs
/// to end a job; it then fails if it finds no job.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let Options {
        id,
        timeout,
        strays,
        conf,
    } = options;
    require_root("unregister job")?;
    let (config, fault) = Config::read_for_end(&conf.path()?, &Trust::root())?;
    if let Some(fault) = &fault {
        output.warn(format_args!(
            "warning: {fault}; only registry and end_grace are read of it"
        ));
    }
    let mut end_strays = |uid| {
        // Who has a job depends on the whole configuration, so this fails if that has a fault.
        if *strays {
            strays::end_user_strays(&conf.read()?, uid, output)
        } else {
            Ok(())
        }
    };
    let owners = unregister(
        id,
        &config.registry,
        EndTimes::new(&config, timeout.map(Duration::from_secs)),
        &mut end_strays,
    )?;
    if owners.is_empty() {
        if let Some(fault) = fault {
            // The line may be the one that should name the registry.
            return Err(Error::failed("find job", id, fault));
        }
        writeln!(output.out, "no job {id} is registered")?;
    }
    Ok(EXIT_FINE)
}

/// How long the end of a job may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndTimes {
    /// For programs of logins to save.
    grace: Duration,
    /// For everything.
    timeout: Duration,
}

impl EndTimes {
    /// The times by the configuration, and by the option `--timeout` if there is one: whoever gives it relies on it, as
    /// a scheduler ends its epilog then.
    pub(super) fn new(config: &Config, timeout: Option<Duration>) -> Self {
        let grace = Duration::from_secs(config.end_grace.into());
        let timeout = timeout.unwrap_or(grace + OPERATION_TIMEOUT);
        Self { grace, timeout }
    }
}

/// Unregisters the jobs of an id, ends their logins, and calls `end_strays` for their owners; returns these owners,
/// none if there is no such job.
///
/// # Errors
///
/// [`Error`] for the first step that failed, or for processes that no signal ends, if there are any. Unless the
/// registry could not be locked or read, all other steps were done, and a second call does the rest: a job stays in
/// the registry until its processes and those strays have ended.
pub(super) fn unregister(
    id: &JobId,
    registry: &Registry,
    times: EndTimes,
    end_strays: &mut dyn FnMut(u32) -> Result<(), Error>,
) -> Result<Vec<u32>, Error> {
    let Withdrawal { jobs, mut errors } = withdraw_jobs(id, registry)?;
    let deadline = Instant::now() + times.timeout;
    for (job, record) in &jobs {
        let none = KnownLogins::default();
        let mut attempt = end_job(record.as_ref(), none, times.grace, deadline);
        let strays_ended = end_strays(job.uid);
        if attempt.result.is_err() {
            // A stray that is ended now may have held up the first attempt, for example by a file system of its
            // own that does not answer.
            let second_deadline = Instant::now() + SECOND_ATTEMPT_TIMEOUT.min(times.timeout);
            let Attempt { ended, known, .. } = attempt;
            attempt = end_job(record.as_ref(), known, Duration::ZERO, second_deadline).after(ended);
        }
        let result = attempt
            .result
            .map_err(name_unkillable)
            .and(strays_ended)
            .and_then(|()| forget_job(job, registry, attempt.ended));
        if let Err(error) = result {
            log(log_line(Severity::Error, job).with("error", &error));
            errors.push(error);
        }
    }
    if let Err(error) = unpin_namespaces(registry) {
        errors.push(error);
    }
    // What needs an admin comes first.
    errors.sort_by_key(|error| !matches!(error, Error::Unkillable(_)));
    match errors.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(jobs.iter().map(|(job, _)| job.uid).collect()),
    }
}

fn unpin_namespaces(registry: &Registry) -> Result<(), Error> {
    let _lock = Lock::take(Lock::REGISTRY_OFFSET, Instant::now() + OPERATION_TIMEOUT)?;
    pin::unpin_ended_jobs(registry, &Trust::root())
}

/// The jobs that no login joins any more.
struct Withdrawal {
    /// Each with the record that names its cgroup.
    jobs: Vec<(RegisteredJob, Option<Record>)>,
    /// Failures that do not prevent the end of the logins, for example of a note that a full file system
    /// does not take.
    errors: Vec<Error>,
}

/// Withdraws the stamps and then the records of an id's jobs, under the registry's lock. Faults of one job do
/// not stop the others: the result has them. It fails with [`Error::Failed`] if the lock cannot be taken, or
/// if the registry cannot be read.
fn withdraw_jobs(id: &JobId, registry: &Registry) -> Result<Withdrawal, Error> {
    let trust = Trust::root();
    let _lock = Lock::take(Lock::REGISTRY_OFFSET, Instant::now() + OPERATION_TIMEOUT)?;
    let mut errors = Vec::new();
    if let Err(error) = registry.remove_old_notes(&trust, clock::now()) {
        errors.push(error.into());
    }
    let mut jobs = Vec::new();
    for job in registry.find_jobs(&trust, id)? {
        let record = withdraw_stamp(&job).unwrap_or_else(|error| {
            errors.push(error);
            // A part of a broken record is not trusted without the stamp.
            job.record.clone().ok()
        });
        if let Err(error) = withdraw_record(&job, registry) {
            errors.push(error);
        }
        jobs.push((job, record));
    }
    Ok(Withdrawal { jobs, errors })
}

/// Withdraws the record of a job, and notes when the job ended, unless an earlier call has done so.
fn withdraw_record(job: &RegisteredJob, registry: &Registry) -> Result<(), Error> {
    if registry.withdraw_job(job.uid, &job.id)? {
        registry.write_end_note(job.uid, &job.id, clock::now())?;
    }
    Ok(())
}

/// Withdraws the stamp of a job, and finds its record, or the readable part of a broken one. It trusts that
/// part only if the cgroup had the job's own stamp, or if an earlier call has withdrawn the stamp. `None` if
/// nothing of the record can be trusted, or if its cgroup has the stamp of another job by now.
fn withdraw_stamp(job: &RegisteredJob) -> Result<Option<Record>, Error> {
    let Some(record) = job.record.as_ref().ok().or(job.salvage.as_ref()) else {
        return Ok(None);
    };
    if let Some(place) = open_cgroup(record)? {
        let dir = place.dir()?;
        if let Some(stamp) = ignore_gone(Stamp::read(dir))?.flatten() {
            if stamp
                != (Stamp {
                    uid: record.uid,
                    job: record.id.clone(),
                })
            {
                // The cgroup of this name now belongs to another job.
                return Ok(None);
            }
            stamped_cgroup::withdraw_stamp(dir)?;
            return Ok(Some(record.clone()));
        }
    }
    // The cgroup is gone or has no stamp, or the record names none. A part of a broken record is then used only if
    // an earlier call has withdrawn the stamp, and has marked the job as ending.
    Ok((job.ending || job.record.is_ok()).then(|| record.clone()))
}

/// Opens the job's cgroup; `None` if the record names none, and if the cgroup is gone.
fn open_cgroup(record: &Record) -> Result<Option<cgroup::CgroupChain>, Error> {
    let LoginTarget::Cgroup(path) = &record.target else {
        return Ok(None);
    };
    Ok(ignore_gone(Mount::open()?.open_chain(path))?)
}

/// Notifies the logins, ends them, and removes the cgroups that this project made. Without a record that can be
/// trusted, without a cgroup in it, and if the cgroup is gone, there is nothing to end.
fn end_job(
    record: Option<&Record>,
    known: KnownLogins,
    grace: Duration,
    deadline: Instant,
) -> Attempt {
    let Some(record) = record else {
        return Attempt::without_logins(Ok(()));
    };
    match open_cgroup(record) {
        Ok(Some(place)) => end_logins(&place, record, known, grace, deadline),
        Ok(None) => Attempt::without_logins(Ok(())),
        Err(error) => Attempt::without_logins(Err(error)),
    }
}

/// Removes a job that has ended from the registry, and logs what was `ended`. It fails with [`Error::Failed`]
/// if the registry cannot be changed and, after the removal, if the job's record could not be read.
fn forget_job(job: &RegisteredJob, registry: &Registry, ended: EndedLogins) -> Result<(), Error> {
    let _lock = Lock::take(Lock::REGISTRY_OFFSET, Instant::now() + OPERATION_TIMEOUT)?;
    registry.forget_job(job.uid, &job.id)?;
    if let Err(cause) = &job.record {
        return Err(Error::failed("read record of job", &job.id, cause));
    }
    let line = log_line(Severity::Info, job)
        .with("logins", ended.logins)
        .with("terminals", ended.terminals);
    log(with_usage(line, &ended.usage));
    Ok(())
}

/// Adds what the logins have used to a line of the log. A value that is unknown is left out.
fn with_usage(line: Line, usage: &Usage) -> Line {
    let values = [
        ("login_memory_peak", usage.memory_peak),
        ("login_swap_peak", usage.swap_peak),
        ("login_cpu_ms", usage.cpu_usec.map(|usec| usec / 1000)),
        ("login_io_read", usage.io_read),
        ("login_io_written", usage.io_written),
    ];
    // `Line::with` leaves out an empty value.
    values.into_iter().fold(line, |line, (key, value)| {
        line.with(
            key,
            value.map_or_else(String::new, |value| value.to_string()),
        )
    })
}

fn log_line(severity: Severity, job: &RegisteredJob) -> Line {
    Line::new(severity)
        .with("action", "unregister")
        .with("job", &job.id)
        .with("uid", job.uid)
}
