//! What a command did, and waiting for what takes a moment.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Status and output of a command that ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    command: String,
    /// Exit status; 128 + N for signal N.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Outcome {
    /// Runs to the end.
    pub(crate) fn of(command: &mut Command) -> Self {
        let began = Instant::now();
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self::from_output(format!("{command:?}"), &output, began.elapsed())
    }

    pub(crate) fn from_output(command: String, output: &Output, took: Duration) -> Self {
        let signal = output.status.signal().map(|signal| 128 + signal);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            command,
            code: output.status.code().or(signal).unwrap_or(-1),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            took,
        }
    }

    /// Asserts success.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert!(self.code == 0, "{self}");
        self
    }

    /// Asserts failure.
    #[track_caller]
    pub(crate) fn failed(self) -> Self {
        assert!(self.code != 0, "{self}");
        self
    }

    /// Asserts this exit status.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert!(self.code == code, "expected status {code}: {self}");
        self
    }

    /// Asserts that `text` stands somewhere in the output.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.output().contains(text), "expected {text:?}: {self}");
        self
    }

    /// Asserts that `text` stands nowhere in the output.
    #[track_caller]
    pub(crate) fn keeps_quiet_about(self, text: &str) -> Self {
        assert!(!self.output().contains(text), "did not expect {text:?}: {self}");
        self
    }

    /// Standard output and standard error together.
    pub(crate) fn output(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { command, code, stdout, stderr, took } = self;
        write!(
            f,
            "{command}\nstatus {code} after {took:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
        )
    }
}

/// Waits up to a minute for `condition`.
#[track_caller]
pub(crate) fn eventually(what: &str, condition: impl FnMut() -> bool) {
    within(Duration::from_secs(60), what, condition);
}

/// Waits so long for `condition`.
#[track_caller]
pub(crate) fn within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let limit = limit * patience();
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {limit:?} in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The outcome of an attempt that is over in that time: on a busy machine not of each.
#[track_caller]
pub(crate) fn in_time(limit: Duration, mut attempt: impl FnMut() -> Outcome) -> Outcome {
    let limit = limit * patience();
    let mut outcome = attempt();
    for _ in 1..5 {
        if outcome.took < limit {
            break;
        }
        outcome = attempt();
    }
    assert!(outcome.took < limit, "not within {limit:?}: {outcome}");
    outcome
}

/// How many times as long as on a usual machine things may take; `JOB_ADOPT_PATIENCE`, for an emulated
/// processor.
pub(crate) fn patience() -> u32 {
    std::env::var("JOB_ADOPT_PATIENCE").map_or(1, |times| times.parse().unwrap())
}
