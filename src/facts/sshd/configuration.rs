//! The effective configuration of an sshd (`sshd -T`).

use super::penalties::Penalties;
use super::startups::Startups;
use crate::trusted_file::require_trusted;
use command::accounts::{find_user, read_uid_min};
use command::child_process::{QueryError, query_in_clean_environment};
use kernel::trust::{Trust, TrustError};
use nix::unistd::geteuid;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The effective configuration of an sshd, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
pub struct Configuration {
    /// It runs the modules of PAM (`UsePAM`).
    pub uses_pam: bool,
    /// Only accounts of the system may log in, such as a scheduler's.
    pub is_for_system: bool,
    /// The PAM service: `PAMServiceName` (OpenSSH 9.8), else the program's name.
    pub service: String,
    /// `None` before OpenSSH 9.8, which has none.
    pub penalties: Option<Penalties>,
    /// `None` if `sshd -T` does not say.
    pub startups: Option<Startups>,
    /// The file to which sshd writes its process id whenever it has read its configuration.
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) port: u16,
}

/// The reason why the configuration of an sshd cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// This process is not root.
    #[error("only root can ask it for its configuration (sshd -T)")]
    NotRoot,
    /// Others than root could write the program.
    #[error("runs as root, but {0}")]
    Distrusted(TrustError),
    /// sshd complains of the configuration.
    #[error("sshd -T fails, and so will its next start: {0}")]
    Rejected(String),
    /// sshd could not be run, or gave no answer in time.
    #[error("sshd -T gives no answer: {0}")]
    Unanswered(String),
}

/// Asks a program of sshd for its effective configuration with these options (`sshd -T`). It runs as root, so
/// only root may have written it.
pub(crate) fn read_configuration(
    program: &Path,
    options: &[String],
    name: Option<&str>,
) -> Result<Configuration, ConfigurationError> {
    if !geteuid().is_root() {
        return Err(ConfigurationError::NotRoot);
    }
    require_trusted(&Trust::root(), program).map_err(ConfigurationError::Distrusted)?;
    let mut answer = query_in_clean_environment(Command::new(program).arg("-T").args(options));
    if matches!(&answer, Err(QueryError::Failed { complaint, .. }) if complaint.contains(NO_PRIVSEP_DIR))
    {
        answer = query_beside_run(program, options);
    }
    match answer {
        Ok(text) => Ok(parse_configuration(&text, program, name)),
        Err(QueryError::Unanswered(why)) => Err(ConfigurationError::Unanswered(why)),
        Err(failure) => Err(ConfigurationError::Rejected(
            failure.to_string().replace(['\r', '\n'], " "),
        )),
    }
}

/// What `sshd -T` says without `/run/sshd`, which its unit makes at the first connection.
const NO_PRIVSEP_DIR: &str = "Missing privilege separation directory";

/// Asks sshd for its configuration in a mount namespace with a `/run` of its own, where the folder is.
fn query_beside_run(program: &Path, options: &[String]) -> Result<String, QueryError> {
    let script =
        "mount -t tmpfs -o mode=0755 tmpfs /run && mkdir -m 0755 /run/sshd && exec \"$@\" -T";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "sh", "-c", script, "sh"]);
    // sshd takes its other options in any order.
    query_in_clean_environment(command.arg(program).args(options))
}

/// Parses the output of `sshd -T`, which has a key in small letters and its value on each line. Of several ports
/// the first is taken, and without one sshd's own default.
pub fn parse_configuration(
    text: &str,
    program: &Path,
    started_name: Option<&str>,
) -> Configuration {
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines
            .find(|(name, _)| name.eq_ignore_ascii_case(key))
            .map(|(_, value)| value.trim())
    };
    let file_name = program.file_name().unwrap_or_default().to_string_lossy();
    let default_service = started_name.unwrap_or(&file_name);
    let exempt = value("persourcepenaltyexemptlist");
    Configuration {
        uses_pam: value("usepam") == Some("yes"),
        is_for_system: allows_system_only(text),
        service: value("pamservicename")
            .unwrap_or(default_service)
            .to_owned(),
        penalties: value("persourcepenalties").map(|value| Penalties::parse(value, exempt)),
        startups: value("maxstartups")
            .and_then(|max| Startups::parse(max, value("persourcemaxstartups"))),
        pid_file: value("pidfile")
            .filter(|file| *file != "none")
            .map(PathBuf::from),
        port: value("port")
            .and_then(|port| port.parse().ok())
            .unwrap_or(22),
    }
}

/// Checks in the output of `sshd -T` whether `AllowUsers` names accounts below `UID_MIN` only, without a pattern. It is
/// false without that key, since then everybody may log in.
fn allows_system_only(text: &str) -> bool {
    let mut users = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(key, _)| key.eq_ignore_ascii_case("allowusers"))
        .flat_map(|(_, users)| users.split_whitespace())
        .peekable();
    users.peek().is_some() && users.all(is_system_account)
}

/// Checks whether an entry of `AllowUsers` is an account of the system. A pattern names no account; a
/// host may follow the name.
fn is_system_account(entry: &str) -> bool {
    let account = find_user(entry.split('@').next().unwrap_or_default());
    account.is_ok_and(|user| user.is_some_and(|user| user.uid.as_raw() < read_uid_min()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_names_service_unless_configuration_does() {
        let program = Path::new("/opt/sshd-alt");
        let service = |text, name| parse_configuration(text, program, name).service;
        assert_eq!(service("usepam yes\n", None), "sshd-alt");
        assert_eq!(service("usepam yes\n", Some("hpcd")), "hpcd");
        assert_eq!(service("pamservicename x\n", Some("hpcd")), "x");
    }
}
