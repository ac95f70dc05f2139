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
    /// Returns what happens to an older filter that we attached. The plan of the account phase replaces no filter, which
    /// may be newer.
    pub(super) fn old_filter(&self) -> OldFilter {
        if self.context.carried_replies.is_empty() {
            OldFilter::Replace
        } else {
            OldFilter::Keep
        }
    }

    pub(super) fn uid(&self) -> u32 {
        self.context.login.uid
    }

    pub(super) fn deadline(&self) -> Instant {
        self.context.budget.deadline()
    }
}
