//! The admin's settings: the switch that turns the module off, and the PAM arguments. These are all
//! arguments of `pam_slurm_adopt` with safer defaults, and a few more.
//!
//! An unknown, malformed or doubled argument is refused by name: a typo must not open a login. The
//! same holds for a request that this module does not implement; docs/migrate.md has the
//! differences.

use kernel::log::Severity;
use kernel::mounts::{PRIVATE_DIRS, can_be_private};
use nix::sys::stat::lstat;
use protocol::{AbsolutePath, Reason, Request, SeveralJobsPolicy, string_enum};
use std::str::FromStr;
use std::time::Duration;

/// Path of the switch: while root owns a file there, every call of the module returns `PAM_IGNORE`.
pub const OFF_SWITCH_PATH: &str = "/run/job-adopt/off";

/// Whether the module is off: [`OFF_SWITCH_PATH`] is root's. A file of another owner does not count.
pub fn is_off() -> bool {
    lstat(OFF_SWITCH_PATH).is_ok_and(|stat| stat.st_uid == 0)
}

string_enum! {
    /// The treatment of a login that would be refused.
    Action {
        /// The login is refused.
        Deny = "deny",
        /// The other modules of the stack decide.
        Ignore = "ignore",
        /// The login is admitted, outside the job.
        Allow = "allow",
    }
}
use Action::{Allow, Deny, Ignore};

/// The value of an argument, or the fault that follows its name in the error.
type ParseResult<T> = Result<T, &'static str>;

/// An argument: its origin, its name, and a function that stores its value.
type Argument = (
    ArgumentOrigin,
    &'static str,
    fn(&mut Settings, Option<&str>) -> ParseResult<()>,
);

/// The module that defined an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentOrigin {
    /// `pam_slurm_adopt`, which accepts names and words in any case: a line for it must mean the
    /// same here.
    Slurm,
    /// This module.
    Ours,
}
use ArgumentOrigin::{Ours, Slurm};

/// Declares every argument once: `settings` have a type, a default and a parser, `others` only a
/// function.
///
/// It expands to the struct `Settings` with a public field for each setting, to its `Default`, and
/// to the table `ARGUMENTS`.
macro_rules! arguments {
    (
        settings { $($(#[$doc:meta])*
            $of:ident $name:literal $field:ident: $type:ty = $default:expr, $parse:expr;)* }
        others { $($other_of:ident $other:literal $set:expr;)* }
    ) => {
        /// The module's arguments after their check; see pam_job_adopt(8).
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Settings {
            $(#[doc = concat!("`", $name, "`")] $(#[$doc])* pub $field: $type,)*
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        const ARGUMENTS: &[Argument] = &[
            $(($of, $name, |settings, value| {
                let parse: fn(Option<&str>) -> ParseResult<$type> = $parse;
                settings.$field = parse(value)?;
                Ok(())
            }),)*
            $(($other_of, $other, $set),)*
        ];
    };
}

arguments! {
    settings {
        /// The action for users without a job here.
        Slurm "action_no_jobs" no_jobs: Action = Deny,
            |value| parse_one_of(value, &[Deny, Ignore].map(action_word), "is one of deny, ignore");
        /// The policy for users with several jobs.
        Slurm "action_unknown" several: SeveralJobsPolicy = SeveralJobsPolicy::Newest,
            parse_several;
        /// The action if the login cannot join the job, or cannot be confined.
        Slurm "action_adopt_failure" adopt_failure: Action = Deny,
            |value| parse_one_of(value, &[Deny, Allow].map(action_word), "is one of deny, allow");
        /// The action after a fault of the node.
        Slurm "action_generic_failure" generic_failure: Action = Deny,
            |value| {
                parse_one_of(value, &Action::ALL.map(action_word), "is one of deny, ignore, allow")
            };
        /// The only PAM service that is not ignored, in lower case; `sshd` unless given.
        Slurm "service" service: Option<String> = None, |value| parse_service(value).map(Some);
        /// The node's name.
        Slurm "nodename" node: Option<String> = None, |value| parse_name(value).map(Some);
        /// The minimum severity of log lines.
        Slurm "log_level" log_level: Severity = Severity::Info, parse_log_level;
        /// The path of the helper.
        Ours "helper" helper: String = "/usr/libexec/job-adopt/helper".into(), parse_path;
        /// The path of the helper's configuration.
        Ours "conf" conf: String = Request::DEFAULT_CONF.into(), parse_path;
        /// The time for a whole phase.
        Ours "timeout" timeout: Duration = Duration::from_secs(5), |value| parse_seconds(value, 1);
        /// How long to repeat the query while the user has no job.
        Ours "wait_job" wait_job: Duration = Duration::ZERO, |value| parse_seconds(value, 0);
        /// Refuses jobs without device containment.
        Ours "require_devices" require_devices: bool = false, parse_flag;
        /// Only logs the decisions about logins.
        Ours "observe" observe: bool = false, parse_flag;
        /// Makes a login join the job's namespaces.
        Slurm "join_container" join_container: bool = true,
            |value| {
                parse_one_of(value, &[("true", true), ("false", false)], "is one of true, false")
            };
        /// Makes the line do nothing. It once left the job's namespaces when the session closed.
        Ours "close_only" close_only: bool = false, parse_flag;
        /// Directories that are private to each job.
        Ours "private_dirs" private_dirs: Vec<String> = PRIVATE_DIRS.map(String::from).into(),
            parse_private_dirs;
        /// Keeps the job's X11 display from the login.
        Slurm "disable_x11" disable_x11: bool = false,
            |value| parse_one_of(value, &[("1", true), ("0", false)], "is one of 0, 1");
        /// Users whose logins this module ignores.
        Ours "exempt_uids" exempt_uids: Vec<u32> = Vec::new(),
            |value| parse_list(value, NUMBERS_FAULT);
        /// Takes exempt users into their jobs, and lets them in outside if that fails.
        Ours "exempt_join" exempt_join: bool = false, parse_flag;
        /// Groups whose users' logins this module ignores.
        Ours "exempt_groups" exempt_groups: Vec<String> = Vec::new(), parse_groups;
    }
    others {
        Ours "debug" |settings, value| {
            settings.log_level = parse_flag(value).map(|_| Severity::Debug)?;
            Ok(())
        };
        Slurm "ignore_root" |_, value| parse_one_of(value, &[("1", ())], IGNORE_ROOT_FAULT);
        Slurm "single_job_skip_rpc" |_, value| parse_one_of(value, &[("1", ())], SKIP_RPC_FAULT);
    }
}

impl Settings {
    /// The names of all arguments of this origin, in the order of their declaration.
    pub fn names(origin: ArgumentOrigin) -> impl Iterator<Item = &'static str> {
        ARGUMENTS
            .iter()
            .filter(move |(of, ..)| *of == origin)
            .map(|(_, name, _)| *name)
    }

    /// Parses the arguments of one line of a PAM stack, as libpam has split it.
    ///
    /// # Errors
    ///
    /// A text with the first argument that is unknown, malformed, doubled, or in conflict with
    /// another.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut settings = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for argument in arguments {
            let error = |why| format!("argument {argument}: {why}");
            let (key, value) = match argument.split_once('=') {
                Some((key, value)) => (key, Some(value)),
                None => (argument.as_str(), None),
            };
            let is_named = |(origin, name, _): &&Argument| {
                *name == key || *origin == Slurm && name.eq_ignore_ascii_case(key)
            };
            let (_, name, set) = ARGUMENTS
                .iter()
                .find(is_named)
                .ok_or_else(|| error("is unknown"))?;
            if seen.contains(name) {
                return Err(error("is given twice"));
            }
            seen.push(name);
            set(&mut settings, value).map_err(error)?;
        }
        if settings.wait_job >= settings.timeout {
            let wait = settings.wait_job.as_secs();
            return Err(format!(
                "argument wait_job={wait}: must be less than timeout"
            ));
        }
        Ok(settings)
    }

    /// The admin's action for a refusal with this code, and the `action_*` argument that sets
    /// it, which is empty if none does: a frozen job, one that takes no logins, and a missing choice are no failures.
    /// Exemptions and `observe` are applied elsewhere (`decide.rs`).
    pub fn action(&self, reason: Reason) -> (Action, &'static str) {
        match reason {
            Reason::NoJob | Reason::Starting | Reason::Ended | Reason::NoScheduler => {
                (self.no_jobs, "action_no_jobs")
            }
            Reason::CannotConfine | Reason::AdoptionFailed | Reason::DeviceUnknown => {
                (self.adopt_failure, "action_adopt_failure")
            }
            Reason::Timeout | Reason::Configuration => {
                (self.generic_failure, "action_generic_failure")
            }
            Reason::Admitted | Reason::Suspended | Reason::ChoiceNeeded | Reason::LoginsClosed => {
                (Action::Deny, "")
            }
        }
    }
}

/// Faults of a request for the opposite of what the module does, with the remedy.
const IGNORE_ROOT_FAULT: &str = "root is never judged; write ignore_root=1, or leave it out";
const SKIP_RPC_FAULT: &str = "with one job there is nothing to ask the connection's host; write \
                      single_job_skip_rpc=1, or leave it out";

/// Maximum of `timeout=`: sshd's own LoginGraceTime is 120 seconds.
const TIMEOUT_SECONDS_MAX: u64 = 60;
const LIST_FAULT: &str = "is no comma-separated list without blanks and empty entries";
const GROUPS_FAULT: &str =
    "is no comma-separated list of names without blanks around them and empty entries";
const NUMBERS_FAULT: &str =
    "is no comma-separated list of numbers, without blanks and empty entries";

/// Requires that an argument has a value.
fn require_value(value: Option<&str>) -> ParseResult<&str> {
    value.ok_or("lacks its value")
}

/// Parses an argument without a value.
fn parse_flag(value: Option<&str>) -> ParseResult<bool> {
    if value.is_none() {
        Ok(true)
    } else {
        Err("takes no value")
    }
}

/// Returns the meaning of one of these words, in any case; `fault` for all others.
fn parse_one_of<T: Copy>(
    value: Option<&str>,
    words: &[(&str, T)],
    fault: &'static str,
) -> ParseResult<T> {
    let value = require_value(value)?;
    let entry = words
        .iter()
        .find(|(word, _)| value.eq_ignore_ascii_case(word));
    entry.map(|(_, meaning)| *meaning).ok_or(fault)
}

/// The word of an action and its meaning, for [`parse_one_of`].
fn action_word(action: Action) -> (&'static str, Action) {
    (action.as_str(), action)
}

/// Parses the policy for users with several jobs. It refuses `allow` of `pam_slurm_adopt`, which would admit a login
/// into no job.
fn parse_several(value: Option<&str>) -> ParseResult<SeveralJobsPolicy> {
    match require_value(value)?.to_ascii_lowercase().as_str() {
        "allow" => Err("would admit a login into no job at all; use newest or deny"),
        word => word.parse().map_err(|_| "is one of newest, deny"),
    }
}

/// Converts the names and numbers of `pam_slurm_adopt` to syslog severities.
fn parse_log_level(value: Option<&str>) -> ParseResult<Severity> {
    match require_value(value)?.to_ascii_lowercase().as_str() {
        "quiet" | "0" => Ok(Severity::Alert),
        "fatal" | "1" | "error" | "2" => Ok(Severity::Error),
        "info" | "3" => Ok(Severity::Info),
        "verbose" | "4" | "debug" | "5" | "debug2" | "6" | "debug3" | "7" | "debug4" | "8"
        | "debug5" | "9" => Ok(Severity::Debug),
        _ => Err("is one of quiet, fatal, error, info, verbose, debug, debug2 to debug5, 0 to 9"),
    }
}

/// Parses the name of a PAM service, which libpam has in lower case. It refuses `*`, with which
/// `pam_slurm_adopt` means every service: that would include su, sudo and cron. It refuses a list too: each service has
/// a file of its own, so only a line in a file of many services would need one.
fn parse_service(value: Option<&str>) -> ParseResult<String> {
    match value {
        Some("*") => Err("would judge every service of the node; name one, by default sshd"),
        Some(names) if names.contains(',') => {
            Err("names one service; each sshd has lines of its own")
        }
        _ => parse_name(value).map(|name| name.to_ascii_lowercase()),
    }
}

/// Parses the name of a service or node: 1 to 255 letters, digits, dots, dashes, underscores and `@`.
fn parse_name(value: Option<&str>) -> ParseResult<String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    match require_value(value)? {
        value if (1..=255).contains(&value.len()) && value.bytes().all(is_allowed) => {
            Ok(value.into())
        }
        _ => Err("is no name of letters, digits, dot, dash, underscore and @"),
    }
}

/// Parses an absolute path of less than 4,096 bytes without control characters.
fn parse_path(value: Option<&str>) -> ParseResult<String> {
    match require_value(value)? {
        path if path.starts_with('/') && path.len() < 4096 && !path.contains(char::is_control) => {
            Ok(path.into())
        }
        _ => Err("is no absolute path"),
    }
}

/// Parses the private directories. A name must be the same in the kernel's mount table, which
/// escapes some characters.
fn parse_private_dirs(value: Option<&str>) -> ParseResult<Vec<String>> {
    let dirs: Vec<String> = parse_list(value, LIST_FAULT)?;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\' && byte != b'#';
    let is_allowed = |dir: &String| {
        let path = dir.parse::<AbsolutePath>();
        path.is_ok() && dir.bytes().all(is_plain) && can_be_private(dir)
    };
    if !dirs.iter().all(is_allowed) {
        return Err("is no list of absolute directories without the node's own files");
    }
    Ok(dirs)
}

/// Parses a whole number of seconds between `min` and [`TIMEOUT_SECONDS_MAX`].
fn parse_seconds(value: Option<&str>, min: u64) -> ParseResult<Duration> {
    let value = require_value(value)?;
    // A sign is no digit, although `parse` takes it.
    let has_digits_only = value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse() {
        Ok(seconds) if has_digits_only && (min..=TIMEOUT_SECONDS_MAX).contains(&seconds) => {
            Ok(Duration::from_secs(seconds))
        }
        _ => Err("is no whole number of seconds up to 60"),
    }
}

/// Parses a list of groups. Those of directories may have blanks in their names.
fn parse_groups(value: Option<&str>) -> ParseResult<Vec<String>> {
    let is_name =
        |name: &&str| !name.is_empty() && name.trim() == *name && !name.contains(char::is_control);
    let names: Vec<&str> = require_value(value)?.split(',').collect();
    if names.iter().all(is_name) {
        return Ok(names.into_iter().map(str::to_owned).collect());
    }
    Err(GROUPS_FAULT)
}

/// Parses a comma-separated list; returns `fault` for an entry that is empty, has blanks or is
/// invalid.
fn parse_list<T: FromStr>(value: Option<&str>, fault: &'static str) -> ParseResult<Vec<T>> {
    let mut entries = Vec::new();
    for text in require_value(value)?.split(',') {
        if text.is_empty() || text.contains(char::is_whitespace) {
            return Err(fault);
        }
        entries.push(text.parse().map_err(|_| fault)?);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, String> {
        let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Settings::parse(&arguments)
    }

    /// Returns the error of a wrong line.
    fn parse_error(text: &str) -> String {
        parse(text).unwrap_err()
    }

    #[test]
    fn defaults_deny() {
        let settings = parse("").unwrap();
        assert_eq!(settings, Settings::default());
        assert_eq!(settings.no_jobs, Action::Deny);
        assert_eq!(settings.adopt_failure, Action::Deny);
        assert_eq!(settings.generic_failure, Action::Deny);
        assert_eq!(settings.service, None);
        assert_eq!(
            (settings.timeout, settings.wait_job),
            (Duration::from_secs(5), Duration::ZERO)
        );
    }

    #[test]
    fn every_argument_is_parsed() {
        let settings = parse(
            "action_no_jobs=ignore action_unknown=deny action_adopt_failure=allow \
             action_generic_failure=ignore service=SSH-alt nodename=gpu017 log_level=debug2 \
             helper=/h conf=/c timeout=9 wait_job=8 require_devices observe exempt_uids=5,6 \
             exempt_groups=wheel,ops join_container=false disable_x11=1 private_dirs=/a,/b/c close_only",
        )
        .unwrap();
        assert_eq!(settings.no_jobs, Action::Ignore);
        assert_eq!(settings.several, SeveralJobsPolicy::Deny);
        assert_eq!(settings.adopt_failure, Action::Allow);
        assert_eq!(settings.generic_failure, Action::Ignore);
        assert_eq!(settings.service.as_deref(), Some("ssh-alt"));
        assert_eq!(settings.node.as_deref(), Some("gpu017"));
        assert_eq!(settings.log_level, Severity::Debug);
        assert_eq!(
            (settings.helper.as_str(), settings.conf.as_str()),
            ("/h", "/c")
        );
        assert_eq!(settings.timeout, Duration::from_secs(9));
        assert_eq!(settings.wait_job, Duration::from_secs(8));
        assert!(settings.require_devices && settings.observe);
        assert!(settings.disable_x11 && !settings.join_container);
        assert!(settings.close_only);
        assert_eq!(settings.private_dirs, ["/a", "/b/c"]);
        assert_eq!(settings.exempt_uids, [5, 6]);
        assert_eq!(settings.exempt_groups, ["wheel", "ops"]);
        let groups = ["exempt_groups=hpc admins@ad.example,ops".to_owned()];
        let with_blank = Settings::parse(&groups).unwrap();
        assert_eq!(with_blank.exempt_groups, ["hpc admins@ad.example", "ops"]);
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
            "disable_x11=true",
            "disable_x11=10",
            "ignore_root=0",
            "join_container=1",
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
            "helper=helper",
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
            "close_only=1",
            "exempt_uids=",
            "exempt_uids=1,",
            "exempt_uids=-1",
            "exempt_uids=root",
            "exempt_groups=,",
            "exempt_groups= ops",
            "exempt_groups=ops, hpc",
            "exempt_groups=ops\thpc",
            "private_dirs=",
            "private_dirs=tmp",
            "private_dirs=/",
            "private_dirs=/tmp/",
            "private_dirs=/a/../etc",
            "private_dirs=/tmp,/etc/security",
            "private_dirs=/a\\040b",
            "nonsense",
            "",
            "=",
            "\u{fffd}",
        ] {
            let error = Settings::parse(&[argument.to_owned()]).unwrap_err();
            assert!(
                error.starts_with(&format!("argument {argument}: ")),
                "{error}"
            );
        }
        assert_eq!(
            parse_error("observe observe"),
            "argument observe: is given twice"
        );
        assert_eq!(
            parse_error("service=a SERVICE=b"),
            "argument SERVICE=b: is given twice"
        );
        assert_eq!(
            parse_error("timeout=5 timeout=6"),
            "argument timeout=6: is given twice"
        );
        assert_eq!(parse_error("conf"), "argument conf: lacks its value");
    }

    #[test]
    fn arguments_for_the_only_behaviour_change_nothing() {
        let same = parse("disable_x11=0 ignore_root=1 join_container=true single_job_skip_rpc=1");
        assert_eq!(same.unwrap(), Settings::default());
    }

    #[test]
    fn arguments_of_pam_slurm_adopt_have_any_case_and_levels_by_number() {
        let settings =
            parse("Action_No_Jobs=IGNORE action_unknown=Newest JOIN_CONTAINER=False log_level=2");
        let settings = settings.unwrap();
        assert_eq!(
            (settings.no_jobs, settings.several),
            (Action::Ignore, SeveralJobsPolicy::Newest)
        );
        assert_eq!(settings.log_level, Severity::Error);
        assert_eq!(
            parse("log_level=DEBUG5").unwrap().log_level,
            Severity::Debug
        );
        for (words, severity) in [
            ("quiet 0", Severity::Alert),
            ("fatal 1 error 2", Severity::Error),
            ("info 3", Severity::Info),
            (
                "verbose 4 debug 5 debug2 6 debug3 7 debug4 8 debug5 9",
                Severity::Debug,
            ),
        ] {
            for word in words.split(' ') {
                let level = parse(&format!("log_level={word}")).unwrap().log_level;
                assert_eq!(level, severity, "{word}");
            }
        }
        assert_eq!(
            parse("nodename=GPU017").unwrap().node.as_deref(),
            Some("GPU017")
        );
    }

    #[test]
    fn unsupported_argument_of_pam_slurm_adopt_is_refused_with_its_replacement() {
        for (argument, replacement) in [
            ("ignore_root=0", "ignore_root=1"),
            ("single_job_skip_rpc=0", "single_job_skip_rpc=1"),
            ("action_unknown=allow", "newest or deny"),
            ("service=*", "name one"),
            ("service=sshd,su", "names one service"),
        ] {
            let why = parse_error(argument);
            assert!(why.contains(replacement), "{argument}: {why}");
        }
    }
}
