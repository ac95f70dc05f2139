//! Results of commands, and waits with a deadline.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Status and output of a command that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    command: String,
    /// Exit status, or 128 + N for signal N.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Outcome {
    /// Runs a command to its end.
    pub(crate) fn run(command: &mut Command) -> Self {
        let began = Instant::now();
        let output = command
            .output()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
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
    pub(crate) fn fails(self) -> Self {
        assert!(self.code != 0, "{self}");
        self
    }

    /// Asserts this exit status.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert!(self.code == code, "expected status {code}: {self}");
        self
    }

    /// Asserts that the output contains `text`.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.output().contains(text), "expected {text:?}: {self}");
        self
    }

    /// Asserts that the output does not contain `text`.
    #[track_caller]
    pub(crate) fn omits(self, text: &str) -> Self {
        assert!(
            !self.output().contains(text),
            "did not expect {text:?}: {self}"
        );
        self
    }

    /// Returns standard output, then standard error.
    pub(crate) fn output(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            command,
            code,
            stdout,
            stderr,
            took,
        } = self;
        write!(
            f,
            "{command}\nstatus {code} after {took:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
        )
    }
}

/// Waits up to a minute for `condition`.
#[track_caller]
pub(crate) fn eventually(what: &str, condition: impl FnMut() -> bool) {
    wait_within(Duration::from_secs(60), what, condition);
}

/// Waits up to `limit` for `condition`.
#[track_caller]
pub(crate) fn wait_within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let limit = limit * timeout_factor();
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "waited {limit:?} in vain until {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Repeats an attempt, at most five times, until one ends in time; returns its outcome. A busy
/// machine delays some of them.
#[track_caller]
pub(crate) fn retry_until_in_time(
    limit: Duration,
    mut attempt: impl FnMut() -> Outcome,
) -> Outcome {
    let limit = limit * timeout_factor();
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

/// Returns the factor by which all limits grow: `JOB_ADOPT_PATIENCE`, for an emulated processor.
pub(crate) fn timeout_factor() -> u32 {
    std::env::var("JOB_ADOPT_PATIENCE").map_or(1, |times| times.parse().unwrap())
}
