//! From the chosen job to a plan.

use super::{Config, Evidence};
use crate::device::{Resolved, Resolver, Unfit, Wanted, allowlist, gpu_count};
use crate::plan::{Allowlist, Containment, Plan, Reason, Refusal, Rule};
use crate::registry::{Devices, Record};
use crate::source::Job;

/// A job that cannot be joined: the refusal, and the cause for the log.
pub type NoPlan = (Refusal, String);

/// The plan for a login to `job`, and what an administrator should know about it.
///
/// # Errors
/// [`NoPlan`] where the record says nothing about devices, names some that this node cannot
/// resolve, or asks for more than an allowlist holds.
pub(super) fn plan(
    job: &Job,
    rule: Rule,
    config: &Config,
    resolver: &Resolver,
    evidence: &mut Evidence,
) -> Result<(Plan, Vec<String>), NoPlan> {
    let Contained { containment, dropped, warnings } = containment(&job.record, config, resolver)?;
    let gpus = match &containment {
        Containment::Enforce(list) => gpu_count(list),
        _ => 0,
    };
    evidence.add("containment", containment.as_str());
    if let Containment::Enforce(list) = &containment {
        evidence.add("devices", shown(list));
    }
    dropped.iter().for_each(|device| evidence.add("dropped", device));
    let plan = Plan {
        job: job.id.clone(),
        source: job.source,
        rule,
        cgroup: job.cgroup.clone(),
        leaf: job.leaf.clone(),
        ends: job.ends,
        gpus,
        containment,
        dropped,
    };
    Ok((plan, warnings))
}

/// What has to hold for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contained {
    /// For its devices.
    pub containment: Containment,
    /// Entries of `DeviceAllow` that this node does not have.
    pub dropped: Vec<String>,
    /// What an administrator should know.
    pub warnings: Vec<String>,
}

/// What has to hold for the devices of a record's job.
///
/// # Errors
/// As for a whole plan.
pub fn containment(
    record: &Record,
    config: &Config,
    resolver: &Resolver,
) -> Result<Contained, NoPlan> {
    match record.devices() {
        Devices::Uncontained => Ok(Contained {
            containment: Containment::None,
            dropped: Vec::new(),
            warnings: Vec::new(),
        }),
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
    let Resolved { list, dropped, warnings, .. } =
        allowlist(wanted, &config.always_allowed, resolver).map_err(|error| {
            let cause = format!("job {}: {error}", job.id);
            match error {
                Unfit::Unresolved(device) => refuse(job, Reason::DeviceUnknown, device.name, cause),
                Unfit::TooMany => refuse(job, Reason::Configuration, String::new(), cause),
            }
        })?;
    Ok(Contained { containment: Containment::Enforce(list), dropped, warnings })
}

fn refuse(job: &Record, reason: Reason, device: String, cause: String) -> NoPlan {
    (Refusal { reason, jobs: vec![job.id.clone()], ended: None, device }, cause)
}

fn shown(list: &Allowlist) -> String {
    list.rules().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
