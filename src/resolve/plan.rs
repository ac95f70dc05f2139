//! From the chosen job to a plan.

use std::path::Path;

use super::{Config, Evidence};
use crate::device::{Resolver, allowlist, gpu_count};
use crate::plan::{Allowlist, Containment, Plan, Reason, Refusal, Rule};
use crate::registry::{Devices, Record, Wanted};
use crate::source::Job;

/// A job that cannot be joined: the refusal, and the cause for the log.
pub type NoPlan = (Refusal, String);

/// The plan for a login to `job`, its devices looked up below `root`.
///
/// # Errors
/// [`NoPlan`] where the record says nothing about devices, names some that this version cannot
/// resolve, or asks for more than an allowlist holds.
pub(super) fn plan(
    job: &Job,
    rule: Rule,
    config: &Config,
    root: &Path,
    evidence: &mut Evidence,
) -> Result<Plan, NoPlan> {
    let (containment, dropped) = containment(&job.record, config, root)?;
    let gpus = match &containment {
        Containment::Enforce(list) => gpu_count(list),
        _ => 0,
    };
    evidence.add("containment", containment.as_str());
    if let Containment::Enforce(list) = &containment {
        evidence.add("devices", shown(list));
    }
    dropped.iter().for_each(|device| evidence.add("dropped", device));
    Ok(Plan {
        job: job.id.clone(),
        source: job.source,
        rule,
        cgroup: job.cgroup.clone(),
        leaf: job.leaf.clone(),
        ends: job.ends,
        gpus,
        containment,
        dropped,
    })
}

/// What has to hold for the devices of a record's job, looked up below `root`, and which of them
/// this node does not have.
///
/// # Errors
/// As for a whole plan.
pub fn containment(
    record: &Record,
    config: &Config,
    root: &Path,
) -> Result<(Containment, Vec<String>), NoPlan> {
    match record.devices() {
        Devices::Uncontained => Ok((Containment::None, Vec::new())),
        Devices::Wanted(wanted) => enforce(record, &wanted, config, root),
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
    root: &Path,
) -> Result<(Containment, Vec<String>), NoPlan> {
    if let Some(device) = wanted.named.first() {
        let cause = format!("job {} asks for {device}, which this version cannot resolve", job.id);
        return Err(refuse(job, Reason::DeviceUnknown, device.clone(), cause));
    }
    let resolver = Resolver::new(root);
    match allowlist(wanted.policy, wanted.allow, &config.always_allowed, &resolver) {
        Ok(resolved) => Ok((Containment::Enforce(resolved.list), resolved.dropped)),
        Err(error) => {
            let cause = format!("job {}: {error}", job.id);
            Err(refuse(job, Reason::Configuration, String::new(), cause))
        }
    }
}

fn refuse(job: &Record, reason: Reason, device: String, cause: String) -> NoPlan {
    (Refusal { reason, jobs: vec![job.id.clone()], ended: None, device }, cause)
}

fn shown(list: &Allowlist) -> String {
    list.rules().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
