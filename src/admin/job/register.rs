//! `register`: adds a job to the registry, for a prolog.

use super::pin::unpin_ended_jobs;
use super::record_options::{self, JobOptions};
use super::stamped_cgroup::CheckedCgroup;
use crate::accounts::{self, require_root};
use crate::error::Error;
use crate::exit_status::EXIT_FINE;
use crate::options::{Conf, OPERATION_TIMEOUT, parse_value};
use crate::output::{Output, log};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use helper::devices::Resolver;
use helper::jobs::records::{LoginTarget, Record, RecordDevices, Registry, Via};
use helper::node::Tree;
use helper::printable;
use helper::{Config, JobContainment, LoginRefusal, contain_by_record};
use kernel::cgroup::{self, CgroupChain, Dir, Mount, Stamp, ignore_gone, walk};
use kernel::lock::Lock;
use kernel::log::{Line, Severity};
use kernel::sys::clock;
use kernel::trust::Trust;
use protocol::{CgroupPath, Containment, Reason, is_within};
use std::io::Read;
use std::time::Instant;

/// Maximum checks of a cgroup whose directory or stamp changes meanwhile.
const CHECK_TRIES: u32 = 5;

/// Maximum cgroups that are searched, under the registry's lock, for a job whose record does not show its cgroup.
const SEARCHED_CGROUPS_MAX: u32 = 1000;

/// Make a job known, for a prolog (root)
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(after_help = "\
Stamps the job's cgroup, confines it to its devices, and writes its record. Without job options it reads
the record from standard input.")]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) job: JobOptions,
    /// The uid of the owner
    #[arg(long, value_parser = accounts::parse_owner)]
    pub(super) uid: Option<u32>,
    /// The owner of the job
    #[arg(long, conflicts_with = "uid")]
    pub(super) user: Option<String>,
    /// A cgroup, below the cgroup v2 mount
    #[arg(long, value_name = "PATH", value_parser = parse_value::<CgroupPath>)]
    pub(super) cgroup: Option<CgroupPath>,
    /// The scheduler that places the logins
    #[arg(long, value_name = "SCHEDULER", value_parser = via_parser(), conflicts_with = "cgroup")]
    pub(super) via: Option<Via>,
    /// An account of the scheduler that may have processes in the job; repeatable
    #[arg(long, value_name = "NAME", conflicts_with = "via")]
    pub(super) account: Vec<String>,
    /// A root process of the job, or a path, whose mounts logins see
    #[arg(long, value_name = "PID|PATH", conflicts_with = "via")]
    pub(super) namespaces: Option<String>,
    /// When the job started, in seconds since the epoch; now unless given
    #[arg(long, value_name = "SECONDS")]
    pub(super) started: Option<i64>,
    /// A variable of Slurm's prolog, for env = full; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = record_options::parse_variable)]
    pub(super) env: Vec<(String, String)>,
    #[command(flatten)]
    conf: Conf,
}

fn via_parser() -> impl TypedValueParser<Value = Via> {
    PossibleValuesParser::new(Via::ALL.map(Via::as_str)).try_map(|name| name.parse())
}

pub(crate) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let has_options = Options { conf: Conf::default(), ..options.clone() } != Options::default();
    let record =
        if has_options { Some(record_options::build_registered(options, output)?) } else { None };
    require_root("register job")?;
    let record = record.map_or_else(read_record, Ok)?;
    register(record, &options.conf.read()?, output)?;
    Ok(EXIT_FINE)
}

fn read_record() -> Result<Record, Error> {
    let mut bytes = Vec::new();
    let limit = Registry::FILE_BYTES_MAX;
    let read = std::io::stdin().lock().take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|error| Error::failed("read", "standard input", error))?;
    if bytes.len() as u64 > limit {
        return Err(Error::Input(format!("read record: more than {limit} bytes")));
    }
    Ok(Record::parse(&bytes)?)
}

/// Registers a job: stamps and confines its cgroup, and writes its record last. Registering the same job
/// again is no failure; new values replace old ones.
///
/// # Errors
///
/// [`Error`]; stamp and registry are then unchanged. A filter stays: it belongs to the job.
pub(super) fn register(
    record: Record,
    config: &Config,
    output: &mut Output<'_>,
) -> Result<(), Error> {
    let trust = Trust::root();
    let (checked, _lock) = check_and_lock(&record)?;
    config.registry.remove_old_notes(&trust, clock::now())?;
    let result = register_locked(record, checked, config, &trust, output);
    // This removes the pins of jobs whose end was not reported, and of this one if it is not
    // registered now.
    let unpinned = unpin_ended_jobs(&config.registry, &trust);
    result.and(unpinned)
}

/// The checked cgroup of a record, if it names one.
type CheckedTarget = Result<Option<CheckedCgroup>, Error>;

/// Checks the record's cgroup and then takes the registry's lock, so that no other call waits for the check.
/// It checks again if the cgroup has changed until the lock was taken. Other faults of the record are to be
/// reported before a fault of the cgroup, which is therefore returned.
///
/// # Errors
///
/// [`Error::Failed`] if the lock cannot be taken, or if the cgroup changes each time.
fn check_and_lock(record: &Record) -> Result<(CheckedTarget, Lock), Error> {
    for _ in 0..CHECK_TRIES {
        let checked = check_target(record);
        let lock = Lock::take(Lock::REGISTRY_OFFSET, Instant::now() + OPERATION_TIMEOUT)?;
        let is_current = match (&record.target, &checked) {
            (LoginTarget::Cgroup(path), Ok(Some(cgroup))) => cgroup.is_current(path),
            _ => Ok(true),
        };
        match is_current {
            Ok(true) => return Ok((checked, lock)),
            Ok(false) => {}
            Err(error) => return Ok((Err(error), lock)),
        }
    }
    let cause = "its cgroup, or the stamp there, changes again and again; try again later";
    Err(Error::failed("register job", &record.id, cause))
}

fn check_target(record: &Record) -> CheckedTarget {
    let LoginTarget::Cgroup(path) = &record.target else { return Ok(None) };
    let accounts = record.accounts.iter().flatten().map(|name| accounts::resolve_uid(name));
    let accounts = accounts.collect::<Result<_, _>>()?;
    let deadline = Instant::now() + OPERATION_TIMEOUT;
    CheckedCgroup::check(path, record, accounts, deadline).map(Some)
}

fn register_locked(
    mut record: Record,
    checked: CheckedTarget,
    config: &Config,
    trust: &Trust,
    output: &mut Output<'_>,
) -> Result<(), Error> {
    let earlier_start = require_unique_id(&record, &config.registry, trust)?;
    // This comes before any change of the cgroup, because a filter would stay.
    config.registry.make_user_dir(trust, record.uid)?;
    record.started = record.started.or(earlier_start).or_else(|| Some(clock::now()));
    let containment = resolve_containment(&record, config, output)?;
    let mut stamped = None;
    let mut in_force = containment.as_str();
    if let Some(checked) = checked? {
        require_no_other_job(checked.place(), &record, &config.registry, trust)?;
        let cgroup = checked.stamp(&record)?;
        cgroup.require_open_slices()?;
        cgroup.store_namespace(&record)?;
        in_force = cgroup.confine(&containment, Instant::now() + OPERATION_TIMEOUT, output)?;
        stamped = Some(cgroup);
    }
    config.registry.write_record(trust, &record)?;
    if let Some(cgroup) = stamped {
        cgroup.keep();
    }
    log(log_line(&record, &containment, in_force));
    Ok(())
}

/// Refuses the cgroup of another registered job, and one above or below it: a login must not be in two
/// jobs. The stamps above are read from the cgroups, and the registry shows which cgroups below have one,
/// since their number is the user's choice. Only for a record that does not show its job's cgroup are they
/// searched. A stamp whose job is not registered is a leftover.
fn require_no_other_job(
    place: &CgroupChain,
    record: &Record,
    registry: &Registry,
    trust: &Trust,
) -> Result<(), Error> {
    let own = Stamp { uid: record.uid, job: record.id.clone() };
    let refuse = |dir: &Dir, stamp: &Stamp| {
        let cause = format!("it is the cgroup of job {}", stamp.job);
        Err(Error::failed("stamp", dir.path(), cause))
    };
    for dir in place.levels() {
        if let Some(stamp) = ignore_gone(Stamp::read(dir))?.flatten() {
            if stamp != own && is_registered(registry, trust, &stamp)? {
                return refuse(dir, &stamp);
            }
        }
    }
    let top = place.dir()?.path();
    let mut unplaced = Vec::new();
    for job in registry.list_jobs(trust)? {
        let Some(other) = job.record.ok().or(job.salvage) else {
            unplaced.push(Stamp { uid: job.uid, job: job.id });
            continue;
        };
        let LoginTarget::Cgroup(path) = &other.target else { continue };
        if path.as_str() == top || !is_within(path.as_str(), top) {
            continue;
        }
        let Some(below) = ignore_gone(Mount::open()?.open_chain(path))? else { continue };
        let stamp = Stamp { uid: other.uid, job: other.id };
        if ignore_gone(Stamp::read(below.dir()?))?.flatten().as_ref() == Some(&stamp) {
            return refuse(below.dir()?, &stamp);
        }
    }
    unplaced.retain(|stamp| *stamp != own);
    require_none_below(place.dir()?, &unplaced, registry)
}

/// Refuses a cgroup with one of these jobs below it. Their records do not show where they are.
///
/// It fails with [`Error::Failed`], which names the record, also if there are too many cgroups to search.
fn require_none_below(top: &Dir, jobs: &[Stamp], registry: &Registry) -> Result<(), Error> {
    let [first, ..] = jobs else { return Ok(()) };
    let mut count = 0;
    let mut below = None;
    let result = walk(top, Instant::now() + OPERATION_TIMEOUT, |dir| {
        count += 1;
        let stamp = ignore_gone(Stamp::read(dir))?.flatten();
        let is_other = stamp.is_some_and(|stamp| {
            let other = jobs.iter().find(|other| **other == stamp && dir.path() != top.path());
            below = other.map(|other| (dir.path().to_owned(), other));
            other.is_some()
        });
        if is_other || count > SEARCHED_CGROUPS_MAX {
            return Err(cgroup::Error::unfit(top.path(), "is not searched any further"));
        }
        Ok(())
    });
    let unreadable = |stamp: &Stamp| {
        let record = registry.record_path(stamp.uid, &stamp.job);
        format!("job {}, whose record {} cannot be used", stamp.job, record.display())
    };
    if let Some((path, stamp)) = below {
        let cause = format!("it is the cgroup of {}", unreadable(stamp));
        return Err(Error::failed("stamp", path, cause));
    }
    if count > SEARCHED_CGROUPS_MAX {
        let cause = format!("too many cgroups are below it to find that of {}", unreadable(first));
        return Err(Error::failed("stamp", top.path(), cause));
    }
    Ok(result?)
}

/// Refuses an id that is registered for another user or cgroup. Returns the start time of the same job,
/// if it is registered already.
fn require_unique_id(
    record: &Record,
    registry: &Registry,
    trust: &Trust,
) -> Result<Option<i64>, Error> {
    let mut started = None;
    let refuse = |cause: String| Err(Error::failed("register job", &record.id, cause));
    for job in registry.find_jobs(trust, &record.id)? {
        let is_via = |target: &LoginTarget| matches!(target, LoginTarget::Via(_));
        if job.ending {
            // An unregister was interrupted that had no cgroup to end, and the job is back.
            if is_via(&record.target) && job.record.is_ok_and(|other| is_via(&other.target)) {
                registry.forget_job(job.uid, &job.id)?;
                continue;
            }
            return refuse("a job of this id is still ending; unregister it first".into());
        }
        match job.record {
            _ if job.uid != record.uid => {
                return refuse(format!("this id is registered for uid {}", job.uid));
            }
            Ok(other) if other.target != record.target => {
                return refuse("this id is registered for another cgroup".into());
            }
            Ok(other) => started = other.started,
            // The new record replaces a broken one of the same user.
            Err(_) => {}
        }
    }
    Ok(started)
}

/// Returns whether the registry has the job of a stamp, also one that is ending.
fn is_registered(registry: &Registry, trust: &Trust, stamp: &Stamp) -> Result<bool, Error> {
    Ok(registry.find_jobs(trust, &stamp.job)?.iter().any(|job| job.uid == stamp.uid))
}

/// Resolves the job's devices into its containment.
///
/// It fails with [`Error::Input`] for a record without a word about devices, and with
/// [`Error::Failed`] for a required name that does not resolve: an unconfined job would run with every
/// device.
fn resolve_containment(
    record: &Record,
    config: &Config,
    output: &mut Output<'_>,
) -> Result<Containment, Error> {
    if record.devices() == RecordDevices::Unspecified {
        let cause = "it says nothing about devices; give --device, or --policy closed, or, to \
                     leave the job unconfined, --policy auto";
        return Err(Error::Input(format!("register job {}: {cause}", record.id)));
    }
    // Logins cannot use files that only root can read.
    let resolve =
        || contain_by_record(record, config, &Resolver::new(Tree::host(), config.devices.clone()));
    match accounts::with_login_rights(resolve, output) {
        Ok(JobContainment { containment, dropped, warnings, .. }) => {
            for device in dropped {
                output.warn(format_args!("warning: left out: {device}"));
            }
            for warning in warnings {
                output.warn(format_args!("warning: {warning}"));
            }
            Ok(containment)
        }
        Err(LoginRefusal { refusal, cause }) => {
            let text = format!("register {}", printable(&cause));
            match refusal.reason {
                Reason::DeviceUnknown => Err(Error::Failed(text)),
                _ => Err(Error::Input(text)),
            }
        }
    }
}

/// Returns the line of the log. `in_force` names the containment, which is a filter of the scheduler if the record
/// asks for none.
fn log_line(record: &Record, containment: &Containment, in_force: &str) -> Line {
    let cgroup = match &record.target {
        LoginTarget::Cgroup(path) => path.to_string(),
        LoginTarget::Via(via) => format!("via {}", via.as_str()),
    };
    let line = Line::new(Severity::Info)
        .with("action", "register")
        .with("job", &record.id)
        .with("uid", record.uid)
        .with("cgroup", cgroup)
        .with("containment", in_force);
    match containment {
        Containment::Enforce(list) => line.with("devices", list.rules().len()),
        _ => line,
    }
}
