//! The facts of one login, which every step of its adoption reads.

use crate::budget::Budget;
use crate::error::Failure;
use crate::settings::Settings;
use crate::variables::Environment;
use kernel::bpf::OldFilter;
use protocol::{Placement, Plan, Reply, Request};
use std::time::Instant;

/// One login, and the access to its surroundings that a ruling needs.
#[derive(Clone, Copy)]
pub struct LoginContext<'a> {
    /// The facts of the login, as PAM has them. Those of the helper's request that only the module knows
    /// (`conf`, `several`, times) are filled in from `settings`.
    pub login: &'a Request,
    /// The arguments of the PAM line.
    pub settings: &'a Settings,
    /// Asks the unprivileged half: [`ask_helper`](crate::ask_helper), or the helper's code in this process.
    pub ask_helper: &'a dyn Fn(&Request) -> Result<Reply, Failure>,
    /// The replies that the same login's `account` was given at most 2 s ago, with their requests; empty
    /// in `account`, and if the caller keeps none.
    pub carried_replies: &'a [(Request, Reply)],
    /// The PAM environment, which the application passes to the login.
    pub environment: Environment<'a>,
    /// Looks up the uid of the account `slurm`, if there is one (passwd(5)). That may take a while, so it
    /// is called only for a file that root does not own.
    pub find_slurm_user: &'a dyn Fn() -> Option<u32>,
    /// The gid of the helper's account, which reads the user's choice of a job; without one, no directory
    /// for that is made.
    pub helper_group: Option<u32>,
    /// The argument that lets the user in outside of jobs if this module would refuse the login:
    /// `exempt_uids` or `exempt_groups`, with `exempt_join`.
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
    /// Returns what happens to our filter for another list, which may be newer than the plan. That of a registered cgroup
    /// only `register` exchanges, as it may have read the record again since the helper did. Elsewhere a login brings
    /// the newer list, unless its plan is that of the account phase.
    pub(super) fn old_filter(&self) -> OldFilter {
        let is_registered = matches!(self.plan.placement, Placement::Cgroup { .. });
        if is_registered || !self.context.carried_replies.is_empty() {
            OldFilter::Keep
        } else {
            OldFilter::Replace
        }
    }

    pub(super) fn uid(&self) -> u32 {
        self.context.login.uid
    }

    pub(super) fn deadline(&self) -> Instant {
        self.context.budget.deadline()
    }
}
