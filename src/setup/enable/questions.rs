//! Asks a service's PAM stack, as it is now: whom its account phase admits, and what a whole session does.

use crate::sys::pam::{Phase, Transaction};
use command::error::Error;
use command::exit_status::{EXIT_FINDINGS, EXIT_FINE};
use command::output::Output;
use facts::journal::log_question;
use helper::printable;
use kernel::cgroup::Membership;
use std::process::{Command, Stdio};

/// Longest run of the stack, as a property of its unit.
const RUN_TIMEOUT_PROPERTY: &str = "RuntimeMaxSec=120";
/// Exit status of `--account` for an admitted user. `systemd-run --wait` exits with 1 itself for a timeout,
/// a core dump or a lost bus, so an answer is neither 0 nor 1.
const EXIT_ADMITTED: u8 = 10;
/// Exit status of `--account` for a refused user.
const EXIT_REFUSED: u8 = 11;

/// How the user without a job was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Named,
    Picked,
}

/// What the new stack must answer about a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Admitted,
    /// Refused, unless the old stack admitted the user, who has no job here.
    NotNewlyAdmitted(Choice),
    /// Admitted, unless the old stack refused the user.
    NotNewlyRefused,
}

/// Whether a trial changes the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StackChange {
    Changes,
    /// There is one stack, and it is asked once.
    Stays,
}

/// A user whom each stack is asked about, once: modules such as pam_faillock take a question for a login.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) user: String,
    pub(super) expected: Expected,
    /// The answer of the old stack; `None` if that does not change.
    pub(super) before: Option<Answer>,
}

impl Question {
    /// Asks the old stack about a user, if it changes.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if there is no answer.
    pub(super) fn ask(
        service: &str,
        user: &str,
        expected: Expected,
        change: StackChange,
    ) -> Result<Self, Error> {
        let before = match change {
            StackChange::Changes => Some(ask_account(service, user)?),
            StackChange::Stays => None,
        };
        Ok(Self {
            user: user.to_owned(),
            expected,
            before,
        })
    }

    /// Describes the answers, and why a user without a job is asked about.
    pub(super) fn describe(&self, now: Answer) -> String {
        let answers = match self.before {
            Some(before) => format!("{before} before, {now} now"),
            None => now.to_string(),
        };
        let Expected::NotNewlyAdmitted(choice) = self.expected else {
            return answers;
        };
        let origin = match choice {
            Choice::Named => "has no job here",
            Choice::Picked => "picked, has no job here",
        };
        match (self.before.unwrap_or(now), now) {
            (_, Answer::Refused) => format!("{answers} (as it should be: {origin})"),
            (Answer::Admitted, Answer::Admitted) => format!("{answers} (as before: {origin})"),
            (Answer::Refused, Answer::Admitted) => answers,
        }
    }

    /// Finds what is wrong with the answer of the new stack; `None` if it is as expected.
    pub(super) fn find_fault(&self, now: Answer) -> Option<&'static str> {
        match (self.expected, self.before.unwrap_or(now), now) {
            (Expected::Admitted, _, Answer::Refused) => Some("would not get in"),
            (Expected::NotNewlyAdmitted(_), Answer::Refused, Answer::Admitted) => {
                Some("has no job here, and would get in now")
            }
            (Expected::NotNewlyRefused, Answer::Admitted, Answer::Refused) => {
                Some("would be locked out")
            }
            _ => None,
        }
    }
}

/// The answer of a stack's account phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Admitted,
    Refused,
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Self::Admitted {
            "admitted"
        } else {
            "refused"
        })
    }
}

/// Asks the account phase of the service's stack, as it is now, about a user.
///
/// # Errors
///
/// [`Error::Failed`] if there is no answer.
pub(super) fn ask_account(service: &str, user: &str) -> Result<Answer, Error> {
    let status = log_question(service, user, || {
        transient_command("--account", service, user).and_then(|mut command| command.status())
    })
    .map_err(|error| Error::failed("ask the stack about", user, error))?;
    match status.code() {
        Some(code) if code == i32::from(EXIT_ADMITTED) => Ok(Answer::Admitted),
        Some(code) if code == i32::from(EXIT_REFUSED) => Ok(Answer::Refused),
        _ => Err(Error::failed("ask the stack about", user, status)),
    }
}

/// Runs the account phase for a user in this process; returns [`EXIT_ADMITTED`] or, for whatever cause and without the
/// stack's messages, [`EXIT_REFUSED`]. It fails with [`Error::Failed`] if libpam cannot start. pam_slurm_adopt moves
/// its process into the job in this phase, so each call needs a process of its own.
pub(super) fn run_account(service: &str, user: &str) -> Result<u8, Error> {
    let mut transaction = Transaction::start(service, user)
        .map_err(|error| Error::failed("start", service, error))?;
    let (result, _) = transaction.run(Phase::Account);
    Ok(if result.is_ok() {
        EXIT_ADMITTED
    } else {
        EXIT_REFUSED
    })
}

/// What stands before the cgroup of an opened session.
const OPENED: &str = "opened, in ";
/// The report of an account phase that lets the user in.
const ADMITTED: &str = "admitted";

/// What a whole run of the stack for a user has answered.
#[derive(Debug)]
pub(super) struct StackRun {
    pub(super) account: Answer,
    /// The cgroup of the session; `None` if it was refused.
    pub(super) cgroup: Option<String>,
}

impl StackRun {
    /// Reads the report of [`run_stack`] about a user; `None` if it ends before the answer of the account phase.
    fn parse(report: &str, user: &str) -> Option<Self> {
        let account = report.lines().find_map(|line| {
            line.strip_prefix("account of ")?
                .strip_prefix(user)?
                .strip_prefix(": ")
        })?;
        let opened = format!("session of {user}: {OPENED}");
        let cgroup = report.lines().find_map(|line| line.strip_prefix(&opened));
        let account = match account {
            ADMITTED => Answer::Admitted,
            _ => Answer::Refused,
        };
        Some(Self {
            account,
            cgroup: cgroup.map(str::to_owned),
        })
    }
}

/// Runs the real stack in a transient unit, and writes what that reports.
///
/// # Errors
///
/// [`Error::Failed`] if it gives no answer about the account.
pub(super) fn run_stack_for(
    service: &str,
    user: &str,
    output: &mut Output<'_>,
) -> Result<StackRun, Error> {
    let failed = |cause: &dyn std::fmt::Display| Error::failed("run the stack for", user, cause);
    let done = log_question(service, user, || {
        transient_command("--inside", service, user)
            .and_then(|mut command| command.stderr(Stdio::inherit()).output())
    })
    .map_err(|error| failed(&error))?;
    output.out.write_all(&done.stdout)?;
    let report = String::from_utf8_lossy(&done.stdout);
    let mut run = StackRun::parse(&report, user).ok_or_else(|| failed(&done.status))?;
    if !done.status.success() {
        run.cgroup = None;
    }
    Ok(run)
}

/// Makes the command that runs this program in a transient unit, where it asks the real stack as the option `question`
/// says. In this process logind would open no second session, and the module would move the administrator's process.
fn transient_command(question: &str, service: &str, user: &str) -> std::io::Result<Command> {
    let program = std::env::current_exe()?;
    let mut command = Command::new("systemd-run");
    command.args(["--quiet", "--wait", "--pipe", "--collect"]);
    command
        .args(["--property", RUN_TIMEOUT_PROPERTY, "--"])
        .arg(program);
    command.args(["enable", question, "--service", service, "--", user]);
    command.stdin(Stdio::null());
    Ok(command)
}

/// Runs account, credentials and session for a user in this process, in sshd's order, and reports account and
/// session. Returns [`EXIT_FINDINGS`] as soon as one of these two refuses the user; the later phases do not run then.
/// What the stack prints is shown if it refuses: else it is the message of the day, and the like.
pub(super) fn run_stack(service: &str, user: &str, output: &mut Output<'_>) -> Result<u8, Error> {
    let mut transaction = Transaction::start(service, user)
        .map_err(|error| Error::failed("start", service, error))?;
    // Credentials have no name: their result is not reported.
    for (phase, name) in [
        (Phase::Account, "account"),
        (Phase::Establish, ""),
        (Phase::Open, "session"),
        (Phase::Close, "session"),
        (Phase::Delete, ""),
    ] {
        let (result, messages) = transaction.run(phase);
        let outcome = match (&result, phase) {
            // sshd ignores the result of these phases, after a login by key.
            (_, Phase::Establish | Phase::Delete) => continue,
            // A failure at the end refuses nobody.
            (_, Phase::Close) => "closed".to_owned(),
            (Err(error), _) => format!("refused: {error}"),
            (Ok(()), Phase::Account) => ADMITTED.to_owned(),
            (Ok(()), Phase::Open) => format!("{OPENED}{}", own_cgroup()),
        };
        if result.is_err() && !matches!(phase, Phase::Close) {
            for line in messages.iter().flat_map(|text| text.lines()) {
                writeln!(output.out, "  {}", printable(line))?;
            }
            writeln!(output.out, "{name} of {user}: {outcome}")?;
            return Ok(EXIT_FINDINGS);
        }
        writeln!(output.out, "{name} of {user}: {outcome}")?;
    }
    Ok(EXIT_FINE)
}

/// The cgroup of this process.
fn own_cgroup() -> String {
    let membership = Membership::read_own().ok();
    let path = membership.as_ref().and_then(Membership::unified);
    printable(path.unwrap_or("no cgroup of version 2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_and_cgroup_are_read_from_the_report() {
        let parse = |report: &str| {
            let run = StackRun::parse(report, "alice")?;
            Some((run.account, run.cgroup))
        };
        let opened = "account of alice: admitted\nsession of alice: opened, in /jobs/7\nsession of alice: closed\n";
        let cgroup = Some("/jobs/7".to_owned());
        assert_eq!(parse(opened), Some((Answer::Admitted, cgroup)));
        let refused =
            "  account of alice: admitted\naccount of alice: refused: Permission denied\n";
        assert_eq!(parse(refused), Some((Answer::Refused, None)));
        let no_session =
            "account of alice: admitted\nsession of alice: refused: Permission denied\n";
        assert_eq!(parse(no_session), Some((Answer::Admitted, None)));
        for report in [
            "",
            "account of alice2: admitted\n",
            "session of alice: opened, in /x\n",
        ] {
            assert_eq!(parse(report), None, "{report}");
        }
    }
}
