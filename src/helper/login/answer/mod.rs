//! Answers a request: queries the sources, chooses one job, and plans its devices.
//!
//! The answer only names a job and its devices, or a reason for a refusal. The privileged half checks
//! both.

mod limits;
mod stdin;
mod wait;

use super::caller::CallerQuery;
use super::choice::{Choice, choose_job, rule_among_answers};
use super::plan::make_plan;
use crate::config::Config;
use crate::devices::Resolver;
use crate::jobs::Job;
use crate::login::evidence::Evidence;
use crate::login::node::Node;
use crate::login::refusal::{refusal, reply};
use crate::node::Tree;
use crate::stack::{Finding, Group, judge_stack, judge_stacks_of_login};
use limits::{read_message, shorten_to_limits};
use protocol::{
    ChoiceRule, Phase, Placement, Reason, Refusal, Reply, Request, SessionLine, SourceName, Verdict,
};
use std::path::Path;
use wait::{query_until_job, reply_deadline};

pub use stdin::main;

/// Answers a request on this node.
pub fn answer(request: &Request) -> Reply {
    Node::host().answer(request, &mut Evidence::default())
}

impl Node {
    /// Answers a request; adds to `evidence` what led to the answer.
    pub fn answer(&self, request: &Request, evidence: &mut Evidence) -> Reply {
        let mut reply = reply(Verdict::NotEnforced, String::new());
        evidence.add("config", &request.conf);
        match Config::read(Path::new(&request.conf), &self.trust) {
            Ok(config) => self.fill_reply(request, &config, &mut reply, evidence),
            Err(error) => {
                reply.detail = error.to_string();
                reply.verdict = Verdict::Refuse(refusal(Reason::Configuration));
                let path = Config::read_message_file(Path::new(&request.conf), &self.trust);
                let message = path.and_then(|path| read_message(&path, &self.trust).ok());
                reply.message = message.unwrap_or_default();
            }
        }
        shorten_to_limits(reply)
    }

    /// Fills in the verdict, the state of the service's stack, and the site's texts.
    fn fill_reply(
        &self,
        request: &Request,
        config: &Config,
        reply: &mut Reply,
        evidence: &mut Evidence,
    ) {
        if let Some(path) = config.missing_enforce_path() {
            reply.detail = format!("{} does not exist", path.display());
            evidence.add("enforce", &reply.detail);
            return;
        }
        self.decide(request, config, reply, evidence);
        let auth = if request.phase == Phase::Account {
            let [session, auth] = judge_stacks_of_login(&self.root, &request.service);
            reply.stack = session.session_line();
            evidence.add("stack", &session);
            if reply.stack == SessionLine::Missing {
                reply.warnings.insert(0, format!("service {}: {session}", request.service));
            }
            auth
        } else {
            judge_stack(&self.root, &request.service, Group::Auth)
        };
        reply.auth_fault = match auth {
            Finding::Effective(_) => String::new(),
            fault => fault.describe(Group::Auth),
        };
        let reason = match &reply.verdict {
            Verdict::Refuse(refusal) => refusal.reason,
            Verdict::Admit(_) | Verdict::NotEnforced => Reason::Admitted,
        };
        // The privileged half may refuse a login that this half admits.
        if let Some(path) = &config.message_file {
            match read_message(path, &self.trust) {
                Ok(text) => reply.message = text,
                Err(error) if reason != Reason::Admitted => reply.warnings.push(error.to_string()),
                Err(_) => {}
            }
        }
        if let (Some(hint), true) = (&config.hint, reason != Reason::ChoiceNeeded) {
            reply.hint.clone_from(hint);
        }
    }

    /// Chooses the job and plans its devices; fills in the verdict, its cause, the warnings and the
    /// scheduler's hint.
    fn decide(
        &self,
        request: &Request,
        config: &Config,
        reply: &mut Reply,
        evidence: &mut Evidence,
    ) {
        let deadline = reply_deadline(request, self.clock);
        let tree = self.tree();
        let sources = match self.sources(&tree, &request.node, config) {
            Ok(sources) => sources,
            Err(cause) => {
                reply.detail = cause;
                reply.verdict = Verdict::Refuse(refusal(Reason::Configuration));
                return;
            }
        };
        let mut survey = query_until_job(&sources, request, self.clock);
        survey.add_evidence(evidence);
        let mut present = SourceName::ALL.into_iter().filter(|name| survey.present.contains(name));
        present.find_map(job_list_command).unwrap_or_default().clone_into(&mut reply.hint);
        let jobs = std::mem::take(&mut survey.report.jobs);
        let choice = choose_job(jobs, request.several, |rule, jobs| match rule {
            ChoiceRule::Caller => {
                let caller = CallerQuery::new(self, request, config, deadline);
                caller.find_job(jobs, evidence, &mut survey.report.broken)
            }
            ChoiceRule::Chosen => {
                self.find_chosen_job(request.uid, jobs, evidence, &mut survey.report.broken)
            }
            ChoiceRule::OnlyJob | ChoiceRule::Newest | ChoiceRule::Answered => None,
        });
        (reply.verdict, reply.detail) = match choice {
            Choice::None => {
                let now = self.clock.seconds_since_epoch();
                let (refusal, cause) = survey.refusal_without_job(now, &config.sources);
                (reply.verdict, reply.detail) = (Verdict::Refuse(refusal), cause);
                return;
            }
            Choice::Needed(jobs) => {
                reply.hint = jobs.first().map(choice_command).unwrap_or_default();
                let jobs = jobs.into_iter().map(|job| job.id).collect();
                let refusal = Refusal { jobs, ..refusal(Reason::ChoiceNeeded) };
                (Verdict::Refuse(refusal), "action_unknown=deny".to_owned())
            }
            Choice::Job(job, rule) => {
                let is_known = survey.report.silent.is_empty();
                let rule = if is_known { rule } else { rule_among_answers(rule) };
                evidence.add("rule", format_args!("{} ({})", rule.as_str(), job.id));
                let resolver = self.resolver(tree, request, config, &job);
                match make_plan(&job, rule, &request.unit, config, &resolver, evidence) {
                    Ok((plan, warnings)) => {
                        survey.report.broken.extend(warnings);
                        (Verdict::Admit(plan), String::new())
                    }
                    Err((refusal, cause)) => (Verdict::Refuse(refusal), cause),
                }
            }
        };
        reply.warnings = survey.into_warnings();
    }

    /// Returns the resolver for a job's devices. If a step daemon's socket gives Slurm's name of the
    /// node, Slurm's files are read for this name.
    fn resolver(&self, tree: Tree, request: &Request, config: &Config, job: &Job) -> Resolver {
        let mut settings = Self::device_settings(&request.node, config);
        if let Placement::Extern { node, .. } = &job.placement {
            settings.node_name = Some(node.to_string());
        }
        Resolver::new(tree, settings)
    }
}

/// Returns the command by which users list their own jobs.
fn job_list_command(source: SourceName) -> Option<&'static str> {
    match source {
        SourceName::Registry => None,
        SourceName::Slurm => Some("squeue --me"),
        SourceName::Flux => Some("flux jobs"),
    }
}

/// Returns the command by which a user chooses this job from outside of it; empty if there is none.
fn choice_command(job: &Job) -> String {
    let id = &job.id;
    match job.placement.source() {
        SourceName::Registry => String::new(),
        SourceName::Slurm => format!("srun --jobid={id} --overlap job-adopt use {id}"),
        SourceName::Flux => format!("flux exec --jobid={id} job-adopt use {id}"),
    }
}

#[cfg(test)]
mod tests;
