//! A running job, and how people name it.

use super::records::{Record, RecordDevices};
use crate::jobs::FluxId;
use protocol::{JobId, Placement};
use schedulers::stepd::Release;

/// Describes the place of a job's logins, as evidence and log name it.
#[must_use]
pub fn describe_placement(placement: &Placement, job: &JobId) -> String {
    match placement {
        Placement::Cgroup { path, .. } | Placement::Unit { path, .. } => path.to_string(),
        Placement::Extern { spool, node } => format!("{spool}/{node}_{job}"),
    }
}

/// A running job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its id, in the source's canonical form.
    pub id: JobId,
    /// When it started, in seconds since the epoch; 0 if unknown.
    pub started: i64,
    /// When it ends, in seconds since the epoch, if known.
    pub ends: Option<i64>,
    /// The target of its logins.
    pub placement: Placement,
    /// The release of the Slurm that runs the job; `None` for a job of another source.
    pub slurm: Option<Release>,
    /// The record with its devices; a scheduler's job may have none.
    pub record: Option<Record>,
}

impl Job {
    /// Tells whether a name means this job. Flux ids have several notations, and people write
    /// the one that they have.
    pub fn has_name(&self, name: &JobId) -> bool {
        let of_flux = matches!(self.placement, Placement::Unit { .. });
        self.id == *name
            || (of_flux && FluxId::parse_job_id(name.as_str()).as_ref() == Some(&self.id))
    }

    /// Tells whether logins may join the job: its record, if it has one, does not forbid them.
    pub(crate) fn takes_logins(&self) -> bool {
        self.record.as_ref().is_none_or(Record::takes_logins)
    }

    /// Tells whether a record has a list of the job's devices. The record of a scheduler's job may
    /// leave devices to the scheduler (`DevicePolicy` of `auto`).
    pub(crate) fn has_device_list(&self) -> bool {
        self.record_of_devices().is_some()
    }

    /// The record, if it has a list of the job's devices; `None` without a record, and for one that leaves devices to
    /// the scheduler.
    pub(crate) fn record_of_devices(&self) -> Option<&Record> {
        self.record
            .as_ref()
            .filter(|record| record.devices() != RecordDevices::Uncontained)
    }
}

/// Finds the job that a name means: the one with this very id, or else one with it in another notation; `None` if no
/// job has it.
pub fn find_by_name<'a>(jobs: &'a [Job], name: &JobId) -> Option<&'a Job> {
    let exactly = jobs.iter().find(|job| job.id == *name);
    exactly.or_else(|| jobs.iter().find(|job| job.has_name(name)))
}
