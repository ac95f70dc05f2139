//! From the chosen job to a plan.

use super::{Config, Evidence, grants};
use crate::device::{Resolved, Resolver, Unfit, Wanted, allowlist, gpu_count};
use crate::plan::{Allowlist, Containment, GroupId, Plan, Reason, Refusal, Rule, Variables};
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
    let Contained { containment, dropped, warnings, env, groups } =
        containment(&job.record, config, resolver)?;
    let gpus = match &containment {
        Containment::Enforce(list) => gpu_count(list),
        _ => 0,
    };
    evidence.add("containment", containment.as_str());
    if let Containment::Enforce(list) = &containment {
        evidence.add("devices", shown(list));
    }
    dropped.iter().for_each(|device| evidence.add("dropped", device));
    env.iter().for_each(|variable| evidence.add("env", variable));
    groups.iter().for_each(|group| evidence.add("group", group));
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
        env,
        groups,
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
    /// Variables for its logins.
    pub env: Variables,
    /// Groups for its logins.
    pub groups: Vec<GroupId>,
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
            env: Variables::default(),
            groups: Vec::new(),
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
    let Resolved { list, dropped, mut warnings, env, gids } =
        allowlist(wanted, &config.always_allowed, resolver).map_err(|error| {
            let cause = format!("job {}: {error}", job.id);
            match error {
                Unfit::Unresolved(device) => refuse(job, Reason::DeviceUnknown, device.name, cause),
                Unfit::TooMany => refuse(job, Reason::Configuration, String::new(), cause),
            }
        })?;
    let env = grants::variables(env, &mut warnings);
    let groups = grants::group_ids(gids, &mut warnings);
    Ok(Contained { containment: Containment::Enforce(list), dropped, warnings, env, groups })
}

fn refuse(job: &Record, reason: Reason, device: String, cause: String) -> NoPlan {
    (Refusal { reason, jobs: vec![job.id.clone()], ended: None, device }, cause)
}

fn shown(list: &Allowlist) -> String {
    list.rules().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
