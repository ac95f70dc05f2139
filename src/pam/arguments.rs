//! The module's arguments: all of `pam_slurm_adopt`'s with safer defaults, and a few more. What is
//! unknown, malformed or given twice is refused by name: a typo must not open a login. So is what
//! asks for something that this module does not do; docs/slurm.md has the table.

use crate::plan::{MAX_GROUPS, MAX_VARIABLES, Several, VariableError, VariableName};
use crate::session::{Action, Settings, Severity};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Longest `timeout=`, in seconds: sshd's own LoginGraceTime is 120.
const TIMEOUT_MAX: u64 = 60;
/// The arguments of `pam_slurm_adopt`. It takes their names and words in any case, and so do we: a
/// line that works there is to say the same here.
const THEIRS: [&str; 11] = [
    "action_no_jobs",
    "action_unknown",
    "action_adopt_failure",
    "action_generic_failure",
    "disable_x11",
    "ignore_root",
    "join_container",
    "log_level",
    "nodename",
    "service",
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
        "service" => settings.service = service(value)?,
        "nodename" => settings.node = Some(word(value)?),
        "log_level" => settings.log_level = log_level(value)?,
        "helper" => settings.helper = path(value)?,
        "conf" => settings.conf = path(value)?,
        "timeout" => settings.timeout = seconds(value, 1)?,
        "wait_job" => settings.wait_job = seconds(value, 0)?,
        "exempt_uids" => settings.exempt_uids = list(value)?,
        "exempt_groups" => settings.exempt_groups = list(value)?,
        "cdi_env" => settings.cdi_env = variables(value)?,
        "cdi_gids" => settings.cdi_gids = at_most(MAX_GROUPS, list(value)?)?,
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
const CALLER: &str = "the host that a connection comes from is not asked in this version; write \
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

/// There `*` stands for every service; here it would judge su, sudo and cron as well.
fn service(value: &str) -> Parsed<String> {
    match value {
        "*" => Err("would judge every service of the node; name one, by default sshd"),
        _ => word(value),
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

fn list<T: FromStr>(value: &str) -> Parsed<Vec<T>> {
    let wrong = "is no comma-separated list without blanks and empty entries";
    value
        .split(',')
        .map(|item| match item.is_empty() || item.contains(char::is_whitespace) {
            true => Err(wrong),
            false => item.parse().map_err(|_| wrong),
        })
        .collect()
}

fn variables(value: &str) -> Parsed<Vec<VariableName>> {
    let name = |name: &String| match name.parse() {
        Err(VariableError::Never) => Err("names a variable that decides what programs run"),
        other => other.map_err(|_| "has an entry that is no name of a variable"),
    };
    at_most(MAX_VARIABLES, list::<String>(value)?.iter().map(name).collect::<Parsed<_>>()?)
}

fn at_most<T>(most: usize, list: Vec<T>) -> Parsed<Vec<T>> {
    if list.len() > most { Err("has more entries than one login is given") } else { Ok(list) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Settings, ArgumentError> {
        let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        parse(&arguments)
    }

    #[test]
    fn defaults_deny() {
        let settings = parsed("").unwrap();
        assert_eq!(settings, Settings::default());
        assert_eq!(settings.no_jobs, Action::Deny);
        assert_eq!(settings.adopt_failure, Action::Deny);
        assert_eq!(settings.generic_failure, Action::Deny);
        assert_eq!(settings.service, "sshd");
    }

    #[test]
    fn every_argument_is_taken() {
        let settings = parsed(
            "action_no_jobs=ignore action_unknown=deny action_adopt_failure=allow \
             action_generic_failure=ignore service=ssh-alt nodename=gpu017 log_level=debug2 \
             helper=/h conf=/c timeout=9 wait_job=8 require_devices observe exempt_uids=5,6 \
             exempt_groups=wheel,ops cdi_env=A,B_1 cdi_gids=44,105",
        )
        .unwrap();
        assert_eq!(settings.no_jobs, Action::Ignore);
        assert_eq!(settings.several, Several::Deny);
        assert_eq!(settings.adopt_failure, Action::Allow);
        assert_eq!(settings.generic_failure, Action::Ignore);
        assert_eq!(settings.service, "ssh-alt");
        assert_eq!(settings.node.as_deref(), Some("gpu017"));
        assert_eq!(settings.log_level, Severity::Debug);
        assert_eq!((settings.helper.as_str(), settings.conf.as_str()), ("/h", "/c"));
        assert_eq!(settings.timeout, Duration::from_secs(9));
        assert_eq!(settings.wait_job, Duration::from_secs(8));
        assert!(settings.require_devices && settings.observe);
        assert_eq!(settings.exempt_uids, [5, 6]);
        assert_eq!(settings.exempt_groups, ["wheel", "ops"]);
        let names: Vec<_> = settings.cdi_env.iter().map(VariableName::as_str).collect();
        assert_eq!(names, ["A", "B_1"]);
        let numbers: Vec<_> = settings.cdi_gids.iter().map(|group| group.number()).collect();
        assert_eq!(numbers, [44, 105]);
    }

    #[test]
    fn mistakes_are_refused_by_name() {
        for argument in [
            "action_no_job=deny",
            "action_no_jobs",
            "action_no_jobs=",
            "action_no_jobs=allow",
            "action_no_jobs=denied",
            "Observe",
            "CONF=/c",
            "disable_x11=0",
            "disable_x11=10",
            "ignore_root=0",
            "join_container=true",
            "join_container=",
            "single_job_skip_rpc=0",
            "service=*",
            "log_level=10",
            "log_level=0x3",
            "action_unknown=allow",
            "action_unknown=ignore",
            "action_adopt_failure=ignore",
            "action_generic_failure=maybe",
            "service=",
            "service=a/b",
            "nodename=a,b",
            "log_level=loud",
            "helper=resolve",
            "conf=",
            "timeout=0",
            "timeout=61",
            "timeout=-1",
            "timeout=+1",
            "timeout=5s",
            "wait_job=5",
            "require_devices=1",
            "observe=no",
            "debug=1",
            "exempt_uids=",
            "exempt_uids=1,",
            "exempt_uids=-1",
            "exempt_uids=root",
            "exempt_groups=,",
            "cdi_env=",
            "cdi_env=A,LD_PRELOAD",
            "cdi_env=A-B",
            "cdi_gids=0",
            "cdi_gids=44,0",
            "cdi_gids=video",
            "cdi_gids=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17",
            "nonsense",
            "",
            "=",
            "\u{fffd}",
        ] {
            let error = parse(&[argument.to_owned()]).unwrap_err();
            assert_eq!(error.argument, argument);
        }
        assert_eq!(parsed("observe observe").unwrap_err().why, "is given twice");
        assert_eq!(parsed("service=a SERVICE=b").unwrap_err().why, "is given twice");
        assert_eq!(parsed("timeout=5 timeout=6").unwrap_err().why, "is given twice");
    }

    #[test]
    fn what_pam_slurm_adopt_is_told_and_we_do_anyway_changes_nothing() {
        let same = parsed("disable_x11=1 ignore_root=1 join_container=false single_job_skip_rpc=1");
        assert_eq!(same.unwrap(), Settings::default());
    }

    #[test]
    fn its_arguments_are_taken_in_any_case_and_its_levels_by_number() {
        let settings =
            parsed("Action_No_Jobs=IGNORE action_unknown=Newest JOIN_CONTAINER=False log_level=2");
        let settings = settings.unwrap();
        assert_eq!((settings.no_jobs, settings.several), (Action::Ignore, Several::Newest));
        assert_eq!(settings.log_level, Severity::Error);
        assert_eq!(parsed("log_level=DEBUG5").unwrap().log_level, Severity::Debug);
        for (words, severity) in [
            ("quiet 0", Severity::Alert),
            ("fatal 1 error 2", Severity::Error),
            ("info 3", Severity::Info),
            ("verbose 4 debug 5 debug2 6 debug3 7 debug4 8 debug5 9", Severity::Debug),
        ] {
            for word in words.split(' ') {
                let level = parsed(&format!("log_level={word}")).unwrap().log_level;
                assert_eq!(level, severity, "{word}");
            }
        }
        assert_eq!(parsed("nodename=GPU017").unwrap().node.as_deref(), Some("GPU017"));
    }

    #[test]
    fn what_we_do_not_do_is_refused_with_the_way_out() {
        for (argument, way_out) in [
            ("disable_x11=0", "disable_x11=1"),
            ("ignore_root=0", "ignore_root=1"),
            ("join_container=true", "join_container=false"),
            ("single_job_skip_rpc=0", "single_job_skip_rpc=1"),
            ("action_unknown=allow", "newest or deny"),
            ("service=*", "name one"),
        ] {
            let why = parsed(argument).unwrap_err().why;
            assert!(why.contains(way_out), "{argument}: {why}");
        }
    }
}
