//! What the admin set: the switch that turns the module off, and PAM arguments. These are all of
//! `pam_slurm_adopt`'s with safer defaults, and a few more.
//!
//! What is unknown, malformed or given twice is refused by name: a typo must not open a login. So is
//! what asks for something that this module does not do; docs/migrate.md has the differences.

use kernel::log::Severity;
use kernel::mounts::{PRIVATE_DIRS, can_be_private};
use nix::sys::stat::lstat;
use protocol::{
    AbsolutePath, CDI_ENV_ADVICE, CDI_GIDS_ADVICE, Reason, Request, SeveralJobsPolicy, string_enum,
};
use std::str::FromStr;
use std::time::Duration;

/// While root has this file there, every call of the module answers `PAM_IGNORE`.
pub const OFF: &str = "/run/job-adopt/off";

/// Whether the module is off. A file of anybody else's is no switch.
pub fn is_off() -> bool {
    lstat(OFF).is_ok_and(|stat| stat.st_uid == 0)
}

string_enum! {
    /// What becomes of a login that would be refused.
    Action {
        /// Refuse it.
        Deny = "deny",
        /// Leave it to the other modules of the stack.
        Ignore = "ignore",
        /// Let it in, outside the job.
        Allow = "allow",
    }
}
use Action::{Allow, Deny, Ignore};

/// What is read from the value of an argument, or the rest of the sentence that refuses it.
type Parsed<T> = Result<T, &'static str>;

/// An argument: whose it is, its name, and what it sets.
type Argument = (Origin, &'static str, fn(&mut Settings, Option<&str>) -> Parsed<()>);

#[derive(Clone, Copy, PartialEq)]
enum Origin {
    /// Of `pam_slurm_adopt`, which takes names and words in any case: a line that works there is to
    /// say the same here.
    Slurm,
    Ours,
}
use Origin::{Ours, Slurm};

/// Declares every argument once: those that have a setting, each with its type, default and parser,
/// those that have none, and what replaces those that were removed.
macro_rules! arguments {
    (
        settings { $($(#[$doc:meta])*
            $of:ident $name:literal $field:ident: $type:ty = $default:expr, $parse:expr;)* }
        others { $($other_of:ident $other:literal $set:expr;)* }
        removed { $($removed:literal $instead:expr;)* }
    ) => {
        /// The module's arguments, checked. See pam_job_adopt(8).
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
                let parse: fn(Option<&str>) -> Parsed<$type> = $parse;
                settings.$field = parse(value)?;
                Ok(())
            }),)*
            $(($other_of, $other, $set),)*
            $((Ours, $removed, |_, _| Err($instead)),)*
        ];
    };
}

arguments! {
    settings {
        /// Of users without a job here.
        Slurm "action_no_jobs" no_jobs: Action = Deny,
            |value| one_of(value, &[Deny, Ignore].map(said), "is one of deny, ignore");
        /// Of users with several jobs.
        Slurm "action_unknown" several: SeveralJobsPolicy = SeveralJobsPolicy::Newest, several;
        /// Where the login cannot join the job, or cannot be confined.
        Slurm "action_adopt_failure" adopt_failure: Action = Deny,
            |value| one_of(value, &[Deny, Allow].map(said), "is one of deny, allow");
        /// Where the node is at fault.
        Slurm "action_generic_failure" generic_failure: Action = Deny,
            |value| one_of(value, &Action::ALL.map(said), "is one of deny, ignore, allow");
        /// The only PAM service that is not ignored, in lower case; `sshd` unless given.
        Slurm "service" service: Option<String> = None, |value| service(value).map(Some);
        /// The node's name.
        Slurm "nodename" node: Option<String> = None, |value| word(value).map(Some);
        /// Lines less severe than this are not written.
        Slurm "log_level" log_level: Severity = Severity::Info, log_level;
        /// Path of the helper.
        Ours "helper" helper: String = "/usr/libexec/job-adopt/resolve".into(), path;
        /// Path of its configuration.
        Ours "conf" conf: String = Request::DEFAULT_CONF.into(), path;
        /// The time that a whole phase has.
        Ours "timeout" timeout: Duration = Duration::from_secs(5), |value| seconds(value, 1);
        /// How long "no job" is asked again.
        Ours "wait_job" wait_job: Duration = Duration::ZERO, |value| seconds(value, 0);
        /// Whether a job without device containment is refused.
        Ours "require_devices" require_devices: bool = false, flag;
        /// Whether logins are only written about.
        Ours "observe" observe: bool = false, flag;
        /// Whether a login joins the job's namespaces.
        Slurm "join_container" join_container: bool = true,
            |value| one_of(value, &[("true", true), ("false", false)], "is one of true, false");
        /// Whether the line only leaves the job's namespaces when the session is closed.
        Ours "close_only" close_only: bool = false, flag;
        /// Directories that jobs have to themselves.
        Ours "private_dirs" private_dirs: Vec<String> = PRIVATE_DIRS.map(String::from).into(),
            private_dirs;
        /// Whether it is not given the job's X11 display.
        Slurm "disable_x11" disable_x11: bool = false,
            |value| one_of(value, &[("1", true), ("0", false)], "is one of 0, 1");
        /// Users who are not judged.
        Ours "exempt_uids" exempt_uids: Vec<u32> = Vec::new(), |value| list(value, NUMBERS);
        /// Groups of such users.
        Ours "exempt_groups" exempt_groups: Vec<String> = Vec::new(), |value| list(value, LIST);
    }
    others {
        Ours "debug" |settings, value| {
            settings.log_level = flag(value).map(|_| Severity::Debug)?;
            Ok(())
        };
        Slurm "ignore_root" |_, value| one_of(value, &[("1", ())], ROOT);
        Slurm "single_job_skip_rpc" |_, value| one_of(value, &[("1", ())], CALLER);
    }
    removed {
        "cdi_env" CDI_ENV_ADVICE;
        "cdi_gids" CDI_GIDS_ADVICE;
    }
}

impl Settings {
    /// Reads the arguments of one line of a PAM stack.
    /// Errors: names the first that is unknown, malformed, doubled, or at odds with another.
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
            let (_, name, set) =
                ARGUMENTS.iter().find(is_named).ok_or_else(|| error("is unknown"))?;
            if seen.contains(name) {
                return Err(error("is given twice"));
            }
            seen.push(name);
            set(&mut settings, value).map_err(error)?;
        }
        match settings.wait_job < settings.timeout {
            true => Ok(settings),
            false => {
                let wait = settings.wait_job.as_secs();
                Err(format!("argument wait_job={wait}: must be less than timeout"))
            }
        }
    }

    /// What the admin wants for a refusal of this kind, and the argument that says so. A frozen
    /// job and a choice that is due are no failures: nothing opens them.
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
            Reason::Admitted | Reason::Suspended | Reason::ChoiceNeeded => (Action::Deny, ""),
        }
    }
}

/// Why the opposite of what the module does is refused, and what to write instead.
const ROOT: &str = "root is never judged; write ignore_root=1, or leave it out";
const CALLER: &str = "with one job there is nothing to ask the connection's host; write \
                      single_job_skip_rpc=1, or leave it out";

/// Longest `timeout=`, in seconds: sshd's own LoginGraceTime is 120.
const TIMEOUT_MAX: u64 = 60;
const LIST: &str = "is no comma-separated list without blanks and empty entries";
const NUMBERS: &str = "is no comma-separated list of numbers, without blanks and empty entries";

fn given(value: Option<&str>) -> Parsed<&str> {
    value.ok_or("lacks its value")
}

/// An argument that has no value.
fn flag(value: Option<&str>) -> Parsed<bool> {
    if value.is_none() { Ok(true) } else { Err("takes no value") }
}

/// What one of these words stands for, in any case; `why` is said of all others.
fn one_of<T: Copy>(value: Option<&str>, words: &[(&str, T)], why: &'static str) -> Parsed<T> {
    let value = given(value)?;
    let found = words.iter().find(|(word, _)| value.eq_ignore_ascii_case(word));
    found.map(|(_, meant)| *meant).ok_or(why)
}

fn said(action: Action) -> (&'static str, Action) {
    (action.as_str(), action)
}

fn several(value: Option<&str>) -> Parsed<SeveralJobsPolicy> {
    match given(value)?.to_ascii_lowercase().as_str() {
        "allow" => Err("would admit a login into no job at all; use newest or deny"),
        word => word.parse().map_err(|_| "is one of newest, deny"),
    }
}

/// The names and numbers that `pam_slurm_adopt` takes, as syslog severities.
fn log_level(value: Option<&str>) -> Parsed<Severity> {
    match given(value)?.to_ascii_lowercase().as_str() {
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
fn service(value: Option<&str>) -> Parsed<String> {
    match value {
        Some("*") => Err("would judge every service of the node; name one, by default sshd"),
        _ => word(value).map(|name| name.to_ascii_lowercase()),
    }
}

fn word(value: Option<&str>) -> Parsed<String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    match given(value)? {
        value if (1..=255).contains(&value.len()) && value.bytes().all(good) => Ok(value.into()),
        _ => Err("is no name of letters, digits, dot, dash, underscore and @"),
    }
}

fn path(value: Option<&str>) -> Parsed<String> {
    match given(value)? {
        path if path.starts_with('/') && path.len() < 4096 && !path.contains(char::is_control) => {
            Ok(path.into())
        }
        _ => Err("is no absolute path"),
    }
}

/// Names go into no table of the kernel's with escapes.
fn private_dirs(value: Option<&str>) -> Parsed<Vec<String>> {
    let dirs: Vec<String> = list(value, LIST)?;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\' && byte != b'#';
    let is_good = |dir: &String| {
        let path = dir.parse::<AbsolutePath>();
        path.is_ok() && dir.bytes().all(is_plain) && can_be_private(dir)
    };
    match dirs.iter().all(is_good) {
        true => Ok(dirs),
        false => Err("is no list of absolute directories without the node's own files"),
    }
}

fn seconds(value: Option<&str>, least: u64) -> Parsed<Duration> {
    let value = given(value)?;
    let number = value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok());
    let seconds = number.flatten().filter(|seconds| (least..=TIMEOUT_MAX).contains(seconds));
    seconds.map(Duration::from_secs).ok_or("is no whole number of seconds up to 60")
}

fn list<T: FromStr>(value: Option<&str>, why: &'static str) -> Parsed<Vec<T>> {
    let entry = |text: &str| match text.is_empty() || text.contains(char::is_whitespace) {
        true => Err(why),
        false => text.parse().map_err(|_| why),
    };
    given(value)?.split(',').map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Settings, String> {
        let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Settings::parse(&arguments)
    }

    /// What is said of a line that is wrong.
    fn why(text: &str) -> String {
        parsed(text).unwrap_err()
    }

    #[test]
    fn defaults_deny() {
        let settings = parsed("").unwrap();
        assert_eq!(settings, Settings::default());
        assert_eq!(settings.no_jobs, Action::Deny);
        assert_eq!(settings.adopt_failure, Action::Deny);
        assert_eq!(settings.generic_failure, Action::Deny);
        assert_eq!(settings.service, None);
        assert_eq!((settings.timeout, settings.wait_job), (Duration::from_secs(5), Duration::ZERO));
    }

    #[test]
    fn every_argument_is_taken() {
        let settings = parsed(
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
        assert_eq!((settings.helper.as_str(), settings.conf.as_str()), ("/h", "/c"));
        assert_eq!(settings.timeout, Duration::from_secs(9));
        assert_eq!(settings.wait_job, Duration::from_secs(8));
        assert!(settings.require_devices && settings.observe);
        assert!(settings.disable_x11 && !settings.join_container);
        assert!(settings.close_only);
        assert_eq!(settings.private_dirs, ["/a", "/b/c"]);
        assert_eq!(settings.exempt_uids, [5, 6]);
        assert_eq!(settings.exempt_groups, ["wheel", "ops"]);
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
            "close_only=1",
            "exempt_uids=",
            "exempt_uids=1,",
            "exempt_uids=-1",
            "exempt_uids=root",
            "exempt_groups=,",
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
            assert!(error.starts_with(&format!("argument {argument}: ")), "{error}");
        }
        assert_eq!(why("observe observe"), "argument observe: is given twice");
        assert_eq!(why("service=a SERVICE=b"), "argument SERVICE=b: is given twice");
        assert_eq!(why("timeout=5 timeout=6"), "argument timeout=6: is given twice");
        assert_eq!(why("conf"), "argument conf: lacks its value");
    }

    #[test]
    fn what_pam_slurm_adopt_is_told_and_we_do_anyway_changes_nothing() {
        let same = parsed("disable_x11=0 ignore_root=1 join_container=true single_job_skip_rpc=1");
        assert_eq!(same.unwrap(), Settings::default());
    }

    #[test]
    fn its_arguments_are_taken_in_any_case_and_its_levels_by_number() {
        let settings =
            parsed("Action_No_Jobs=IGNORE action_unknown=Newest JOIN_CONTAINER=False log_level=2");
        let settings = settings.unwrap();
        assert_eq!(
            (settings.no_jobs, settings.several),
            (Action::Ignore, SeveralJobsPolicy::Newest)
        );
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
            ("ignore_root=0", "ignore_root=1"),
            ("single_job_skip_rpc=0", "single_job_skip_rpc=1"),
            ("action_unknown=allow", "newest or deny"),
            ("service=*", "name one"),
        ] {
            let why = why(argument);
            assert!(why.contains(way_out), "{argument}: {why}");
        }
    }

    #[test]
    fn every_removed_argument_is_refused_with_its_replacement() {
        for (argument, instead) in [("cdi_env", CDI_ENV_ADVICE), ("cdi_gids", CDI_GIDS_ADVICE)] {
            for written in [argument.to_owned(), format!("{argument}=1")] {
                assert_eq!(why(&written), format!("argument {written}: {instead}"));
            }
        }
    }
}
