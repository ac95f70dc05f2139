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
use crate::login::survey::{Survey, refuse_closed};
use crate::slurm_conf::SlurmConfSearch;
use protocol::{
    ChoiceRule, JobId, Placement, Plan, Reason, Refusal, Reply, Request, SourceName, Verdict,
};

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
                return ExplainedReply {
                    reply: plain_reply(verdict, error.to_string()),
                    evidence: Evidence::default(),
                };
            }
        };
        let mut survey = query_until_job(&sources, request, self.clock);
        let mut evidence = survey.evidence();
        let jobs = std::mem::take(&mut survey.report.jobs);
        let mut rules = AppliedRules {
            node: self,
            request,
            config,
            deadline,
            evidence: Evidence::default(),
            warnings: Vec::new(),
        };
        let choice = choose_job(jobs, &survey.closed, request.several, |rule, jobs| {
            rules.find_id(rule, jobs)
        });
        evidence.extend(rules.evidence);
        let reply = match choice {
            Choice::None => self.refuse_without_job(&survey),
            Choice::Closed(ids) => refuse_closed_job(ids, survey, rules.warnings),
            Choice::Needed(candidates) => ask_for_choice(candidates, survey, rules.warnings),
            Choice::Job(job, rule) => {
                let rule = if survey.report.silent.is_empty() {
                    rule
                } else {
                    // A daemon that did not answer may have a newer job.
                    rule_among_answers(rule)
                };
                evidence.add("rule", format_args!("{rule} ({})", job.id));
                let resolver = Self::resolver(slurm_conf, request, config, &job);
                let planned = Planner::new(&job, config, &resolver).plan_login(rule, request);
                evidence.extend(planned.evidence);
                reply_with_plan(planned.result, survey, rules.warnings)
            }
        };
        ExplainedReply { reply, evidence }
    }

    /// Refuses a user without a job that takes logins. The cause names the faults of the sources, which are warnings of
    /// other replies.
    fn refuse_without_job(&self, survey: &Survey) -> Reply {
        let now = self.clock.seconds_since_epoch();
        let LoginRefusal { refusal, cause } = survey.refuse_without_job(now, &self.tree());
        let hint = if refusal.reason == Reason::LoginsClosed {
            survey.closed.first().map(shell_command).unwrap_or_default()
        } else {
            job_list_hint(survey)
        };
        Reply {
            hint,
            ..plain_reply(Verdict::Refuse(refusal), cause)
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

/// Refuses a login from inside the first of these jobs, which takes no logins.
fn refuse_closed_job(ids: Vec<JobId>, survey: Survey, warnings: Vec<String>) -> Reply {
    let LoginRefusal { refusal, cause } = refuse_closed(ids);
    Reply {
        warnings: survey.into_warnings(warnings),
        ..plain_reply(Verdict::Refuse(refusal), cause)
    }
}

/// Refuses a login until its user has chosen one of these jobs. The hint is the command that chooses the oldest.
fn ask_for_choice(candidates: Vec<Job>, survey: Survey, warnings: Vec<String>) -> Reply {
    let hint = candidates.first().map(choice_command).unwrap_or_default();
    let refusal = Refusal {
        jobs: candidates.into_iter().map(|job| job.id).collect(),
        ..refusal(Reason::ChoiceNeeded)
    };
    Reply {
        hint,
        warnings: survey.into_warnings(warnings),
        ..plain_reply(Verdict::Refuse(refusal), "action_unknown=deny".to_owned())
    }
}

/// Admits a login with the plan for its job and the plan's own warnings, or refuses one for which no plan could be made.
fn reply_with_plan(
    planned: Result<(Plan, Vec<String>), LoginRefusal>,
    survey: Survey,
    mut warnings: Vec<String>,
) -> Reply {
    let (verdict, cause) = match planned {
        Ok((plan, plan_warnings)) => {
            warnings.extend(plan_warnings);
            (Verdict::Admit(plan), String::new())
        }
        Err(LoginRefusal { refusal, cause }) => (Verdict::Refuse(refusal), cause),
    };
    Reply {
        hint: job_list_hint(&survey),
        warnings: survey.into_warnings(warnings),
        ..plain_reply(verdict, cause)
    }
}

/// The command by which users list their own jobs; empty if no source has one.
fn job_list_hint(survey: &Survey) -> String {
    survey.job_list_command().unwrap_or_default().to_owned()
}

/// Applies the rules that choose among several jobs, and keeps what led to their answers.
struct AppliedRules<'a> {
    node: &'a Node,
    request: &'a Request,
    config: &'a Config,
    deadline: Deadline,
    /// What led to the answers so far.
    evidence: Evidence,
    /// Faults that the rules met, for the log.
    warnings: Vec<String>,
}

impl AppliedRules<'_> {
    /// Asks one rule which of several jobs the login joins, and keeps its evidence and warnings. Returns the id that the
    /// rule gives, if any.
    fn find_id(&mut self, rule: ChoiceRule, jobs: &[Job]) -> Option<JobId> {
        let RuleAnswer {
            job,
            evidence,
            warnings,
        } = match rule {
            ChoiceRule::Caller => {
                let caller = CallerQuery::new(self.node, self.request, self.config, self.deadline);
                caller.find_job(jobs)
            }
            ChoiceRule::Chosen => find_chosen_job(&self.node.choices(), self.request.uid, jobs),
            // These only name how a job was chosen: nobody is asked.
            ChoiceRule::OnlyJob | ChoiceRule::Newest | ChoiceRule::Answered => {
                RuleAnswer::default()
            }
        };
        self.evidence.extend(evidence);
        self.warnings.extend(warnings);
        job
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
