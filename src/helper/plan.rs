//! From the chosen job to a plan.

use super::config::SlurmDevices;
use super::unit_policy::contain_by_flux;
use super::{Config, Evidence, JobEnvironment, environment, refusal};
use crate::devices::gres::Inventory;
use crate::devices::slurm_conf::{SlurmConfFiles, read_constrain_devices};
use crate::devices::{
    AllowlistError, DeviceRequest, JobAllowlist, Policy, Resolver, build_allowlist, gpu_count,
};
use crate::records::{Record, RecordDevices};
use crate::sources::Job;
use protocol::{Allowlist, Containment, JobId, Placement, Plan, Probe, Reason, Refusal, Rule};

/// A job that cannot be joined: the refusal, and the cause for the log.
pub type NoPlan = (Refusal, String);

/// The plan for a login to `job`, of whose unit the text may be given ([`protocol::Request`]), and what an administrator should know about it.
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
            (contain_by_flux(job, unit, config, resolver, evidence)?, Vec::new())
        }
        (Placement::Extern { .. }, _) => by_slurm(job, config, resolver, evidence)?,
        (Placement::Cgroup { .. }, Some(record)) => {
            (contained(record, config, resolver)?, Vec::new())
        }
        (Placement::Cgroup { .. }, None) => {
            let cause = format!("job {}: no record says what devices it has", job.id);
            return Err(misconfigured(&job.id, cause));
        }
    };
    let Contained { containment, dropped, mut warnings } = contained;
    let env = environment::login_variables(job, config.env, &containment, &mut warnings);
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
    job.record.as_ref().is_some_and(|record| record.devices() != RecordDevices::Uncontained)
}

/// The refusal of a job that the node is set up wrongly for.
pub(super) fn misconfigured(job: &JobId, cause: String) -> NoPlan {
    (Refusal { jobs: vec![job.clone()], ..refusal(Reason::Configuration) }, cause)
}

/// The same for what the job's devices, or the files that tell them, have wrong with them.
pub(super) fn unusable<E: std::fmt::Display>(job: &Job) -> impl Fn(E) -> NoPlan {
    move |error| misconfigured(&job.id, format!("job {}: {error}", job.id))
}

/// What must hold where the scheduler's own filter does too.
pub(super) fn inherited(own: Containment) -> Containment {
    match own {
        Containment::Enforce(list) | Containment::InheritAndEnforce(list) => {
            Containment::InheritAndEnforce(list)
        }
        Containment::None | Containment::Inherit => Containment::Inherit,
    }
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
        RecordDevices::Uncontained => Ok(Contained::none()),
        RecordDevices::Requested(wanted) => enforce(record, &wanted, config, resolver),
        RecordDevices::Unspecified => {
            let cause = format!("record of job {} says nothing about devices", record.id);
            Err(misconfigured(&record.id, cause))
        }
    }
}

fn enforce(
    job: &Record,
    wanted: &DeviceRequest<'_>,
    config: &Config,
    resolver: &Resolver,
) -> Result<Contained, NoPlan> {
    let JobAllowlist { list, dropped, warnings } =
        build_allowlist(wanted, &config.always_allowed, resolver).map_err(|error| {
            let (refusal, cause) = misconfigured(&job.id, format!("job {}: {error}", job.id));
            let AllowlistError::UnresolvedName(device) = error else { return (refusal, cause) };
            (Refusal { reason: Reason::DeviceUnknown, device: device.name, ..refusal }, cause)
        })?;
    Ok(Contained { containment: Containment::Enforce(list), dropped, warnings })
}

fn shown(list: &Allowlist) -> String {
    list.rules().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Where Slurm constrains devices, its own filter holds, and besides it what a record or the site
/// says. The nodes to try are those of the GPUs that it keeps from others' jobs.
/// Fails: [`NoPlan`] where Slurm's configuration cannot be read, and as for a record.
pub(super) fn by_slurm(
    job: &Job,
    config: &Config,
    resolver: &Resolver,
    evidence: &mut Evidence,
) -> Result<(Contained, Vec<Probe>), NoPlan> {
    let (tree, settings) = (&resolver.tree, &resolver.settings);
    let files = SlurmConfFiles::find(tree, settings).map_err(unusable(job))?;
    let constrains = read_constrain_devices(&files).map_err(unusable(job))?;
    let word = if constrains { "yes" } else { "no" };
    let shown = files.path_of("cgroup.conf");
    evidence.add("slurm", format_args!("{}: ConstrainDevices={word}", shown.display()));
    let closed = !has_list(job) && config.slurm_devices == SlurmDevices::Closed;
    let (mut inventory, mut inherit) = (None, false);
    if constrains || closed {
        let own = Inventory::read(&files, settings).map_err(unusable(job))?;
        let has = own.has_devices(tree).map_err(unusable(job))?;
        evidence.add("slurm", gres(&own, has));
        inherit = constrains && has;
        inventory = Some(own);
    }
    let (mut own, mut probes) = (Contained::none(), Vec::new());
    if let Some(record) = job.record.as_ref().filter(|_| has_list(job)) {
        own = contained(record, config, resolver)?;
    } else if let Some(inventory) = inventory.as_ref().filter(|_| closed) {
        own = by_list(job, inventory, config, resolver)?;
    }
    if let Some(inventory) = inventory.filter(|_| inherit) {
        probes = inventory.probes(tree).map_err(unusable(job))?;
        own.containment = inherited(own.containment);
    }
    Ok((own, probes))
}

fn gres(inventory: &Inventory, has: bool) -> String {
    let detected = match (inventory.auto_detect, has) {
        (true, true) => ", AutoDetect finds GPUs",
        (true, false) => ", AutoDetect finds no GPU",
        (false, _) => "",
    };
    format!("{}: {} device files{detected}", inventory.path.display(), inventory.files.len())
}

/// The standard devices, all that Slurm gives out, and the site's.
fn by_list(
    job: &Job,
    inventory: &Inventory,
    config: &Config,
    resolver: &Resolver,
) -> Result<Contained, NoPlan> {
    let wanted = DeviceRequest { policy: Policy::Closed, allow: &[], names: Vec::new() };
    let resolved =
        build_allowlist(&wanted, &config.always_allowed, resolver).map_err(unusable(job))?;
    let JobAllowlist { mut list, dropped, mut warnings, .. } = resolved;
    let gres = inventory.devices(&resolver.tree).map_err(unusable(job))?;
    warnings.extend(gres.warnings);
    for device in gres.devices {
        list.push(device.rule).map_err(|_| unusable(job)(AllowlistError::TooManyEntries))?;
    }
    Ok(Contained { containment: Containment::Enforce(list), dropped, warnings })
}
