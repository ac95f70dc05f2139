//! Builds a job's record from the options of `run` and `register`.

use super::names::{self, DeviceOptions};
use super::register::Options as RegisterOptions;
use crate::accounts;
use crate::error::Error;
use crate::options::parse_value;
use crate::output::Output;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use helper::devices::Policy;
use helper::jobs::records::{Gpu, LoginTarget, Options as Policies, PrologEnvironment, Record};
use protocol::{JobId, LeafName, parse_decimal};
use std::collections::BTreeMap;

/// The options by which `run` and `register` describe a job.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(super) struct JobOptions {
    /// The job's id, unique on this node
    #[arg(long, value_parser = names::parse_job_id)]
    pub(super) id: Option<JobId>,
    /// What may be opened besides the devices
    #[arg(long, value_parser = policy_parser())]
    policy: Option<Policy>,
    #[command(flatten)]
    devices: DeviceOptions,
    /// The child cgroup that logins go to
    #[arg(long, value_name = "NAME", value_parser = parse_value::<LeafName>)]
    leaf: Option<LeafName>,
    /// When the job ends, in seconds since the epoch
    #[arg(long, value_name = "SECONDS")]
    ends: Option<i64>,
}

fn policy_parser() -> impl TypedValueParser<Value = Policy> {
    PossibleValuesParser::new(["closed", "strict", "auto"]).try_map(|text| text.parse())
}

impl JobOptions {
    /// Builds the record of the job `id` of `uid` with `target`.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for a doubled option, and for an invalid record.
    pub(super) fn build_record(
        &self,
        command: &str,
        id: &JobId,
        uid: u32,
        target: LoginTarget,
    ) -> Result<Record, Error> {
        let DeviceOptions { cdi, gpu: gpus, device_dir, .. } = &self.devices;
        if device_dir.len() > 1 {
            return Err(Error::usage(command, "option --device-dir is given twice"));
        }
        let record = Record {
            id: id.clone(),
            uid,
            target,
            started: None,
            ends: self.ends,
            leaf: self.leaf.clone(),
            options: self.policies(),
            cdi: non_empty(cdi.clone()),
            gpus: non_empty(gpus.iter().cloned().map(to_gpu).collect()),
            gres: self.gres(),
            device_dir: device_dir.first().cloned(),
            accounts: None,
            namespaces: None,
            env: None,
        };
        require_valid(&record)
    }

    fn policies(&self) -> Option<Policies> {
        let allow = self.devices.device.iter().map(|device| {
            let (spec, access) = device.text.split_once(' ').unwrap_or((&device.text, "rw"));
            (spec.to_owned(), access.to_owned())
        });
        let (device_policy, device_allow) = (self.policy, non_empty(allow.collect()));
        (device_policy.is_some() || device_allow.is_some())
            .then_some(Policies { device_policy, device_allow })
    }

    /// Collects the indexes of all options by name.
    fn gres(&self) -> Option<BTreeMap<String, Vec<u32>>> {
        let mut gres: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (name, indexes) in &self.devices.gres {
            gres.entry(name.clone()).or_default().extend(indexes);
        }
        (!gres.is_empty()).then_some(gres)
    }
}

/// Parses the record back: the parser checks the ranges of all values.
fn require_valid(record: &Record) -> Result<Record, Error> {
    Ok(Record::parse(record.to_json()?.as_bytes())?)
}

/// Builds the record from the options of `register`.
///
/// # Errors
///
/// The errors of [`JobOptions::build_record`] and [`accounts::require_owner`], and [`Error::Input`] for
/// a missing option.
pub(super) fn build_registered(
    options: &RegisterOptions,
    output: &mut Output<'_>,
) -> Result<Record, Error> {
    let missing = |cause| Error::usage("register", cause);
    let id = options.job.id.as_ref().ok_or_else(|| missing("option --id is needed"))?;
    let target = match (&options.cgroup, options.via) {
        (Some(path), None) => LoginTarget::Cgroup(path.clone()),
        (None, Some(via)) => LoginTarget::Via(via),
        _ => return Err(missing("exactly one of --cgroup and --via is needed")),
    };
    let uid = match (options.uid, &options.user) {
        (Some(uid), None) => uid,
        (None, Some(name)) => accounts::require_owner(name, "register")?.uid.as_raw(),
        _ => return Err(missing("exactly one of --uid and --user is needed")),
    };
    let env = build_environment(&options.env, output)?;
    let record = options.job.build_record("register", id, uid, target)?;
    let (accounts, namespaces) = (non_empty(options.account.clone()), options.namespaces.clone());
    require_valid(&Record { env, accounts, namespaces, started: options.started, ..record })
}

/// Parses a variable's name and its value.
///
/// # Errors
///
/// A text for a wrong form or name. A value that logins do not get is no error here.
pub(super) fn parse_variable(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("not of the form NAME=VALUE")?;
    match PrologEnvironment::NAMES.contains(&name) {
        true => Ok((name.to_owned(), value.to_owned())),
        false => Err("not among the names that job-adopt-record(5) has"),
    }
}

/// Builds the variables of `--env`. It leaves out values that logins do not get: users choose some of
/// them, and the name of a directory must not make a prolog fail.
fn build_environment(
    given: &[(String, String)],
    output: &mut Output<'_>,
) -> Result<Option<PrologEnvironment>, Error> {
    let mut variables = BTreeMap::new();
    for (name, value) in given {
        if !PrologEnvironment::is_valid_value(name, value) {
            output.warn(format_args!(
                "warning: left out: the value of {name} is not printable, empty or too long"
            ));
        } else if variables.insert(name.clone(), value.clone()).is_some() {
            return Err(Error::usage("register", format!("option --env: {name}: given twice")));
        }
    }
    Ok((!given.is_empty()).then(|| PrologEnvironment::new(variables)).flatten())
}

/// Returns `None` for an option that was not given, so that the record lacks its key.
fn non_empty<T>(values: Vec<T>) -> Option<Vec<T>> {
    (!values.is_empty()).then_some(values)
}

fn to_gpu(text: String) -> Gpu {
    parse_decimal(&text).map_or(Gpu::Name(text), Gpu::Index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::{Command, Invocation, parse};
    use helper::devices::Policy;
    use std::ffi::OsString;

    const UUID: &str = "edfee158-11c1-52b8-0517-92f30e7fac88";

    fn build(line: &str) -> Result<Record, Error> {
        let line = line.replace("UUID", UUID);
        build_from(line.split(' ').map(|word| word.replace('_', " ")))
    }

    fn build_from(words: impl Iterator<Item = String>) -> Result<Record, Error> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output { out: &mut out, err: &mut err };
        let words: Vec<OsString> =
            std::iter::once("register".to_owned()).chain(words).map(OsString::from).collect();
        let Invocation::Command(Command::Register(options)) = parse(&words, "")? else {
            panic!("{words:?}")
        };
        build_registered(&options, &mut output)
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
             --leaf l --started 8 --ends 9 --device-dir /d --namespaces /run/n \
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
        assert_eq!(record.gpus.unwrap(), [Gpu::Index(1), Gpu::Name(format!("GPU-{UUID}"))]);
        let gres = [("gpu".to_owned(), vec![0, 1, 3]), ("gpu:h100".to_owned(), vec![2])];
        assert_eq!(record.gres.unwrap(), gres.into());
        assert_eq!(record.leaf.unwrap().as_str(), "l");
        assert_eq!((record.started, record.ends), (Some(8), Some(9)));
        assert_eq!(record.device_dir.as_deref(), Some("/d"));
        assert_eq!(record.namespaces.as_deref(), Some("/run/n"));
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
        assert_eq!(with_env(&["SLURM_JOB_USER="]).unwrap().env, Some(PrologEnvironment::default()));
        for wrong in ["SLURM_JOB_USER", "PATH=/x", "=x", ""] {
            assert_eq!(with_env(&[wrong]).unwrap_err().exit_code(), 2, "{wrong}");
        }
        assert!(with_env(&["SLURM_JOB_USER=a", "SLURM_JOB_USER=b"]).is_err());
        let ours = ["--id=7", "--uid=5", "--cgroup=/a", "--env=SLURM_JOB_USER=a"];
        let error = build_from(ours.map(str::to_owned).into_iter()).unwrap_err();
        assert!(error.to_string().contains("env is for records via slurm"), "{error:?}");
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
        ] {
            let error = build(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}: {error:?}");
        }
    }

    #[test]
    fn invalid_name_is_reported_with_option() {
        for (option, begin) in [
            ("--gpu nvidia0", "'nvidia0' for '--gpu <GPU>': not the name of a GPU: "),
            ("--gpu 0,1", "'0,1' for '--gpu <GPU>': one GPU per option"),
            ("--gpu=", "'' for '--gpu <GPU>': "),
            (
                "--cdi nvidia.com/gpu",
                "'nvidia.com/gpu' for '--cdi <VENDOR/CLASS=NAME>': not a qual",
            ),
            ("--cdi=", "'' for '--cdi <VENDOR/CLASS=NAME>': "),
            ("--gres gpu:0-3", "'gpu:0-3' for '--gres <NAME:INDEX,...>': ranges are not taken"),
            ("--gres=", "'' for '--gres <NAME:INDEX,...>': "),
            ("--device @hcp", "'@hcp' for '--device <SPEC ACCESS>': there is no such preset"),
            ("--device=", "'' for '--device <SPEC ACCESS>': "),
            ("--device-dir d", "'d' for '--device-dir <DIRECTORY>': not the absolute path"),
            ("--device-dir=", "'' for '--device-dir <DIRECTORY>': "),
        ] {
            let result = build(&format!("--id 7 --uid 5 --cgroup /a {option}"));
            let error = result.unwrap_err().to_string();
            assert!(error.starts_with(&format!("register: invalid value {begin}")), "{error}");
        }
    }
}
