//! From the facts of a login to a ruling, with the words for the user and for the log.

mod refused;
mod second;

use super::adopt::{Adopted, Joined, adopt};
use super::ask::ask;
use super::decision::with_plan;
use super::environment::Environment;
use super::text::{Words, refusal_text, success_text};
use super::{
    Account, Budget, Failure, Foreseen, Line, Login, Settings, Severity, Target, Visit,
    decision_line,
};
use crate::cgroup::Origin;
use crate::chosen::Choices;
use crate::plan::{Phase, Plan, Reason, Reply, Request, Stack, Variable, Verdict};
use crate::sys::clock;

/// What becomes of the login as far as this module goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// `PAM_SUCCESS`.
    Admit,
    /// `PAM_IGNORE`: the other modules decide.
    Ignore,
    /// Refused.
    Refuse,
}

/// A ruling, and what there is to say about it.
#[derive(Debug)]
pub struct Outcome {
    /// The ruling.
    pub ruling: Ruling,
    /// What a refused user reads.
    pub refusal: Option<String>,
    /// What an interactive login reads.
    pub welcome: Option<String>,
    /// For the log, in order; the first line is the decision.
    pub lines: Vec<Line>,
}

/// Rules on one login; in the session phase this takes the login into the job. `slurm_user` looks
/// up the uid of the account that Slurm runs as.
#[must_use]
pub fn judge(
    login: &Login,
    settings: &Settings,
    account: Option<Account>,
    environment: &dyn Environment,
    slurm_user: &dyn Fn() -> Option<u32>,
    budget: &Budget,
) -> Outcome {
    let mut case = Case { login, settings, account, environment, slurm_user, budget, reply: None };
    match ask(&settings.helper, account, &case.request(), budget) {
        Err(fault) => case.refuse(&fault.into()),
        Ok(reply) => {
            let stack = reply.stack;
            let (verdict, detail) = case.take(reply);
            case.rule(verdict, stack, detail)
        }
    }
}

/// The refusal of a login whose PAM line has an argument that is wrong.
#[must_use]
pub fn misconfigured(login: &Login, why: &str) -> Outcome {
    let reason = Reason::Configuration;
    let line = decision_line(Severity::Error, "refuse", Some(reason), login).with("error", why);
    let words = Words { node: login.node.clone(), now: clock::now(), ..Words::default() };
    Outcome {
        ruling: Ruling::Refuse,
        refusal: Some(refusal_text(reason, &words)),
        welcome: None,
        lines: vec![line],
    }
}

/// Most lines beside the decision.
const DETAILS_MAX: usize = 16;

/// One login on its way.
struct Case<'a> {
    login: &'a Login,
    settings: &'a Settings,
    account: Option<Account>,
    environment: &'a dyn Environment,
    slurm_user: &'a dyn Fn() -> Option<u32>,
    budget: &'a Budget,
    reply: Option<Reply>,
}

impl Case<'_> {
    fn request(&self) -> Request {
        let millis =
            |duration: std::time::Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
        Request {
            phase: self.login.phase,
            user: self.login.user.clone(),
            uid: self.login.uid,
            service: self.login.service.clone(),
            node: self.login.node.clone(),
            rhost: self.login.rhost.clone(),
            ssh_connection: self.login.ssh_connection.clone(),
            conf: self.settings.conf.clone(),
            several: self.settings.several,
            budget_ms: millis(self.budget.left()),
            wait_ms: millis(self.settings.wait_job),
            unit: String::new(),
        }
    }

    /// Keeps what a reply has for people and for the log, and hands out what is to be done.
    fn take(&mut self, mut reply: Reply) -> (Verdict, String) {
        let verdict = std::mem::replace(&mut reply.verdict, Verdict::NotEnforced);
        let detail = std::mem::take(&mut reply.detail);
        self.reply = Some(reply);
        (verdict, detail)
    }

    fn rule(&mut self, verdict: Verdict, stack: Stack, detail: String) -> Outcome {
        let stack_judged = self.login.phase == Phase::Account;
        match verdict {
            Verdict::NotEnforced => self.not_enforced(&detail),
            _ if stack_judged && stack != Stack::Effective => self.refuse(&Failure::Stack(detail)),
            Verdict::Refuse(refusal) => self.refuse(&Failure::Refused { refusal, detail }),
            Verdict::Admit(mut plan) => {
                let ready = self.ask_again(&mut plan);
                match ready.and_then(|()| self.carry_out(&plan)) {
                    Ok(outcome) => outcome,
                    Err(failure @ Failure::Refused { .. }) => self.refuse(&failure),
                    Err(failure) => self.refuse_plan(&failure, &plan),
                }
            }
        }
    }

    fn visit<'a>(&'a self, plan: &'a Plan) -> Visit<'a> {
        Visit {
            login: self.login,
            plan,
            require_devices: self.settings.require_devices,
            slurm_user: self.slurm_user,
            helper: &self.settings.helper,
            budget: self.budget,
        }
    }

    /// Takes the login into the job, or only looks at it.
    fn carry_out(&self, plan: &Plan) -> Result<Outcome, Failure> {
        let visit = self.visit(plan);
        if self.login.phase == Phase::Account || self.settings.observe {
            let foreseen = Target::open(&visit)?.foresee(&visit)?;
            return Ok(self.admitted(plan, &foreseen));
        }
        let adopted = adopt(&visit, Origin::open()?, self.environment)?;
        Ok(self.adopted(plan, &adopted))
    }

    fn admitted(&self, plan: &Plan, foreseen: &Foreseen) -> Outcome {
        let decision = match self.settings.observe {
            true => self.decision("observe", Severity::Info, Reason::Admitted),
            false => self.decision("admit", Severity::Info, Reason::Admitted),
        };
        let line = with_plan(decision, plan, &foreseen.cgroup, foreseen.containment, None);
        let ruling = if self.settings.observe { Ruling::Ignore } else { Ruling::Admit };
        let would = if self.settings.observe { "adopt" } else { "" };
        self.outcome(ruling, self.closed(line.with("would", would)), Some(plan))
    }

    fn adopted(&self, plan: &Plan, adopted: &Adopted) -> Outcome {
        let decision = self.decision("adopt", Severity::Info, Reason::Admitted);
        let Joined { cgroup, confinement, tried, .. } = &adopted.joined;
        let line = with_plan(decision, plan, cgroup, confinement.as_str(), tried.open)
            .with("env", adopted.variables.join(" "));
        let mut outcome = self.outcome(Ruling::Admit, self.closed(line), Some(plan));
        outcome.welcome =
            Some(success_text(plan, tried.open.unwrap_or(plan.gpus), &self.login.node));
        let names = plan.env.iter().map(Variable::name);
        let set_before: Vec<_> = names.filter(|name| !adopted.variables.contains(name)).collect();
        let mut remarks = Vec::new();
        if !set_before.is_empty() {
            remarks.push(format!("set by another module: {}", set_before.join(" ")));
        }
        remarks.extend(tried.trouble.iter().map(ToString::to_string));
        remarks.extend(self.make_choice_dir());
        outcome.lines.extend(remarks.iter().map(|text| self.about("warning", text, Some(plan))));
        outcome
    }

    fn not_enforced(&self, detail: &str) -> Outcome {
        let line = self.decision("ignore", Severity::Info, Reason::Admitted);
        self.outcome(Ruling::Ignore, self.closed(line).with("error", detail), None)
    }

    /// Makes the directory in which the user may choose a job; the trouble with it, if any. It is a
    /// convenience: nobody is refused for want of it.
    fn make_choice_dir(&self) -> Option<String> {
        let made = Choices::here().make(self.login.uid, self.account?.gid);
        made.err().map(|error| error.to_string())
    }

    /// The beginning that every decision's line has.
    fn decision(&self, decision: &str, severity: Severity, reason: Reason) -> Line {
        decision_line(severity, decision, Some(reason), self.login)
    }

    fn closed(&self, line: Line) -> Line {
        line.with("ms", self.budget.used_ms())
    }

    /// Puts what else the log has to name behind the decision.
    fn outcome(&self, ruling: Ruling, decision: Line, plan: Option<&Plan>) -> Outcome {
        let about = |key, text: &String| self.about(key, text, plan);
        let warnings = self.reply.iter().flat_map(|reply| &reply.warnings);
        let dropped = plan.iter().flat_map(|plan| &plan.dropped);
        let details = warnings.map(|text| about("warning", text));
        let details = details.chain(dropped.map(|text| about("dropped", text)));
        // The decision first: should the log not take everything, that is what has to be in it.
        let mut lines = vec![decision];
        lines.extend(details.clone().take(DETAILS_MAX));
        let left_out = details.count().saturating_sub(DETAILS_MAX);
        if left_out > 0 {
            lines.push(about("warning", &format!("and {left_out} more")));
        }
        Outcome { ruling, refusal: None, welcome: None, lines }
    }

    /// A line beside the decision.
    fn about(&self, key: &str, text: &str, plan: Option<&Plan>) -> Line {
        Line::new(Severity::Warning)
            .with("user", &self.login.user)
            .with("job", plan.map_or("", |plan| plan.job.as_str()))
            .with(key, text)
    }
}
