//! A record out of job options.

use super::options::Known;
use super::{Error, Options, Output, names, people};
use crate::plan::decimal;
use crate::registry::{Environment, Gpu, Options as Policies, Place, Record};
use std::collections::BTreeMap;

/// The options of `run` that describe the job.
pub(super) const COMMON: [Known; 10] = [
    Known::Once("--id"),
    Known::Once("--user"),
    Known::Once("--policy"),
    Known::Many("--device"),
    Known::Many("--cdi"),
    Known::Many("--gpu"),
    Known::Many("--gres"),
    Known::Once("--device-dir"),
    Known::Once("--leaf"),
    Known::Once("--ends"),
];

/// The record that the options describe, of the job `id` of `uid` at `place`.
///
/// # Errors
/// [`Error::Usage`] naming the option that is wrong, [`Error::Input`] for a record that is none.
pub(super) fn record(options: &Options, id: &str, uid: u32, place: Place) -> Result<Record, Error> {
    let record = Record {
        id: names::job_id(id).map_err(|error| options.usage(format!("id {id}: {error}")))?,
        uid,
        place,
        started: options.parsed("--started", "time in seconds since the epoch")?,
        ends: options.parsed("--ends", "time in seconds since the epoch")?,
        leaf: options.parsed("--leaf", "name of a leaf")?,
        options: policies(options)?,
        cdi: some(names::each(options, "--cdi", names::cdi)?),
        gpus: some(names::each(options, "--gpu", |text| names::gpu(text).map(gpu))?),
        gres: gres(options)?,
        device_dir: names::each(options, "--device-dir", names::directory)?.pop(),
        env: None,
    };
    checked(&record)
}

/// Ranges are the grammar's to judge.
fn checked(record: &Record) -> Result<Record, Error> {
    Ok(Record::parse(record.to_json()?.as_bytes())?)
}

/// The record that `register` is given as options.
///
/// # Errors
/// As [`record`] and [`people::owner`].
pub(super) fn registered(options: &Options, output: &mut Output<'_>) -> Result<Record, Error> {
    let id = options.value("--id").ok_or_else(|| options.usage("option --id is needed"))?;
    let place = match (options.value("--cgroup"), options.value("--via")) {
        (Some(path), None) => Place::Cgroup(
            path.parse().map_err(|error| options.usage(format!("option --cgroup: {error}")))?,
        ),
        (None, Some(name)) => Place::Via(
            name.parse().map_err(|()| options.usage("option --via wants slurm or flux"))?,
        ),
        _ => return Err(options.usage("exactly one of --cgroup and --via is needed")),
    };
    let env = environment(options, output)?;
    let record = record(options, id, people::owner(options)?, place)?;
    checked(&Record { env, ..record })
}

/// The variables of `--env`. A value that no login is given is left out: users choose some of them,
/// and none may have a prolog fail by the name of a directory.
fn environment(options: &Options, output: &mut Output<'_>) -> Result<Option<Environment>, Error> {
    let wrong = |text: &str, why: &str| options.usage(format!("option --env: {text}: {why}"));
    let mut variables = BTreeMap::new();
    for text in options.values("--env") {
        let Some((name, value)) = text.split_once('=') else {
            return Err(wrong(text, "not of the form NAME=VALUE"));
        };
        if !Environment::NAMES.contains(&name) {
            return Err(wrong(name, "not among the names that job-adopt-record(5) has"));
        }
        if !Environment::may_be(name, value) {
            output.warn(format_args!(
                "warning: left out: the value of {name} is not printable, \
                                      empty or too long"
            ));
        } else if variables.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(wrong(name, "given twice"));
        }
    }
    Ok(options.has("--env").then(|| Environment::new(variables)).flatten())
}

fn policies(options: &Options) -> Result<Option<Policies>, Error> {
    let policy = options.parsed("--policy", "policy (closed, strict or auto)")?;
    let allow = some(names::each(options, "--device", |text| {
        names::specifier(text)?;
        let (spec, access) = text.split_once(' ').unwrap_or((text, "rw"));
        Ok((spec.to_owned(), access.to_owned()))
    })?);
    Ok((policy.is_some() || allow.is_some()).then_some(Policies { policy, allow }))
}

/// A key of a record is there where its option is.
fn some<T>(values: Vec<T>) -> Option<Vec<T>> {
    (!values.is_empty()).then_some(values)
}

fn gpu(text: String) -> Gpu {
    decimal(&text).map_or(Gpu::Name(text), Gpu::Index)
}

/// The indexes of all options by their names.
fn gres(options: &Options) -> Result<Option<BTreeMap<String, Vec<u32>>>, Error> {
    let mut gres: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (name, indexes) in names::each(options, "--gres", names::gres)? {
        gres.entry(name).or_default().extend(indexes);
    }
    Ok((!gres.is_empty()).then_some(gres))
}

#[cfg(test)]
mod tests {
    use super::super::register::KNOWN;
    use super::*;
    use crate::device::Policy;
    use std::ffi::OsString;

    const UUID: &str = "edfee158-11c1-52b8-0517-92f30e7fac88";

    fn made(line: &str) -> Result<Record, Error> {
        let line = line.replace("UUID", UUID);
        registered_by(line.split(' ').map(|word| word.replace('_', " ")))
    }

    fn registered_by(words: impl Iterator<Item = String>) -> Result<Record, Error> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output { out: &mut out, err: &mut err };
        registered(&Options::parse("register", &KNOWN, words.map(OsString::from))?, &mut output)
    }

    fn with_env(variables: &[&str]) -> Result<Record, Error> {
        let given = ["--id", "7", "--uid", "5", "--via", "slurm"].map(str::to_owned);
        let variables = variables.iter().map(|text| format!("--env={text}"));
        registered_by(given.into_iter().chain(variables))
    }

    #[test]
    fn every_option_has_its_key() {
        let record = made(
            "--id 7 --uid 5 --cgroup /a/b --policy strict --device /dev/null_r --device char-pts \
             --cdi x.y/z=0 --gpu 1 --gpu GPU-UUID --gres gpu:0,1 --gres gpu:3 --gres gpu:h100:2 \
             --leaf l --started 8 --ends 9 --device-dir /d",
        )
        .unwrap();
        assert_eq!((record.id.as_str(), record.uid), ("7", 5));
        assert_eq!(record.place, Place::Cgroup("/a/b".parse().unwrap()));
        let options = record.options.unwrap();
        assert_eq!(options.policy, Some(Policy::Strict));
        let allow = [("/dev/null", "r"), ("char-pts", "rw")].map(|(a, b)| (a.into(), b.into()));
        assert_eq!(options.allow.unwrap(), allow);
        assert_eq!(record.cdi.unwrap(), ["x.y/z=0"]);
        assert_eq!(record.gpus.unwrap(), [Gpu::Index(1), Gpu::Name(format!("GPU-{UUID}"))]);
        let gres = [("gpu".to_owned(), vec![0, 1, 3]), ("gpu:h100".to_owned(), vec![2])];
        assert_eq!(record.gres.unwrap(), gres.into());
        assert_eq!(record.leaf.unwrap().as_str(), "l");
        assert_eq!((record.started, record.ends), (Some(8), Some(9)));
        assert_eq!(record.device_dir.as_deref(), Some("/d"));
    }

    #[test]
    fn of_a_jobs_environment_the_known_names_are_kept_and_odd_values_left_out() {
        let kept = with_env(&[
            "SLURM_JOB_NTASKS=2",
            "SLURM_JOB_WORK_DIR=/a=b c",
            "SLURM_JOB_USER=",
            "SLURM_JOB_ACCOUNT=\u{e4}",
        ]);
        let kept = kept.unwrap().env.unwrap();
        assert_eq!(kept.get("SLURM_JOB_NTASKS"), Some("2"));
        assert_eq!(kept.get("SLURM_JOB_WORK_DIR"), Some("/a=b c"));
        assert_eq!(kept.variables().len(), 2);
        assert_eq!(with_env(&[]).unwrap().env, None);
        assert_eq!(with_env(&["SLURM_JOB_USER="]).unwrap().env, Some(Environment::default()));
        for wrong in ["SLURM_JOB_USER", "PATH=/x", "=x", ""] {
            assert_eq!(with_env(&[wrong]).unwrap_err().code(), 2, "{wrong}");
        }
        assert!(with_env(&["SLURM_JOB_USER=a", "SLURM_JOB_USER=b"]).is_err());
        let ours = ["--id=7", "--uid=5", "--cgroup=/a", "--env=SLURM_JOB_USER=a"];
        let error = registered_by(ours.map(str::to_owned).into_iter()).unwrap_err();
        assert!(error.text().unwrap().contains("env is for records via slurm"), "{error:?}");
    }

    #[test]
    fn nothing_said_is_nothing_recorded() {
        let record = made("--id 7 --uid 5 --via slurm").unwrap();
        assert_eq!(record.options, None);
        assert_eq!(record.gpus, None);
    }

    #[test]
    fn mistakes_are_refused() {
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
        ] {
            let error = made(line).unwrap_err();
            assert_eq!(error.code(), 2, "{line}: {error:?}");
        }
    }

    #[test]
    fn a_name_that_is_none_is_wrong_usage_and_told_with_its_option() {
        for (option, begin) in [
            ("--gpu nvidia0", "--gpu: nvidia0: not the name of a GPU: "),
            ("--gpu 0,1", "--gpu: 0,1: one GPU per option"),
            ("--gpu=", "--gpu: the value is empty"),
            ("--cdi nvidia.com/gpu", "--cdi: nvidia.com/gpu: not a qualified CDI name"),
            ("--cdi=", "--cdi: the value is empty"),
            ("--gres gpu:0-3", "--gres: gpu:0-3: ranges are not taken"),
            ("--gres=", "--gres: the value is empty"),
            ("--device @hcp", "--device: @hcp: there is no such preset"),
            ("--device=", "--device: the value is empty"),
            ("--device-dir d", "--device-dir: d: not the absolute path"),
            ("--device-dir=", "--device-dir: the value is empty"),
        ] {
            let made = made(&format!("--id 7 --uid 5 --cgroup /a {option}"));
            let Err(Error::Usage(_, what)) = made else { panic!("{option}: {made:?}") };
            assert!(what.starts_with(&format!("option {begin}")), "{what}");
        }
    }
}
