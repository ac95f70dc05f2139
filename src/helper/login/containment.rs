//! The device containment of a job by its record, and what all sources share to work one out.

use super::evidence::Evidence;
use super::refusal::{LoginRefusal, refusal};
use crate::config::Config;
use crate::devices::{
    AllowlistError, DeviceRequest, JobAllowlist, Policy, Resolver, build_allowlist,
};
use crate::jobs::Job;
use crate::jobs::records::{LoginTarget, Record, RecordDevices, Via};
use crate::node::ContainerParts;
use protocol::{Containment, JobId, Reason, Refusal};
use std::fmt;

/// The containment that a job must have, and what to log about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobContainment {
    /// The containment of its devices.
    pub containment: Containment,
    /// Entries of `DeviceAllow` that this node does not have, each with the reason.
    pub dropped: Vec<String>,
    /// Warnings for the log.
    pub warnings: Vec<String>,
    /// What specifications give to containers beside the devices.
    pub container: ContainerParts,
}

impl JobContainment {
    /// Enforces a list of devices.
    pub(super) fn from_allowlist(allowlist: JobAllowlist) -> Self {
        Self {
            containment: Containment::Enforce(allowlist.list),
            dropped: allowlist.dropped,
            warnings: allowlist.warnings,
            container: allowlist.container,
        }
    }

    /// The containment of a job that needs none.
    pub(super) fn none() -> Self {
        Self {
            containment: Containment::None,
            dropped: Vec::new(),
            warnings: Vec::new(),
            container: ContainerParts::default(),
        }
    }

    /// Adds the scheduler's own filter to what must hold.
    pub(super) fn with_inherited_filter(self) -> Self {
        let containment = match self.containment {
            Containment::Enforce(list) | Containment::InheritAndEnforce(list) => {
                Containment::InheritAndEnforce(list)
            }
            Containment::None | Containment::Inherit => Containment::Inherit,
        };
        Self {
            containment,
            ..self
        }
    }
}

/// Decides the containment of a job by its record.
///
/// # Errors
///
/// [`LoginRefusal`] if the record does not mention devices, if this node cannot resolve them, or if
/// they exceed an allowlist.
pub fn contain_by_record(
    record: &Record,
    config: &Config,
    resolver: &Resolver,
) -> Result<JobContainment, LoginRefusal> {
    match record.devices() {
        RecordDevices::Uncontained => Ok(JobContainment::none()),
        RecordDevices::Requested(request) => enforce_request(record, &request, config, resolver),
        RecordDevices::Unspecified => {
            let cause = format!("record of job {} says nothing about devices", record.id);
            Err(refuse_configuration(&record.id, cause))
        }
    }
}

/// Resolves a record's devices into the list that must hold. Slurm's own list joins that of a Slurm job, unless the
/// record's is `strict`, which has nothing besides.
///
/// # Errors
///
/// [`LoginRefusal`] for a name that does not resolve, which the user is told, and for a list that is too long.
fn enforce_request(
    record: &Record,
    request: &DeviceRequest<'_>,
    config: &Config,
    resolver: &Resolver,
) -> Result<JobContainment, LoginRefusal> {
    let is_slurm = record.target == LoginTarget::Via(Via::Slurm);
    let mut allowlist = build_allowlist(request, &config.always_allowed, resolver)
        .map_err(|error| refuse_request(&record.id, error))?;
    if is_slurm && request.policy != Policy::Strict {
        add_slurm_list(&mut allowlist, config, resolver);
    }
    Ok(JobContainment::from_allowlist(allowlist))
}

/// Adds the devices in Slurm's own list to those of a Slurm job, if the admin has said so: Slurm has not read that list
/// since 22.05, so a forgotten one must open nothing. No entry of it refuses a login.
pub(super) fn add_slurm_list(allowlist: &mut JobAllowlist, config: &Config, resolver: &Resolver) {
    if !config.slurm_allowed_devices {
        return;
    }
    let (specifiers, warnings) = resolver.slurm_allowed_devices();
    allowlist.warnings.extend(warnings);
    for specifier in &specifiers {
        allowlist.add_if_fits(specifier, resolver);
    }
}

/// Refuses a login whose record's devices give no allowlist. A name that does not resolve is named to the user.
fn refuse_request(job: &JobId, error: AllowlistError) -> LoginRefusal {
    let LoginRefusal { refusal, cause } = refuse_configuration(job, format!("job {job}: {error}"));
    let refusal = match error {
        AllowlistError::UnresolvedName(device) => Refusal {
            reason: Reason::DeviceUnknown,
            device: device.name,
            ..refusal
        },
        AllowlistError::TooManyEntries => refusal,
    };
    LoginRefusal { refusal, cause }
}

/// Refuses a login to a job because of wrong configuration.
pub(super) fn refuse_configuration(job: &JobId, cause: String) -> LoginRefusal {
    let refusal = Refusal {
        jobs: vec![job.clone()],
        ..refusal(Reason::Configuration)
    };
    LoginRefusal { refusal, cause }
}

/// Works out the plan of a login to one job, and gathers what led to it.
pub(super) struct Planner<'a> {
    pub(super) job: &'a Job,
    pub(super) config: &'a Config,
    pub(super) resolver: &'a Resolver,
    pub(super) evidence: Evidence,
}

impl<'a> Planner<'a> {
    /// Prepares the planning of a login to `job`.
    pub(super) fn new(job: &'a Job, config: &'a Config, resolver: &'a Resolver) -> Self {
        Self {
            job,
            config,
            resolver,
            evidence: Evidence::default(),
        }
    }

    /// Decides the containment by a record of the job.
    ///
    /// # Errors
    ///
    /// As [`contain_by_record`].
    pub(super) fn contain_by_record(
        &self,
        record: &Record,
    ) -> Result<JobContainment, LoginRefusal> {
        contain_by_record(record, self.config, self.resolver)
    }

    /// Refuses the login because of an error about the job's devices, or about the files that list
    /// them.
    pub(super) fn refuse_devices(&self, error: impl fmt::Display) -> LoginRefusal {
        refuse_configuration(&self.job.id, format!("job {}: {error}", self.job.id))
    }
}

#[cfg(test)]
mod tests;
