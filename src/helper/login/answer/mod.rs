//! Answers a request: queries the sources, chooses one job, and plans its devices.
//!
//! The answer only names a job and its devices, or a reason for a refusal. The privileged half checks
//! both.

mod decision;
mod limits;
mod stdin;
mod wait;

use super::evidence::Evidence;
use super::node::Node;
use super::refusal::refusal;
use crate::config::{Config, ConfigError};
use crate::stack::{Group, StackFinding, judge_stack, judge_stacks_of_login};
use limits::{read_message, shorten_to_limits};
use protocol::{Phase, Reason, Reply, Request, SessionLine, Verdict};
use std::path::Path;

pub use stdin::main;

/// A reply, and what led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedReply {
    /// The reply, within the limits of the protocol.
    pub reply: Reply,
    /// The facts that led to the reply, in their order.
    pub evidence: Evidence,
}

/// Answers a request on this node.
pub fn answer(request: &Request) -> Reply {
    Node::host().answer(request).reply
}

impl Node {
    /// Answers a request, within the limits of the protocol. A configuration that cannot be used is a refusal.
    pub fn answer(&self, request: &Request) -> ExplainedReply {
        let mut evidence = Evidence::of_line("config", &request.conf);
        let path = Path::new(&request.conf);
        let reply = match Config::read(path, &self.trust) {
            Ok(config) => {
                let explained = self.answer_by_config(request, &config);
                evidence.extend(explained.evidence);
                explained.reply
            }
            Err(error) => self.refuse_config(path, &error),
        };
        ExplainedReply {
            reply: shorten_to_limits(reply),
            evidence,
        }
    }

    /// Refuses because of a configuration that cannot be used; the site's message may still be read.
    fn refuse_config(&self, path: &Path, error: &ConfigError) -> Reply {
        let verdict = Verdict::Refuse(refusal(Reason::Configuration));
        let mut reply = plain_reply(verdict, error.to_string());
        if let Some(message_file) = Config::read_message_file(path, &self.trust) {
            reply.message = read_message(&message_file, &self.trust).unwrap_or_default();
        }
        reply
    }

    /// Answers with the verdict, the state of the service's stack, and the site's texts; without asking anybody if the
    /// configuration enforces nothing on this node.
    fn answer_by_config(&self, request: &Request, config: &Config) -> ExplainedReply {
        if let Some(path) = config.missing_enforce_path() {
            let detail = format!("{} does not exist", path.display());
            let evidence = Evidence::of_line("enforce", &detail);
            return ExplainedReply {
                reply: plain_reply(Verdict::NotEnforced, detail),
                evidence,
            };
        }
        let ExplainedReply {
            mut reply,
            mut evidence,
        } = self.decide(request, config);
        self.judge_lines(request, &mut reply, &mut evidence);
        self.add_site_texts(config, &mut reply);
        ExplainedReply { reply, evidence }
    }

    /// Judges our lines in the stack of the service: the session line, and the auth lines that a job with private files
    /// needs. Without an effective session line the cause begins with that, since the module refuses for it whatever the
    /// verdict is.
    fn judge_lines(&self, request: &Request, reply: &mut Reply, evidence: &mut Evidence) {
        // In the session phase our session line need not be looked for: it runs.
        let auth = if request.phase == Phase::Account {
            let [session, auth] = judge_stacks_of_login(&self.root, &request.service);
            reply.stack = session.session_line();
            evidence.add("stack", &session);
            if reply.stack == SessionLine::Missing {
                let cause = format!("service {}: {session}", request.service);
                reply.detail = match reply.detail.as_str() {
                    "" => cause,
                    detail => format!("{cause}; {detail}"),
                };
            }
            auth
        } else {
            judge_stack(&self.root, &request.service, Group::Auth)
        };
        reply.auth_fault = match auth {
            StackFinding::Effective(_) => String::new(),
            fault => fault.describe(Group::Auth),
        };
    }

    /// Adds the site's message and, where it fits, its hint. The message goes with an admission too, since the privileged
    /// half may still refuse the login; one that cannot be read is worth a warning only with a refusal.
    fn add_site_texts(&self, config: &Config, reply: &mut Reply) {
        let refusal = match &reply.verdict {
            Verdict::Refuse(refusal) => Some(refusal.reason),
            Verdict::Admit(_) | Verdict::NotEnforced => None,
        };
        if let Some(path) = &config.message_file {
            match read_message(path, &self.trust) {
                Ok(text) => reply.message = text,
                Err(error) if refusal.is_some() => reply.warnings.push(error.to_string()),
                Err(_) => {}
            }
        }
        // The hint of these is a command for the job, and no list of jobs.
        if matches!(refusal, Some(Reason::ChoiceNeeded | Reason::LoginsClosed)) {
            return;
        }
        if let Some(hint) = &config.hint {
            reply.hint.clone_from(hint);
        }
    }
}

/// Makes a reply without texts for the user, and with an unchecked stack.
fn plain_reply(verdict: Verdict, detail: String) -> Reply {
    Reply {
        stack: SessionLine::Unchecked,
        auth_fault: "was not examined".to_owned(),
        detail,
        warnings: Vec::new(),
        hint: String::new(),
        message: String::new(),
        verdict,
    }
}

#[cfg(test)]
mod tests;
