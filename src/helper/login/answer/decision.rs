//! Decides whether a login is admitted: chooses one of the user's jobs, and plans its devices.

use super::wait::{query_until_job, reply_deadline};
use super::{ExplainedReply, plain_reply};
use crate::clock::Deadline;
use crate::config::Config;
use crate::devices::Resolver;
use crate::jobs::Job;
use crate::login::caller::CallerQuery;
use crate::login::choice::{Choice, RuleAnswer, choose_job, find_chosen_job, rule_among_answers};
use crate::login::containment::Planner;
use crate::login::evidence::Evidence;
use crate::login::node::Node;
use crate::login::refusal::{LoginRefusal, refusal};
use crate::login::survey::refuse_closed;
use crate::slurm_conf::SlurmConfSearch;
use protocol::{ChoiceRule, Placement, Reason, Refusal, Reply, Request, SourceName, Verdict};

impl Node {
    /// Chooses the job and plans its devices. The reply has the verdict, its cause, the warnings and the scheduler's
    /// hint; the caller adds the state of the stack and the site's texts.
    pub(super) fn decide(&self, request: &Request, config: &Config) -> ExplainedReply {
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
