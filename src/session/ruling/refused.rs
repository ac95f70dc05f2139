//! The ruling on a login that is refused, or would be but for an argument.

use super::{Case, Outcome, Ruling};
use crate::plan::{Plan, Reason, Refusal};
use crate::session::decision::{severity, with_plan};
use crate::session::text::{Words, refusal_text};
use crate::session::{Action, Failure, Severity};
use crate::sys::clock;

impl Case<'_> {
    pub(super) fn refuse(&self, failure: &Failure) -> Outcome {
        let refusal = match failure {
            Failure::Refused { refusal, .. } => refusal.clone(),
            _ => Refusal {
                reason: failure.reason(),
                jobs: Vec::new(),
                ended: None,
                device: String::new(),
            },
        };
        self.refused(failure, &refusal, None)
    }

    pub(super) fn refuse_plan(&self, failure: &Failure, plan: &Plan) -> Outcome {
        let refusal = Refusal {
            reason: failure.reason(),
            jobs: vec![plan.job.clone()],
            ended: None,
            device: String::new(),
        };
        self.refused(failure, &refusal, Some(plan))
    }

    fn refused(&self, failure: &Failure, refusal: &Refusal, plan: Option<&Plan>) -> Outcome {
        let reason = refusal.reason;
        let (action, knob) = match failure {
            // Who is let in by a knob is let in outside the job.
            Failure::Stuck(..) => (Action::Deny, ""),
            _ => self.settings.action(reason),
        };
        let (decision, ruling, severity) = match action {
            _ if self.settings.observe => ("observe", Ruling::Ignore, Severity::Info),
            Action::Deny => ("refuse", Ruling::Refuse, severity(failure, reason)),
            Action::Ignore => ("opened", Ruling::Ignore, Severity::Alert),
            Action::Allow => ("opened", Ruling::Admit, Severity::Alert),
        };
        let line = self.decision(decision, severity, reason);
        let line = match plan {
            Some(plan) => with_plan(line, plan, plan.placement.cgroup(), "", None),
            None => line.with("job", refusal.jobs.first().map_or("", |job| job.as_str())),
        };
        let line = match decision {
            "opened" => self.closed(line).with("knob", knob),
            "observe" => self.closed(line).with("would", "refuse"),
            _ => self.closed(line),
        };
        let mut outcome = self.outcome(ruling, line.with("error", failure), plan);
        if ruling == Ruling::Refuse {
            outcome.refusal = Some(refusal_text(reason, &self.words(refusal)));
        }
        if reason == Reason::ChoiceNeeded && !self.settings.observe {
            let trouble = self.make_choice_dir();
            outcome.lines.extend(trouble.map(|text| self.about("warning", &text, plan)));
        }
        outcome
    }

    fn words(&self, refusal: &Refusal) -> Words {
        let reply = self.reply.as_ref();
        Words {
            node: self.login.node.clone(),
            user: self.login.user.clone(),
            jobs: refusal.jobs.clone(),
            ended: refusal.ended,
            device: refusal.device.clone(),
            hint: reply.map(|reply| reply.hint.clone()).unwrap_or_default(),
            message: reply.map(|reply| reply.message.clone()).unwrap_or_default(),
            waited: self.budget.used_ms(),
            now: clock::now(),
        }
    }
}
