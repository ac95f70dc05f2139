//! From the facts of a login to a ruling, with the words for the user and for the log.

use super::job::{Job, Joined};
use super::text::{Words, refusal_text, success_text};
use super::undo::{Environment, Undo, set};
use super::{Action, Budget, Failure, Line, Settings, Severity};
use kernel::cgroup::{Membership, Origin};
use kernel::choice::Choices;
use kernel::log::Log;
use kernel::namespace::NamespaceOrigin;
use protocol::{
    JobId, Phase, Plan, Reason, Refusal, Reply, Request, Stack, Variable, Verdict, is_within,
};
use std::time::{Duration, Instant};

/// Most lines beside the decision.
const DETAILS_MAX: usize = 16;

/// What becomes of the login as far as this module goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ruling {
    /// `PAM_SUCCESS`.
    Admit,
    /// `PAM_IGNORE`: the other modules decide.
    Ignore,
    /// Refused.
    #[default]
    Refuse,
}

/// A ruling, and what there is to say about it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The ruling.
    pub ruling: Ruling,
    /// The code; `None` where nothing is enforced on this node.
    pub reason: Option<Reason>,
    /// What a refused user reads, or would read.
    pub refusal: Option<String>,
    /// What an interactive login reads.
    pub welcome: Option<String>,
    /// For the log, in order; the first line is the decision.
    pub lines: Vec<Line>,
    /// Why a login is refused or not judged, in full.
    pub cause: String,
    /// The node's log, if the login joined namespaces: these may have another one.
    pub log: Option<Log>,
    /// The way out of the job's namespaces, if the login joined some.
    pub outside: Option<NamespaceOrigin>,
}

/// Is shown a job, and what would become of the login.
pub(crate) type Look<'a> = &'a dyn Fn(&Job, Option<&Joined>);

/// One login, and what a ruling on it needs of its surroundings.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    /// Its facts.
    pub login: &'a Request,
    /// The module's arguments.
    pub settings: &'a Settings,
    /// Asks the unprivileged half.
    pub ask: &'a dyn Fn(&Request) -> Result<Reply, Failure>,
    /// What it has answered a moment ago, when it was asked for the account phase of this login.
    pub carried: &'a [(Request, Reply)],
    /// Takes the variables for the login.
    pub environment: Environment<'a>,
    /// Uid of the account that Slurm runs as, where there is one. Looking it up may take a while, so
    /// it is asked for only where something is not root's.
    pub slurm_user: &'a dyn Fn() -> Option<u32>,
    /// Group of the helper's account, which reads the user's choice of a job.
    pub helper_group: Option<u32>,
    /// Looks on where nothing but that is wanted.
    pub look: Option<Look<'a>>,
    /// The time that there is for all of it.
    pub budget: &'a Budget,
}

/// One login on its way into one job.
#[derive(Clone, Copy)]
pub(super) struct Adoption<'a> {
    pub(super) means: Means<'a>,
    /// Where to, and what must hold there.
    pub(super) plan: &'a Plan,
}

impl Adoption<'_> {
    /// Whether the plan is from the phase before: it replaces no filter that may be newer.
    pub(super) fn is_carried(&self) -> bool {
        !self.means.carried.is_empty()
    }

    pub(super) fn uid(&self) -> u32 {
        self.means.login.uid
    }

    pub(super) fn deadline(&self) -> Instant {
        self.means.budget.deadline()
    }
}

/// Rules on one login; in the session phase this takes the login into the job.
pub fn judge(means: Means<'_>) -> Outcome {
    Case { means, reply: None }.rule()
}

/// The refusal of a login whose PAM line has an argument that is wrong.
pub fn misconfigured(login: &Request, why: &str) -> Outcome {
    let reason = Reason::Configuration;
    let line = decision_line(Severity::Error, "refuse", Some(reason), login).with("error", why);
    let words = Words { login, refusal: &refusal(reason, None), reply: None, waited: 0 };
    let refusal = Some(refusal_text(&words));
    Outcome { reason: Some(reason), refusal, lines: vec![line], ..Outcome::default() }
}

/// The beginning of a decision's line.
pub fn decision_line(
    severity: Severity,
    decision: &str,
    reason: Option<Reason>,
    login: &Request,
) -> Line {
    Line::new(severity)
        .with("decision", decision)
        .with("code", reason.map_or("", Reason::as_str))
        .with("user", &login.user)
        .with("uid", login.uid)
        .with("rhost", &login.rhost)
        .with("service", &login.service)
        .with("phase", login.phase.as_str())
}

fn refusal(reason: Reason, job: Option<&JobId>) -> Refusal {
    let jobs = job.into_iter().cloned().collect();
    Refusal { reason, jobs, ended: None, device: String::new() }
}

struct Case<'a> {
    means: Means<'a>,
    reply: Option<Reply>,
}

impl Case<'_> {
    fn rule(&mut self) -> Outcome {
        let request = self.request();
        if !self.means.carried.iter().any(|(asked, _)| asked.shares_answer_with(&request)) {
            self.means.carried = &[];
        }
        let reply = match self.ask(&request) {
            Ok(reply) => reply,
            Err(failure) => return self.refuse(&failure, None),
        };
        let stack = reply.stack;
        let stack_judged = self.means.login.phase == Phase::Account;
        let (verdict, detail) = self.take(reply);
        match verdict {
            Verdict::NotEnforced => self.not_enforced(&detail),
            _ if stack_judged && stack != Stack::Effective => {
                self.refuse(&Failure::Why(Reason::Configuration, detail), None)
            }
            Verdict::Refuse(refusal) => self.refuse(&Failure::Refused { refusal, detail }, None),
            Verdict::Admit(mut plan) => match self.carry_out(&mut plan) {
                Ok(outcome) => outcome,
                Err(failure @ Failure::Refused { .. }) => self.refuse(&failure, None),
                Err(failure) => self.refuse(&failure, Some(&plan)),
            },
        }
    }

    fn ask(&self, request: &Request) -> Result<Reply, Failure> {
        match self.means.carried.iter().find(|(asked, _)| asked.shares_answer_with(request)) {
            Some((_, reply)) => Ok(reply.clone()),
            None => (self.means.ask)(request),
        }
    }

    fn request(&self) -> Request {
        let millis = |length: Duration| u32::try_from(length.as_millis()).unwrap_or(u32::MAX);
        let Means { login, settings, .. } = self.means;
        Request {
            conf: settings.conf.clone(),
            several: settings.several,
            budget_ms: millis(self.means.budget.left()),
            wait_ms: millis(settings.wait_job),
            ..login.clone()
        }
    }

    /// Keeps what a reply has for people and for the log, and hands out what is to be done.
    fn take(&mut self, mut reply: Reply) -> (Verdict, String) {
        let verdict = std::mem::replace(&mut reply.verdict, Verdict::NotEnforced);
        let detail = std::mem::take(&mut reply.detail);
        self.reply = Some(reply);
        (verdict, detail)
    }

    /// Takes the login into the job, or only looks at it.
    fn carry_out(&mut self, plan: &mut Plan) -> Result<Outcome, Failure> {
        let means = self.means;
        let mut job = Job::open(&Adoption { means, plan })?;
        if let Some(unit) = job.unread(plan)? {
            self.ask_again(plan, unit)?;
        }
        let adoption = Adoption { means, plan };
        if means.login.phase == Phase::Account || means.settings.observe {
            let foreseen = job.foresee(&adoption);
            if let Some(look) = means.look {
                look(&job, foreseen.as_ref().ok());
            }
            return Ok(self.admitted(plan, &foreseen?));
        }
        let mut undo =
            Undo::new(Origin::open().map_err(|error| Failure::why(Reason::AdoptionFailed, error))?);
        let joined = job.join(&adoption, &mut undo)?;
        self.require_time("the move").map_err(|failure| undo.back(failure))?;
        joined.tried.gpus.iter().for_each(|gpu| plan.env.append_gpu(gpu));
        let wanted: Vec<_> = plan.env.iter().chain(&joined.display).collect();
        let variables = set(means.environment, &wanted);
        let variables = variables.map_err(|failure| undo.back(failure))?;
        // Before the job's namespaces are joined: both are files of the node.
        let choice_dir = self.make_choice_dir();
        let log = if joined.namespaces.is_empty() { None } else { Log::open().ok() };
        // Last, since every later read of a file happens in the job's namespaces.
        let entered = undo.enter(&joined.namespaces, &means.settings.private_dirs);
        let entered = entered.and_then(|()| self.require_time("joining the job's namespaces"));
        entered.map_err(|failure| {
            variables.iter().for_each(|name| _ = (means.environment.put)(name));
            undo.back(failure)
        })?;
        let outside = undo.commit();
        let outcome = self.adopted(plan, &joined, &wanted, &variables, choice_dir);
        Ok(Outcome { outside, log, ..outcome })
    }

    /// Requires that the budget is not used up. The kernel may hold up a move or a mount for as long as others
    /// hold its locks, and only the clock shows it afterwards.
    fn require_time(&self, step: &str) -> Result<(), Failure> {
        match self.means.budget.left().is_zero() {
            false => Ok(()),
            true => {
                let why = format!("the time budget was used up during {step}");
                Err(Failure::Why(Reason::Timeout, why))
            }
        }
    }

    /// Has the helper read the unit's file, and takes over its second plan. That is for the same
    /// login and must be about the same job.
    fn ask_again(&mut self, plan: &mut Plan, unit: String) -> Result<(), Failure> {
        // There is a job: nothing is waited for.
        let request = Request { unit, wait_ms: 0, ..self.request() };
        let reply = self.ask(&request)?;
        match self.take(reply) {
            (Verdict::Admit(second), _)
                if (&second.job, &second.placement) == (&plan.job, &plan.placement) =>
            {
                *plan = second;
                Ok(())
            }
            (Verdict::Refuse(refusal), detail) => Err(Failure::Refused { refusal, detail }),
            _ => {
                let why = "the helper's second answer is about another job";
                Err(Failure::why(Reason::AdoptionFailed, why))
            }
        }
    }

    fn not_enforced(&self, detail: &str) -> Outcome {
        let line = self.decision("ignore", Severity::Info, Reason::Admitted);
        let line = self.closed(line).with("error", detail);
        Outcome {
            reason: None,
            cause: detail.to_owned(),
            ..self.outcome(Ruling::Ignore, Reason::Admitted, line, None)
        }
    }

    fn admitted(&self, plan: &Plan, foreseen: &Joined) -> Outcome {
        let (ruling, decision, would) = match self.means.settings.observe {
            true => (Ruling::Ignore, "observe", "adopt"),
            false => (Ruling::Admit, "admit", ""),
        };
        let line = self.decision(decision, Severity::Info, Reason::Admitted);
        let line = with_plan(line, plan, Some(foreseen));
        let line = self.closed(line).with("would", would);
        let line = self.compared(line, Some((plan, &foreseen.cgroup)));
        self.outcome(ruling, Reason::Admitted, line, Some(plan))
    }

    fn adopted(
        &self,
        plan: &Plan,
        joined: &Joined,
        wanted: &[&Variable],
        variables: &[&'static str],
        choice_dir: Option<String>,
    ) -> Outcome {
        let line = self.decision("adopt", Severity::Info, Reason::Admitted);
        let line = with_plan(line, plan, Some(joined)).with("env", variables.join(" "));
        let line = self.closed(line);
        let mut outcome = self.outcome(Ruling::Admit, Reason::Admitted, line, Some(plan));
        let gpus = joined.tried.open.unwrap_or(plan.gpus);
        outcome.welcome = Some(success_text(plan, gpus, &self.means.login.node));
        let names = wanted.iter().map(|variable| variable.name());
        let set_before: Vec<_> = names.filter(|name| !variables.contains(name)).collect();
        let mut remarks = Vec::new();
        if !set_before.is_empty() {
            remarks.push(format!("set by another module: {}", set_before.join(" ")));
        }
        remarks.extend(joined.tried.trouble.iter().map(ToString::to_string));
        remarks.extend(choice_dir);
        outcome.lines.extend(remarks.iter().map(|text| self.about("warning", text, Some(plan))));
        outcome
    }

    /// Refuses a login, unless an argument opens or only observes. The plan is given where the
    /// helper had admitted it. A carried plan refuses nobody, since the job may have changed: the
    /// helper is asked anew, unless the login could not be moved back.
    fn refuse(&mut self, failure: &Failure, plan: Option<&Plan>) -> Outcome {
        if !self.means.carried.is_empty() && !matches!(failure, Failure::Stuck(..)) {
            self.means.carried = &[];
            return self.rule();
        }
        let refusal = match failure {
            Failure::Refused { refusal, .. } => refusal.clone(),
            _ => refusal(failure.reason(), plan.map(|plan| &plan.job)),
        };
        let reason = refusal.reason;
        let (action, knob) = match failure {
            // Who is let in by a knob is let in outside the job.
            Failure::Stuck(..) => (Action::Deny, ""),
            _ => self.means.settings.action(reason),
        };
        let (decision, ruling, severity) = match action {
            _ if self.means.settings.observe => ("observe", Ruling::Ignore, Severity::Info),
            Action::Deny => ("refuse", Ruling::Refuse, severity(failure, reason)),
            Action::Ignore => ("opened", Ruling::Ignore, Severity::Alert),
            Action::Allow => ("opened", Ruling::Admit, Severity::Alert),
        };
        let line = self.decision(decision, severity, reason);
        let line = match plan {
            Some(plan) => with_plan(line, plan, None),
            None => line.with("job", refusal.jobs.first().map_or("", |job| job.as_str())),
        };
        let line = match decision {
            "opened" => self.closed(line).with("knob", knob),
            "observe" => self.compared(self.closed(line).with("would", "refuse"), None),
            _ => self.closed(line),
        };
        let (login, reply) = (self.means.login, self.reply.as_ref());
        let mut outcome = self.outcome(ruling, reason, line.with("error", failure.cause()), plan);
        outcome.cause = failure.cause();
        let waited = self.means.budget.used_ms();
        let words = Words { login, refusal: &refusal, reply, waited };
        outcome.refusal = Some(refusal_text(&words));
        if reason == Reason::ChoiceNeeded && !self.means.settings.observe {
            let trouble = self.make_choice_dir();
            outcome.lines.extend(trouble.map(|text| self.about("warning", &text, plan)));
        }
        outcome
    }

    /// Makes the directory in which the user may choose a job; the trouble with it, if any. It is a
    /// convenience: nobody is refused for want of it.
    fn make_choice_dir(&self) -> Option<String> {
        let made = Choices::here().make(self.means.login.uid, self.means.helper_group?);
        made.err().map(|error| error.to_string())
    }

    /// The beginning that every decision's line has.
    fn decision(&self, decision: &str, severity: Severity, reason: Reason) -> Line {
        decision_line(severity, decision, Some(reason), self.means.login)
    }

    /// In a session that is only observed: where another module has put the login, and whether that is
    /// in the job that this one would have taken it into.
    fn compared(&self, line: Line, ours: Option<(&Plan, &str)>) -> Line {
        let Means { login, settings, look, .. } = self.means;
        let looks_on = !settings.observe || login.phase == Phase::Account || look.is_some();
        let (false, Ok(now)) = (looks_on, Membership::own()) else { return line };
        let job = ours.map(|(plan, leaf)| match plan.placement.cgroup() {
            // Slurm moves a login on, within the step.
            "" => leaf.rsplit_once('/').map_or(leaf, |(above, _)| above),
            path => path,
        });
        let mut all = now.unified().into_iter().chain(now.legacy().map(|(_, path)| path));
        let same = job.and_then(|job| all.find(|path| is_within(path, job)));
        let theirs = same.or(now.unified()).unwrap_or_default();
        line.with("theirs", theirs).with("agree", if same.is_some() { "yes" } else { "no" })
    }

    fn closed(&self, line: Line) -> Line {
        line.with("ms", self.means.budget.used_ms())
    }

    /// Puts what else the log has to name behind the decision.
    fn outcome(
        &self,
        ruling: Ruling,
        reason: Reason,
        decision: Line,
        plan: Option<&Plan>,
    ) -> Outcome {
        let about = |key, text: &String| self.about(key, text, plan);
        let warnings = self.reply.iter().flat_map(|reply| &reply.warnings);
        let dropped = plan.iter().flat_map(|plan| &plan.dropped);
        let details = warnings.map(|text| about("warning", text));
        let details = details.chain(dropped.map(|text| about("dropped", text)));
        // The decision first: should the log not take everything, that is what must be in it.
        let (reason, lines) = (Some(reason), vec![decision]);
        let mut outcome = Outcome { ruling, reason, lines, ..Outcome::default() };
        outcome.lines.extend(details.clone().take(DETAILS_MAX));
        let left_out = details.count().saturating_sub(DETAILS_MAX);
        if left_out > 0 {
            outcome.lines.push(about("warning", &format!("and {left_out} more")));
        }
        outcome
    }

    /// A line beside the decision.
    fn about(&self, key: &str, text: &str, plan: Option<&Plan>) -> Line {
        Line::new(Severity::Warning)
            .with("user", &self.means.login.user)
            .with("job", plan.map_or("", |plan| plan.job.as_str()))
            .with(key, text)
    }
}

/// The line with what is known of the job and the login's place. It counts the devices on the list, or,
/// without a list, those that were found open.
fn with_plan(line: Line, plan: &Plan, joined: Option<&Joined>) -> Line {
    let cgroup = joined.map_or(plan.placement.cgroup(), |joined| &joined.cgroup);
    let containment = joined.map_or("", |joined| joined.containment);
    let opened = joined.and_then(|joined| joined.tried.open);
    let listed = plan.containment.list().map(|list| list.rules().len().to_string());
    let devices = listed.or(opened.map(|count| count.to_string())).unwrap_or_default();
    line.with("job", &plan.job)
        .with("source", plan.placement.source().as_str())
        .with("rule", plan.rule.as_str())
        .with("cgroup", cgroup)
        .with("containment", containment)
        .with("devices", devices)
        .with("dropped", plan.dropped.len())
}

/// What the user could have known is a refusal; the rest is a fault, ours or the node's.
fn severity(failure: &Failure, reason: Reason) -> Severity {
    use Reason::{ChoiceNeeded, Ended, NoJob, Starting, Suspended};
    match (failure, reason) {
        (Failure::Stuck(..), _) => Severity::Alert,
        (_, NoJob | Starting | Ended | Suspended | ChoiceNeeded) => Severity::Notice,
        _ => Severity::Error,
    }
}
