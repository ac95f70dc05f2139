//! Decides on a login by its facts, and writes the texts for the user and the log.

use crate::context::{Adoption, LoginContext};
use crate::error::Failure;
use crate::job::{Job, JoinResult};
use crate::log::decision_line;
use crate::namespaces::JobNamespaces;
use crate::settings::Action;
use crate::text::{RefusalFacts, refusal_text, success_text};
use crate::undo::Undo;
use crate::variables::set_variables;
use kernel::cgroup::{Membership, Origin};
use kernel::choice::Choices;
use kernel::log::{Line, Severity};
use kernel::namespace::Namespace;
use protocol::{
    JobId, Phase, Placement, Plan, Reason, Refusal, Reply, Request, SessionLine, Variable, Verdict,
    is_within,
};
use std::time::Duration;

/// Maximum log lines besides the decision.
const DETAIL_LINES_MAX: usize = 16;

/// The result of this module for a login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ruling {
    /// `PAM_SUCCESS`.
    Admit,
    /// `PAM_IGNORE`: the other modules decide.
    Ignore,
    /// `PAM_PERM_DENIED` or `PAM_SESSION_ERR`.
    #[default]
    Refuse,
}

/// A ruling, and its texts for the user and the log.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The ruling.
    pub ruling: Ruling,
    /// The code; `None` if nothing is enforced on this node.
    pub reason: Option<Reason>,
    /// The text for a refused user; under `observe`, the text that the user would read.
    pub refusal: Option<String>,
    /// The text for an interactive login.
    pub welcome: Option<String>,
    /// The log lines in order; the first one is the decision.
    pub lines: Vec<Line>,
    /// The full cause of a refusal, or of a login that is not judged.
    pub cause: String,
    /// The job's namespaces, which the process that becomes the user has to join.
    pub namespaces: Option<JobNamespaces>,
}

/// A function that gets the opened job and the predicted result of the login, in a dry run.
pub(crate) type DryRunObserver<'a> = &'a dyn Fn(&Job, Option<&JoinResult>);

/// Judges one login; in the session phase this moves the login into the job.
pub fn judge_login(context: LoginContext<'_>) -> Outcome {
    LoginDecision { context, reply: None }.decide()
}

/// Returns the refusal of a login whose PAM line has a wrong argument.
pub fn misconfiguration_outcome(login: &Request, why: &str) -> Outcome {
    let reason = Reason::Configuration;
    let line = decision_line(Severity::Error, "refuse", Some(reason), login).with("error", why);
    let facts = RefusalFacts {
        login,
        refusal: &refusal(reason, None),
        reply: None,
        elapsed_ms: 0,
        is_upgrade: false,
    };
    let refusal = Some(refusal_text(&facts));
    Outcome { reason: Some(reason), refusal, lines: vec![line], ..Outcome::default() }
}

pub(super) fn refusal(reason: Reason, job: Option<&JobId>) -> Refusal {
    let jobs = job.into_iter().cloned().collect();
    Refusal { reason, jobs, ended: None, device: String::new() }
}

/// The decision on one login, and the last reply about it.
struct LoginDecision<'a> {
    context: LoginContext<'a>,
    reply: Option<Reply>,
}

impl LoginDecision<'_> {
    /// Decides by the helper's reply, and carries out its plan.
    fn decide(&mut self) -> Outcome {
        let request = self.make_request();
        if !self
            .context
            .carried_replies
            .iter()
            .any(|(carried, _)| carried.shares_answer_with(&request))
        {
            self.context.carried_replies = &[];
        }
        let reply = match self.query(&request) {
            Ok(reply) => reply,
            Err(failure) => return self.decide_on_failure(&failure, None),
        };
        let stack = reply.stack;
        let is_stack_judged = self.context.login.phase == Phase::Account;
        let (verdict, detail) = self.store_reply(reply);
        match verdict {
            Verdict::NotEnforced => self.not_enforced_outcome(&detail),
            _ if is_stack_judged && stack != SessionLine::Effective => {
                self.decide_on_failure(&Failure::new(Reason::Configuration, detail), None)
            }
            Verdict::Refuse(refusal) => {
                self.decide_on_failure(&Failure::HelperRefused { refusal, detail }, None)
            }
            Verdict::Admit(mut plan) => match self.carry_out(&mut plan) {
                Ok(outcome) => outcome,
                Err(failure @ Failure::HelperRefused { .. }) => {
                    self.decide_on_failure(&failure, None)
                }
                Err(failure) => self.decide_on_failure(&failure, Some(&plan)),
            },
        }
    }

    /// Returns the carried reply to a request, or the helper's.
    fn query(&self, request: &Request) -> Result<Reply, Failure> {
        let mut carried = self.context.carried_replies.iter();
        match carried.find(|(carried, _)| carried.shares_answer_with(request)) {
            Some((_, reply)) => Ok(reply.clone()),
            None => (self.context.ask_helper)(request),
        }
    }

    fn make_request(&self) -> Request {
        let millis = |length: Duration| u32::try_from(length.as_millis()).unwrap_or(u32::MAX);
        let LoginContext { login, settings, exemption, .. } = self.context;
        Request {
            conf: settings.conf.clone(),
            several: settings.several,
            budget_ms: millis(self.context.budget.remaining()),
            // An exempt user is let in at once without a job.
            wait_ms: exemption.map_or(millis(settings.wait_job), |_| 0),
            ..login.clone()
        }
    }

    /// Stores the texts of a reply, and returns its verdict and detail.
    fn store_reply(&mut self, mut reply: Reply) -> (Verdict, String) {
        let verdict = std::mem::replace(&mut reply.verdict, Verdict::NotEnforced);
        let detail = std::mem::take(&mut reply.detail);
        self.reply = Some(reply);
        (verdict, detail)
    }

    /// Moves the login into the job; in the account phase and under `observe` only predicts the
    /// result.
    fn carry_out(&mut self, plan: &mut Plan) -> Result<Outcome, Failure> {
        let context = self.context;
        let mut job = Job::open(&Adoption { context, plan })?;
        if let Some(unit) = job.unit_text_for_helper(plan)? {
            self.query_with_unit_text(plan, unit)?;
        }
        let adoption = Adoption { context, plan };
        if context.login.phase == Phase::Account || context.settings.observe {
            let predicted = job.predict_join(&adoption);
            if let Some(observe) = context.observer {
                observe(&job, predicted.as_ref().ok());
            }
            return Ok(self.admission_outcome(plan, &predicted?));
        }
        let origin = Origin::open()
            .map_err(|error| Failure::with_errno(Reason::AdoptionFailed, &error, error.errno()))?;
        let mut undo = Undo::new(origin);
        let mut joined = job.join(&adoption, &mut undo)?;
        self.require_time("the move").map_err(|failure| undo.roll_back(failure))?;
        let namespaces = std::mem::take(&mut joined.namespaces);
        let namespaces =
            self.verify_namespaces(namespaces).map_err(|failure| undo.roll_back(failure))?;
        joined.probes.variables.iter().for_each(|gpu| plan.env.append_gpu(gpu));
        let requested: Vec<_> = plan.env.iter().chain(&joined.display).collect();
        let variables = set_variables(context.environment, &requested);
        let variables = variables.map_err(|failure| undo.roll_back(failure))?;
        let choice_dir_error = self.make_choice_dir().err();
        undo.commit();
        let outcome =
            self.adoption_outcome(plan, &joined, &requested, &variables, choice_dir_error);
        Ok(Outcome { namespaces, ..outcome })
    }

    /// Checks that the process that becomes the user will join these namespaces, if there are any, and that
    /// their files are the node's.
    fn verify_namespaces(&self, job: Vec<Namespace>) -> Result<Option<JobNamespaces>, Failure> {
        if job.is_empty() {
            return Ok(None);
        }
        self.require_auth_lines()?;
        let LoginContext { login, settings, .. } = self.context;
        let namespaces = JobNamespaces::new(job, &settings.private_dirs, login);
        namespaces.verify()?;
        self.require_time("joining the job's namespaces")?;
        Ok(Some(namespaces))
    }

    /// Requires that both auth lines of this module run when sshd's process becomes the user.
    fn require_auth_lines(&self) -> Result<(), Failure> {
        let fault = self.reply.as_ref().map_or("was not examined", |reply| &reply.auth_fault);
        if !fault.is_empty() {
            let cause = format!(
                "the job has private files: write \"auth required pam_job_adopt.so\" as the first and as \
                 the last auth line of service {}: {fault}",
                self.context.login.service
            );
            return Err(Failure::new(Reason::Configuration, cause));
        }
        if !self.context.ran_auth_lines {
            let cause = "the job has private files, and not both auth lines of pam_job_adopt.so ran \
                         before: another way to log in failed first, another program than sshd opens \
                         the session, or a line skips one of them";
            return Err(Failure::new(Reason::AdoptionFailed, cause));
        }
        Ok(())
    }

    /// Requires that the budget is not used up. Other processes that hold the kernel's locks may
    /// delay a move or a mount, and only the clock shows it afterwards.
    fn require_time(&self, step: &str) -> Result<(), Failure> {
        match self.context.budget.remaining().is_zero() {
            false => Ok(()),
            true => {
                let cause = format!("the time budget was used up during {step}");
                Err(Failure::new(Reason::Timeout, cause))
            }
        }
    }

    /// Sends the unit's text to the helper, and replaces the plan with the second one. That is for
    /// the same login and must be about the same job.
    fn query_with_unit_text(&mut self, plan: &mut Plan, unit: String) -> Result<(), Failure> {
        // The job exists, so the helper need not wait for one.
        let request = Request { unit, wait_ms: 0, ..self.make_request() };
        let reply = self.query(&request)?;
        match self.store_reply(reply) {
            (Verdict::Admit(second), _)
                if (&second.job, &second.placement) == (&plan.job, &plan.placement) =>
            {
                *plan = second;
                Ok(())
            }
            (Verdict::Refuse(refusal), detail) => Err(Failure::HelperRefused { refusal, detail }),
            _ => {
                let cause = "the helper's second answer is about another job";
                Err(Failure::new(Reason::AdoptionFailed, cause))
            }
        }
    }

    fn not_enforced_outcome(&self, detail: &str) -> Outcome {
        let line = self.decision_line("ignore", Severity::Info, Reason::Admitted);
        let line = self.with_elapsed(line).with("knob", "enforce").with("error", detail);
        Outcome {
            reason: None,
            cause: detail.to_owned(),
            ..self.new_outcome(Ruling::Ignore, Reason::Admitted, line, None)
        }
    }

    /// Returns the outcome of a login that could join its job.
    fn admission_outcome(&self, plan: &Plan, predicted: &JoinResult) -> Outcome {
        let (ruling, decision, would) = match self.context.settings.observe {
            true => (Ruling::Ignore, "observe", "adopt"),
            false => (Ruling::Admit, "admit", ""),
        };
        let line = self.decision_line(decision, Severity::Info, Reason::Admitted);
        let line = with_plan(line, plan, Some(predicted));
        let line = self.with_elapsed(line).with("would", would);
        let line = self.with_comparison(line, Some((plan, &predicted.cgroup)));
        self.new_outcome(ruling, Reason::Admitted, line, Some(plan))
    }

    /// Returns the outcome of a login that has joined its job. Of the `requested` variables this login has
    /// set those named in `variables`.
    fn adoption_outcome(
        &self,
        plan: &Plan,
        joined: &JoinResult,
        requested: &[&Variable],
        variables: &[&'static str],
        choice_dir_error: Option<String>,
    ) -> Outcome {
        let line = self.decision_line("adopt", Severity::Info, Reason::Admitted);
        let line = with_plan(line, plan, Some(joined)).with("env", variables.join(" "));
        let line = self.with_elapsed(line);
        let mut outcome = self.new_outcome(Ruling::Admit, Reason::Admitted, line, Some(plan));
        let gpus = joined.probes.openable.unwrap_or(plan.gpus);
        outcome.welcome = Some(success_text(plan, gpus, &self.context.login.node));
        let names = requested.iter().map(|variable| variable.name());
        let set_before: Vec<_> = names.filter(|name| !variables.contains(name)).collect();
        let mut warnings = Vec::new();
        if !set_before.is_empty() {
            warnings.push(format!("set by another module: {}", set_before.join(" ")));
        }
        warnings.extend(joined.probes.error.iter().map(ToString::to_string));
        warnings.extend(choice_dir_error);
        let lines = warnings.iter().map(|text| self.detail_line("warning", text, Some(plan)));
        outcome.lines.extend(lines);
        outcome
    }

    /// Returns the outcome of a failure: a refusal, unless `action_*`, `observe` or an exemption
    /// changes that.
    /// With a `plan`, the helper had admitted the login.
    ///
    /// After a carried reply it decides again with a fresh one, since the job may have changed,
    /// except if the login could not be moved back.
    fn decide_on_failure(&mut self, failure: &Failure, plan: Option<&Plan>) -> Outcome {
        let is_moved_back = !matches!(failure, Failure::MoveBackFailed(..));
        if !self.context.carried_replies.is_empty() && is_moved_back {
            self.context.carried_replies = &[];
            return self.decide();
        }
        let refusal = match failure {
            Failure::HelperRefused { refusal, .. } => refusal.clone(),
            _ => refusal(failure.reason(), plan.map(|plan| &plan.job)),
        };
        let reason = refusal.reason;
        let exemption = self.context.exemption;
        let (action, knob) = match (failure, exemption) {
            // An action admits a login outside the job, where this one may not be.
            (Failure::MoveBackFailed(..), _) => (Action::Deny, ""),
            (_, Some(argument)) => (Action::Ignore, argument),
            (_, None) => self.context.settings.action(reason),
        };
        let (decision, ruling, severity) = match action {
            _ if self.context.settings.observe => ("observe", Ruling::Ignore, Severity::Info),
            Action::Ignore if exemption.is_some() => {
                // A fault of the node is one for exempt users too.
                let severity = match refusal_severity(failure, reason) {
                    Severity::Error => Severity::Error,
                    _ => Severity::Info,
                };
                ("exempt", Ruling::Ignore, severity)
            }
            Action::Deny => ("refuse", Ruling::Refuse, refusal_severity(failure, reason)),
            Action::Ignore => ("opened", Ruling::Ignore, Severity::Alert),
            Action::Allow => ("opened", Ruling::Admit, Severity::Alert),
        };
        let line = self.decision_line(decision, severity, reason);
        let line = match plan {
            Some(plan) => with_plan(line, plan, None),
            None => line.with("job", refusal.jobs.first().map_or("", |job| job.as_str())),
        };
        let line = match decision {
            "opened" | "exempt" => self.with_elapsed(line).with("knob", knob),
            "observe" => {
                let would = if exemption.is_some() { "exempt" } else { "refuse" };
                self.with_comparison(self.with_elapsed(line).with("would", would), None)
            }
            _ => self.with_elapsed(line),
        };
        let (login, reply) = (self.context.login, self.reply.as_ref());
        let line = line.with("error", failure.cause());
        let mut outcome = self.new_outcome(ruling, reason, line, plan);
        outcome.cause = failure.cause();
        let elapsed_ms = self.context.budget.elapsed_ms();
        let is_upgrade = matches!(failure, Failure::OtherVersion(_));
        let facts = RefusalFacts { login, refusal: &refusal, reply, elapsed_ms, is_upgrade };
        outcome.refusal = Some(refusal_text(&facts));
        if reason == Reason::ChoiceNeeded && !self.context.settings.observe {
            let error = self.make_choice_dir().err();
            outcome.lines.extend(error.map(|text| self.detail_line("warning", &text, plan)));
        }
        outcome
    }

    /// Makes the directory in which the user may choose a job, if the helper has a group. An error
    /// does not refuse a login, since the directory is a convenience.
    fn make_choice_dir(&self) -> Result<(), String> {
        let Some(group) = self.context.helper_group else { return Ok(()) };
        let result = Choices::host().make(self.context.login.uid, group);
        result.map(drop).map_err(|error| error.to_string())
    }

    fn decision_line(&self, decision: &str, severity: Severity, reason: Reason) -> Line {
        decision_line(severity, decision, Some(reason), self.context.login)
    }

    /// In an observed session, adds the cgroup in which another module has put the login, and
    /// whether that is in the job that this module would have chosen: without one `agree` is `no`. Adds
    /// nothing in a dry run, or if the cgroups cannot be read.
    fn with_comparison(&self, line: Line, ours: Option<(&Plan, &str)>) -> Line {
        let LoginContext { login, settings, observer, .. } = self.context;
        let is_observed = settings.observe && login.phase == Phase::Session && observer.is_none();
        let current = if is_observed { Membership::read_own().ok() } else { None };
        let Some(current) = current else { return line };
        let job = ours.map(|(plan, leaf)| match &plan.placement {
            // Slurm moves a login on, within the step.
            Placement::Extern { .. } => leaf.rsplit_once('/').map_or(leaf, |(parent, _)| parent),
            Placement::Cgroup { path, .. } | Placement::Unit { path, .. } => path.as_str(),
        });
        let mut paths =
            current.unified().into_iter().chain(current.v1_hierarchies().map(|(_, path)| path));
        let same = job.and_then(|job| paths.find(|path| is_within(path, job)));
        let theirs = same.or(current.unified()).unwrap_or_default();
        line.with("theirs", theirs).with("agree", if same.is_some() { "yes" } else { "no" })
    }

    fn with_elapsed(&self, line: Line) -> Line {
        line.with("ms", self.context.budget.elapsed_ms())
    }

    /// Returns an outcome whose log has the decision, and behind it the warnings and dropped
    /// devices. `log_level` does not filter the decision that leaves a session outside of jobs.
    fn new_outcome(
        &self,
        ruling: Ruling,
        reason: Reason,
        decision: Line,
        plan: Option<&Plan>,
    ) -> Outcome {
        let detail = |key, text: &String| self.detail_line(key, text, plan);
        let warnings = self.reply.iter().flat_map(|reply| &reply.warnings);
        let dropped = plan.iter().flat_map(|plan| &plan.dropped);
        let details = warnings.map(|text| detail("warning", text));
        let details = details.chain(dropped.map(|text| detail("dropped", text)));
        let is_outside = ruling == Ruling::Ignore && self.context.login.phase == Phase::Session;
        let decision = if is_outside { decision.unfiltered() } else { decision };
        // The decision is the first line, since the log may drop later ones.
        let (reason, lines) = (Some(reason), vec![decision]);
        let mut outcome = Outcome { ruling, reason, lines, ..Outcome::default() };
        outcome.lines.extend(details.clone().take(DETAIL_LINES_MAX));
        let left_out = details.count().saturating_sub(DETAIL_LINES_MAX);
        if left_out > 0 {
            outcome.lines.push(detail("warning", &format!("and {left_out} more")));
        }
        outcome
    }

    /// Returns a log line besides the decision.
    fn detail_line(&self, key: &str, text: &str, plan: Option<&Plan>) -> Line {
        Line::new(Severity::Warning)
            .with("user", &self.context.login.user)
            .with("job", plan.map_or("", |plan| plan.job.as_str()))
            .with(key, text)
    }
}

/// Adds the facts of the job and of the login's cgroup to a line. The number of devices is the
/// length of the list, or, without a list, the number of devices that can be opened.
fn with_plan(line: Line, plan: &Plan, joined: Option<&JoinResult>) -> Line {
    let cgroup = joined.map_or(plan.placement.cgroup(), |joined| &joined.cgroup);
    let containment = joined.map_or("", |joined| joined.containment);
    let limits = joined.map_or(&[][..], |joined| &joined.limits).iter();
    let limits: Vec<_> = limits.map(|(file, value)| format!("{file}={value}")).collect();
    let openable = joined.and_then(|joined| joined.probes.openable);
    let listed = plan.containment.list().map(|list| list.rules().len().to_string());
    let devices = listed.or(openable.map(|count| count.to_string())).unwrap_or_default();
    line.with("job", &plan.job)
        .with("source", plan.placement.source().as_str())
        .with("rule", plan.rule.as_str())
        .with("cgroup", cgroup)
        .with("containment", containment)
        .with("devices", devices)
        .with("dropped", plan.dropped.len())
        .with("limits", limits.join(" "))
}

/// Returns the severity of a refusal: a notice if the user could have expected it, an error for a
/// fault of the node or of this module.
fn refusal_severity(failure: &Failure, reason: Reason) -> Severity {
    use Reason::{ChoiceNeeded, Ended, NoJob, Starting, Suspended};
    match (failure, reason) {
        (Failure::MoveBackFailed(..), _) => Severity::Alert,
        (_, NoJob | Starting | Ended | Suspended | ChoiceNeeded) => Severity::Notice,
        _ => Severity::Error,
    }
}
