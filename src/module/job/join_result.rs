//! The result of a join.

use super::login_limits::LeafLimit;
use crate::probe::ProbeResult;
use kernel::namespace::Namespace;
use protocol::Variable;

/// The cgroup of a login after a join or a dry run, its containment, and what it gets from the job.
#[derive(Debug, Default)]
pub struct JoinResult {
    pub(crate) cgroup: String,
    /// The name of the containment in the log.
    pub containment: &'static str,
    /// The limits that apply to the job's logins.
    pub limits: Vec<LeafLimit>,
    /// The result of the plan's probes.
    pub(crate) probes: ProbeResult,
    /// The job's namespaces, which the login joins last.
    pub(crate) namespaces: Vec<Namespace>,
    /// The variables of the job's X11 display.
    pub(crate) display: Vec<Variable>,
}
