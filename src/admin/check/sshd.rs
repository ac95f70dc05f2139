//! Checks the sshd that listens: its configuration (`sshd -T`) must take logins through the service's
//! stack, and it must see the node as this process does.

use super::file_edit::FileEdit;
use super::finding::{Check, Finding, Severity};
use super::penalties::{Penalties, maps_v4_peers, maps_v4_peers_of_port};
use super::remedy::{Remedy, shell_word};
use super::server_process::{ServerProcess, process_object};
use super::service_unit::find_unit;
use super::site::{Site, root_processes, shares_namespace};
use super::sshd_command::{config_file, find_socket_command, read_command, read_started_name};
use super::sshd_config::ConfigFiles;
use super::sshd_match::judge_match_blocks;
use super::startups::{Startups, count_online_cores};
use super::trusted_file::{require_trusted, trust_remedy};
use crate::accounts::{find_user, read_uid_min};
use crate::child_process::{QueryError, query_in_clean_environment};
use crate::process::{is_sshd_process, read_process};
use crate::systemd;
use helper::jobs::sources::processes;
use helper::stack::FileLine;
use kernel::proc::Proc;
use kernel::trust::{Trust, TrustError};
use nix::unistd::geteuid;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The path of packages' sshd.
const DEFAULT_SSHD: &str = "/usr/sbin/sshd";
/// Process names of other servers than OpenSSH that take logins over the network.
const OTHER_SERVERS: [&str; 22] = [
    "cockpit-tls",
    "cockpit-ws",
    "dropbear",
    "in.rlogind",
    "in.rshd",
    "in.telnetd",
    "lshd",
    "nxserver.bin",
    "rlogind",
    "rserver",
    "shellinaboxd",
    "tailscaled",
    "teleport",
    "telnetd",
    "tinysshd",
    "tlwebaccess",
    "ttyd",
    "vncserver-x11-s",
    "vsmagent",
    "vsmserver",
    "xrdp",
    "xrdp-sesman",
];
/// Sockets of systemd that start such a server for each connection: between connections no process shows it.
const OTHER_SOCKETS: [&str; 5] = [
    "cockpit.socket",
    "dropbear.socket",
    "telnet.socket",
    "tinysshd.socket",
    "xrdp.socket",
];
/// What was found out about the servers that take logins.
#[derive(Debug)]
pub(super) struct SshdFacts {
    /// The service that is checked.
    service: String,
    servers: Vec<Server>,
    processes: Vec<ServerProcess>,
    /// Other servers of this node that take logins.
    others: Vec<String>,
}

impl SshdFacts {
    /// Reads each sshd that listens, with its configuration, and finds the servers other than sshd.
    pub(super) fn read(site: &Site) -> Self {
        let pids = list_servers();
        Self {
            service: site.service.clone(),
            servers: read_servers(&pids),
            processes: pids
                .into_iter()
                .map(|pid| ServerProcess::read(pid, site))
                .collect(),
            others: list_other_servers(),
        }
    }

    /// Judges each sshd, its configuration and its process, and warns of each other server.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let is_served = self
            .servers
            .iter()
            .any(|server| server.has_service(&self.service));
        let mut findings = Vec::new();
        for server in &self.servers {
            findings.extend(server.findings(&self.service, is_served));
        }
        for process in &self.processes {
            findings.extend(process.findings());
        }
        for object in &self.others {
            let text = "serves logins too, perhaps without our PAM lines";
            let remedy = "stop it, or let only operators reach it";
            findings.push(Finding::warning(Check::SshOthers, object, text, remedy));
        }
        findings
    }
}

/// Lists the other servers of this node that take logins: processes, and listening sockets of
/// systemd.
fn list_other_servers() -> Vec<String> {
    let mut others = Vec::new();
    for (name, pid) in root_processes(&OTHER_SERVERS) {
        others.push(format!("{name} (process {pid})"));
    }
    // systemd starts such a server for each connection to its socket.
    others.extend(systemd::list_active(&OTHER_SOCKETS));
    others
}

/// Lists every sshd of this node that listens.
pub(super) fn list_servers() -> Vec<i32> {
    let pids = processes::list_numbers(Path::new("/proc"))
        .into_iter()
        .flatten()
        .flatten();
    pids.filter(|pid| is_server(*pid) && is_here(*pid))
        .collect()
}

/// Checks whether a process is root's sshd that listens, not the sshd of a login.
fn is_server(pid: i32) -> bool {
    // `Process::is_sshd` is true for the sshd of a login alone.
    is_sshd_process(pid) && read_process(pid).is_some_and(|process| !process.is_sshd)
}

/// Checks whether a process is in this process's pid namespace, or may be because that cannot be read. An sshd
/// in a container serves another node.
fn is_here(pid: i32) -> bool {
    shares_namespace(&Proc::host(), pid, "pid") != Some(false)
}

/// The effective configuration of an sshd, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
struct Configuration {
    uses_pam: bool,
    /// Only accounts of the system may log in, such as a scheduler's.
    is_for_system: bool,
    /// The PAM service: `PAMServiceName` (OpenSSH 9.8), else the program's name.
    service: String,
    /// `None` before OpenSSH 9.8, which has none.
    penalties: Option<Penalties>,
    /// `None` if `sshd -T` does not say.
    startups: Option<Startups>,
    /// The file to which sshd writes its process id whenever it has read its configuration.
    pid_file: Option<PathBuf>,
    port: u16,
}

/// Servers that share a program and the options that change its configuration.
#[derive(Debug)]
struct Server {
    /// The command line.
    object: String,
    /// The main file of the configuration.
    file: PathBuf,
    files: ConfigFiles,
    configuration: Result<Configuration, ConfigurationError>,
    /// A file that was changed after a process read it, and the process.
    unread_change: Option<(PathBuf, i32)>,
    /// They see IPv4 peers as IPv6 addresses (see [`Penalties`]).
    peers_are_mapped: bool,
    /// The command by which all of the processes read their configuration anew; `None` if there are none.
    reload: Option<String>,
}

/// The reason why the configuration of an sshd cannot be read.
#[derive(Debug, thiserror::Error)]
enum ConfigurationError {
    #[error("only root can ask it for its configuration (sshd -T)")]
    NotRoot,
    #[error("runs as root, but {0}")]
    Distrusted(TrustError),
    #[error("sshd -T fails, and so will its next start: {0}")]
    Rejected(String),
    #[error("sshd -T gives no answer: {0}")]
    Unanswered(String),
}

impl ConfigurationError {
    /// Reports why the configuration of a server is not known.
    fn finding(&self, server: &Server) -> Finding {
        let (severity, remedy) = match self {
            Self::NotRoot => (Severity::Unknown, "run this as root".into()),
            Self::Distrusted(why) => (Severity::Error, trust_remedy(why)),
            Self::Rejected(why) => (Severity::Error, Server::correct(why)),
            Self::Unanswered(_) => (Severity::Unknown, "see what it says: sshd -T".into()),
        };
        Finding::new(severity, Check::SshdConfig, &server.object, self, remedy)
    }
}

/// Finds out when a server last read its configuration, in seconds and nanoseconds: when it wrote its process
/// id, which it does at each reload, or, without such a file, when it started. `None` if it has ended.
fn read_at(pid: i32, pid_file: Option<&Path>) -> Option<(i64, i64)> {
    if let Some(time) = pid_file.and_then(|file| written_at(file, pid)) {
        return Some(time);
    }
    // Boot time and ticks are rounded, each by up to a second.
    Some((processes::start_time(&Proc::host(), pid)? + 2, 0))
}

/// When a process wrote its number to a file; `None` if the file has another number.
fn written_at(file: &Path, pid: i32) -> Option<(i64, i64)> {
    let number: i32 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    if number != pid {
        return None;
    }
    let meta = fs::metadata(file).ok()?;
    Some((meta.mtime(), meta.mtime_nsec()))
}

/// Reads each configuration of the servers once, however many servers have it. If none listens, it reads that of
/// the packages' sshd, which systemd may start for each connection.
fn read_servers(pids: &[i32]) -> Vec<Server> {
    let mut commands = group_by_command(pids);
    if commands.is_empty() {
        let default = || Some((PathBuf::from(DEFAULT_SSHD), Vec::new()));
        if let Some((program, options)) = find_socket_command().or_else(default) {
            if let Ok(program) = program.canonicalize() {
                commands.insert((program, options, None), Vec::new());
            }
        }
    }
    let mut servers = Vec::new();
    for ((program, options, _), server_pids) in commands {
        servers.push(Server::read(&program, &options, &server_pids));
    }
    servers
}

/// The servers of each program, options and name by which it was started: two links to one program are two PAM services.
type ServersByCommand = BTreeMap<(PathBuf, Vec<String>, Option<String>), Vec<i32>>;

/// Groups servers by their commands. One whose command cannot be read is left out.
fn group_by_command(pids: &[i32]) -> ServersByCommand {
    let mut commands = ServersByCommand::new();
    for pid in pids {
        if let Some((program, options)) = read_command(*pid) {
            let command = (program, options, read_started_name(*pid));
            commands.entry(command).or_default().push(*pid);
        }
    }
    commands
}

/// Lists the servers of [`list_servers`] whose logins have this PAM service, or whose service is not known.
pub(super) fn list_servers_of(service: &str) -> Vec<i32> {
    let mut servers = list_servers();
    for ((program, options, name), pids) in group_by_command(&servers) {
        let configuration = read_configuration(&program, &options, name.as_deref());
        if configuration.is_ok_and(|configuration| configuration.service != service) {
            servers.retain(|pid| !pids.contains(pid));
        }
    }
    servers
}

impl Server {
    /// Reads the configuration of processes with one program and one list of options; `pids` is empty if
    /// systemd starts one for each connection.
    fn read(program: &Path, options: &[String], pids: &[i32]) -> Self {
        let file = config_file(options);
        let name = pids.first().and_then(|pid| read_started_name(*pid));
        let configuration = read_configuration(program, options, name.as_deref());
        // Who could write the program could choose the file, too.
        let files = if matches!(configuration, Err(ConfigurationError::Distrusted(_))) {
            ConfigFiles::default()
        } else {
            ConfigFiles::read(&file)
        };
        let known = configuration.as_ref().ok();
        let unread_change =
            known.and_then(|known| find_unread_change(&files, pids, known.pid_file.as_deref()));
        let peers_are_mapped = if pids.is_empty() {
            // No socket listens on port 0, which stands for an unknown one.
            maps_v4_peers_of_port(known.map_or(0, |known| known.port))
        } else {
            pids.iter().any(|pid| maps_v4_peers(*pid))
        };
        Self {
            object: [&[program.display().to_string()], options]
                .concat()
                .join(" "),
            file,
            files,
            configuration,
            unread_change,
            peers_are_mapped,
            reload: reload_command(pids),
        }
    }

    fn has_service(&self, service: &str) -> bool {
        self.configuration
            .as_ref()
            .is_ok_and(|configuration| configuration.service == service)
    }

    /// Judges the configuration, or reports why it is not known; see [`Server::judge`] for the arguments.
    fn findings(&self, service: &str, is_served: bool) -> Vec<Finding> {
        let configuration = match &self.configuration {
            Ok(configuration) => configuration,
            Err(error) => return vec![error.finding(self)],
        };
        let mut findings = self.judge(configuration, service, is_served);
        if let Some((changed, pid)) = &self.unread_change {
            // What is fine in the file need not be so in the running server.
            findings.retain(|finding| finding.severity != Severity::Fine);
            let process = process_object(*pid);
            let text = format!("was changed after {process} read it, which goes on as before");
            let reload = self.reload.as_deref().unwrap_or("restart it");
            let remedy = format!("have it read that file: {reload}");
            findings.push(Finding::warning(
                Check::SshdConfig,
                changed.display(),
                text,
                remedy,
            ));
        }
        findings
    }

    /// Judges the server's configuration. `service` is the PAM service that is checked, and `is_served` tells
    /// whether any server of this node has it: if none has, it is an error that this one has another. A server
    /// for system accounts alone may do without PAM. Penalties count only if the server has the checked service.
    fn judge(&self, configuration: &Configuration, service: &str, is_served: bool) -> Vec<Finding> {
        if !configuration.uses_pam && configuration.is_for_system {
            let text = "UsePAM no, but AllowUsers lets in system accounts only";
            return vec![Finding::note(Check::SshdPam, &self.object, text, "")];
        }
        let mut findings = vec![self.judge_pam(configuration.uses_pam)];
        if configuration.service != service {
            findings.push(self.judge_other_service(&configuration.service, is_served));
        } else if let Some(penalties) = &configuration.penalties {
            findings.push(match self.find_penalty_fault(penalties) {
                Some(PenaltyFault { text, remedy }) => {
                    Finding::warning(Check::SshdPenalties, &self.object, text, remedy)
                }
                None => {
                    let text = "PerSourcePenalties spares addresses";
                    Finding::fine(Check::SshdPenalties, &self.object, text)
                }
            });
        }
        findings.extend(judge_match_blocks(&self.files, Path::new("/"), service));
        findings.extend(self.judge_startups(configuration));
        findings
    }

    /// Judges whether a launcher can start a rank for each core of the node by ssh. Only a note, since most
    /// launchers log in once to each node.
    fn judge_startups(&self, configuration: &Configuration) -> Option<Finding> {
        let startups = configuration.startups?;
        let cores = count_online_cores()?;
        let text = startups.find_fault(cores)?;
        let remedy = format!(
            "for such launchers write \"{}\" {} and reload",
            startups.sufficient_line(cores),
            self.where_to_write(&startups.key.to_ascii_lowercase())
        );
        Some(Finding::note(
            Check::SshdStartups,
            &self.object,
            text,
            remedy,
        ))
    }

    /// Judges whether the server runs PAM modules at all.
    fn judge_pam(&self, uses_pam: bool) -> Finding {
        if uses_pam {
            return Finding::fine(Check::SshdPam, &self.object, "UsePAM yes");
        }
        let text = "UsePAM no: sshd runs no PAM module, so every login is outside of jobs";
        let remedy = if self.object.to_ascii_lowercase().contains("usepam") {
            "remove UsePAM from its command line, and restart it".into()
        } else {
            self.set("UsePAM", "yes")
        };
        Finding::error(Check::SshdPam, &self.object, text, remedy)
    }

    /// Reports that the server's PAM service is `own` and not the checked one. That is an error unless
    /// another server has the checked service (`is_served`).
    fn judge_other_service(&self, own: &str, is_served: bool) -> Finding {
        // Only a check of its stack knows whether a line of another module there may go.
        let remedy = format!(
            "check that one: job-adopt check --service {}",
            shell_word(own)
        );
        if is_served {
            let text = format!("its PAM service is {own}, which was not checked");
            return Finding::note(Check::SshdService, &self.object, text, remedy);
        }
        let text = format!("its PAM service is {own}, not the one that was checked");
        Finding::error(Check::SshdService, &self.object, text, remedy)
    }

    /// The change that sets a key, in place of the line that counts now, or else above all others, and how the server
    /// reads it.
    fn set(&self, key: &str, value: &str) -> Remedy {
        let new = format!("{key} {value}");
        let edit = match self.files.find_place(&key.to_ascii_lowercase()) {
            Some((place, text)) => FileEdit::replace(place, text, new),
            None => {
                let first = FileLine {
                    file: self.file.clone(),
                    line: 1,
                };
                FileEdit::insert_above(&first, new)
            }
        };
        match &self.reload {
            Some(reload) => edit.then(reload),
            None => edit,
        }
        .into()
    }

    /// Names the line that sshd complains of. No command takes it away: the block of a `Match` would then hold for all,
    /// and a key would have its default, which may let more people in.
    fn correct(complaint: &str) -> Remedy {
        match find_rejected_line(complaint) {
            Some((file, number)) => format!(
                "correct {}:{number}, and do not reload before sshd -t is silent",
                file.display()
            )
            .into(),
            None => "correct what it prints, then try: sshd -t".into(),
        }
    }

    /// Names where to write a key: in place of the line that counts now, or else in the main file.
    fn where_to_write(&self, key: &str) -> String {
        match self.files.find_line(key) {
            Some(line) => format!("in place of {line}"),
            None => format!("into {}", self.file.display()),
        }
    }

    /// Finds what is wrong with penalties that are on: an entry in IPv4 form matches nobody, because this server sees
    /// IPv4 peers as `::ffff:ADDRESS`; or no entry can match any peer, mostly since there is none. `None` if nothing is
    /// wrong, or if penalties are off.
    fn find_penalty_fault(&self, penalties: &Penalties) -> Option<PenaltyFault> {
        const PENALTIES: &str = "PerSourcePenalties is on: after some refused logins it drops \
                                 everybody's connections from their address for a while";
        const KEY: &str = "persourcepenaltyexemptlist";
        if !penalties.are_on {
            return None;
        }
        let missing = penalties.list_missing(self.peers_are_mapped);
        if !missing.is_empty() {
            let list = [penalties.exempt.as_slice(), &missing].concat().join(",");
            let text = format!(
                "{PENALTIES}, and entries of PerSourcePenaltyExemptList in IPv4 form spare nobody: through a socket \
                 of systemd sshd sees the peers as ::ffff:ADDRESS"
            );
            let remedy = format!(
                "write \"PerSourcePenaltyExemptList {list}\" {} and reload",
                self.where_to_write(KEY)
            );
            return Some(PenaltyFault { text, remedy });
        }
        if penalties.spare_any(self.peers_are_mapped) {
            return None;
        }
        let example = if self.peers_are_mapped {
            "::ffff:10.77.0.0/112"
        } else {
            "10.77.0.0/16"
        };
        let remedy = format!(
            "write \"PerSourcePenaltyExemptList {example}\", with the networks of your login nodes, {} \
             and reload",
            self.where_to_write(KEY)
        );
        Some(PenaltyFault {
            text: PENALTIES.to_owned(),
            remedy,
        })
    }
}

/// The command by which these processes of sshd read their configuration anew: through the unit of the distribution, or
/// by a signal, since units of a site need not have a reload. `None` without processes.
fn reload_command(pids: &[i32]) -> Option<String> {
    let mut commands: Vec<String> = pids
        .iter()
        .map(|pid| match find_unit(*pid) {
            Some(unit) if ["ssh.service", "sshd.service"].contains(&unit.as_str()) => {
                format!("systemctl {} {unit}", reload_verb(&unit))
            }
            _ => format!("kill -HUP {pid}"),
        })
        .collect();
    commands.dedup();
    (!commands.is_empty()).then(|| commands.join(" && "))
}

/// How a unit reads its configuration anew. Debian's sshd (9.2) loses the socket that systemd gave it at a reload, and
/// ends: "Address already in use". Logins outlive a restart (`KillMode=process`).
fn reload_verb(unit: &str) -> &'static str {
    let socket = unit.replace(".service", ".socket");
    if systemd::is_active(&socket) {
        "restart"
    } else {
        "reload"
    }
}

/// Finds the file and line of sshd's complaint, as `FILE line N: ` and `FILE: line N: `.
fn find_rejected_line(complaint: &str) -> Option<(PathBuf, usize)> {
    let (file, rest) = complaint.split_once(" line ")?;
    let number = rest.split(':').next()?.parse().ok()?;
    let file = file.rsplit(' ').next()?.trim_end_matches(':');
    file.starts_with('/').then(|| (PathBuf::from(file), number))
}

/// Penalties that cost others their connections.
#[derive(Debug, PartialEq, Eq)]
struct PenaltyFault {
    text: String,
    remedy: String,
}

/// Finds a file of the configuration that was changed after one of these processes read it, with the number
/// of that process; `None` if all have read what is there.
fn find_unread_change(
    files: &ConfigFiles,
    pids: &[i32],
    pid_file: Option<&Path>,
) -> Option<(PathBuf, i32)> {
    for pid in pids {
        let Some(time) = read_at(*pid, pid_file) else {
            continue;
        };
        if let Some(changed) = files.find_changed_since(time) {
            return Some((changed.to_owned(), *pid));
        }
    }
    None
}

/// Describes for `enable` the fault if refusals of a user by this service cost others at the same address their
/// connections; `None` if they do not, or if no configuration of a server can be read.
pub(crate) fn warn_of_penalties(service: &str) -> Option<String> {
    for server in read_servers(&list_servers()) {
        let Ok(configuration) = &server.configuration else {
            continue;
        };
        if configuration.service != service {
            continue;
        }
        let fault = configuration
            .penalties
            .as_ref()
            .and_then(|penalties| server.find_penalty_fault(penalties));
        if let Some(PenaltyFault { text, remedy }) = fault {
            return Some(format!("sshd: {text}; {remedy}"));
        }
    }
    None
}

/// Asks a program of sshd for its effective configuration with these options (`sshd -T`). It runs as root, so
/// only root may have written it.
fn read_configuration(
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
fn parse_configuration(text: &str, program: &Path, started_name: Option<&str>) -> Configuration {
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
    use crate::testing::{Scratch, skip};
    use kernel::trust::Distrust;

    /// What a user could write chooses no file for root to read.
    #[test]
    fn program_that_others_could_write_has_no_files() {
        if !geteuid().is_root() {
            return skip("only root asks sshd for its configuration");
        }
        let scratch = Scratch::new();
        let program = scratch.file("sshd", "");
        scratch.mode("sshd", 0o777);
        let conf = scratch.file("conf", "UsePAM no\n");
        let options = ["-f".to_owned(), conf.display().to_string()];
        let server = Server::read(&program, &options, &[]);
        assert_eq!(server.files.find_line("usepam"), None);
        assert!(matches!(
            server.configuration,
            Err(ConfigurationError::Distrusted(_))
        ));
    }

    /// A server with this output of `sshd -T`.
    fn server(text: &str) -> Server {
        Server {
            object: "sshd".to_owned(),
            file: "/etc/site_config".into(),
            files: ConfigFiles::default(),
            configuration: Ok(parse_configuration(text, Path::new("/usr/sbin/sshd"), None)),
            unread_change: None,
            peers_are_mapped: false,
            reload: Some("systemctl reload ssh.service".to_owned()),
        }
    }

    fn bad_findings(text: &str, service: &str, is_served: bool) -> Vec<String> {
        let findings = server(text).findings(service, is_served);
        let bad = findings
            .iter()
            .filter(|finding| finding.severity != Severity::Fine);
        bad.map(|finding| format!("{:?} {}", finding.severity, finding.check))
            .collect()
    }

    #[test]
    fn configuration_without_pam_or_with_other_service_is_reported() {
        assert_eq!(bad_findings("usepam yes\n", "sshd", true), [""; 0]);
        assert_eq!(
            bad_findings("usepam yes\n", "other", false),
            ["Error sshd-service"]
        );
        for text in ["usepam no\n", "", "permittunnel no\n"] {
            assert_eq!(
                bad_findings(text, "sshd", true),
                ["Error sshd-pam"],
                "{text}"
            );
        }
        for users in ["root", "root@10.0.0.*", "root\nallowusers root@h"] {
            let text = format!("usepam no\npersourcepenalties authfail:5\nallowusers {users}\n");
            assert_eq!(
                bad_findings(&text, "sshd", true),
                ["Note sshd-pam"],
                "{users}"
            );
        }
        for users in ["*", "r?ot", "root\nallowusers *", "no-such-account", "@h"] {
            let text = format!("usepam no\nallowusers {users}\n");
            assert_eq!(
                bad_findings(&text, "sshd", true),
                ["Error sshd-pam"],
                "{users}"
            );
        }
        let alternative = "usepam yes\npamservicename ssh-alt\n";
        assert_eq!(
            bad_findings(alternative, "sshd", false),
            ["Error sshd-service"]
        );
        assert_eq!(
            bad_findings(alternative, "sshd", true),
            ["Note sshd-service"]
        );
        assert_eq!(bad_findings(alternative, "ssh-alt", true), [""; 0]);
        let other = server(alternative).judge_other_service("ssh-alt", false);
        assert_eq!(other.remedy.command(), "");
        assert!(
            other
                .remedy
                .advice()
                .ends_with("job-adopt check --service ssh-alt")
        );
    }

    #[test]
    fn limit_of_waiting_logins_below_number_of_cores_is_noted() {
        let cores = count_online_cores().unwrap();
        let with = |start| format!("usepam yes\nmaxstartups {start}:30:100\n");
        assert_eq!(bad_findings(&with(cores), "sshd", true), [""; 0]);
        assert_eq!(
            bad_findings(&with(cores - 1), "sshd", true),
            ["Note sshd-startups"]
        );
    }

    /// The lines are those of OpenSSH 10.0.
    #[test]
    fn penalties_without_exempt_addresses_are_warned_of() {
        let on = "usepam yes\npersourcepenalties crash:90 authfail:5 noauth:1 grace-exceeded:10 \
                  refuseconnection:10 max:600 min:15 max-sources4:65536 max-sources6:65536 \
                  overflow:permissive overflow6:permissive\n";
        let none = format!("{on}persourcepenaltyexemptlist none\n");
        for text in [on, &none] {
            assert_eq!(
                bad_findings(text, "sshd", true),
                ["Warning sshd-penalties"],
                "{text}"
            );
        }
        let spares = none.replace("none", "10.77.0.0/16,fd77::/64");
        let off = "usepam yes\npersourcepenalties no\npersourcepenaltyexemptlist none\n";
        for text in [&spares, off] {
            assert_eq!(bad_findings(text, "sshd", true), [""; 0], "{text}");
        }
    }

    #[test]
    fn exemption_that_spares_no_peer_is_warned_of() {
        let text =
            "usepam yes\npersourcepenalties authfail:5\npersourcepenaltyexemptlist 10.9.9.0/24\n";
        let remedy = |peers_are_mapped| {
            let server = Server {
                peers_are_mapped,
                ..server(text)
            };
            let penalties = server
                .configuration
                .as_ref()
                .unwrap()
                .penalties
                .as_ref()
                .unwrap();
            server
                .find_penalty_fault(penalties)
                .map(|fault| fault.remedy)
        };
        assert_eq!(remedy(false), None);
        let expected = "write \"PerSourcePenaltyExemptList 10.9.9.0/24,::ffff:10.9.9.0/120\" into \
                        /etc/site_config and reload";
        assert_eq!(remedy(true).as_deref(), Some(expected));
    }

    #[test]
    fn program_names_service_unless_configuration_does() {
        let program = Path::new("/opt/sshd-alt");
        let service = |text, name| parse_configuration(text, program, name).service;
        assert_eq!(service("usepam yes\n", None), "sshd-alt");
        assert_eq!(service("usepam yes\n", Some("hpcd")), "hpcd");
        assert_eq!(service("pamservicename x\n", Some("hpcd")), "x");
    }

    /// Without the line its key has the default, and a block of `Match` holds for all.
    #[test]
    fn line_that_sshd_rejects_is_left_to_a_person() {
        let complaint = "/etc/ssh/sshd_config: line 9: Bad configuration option: AllowGruops";
        let remedy = Server::correct(complaint);
        assert_eq!(remedy.command(), "");
        assert!(
            remedy.advice().contains("/etc/ssh/sshd_config:9"),
            "{remedy}"
        );
    }

    #[test]
    fn line_of_complaint_is_found() {
        for (complaint, expected) in [
            (
                "/etc/ssh/sshd_config line 124: Directive 'UsePAM' is not allowed",
                Some("/etc/ssh/sshd_config:124"),
            ),
            (
                "/etc/ssh/x.conf: line 1: Bad configuration option: UsePamm",
                Some("/etc/ssh/x.conf:1"),
            ),
            ("Privilege separation user sshd does not exist", None),
        ] {
            let found = find_rejected_line(complaint);
            let shown = found.map(|(file, number)| format!("{}:{number}", file.display()));
            assert_eq!(shown.as_deref(), expected);
        }
    }

    #[test]
    fn configuration_that_is_not_what_runs_is_not_called_fine() {
        let unread_change = Some((PathBuf::from("/etc/ssh/site.d"), 7));
        let findings = Server {
            unread_change,
            ..server("usepam yes\n")
        }
        .findings("sshd", true);
        let [finding] = findings.as_slice() else {
            panic!("{findings:?}")
        };
        assert_eq!(finding.severity, Severity::Warning);
        assert!(finding.text.contains("sshd (process 7)"), "{finding:?}");
    }

    #[test]
    fn configuration_that_cannot_be_read_is_reported() {
        let distrusted = TrustError::new(Path::new("/opt/sshd"), Distrust::WrongOwner(7));
        for (error, severity) in [
            (ConfigurationError::NotRoot, Severity::Unknown),
            (ConfigurationError::Distrusted(distrusted), Severity::Error),
            (
                ConfigurationError::Rejected("x".to_owned()),
                Severity::Error,
            ),
            (
                ConfigurationError::Unanswered("x".to_owned()),
                Severity::Unknown,
            ),
        ] {
            assert_eq!(error.finding(&server("")).severity, severity, "{error:?}");
        }
    }
}
