//! The steps of one login, from the question to the helper to the outcome.

use crate::context::{Adoption, LoginContext};
use crate::decide::decide_on_failure;
use crate::error::Failure;
use crate::job::{Job, JoinResult};
use crate::namespaces::JobNamespaces;
use crate::report::{AdoptedLogin, Outcome, Report};
use crate::settings::Settings;
use crate::text::ReplyTexts;
use crate::undo::Undo;
use crate::variables::set_variables;
use kernel::cgroup::Origin;
use kernel::choice::Choices;
use kernel::namespace::Namespace;
use protocol::{Phase, Plan, Reason, Reply, Request, SessionLine, Variable, Verdict};
use std::time::Duration;

/// Judges one login; in the session phase this moves the login into the job. The budget
/// bounds every wait.
pub fn judge_login(context: LoginContext<'_>) -> Outcome {
    Login {
        context,
        reply: None,
    }
    .judge()
    .0
}

/// Judges one login as under `observe`, without changing anything. Returns also the job, if it could be
/// opened.
pub fn predict_login(context: LoginContext<'_>) -> (Outcome, Option<PredictedJoin>) {
    let settings = Settings {
        observe: true,
        ..context.settings.clone()
    };
    Login {
        context: LoginContext {
            settings: &settings,
            ..context
        },
        reply: None,
    }
    .judge()
}

/// What [`predict_login`] found out about a job.
#[derive(Debug)]
pub struct PredictedJoin {
    /// The job, opened and checked.
    pub job: Job,
    /// What a join would give; `None` if it would fail.
    pub joined: Option<JoinResult>,
}

/// One login, and the texts of the last reply about it.
struct Login<'a> {
    context: LoginContext<'a>,
    reply: Option<ReplyTexts>,
}

/// How far a login came.
enum Attempt {
    /// The node does not enforce, for this reason.
    NotEnforced(String),
    /// The login could join the job. `account` and `observe` end here.
    Predicted(Plan, Job, JoinResult),
    /// The login has joined the job.
    Joined(Plan, AdoptedLogin),
    /// A step failed.
    Failed {
        failure: Failure,
        /// The plan, if the helper had admitted the login.
        plan: Option<Plan>,
        /// The job, if only its prediction failed.
        job: Option<Job>,
    },
}

impl Attempt {
    /// Returns an attempt that failed before there was a plan.
    fn without_plan(failure: Failure) -> Self {
        Self::Failed {
            failure,
            plan: None,
            job: None,
        }
    }

    /// Returns whether a fresh reply may lead further. A login that could not be moved back is not tried
    /// again.
    fn can_be_repeated(&self) -> bool {
        match self {
            Self::Failed { failure, .. } => !matches!(failure, Failure::MoveBackFailed(..)),
            Self::NotEnforced(_) | Self::Predicted(..) | Self::Joined(..) => false,
        }
    }
}

impl Login<'_> {
    /// Tries with the reply that `account` was given, if there is one, and then with a fresh one, since
    /// the job may have changed.
    fn judge(mut self) -> (Outcome, Option<PredictedJoin>) {
        if self.carried_reply(&self.make_request()).is_some() {
            let attempt = self.attempt();
            let has_time = !self.context.budget.remaining().is_zero();
            if !attempt.can_be_repeated() || !has_time {
                return self.conclude(attempt);
            }
        }
        // Without carried replies each query goes to the helper.
        self.context.carried_replies = &[];
        let attempt = self.attempt();
        self.conclude(attempt)
    }

    /// Asks for a plan, and carries it out.
    fn attempt(&mut self) -> Attempt {
        let reply = match self.query(&self.make_request()) {
            Ok(reply) => reply,
            Err(failure) => return Attempt::without_plan(failure),
        };
        // Nothing would move a login that `account` admits if no session line of ours runs after it. The
        // reply's detail says what is wrong with the stack.
        let lacks_session_line =
            self.context.login.phase == Phase::Account && reply.stack != SessionLine::Effective;
        let (verdict, detail) = self.keep_texts(reply);
        let refusal = match verdict {
            Verdict::NotEnforced => return Attempt::NotEnforced(detail),
            Verdict::Admit(_) | Verdict::Refuse(_) if lacks_session_line => {
                Failure::new(Reason::Configuration, detail)
            }
            Verdict::Refuse(refusal) => Failure::HelperRefused { refusal, detail },
            Verdict::Admit(plan) => return self.carry_out(plan),
        };
        Attempt::without_plan(refusal)
    }

    /// Moves the login into the job of a plan; in `account` and under `observe` only predicts the result. If a Flux job
    /// lacks the filter that the plan relies on, opening the job asks the helper once more: its answer replaces the
    /// plan, or withdraws it.
    fn carry_out(&mut self, mut plan: Plan) -> Attempt {
        let job = match self.open_job(&plan) {
            Ok((job, replacement)) => {
                plan = replacement.unwrap_or(plan);
                job
            }
            // Asked once more, the helper refuses: there is no plan any more.
            Err(failure @ Failure::HelperRefused { .. }) => {
                return Attempt::without_plan(failure);
            }
            Err(failure) => {
                return Attempt::Failed {
                    failure,
                    plan: Some(plan),
                    job: None,
                };
            }
        };
        if self.context.login.phase == Phase::Account || self.context.settings.observe {
            return match job.predict_join(&Adoption {
                context: self.context,
                plan: &plan,
            }) {
                Ok(predicted) => Attempt::Predicted(plan, job, predicted),
                Err(failure) => Attempt::Failed {
                    failure,
                    plan: Some(plan),
                    job: Some(job),
                },
            };
        }
        match self.join(job, &plan) {
            Ok(adopted) => Attempt::Joined(plan, adopted),
            Err(failure) => Attempt::Failed {
                failure,
                plan: Some(plan),
                job: None,
            },
        }
    }

    /// Opens the job of a plan. If the scheduler's own filter is missing, the helper makes a second plan, which then
    /// takes the place of the first; else it is `None`.
    ///
    /// # Errors
    ///
    /// [`Failure::HelperRefused`] if the helper withdraws the plan; as [`Job::open`].
    fn open_job(&mut self, plan: &Plan) -> Result<(Job, Option<Plan>), Failure> {
        let job = Job::open(&Adoption {
            context: self.context,
            plan,
        })?;
        let second = match job.unit_text_for_helper(plan)? {
            Some(unit) => Some(self.query_with_unit_text(plan, unit)?),
            None => None,
        };
        Ok((job, second))
    }

    /// Moves the login into the job. All changes are rolled back if a step fails or panics.
    fn join(&self, mut job: Job, plan: &Plan) -> Result<AdoptedLogin, Failure> {
        let origin = Origin::open()
            .map_err(|error| Failure::with_errno(Reason::AdoptionFailed, &error, error.errno()))?;
        let mut undo = Undo::new(origin);
        let joined = job.join(
            &Adoption {
                context: self.context,
                plan,
            },
            &mut undo,
        )?;
        let adopted = self
            .prepare_session(plan, joined, &undo)
            .map_err(|failure| undo.roll_back(failure))?;
        undo.commit();
        Ok(adopted)
    }

    /// Prepares what the login gets from the job besides its cgroup: cores and priorities, namespaces, variables, and the
    /// directory for a choice. Faults of cores, priorities and the directory are warnings; after an error the caller must
    /// roll back.
    fn prepare_session(
        &self,
        plan: &Plan,
        mut joined: JoinResult,
        undo: &Undo,
    ) -> Result<AdoptedLogin, Failure> {
        self.require_time("the move")?;
        let mut warnings = std::mem::take(&mut joined.warnings);
        warnings.extend(
            undo.attributes
                .align(joined.cpus.as_deref(), joined.priority),
        );
        let namespaces = self.verify_namespaces(std::mem::take(&mut joined.namespaces))?;
        let requested = request_variables(plan, &joined);
        let variables = set_variables(self.context.environment, &requested)?;
        let foreign_variables = requested
            .iter()
            .map(Variable::name)
            .filter(|name| !variables.contains(name))
            .collect();
        warnings.extend(self.make_choice_dir().err());
        Ok(AdoptedLogin {
            joined,
            namespaces,
            variables,
            foreign_variables,
            warnings,
        })
    }

    /// Makes the outcome of an attempt. Returns the job as well if its join was only predicted.
    fn conclude(&self, attempt: Attempt) -> (Outcome, Option<PredictedJoin>) {
        let report = Report {
            context: self.context,
            reply: self.reply.as_ref(),
        };
        match attempt {
            Attempt::NotEnforced(detail) => (report.not_enforced(&detail), None),
            Attempt::Predicted(plan, job, predicted) => {
                let outcome = report.admission(&plan, &predicted);
                (
                    outcome,
                    Some(PredictedJoin {
                        job,
                        joined: Some(predicted),
                    }),
                )
            }
            Attempt::Joined(plan, adopted) => (report.adoption(&plan, adopted), None),
            Attempt::Failed { failure, plan, job } => {
                let LoginContext {
                    settings,
                    exemption,
                    ..
                } = self.context;
                let decision = decide_on_failure(&failure, settings, exemption);
                let mut outcome = report.failure(&failure, plan.as_ref(), &decision);
                // The user is asked to choose a job, which is done in this directory.
                if failure.reason() == Reason::ChoiceNeeded && !settings.observe {
                    if let Err(error) = self.make_choice_dir() {
                        outcome
                            .lines
                            .push(report.detail_line("warning", &error, plan.as_ref()));
                    }
                }
                (outcome, job.map(|job| PredictedJoin { job, joined: None }))
            }
        }
    }

    /// Makes the request for the helper: the facts of the login, the admin's settings that the helper needs, and the
    /// time that is left.
    fn make_request(&self) -> Request {
        let LoginContext {
            login,
            settings,
            exemption,
            budget,
            ..
        } = self.context;
        // An exempt user is let in at once without a job.
        let wait = if exemption.is_some() {
            Duration::ZERO
        } else {
            settings.wait_job
        };
        Request {
            conf: settings.conf.clone(),
            several: settings.several,
            budget_ms: saturating_millis(budget.remaining()),
            wait_ms: saturating_millis(wait),
            ..login.clone()
        }
    }

    /// Returns the reply that `account` was given to this request; `None` if none was carried, or only the reply to
    /// another request.
    fn carried_reply(&self, request: &Request) -> Option<&Reply> {
        let mut carried = self.context.carried_replies.iter();
        carried
            .find(|(carried, _)| carried.shares_answer_with(request))
            .map(|(_, reply)| reply)
    }

    /// Returns the carried reply to a request, or the helper's.
    fn query(&self, request: &Request) -> Result<Reply, Failure> {
        match self.carried_reply(request) {
            Some(reply) => Ok(reply.clone()),
            None => (self.context.ask_helper)(request),
        }
    }

    /// Keeps the texts of a reply, and returns its verdict and detail.
    fn keep_texts(&mut self, reply: Reply) -> (Verdict, String) {
        let Reply {
            stack: _,
            auth_fault,
            detail,
            hint,
            message,
            warnings,
            verdict,
        } = reply;
        self.reply = Some(ReplyTexts {
            auth_fault,
            hint,
            message,
            warnings,
        });
        (verdict, detail)
    }

    /// Sends the unit's text to the helper, and returns its second plan. That is for the same login and
    /// must be about the same job.
    fn query_with_unit_text(&mut self, plan: &Plan, unit: String) -> Result<Plan, Failure> {
        // The job exists, so the helper need not wait for one.
        let request = Request {
            unit,
            wait_ms: 0,
            ..self.make_request()
        };
        let reply = self.query(&request)?;
        match self.keep_texts(reply) {
            (Verdict::Admit(second), _)
                if second.job == plan.job && second.placement == plan.placement =>
            {
                Ok(second)
            }
            (Verdict::Refuse(refusal), detail) => Err(Failure::HelperRefused { refusal, detail }),
            // Another job, or none because the node no longer enforces.
            _ => {
                let cause = "the helper's second answer is about another job";
                Err(Failure::new(Reason::AdoptionFailed, cause))
            }
        }
    }

    /// Requires that the budget is not used up. Other processes that hold the kernel's locks may
    /// delay a move or a mount, and only the clock shows it afterwards.
    fn require_time(&self, step: &str) -> Result<(), Failure> {
        if self.context.budget.remaining().is_zero() {
            let cause = format!("the time budget was used up during {step}");
            return Err(Failure::new(Reason::Timeout, cause));
        }
        Ok(())
    }

    /// Checks that the process that becomes the user will join these namespaces, if there are any, and that
    /// their files are the node's.
    fn verify_namespaces(&self, job: Vec<Namespace>) -> Result<Option<JobNamespaces>, Failure> {
        if job.is_empty() {
            return Ok(None);
        }
        self.require_auth_lines()?;
        let LoginContext {
            login, settings, ..
        } = self.context;
        let namespaces = JobNamespaces::new(job, &settings.private_dirs, login);
        namespaces.verify()?;
        self.require_time("joining the job's namespaces")?;
        Ok(Some(namespaces))
    }

    /// Requires that both auth lines of this module will run when sshd's process becomes the user: the helper found
    /// them in the stack, and they have run in this process before.
    fn require_auth_lines(&self) -> Result<(), Failure> {
        let fault = self
            .reply
            .as_ref()
            .map_or("was not examined", |reply| &reply.auth_fault);
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

    /// Makes the directory in which the user may choose a job, if the helper has a group. An error
    /// does not refuse a login, since the directory is a convenience.
    fn make_choice_dir(&self) -> Result<(), String> {
        let Some(group) = self.context.helper_group else {
            return Ok(());
        };
        let result = Choices::host().make(self.context.login.uid, group);
        result.map(drop).map_err(|error| error.to_string())
    }
}

/// Lists the variables to set for a login: the plan's, to which the GPUs that it can open are added, and those of
/// the job's X11 display.
fn request_variables(plan: &Plan, joined: &JoinResult) -> Vec<Variable> {
    let mut env = plan.env.clone();
    // If nothing was probed, or a probe failed, no GPU is added, and the login is not told that it has none.
    if joined.probes.openable.is_some() {
        let probed = plan
            .probes
            .iter()
            .filter_map(|probe| probe.variable.as_ref());
        env.add_gpus(probed, &joined.probes.variables);
    }
    env.iter().chain(&joined.display).cloned().collect()
}

/// Converts to whole milliseconds, at most what a request can carry.
fn saturating_millis(length: Duration) -> u32 {
    u32::try_from(length.as_millis()).unwrap_or(u32::MAX)
}
