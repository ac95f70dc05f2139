//! `job-adopt`: the command for people, and for prolog and epilog scripts of schedulers. It runs with
//! the rights of its caller; commands that change a job require root.

mod accounts;
mod callerid;
mod cgroup_members;
mod check;
mod child_process;
mod command_line;
mod compare;
mod devices;
mod enable;
mod ending;
mod error;
pub mod filters;
mod job;
mod jobless;
mod journal;
mod list;
mod metrics;
mod names;
mod notify;
mod pam;
mod pin;
mod register;
mod replace_file;
mod resolve;
mod run;
mod running_jobs;
mod slices;
mod stamped_cgroup;
mod strays;
mod sys;
mod terminals;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
mod unregister;
mod usage;
mod use_job;

pub use command_line::declaration;
use command_line::{Command, Conf, Invocation};
use error::Error;
use helper::printable;
use kernel::log::{self, Line, Severity};
use nix::unistd::Uid;
use run::CallerLimits;
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Exit status of success.
const EXIT_FINE: u8 = 0;
/// Exit status of a completed query with a negative result: a login that `resolve` or `enable` sees
/// refused, a broken or reused record in `list`, a name that `devices` cannot resolve, a fault that
/// `check` finds, a difference in `compare`, a stray, a line that `pam --remove` leaves, a stack that
/// keeps no user without a job out after it or `enable --undo`, and a job of `use` that does not run here.
const EXIT_FINDINGS: u8 = 1;
/// Exit status of wrong usage, and of an invalid record.
const EXIT_USAGE: u8 = 2;
/// Exit status of an operation that failed.
const EXIT_FAILED: u8 = 3;

/// Longest wait for a lock, for processes to end, and for systemd to move one.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);

/// The output streams of a command.
struct Output<'a> {
    /// The stream of the result.
    out: &'a mut dyn Write,
    /// The stream of errors and warnings.
    err: &'a mut dyn Write,
}

impl Output<'_> {
    /// Writes an error or a warning. A failure is ignored: standard error is the last channel.
    fn warn(&mut self, text: impl std::fmt::Display) {
        // The text may have names that users chose, for example of their cgroups.
        let text = text.to_string();
        let lines: Vec<String> = text.split('\n').map(printable).collect();
        let _ = writeln!(self.err, "job-adopt: {}", lines.join("\n"));
    }

    /// Writes a result as one line of JSON.
    fn json(&mut self, result: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_string(result).map_err(std::io::Error::from)?;
        Ok(writeln!(self.out, "{text}")?)
    }

    /// Writes a table for people: each column is as wide as its widest cell, with two blanks between
    /// columns and none at the end of a line.
    fn table<const N: usize>(
        &mut self,
        head: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Result<(), Error> {
        let rows: Vec<[String; N]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
        let mut widths = [0; N];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in &rows {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            let line: Vec<String> = cells.collect();
            writeln!(self.out, "{}", line.join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// Runs the program, whose `--version` names this build.
#[must_use]
pub fn main(build: &'static str) -> ExitCode {
    let caller = CallerLimits::replace();
    let mut out = std::io::stdout().lock();
    let mut err = std::io::stderr().lock();
    let mut output = Output { out: &mut out, err: &mut err };
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let result = execute(&words, build, caller, &mut output)
        .and_then(|code| output.out.flush().map(|()| code).map_err(Error::Output));
    let code = result.unwrap_or_else(|error| {
        if error.exit_code() != EXIT_FINE {
            output.warn(&error);
        }
        error.exit_code()
    });
    ExitCode::from(code)
}

fn execute(
    words: &[OsString],
    build: &'static str,
    caller: CallerLimits,
    output: &mut Output<'_>,
) -> Result<u8, Error> {
    match command_line::parse(words, build)? {
        Invocation::Text(text) => {
            output.out.write_all(text.as_bytes())?;
            Ok(EXIT_FINE)
        }
        Invocation::Command(command) => match command {
            Command::Run(options) => run::execute(&options, caller, output),
            Command::Register(options) => register::execute(&options, output),
            Command::Unregister(options) => unregister::execute(&options, output),
            Command::List(options) => list::execute(&options, output),
            Command::Resolve(options) => resolve::execute(&options, output),
            Command::Devices(options) => devices::execute(&options, output),
            Command::Check(options) => check::execute(&options, output),
            Command::Compare(options) => compare::execute(&options, output),
            Command::Metrics(options) => metrics::execute(&options, output),
            Command::Notify(options) => notify::execute(&options, output),
            Command::Pam(options) => pam::execute(&options, output),
            Command::Enable(options) => enable::execute(&options, output),
            Command::Slices(options) => slices::execute(&options, output),
            Command::Strays(options) => strays::execute(&options, output),
            Command::Use(options) => use_job::execute(&options, output),
            Command::Callerid(options) => callerid::execute(&options, output),
            Command::Completions { shell } => {
                output.out.write_all(&command_line::generate_completions(shell))?;
                Ok(EXIT_FINE)
            }
        },
    }
}

/// Refuses any user but root with [`Error::Failed`], which names the operation.
fn require_root(operation: &str) -> Result<(), Error> {
    match Uid::effective().is_root() {
        true => Ok(()),
        false => Err(Error::Failed(format!("{operation}: must be run as root"))),
    }
}

/// Writes one line to syslog.
fn log(line: Line) {
    log::write(&[line], Severity::Info, "job-adopt", "");
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_are_aligned() {
        let rows = [["4242", "gone"], ["7", "running"]].map(|row| row.map(str::to_owned));
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = super::Output { out: &mut out, err: &mut err };
        output.table(["ID", "STATE"], rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "ID    STATE\n4242  gone\n7     running\n");
    }
}
