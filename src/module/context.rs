//! The facts of one login, which every step of its adoption reads.

use crate::budget::Budget;
use crate::error::Failure;
use crate::settings::Settings;
use crate::variables::Environment;
use kernel::bpf::OldFilter;
use protocol::{Plan, Reply, Request};
use std::time::Instant;

/// One login, and the access to its surroundings that a ruling needs.
#[derive(Clone, Copy)]
pub struct LoginContext<'a> {
    /// The facts of the login.
    pub login: &'a Request,
    /// The module's arguments.
    pub settings: &'a Settings,
    /// Asks the unprivileged half.
    pub ask_helper: &'a dyn Fn(&Request) -> Result<Reply, Failure>,
    /// The replies to the same login's account phase a moment ago.
    pub carried_replies: &'a [(Request, Reply)],
    /// The variables for the login.
    pub environment: Environment<'a>,
    /// Looks up the uid of the account that Slurm runs as, if there is one. That may take a while,
    /// so it is called only for a file that root does not own.
    pub find_slurm_user: &'a dyn Fn() -> Option<u32>,
    /// The group of the helper's account, which reads the user's choice of a job.
    pub helper_group: Option<u32>,
    /// The argument that lets the user in outside of jobs if this module would refuse the login.
    pub exemption: Option<&'static str>,
    /// Set if both auth lines of this module have just run in this process, and it is sshd's. In the process
    /// that sshd forks to become the user they run again, and join the job's namespaces.
    pub ran_auth_lines: bool,
    /// The time for the whole phase.
    pub budget: &'a Budget,
}

/// The adoption of one login into one job.
#[derive(Clone, Copy)]
pub(super) struct Adoption<'a> {
    pub(super) context: LoginContext<'a>,
    /// The job, and the containment that must hold there.
    pub(super) plan: &'a Plan,
}

impl Adoption<'_> {
    /// Returns what happens to an older filter that we attached. The plan of the account phase replaces no filter, which
    /// may be newer.
    pub(super) fn old_filter(&self) -> OldFilter {
        if self.context.carried_replies.is_empty() { OldFilter::Replace } else { OldFilter::Keep }
    }

    pub(super) fn uid(&self) -> u32 {
        self.context.login.uid
    }

    pub(super) fn deadline(&self) -> Instant {
        self.context.budget.deadline()
    }
}
