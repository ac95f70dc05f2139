//! `resolve`: predicts the result of a login, and shows the evidence, without changing anything.

use super::child_leaf::open_child_leaf;
use super::share::describe_share;
use clap::Args;
use command::accounts::{self, find_helper, with_helper_rights};
use command::error::Error;
use command::exit_status::{EXIT_FAILED, EXIT_FINDINGS, EXIT_FINE};
use command::options::{Conf, parse_service};
use command::output::Output;
use facts::filters::attach_mode_name;
use helper::callerid::Flow;
use helper::stack::{Group, read_entries};
use helper::{ExplainedReply, Node};
use kernel::bpf::CgroupPrograms;
use kernel::cgroup::{Dir, MADE_XATTR, has_mark};
use module::{
    Account, Budget, Environment, Failure, Job, JoinResult, LeafJob, LoginContext, OFF_SWITCH_PATH,
    OwnerProof, PredictedJoin, ask_helper,
};
use module::{
    Action, DEFAULT_SERVICE, Exemption, Scope, Settings, Unjudged, is_never_judged, is_off,
    misconfiguration_outcome, node_name, predict_login,
};
use nix::unistd::{Uid, User};
use protocol::{
    ChoiceRule, Decision, LimitKey, LimitValue, LoginLimits, Phase, Reason, Reply, Request, Verdict,
};
use schedulers::stepd::Daemon;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::Path;

/// Show what a login would get, and why, without doing it
#[derive(Debug, Args)]
#[command(after_help = "\
Uses the arguments of the service's lines in /etc/pam.d, and --conf in place of theirs. With --connection and several jobs it asks which job the
client runs in, as a login does.
Exit status: 0 admitted or not judged, 1 refused, 3 cannot tell.")]
pub struct Options {
    /// Who logs in
    #[arg(long)]
    user: String,
    /// The PAM service
    #[arg(long, value_name = "NAME", default_value = "sshd", value_parser = parse_service)]
    service: String,
    /// SSH_CONNECTION of the login, in one word
    #[arg(long, value_name = "TEXT", value_parser = parse_connection)]
    connection: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    conf: Conf,
}

fn parse_connection(text: &str) -> Result<String, &'static str> {
    match Flow::parse_ssh_connection(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("takes CLIENT PORT SERVER PORT in one word, as in \"$SSH_CONNECTION\""),
    }
}

/// Runs `resolve`: predicts what would become of a login of the user, and shows the evidence for it.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let account = accounts::require_user(&options.user)?;
    let connection = options.connection.as_deref().unwrap_or_default();
    // The other fields are unknown before the login.
    let login = Request {
        user: account.name.clone(),
        uid: account.uid.as_raw(),
        service: options.service.clone(),
        ssh_connection: connection.to_owned(),
        ..Request::default()
    };
    let conf = options.conf.option()?;
    let predictor = Predictor {
        account: &account,
        conf: conf.as_deref(),
    };
    let (prediction, evidence) = predictor.predict(&login)?;
    if options.json {
        output.json(&prediction.to_json(&evidence))?;
        return Ok(prediction.exit_status());
    }
    if evidence.iter().any(|(_, text)| text == UNAFFECTED) {
        writeln!(output.out, "{UNAFFECTED}. An account line alone would say:")?;
    }
    match &prediction {
        Prediction::Admitted => writeln!(output.out, "{}", Reason::Admitted)?,
        Prediction::Ignored(why) => writeln!(output.out, "not judged: {why}")?,
        Prediction::Refused(_, refusal) => writeln!(output.out, "{refusal}")?,
        Prediction::Unknown => writeln!(output.out, "cannot tell: run this as root")?,
    }
    for (key, value) in &evidence {
        writeln!(output.out, "{key}: {value}")?;
    }
    Ok(prediction.exit_status())
}

/// Lines of evidence, each with its key.
type EvidenceLines = Vec<(String, String)>;

/// The facts of a prediction that both phases share.
struct Predictor<'a> {
    account: &'a User,
    /// The configuration that replaces the one of the PAM lines.
    conf: Option<&'a Path>,
}

impl Predictor<'_> {
    /// Predicts the result of a login, also for root and while the module is switched off.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the groups of the user cannot be looked up.
    fn predict(&self, login: &Request) -> Result<(Prediction, EvidenceLines), Error> {
        if is_never_judged(login.uid) {
            return Ok((
                Prediction::Ignored(describe_unjudged(&Unjudged::Root, login)),
                Vec::new(),
            ));
        }
        let (prediction, mut evidence) = self.judge_phases(login)?;
        if !is_off() {
            return Ok((prediction, evidence));
        }
        evidence.push((
            "off".into(),
            format!("{OFF_SWITCH_PATH} is there: the module ignores every login"),
        ));
        let why = describe_unjudged(&Unjudged::Off, login);
        Ok((Prediction::Ignored(why), evidence))
    }

    /// Judges `account` and then `session`, which decides where the login ends; returns the prediction of `session`,
    /// with the evidence of both if these differ. If `account` would refuse, or only root can tell, that is the result.
    fn judge_phases(&self, login: &Request) -> Result<(Prediction, EvidenceLines), Error> {
        let account = PamLine::find(&login.service, Group::Account);
        let session = PamLine::find(&login.service, Group::Session);
        let (admission, mut evidence) = self.judge_phase(login, &account)?;
        evidence.splice(0..0, describe_lines(&account, &session));
        if !matches!(admission, Prediction::Admitted | Prediction::Ignored(_)) {
            return Ok((admission, evidence));
        }
        let login = Request {
            phase: Phase::Session,
            ..login.clone()
        };
        let (prediction, more) = self.judge_phase(&login, &session)?;
        let note = match (&admission, &prediction) {
            // The evidence of both phases is the same.
            (Prediction::Admitted, Prediction::Admitted)
            | (Prediction::Ignored(_), Prediction::Ignored(_)) => {
                return Ok((prediction, evidence));
            }
            (Prediction::Admitted, _) => "account admits, and session does not",
            _ => "account ignores the login, and session judges it",
        };
        evidence.push(("phase".into(), note.into()));
        evidence.extend(more);
        Ok((prediction, evidence))
    }

    /// Judges one phase as the module does with the arguments of its line, without changing
    /// anything. It fails with [`Error::Failed`] if the groups of the user cannot be looked up.
    fn judge_phase(
        &self,
        login: &Request,
        line: &PamLine,
    ) -> Result<(Prediction, EvidenceLines), Error> {
        let is_in_group = |group: &str| accounts::is_in_group(self.account, group);
        let (mut settings, exemption) = match Scope::of_line(login, &line.arguments, is_in_group)? {
            Scope::Judged {
                settings,
                exemption,
            } => (*settings, exemption),
            Scope::Ignored { cause, .. } => {
                let why = describe_unjudged(&cause, login);
                return Ok((Prediction::Ignored(why), Vec::new()));
            }
            Scope::Refused { fault, .. } => {
                let outcome = misconfiguration_outcome(login, &fault);
                let text = outcome.refusal.unwrap_or_default();
                let evidence = vec![("cause".to_owned(), fault)];
                return Ok((Prediction::Refused(Reason::Configuration, text), evidence));
            }
            // The uid that no account has.
            Scope::NoAccount => return Ok((Prediction::Unknown, Vec::new())),
        };
        if let Some(conf) = self.conf {
            settings.conf = conf.to_string_lossy().into_owned();
        }
        let login = Request {
            node: settings.node.clone().unwrap_or_else(node_name),
            ..login.clone()
        };
        // Under `observe` the module changes nothing. `with_arguments` then applies the line's own arguments.
        let (prediction, evidence) = judge_in_dry_run(
            &login,
            &Settings {
                observe: true,
                ..settings.clone()
            },
        );
        let exemption = exemption.as_ref().map(Exemption::argument);
        Ok((prediction.with_arguments(&settings, exemption), evidence))
    }
}

/// Describes why the login is not judged.
fn describe_unjudged(cause: &Unjudged, login: &Request) -> String {
    match cause {
        Unjudged::Root => "root is never judged".into(),
        Unjudged::Off => "switched off".into(),
        Unjudged::OtherService(named) => {
            let name = named.as_deref().unwrap_or(DEFAULT_SERVICE);
            format!("the line is for the service {name}")
        }
        Unjudged::CloseOnly => "the line does nothing (close_only)".into(),
        Unjudged::Exempt(exemption) => format!(
            "{} lets {} in, outside of jobs",
            exemption.argument(),
            login.user
        ),
    }
}

/// The line of this module that libpam runs for one phase.
pub(super) struct PamLine {
    /// The line's file and number; `None` without a line, when the default arguments hold.
    pub(super) place: Option<String>,
    pub(super) arguments: Vec<String>,
}

impl PamLine {
    /// Finds the first line of our module for the service, other than one that does nothing. Without such a
    /// line, and if the stack cannot be read, the default arguments hold.
    pub(super) fn find(service: &str, group: Group) -> Self {
        let entries = read_entries(Path::new("/"), service, group).unwrap_or_default();
        let mut lines = entries.iter().filter(|entry| entry.is_for_service());
        match lines.find(|entry| !entry.is_close_only()) {
            Some(entry) => Self {
                place: Some(entry.place.to_string()),
                arguments: entry.arguments.clone(),
            },
            // The default service is sshd.
            None => Self {
                place: None,
                arguments: vec![format!("service={service}")],
            },
        }
    }

    /// Describes where the line is, and its arguments.
    fn describe(&self) -> String {
        match &self.place {
            Some(place) => format!("{place}: {}", self.arguments.join(" "))
                .trim_end()
                .to_owned(),
            None => "no line of pam_job_adopt.so: default arguments".into(),
        }
    }
}

/// The note about a service whose stack does not call us.
const UNAFFECTED: &str = "logins are not affected: no line of this service names pam_job_adopt.so";

/// Describes the lines whose arguments hold, and notes a difference, or that there are none.
fn describe_lines(account: &PamLine, session: &PamLine) -> EvidenceLines {
    let mut lines = vec![
        ("account line".to_owned(), account.describe()),
        ("session line".to_owned(), session.describe()),
    ];
    if account.place.is_none() && session.place.is_none() {
        lines.push(("note".to_owned(), UNAFFECTED.to_owned()));
    }
    if account.place.is_some() && session.place.is_some() && account.arguments != session.arguments
    {
        let note = "account and session line have different arguments";
        lines.push(("note".to_owned(), note.to_owned()));
    }
    lines
}

/// Judges one phase by these settings, which have `observe`, so that nothing is changed. The prediction is what the
/// module would do without `observe`, exemptions and actions: [`Prediction::with_arguments`] adds these.
fn judge_in_dry_run(login: &Request, settings: &Settings) -> (Prediction, EvidenceLines) {
    let trace = RefCell::new(Trace {
        helper_failure: try_helper(login, settings).err(),
        ..Trace::default()
    });
    let budget = Budget::start(settings.timeout);
    // What only a login in sshd has is left empty, and `with_arguments` adds the exemption.
    let (outcome, predicted_join) = predict_login(LoginContext {
        login,
        settings,
        ask_helper: &|request| trace.borrow_mut().query_helper(request),
        carried_replies: &[],
        // There is no login whose environment could be set.
        environment: Environment {
            has: &|_| false,
            put: &|_| false,
        },
        find_slurm_user: &find_slurm_user,
        helper_group: None,
        exemption: None,
        ran_auth_lines: false,
        budget: &budget,
    });
    let mut trace = trace.into_inner();
    if let Some(PredictedJoin { job, joined }) = predicted_join {
        for (key, text) in &collect_evidence(&job) {
            trace.add(key, text);
        }
        for (key, text) in &describe_share(&job, joined.as_ref(), login.uid) {
            trace.add(key, text);
        }
        if let Some(joined) = joined {
            trace.replace("containment", joined.containment);
            trace.add("in force", joined.containment);
            for (key, text) in &describe_limits(&trace.limits, &job, &joined) {
                trace.add(key, text);
            }
        }
    }
    if let Some(cause) = trace.query_failure.take() {
        trace.add("cause", cause);
    } else if !trace.needs_root && !outcome.cause.is_empty() {
        // Without root's rights the cause would only be that this process cannot read something.
        trace.add("cause", &outcome.cause);
    }
    if trace.is_newest {
        trace.add(
            "note",
            "with action_unknown=deny the module refuses this login: JA05",
        );
    }
    if trace.is_among_answers {
        trace.add(
            "note",
            "what is silent may be another job of this user, and a newer one",
        );
    }
    if trace.needs_root {
        trace.add("stamp", "only root can see it, and the filters");
    }
    if trace.needs_root {
        return (Prediction::Unknown, trace.evidence);
    }
    let prediction = match (outcome.reason, outcome.refusal) {
        // Nothing is enforced on this node.
        (None, _) => Prediction::Ignored(outcome.cause),
        (Some(reason), Some(text)) => Prediction::Refused(reason, text),
        (Some(_), None) => Prediction::Admitted,
    };
    (prediction, trace.evidence)
}

/// Runs the helper as the module does, which shows whether logins get a reply at all. The reply itself is not used, since
/// it has no evidence; the helper is left no time to wait for a daemon. Only root can run it so: for others nothing is
/// tried.
///
/// # Errors
///
/// As [`ask_helper`].
fn try_helper(login: &Request, settings: &Settings) -> Result<(), Failure> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let account = find_helper().ok().map(|user| Account {
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
    });
    let request = Request {
        conf: settings.conf.clone(),
        ssh_connection: String::new(),
        budget_ms: 1,
        wait_ms: 0,
        ..login.clone()
    };
    let budget = Budget::start(settings.timeout);
    ask_helper(&settings.helper, account, &request, &budget).map(drop)
}

fn find_slurm_user() -> Option<u32> {
    User::from_name("slurm")
        .ok()
        .flatten()
        .map(|user| user.uid.as_raw())
}

/// Collects the proof of the job's owner, the cgroup that takes the login, and the filters that decide.
fn collect_evidence(job: &Job) -> Vec<(&'static str, String)> {
    match job {
        Job::Leaf(cgroups) => {
            let proof = match &cgroups.proof {
                OwnerProof::Stamp(stamp) => ("stamp", stamp.to_string()),
                OwnerProof::Imp(imp) => {
                    ("imp", format!("pid {}, shell of uid {}", imp.pid, imp.user))
                }
            };
            let leaf = match &cgroups.child {
                Some(name) => name.to_string(),
                None => "the job's own".to_owned(),
            };
            let mut evidence = vec![proof, ("leaf", leaf)];
            let below = open_child_leaf(cgroups);
            evidence.extend(
                cgroups
                    .place
                    .levels()
                    .iter()
                    .chain(&below)
                    .map(describe_filters),
            );
            evidence
        }
        Job::Slurm(daemon, step) => {
            let mut evidence = vec![describe_daemon(daemon), ("leaf", step.leaf())];
            evidence.extend(step.levels().iter().map(describe_filters));
            evidence
        }
        // On cgroup v1 a controller decides about devices, not filters.
        Job::SlurmV1(daemon, step) => vec![describe_daemon(daemon), ("leaf", step.leaf())],
    }
}

/// Builds the line of evidence about a job's step daemon: its process, and the owner of the job as it last
/// answered.
fn describe_daemon(daemon: &Daemon) -> (&'static str, String) {
    (
        "daemon",
        format!(
            "pid {}, uid {}, running",
            daemon.pid(),
            daemon.last_answer().uid
        ),
    )
}

/// Builds the line of evidence about a level of a job's cgroup: how filters are attached there and their
/// numbers, or why they cannot be read.
fn describe_filters(dir: &Dir) -> (&'static str, String) {
    let text = match CgroupPrograms::read(dir) {
        Ok(level) => {
            let ids: Vec<String> = level.ids().iter().map(ToString::to_string).collect();
            format!(
                "{}: {} {}",
                dir.path(),
                attach_mode_name(level.mode),
                ids.join(" ")
            )
        }
        Err(error) => format!("{}: {error}", dir.path()),
    };
    ("filters", text.trim_end().to_owned())
}

/// Describes each limit of the configuration: its value at the leaf, or why it does not apply.
fn describe_limits(
    limits: &LoginLimits,
    job: &Job,
    predicted: &JoinResult,
) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for limit in limits.list_keys() {
        let applied = predicted
            .limits
            .iter()
            .find(|(file, _)| *file == limit.file);
        let text = match applied {
            Some((file, value)) => format!("{file} {value}"),
            // `login_io_weight` has its line by `io.weight` already. This second file exists only with the disk
            // scheduler BFQ.
            None if limit.file == LoginLimits::BFQ_FILE => continue,
            None => format!("does not apply: {}", find_limit_obstacle(limit, job)),
        };
        lines.push((limit.key, text));
    }
    lines
}

/// Finds the reason why a limit, which does not apply to the logins of a job, does not.
fn find_limit_obstacle(limit: LimitKey, job: &Job) -> &'static str {
    let above = match job {
        Job::SlurmV1(..) => return "Slurm is on cgroup v1",
        Job::Slurm(..) if matches!(limit.value, LimitValue::Weight(_)) => {
            return "it would count among logins only, not beside the job's steps";
        }
        Job::Leaf(cgroups) if cgroups.child.is_none() => {
            return "logins go into the job's own cgroup";
        }
        Job::Leaf(cgroups) if has_foreign_leaf(cgroups) => {
            return "the cgroup of the logins is not one that this program has made";
        }
        Job::Leaf(cgroups) => cgroups.place.levels().first(),
        Job::Slurm(_, step) => step.above_leaf().first(),
    };
    let is_enabled =
        above.is_some_and(|dir| dir.enables_controller(limit.controller).unwrap_or(false));
    // With its controller only a percentage and the weights of disks can fail to apply.
    if !is_enabled {
        "the cgroup above has not enabled the controller for it"
    } else if limit.controller == "memory" {
        "the job's memory has no limit to take a percentage of"
    } else {
        "the kernel has no weights for disks (CONFIG_BLK_CGROUP_IOCOST)"
    }
}

/// Whether the leaf exists and has not this project's mark, so that another program has made it.
fn has_foreign_leaf(cgroups: &LeafJob) -> bool {
    open_child_leaf(cgroups).is_some_and(|leaf| !has_mark(&leaf, MADE_XATTR).unwrap_or(true))
}

/// What a dry run has seen.
#[derive(Debug, Default)]
struct Trace {
    evidence: EvidenceLines,
    /// The failure of the helper that a login starts.
    helper_failure: Option<Failure>,
    /// The cause why the helper's part could not run.
    query_failure: Option<String>,
    /// True if the newest of several jobs was taken.
    is_newest: bool,
    /// True if a source that may have another job did not answer.
    is_among_answers: bool,
    /// True if the helper admits the login, and only root can check that against the job.
    needs_root: bool,
    /// The limits for the job's logins.
    limits: LoginLimits,
}

impl Trace {
    fn add(&mut self, key: &str, text: impl ToString) {
        self.evidence.push((key.to_owned(), text.to_string()));
    }

    /// Replaces the text of a key that the evidence has. The helper's text says what the record asks for, and
    /// more may hold.
    fn replace(&mut self, key: &str, text: &str) {
        for (known, old) in &mut self.evidence {
            if known == key {
                text.clone_into(old);
            }
        }
    }

    /// Runs the helper's part in this process, with the helper's rights, in place of the helper that a login starts.
    /// Notes its evidence and what the report needs of its plan.
    /// Fails if the helper itself gives no reply.
    fn query_helper(&mut self, request: &Request) -> Result<Reply, Failure> {
        if let Some(failure) = self.helper_failure.take() {
            return Err(failure);
        }
        let explained = with_helper_rights(|| Node::host().answer(request));
        let ExplainedReply { reply, evidence } = explained.map_err(|error| {
            let cause = error.to_string();
            self.query_failure = Some(cause.clone());
            Failure::new(Reason::Configuration, cause)
        })?;
        for (key, text) in evidence.lines() {
            self.add(key, text);
        }
        for text in &reply.warnings {
            self.add("warning", text);
        }
        if let Verdict::Admit(plan) = &reply.verdict {
            self.is_newest = plan.rule == ChoiceRule::Newest;
            self.is_among_answers = plan.rule == ChoiceRule::Answered;
            self.needs_root = !Uid::effective().is_root();
            self.limits = plan.limits;
        }
        Ok(reply)
    }
}

/// The predicted result of a login.
#[derive(Debug)]
enum Prediction {
    Admitted,
    /// The module would ignore the login, for this reason.
    Ignored(String),
    /// The code, and the text for the user.
    Refused(Reason, String),
    /// Only root can read the rest.
    Unknown,
}

impl Prediction {
    /// Changes the prediction of a dry run by the line's arguments that let a login in outside of jobs: `observe`,
    /// the argument `exemption` that exempts the user, if any, and the action for the reason of a refusal.
    fn with_arguments(self, settings: &Settings, exemption: Option<&str>) -> Self {
        let reason = match &self {
            Self::Admitted => Reason::Admitted,
            Self::Refused(reason, _) => *reason,
            Self::Ignored(_) | Self::Unknown => return self,
        };
        let code = reason.as_str();
        if settings.observe {
            return Self::Ignored(format!("the line only observes; without observe: {code}"));
        }
        if matches!(self, Self::Admitted) {
            return self;
        }
        let opening_argument = exemption.or_else(|| match settings.action(reason) {
            (Action::Deny, _) => None,
            (_, argument) => Some(argument),
        });
        match opening_argument {
            Some(argument) => Self::Ignored(format!(
                "{code}, but {argument} lets the login in, outside of jobs"
            )),
            None => self,
        }
    }

    fn exit_status(&self) -> u8 {
        match self {
            Self::Admitted | Self::Ignored(_) => EXIT_FINE,
            Self::Refused(..) => EXIT_FINDINGS,
            Self::Unknown => EXIT_FAILED,
        }
    }

    /// What the module would log; `None` if only root can tell.
    fn decision(&self) -> Option<Decision> {
        match self {
            Self::Admitted => Some(Decision::Admit),
            Self::Ignored(_) => Some(Decision::Ignore),
            Self::Refused(..) => Some(Decision::Refuse),
            Self::Unknown => None,
        }
    }

    /// Shows the prediction and its evidence as JSON. `code` and `text` are null if the prediction has none;
    /// the decision is `unknown` if only root can tell.
    fn to_json(&self, evidence: &EvidenceLines) -> Value {
        let code = match self {
            Self::Admitted => Some(Reason::Admitted.as_str()),
            Self::Refused(reason, _) => Some(reason.as_str()),
            Self::Ignored(_) | Self::Unknown => None,
        };
        let text = match self {
            Self::Ignored(text) | Self::Refused(_, text) => Some(text),
            Self::Admitted | Self::Unknown => None,
        };
        let mut lines = Vec::new();
        for (key, value) in evidence {
            lines.push(json!({ "key": key, "value": value }));
        }
        json!({
            "schema": 1,
            "decision": self.decision().map_or("unknown", Decision::as_str),
            "code": code,
            "text": text,
            "evidence": lines,
        })
    }
}
