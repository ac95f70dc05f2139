//! The sshd that listen on this node, each with its effective configuration.

pub mod config_files;
pub mod configuration;
pub mod penalties;
pub(crate) mod start_command;
pub mod startups;

use super::root_processes::shares_namespace;
use super::service_unit::find_unit;
use crate::process::{is_sshd_process, read_process};
use crate::systemd;
use config_files::ConfigFiles;
use configuration::{Configuration, ConfigurationError, read_configuration};
use helper::jobs::sources::processes;
use kernel::proc::Proc;
use penalties::{maps_v4_peers, maps_v4_peers_of_port};
use start_command::{config_file, find_socket_command, read_command, read_started_name};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The path of packages' sshd.
const DEFAULT_SSHD: &str = "/usr/sbin/sshd";

/// Servers that share a program and the options that change its configuration.
#[derive(Debug)]
pub struct Server {
    /// The command line.
    pub object: String,
    /// The main file of the configuration.
    pub file: PathBuf,
    /// The files of the configuration.
    pub files: ConfigFiles,
    /// The configuration as the program understands it, or why that is not known.
    pub configuration: Result<Configuration, ConfigurationError>,
    /// A file that was changed after a process read it, and the process.
    pub unread_change: Option<(PathBuf, i32)>,
    /// They see IPv4 peers as IPv6 addresses (see [`penalties::Penalties`]).
    pub peers_are_mapped: bool,
    /// The command by which all of the processes read their configuration anew; `None` if there are none.
    pub reload: Option<String>,
}

/// Lists every sshd of this node that listens.
pub fn list_servers() -> Vec<i32> {
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
pub fn read_servers(pids: &[i32]) -> Vec<Server> {
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
pub fn list_servers_of(service: &str) -> Vec<i32> {
    let mut servers = list_servers();
    for ((program, options, name), pids) in group_by_command(&servers) {
        let configuration = read_configuration(&program, &options, name.as_deref());
        if configuration.is_ok_and(|configuration| configuration.service != service) {
            servers.retain(|pid| !pids.contains(pid));
        }
    }
    servers
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

impl Server {
    /// Reads the configuration of processes with one program and one list of options; `pids` is empty if
    /// systemd starts one for each connection.
    pub fn read(program: &Path, options: &[String], pids: &[i32]) -> Self {
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

    /// Tells whether the logins of the servers have this PAM service.
    pub fn has_service(&self, service: &str) -> bool {
        self.configuration
            .as_ref()
            .is_ok_and(|configuration| configuration.service == service)
    }

    /// Names where to write a key: in place of the line that counts now, or else in the main file.
    pub fn where_to_write(&self, key: &str) -> String {
        match self.files.find_line(key) {
            Some(line) => format!("in place of {line}"),
            None => format!("into {}", self.file.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, skip};
    use nix::unistd::geteuid;

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
}
