//! Plans a login to the chosen job: its containment, variables and probes.

use super::unit_policy::contain_by_flux;
use crate::config::SlurmDevices;
use crate::config::{Config, JobEnvironment};
use crate::devices::gres::Inventory;
use crate::devices::{
    AllowlistError, DeviceRequest, JobAllowlist, Policy, Resolver, build_allowlist,
};
use crate::jobs::Job;
use crate::jobs::records::{Record, RecordDevices};
use crate::login::environment;
use crate::login::evidence::Evidence;
use crate::login::refusal::refusal;
use crate::node::gpu_count;
use crate::slurm_conf::{SlurmConfFiles, read_constrain_devices};
use protocol::{
    Allowlist, ChoiceRule, Containment, JobId, Placement, Plan, Probe, Reason, Refusal,
};

/// The refusal of a login to a job, and its cause for the log.
pub type PlanRefusal = (Refusal, String);

/// Plans a login to `job`; returns warnings for the log as well. `unit` is the text of the job's unit
/// if the request has one.
///
/// # Errors
///
/// [`PlanRefusal`] if no record names the job's devices, if this node cannot resolve them, or if they
/// exceed an allowlist.
pub(super) fn make_plan(
    job: &Job,
    rule: ChoiceRule,
    unit: &str,
    config: &Config,
    resolver: &Resolver,
    evidence: &mut Evidence,
) -> Result<(Plan, Vec<String>), PlanRefusal> {
    let (job_containment, mut probes) = match (&job.placement, &job.record) {
        (Placement::Unit { .. }, _) => {
            (contain_by_flux(job, unit, config, resolver, evidence)?, Vec::new())
        }
        (Placement::Extern { .. }, _) => contain_by_slurm(job, config, resolver, evidence)?,
        (Placement::Cgroup { .. }, Some(record)) => {
            (contain_by_record(record, config, resolver)?, Vec::new())
        }
        (Placement::Cgroup { .. }, None) => {
            let cause = format!("job {}: no record says what devices it has", job.id);
            return Err(configuration_refusal(&job.id, cause));
        }
    };
    let JobContainment { containment, dropped, mut warnings } = job_containment;
    let env = environment::login_variables(job, config.env, &containment, &mut warnings);
    if config.env == JobEnvironment::Gpus {
        let result = environment::name_gpus(&resolver.tree, &mut probes);
        warnings.extend(result.err().map(|why| format!("env: no GPU is named: {why}")));
    }
    // Without a record's list the allowlist has all of Slurm's GPUs, not only those of the job.
    let list = containment.list().filter(|_| has_device_list(job));
    let gpus = list.map_or(0, gpu_count);
    evidence.add("containment", containment.as_str());
    if let Some(list) = containment.list() {
        evidence.add("devices", format_rules(list));
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
        limits: config.login_limits,
        probes,
        dropped,
        env,
    };
    Ok((plan, warnings))
}

/// Returns whether a record has a list of the job's devices. The record of a scheduler's job may
/// leave devices to the scheduler (`DevicePolicy` of `auto`).
pub(super) fn has_device_list(job: &Job) -> bool {
    job.record.as_ref().is_some_and(|record| record.devices() != RecordDevices::Uncontained)
}

/// Returns the refusal of a job because of wrong configuration.
pub(super) fn configuration_refusal(job: &JobId, cause: String) -> PlanRefusal {
    (Refusal { jobs: vec![job.clone()], ..refusal(Reason::Configuration) }, cause)
}

/// Returns a function that turns an error about the job's devices, or about the files that list them,
/// into the refusal.
pub(super) fn devices_refusal<E: std::fmt::Display>(job: &Job) -> impl Fn(E) -> PlanRefusal {
    move |error| configuration_refusal(&job.id, format!("job {}: {error}", job.id))
}

/// Returns the containment that also requires the scheduler's own filter.
pub(super) fn with_inherited_filter(containment: Containment) -> Containment {
    match containment {
        Containment::Enforce(list) | Containment::InheritAndEnforce(list) => {
            Containment::InheritAndEnforce(list)
        }
        Containment::None | Containment::Inherit => Containment::Inherit,
    }
}

/// The containment that a job must have, and what to log about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobContainment {
    /// The containment of its devices.
    pub containment: Containment,
    /// Entries of `DeviceAllow` that this node does not have.
    pub dropped: Vec<String>,
    /// Warnings for the log.
    pub warnings: Vec<String>,
}

impl JobContainment {
    pub(super) fn none() -> Self {
        Self { containment: Containment::None, dropped: Vec::new(), warnings: Vec::new() }
    }
}

/// Decides the containment of a job by its record.
///
/// # Errors
///
/// [`PlanRefusal`] if the record does not mention devices, if this node cannot resolve them, or if
/// they exceed an allowlist.
pub fn contain_by_record(
    record: &Record,
    config: &Config,
    resolver: &Resolver,
) -> Result<JobContainment, PlanRefusal> {
    match record.devices() {
        RecordDevices::Uncontained => Ok(JobContainment::none()),
        RecordDevices::Requested(request) => enforce_request(record, &request, config, resolver),
        RecordDevices::Unspecified => {
            let cause = format!("record of job {} says nothing about devices", record.id);
            Err(configuration_refusal(&record.id, cause))
        }
    }
}

/// Resolves a record's devices; a name that does not resolve is named to the user.
fn enforce_request(
    record: &Record,
    request: &DeviceRequest<'_>,
    config: &Config,
    resolver: &Resolver,
) -> Result<JobContainment, PlanRefusal> {
    let JobAllowlist { list, dropped, warnings } =
        build_allowlist(request, &config.always_allowed, resolver).map_err(|error| {
            let cause = format!("job {}: {error}", record.id);
            let (refusal, cause) = configuration_refusal(&record.id, cause);
            let AllowlistError::UnresolvedName(device) = error else { return (refusal, cause) };
            (Refusal { reason: Reason::DeviceUnknown, device: device.name, ..refusal }, cause)
        })?;
    Ok(JobContainment { containment: Containment::Enforce(list), dropped, warnings })
}

fn format_rules(list: &Allowlist) -> String {
    list.rules().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Decides the containment of a Slurm job, and which device nodes to probe.
///
/// If Slurm constrains devices, its own filter must hold, and besides it the list of the record or of
/// the site. The nodes to probe are those of the GPUs that Slurm constrains.
///
/// # Errors
///
/// [`PlanRefusal`] if Slurm's configuration cannot be read, and for the causes of
/// [`contain_by_record`].
fn contain_by_slurm(
    job: &Job,
    config: &Config,
    resolver: &Resolver,
    evidence: &mut Evidence,
) -> Result<(JobContainment, Vec<Probe>), PlanRefusal> {
    let (tree, settings) = (&resolver.tree, &resolver.settings);
    let files = SlurmConfFiles::find(tree, settings).map_err(devices_refusal(job))?;
    let constrains = read_constrain_devices(&files).map_err(devices_refusal(job))?;
    let word = if constrains { "yes" } else { "no" };
    let path = files.path_of("cgroup.conf");
    evidence.add("slurm", format_args!("{}: ConstrainDevices={word}", path.display()));
    let is_closed = !has_device_list(job) && config.slurm_devices == SlurmDevices::Closed;
    let (mut inventory, mut inherit) = (None, false);
    if constrains || is_closed {
        let read = Inventory::read(&files, settings).map_err(devices_refusal(job))?;
        let has_devices = read.has_devices(tree).map_err(devices_refusal(job))?;
        evidence.add("slurm", describe_gres(&read, has_devices));
        inherit = constrains && has_devices;
        inventory = Some(read);
    }
    let (mut result, mut probes) = (JobContainment::none(), Vec::new());
    if let Some(record) = job.record.as_ref().filter(|_| has_device_list(job)) {
        result = contain_by_record(record, config, resolver)?;
    } else if let Some(inventory) = inventory.as_ref().filter(|_| is_closed) {
        result = contain_by_inventory(job, inventory, config, resolver)?;
    }
    if let Some(inventory) = &inventory {
        result.warnings.extend(inventory.warnings.iter().cloned());
    }
    if let Some(inventory) = inventory.filter(|_| inherit) {
        probes = inventory.probes(tree).map_err(devices_refusal(job))?;
        result.containment = with_inherited_filter(result.containment);
    }
    Ok((result, probes))
}

fn describe_gres(inventory: &Inventory, has_devices: bool) -> String {
    let detected = match (inventory.auto_detect, has_devices) {
        (true, true) => ", AutoDetect finds GPUs",
        (true, false) => ", AutoDetect finds no GPU",
        (false, _) => "",
    };
    format!("{}: {} device files{detected}", inventory.path.display(), inventory.files.len())
}

/// Allows the standard devices, all devices in Slurm's inventory, and those of the site.
fn contain_by_inventory(
    job: &Job,
    inventory: &Inventory,
    config: &Config,
    resolver: &Resolver,
) -> Result<JobContainment, PlanRefusal> {
    let request = DeviceRequest { policy: Policy::Closed, allow: &[], names: Vec::new() };
    let allowlist = build_allowlist(&request, &config.always_allowed, resolver)
        .map_err(devices_refusal(job))?;
    let JobAllowlist { mut list, dropped, mut warnings, .. } = allowlist;
    let gres = inventory.devices(&resolver.tree).map_err(devices_refusal(job))?;
    warnings.extend(gres.warnings);
    for device in gres.devices {
        list.push(device.rule).map_err(|_| devices_refusal(job)(AllowlistError::TooManyEntries))?;
    }
    Ok(JobContainment { containment: Containment::Enforce(list), dropped, warnings })
}
