//! `register`: makes a job known, for a prolog.

use super::command_line::parse_value;
use super::job::JobOptions;
use super::pin::sweep;
use super::placed::Placed;
use super::{Conf, Error, Output, PATIENCE, accounts, job, require_root};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use helper::devices::{Resolver, Tree};
use helper::printable;
use helper::records::{LoginTarget, Record, RecordDevices, Registry, Via};
use helper::{Config, JobContainment, contain_by_record};
use kernel::cgroup::Stamp;
use kernel::lock::Lock;
use kernel::log::{Line, Severity};
use kernel::sys::clock;
use kernel::trust::Trust;
use protocol::{CgroupPath, Containment, Reason};
use std::io::Read;
use std::time::Instant;

/// Make a job known, for a prolog (root)
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(after_help = "\
Stamps the job's cgroup, confines it to its devices, and writes its record. Without job options it reads
the record from standard input.")]
pub(super) struct Options {
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
    #[arg(long, value_name = "SCHEDULER", value_parser = via(), conflicts_with = "cgroup")]
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
    #[arg(long, value_name = "NAME=VALUE", value_parser = job::variable)]
    pub(super) env: Vec<(String, String)>,
    #[command(flatten)]
    conf: Conf,
}

fn via() -> impl TypedValueParser<Value = Via> {
    PossibleValuesParser::new(Via::ALL.map(Via::as_str)).try_map(|name| name.parse())
}

pub(super) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let said = Options { conf: Conf::default(), ..options.clone() } != Options::default();
    let record = if said { Some(job::registered(options, output)?) } else { None };
    require_root("register job")?;
    let record = record.map_or_else(read_record, Ok)?;
    register(record, &options.conf.read()?, output)?;
    Ok(super::EXIT_FINE)
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

/// Makes a job known: stamps and confines its cgroup, and writes its record last of all. The same
/// job again is no failure; what is new about it replaces what was.
/// Fails: [`Error`]; stamp and registry are then as they were. A filter stays: it belongs to the
/// job.
pub(super) fn register(
    record: Record,
    config: &Config,
    output: &mut Output<'_>,
) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    let trust = Trust::root();
    let _lock = Lock::take(Lock::REGISTRY_OFFSET, deadline)?;
    config.registry.remove_old_notes(&trust, clock::now())?;
    let result = place(record, config, &trust, deadline, output);
    // Pins of jobs whose end nobody reported, and of this one if it is not registered now.
    let swept = sweep(&config.registry, &trust);
    result.and(swept)
}

fn place(
    mut record: Record,
    config: &Config,
    trust: &Trust,
    deadline: Instant,
    output: &mut Output<'_>,
) -> Result<(), Error> {
    let before = alone(&record, &config.registry, trust)?;
    // Before the cgroup is touched: a filter would stay.
    config.registry.make_user_dir(trust, record.uid)?;
    record.started = record.started.or(before).or_else(|| Some(clock::now()));
    let wanted = wanted(&record, config, output)?;
    let accounts = record.accounts.iter().flatten().map(|name| accounts::resolve_uid(name));
    let accounts = accounts.collect::<Result<_, _>>()?;
    let mut stamped = None;
    if let LoginTarget::Cgroup(path) = &record.target {
        let known = |stamp: &Stamp| known(&config.registry, trust, stamp);
        let placed = Placed::stamp(path, &record, accounts, known, deadline)?;
        placed.not_in_closed_slice()?;
        placed.mark_namespace(&record)?;
        placed.confine(&wanted, deadline, output)?;
        stamped = Some(placed);
    }
    config.registry.write_record(trust, &record)?;
    if let Some(placed) = stamped {
        placed.keep();
    }
    super::log(line(&record, &wanted));
    Ok(())
}

/// Refuses an id that is somebody's, or the same user's in another place. Returns when the job
/// started, where it is registered already.
fn alone(record: &Record, registry: &Registry, trust: &Trust) -> Result<Option<i64>, Error> {
    let mut started = None;
    let refuse = |cause: String| Err(Error::failed("register job", &record.id, cause));
    for known in registry.find_jobs(trust, &record.id)? {
        let is_via = |place: &LoginTarget| matches!(place, LoginTarget::Via(_));
        if known.ending {
            // Nothing of it was ours to end: an unregister was cut short, and the job is back.
            if is_via(&record.target) && known.record.is_ok_and(|other| is_via(&other.target)) {
                registry.forget_job(known.uid, &known.id)?;
                continue;
            }
            return refuse("a job of this id is still ending; unregister it first".into());
        }
        match known.record {
            _ if known.uid != record.uid => {
                return refuse(format!("this id is registered for uid {}", known.uid));
            }
            Ok(other) if other.target != record.target => {
                return refuse("this id is registered for another cgroup".into());
            }
            Ok(other) => started = other.started,
            // A broken record of the same user's is as good as replaced.
            Err(_) => {}
        }
    }
    Ok(started)
}

/// Whether a stamp is of a job that the registry has, be it on its way out.
fn known(registry: &Registry, trust: &Trust, stamp: &Stamp) -> Result<bool, Error> {
    Ok(registry.find_jobs(trust, &stamp.job)?.iter().any(|known| known.uid == stamp.uid))
}

/// What the job's devices need.
/// Fails: [`Error::Input`] for a record that says nothing about devices, [`Error::Failed`] for a
/// name that has to resolve and does not: a job that is not confined would run with every device.
fn wanted(record: &Record, config: &Config, output: &mut Output<'_>) -> Result<Containment, Error> {
    if record.devices() == RecordDevices::Unspecified {
        let cause = "it says nothing about devices; give --device, or --policy closed, or, to \
                     leave the job unconfined, --policy auto";
        return Err(Error::Input(format!("register job {}: {cause}", record.id)));
    }
    // What root alone can read would be refused to every login.
    let look =
        || contain_by_record(record, config, &Resolver::new(Tree::host(), config.devices.clone()));
    match accounts::with_login_rights(look, output) {
        Ok(JobContainment { containment, dropped, warnings, .. }) => {
            for device in dropped {
                output.warn(format_args!("warning: left out: {device}"));
            }
            for warning in warnings {
                output.warn(format_args!("warning: {warning}"));
            }
            Ok(containment)
        }
        Err((refusal, cause)) => {
            let text = format!("register {}", printable(&cause));
            match refusal.reason {
                Reason::DeviceUnknown => Err(Error::Failed(text)),
                _ => Err(Error::Input(text)),
            }
        }
    }
}

fn line(record: &Record, wanted: &Containment) -> Line {
    let place = match &record.target {
        LoginTarget::Cgroup(path) => path.to_string(),
        LoginTarget::Via(via) => format!("via {}", via.as_str()),
    };
    let line = Line::new(Severity::Info)
        .with("action", "register")
        .with("job", &record.id)
        .with("uid", record.uid)
        .with("cgroup", place)
        .with("containment", wanted.as_str());
    match wanted {
        Containment::Enforce(list) => line.with("devices", list.rules().len()),
        _ => line,
    }
}
