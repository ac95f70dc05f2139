//! `job-adopt`: the command for people, and for prolog and epilog scripts of schedulers. It runs with
//! the rights of its caller; commands that change a job require root.

#![forbid(unsafe_code)]

mod command_line;

use check::metrics;
use command::caller_limits::CallerLimits;
use command::error::Error;
use command::exit_status::EXIT_FINE;
use command::output::Output;
pub use command_line::declaration;
use command_line::{Command, Invocation};
use explain::{compare, config, devices, list, resolve};
use jobs::{notify, register, run, strays, unregister};
use setup::{callerid, disable, enable};
use std::ffi::OsString;
use std::process::ExitCode;
use users::{enter, use_job};

/// Runs the program, whose `--version` names this build.
#[must_use]
pub fn main(build: &'static str) -> ExitCode {
    let caller = CallerLimits::replace();
    let mut out = std::io::stdout().lock();
    let mut err = std::io::stderr().lock();
    let mut output = Output {
        out: &mut out,
        err: &mut err,
    };
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let result = execute(&words, build, caller, &mut output)
        .and_then(|code| output.out.flush().map(|()| code).map_err(Error::Output));
    let code = result.unwrap_or_else(|error| {
        // A reader that has closed standard output needs no message.
        if error.exit_code() != EXIT_FINE {
            output.fail(&error);
        }
        error.exit_code()
    });
    ExitCode::from(code)
}

/// Parses the command line and runs its command; returns the exit status. `build` is the version that
/// `--version` shows, and `caller` are the limits to give back to a user's command.
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
            Command::Check(options) => check::execute(&options, setup::is_tried, output),
            Command::Compare(options) => compare::execute(&options, output),
            Command::Config(options) => config::execute(&options, output),
            Command::Metrics(options) => metrics::execute(&options, output),
            Command::Notify(options) => notify::execute(&options, output),
            Command::Enable(options) => enable::execute(&options, output),
            Command::Disable(options) => disable::execute(&options, output),
            Command::Strays(options) => strays::execute(&options, output),
            Command::Use(options) => use_job::execute(&options, output),
            Command::Enter(options) => enter::execute(&options, caller, output),
            Command::Callerid(options) => callerid::execute(&options, output),
            Command::Completions { shell } => {
                output
                    .out
                    .write_all(&command_line::generate_completions(shell))?;
                Ok(EXIT_FINE)
            }
        },
    }
}
