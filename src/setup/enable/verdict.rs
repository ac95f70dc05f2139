//! Whom a service's stack lets in: asks about the users of a trial, reports each answer, and sums all up in one line.

use super::memory::describe_memories;
use super::questions::{
    Answer, Choice, Expected, Question, StackChange, ask_account, run_stack_for,
};
use crate::pam::Stack;
use command::accounts;
use command::error::Error;
use command::output::Output;
use facts::jobless::find_jobless_user;
use facts::jobs::{NodeJob, NodeJobs, find_cgroup};
use helper::printable;
use module::Settings;
use protocol::is_within;

/// The users of a trial, and the jobs of the node.
#[derive(Debug)]
pub(super) struct Trial<'a> {
    service: &'a str,
    questions: Vec<Question>,
    jobs: NodeJobs,
}

/// What is said of a user whom the stack was asked about.
#[derive(Debug)]
struct Verdict {
    /// Whether the user gets in, and where to: a part of the line that sums all up.
    text: String,
    /// What is wrong about that.
    fault: Option<String>,
}

impl<'a> Trial<'a> {
    /// Chooses whom to ask about, each person once: the users, one without a job and root. Warns of what modules
    /// remember of that, and then asks the stack, as it is now, unless it stays. `named_jobless` is the user without a job
    /// whom the admin has named.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if there is no user without a job, if that user is among the others, and without an answer.
    pub(super) fn begin(
        stack: &'a Stack<'_>,
        change: StackChange,
        users: &[String],
        named_jobless: Option<&str>,
        settings: &Settings,
        jobs: NodeJobs,
        output: &mut Output<'_>,
    ) -> Result<Self, Error> {
        let choice = if named_jobless.is_some() {
            Choice::Named
        } else {
            Choice::Picked
        };
        let jobless = find_jobless_user(named_jobless, users, settings, &jobs)?;
        if users.contains(&jobless) {
            let why = "is to get in, and is named by --without-job too";
            return Err(Error::failed("try", jobless, why));
        }
        let mut people: Vec<(&str, Expected)> = Vec::new();
        let users = users.iter().map(|user| (user.as_str(), Expected::Admitted));
        let others = [
            (jobless.as_str(), Expected::NotNewlyAdmitted(choice)),
            ("root", Expected::NotNewlyRefused),
        ];
        for (user, expected) in users.chain(others) {
            if people.iter().all(|(other, _)| *other != user) {
                people.push((user, expected));
            }
        }
        let names: Vec<&str> = people.iter().map(|(user, _)| *user).collect();
        for text in describe_memories(stack, &names)? {
            output.warn(format_args!("warning: {text}"));
        }
        let mut questions = Vec::new();
        for (user, expected) in people {
            questions.push(Question::ask(&stack.service, user, expected, change)?);
        }
        Ok(Self {
            service: &stack.service,
            questions,
            jobs,
        })
    }

    /// Runs the stack, as it is now, for the users, and asks it about everybody whom it was asked about before. Reports
    /// each answer and, last, who gets in. Returns whether all answers are as expected; a stack that gives no answer
    /// does not pass.
    pub(super) fn report_answers(&self, output: &mut Output<'_>) -> Result<bool, Error> {
        let mut verdicts = Vec::new();
        let mut faults = Vec::new();
        for question in &self.questions {
            let user = &question.user;
            let (now, cgroup) = match self.ask_now(question, output) {
                Ok(answer) => answer,
                Err(error) => {
                    faults.push(error.to_string());
                    continue;
                }
            };
            writeln!(output.out, "account of {user}: {}", question.describe(now))?;
            let Verdict { text, fault } = self.judge(question, now, cgroup.as_deref());
            verdicts.push(text);
            faults.extend(fault);
        }
        writeln!(output.out, "{}", verdicts.join(", "))?;
        for fault in &faults {
            writeln!(output.out, "{fault}")?;
        }
        Ok(faults.is_empty())
    }

    /// Asks the stack, as it is now, about a user: runs all of it for one who should get in, as a login would. Returns
    /// the answer of the account phase, and the cgroup of the session. It fails with [`Error::Failed`] without an answer.
    fn ask_now(
        &self,
        question: &Question,
        output: &mut Output<'_>,
    ) -> Result<(Answer, Option<String>), Error> {
        if question.expected == Expected::Admitted {
            let run = run_stack_for(self.service, &question.user, output)?;
            return Ok((run.account, run.cgroup));
        }
        Ok((ask_account(self.service, &question.user)?, None))
    }

    /// Judges the answer about a user, and the cgroup of the session of a user who should get in.
    fn judge(&self, question: &Question, now: Answer, cgroup: Option<&str>) -> Verdict {
        let user = &question.user;
        let needs_session = question.expected == Expected::Admitted;
        let is_in = now == Answer::Admitted && (!needs_session || cgroup.is_some());
        let word = if is_in { "in" } else { "out" };
        let place = match (question.expected, cgroup) {
            (Expected::NotNewlyAdmitted(_), _) => " (no job)".to_owned(),
            (_, Some(path)) => format!(" ({})", self.describe_place(user, path)),
            (_, None) => String::new(),
        };
        let fault = if let Some(fault) = question.find_fault(now) {
            Some(format!("user {user} {fault}{}", self.advise(question)))
        } else if needs_session && !is_in {
            Some(format!("user {user} would get no session"))
        } else {
            cgroup
                .and_then(|path| self.find_job(path))
                .filter(|job| Some(job.uid) != find_uid(user))
                .map(|job| format!("user {user} would be in job {}, of another user", job.id))
        };
        Verdict {
            text: format!("{user} {word}{place}"),
            fault,
        }
    }

    /// Finds the job whose cgroup has this path or one above it. A user may name a cgroup in their own slice as Slurm names
    /// those of jobs, so the step daemon of a Slurm job is asked.
    fn find_job(&self, path: &str) -> Option<&NodeJob> {
        self.jobs.running.iter().find(|job| {
            find_cgroup(&job.id, &job.placement)
                .is_some_and(|cgroup| is_within(path, &cgroup.to_string()))
        })
    }

    /// Describes the job of a session in this cgroup, or the cgroup.
    fn describe_place(&self, user: &str, path: &str) -> String {
        match self.find_job(path) {
            Some(job) if find_uid(user) == Some(job.uid) => format!("job {}", job.id),
            Some(job) => format!("job {} of {}", job.id, accounts::user_name(job.uid)),
            None => printable(path),
        }
    }

    /// What to add about a user who should get in and has no job here.
    fn advise(&self, question: &Question) -> &'static str {
        let uid = find_uid(&question.user);
        let has_job = self.jobs.running.iter().any(|job| Some(job.uid) == uid);
        if question.expected == Expected::Admitted && !has_job {
            ": choose a user with a running job: job-adopt list"
        } else {
            ""
        }
    }
}

/// Looks up the uid of a user; `None` if there is no such user, or if the name service cannot be asked.
fn find_uid(name: &str) -> Option<u32> {
    let user = accounts::find_user(name).ok().flatten();
    user.map(|user| user.uid.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Placement;

    /// A trial on a node with job 7 of this user.
    fn trial(uid: u32) -> Trial<'static> {
        let job = NodeJob {
            id: "7".parse().unwrap(),
            uid,
            placement: Placement::Cgroup {
                path: "/jobs/job_7".parse().unwrap(),
                leaf: None,
            },
            started: None,
            ends: None,
            record: None,
        };
        Trial {
            service: "sshd",
            questions: Vec::new(),
            jobs: NodeJobs {
                running: vec![job],
                ..NodeJobs::default()
            },
        }
    }

    #[test]
    fn place_of_a_session_is_its_job_or_the_cgroup() {
        for (path, place) in [
            ("/jobs/job_7/leaf", "job 7"),
            ("/jobs/job_77", "/jobs/job_77"),
            (
                "/user.slice/user-0.slice/user@0.service/job_7",
                "/user.slice/user-0.slice/user@0.service/job_7",
            ),
        ] {
            assert_eq!(trial(0).describe_place("root", path), place);
        }
        let place = trial(1).describe_place("root", "/jobs/job_7");
        assert!(place.starts_with("job 7 of "), "{place}");
    }

    /// The account phase alone cannot show it.
    #[test]
    fn session_in_the_job_of_another_user_is_a_fault() {
        let question = Question {
            user: "root".to_owned(),
            expected: Expected::Admitted,
            before: Some(Answer::Admitted),
        };
        let fault = |owner: u32, cgroup: Option<&str>| {
            trial(owner)
                .judge(&question, Answer::Admitted, cgroup)
                .fault
        };
        assert_eq!(fault(0, Some("/jobs/job_7")), None);
        assert_eq!(fault(1, Some("/user.slice")), None);
        assert_eq!(
            fault(1, Some("/jobs/job_7/leaf")).unwrap(),
            "user root would be in job 7, of another user"
        );
        assert_eq!(fault(0, None).unwrap(), "user root would get no session");
    }
}
