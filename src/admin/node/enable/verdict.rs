//! Whom a service's stack lets in: asks about the users of a trial, reports each answer, and sums all up in one line.

use super::questions::{Answer, Choice, Expected, Question, ask_account, run_stack_for};
use crate::accounts;
use crate::error::Error;
use crate::job::running_jobs::{NodeJobs, RunningJob};
use crate::node::jobless::find_jobless_user;
use crate::output::Output;
use helper::printable;
use module::Settings;
use protocol::{Placement, is_within};

/// The users of a trial, and the jobs of the node.
#[derive(Debug)]
pub(super) struct Trial<'a> {
    service: &'a str,
    questions: Vec<Question>,
    running: NodeJobs,
}

impl<'a> Trial<'a> {
    /// Asks the stack, as it is now, about the users, about one without a job and about root. `named_jobless` is the
    /// user without a job whom the admin has named.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if there is no user without a job, and without an answer.
    pub(super) fn begin(
        service: &'a str,
        users: &[String],
        named_jobless: Option<&str>,
        settings: &Settings,
        running: NodeJobs,
    ) -> Result<Self, Error> {
        let choice = if named_jobless.is_some() {
            Choice::Named
        } else {
            Choice::Picked
        };
        let jobless = find_jobless_user(named_jobless, users, settings, &running)?;
        let mut questions = Vec::new();
        for user in users {
            questions.push(Question::ask(service, user, Expected::Admitted)?);
        }
        let expected = Expected::NotNewlyAdmitted(choice);
        questions.push(Question::ask(service, &jobless, expected)?);
        questions.push(Question::ask(service, "root", Expected::NotNewlyRefused)?);
        Ok(Self {
            service,
            questions,
            running,
        })
    }

    /// Runs the stack, as it is now, for the users, and asks it about everybody whom it was asked about before. Reports
    /// each answer and, last, who gets in. Returns whether all answers are as expected; a stack that gives no answer
    /// does not pass.
    pub(super) fn report_answers(&self, output: &mut Output<'_>) -> Result<bool, Error> {
        let mut verdicts = Vec::new();
        let mut faults = Vec::new();
        for question in &self.questions {
            let name = &question.user;
            let mut cgroup = None;
            if question.expected == Expected::Admitted {
                match run_stack_for(self.service, name, output) {
                    Ok(opened) => cgroup = opened,
                    Err(error) => output.warn(format_args!("run the stack: {error}")),
                }
            }
            let now = match ask_account(self.service, name) {
                Ok(now) => now,
                Err(error) => {
                    faults.push(error.to_string());
                    continue;
                }
            };
            writeln!(output.out, "account of {name}: {}", question.describe(now))?;
            let is_in = now == Answer::Admitted
                && (question.expected != Expected::Admitted || cgroup.is_some());
            let word = if is_in { "in" } else { "out" };
            verdicts.push(match (question.expected, &cgroup) {
                (Expected::Admitted, Some(path)) => {
                    format!("{name} {word} ({})", self.describe_place(path))
                }
                (Expected::NotNewlyAdmitted(_), _) => format!("{name} {word} (no job)"),
                _ => format!("{name} {word}"),
            });
            if let Some(fault) = question.find_fault(now) {
                faults.push(format!("user {name} {fault}{}", self.advise(question)));
            } else if question.expected == Expected::Admitted && !is_in {
                faults.push(format!("user {name} would get no session"));
            }
        }
        writeln!(output.out, "{}", verdicts.join(", "))?;
        for fault in &faults {
            writeln!(output.out, "{fault}")?;
        }
        Ok(faults.is_empty())
    }

    /// The job whose cgroup has this path or one above it, or the path.
    fn describe_place(&self, path: &str) -> String {
        match self.running.jobs.iter().find(|job| has_path(job, path)) {
            Some(job) => format!("job {}", job.id),
            None => printable(path),
        }
    }

    /// What to add about a user who should get in and has no job here.
    fn advise(&self, question: &Question) -> &'static str {
        let uid = accounts::find_user(&question.user)
            .ok()
            .flatten()
            .map(|user| user.uid.as_raw());
        let has_job = self.running.jobs.iter().any(|job| Some(job.uid) == uid);
        if question.expected == Expected::Admitted && !has_job {
            ": choose a user with a running job: job-adopt list"
        } else {
            ""
        }
    }
}

/// Whether a path lies in the cgroup of a job. Slurm names a job's cgroup after it.
fn has_path(job: &RunningJob, path: &str) -> bool {
    match &job.placement {
        Placement::Cgroup { path: place, .. } | Placement::Unit { path: place, .. } => {
            is_within(path, &place.to_string())
        }
        Placement::Extern { .. } => {
            let name = format!("job_{}", job.id);
            path.split('/').any(|level| level == name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slurm_job(id: &str) -> RunningJob {
        RunningJob {
            id: id.parse().unwrap(),
            uid: 1001,
            placement: Placement::Extern {
                spool: "/var/spool/slurmd".parse().unwrap(),
                node: "n1".parse().unwrap(),
            },
            ends: None,
        }
    }

    #[test]
    fn place_of_a_session_is_its_job_or_the_cgroup() {
        let trial = Trial {
            service: "sshd",
            questions: Vec::new(),
            running: NodeJobs {
                jobs: vec![slurm_job("7")],
                is_complete: true,
            },
        };
        for (path, place) in [
            (
                "/system.slice/slurmstepd.scope/job_7/step_extern/user/task_special",
                "job 7",
            ),
            (
                "/slurmstepd.scope/job_77/step_extern",
                "/slurmstepd.scope/job_77/step_extern",
            ),
            (
                "/user.slice/user-1001.slice/session-1.scope",
                "/user.slice/user-1001.slice/session-1.scope",
            ),
        ] {
            assert_eq!(trial.describe_place(path), place);
        }
    }
}
