//! Builds a job's record from the options of `run` and `register`.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use command::error::Error;
use command::options::parse_job_id;
use command::options::parse_value;
use facts::device_options::DeviceOptions;
use helper::devices::Policy;
use helper::jobs::records::{Gpu, LoginTarget, Options as Policies, Record};
use protocol::{JobId, LeafName, parse_decimal};
use std::collections::BTreeMap;

/// The options by which `run` and `register` describe a job.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(super) struct JobOptions {
    /// The job's id, unique on this node
    #[arg(long, value_parser = parse_job_id)]
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
    /// Builds the record of the job `id` of `uid` with `target`. Keys that only `register` has options for stay
    /// `None`. `command` is the one that an error names.
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
        let DeviceOptions {
            cdi,
            gpu: gpus,
            device_dir,
            ..
        } = &self.devices;
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
            logins: None,
            scheduler: None,
            env: None,
            resolved: None,
        };
        require_valid(&record)
    }

    /// Builds the record's policy and its list of devices with their accesses; `None` if the options give
    /// neither. A device without an access gets `rw`.
    fn policies(&self) -> Option<Policies> {
        let allow = self.devices.device.iter().map(|device| {
            let (spec, access) = device.text.split_once(' ').unwrap_or((&device.text, "rw"));
            (spec.to_owned(), access.to_owned())
        });
        let device_policy = self.policy;
        let device_allow = non_empty(allow.collect());
        (device_policy.is_some() || device_allow.is_some()).then_some(Policies {
            device_policy,
            device_allow,
        })
    }

    /// Collects the indexes of all options `--gres` by name; `None` without the option.
    fn gres(&self) -> Option<BTreeMap<String, Vec<u32>>> {
        let mut gres: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (name, indexes) in &self.devices.gres {
            gres.entry(name.clone()).or_default().extend(indexes);
        }
        (!gres.is_empty()).then_some(gres)
    }
}

/// Parses the record back: the parser checks the ranges of all values.
pub(super) fn require_valid(record: &Record) -> Result<Record, Error> {
    Ok(Record::parse(record.to_json()?.as_bytes())?)
}

/// `None` for an option that was not given, so that the record lacks its key.
pub(super) fn non_empty<T>(values: Vec<T>) -> Option<Vec<T>> {
    (!values.is_empty()).then_some(values)
}

fn to_gpu(text: String) -> Gpu {
    parse_decimal(&text).map_or(Gpu::Name(text), Gpu::Index)
}
