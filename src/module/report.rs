//! Writes what is shown and logged about a login.

use crate::context::LoginContext;
use crate::decide::{FailureDecision, Ruling};
use crate::error::Failure;
use crate::job::JoinResult;
use crate::log::decision_line;
use crate::namespaces::JobNamespaces;
use crate::text::{RefusalFacts, ReplyTexts, refusal_text, success_text};
use kernel::cgroup::Membership;
use kernel::log::{Line, Severity};
use protocol::{Decision, Phase, Placement, Plan, Reason, Request, is_within};

/// Maximum log lines besides the decision.
const DETAIL_LINES_MAX: usize = 16;

/// A ruling, and its texts for the user and the log.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The ruling, of which libpam's return code is made.
    pub ruling: Ruling,
    /// The code for the user, [`Reason::Admitted`] without a refusal; `None` if nothing is enforced on this
    /// node.
    pub reason: Option<Reason>,
    /// The text for a refused user, two lines of at most 80 ASCII characters and the site's own; under
    /// `observe`, and if an argument opens, the text that the user would read. `None` for an admitted login.
    pub refusal: Option<String>,
    /// The text for a login that has joined its job, one line of ASCII.
    pub welcome: Option<String>,
    /// The log lines in order: the decision, and then warnings and dropped devices, at most 20 together.
    pub lines: Vec<Line>,
    /// The full cause of a refusal, or of a login that is not judged, for the log; empty for an admitted login.
    pub cause: String,
    /// The job's namespaces, which the process that becomes the user has to join ([`crate::AuthLines`]).
    pub namespaces: Option<JobNamespaces>,
}

/// A login that has joined its job.
#[derive(Debug)]
pub(super) struct AdoptedLogin {
    pub(super) joined: JoinResult,
    /// The namespaces that the process that becomes the user has to join.
    pub(super) namespaces: Option<JobNamespaces>,
    /// The names of the variables that were set for the login.
    pub(super) variables: Vec<&'static str>,
    /// The names of those that another module had set.
    pub(super) foreign_variables: Vec<&'static str>,
    /// The errors of what no login is refused for: its attributes, and the directory for the user's choice of a job.
    pub(super) warnings: Vec<String>,
}

/// Makes the refusal of a login whose PAM line has a wrong argument. `why` is the error of
/// [`Settings::parse`](crate::Settings::parse).
pub fn misconfiguration_outcome(login: &Request, why: &str) -> Outcome {
    let reason = Some(Reason::Configuration);
    let line = decision_line(Severity::Error, Decision::Refuse, reason, login).with("error", why);
    let facts = RefusalFacts {
        login,
        refusal: &Failure::new(Reason::Configuration, why).to_refusal(None),
        reply: None,
        elapsed_ms: 0,
        is_upgrade: false,
    };
    let refusal = Some(refusal_text(&facts));
    // The default ruling is a refusal.
    Outcome {
        reason,
        refusal,
        lines: vec![line],
        ..Outcome::default()
    }
}

/// The facts from which the texts about one login are made.
pub(super) struct Report<'a> {
    pub(super) context: LoginContext<'a>,
    /// The texts of the last reply, if there was one.
    pub(super) reply: Option<&'a ReplyTexts>,
}

impl Report<'_> {
    /// Returns the outcome on a node that does not enforce.
    pub(super) fn not_enforced(&self, detail: &str) -> Outcome {
        let line = self.decision_line(Decision::Ignore, Severity::Info, Reason::Admitted);
        let line = self
            .with_elapsed(line)
            .with("knob", "enforce")
            .with("error", detail);
        Outcome {
            reason: None,
            cause: detail.to_owned(),
            ..self.new_outcome(Ruling::Ignore, Reason::Admitted, line, None)
        }
    }

    /// Returns the outcome of a login that could join its job, in `account` and under `observe`.
    pub(super) fn admission(&self, plan: &Plan, predicted: &JoinResult) -> Outcome {
        let is_observed = self.context.settings.observe;
        let ruling = if is_observed {
            Ruling::Ignore
        } else {
            Ruling::Admit
        };
        let decision = if is_observed {
            Decision::Observe
        } else {
            Decision::Admit
        };
        let would = if is_observed {
            Decision::Adopt.as_str()
        } else {
            ""
        };
        let line = self.decision_line(decision, Severity::Info, Reason::Admitted);
        let line = with_plan(line, plan, Some(predicted));
        let line = self.with_elapsed(line).with("would", would);
        let line = self.with_comparison(line, Some((plan, &predicted.cgroup)));
        self.new_outcome(ruling, Reason::Admitted, line, Some(plan))
    }

    /// Returns the outcome of a login that has joined its job.
    pub(super) fn adoption(&self, plan: &Plan, adopted: AdoptedLogin) -> Outcome {
        let joined = &adopted.joined;
        let line = self.decision_line(Decision::Adopt, Severity::Info, Reason::Admitted);
        let line = with_plan(line, plan, Some(joined)).with("env", adopted.variables.join(" "));
        let line = self.with_elapsed(line);
        let mut outcome = self.new_outcome(Ruling::Admit, Reason::Admitted, line, Some(plan));
        // 0 in a plan means that the number is not known, and the text then names none. Only a probe can tell that none
        // opens.
        let planned = (plan.gpus > 0).then_some(plan.gpus);
        let gpus = joined.probes.openable.or(planned);
        outcome.welcome = Some(success_text(plan, gpus, &self.context.login.node));
        let mut warnings = Vec::new();
        if !adopted.foreign_variables.is_empty() {
            let names = adopted.foreign_variables.join(" ");
            warnings.push(format!("set by another module: {names}"));
        }
        warnings.extend(joined.probes.error.iter().map(ToString::to_string));
        warnings.extend(adopted.warnings);
        for text in &warnings {
            outcome
                .lines
                .push(self.detail_line("warning", text, Some(plan)));
        }
        outcome.namespaces = adopted.namespaces;
        outcome
    }

    /// Returns the outcome of a failure. With a `plan`, the helper had admitted the login.
    pub(super) fn failure(
        &self,
        failure: &Failure,
        plan: Option<&Plan>,
        decision: &FailureDecision,
    ) -> Outcome {
        let refusal = failure.to_refusal(plan.map(|plan| &plan.job));
        let reason = refusal.reason;
        let line = self.decision_line(decision.word, decision.severity, reason);
        let line = match plan {
            Some(plan) => with_plan(line, plan, None),
            None => line.with("job", refusal.jobs.first().map_or("", |job| job.as_str())),
        };
        let line = self
            .with_elapsed(line)
            .with("knob", decision.knob.unwrap_or_default())
            .with("would", decision.would.map_or("", Decision::as_str));
        let line = self
            .with_comparison(line, None)
            .with("error", failure.cause());
        let facts = RefusalFacts {
            login: self.context.login,
            refusal: &refusal,
            reply: self.reply,
            elapsed_ms: self.context.budget.elapsed_ms(),
            is_upgrade: matches!(failure, Failure::OtherVersion(_)),
        };
        Outcome {
            cause: failure.cause(),
            refusal: Some(refusal_text(&facts)),
            ..self.new_outcome(decision.ruling, reason, line, plan)
        }
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
        let warnings = self.reply.iter().flat_map(|reply| &reply.warnings);
        let dropped = plan.iter().flat_map(|plan| &plan.dropped);
        let details: Vec<_> = warnings
            .map(|text| ("warning", text))
            .chain(dropped.map(|text| ("dropped", text)))
            .collect();
        let is_outside = ruling == Ruling::Ignore && self.context.login.phase == Phase::Session;
        // The decision is the first line, since the log may drop later ones.
        let mut lines = vec![if is_outside {
            decision.unfiltered()
        } else {
            decision
        }];
        for (key, text) in details.iter().take(DETAIL_LINES_MAX) {
            lines.push(self.detail_line(key, text, plan));
        }
        let left_out = details.len().saturating_sub(DETAIL_LINES_MAX);
        if left_out > 0 {
            lines.push(self.detail_line("warning", &format!("and {left_out} more"), plan));
        }
        Outcome {
            ruling,
            reason: Some(reason),
            lines,
            ..Outcome::default()
        }
    }

    /// The log line of a decision about this login.
    fn decision_line(&self, decision: Decision, severity: Severity, reason: Reason) -> Line {
        decision_line(severity, decision, Some(reason), self.context.login)
    }

    /// Returns a log line besides the decision.
    pub(super) fn detail_line(&self, key: &str, text: &str, plan: Option<&Plan>) -> Line {
        Line::new(Severity::Warning)
            .with("user", &self.context.login.user)
            .with("job", plan.map_or("", |plan| plan.job.as_str()))
            .with(key, text)
    }

    /// Adds the milliseconds since the start of the phase.
    fn with_elapsed(&self, line: Line) -> Line {
        line.with("ms", self.context.budget.elapsed_ms())
    }

    /// In an observed session, adds the cgroup in which another module has put the login, and
    /// whether that is in the job that this module would have chosen: `ours` is its plan and the login's cgroup there,
    /// and without one `agree` is `no`. Adds nothing if the cgroups cannot be read.
    fn with_comparison(&self, line: Line, ours: Option<(&Plan, &str)>) -> Line {
        let LoginContext {
            login, settings, ..
        } = self.context;
        if !settings.observe || login.phase != Phase::Session {
            return line;
        }
        let Ok(current) = Membership::read_own() else {
            return line;
        };
        let job = ours.map(|(plan, leaf)| match &plan.placement {
            // Slurm moves a login on, within the step.
            Placement::Extern { .. } => leaf.rsplit_once('/').map_or(leaf, |(parent, _)| parent),
            Placement::Cgroup { path, .. } | Placement::Unit { path, .. } => path.as_str(),
        });
        let mut paths = current
            .unified()
            .into_iter()
            .chain(current.v1_hierarchies().map(|(_, path)| path));
        let same = job.and_then(|job| paths.find(|path| is_within(path, job)));
        let theirs = same.or(current.unified()).unwrap_or_default();
        line.with("theirs", theirs)
            .with("agree", if same.is_some() { "yes" } else { "no" })
    }
}

/// Adds the facts of the job and of the login's cgroup to a line. The number of devices is the
/// length of the list, or, without a list, the number of devices that can be opened. `joined` is `None` for a login
/// that could not join: the cgroup is then the job's.
fn with_plan(line: Line, plan: &Plan, joined: Option<&JoinResult>) -> Line {
    let cgroup = joined.map_or(plan.placement.cgroup(), |joined| &joined.cgroup);
    let containment = joined.map_or("", |joined| joined.containment);
    let limits: Vec<_> = joined
        .iter()
        .flat_map(|joined| &joined.limits)
        .map(|(file, value)| format!("{file}={value}"))
        .collect();
    let listed = plan
        .containment
        .list()
        .map(|list| list.rules().len().to_string());
    let openable = joined.and_then(|joined| joined.probes.openable);
    let devices = listed
        .or(openable.map(|count| count.to_string()))
        .unwrap_or_default();
    line.with("job", &plan.job)
        .with("source", plan.placement.source().as_str())
        .with("rule", plan.rule.as_str())
        .with("cgroup", cgroup)
        .with("containment", containment)
        .with("devices", devices)
        .with("dropped", plan.dropped.len())
        .with("limits", limits.join(" "))
}
