//! From the chosen job to a plan.

use super::flux::by_flux;
use super::slurm::by_slurm;
use super::{Config, Evidence, JobEnvironment, environment, refusal};
use crate::helper::devices::{Resolved, Resolver, Unfit, Wanted, allowlist, gpu_count};
use crate::helper::records::{Devices, Record};
use crate::helper::sources::Job;
use crate::protocol::{Allowlist, Containment, Placement, Plan, Reason, Refusal, Rule};

/// A job that cannot be joined: the refusal, and the cause for the log.
pub type NoPlan = (Refusal, String);

/// The plan for a login to `job`, of whose unit the text may be given ([`crate::protocol::Request`]), and what an administrator should know about it.
/// Fails: [`NoPlan`] where the record says nothing about devices, names some that this node cannot
/// resolve, or asks for more than an allowlist holds.
pub(super) fn plan(
    job: &Job,
    rule: Rule,
    unit: &str,
    config: &Config,
    resolver: &Resolver,
    evidence: &mut Evidence,
) -> Result<(Plan, Vec<String>), NoPlan> {
    let (contained, mut probes) = match (&job.placement, &job.record) {
        (Placement::Unit { .. }, _) => {
            (by_flux(job, unit, config, resolver, evidence)?, Vec::new())
        }
        (Placement::Extern { .. }, _) => by_slurm(job, config, resolver, evidence)?,
        (Placement::Cgroup { .. }, Some(record)) => {
            (contained(record, config, resolver)?, Vec::new())
        }
        (Placement::Cgroup { .. }, None) => {
            let cause = format!("job {}: no record says what devices it has", job.id);
            return Err(misconfigured(job, cause));
        }
    };
    let Contained { containment, dropped, mut warnings } = contained;
    let env = environment::variables(job, config.env, &containment, &mut warnings);
    if config.env == JobEnvironment::Gpus {
        let named = environment::name_gpus(&resolver.tree, &mut probes);
        warnings.extend(named.err().map(|why| format!("env: no GPU is named: {why}")));
    }
    // Without a list of the job's own no list tells which of Slurm's GPUs are the job's.
    let list = containment.list().filter(|_| has_list(job));
    let gpus = list.map_or(0, gpu_count);
    evidence.add("containment", containment.as_str());
    if let Some(list) = containment.list() {
        evidence.add("devices", shown(list));
    }
    dropped.iter().for_each(|device| evidence.add("dropped", device));
    env.iter().for_each(|variable| evidence.add("env", variable));
    probes.iter().for_each(|probe| evidence.add("probe", probe));
    let plan = Plan {
        job: job.id.clone(),
        rule,
        placement: job.placement.clone(),
        ends: job.ends,
        gpus,
        containment,
        probes,
        dropped,
        env,
    };
    Ok((plan, warnings))
}

/// Whether a record says which devices are the job's: one of a scheduler's job may as well say that
/// this is the scheduler's matter (`DevicePolicy` of `auto`).
pub(super) fn has_list(job: &Job) -> bool {
    job.record.as_ref().is_some_and(|record| record.devices() != Devices::Uncontained)
}

/// The refusal of a job that the node is set up wrongly for.
pub(super) fn misconfigured(job: &Job, cause: String) -> NoPlan {
    (Refusal { jobs: vec![job.id.clone()], ..refusal(Reason::Configuration) }, cause)
}

/// The same for what the job's devices, or the files that tell them, have wrong with them.
pub(super) fn unusable<E: std::fmt::Display>(job: &Job) -> impl Fn(E) -> NoPlan {
    move |error| misconfigured(job, format!("job {}: {error}", job.id))
}

/// The containment that a job must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contained {
    /// For its devices.
    pub containment: Containment,
    /// Entries of `DeviceAllow` that this node does not have.
    pub dropped: Vec<String>,
    /// What an administrator should know.
    pub warnings: Vec<String>,
}

impl Contained {
    pub(super) fn none() -> Self {
        Self { containment: Containment::None, dropped: Vec::new(), warnings: Vec::new() }
    }
}

/// The device policy that a record's job must have.
pub fn contained(
    record: &Record,
    config: &Config,
    resolver: &Resolver,
) -> Result<Contained, NoPlan> {
    match record.devices() {
        Devices::Uncontained => Ok(Contained::none()),
        Devices::Wanted(wanted) => enforce(record, &wanted, config, resolver),
        Devices::Unsaid => {
            let cause = format!("record of job {} says nothing about devices", record.id);
            Err(refuse(record, Reason::Configuration, String::new(), cause))
        }
    }
}

fn enforce(
    job: &Record,
    wanted: &Wanted<'_>,
    config: &Config,
    resolver: &Resolver,
) -> Result<Contained, NoPlan> {
    let Resolved { list, dropped, warnings } = allowlist(wanted, &config.always_allowed, resolver)
        .map_err(|error| {
            let cause = format!("job {}: {error}", job.id);
            match error {
                Unfit::Unresolved(device) => refuse(job, Reason::DeviceUnknown, device.name, cause),
                Unfit::TooMany => refuse(job, Reason::Configuration, String::new(), cause),
            }
        })?;
    Ok(Contained { containment: Containment::Enforce(list), dropped, warnings })
}

fn refuse(job: &Record, reason: Reason, device: String, cause: String) -> NoPlan {
    (Refusal { jobs: vec![job.id.clone()], device, ..refusal(reason) }, cause)
}

fn shown(list: &Allowlist) -> String {
    list.rules().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
