//! One login on its way into one job: what both phases and every kind of job need.

use super::{Budget, Login};
use crate::plan::Plan;

/// A login, the plan for it, and how far it may go.
#[derive(Clone, Copy)]
pub struct Visit<'a> {
    /// Who logs in.
    pub login: &'a Login,
    /// Where to, and what has to hold there.
    pub plan: &'a Plan,
    /// Whether a job without device containment is refused.
    pub require_devices: bool,
    /// Uid of the account that Slurm runs as, where there is one. Looking it up may take a while,
    /// so it is asked for only where something is not root's.
    pub slurm_user: &'a dyn Fn() -> Option<u32>,
    /// Path of the helper; the keeper lies beside it.
    pub helper: &'a str,
    /// The time that is left for all of it.
    pub budget: &'a Budget,
}
