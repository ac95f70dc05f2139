//! The device containment of a job by its record, and what all sources share to work one out.

use super::device_numbers::find_change;
use super::evidence::Evidence;
use super::refusal::{LoginRefusal, refusal};
use crate::config::Config;
use crate::devices::{JobAllowlist, Resolver};
use crate::jobs::Job;
use crate::jobs::records::{Record, RecordDevices, ResolvedList};
use crate::node::Tree;
use protocol::{Containment, JobId, Reason, Refusal};
use std::fmt;

/// The containment that a job must have, and what to log about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobContainment {
    /// The containment of its devices.
    pub(super) containment: Containment,
    /// Entries of `DeviceAllow` that this node does not have, each with the reason.
    pub(super) dropped: Vec<String>,
    /// Warnings for the log.
    pub(super) warnings: Vec<String>,
}

impl JobContainment {
    /// Enforces a list of devices.
    pub(super) fn from_allowlist(allowlist: JobAllowlist) -> Self {
        Self {
            containment: Containment::Enforce(allowlist.list),
            dropped: allowlist.dropped,
            warnings: allowlist.warnings,
        }
    }

    /// The containment of a job that needs none.
    pub(super) fn none() -> Self {
        Self {
            containment: Containment::None,
            dropped: Vec::new(),
            warnings: Vec::new(),
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

/// Decides the containment of a job by the numbers of its record.
///
/// # Errors
///
/// [`LoginRefusal`] if the record does not mention devices, or if its numbers are missing or do not hold any more
/// ([`find_change`]).
pub fn contain_by_record(record: &Record, tree: &Tree) -> Result<Containment, LoginRefusal> {
    match record.devices() {
        RecordDevices::Uncontained => Ok(Containment::None),
        RecordDevices::Unspecified => {
            let cause = format!("record of job {} says nothing about devices", record.id);
            Err(refuse_configuration(&record.id, cause))
        }
        RecordDevices::Requested(_) => {
            let list = require_list(record, tree)?;
            Ok(Containment::Enforce(list.rules.clone()))
        }
    }
}

/// Returns the numbers of a record that asks for a list.
///
/// # Errors
///
/// [`LoginRefusal`] if the record lacks them, or if they do not hold any more.
fn require_list<'a>(record: &'a Record, tree: &Tree) -> Result<&'a ResolvedList, LoginRefusal> {
    let id = &record.id;
    let refuse = |what: &str| {
        let cause = format!("job {id}: {what}: run job-adopt register --again {id}");
        refuse_configuration(id, cause)
    };
    let Some(list) = &record.resolved else {
        return Err(refuse("its record has no device numbers"));
    };
    match find_change(list, tree) {
        Ok(None) => Ok(list),
        Ok(Some(change)) => Err(refuse(&change)),
        Err(error) => Err(refuse_configuration(id, format!("job {id}: {error}"))),
    }
}

/// Adds the devices in Slurm's own list to those of a Slurm job, if the admin has said so: Slurm has not read that list
/// since 22.05, so a forgotten one must open nothing. No entry of it refuses a login.
pub fn add_slurm_list(allowlist: &mut JobAllowlist, config: &Config, resolver: &Resolver) {
    if !config.slurm_allowed_devices {
        return;
    }
    let (specifiers, warnings) = resolver.slurm_allowed_devices();
    allowlist.warnings.extend(warnings);
    for specifier in &specifiers {
        allowlist.add_if_fits(specifier, resolver);
    }
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
        Ok(JobContainment {
            containment: contain_by_record(record, &self.resolver.tree)?,
            ..JobContainment::none()
        })
    }

    /// Refuses the login because of an error about the job's devices, or about the files that list
    /// them.
    pub(super) fn refuse_devices(&self, error: impl fmt::Display) -> LoginRefusal {
        refuse_configuration(&self.job.id, format!("job {}: {error}", self.job.id))
    }
}
