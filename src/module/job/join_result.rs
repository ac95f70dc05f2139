//! The result of a join.

use super::login_limits::LeafLimit;
use crate::probe::ProbeResult;
use kernel::cgroup::{self, Cpuset};
use kernel::namespace::Namespace;
use kernel::priority::TaskPriority;
use protocol::Variable;

/// The cgroup of a login after a join or a dry run, its containment, and what it gets from the job.
#[derive(Debug, Default)]
pub struct JoinResult {
    /// Path of the login's cgroup below the cgroup v2 mount, or in each hierarchy of v1. After a dry run, of the job's own
    /// cgroup if this module chooses the leaf.
    pub(crate) cgroup: String,
    /// The name of the containment in protocol and log ([`protocol::Containment`]).
    pub containment: &'static str,
    /// The limits that apply to the job's logins together; empty if the leaf is not one that may have some.
    pub limits: Vec<LeafLimit>,
    /// The cores of the job's own cpuset, if it has one ([`kernel::cgroup::Cpuset`]).
    pub(crate) cpus: Option<String>,
    /// The worst priority of the job's tasks, as far as they were looked at.
    pub(crate) priority: TaskPriority,
    /// Faults that cost the login something, and not its containment.
    pub(crate) warnings: Vec<String>,
    /// The result of the plan's probes.
    pub(crate) probes: ProbeResult,
    /// The job's namespaces, which the login joins last.
    pub(crate) namespaces: Vec<Namespace>,
    /// The variables of the job's X11 display.
    pub(crate) display: Vec<Variable>,
}

impl JoinResult {
    /// Sets the priority of the job's tasks. One that cannot be read is a warning: the login keeps sshd's, and no better
    /// one than the default.
    pub(super) fn set_priority(&mut self, priority: cgroup::Result<TaskPriority>) {
        match priority {
            Ok(worst) => self.priority = worst,
            Err(error) => self.warnings.push(error.to_string()),
        }
    }

    /// Sets the cores of the job's cpuset. One that cannot be read is a warning: without it the login keeps sshd's
    /// cores, and stays in its job all the same.
    pub(super) fn set_cpuset(&mut self, cpuset: cgroup::Result<Option<Cpuset>>) {
        match cpuset {
            Ok(found) => self.cpus = found.map(|own| own.cpus),
            Err(error) => self.warnings.push(error.to_string()),
        }
    }
}
