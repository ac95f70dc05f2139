//! `resolve`: what a login would get, without doing it, and why.

use super::as_helper::as_helper;
use super::command_line::service;
use super::{Conf, EXIT_FAILED, EXIT_FINDINGS, EXIT_FINE, Error, Output, people};
use crate::callerid::Flow;
use crate::plan::{Phase, Plan, Reason, Refusal, Reply, Request, Rule, Several, Stack, Verdict};
use crate::resolve::{Evidence, Node};
use crate::session::{
    Budget, Failure, Login, Settings, Target, Visit, Words, node_name, policy, refusal_text,
};
use crate::switch;
use crate::sys::clock;
use clap::Args;
use nix::unistd::{Uid, User};
use serde::Serialize;

/// Show what a login would get, and why, without doing it
#[derive(Debug, Args)]
#[command(after_help = "\
Of several jobs, the one that the client of --connection runs in is asked for as at a login.
The module's own arguments are taken to be the defaults.
Exit status: 0 admitted or not judged, 1 refused, 3 cannot tell.")]
pub(super) struct Options {
    /// Who logs in
    #[arg(long)]
    user: String,
    /// The PAM service
    #[arg(long, value_name = "NAME", default_value = "sshd", value_parser = service)]
    service: String,
    /// The connection, as SSH_CONNECTION has it, in one word
    #[arg(long, value_name = "TEXT", value_parser = connection)]
    connection: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    conf: Conf,
}

fn connection(text: &str) -> Result<String, &'static str> {
    match Flow::of_ssh(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("takes CLIENT PORT SERVER PORT in one word, as in \"$SSH_CONNECTION\""),
    }
}

pub(super) fn command(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let conf = options.conf.path()?;
    let account = people::account(&options.user)?;
    let connection = options.connection.as_deref().unwrap_or_default();
    let login = login(account, &options.service, connection);
    let case = Case::of(&login, &conf.to_string_lossy());
    match options.json {
        true => case.write_json(output)?,
        false => case.write_text(output)?,
    }
    Ok(case.finding.code())
}

/// A login, as far as it is known before there is one.
fn login(account: User, service: &str, connection: &str) -> Login {
    Login {
        phase: Phase::Account,
        user: account.name,
        uid: account.uid.as_raw(),
        service: service.to_owned(),
        rhost: String::new(),
        ssh_connection: connection.to_owned(),
        node: node_name(),
    }
}

#[derive(Debug)]
struct Case {
    finding: Finding,
    evidence: Vec<(String, String)>,
}

impl Case {
    fn of(login: &Login, conf: &str) -> Self {
        let mut case = Self { finding: Finding::Admitted, evidence: Vec::new() };
        if login.uid == 0 {
            case.finding = Finding::Ignored("root is never judged".into());
            return case;
        }
        let reply = case.ask(&request(login, conf));
        let reply = reply.and_then(|reply| case.settle(reply, login, conf));
        case.finding = match reply {
            Ok(reply) => case.judge(&reply, login),
            Err(cause) => case.without_helper(&cause, login),
        };
        if switch::is_off() {
            case.add("off", format!("{} is there: the module ignores every login", switch::OFF));
            case.finding = Finding::Ignored("switched off".into());
        }
        case
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, String> {
        let mut evidence = Evidence::default();
        let reply = as_helper(|| Node::here().answer(request, &mut evidence));
        self.evidence.clear();
        self.evidence.extend(evidence.lines().map(|(word, text)| (word.into(), text.into())));
        reply
    }

    /// Asks once more where the module would, with the text of a unit's file.
    fn settle(&mut self, reply: Reply, login: &Login, conf: &str) -> Result<Reply, String> {
        let Verdict::Admit(plan) = &reply.verdict else { return Ok(reply) };
        let unit = match Uid::effective().is_root() {
            true => visiting(plan, login, policy),
            false => Ok(None),
        };
        match unit {
            Ok(Some(unit)) => self.ask(&Request { unit, ..request(login, conf) }),
            Ok(None) => Ok(reply),
            Err(failure) => {
                self.add("policy", failure);
                Ok(reply)
            }
        }
    }

    fn judge(&mut self, reply: &Reply, login: &Login) -> Finding {
        let refuse = |reason, refusal: Option<&Refusal>| {
            Finding::Refused(reason, text(reason, refusal, reply, login))
        };
        if !reply.detail.is_empty() {
            self.add("cause", &reply.detail);
        }
        for warning in &reply.warnings {
            self.add("warning", warning);
        }
        if matches!(&reply.verdict, Verdict::Admit(plan) if plan.rule == Rule::Newest) {
            self.add("note", "with action_unknown=deny the module refuses this login: JA05");
        }
        match &reply.verdict {
            Verdict::NotEnforced => Finding::Ignored(reply.detail.clone()),
            // A configuration that is broken says nothing about the stack.
            _ if reply.stack == Stack::Missing => refuse(Reason::Configuration, None),
            Verdict::Refuse(refusal) => refuse(refusal.reason, Some(refusal)),
            Verdict::Admit(_) if !Uid::effective().is_root() => {
                self.add("stamp", "only root can see it, and the filters");
                Finding::Unsure
            }
            Verdict::Admit(plan) => match self.look(plan, login) {
                Ok(()) => Finding::Admitted,
                Err(failure) => {
                    self.add("cause", &failure);
                    let reason = failure.reason();
                    let jobs = vec![plan.job.clone()];
                    let refusal = Refusal { reason, jobs, ended: None, device: String::new() };
                    refuse(reason, Some(&refusal))
                }
            },
        }
    }

    /// The module refuses where it has nobody to ask.
    fn without_helper(&mut self, cause: &str, login: &Login) -> Finding {
        self.add("cause", cause);
        let reason = Reason::Configuration;
        Finding::Refused(reason, refusal_text(reason, &words(login)))
    }

    /// The checks that the module itself makes before it moves a login.
    fn look(&mut self, plan: &Plan, login: &Login) -> Result<(), Failure> {
        let foreseen = visiting(plan, login, |visit| {
            let target = Target::open(visit)?;
            let (word, proof) = target.proof();
            self.add(word, proof);
            self.add("leaf", target.leaf());
            for (path, level) in target.filters()? {
                let how = level.attached.as_str();
                let ids: Vec<String> = level.ids().iter().map(ToString::to_string).collect();
                self.add("filters", format!("{path}: {how} {}", ids.join(" ")).trim_end());
            }
            target.foresee(visit)
        })?;
        self.add("in force", foreseen.containment);
        Ok(())
    }

    fn add(&mut self, word: &str, text: impl ToString) {
        self.evidence.push((word.to_owned(), text.to_string()));
    }
}

/// Does what the module does with a plan, by its default arguments.
fn visiting<T>(plan: &Plan, login: &Login, what: impl FnOnce(&Visit<'_>) -> T) -> T {
    let Settings { timeout, helper, .. } = Settings::default();
    let (helper, budget) = (helper.as_str(), &Budget::start(timeout));
    let slurm_user = || User::from_name("slurm").ok().flatten().map(|user| user.uid.as_raw());
    let slurm_user = &slurm_user;
    what(&Visit { login, plan, require_devices: false, slurm_user, helper, budget })
}

/// The module's question, with its own defaults.
fn request(login: &Login, conf: &str) -> Request {
    let timeout = Settings::default().timeout.as_millis();
    Request {
        phase: login.phase,
        user: login.user.clone(),
        uid: login.uid,
        service: login.service.clone(),
        node: login.node.clone(),
        rhost: String::new(),
        ssh_connection: login.ssh_connection.clone(),
        conf: conf.to_owned(),
        several: Several::default(),
        budget_ms: u32::try_from(timeout).unwrap_or(u32::MAX),
        wait_ms: 0,
        unit: String::new(),
    }
}

/// What the user would read.
fn text(reason: Reason, refusal: Option<&Refusal>, reply: &Reply, login: &Login) -> String {
    let words = Words {
        jobs: refusal.map(|refusal| refusal.jobs.clone()).unwrap_or_default(),
        ended: refusal.and_then(|refusal| refusal.ended),
        device: refusal.map(|refusal| refusal.device.clone()).unwrap_or_default(),
        hint: reply.hint.clone(),
        message: reply.message.clone(),
        ..words(login)
    };
    refusal_text(reason, &words)
}

/// What every text begins with.
fn words(login: &Login) -> Words {
    Words {
        node: login.node.clone(),
        user: login.user.clone(),
        jobs: Vec::new(),
        ended: None,
        device: String::new(),
        hint: String::new(),
        message: String::new(),
        waited: Settings::default().timeout.as_millis(),
        now: clock::now(),
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
    fn code(&self) -> u8 {
        match self {
            Self::Admitted | Self::Ignored(_) => EXIT_FINE,
            Self::Refused(..) => EXIT_FINDINGS,
            Self::Unsure => EXIT_FAILED,
        }
    }

    fn decision(&self) -> &'static str {
        match self {
            Self::Admitted => "admit",
            Self::Ignored(_) => "ignore",
            Self::Refused(..) => "refuse",
            Self::Unsure => "unknown",
        }
    }
}

impl Case {
    fn write_text(&self, output: &mut Output<'_>) -> Result<(), Error> {
        match &self.finding {
            Finding::Admitted => writeln!(output.out, "{}", Reason::Admitted)?,
            Finding::Ignored(why) => writeln!(output.out, "not judged: {why}")?,
            Finding::Refused(_, text) => writeln!(output.out, "{text}")?,
            Finding::Unsure => writeln!(output.out, "cannot tell: run this as root")?,
        }
        for (word, text) in &self.evidence {
            writeln!(output.out, "{word}: {text}")?;
        }
        Ok(())
    }

    fn write_json(&self, output: &mut Output<'_>) -> Result<(), Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            schema: u32,
            decision: &'static str,
            code: Option<&'static str>,
            text: Option<&'a str>,
            evidence: Vec<Line<'a>>,
        }
        #[derive(Serialize)]
        struct Line<'a> {
            key: &'a str,
            value: &'a str,
        }
        let (code, text) = match &self.finding {
            Finding::Admitted => (Some(Reason::Admitted.code()), None),
            Finding::Refused(reason, text) => (Some(reason.code()), Some(text.as_str())),
            Finding::Ignored(why) => (None, Some(why.as_str())),
            Finding::Unsure => (None, None),
        };
        let evidence = self.evidence.iter().map(|(key, value)| Line { key, value }).collect();
        let decision = self.finding.decision();
        let shown = serde_json::to_string(&Shown { schema: 1, decision, code, text, evidence });
        writeln!(output.out, "{}", shown.map_err(std::io::Error::from)?)?;
        Ok(())
    }
}
