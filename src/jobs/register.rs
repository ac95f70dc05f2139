//! `register`: adds a job to the registry, for a prolog.

use super::again;
use super::checked_target::{CheckedTarget, check_and_lock};
use super::job_devices::{JobDevices, require_node_name};
use super::limits::{JobLimits, LimitOptions};
use super::other_jobs::{require_no_other_job, require_unique_id};
use super::pin::{pin_for_owner, unpin_ended_jobs};
use super::record_options::{JobOptions, non_empty, require_valid};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use command::accounts::{self, require_root};
use command::error::Error;
use command::exit_status::EXIT_FINE;
use command::options::parse_job_id;
use command::options::{Conf, OPERATION_TIMEOUT, parse_value};
use command::output::Output;
use helper::Config;
use helper::devices::Policy;
use helper::jobs::records::{
    LoginTarget, Options as Policies, PrologEnvironment, Record, Registry, Via,
};
use helper::printable;
use kernel::sys::clock;
use kernel::trust::Trust;
use protocol::{CgroupPath, JobId, NodeName, Scheduler, SourceName};
use std::collections::BTreeMap;
use std::io::Read;
use std::time::Instant;

/// Maximum bytes of the IMP's input, whose signed job specification has the user's whole environment.
const IMP_INPUT_BYTES_MAX: u64 = 4 << 20;

/// Make a job known, for a prolog (root)
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(after_help = "\
Stamps the job's cgroup, confines it to its devices, and writes its record. Without job options it reads
the record from standard input.")]
pub struct Options {
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
    #[arg(long, value_name = "PID|PATH")]
    pub(super) namespaces: Option<String>,
    /// The job takes no logins: they are refused
    #[arg(long)]
    pub(super) no_logins: bool,
    /// When the job started, in seconds since the epoch; now unless given
    #[arg(long, value_name = "SECONDS")]
    pub(super) started: Option<i64>,
    /// The scheduler whose variables --env has
    #[arg(long, value_name = "NAME", value_parser = scheduler_parser(), conflicts_with = "via")]
    pub(super) scheduler: Option<Scheduler>,
    /// A variable of the job, for env = full; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub(super) env: Vec<(String, String)>,
    /// What Slurm calls this node, whose lines of gres.conf count (SLURMD_NODENAME of a prolog)
    #[arg(long, value_name = "NAME", value_parser = parse_value::<NodeName>)]
    pub(super) node: Option<NodeName>,
    /// Policy and devices from the input of Flux's IMP, on standard input; all else from options
    #[arg(long, value_name = "-", value_parser = ["-"], conflicts_with = "device")]
    pub(super) json: Option<String>,
    #[command(flatten)]
    limits: LimitOptions,
    /// Resolve the devices of a registered job anew
    #[arg(long, value_name = "ID", num_args = 0..=1, value_parser = parse_job_id)]
    again: Option<Option<JobId>>,
    /// With --again: of all registered jobs
    #[arg(long, requires = "again")]
    all: bool,
    #[command(flatten)]
    conf: Conf,
}

fn via_parser() -> impl TypedValueParser<Value = Via> {
    PossibleValuesParser::new(Via::ALL.map(Via::as_str)).try_map(|name| name.parse())
}

/// Parses the name of a scheduler that has no source of its own.
fn scheduler_parser() -> impl TypedValueParser<Value = Scheduler> {
    let registered = Scheduler::ALL
        .into_iter()
        .filter(|scheduler| scheduler.source() == SourceName::Registry);
    PossibleValuesParser::new(registered.map(Scheduler::as_str)).try_map(|name| name.parse())
}

/// Runs `register`: registers the job of the options or, without options other than the configuration, the node's name
/// and the limits, of the record on standard input.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let has_options = Options {
        conf: Conf::default(),
        node: None,
        limits: LimitOptions::default(),
        again: None,
        all: false,
        ..options.clone()
    } != Options::default();
    if let Some(job) = &options.again {
        let which = match (job, options.all) {
            (Some(id), false) => Some(id),
            (None, true) => None,
            _ => {
                let cause = "option --again takes the id of a job, or --all";
                return Err(Error::usage("register", cause));
            }
        };
        if has_options || !options.limits.is_empty() {
            let cause = "option --again goes with --all, --node and --conf alone: the job is as it was registered";
            return Err(Error::usage("register", cause));
        }
        require_root("register job")?;
        let config = options.conf.read()?;
        return again::register_again(which, options.node.as_ref(), &config, output);
    }
    let record = if has_options {
        Some(build_registered(options, output)?)
    } else {
        None
    };
    require_root("register job")?;
    let mut record = record.map_or_else(read_record, Ok)?;
    if options.json.is_some() {
        let input = Policies::parse_imp_input(&read_input(IMP_INPUT_BYTES_MAX)?)?;
        record.options = choose_devices(input, record.options)?;
    }
    let mut config = options.conf.read()?;
    if let Some(node) = &options.node {
        config.devices.node_name = Some(node.to_string());
    }
    require_node_name(&record, &config)?;
    let limits = resolve_limits(&options.limits, &record)?;
    register(record, &limits, &config, output)?;
    Ok(EXIT_FINE)
}

/// Chooses between what Flux asks for and `--policy auto`, by which the admin says that a job for which Flux asks for no
/// containment may have every device.
///
/// # Errors
///
/// [`Error::Input`] for another policy among the options, and if Flux asks for a list.
fn choose_devices(
    input: Option<Policies>,
    option: Option<Policies>,
) -> Result<Option<Policies>, Error> {
    let Some(option) = option else {
        return Ok(input);
    };
    let asks_for_none = input.as_ref().is_none_or(|input| {
        input.device_allow.is_none() && matches!(input.device_policy, None | Some(Policy::Auto))
    });
    if option.device_policy == Some(Policy::Auto) && asks_for_none {
        return Ok(Some(option));
    }
    let cause = "beside --json, only --policy auto can stand, for input without DeviceAllow and with no policy but auto";
    Err(Error::usage("register", cause))
}

/// Completes the limits of the options by this node. It fails as [`JobLimits::resolve`] does, and with
/// [`Error::Input`] for limits of a record without a cgroup.
fn resolve_limits(options: &LimitOptions, record: &Record) -> Result<JobLimits, Error> {
    match &record.target {
        LoginTarget::Via(via) if !options.is_empty() => {
            let cause = format!(
                "limits are for records with cgroup: {} sets its own",
                via.as_str()
            );
            Err(Error::usage("register", cause))
        }
        _ => JobLimits::resolve("register", options),
    }
}

/// Reads a job's record from standard input. It fails with [`Error::Input`] for a text that is too long for
/// the registry or is no valid record, and with [`Error::Failed`] if standard input cannot be read.
fn read_record() -> Result<Record, Error> {
    let record = Record::parse(&read_input(Registry::FILE_BYTES_MAX)?)?;
    match record.resolved {
        None => Ok(record),
        // A list of numbers that nobody resolved here.
        Some(_) => {
            let cause = "key resolved is what register itself writes; leave it out";
            Err(Error::Input(format!("read record: {cause}")))
        }
    }
}

/// Reads standard input. It fails with [`Error::Input`] for more bytes than the limit, and with
/// [`Error::Failed`] if standard input cannot be read.
fn read_input(limit: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::failed("read", "standard input", error))?;
    if bytes.len() as u64 > limit {
        return Err(Error::Input(format!(
            "read standard input: more than {limit} bytes"
        )));
    }
    Ok(bytes)
}

/// Registers a job: stamps and confines its cgroup, if the kernel holds it to these limits, and writes its record last.
/// Registering the same job again is no failure; new values replace old ones.
///
/// # Errors
///
/// [`Error`]. A new stamp is then removed, and the registry has no new record. If only the pins of ended jobs cannot be
/// removed, it fails as well, but the job is registered. A filter stays: it belongs to the job.
pub(super) fn register(
    record: Record,
    limits: &JobLimits,
    config: &Config,
    output: &mut Output<'_>,
) -> Result<(), Error> {
    let trust = Trust::root();
    let (checked, _lock) = check_and_lock(&record)?;
    config.registry.remove_old_notes(&trust, clock::now())?;
    let result = register_locked(record, checked, limits, config, &trust, output);
    // This removes the pins of jobs whose end was not reported, and of this one if it is not
    // registered now.
    let unpinned = unpin_ended_jobs(&config.registry, &trust);
    result.and(unpinned)
}

/// Registers a job under the registry's lock, which the caller holds: it completes the check of the record,
/// stamps and confines the cgroup that was `checked`, and writes the record last. If a step fails, `drop` of the
/// cgroup removes a new stamp, and a filter stays. It fails with [`Error`] and the step.
fn register_locked(
    mut record: Record,
    checked: CheckedTarget,
    limits: &JobLimits,
    config: &Config,
    trust: &Trust,
    output: &mut Output<'_>,
) -> Result<(), Error> {
    let earlier_start = require_unique_id(&record, &config.registry, trust)?;
    // This comes before any change of the cgroup, because a filter would stay.
    config.registry.make_user_dir(trust, record.uid)?;
    record.started = record
        .started
        .or(earlier_start)
        .or_else(|| Some(clock::now()));
    let devices = JobDevices::resolve(&mut record, config, output)?;
    let mut stamped = None;
    // The containment that holds: the cgroup may have a filter of its scheduler.
    let mut in_force = devices.containment.as_str();
    if let Some(checked) = checked? {
        require_no_other_job(checked.place(), &record, &config.registry, trust)?;
        checked.require_limits(limits)?;
        let cgroup = checked.stamp(&record)?;
        cgroup.require_open_slices()?;
        cgroup.store_namespace(&record, &config.registry)?;
        let deadline = Instant::now() + OPERATION_TIMEOUT;
        in_force = cgroup.confine(&devices.containment, record.leaf.as_ref(), deadline, output)?;
        stamped = Some(cgroup);
    } else if let Some(path) = &record.namespaces {
        pin_for_owner(path, &record, &config.registry)?;
    }
    config.registry.write_record(trust, &record)?;
    if let Some(cgroup) = stamped {
        cgroup.keep();
    }
    devices.log(&record, in_force);
    Ok(())
}

/// Builds the record from the options of `register`.
///
/// # Errors
///
/// The errors of [`JobOptions::build_record`] and [`accounts::require_owner`], and [`Error::Input`] for
/// a missing option.
fn build_registered(options: &Options, output: &mut Output<'_>) -> Result<Record, Error> {
    let Some(id) = &options.job.id else {
        return Err(Error::usage("register", "option --id is needed"));
    };
    let target = match (&options.cgroup, options.via) {
        (Some(path), None) => LoginTarget::Cgroup(path.clone()),
        (None, Some(via)) => LoginTarget::Via(via),
        _ => {
            let cause = "exactly one of --cgroup and --via is needed";
            return Err(Error::usage("register", cause));
        }
    };
    let uid = match (options.uid, &options.user) {
        (Some(uid), None) => uid,
        (None, Some(name)) => accounts::require_owner(name, "register")?.uid.as_raw(),
        _ => {
            return Err(Error::usage(
                "register",
                "exactly one of --uid and --user is needed",
            ));
        }
    };
    let mut record = options.job.build_record("register", id, uid, target)?;
    record.scheduler = options.scheduler;
    record.env = build_environment(&options.env, &record, output)?;
    record.accounts = non_empty(options.account.clone());
    record.namespaces = options.namespaces.clone();
    record.logins = options.no_logins.then_some(false);
    record.started = options.started;
    require_valid(&record)
}

/// Splits a variable's name from its value. Which names and values a job can have depends on its scheduler.
///
/// # Errors
///
/// A text for another form.
fn parse_variable(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("not of the form NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Builds the variables of `--env` for a record; `None` without the option. Of a Slurm job it leaves out
/// values that logins do not get, with a warning: prologs of sites pass on the directory that the user chose,
/// whose name must not make them fail.
///
/// # Errors
///
/// [`Error::Input`] with the name of a variable that the record cannot have, or that is given twice.
fn build_environment(
    given: &[(String, String)],
    record: &Record,
    output: &mut Output<'_>,
) -> Result<Option<PrologEnvironment>, Error> {
    if given.is_empty() {
        return Ok(None);
    }
    let of_slurm = record.scheduler() == Scheduler::Slurm;
    let mut variables = BTreeMap::new();
    for (name, value) in given {
        let is_known = PrologEnvironment::SLURM_NAMES.contains(&name.as_str());
        if of_slurm && is_known && !PrologEnvironment::is_valid_value(name, value) {
            output.warn(format_args!(
                "warning: left out: the value of {name} is not printable, empty or too long"
            ));
        } else if variables.insert(name.clone(), value.clone()).is_some() {
            let cause = format!("option --env: {}: given twice", printable(name));
            return Err(Error::usage("register", cause));
        }
    }
    let environment = PrologEnvironment::new(variables, &record.id, record.scheduler());
    environment.map(Some).map_err(|error| {
        let cause = printable(&error.to_string());
        Error::usage("register", format!("option --env: {cause}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use helper::devices::Policy;
    use helper::jobs::records::Gpu;
    use std::ffi::OsString;

    const UUID: &str = "edfee158-11c1-52b8-0517-92f30e7fac88";

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn build(line: &str) -> Result<Record, Error> {
        let line = line.replace("UUID", UUID);
        build_from(line.split(' ').map(|word| word.replace('_', " ")))
    }

    fn build_from(words: impl Iterator<Item = String>) -> Result<Record, Error> {
        let mut out = Vec::new();
        let mut err = Vec::new();
        let mut output = Output {
            out: &mut out,
            err: &mut err,
        };
        let words: Vec<OsString> = std::iter::once("register".to_owned())
            .chain(words)
            .map(OsString::from)
            .collect();
        let line = Line::try_parse_from(words).map_err(|error| {
            let text = error.to_string();
            let fault = text.lines().next().unwrap_or_default();
            Error::usage("register", fault.trim_start_matches("error: "))
        })?;
        build_registered(&line.options, &mut output)
    }

    fn with_env(variables: &[&str]) -> Result<Record, Error> {
        let given = ["--id", "7", "--uid", "5", "--via", "slurm"].map(str::to_owned);
        let variables = variables.iter().map(|text| format!("--env={text}"));
        build_from(given.into_iter().chain(variables))
    }

    #[test]
    fn every_option_sets_key_of_record() {
        let record = build(
            "--id 7 --uid 5 --cgroup /a/b --policy strict --device /dev/null_r --device char-pts \
             --cdi x.y/z=0 --gpu 1 --gpu GPU-UUID --gres gpu:0,1 --gres gpu:3 --gres gpu:h100:2 \
             --leaf l --started 8 --ends 9 --device-dir /d --namespaces /run/n --no-logins \
             --account oar --account 7",
        )
        .unwrap();
        assert_eq!((record.id.as_str(), record.uid), ("7", 5));
        assert_eq!(record.target, LoginTarget::Cgroup("/a/b".parse().unwrap()));
        let options = record.options.unwrap();
        assert_eq!(options.device_policy, Some(Policy::Strict));
        let allow = [("/dev/null", "r"), ("char-pts", "rw")].map(|(a, b)| (a.into(), b.into()));
        assert_eq!(options.device_allow.unwrap(), allow);
        assert_eq!(record.cdi.unwrap(), ["x.y/z=0"]);
        assert_eq!(
            record.gpus.unwrap(),
            [Gpu::Index(1), Gpu::Name(format!("GPU-{UUID}"))]
        );
        let gres = [
            ("gpu".to_owned(), vec![0, 1, 3]),
            ("gpu:h100".to_owned(), vec![2]),
        ];
        assert_eq!(record.gres.unwrap(), gres.into());
        assert_eq!(record.leaf.unwrap().as_str(), "l");
        assert_eq!((record.started, record.ends), (Some(8), Some(9)));
        assert_eq!(record.device_dir.as_deref(), Some("/d"));
        assert_eq!(record.namespaces.as_deref(), Some("/run/n"));
        assert_eq!(record.logins, Some(false));
        assert_eq!(record.accounts.unwrap(), ["oar", "7"]);
    }

    #[test]
    fn known_variables_are_kept_and_odd_values_left_out() {
        let record = with_env(&[
            "SLURM_JOB_NTASKS=2",
            "SLURM_JOB_WORK_DIR=/a=b c",
            "SLURM_JOB_USER=",
            "SLURM_JOB_ACCOUNT=\u{e4}",
        ]);
        let env = record.unwrap().env.unwrap();
        assert_eq!(env.get("SLURM_JOB_NTASKS"), Some("2"));
        assert_eq!(env.get("SLURM_JOB_WORK_DIR"), Some("/a=b c"));
        assert_eq!(env.variables().len(), 2);
        assert_eq!(with_env(&[]).unwrap().env, None);
        assert_eq!(
            with_env(&["SLURM_JOB_USER="]).unwrap().env,
            Some(PrologEnvironment::default())
        );
        for wrong in ["SLURM_JOB_USER", "PATH=/x", "=x", ""] {
            assert_eq!(with_env(&[wrong]).unwrap_err().exit_code(), 2, "{wrong}");
        }
        assert!(with_env(&["SLURM_JOB_USER=a", "SLURM_JOB_USER=b"]).is_err());
    }

    #[test]
    fn variable_that_a_job_cannot_have_is_refused_with_its_name() {
        let register = |more: &[&str]| {
            let given = ["--id=77.3", "--uid=5", "--cgroup=/a"].iter().chain(more);
            build_from(given.map(|word| (*word).to_owned()))
        };
        let grid = "--scheduler=gridengine";
        let record = register(&[grid, "--env=JOB_ID=77", "--env=TMPDIR=/tmp/77"]).unwrap();
        assert_eq!(record.scheduler, Some(Scheduler::GridEngine));
        assert_eq!(record.env.unwrap().variables().len(), 2);
        assert_eq!(register(&[grid]).unwrap().env, None);
        for (more, expected) in [
            (
                &[grid, "--env=LD_PRELOAD=/x"][..],
                "--env: LD_PRELOAD is none of the variables",
            ),
            (
                &[grid, "--env=OAR_JOB_ID=77"],
                "--env: OAR_JOB_ID is none of",
            ),
            (
                &[grid, "--env=JOB_ID=78"],
                "--env: JOB_ID is the id of another job: leave it out",
            ),
            (
                &[grid, "--env=TMPDIR=/a b"],
                "--env: TMPDIR is empty, or has blanks",
            ),
            (&[grid, "--env=TMPDIR="], "--env: TMPDIR is empty"),
            (
                &[grid, "--env=ARC=a", "--env=ARC=b"],
                "--env: ARC: given twice",
            ),
            (&["--env=JOB_ID=77"], "--env: JOB_ID is none of"),
            (
                &["--env=SLURM_JOB_USER=a"],
                "--env: SLURM_JOB_USER is none of",
            ),
            (&["--scheduler=slurm"], "--scheduler"),
            (&["--scheduler=pbs"], "--scheduler"),
        ] {
            let error = register(more).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{more:?}");
            assert!(error.to_string().contains(expected), "{error}");
        }
        let via = ["--id=7", "--uid=5", "--via=flux", "--env=FLUX_JOB_ID=7"].map(str::to_owned);
        assert!(build_from(via.into_iter()).is_err());
    }

    #[test]
    fn record_lacks_keys_of_missing_options() {
        let record = build("--id 7 --uid 5 --via slurm").unwrap();
        assert_eq!(record.options, None);
        assert_eq!(record.gpus, None);
    }

    #[test]
    fn wrong_option_or_combination_is_wrong_usage() {
        for line in [
            "--uid 5 --cgroup /a",
            "--id 7 --cgroup /a",
            "--id 7 --uid 5",
            "--id 7 --uid 5 --user root --cgroup /a",
            "--id 7 --uid 5 --cgroup /a --via slurm",
            "--id a/b --uid 5 --cgroup /a",
            "--id 7 --uid -5 --cgroup /a",
            "--id 7 --uid +5 --cgroup /a",
            "--id 7 --uid 05 --cgroup /a",
            "--id 7 --uid 0 --cgroup /a",
            "--id 7 --user root --cgroup /a",
            "--id 7 --uid 4294967295 --cgroup /a",
            "--id 7 --uid 5 --cgroup a",
            "--id 7 --uid 5 --cgroup /a/../b",
            "--id 7 --uid 5 --via pbs",
            "--id 7 --uid 5 --cgroup /a --policy open",
            "--id 7 --uid 5 --cgroup /a --device null",
            "--id 7 --uid 5 --cgroup /a --device /dev/null_x",
            "--id 7 --uid 5 --cgroup /a --gres gpu",
            "--id 7 --uid 5 --cgroup /a --gres gpu:",
            "--id 7 --uid 5 --cgroup /a --gres :1",
            "--id 7 --uid 5 --cgroup /a --gres gpu:h100",
            "--id 7 --uid 5 --cgroup /a --gres gpu:+1",
            "--id 7 --uid 5 --cgroup /a --gres gpu:01",
            "--id 7 --uid 5 --cgroup /a --gres gpu::1",
            "--id 7 --uid 5 --cgroup /a --gres gpu:0-3",
            "--id 7 --uid 5 --cgroup /a --started 0",
            "--id 7 --uid 5 --cgroup /a --device-dir d",
            "--id 7 --uid 5 --cgroup /a --namespaces run/n",
            "--id 7 --uid 5 --cgroup /a --namespaces 07",
            "--id 7 --uid 5 --via slurm --namespaces 7",
            "--id 7 --uid 5 --via slurm --account oar",
            "--json - --cgroup /a --uid 5",
            "--id 7 --uid 5 --via flux --json /tmp/input",
            "--id 7 --uid 5 --via flux --json - --device /dev/fuse",
        ] {
            let error = build(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}: {error:?}");
        }
    }

    #[test]
    fn invalid_name_is_reported_with_option() {
        for (option, begin) in [
            (
                "--gpu nvidia0",
                "'nvidia0' for '--gpu <GPU>': not the name of a GPU: ",
            ),
            ("--gpu 0,1", "'0,1' for '--gpu <GPU>': one GPU per option"),
            ("--gpu=", "'' for '--gpu <GPU>': "),
            (
                "--cdi nvidia.com/gpu",
                "'nvidia.com/gpu' for '--cdi <VENDOR/CLASS=NAME>': not a qual",
            ),
            ("--cdi=", "'' for '--cdi <VENDOR/CLASS=NAME>': "),
            (
                "--gres gpu:0-3",
                "'gpu:0-3' for '--gres <NAME:INDEX,...>': ranges are not taken",
            ),
            ("--gres=", "'' for '--gres <NAME:INDEX,...>': "),
            (
                "--device @HPC",
                "'@HPC' for '--device <SPEC ACCESS>': no name of a preset: ",
            ),
            ("--device=", "'' for '--device <SPEC ACCESS>': "),
            (
                "--device-dir d",
                "'d' for '--device-dir <DIRECTORY>': not the absolute path",
            ),
            ("--device-dir=", "'' for '--device-dir <DIRECTORY>': "),
        ] {
            let result = build(&format!("--id 7 --uid 5 --cgroup /a {option}"));
            let error = result.unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("register: invalid value {begin}")),
                "{error}"
            );
        }
    }
}
