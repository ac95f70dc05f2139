//! Answers a request: queries the sources, chooses one job, and plans its devices.
//!
//! The answer only names a job and its devices, or a reason for a refusal. The privileged half checks
//! both.

mod limits;
mod stdin;
mod wait;

use super::caller::CallerQuery;
use super::choice::{Choice, RuleAnswer, choose_job, find_chosen_job, rule_among_answers};
use super::containment::Planner;
use super::evidence::Evidence;
use super::node::Node;
use super::refusal::{LoginRefusal, refusal};
use super::survey::refuse_closed;
use crate::clock::Deadline;
use crate::config::{Config, ConfigError};
use crate::devices::Resolver;
use crate::jobs::Job;
use crate::slurm_conf::SlurmConfSearch;
use crate::stack::{Group, StackFinding, judge_stack, judge_stacks_of_login};
use limits::{read_message, shorten_to_limits};
use protocol::{
    ChoiceRule, Phase, Placement, Reason, Refusal, Reply, Request, SessionLine, SourceName, Verdict,
};
use std::path::Path;
use wait::{query_until_job, reply_deadline};

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
        // In the session phase our session line need not be looked for: it runs.
        let auth = if request.phase == Phase::Account {
            let [session, auth] = judge_stacks_of_login(&self.root, &request.service);
            reply.stack = session.session_line();
            evidence.add("stack", &session);
            if reply.stack == SessionLine::Missing {
                // The module refuses for this, whatever the verdict is.
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
        let reason = match &reply.verdict {
            Verdict::Refuse(refusal) => refusal.reason,
            Verdict::Admit(_) | Verdict::NotEnforced => Reason::Admitted,
        };
        // The message goes with an admission too, since the privileged half may still refuse the login. A message that
        // cannot be read is worth a warning only with a refusal.
        if let Some(path) = &config.message_file {
            match read_message(path, &self.trust) {
                Ok(text) => reply.message = text,
                Err(error) if reason != Reason::Admitted => reply.warnings.push(error.to_string()),
                Err(_) => {}
            }
        }
        // The hint of these is a command for the job, and no list of jobs.
        if !matches!(reason, Reason::ChoiceNeeded | Reason::LoginsClosed) {
            if let Some(hint) = &config.hint {
                reply.hint.clone_from(hint);
            }
        }
        ExplainedReply { reply, evidence }
    }

    /// Chooses the job and plans its devices. The reply has the verdict, its cause, the warnings and the scheduler's
    /// hint; the caller adds the state of the stack and the site's texts.
    fn decide(&self, request: &Request, config: &Config) -> ExplainedReply {
        let deadline = reply_deadline(request, self.clock);
        let slurm_conf = self.slurm_conf(config);
        let sources = match self.sources(&slurm_conf, &request.node, config) {
            Ok(sources) => sources,
            Err(error) => {
                let verdict = Verdict::Refuse(refusal(Reason::Configuration));
                let reply = plain_reply(verdict, error.to_string());
                return ExplainedReply {
                    reply,
                    evidence: Evidence::default(),
                };
            }
        };
        let mut survey = query_until_job(&sources, request, self.clock);
        let mut evidence = survey.evidence();
        let mut warnings = Vec::new();
        let jobs = std::mem::take(&mut survey.report.jobs);
        let choice = choose_job(jobs, &survey.closed, request.several, |rule, jobs| {
            let answer = self.apply_rule(rule, request, config, jobs, deadline);
            evidence.extend(answer.evidence);
            warnings.extend(answer.warnings);
            answer.job
        });
        let hint = survey.job_list_command().unwrap_or_default().to_owned();
        let (job, rule) = match choice {
            // The cause names the faults of the sources, which are warnings elsewhere.
            Choice::None => {
                let now = self.clock.seconds_since_epoch();
                let LoginRefusal { refusal, cause } = survey.refuse_without_job(now, &self.tree());
                let hint_of_reason = if refusal.reason == Reason::LoginsClosed {
                    survey.closed.first().map(shell_command).unwrap_or_default()
                } else {
                    hint
                };
                let reply = Reply {
                    hint: hint_of_reason,
                    ..plain_reply(Verdict::Refuse(refusal), cause)
                };
                return ExplainedReply { reply, evidence };
            }
            Choice::Closed(ids) => {
                let LoginRefusal { refusal, cause } = refuse_closed(ids);
                let reply = Reply {
                    warnings: survey.into_warnings(warnings),
                    ..plain_reply(Verdict::Refuse(refusal), cause)
                };
                return ExplainedReply { reply, evidence };
            }
            Choice::Needed(candidates) => {
                let command = candidates.first().map(choice_command).unwrap_or_default();
                let refusal = Refusal {
                    jobs: candidates.into_iter().map(|job| job.id).collect(),
                    ..refusal(Reason::ChoiceNeeded)
                };
                let detail = "action_unknown=deny".to_owned();
                let reply = Reply {
                    hint: command,
                    warnings: survey.into_warnings(warnings),
                    ..plain_reply(Verdict::Refuse(refusal), detail)
                };
                return ExplainedReply { reply, evidence };
            }
            Choice::Job(job, rule) if survey.report.silent.is_empty() => (job, rule),
            // A daemon that did not answer may have a newer job.
            Choice::Job(job, rule) => (job, rule_among_answers(rule)),
        };
        evidence.add("rule", format_args!("{rule} ({})", job.id));
        let resolver = Self::resolver(slurm_conf, request, config, &job);
        let planned = Planner::new(&job, config, &resolver).plan_login(rule, request);
        evidence.extend(planned.evidence);
        let (verdict, detail) = match planned.result {
            Ok((plan, plan_warnings)) => {
                warnings.extend(plan_warnings);
                (Verdict::Admit(plan), String::new())
            }
            Err(LoginRefusal { refusal, cause }) => (Verdict::Refuse(refusal), cause),
        };
        let reply = Reply {
            hint,
            warnings: survey.into_warnings(warnings),
            ..plain_reply(verdict, detail)
        };
        ExplainedReply { reply, evidence }
    }

    /// Asks one rule which of several jobs the login joins.
    fn apply_rule(
        &self,
        rule: ChoiceRule,
        request: &Request,
        config: &Config,
        jobs: &[Job],
        deadline: Deadline,
    ) -> RuleAnswer {
        match rule {
            ChoiceRule::Caller => CallerQuery::new(self, request, config, deadline).find_job(jobs),
            ChoiceRule::Chosen => find_chosen_job(&self.choices(), request.uid, jobs),
            // These only name how a job was chosen: nobody is asked.
            ChoiceRule::OnlyJob | ChoiceRule::Newest | ChoiceRule::Answered => {
                RuleAnswer::default()
            }
        }
    }

    /// Makes the resolver for a job's devices. If a step daemon's socket gives Slurm's name of the
    /// node, Slurm's files are read for this name.
    fn resolver(
        slurm_conf: SlurmConfSearch,
        request: &Request,
        config: &Config,
        job: &Job,
    ) -> Resolver {
        let mut settings = Self::device_settings(&request.node, config);
        if let Placement::Extern { node, .. } = &job.placement {
            settings.node_name = Some(node.to_string());
        }
        Resolver::with_slurm_conf(slurm_conf, settings)
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

/// The command by which a user chooses this job from outside of it; empty if there is none.
fn choice_command(job: &Job) -> String {
    let id = &job.id;
    match job.placement.source() {
        SourceName::Registry => String::new(),
        SourceName::Slurm => format!("srun --jobid={id} --overlap job-adopt use {id}"),
        SourceName::Flux => format!("flux exec --jobid={id} job-adopt use {id}"),
    }
}

/// The command by which a user starts a shell in this job without a login; empty if there is none.
fn shell_command(job: &Job) -> String {
    match job.placement.source() {
        // Flux has one only for jobs that are Flux instances.
        SourceName::Registry | SourceName::Flux => String::new(),
        SourceName::Slurm => format!("srun --jobid={} --overlap --pty bash", job.id),
    }
}

#[cfg(test)]
mod tests;
