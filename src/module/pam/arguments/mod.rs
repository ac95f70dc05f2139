//! The module's arguments: all of `pam_slurm_adopt`'s with safer defaults, and a few more. What is
//! unknown, malformed or given twice is refused by name: a typo must not open a login. So is what
//! asks for something that this module does not do; docs/slurm.md has the table.

use crate::module::{Action, Settings, Severity};
use crate::protocol::Several;
use crate::protocol::removed::{self, instead};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Longest `timeout=`, in seconds: sshd's own LoginGraceTime is 120.
const TIMEOUT_MAX: u64 = 60;
/// The arguments of `pam_slurm_adopt`. It takes their names and words in any case, and so do we: a
/// line that works there is to say the same here.
const THEIRS: [&str; 11] = [
    "action_no_jobs", "action_unknown", "action_adopt_failure", "action_generic_failure",
    "disable_x11", "ignore_root", "join_container", "log_level", "nodename", "service",
    "single_job_skip_rpc",
];

/// An argument that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentError {
    /// The argument as it stands in the PAM configuration.
    pub argument: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "argument {}: {}", self.argument, self.why)
    }
}

impl std::error::Error for ArgumentError {}

type Parsed<T> = Result<T, &'static str>;

/// Reads the arguments of one line of a PAM stack.
///
/// # Errors
/// The first argument that is unknown, malformed, doubled, or at odds with another.
pub fn parse(arguments: &[String]) -> Result<Settings, ArgumentError> {
    let mut settings = Settings::default();
    let mut seen: Vec<&str> = Vec::new();
    for argument in arguments {
        let error = |why| ArgumentError { argument: argument.clone(), why };
        let (key, value) = match argument.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (argument.as_str(), None),
        };
        let key = THEIRS.into_iter().find(|name| name.eq_ignore_ascii_case(key)).unwrap_or(key);
        if seen.contains(&key) {
            return Err(error("is given twice"));
        }
        seen.push(key);
        if let Some(why) = instead(removed::ARGUMENTS, key) {
            return Err(error(why));
        }
        apply(&mut settings, key, value).map_err(error)?;
    }
    if settings.wait_job >= settings.timeout {
        let argument = format!("wait_job={}", settings.wait_job.as_secs());
        return Err(ArgumentError { argument, why: "must be less than timeout" });
    }
    Ok(settings)
}

fn apply(settings: &mut Settings, key: &str, value: Option<&str>) -> Parsed<()> {
    match (key, value) {
        ("require_devices", None) => settings.require_devices = true,
        ("observe", None) => settings.observe = true,
        ("debug", None) => settings.log_level = Severity::Debug,
        ("require_devices" | "observe" | "debug", Some(_)) => return Err("takes no value"),
        (_, Some(value)) => apply_value(settings, key, value)?,
        (_, None) => return Err("is unknown, or lacks its value"),
    }
    Ok(())
}

fn apply_value(settings: &mut Settings, key: &str, value: &str) -> Parsed<()> {
    match key {
        "action_no_jobs" => settings.no_jobs = action(value, &["deny", "ignore"])?,
        "action_unknown" => settings.several = several(value)?,
        "action_adopt_failure" => settings.adopt_failure = action(value, &["deny", "allow"])?,
        "action_generic_failure" => {
            settings.generic_failure = action(value, &["deny", "ignore", "allow"])?;
        }
        "disable_x11" => only(value, "1", X11)?,
        "ignore_root" => only(value, "1", ROOT)?,
        "join_container" => only(value, "false", CONTAINER)?,
        "single_job_skip_rpc" => only(value, "1", CALLER)?,
        "service" => settings.service = Some(service(value)?),
        "nodename" => settings.node = Some(word(value)?),
        "log_level" => settings.log_level = log_level(value)?,
        "helper" => settings.helper = path(value)?,
        "conf" => settings.conf = path(value)?,
        "timeout" => settings.timeout = seconds(value, 1)?,
        "wait_job" => settings.wait_job = seconds(value, 0)?,
        "exempt_uids" => settings.exempt_uids = list(value, NUMBERS)?,
        "exempt_groups" => settings.exempt_groups = list(value, LIST)?,
        _ => return Err("is unknown"),
    }
    Ok(())
}

/// Why the opposite of what the module does is refused, and what to write instead.
const X11: &str =
    "logins are not given the job's X11 display; write disable_x11=1, or leave it out";
const ROOT: &str = "root is never judged; write ignore_root=1, or leave it out";
const CONTAINER: &str = "logins do not join the job's namespaces in this version; write \
                         join_container=false, or leave it out";
const CALLER: &str = "with one job there is nothing to ask the connection's host; write \
                      single_job_skip_rpc=1, or leave it out";

/// An argument of which one value alone is what the module does.
fn only(value: &str, done: &str, why: &'static str) -> Parsed<()> {
    if value.eq_ignore_ascii_case(done) { Ok(()) } else { Err(why) }
}

fn action(value: &str, allowed: &[&str]) -> Parsed<Action> {
    match value.to_ascii_lowercase().as_str() {
        "deny" => Ok(Action::Deny),
        "ignore" if allowed.contains(&"ignore") => Ok(Action::Ignore),
        "allow" if allowed.contains(&"allow") => Ok(Action::Allow),
        _ if allowed.contains(&"allow") && allowed.contains(&"ignore") => {
            Err("is one of deny, ignore, allow")
        }
        _ if allowed.contains(&"allow") => Err("is one of deny, allow"),
        _ => Err("is one of deny, ignore"),
    }
}

fn several(value: &str) -> Parsed<Several> {
    match value.to_ascii_lowercase().as_str() {
        "newest" => Ok(Several::Newest),
        "deny" => Ok(Several::Deny),
        "allow" => Err("would admit a login into no job at all; use newest or deny"),
        _ => Err("is one of newest, deny"),
    }
}

/// The names and numbers that `pam_slurm_adopt` takes, as syslog severities.
fn log_level(value: &str) -> Parsed<Severity> {
    match value.to_ascii_lowercase().as_str() {
        "quiet" | "0" => Ok(Severity::Alert),
        "fatal" | "1" | "error" | "2" => Ok(Severity::Error),
        "info" | "3" => Ok(Severity::Info),
        "verbose" | "4" | "debug" | "5" | "debug2" | "6" | "debug3" | "7" | "debug4" | "8"
        | "debug5" | "9" => Ok(Severity::Debug),
        _ => Err("is one of quiet, fatal, error, info, verbose, debug, debug2 to debug5, 0 to 9"),
    }
}

/// There `*` stands for every service; here it would judge su, sudo and cron as well. libpam has the
/// names of services in lower case.
fn service(value: &str) -> Parsed<String> {
    match value {
        "*" => Err("would judge every service of the node; name one, by default sshd"),
        _ => word(value).map(|name| name.to_ascii_lowercase()),
    }
}

fn word(value: &str) -> Parsed<String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    if !value.is_empty() && value.len() <= 255 && value.bytes().all(good) {
        Ok(value.to_owned())
    } else {
        Err("is no name of letters, digits, dot, dash, underscore and @")
    }
}

fn path(value: &str) -> Parsed<String> {
    if value.starts_with('/') && value.len() < 4096 && !value.chars().any(char::is_control) {
        Ok(value.to_owned())
    } else {
        Err("is no absolute path")
    }
}

fn seconds(value: &str, least: u64) -> Parsed<Duration> {
    match value.parse::<u64>() {
        Ok(number) if (least..=TIMEOUT_MAX).contains(&number) && is_decimal(value) => {
            Ok(Duration::from_secs(number))
        }
        _ => Err("is no whole number of seconds up to 60"),
    }
}

fn is_decimal(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_digit())
}

const LIST: &str = "is no comma-separated list without blanks and empty entries";
const NUMBERS: &str = "is no comma-separated list of numbers, without blanks and empty entries";

fn list<T: FromStr>(value: &str, wrong: &'static str) -> Parsed<Vec<T>> {
    value
        .split(',')
        .map(|item| match item.is_empty() || item.contains(char::is_whitespace) {
            true => Err(wrong),
            false => item.parse().map_err(|_| wrong),
        })
        .collect()
}

#[cfg(test)]
mod tests;
