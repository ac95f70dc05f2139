//! `job-adopt`: for people, and for schedulers' prolog and epilog scripts. Runs as whoever calls
//! it; what changes a job wants root.

mod as_helper;
mod caller;
mod callerid;
mod check;
mod devices;
mod ending;
mod error;
pub mod filters;
mod help;
mod job;
mod list;
mod names;
mod occupants;
mod options;
mod people;
mod placed;
mod register;
mod resolve;
mod run;
mod slices;
mod sys;
mod table;
mod unregister;
mod use_job;

use crate::legible::legible;
use crate::log::{self, Line, Severity, Speaker};
use crate::plan::Request;
use crate::plan::VERSION;
use crate::removed::{self, instead};
use crate::resolve::Config;
use crate::trust::Trust;
use caller::Caller;
use error::Error;
use nix::unistd::Uid;
use options::Options;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Fine.
const EXIT_FINE: u8 = 0;
/// Findings: `resolve` of a login that would be refused, `list` of a record that is broken,
/// `devices` that do not resolve, `check` of a node where something is amiss,
/// `use` of a job that is not there.
const EXIT_FINDINGS: u8 = 1;
/// Wrong usage, or a record that is none.
const EXIT_USAGE: u8 = 2;
/// Something could not be read or done.
const EXIT_FAILED: u8 = 3;

/// Where a command writes.
struct Output<'a> {
    /// Its result.
    out: &'a mut dyn Write,
    /// What else there is to say.
    err: &'a mut dyn Write,
}

impl Output<'_> {
    /// Says something on standard error. Nobody is left to tell where that fails.
    fn warn(&mut self, text: impl std::fmt::Display) {
        // Names that users chose may be in it, as those of cgroups of theirs.
        let text = text.to_string();
        let lines: Vec<String> = text.split('\n').map(legible).collect();
        let _ = writeln!(self.err, "job-adopt: {}", lines.join("\n"));
    }
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let caller = Caller::replace();
    let mut out = std::io::stdout().lock();
    let mut err = std::io::stderr().lock();
    let mut output = Output { out: &mut out, err: &mut err };
    let result = command(std::env::args_os().skip(1).collect(), caller, &mut output)
        .and_then(|code| output.out.flush().map(|()| code).map_err(Error::Output));
    let code = result.unwrap_or_else(|error| {
        if let Some(text) = error.text() {
            output.warn(text);
        }
        error.code()
    });
    ExitCode::from(code)
}

fn command(arguments: Vec<OsString>, caller: Caller, output: &mut Output<'_>) -> Result<u8, Error> {
    let mut arguments = arguments.into_iter();
    let Some(first) = arguments.next() else {
        return Err(Error::Usage("", "a command is needed".into()));
    };
    let rest = arguments;
    match first.to_str() {
        Some("register") => register::command(rest, output),
        Some("unregister") => unregister::command(rest, output),
        Some("run") => run::command(rest, caller, output),
        Some("list") => list::command(rest, output),
        Some("resolve") => resolve::command(rest, output),
        Some("devices") => devices::command(rest, output),
        Some("check") => check::command(rest, output),
        Some("slices") => slices::command(rest, output),
        Some("use") => use_job::command(rest, output),
        Some("callerid") => callerid::command(rest, output),
        Some("--help") => show(help::ALL, output),
        Some("--version") => show(&format!("job-adopt {VERSION}\n"), output),
        _ => {
            let name = first.to_string_lossy();
            let what = match instead(removed::COMMAND_LINE, &name) {
                Some(instead) => format!("command {name} {instead}"),
                None => format!("unknown command {name}"),
            };
            Err(Error::Usage("", what))
        }
    }
}

fn show(text: &str, output: &mut Output<'_>) -> Result<u8, Error> {
    output.out.write_all(text.as_bytes())?;
    Ok(EXIT_FINE)
}

/// The site's configuration: that of `--conf`, else the usual one.
fn config(options: &Options) -> Result<Config, Error> {
    Ok(Config::read(conf(options)?, &Trust::root())?)
}

/// Where the configuration is. The usual file may be missing, one that was asked for may not.
fn conf(options: &Options) -> Result<&Path, Error> {
    let Some(path) = options.value("--conf") else { return Ok(Path::new(Request::CONF)) };
    if !path.starts_with('/') {
        return Err(options.usage(format!("option --conf: {path} is no absolute path")));
    }
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(Path::new(path)),
        Err(error) => Err(Error::failed("read", path, error)),
    }
}

/// # Errors
/// [`Error::Failed`] for anybody but root, naming what was to be done.
fn require_root(what: &str) -> Result<(), Error> {
    match Uid::effective().is_root() {
        true => Ok(()),
        false => Err(Error::Failed(format!("{what}: must be run as root"))),
    }
}

/// Writes one line to syslog.
fn log(line: Line) {
    log::write(&[line], Severity::Info, Speaker { process: "job-adopt", prefix: "" });
}
