//! The second question: what devices a unit of Flux's without a filter should have.

use super::Case;
use crate::plan::{Plan, Request, Verdict};
use crate::session::Failure;
use crate::session::ask::ask;
use crate::session::flux::{FluxFailure, policy};

impl Case<'_> {
    /// Has the helper read the unit's file where the plan cannot be carried out without it, and
    /// takes over its second plan. That is for the same login and has to be about the same job.
    pub(super) fn ask_again(&mut self, plan: &mut Plan) -> Result<(), Failure> {
        let Some(unit) = policy(&self.visit(plan))? else { return Ok(()) };
        // There is a job: nothing is waited for.
        let request = Request { unit, wait_ms: 0, ..self.request() };
        let reply = ask(&self.settings.helper, self.account, &request, self.budget)?;
        match self.take(reply) {
            (Verdict::Admit(second), _)
                if (&second.job, &second.placement) == (&plan.job, &plan.placement) =>
            {
                *plan = second;
                Ok(())
            }
            (Verdict::Refuse(refusal), detail) => Err(Failure::Refused { refusal, detail }),
            _ => Err(FluxFailure::Changed.into()),
        }
    }
}
