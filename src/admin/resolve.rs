//! `resolve`: what a login would get, without doing it, and why.

use super::accounts::with_helper_rights;
use super::command_line::parse_service;
use super::{Conf, EXIT_FAILED, EXIT_FINDINGS, EXIT_FINE, Error, Output, accounts};
use crate::filters::attach_mode_name;
use clap::Args;
use helper::callerid::Flow;
use helper::{Evidence, Node};
use kernel::bpf::Level;
use kernel::cgroup::Dir;
use module::{
    Budget, Environment, Failure, Job, JoinResult, LeafJob, LoginContext, OFF_SWITCH_PATH,
    OwnerProof,
};
use module::{Settings, is_off, judge_login, node_name};
use nix::unistd::{Uid, User};
use protocol::{Phase, Reason, Reply, Request, Rule, Verdict};
use schedulers::stepd::Daemon;
use serde_json::json;
use std::cell::RefCell;

/// Show what a login would get, and why, without doing it
#[derive(Debug, Args)]
#[command(after_help = "\
Assumes the default arguments of the module. With --connection and several jobs it asks which job the
client runs in, as a login does.
Exit status: 0 admitted or not judged, 1 refused, 3 cannot tell.")]
pub(super) struct Options {
    /// Who logs in
    #[arg(long)]
    user: String,
    /// The PAM service
    #[arg(long, value_name = "NAME", default_value = "sshd", value_parser = parse_service)]
    service: String,
    /// SSH_CONNECTION of the login, in one word
    #[arg(long, value_name = "TEXT", value_parser = connection)]
    connection: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    conf: Conf,
}

fn connection(text: &str) -> Result<String, &'static str> {
    match Flow::parse_ssh_connection(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("takes CLIENT PORT SERVER PORT in one word, as in \"$SSH_CONNECTION\""),
    }
}

pub(super) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let conf = options.conf.path()?;
    let account = accounts::require_user(&options.user)?;
    let connection = options.connection.as_deref().unwrap_or_default();
    // As far as it is known before there is one.
    let login = Request {
        user: account.name,
        uid: account.uid.as_raw(),
        service: options.service.clone(),
        ssh_connection: connection.to_owned(),
        node: node_name(),
        ..Request::default()
    };
    let (finding, evidence) = found(&login, &conf.to_string_lossy());
    let (code, decision, reason, text) = finding.shown();
    if options.json {
        let line = |(key, value): &(String, String)| json!({ "key": key, "value": value });
        let evidence: Vec<_> = evidence.iter().map(line).collect();
        output.json(&json!({
            "schema": 1, "decision": decision, "code": reason, "text": text, "evidence": evidence,
        }))?;
        return Ok(code);
    }
    match &finding {
        Finding::Admitted => writeln!(output.out, "{}", Reason::Admitted)?,
        Finding::Ignored(why) => writeln!(output.out, "not judged: {why}")?,
        Finding::Refused(_, text) => writeln!(output.out, "{text}")?,
        Finding::Unsure => writeln!(output.out, "cannot tell: run this as root")?,
    }
    for (word, text) in &evidence {
        writeln!(output.out, "{word}: {text}")?;
    }
    Ok(code)
}

/// What says why, each with a word for what it is.
type Shown = Vec<(String, String)>;

fn found(login: &Request, conf: &str) -> (Finding, Shown) {
    if login.uid == 0 {
        return (Finding::Ignored("root is never judged".into()), Vec::new());
    }
    let (finding, mut evidence) = both_phases(login, conf);
    if !is_off() {
        return (finding, evidence);
    }
    evidence.push((
        "off".into(),
        format!("{OFF_SWITCH_PATH} is there: the module ignores every login"),
    ));
    (Finding::Ignored("switched off".into()), evidence)
}

/// What the module rules. What `session` would say counts where `account` would admit.
fn both_phases(login: &Request, conf: &str) -> (Finding, Shown) {
    let (finding, mut evidence) = ruling(login, conf);
    if !matches!(finding, Finding::Admitted) {
        return (finding, evidence);
    }
    let session = Request { phase: Phase::Session, ..login.clone() };
    let (finding, more) = ruling(&session, conf);
    if !matches!(finding, Finding::Admitted) {
        evidence.push(("phase".into(), "account admits, and session does not".into()));
        evidence.extend(more);
    }
    (finding, evidence)
}

/// The module's own ruling, with its default arguments, that only looks.
fn ruling(login: &Request, conf: &str) -> (Finding, Shown) {
    let settings = Settings { observe: true, conf: conf.to_owned(), ..Settings::default() };
    let budget = Budget::start(settings.timeout);
    let found = RefCell::new(Found::default());
    let ask = |request: &Request| found.borrow_mut().ask(request);
    let look = |job: &Job, foreseen: Option<&JoinResult>| {
        let mut found = found.borrow_mut();
        evidence(job).iter().for_each(|(word, text)| found.add(word, text));
        if let Some(foreseen) = foreseen {
            found.add("in force", foreseen.containment);
        }
    };
    let slurm_user = || User::from_name("slurm").ok().flatten().map(|user| user.uid.as_raw());
    // Nothing is given to a login that does not come.
    let environment = Environment { has: &|_| false, put: &|_| false };
    let outcome = judge_login(LoginContext {
        login,
        settings: &settings,
        ask_helper: &ask,
        carried_replies: &[],
        environment,
        find_slurm_user: &slurm_user,
        helper_group: None,
        observer: Some(&look),
        budget: &budget,
    });
    let mut found = found.into_inner();
    if let Some(cause) = found.nobody_to_ask.take() {
        found.add("cause", cause);
    } else if !found.unsure && !outcome.cause.is_empty() {
        // What the user may not see is no cause.
        found.add("cause", &outcome.cause);
    }
    if found.newest {
        found.add("note", "with action_unknown=deny the module refuses this login: JA05");
    }
    if found.among_answers {
        found.add("note", "what is silent may be another job of this user, and a newer one");
    }
    if found.unsure {
        found.add("stamp", "only root can see it, and the filters");
    }
    let finding = match (outcome.reason, outcome.refusal) {
        _ if found.unsure => Finding::Unsure,
        (None, _) => Finding::Ignored(outcome.cause),
        (Some(reason), Some(text)) => Finding::Refused(reason, text),
        (Some(_), None) => Finding::Admitted,
    };
    (finding, found.evidence)
}

/// What says whose the job is, which cgroup takes the login, and the filters that decide.
fn evidence(job: &Job) -> Vec<(&'static str, String)> {
    let daemon = |daemon: &Daemon| {
        ("daemon", format!("pid {}, uid {}, running", daemon.pid(), daemon.last_answer().uid))
    };
    let (proof, leaf, levels) = match job {
        Job::Leaf(cgroups) => {
            let proof = match &cgroups.proof {
                OwnerProof::Stamp(stamp) => ("stamp", stamp.to_string()),
                OwnerProof::Imp(imp) => {
                    ("imp", format!("pid {}, shell of uid {}", imp.pid, imp.user))
                }
            };
            let leaf = cgroups.child.as_ref().map(ToString::to_string);
            (proof, leaf.unwrap_or_else(|| "the job's own".into()), cgroups.place.levels())
        }
        Job::Slurm(asked, step) => (daemon(asked), step.leaf(), step.levels()),
        Job::SlurmV1(asked, step) => (daemon(asked), step.leaf(), Default::default()),
    };
    let mut evidence = vec![proof, ("leaf", leaf)];
    let below = if let Job::Leaf(cgroups) = job { child(cgroups) } else { None };
    for dir in levels.iter().chain(&below) {
        let text = match Level::read(dir) {
            Ok(level) => {
                let ids: Vec<String> = level.ids().iter().map(ToString::to_string).collect();
                format!("{}: {} {}", dir.path(), attach_mode_name(level.attached), ids.join(" "))
            }
            Err(error) => format!("{}: {error}", dir.path()),
        };
        evidence.push(("filters", text.trim_end().to_owned()));
    }
    evidence
}

/// The leaf, where that is a child and is there.
fn child(cgroups: &LeafJob) -> Option<Dir> {
    cgroups.place.dir().ok()?.child(cgroups.child.as_ref()?.as_str()).ok()
}

/// What was found on the way.
#[derive(Debug, Default)]
struct Found {
    evidence: Shown,
    /// Why the unprivileged half was not asked.
    nobody_to_ask: Option<String>,
    /// Whether one of several jobs was taken for being the newest.
    newest: bool,
    /// Whether something that may stand for another job did not answer.
    among_answers: bool,
    /// Whether only root can tell the rest.
    unsure: bool,
}

impl Found {
    fn add(&mut self, word: &str, text: impl ToString) {
        self.evidence.push((word.to_owned(), text.to_string()));
    }

    /// What the unprivileged half says, asked in this process with that half's rights.
    fn ask(&mut self, request: &Request) -> Result<Reply, Failure> {
        let mut evidence = Evidence::default();
        let reply = with_helper_rights(|| Node::here().answer(request, &mut evidence));
        evidence.lines().for_each(|(word, text)| self.add(word, text));
        let reply = reply.map_err(|cause| {
            self.nobody_to_ask = Some(cause.clone());
            Failure::new(Reason::Configuration, cause)
        })?;
        reply.warnings.iter().for_each(|text| self.add("warning", text));
        if let Verdict::Admit(plan) = &reply.verdict {
            self.newest = plan.rule == Rule::Newest;
            self.among_answers = plan.rule == Rule::Answered;
            self.unsure = !Uid::effective().is_root();
        }
        Ok(reply)
    }
}

/// What the login would get.
#[derive(Debug)]
enum Finding {
    Admitted,
    /// The module would leave it to others, for this reason.
    Ignored(String),
    /// The code, and the text that the user would read.
    Refused(Reason, String),
    /// Only root can see the rest.
    Unsure,
}

impl Finding {
    /// The exit status; and decision, code and text, as JSON has them.
    fn shown(&self) -> (u8, &'static str, Option<&'static str>, Option<&str>) {
        match self {
            Self::Admitted => (EXIT_FINE, "admit", Some(Reason::Admitted.as_str()), None),
            Self::Ignored(why) => (EXIT_FINE, "ignore", None, Some(why)),
            Self::Refused(why, text) => (EXIT_FINDINGS, "refuse", Some(why.as_str()), Some(text)),
            Self::Unsure => (EXIT_FAILED, "unknown", None, None),
        }
    }
}
