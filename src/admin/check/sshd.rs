//! Checks the sshd that listens: its configuration (`sshd -T`) must take logins through the service's
//! stack, and it must see the node as this process does. A unit may give it other mounts, namespaces
//! and capabilities (systemd.exec(5): `ProtectControlGroups=`, `PrivateDevices=`).

use super::finding::{Check, Finding, Severity};
use super::mounts::open_hierarchy;
use super::penalties::{Penalties, maps_v4_peers, maps_v4_peers_of_port};
use super::site::{Site, root_processes};
use super::sshd_config::{ConfigFiles, DEFAULT_FILE};
use super::trusted_file::{require_trusted, trust_remedy};
use crate::accounts::{find_user, read_uid_min};
use crate::child_process::query_in_clean_environment;
use crate::process::{is_sshd_process, read_process};
use helper::jobs::sources::processes;
use kernel::cgroup::Mount;
use kernel::proc::{self, Proc};
use kernel::trust::Trust;
use nix::unistd::geteuid;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The path of packages' sshd.
const DEFAULT_SSHD: &str = "/usr/sbin/sshd";
/// Process names of other servers than OpenSSH that take logins over the network.
const OTHER_SERVERS: [&str; 22] = [
    "cockpit-tls", "cockpit-ws", "dropbear", "in.rlogind", "in.rshd", "in.telnetd", "lshd",
    "nxserver.bin", "rlogind", "rserver", "shellinaboxd", "tailscaled", "teleport", "telnetd",
    "tinysshd", "tlwebaccess", "ttyd", "vncserver-x11-s", "vsmagent", "vsmserver", "xrdp",
    "xrdp-sesman",
];
/// Sockets of systemd that start such a server for each connection: between connections no process shows it.
const OTHER_SOCKETS: [&str; 5] =
    ["cockpit.socket", "dropbear.socket", "telnet.socket", "tinysshd.socket", "xrdp.socket"];
/// Options of sshd that change its configuration, and take a value.
const CONFIG_OPTIONS: [&str; 2] = ["-f", "-o"];
/// Capabilities without which the module refuses every login: name, number in `linux/capability.h`,
/// and true if `CAP_SYS_ADMIN` includes it.
const REQUIRED_CAPABILITIES: [(&str, u32, bool); 5] = [
    ("CAP_SYS_ADMIN", CAP_SYS_ADMIN, false),
    ("CAP_BPF", 39, true),
    ("CAP_NET_ADMIN", 12, true),
    ("CAP_SETUID", 7, false),
    ("CAP_SETGID", 6, false),
];
const CAP_SYS_ADMIN: u32 = 21;

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    let servers = list_servers();
    let mut findings = check_configurations(&servers, site);
    findings.extend(servers.iter().flat_map(|pid| check_server(*pid, site)));
    findings.extend(list_other_servers().into_iter().map(|object| {
        let text = "serves logins too, perhaps without our PAM lines";
        let remedy = "stop it, or let only operators reach it";
        Finding::warning(Check::SshOthers, object, text, remedy)
    }));
    findings
}

/// Returns the other servers of this node that take logins: processes, and listening sockets of
/// systemd.
fn list_other_servers() -> Vec<String> {
    let mut command = Command::new("systemctl");
    command.args(["--no-pager", "--plain", "--no-legend", "--state=active", "list-units"]);
    // Without systemd no socket starts a server.
    let sockets = match query_in_clean_environment(command.args(OTHER_SOCKETS)) {
        Ok((true, output)) => output,
        _ => String::new(),
    };
    let sockets = sockets.lines().filter_map(|line| line.split_whitespace().next());
    let processes = root_processes(&OTHER_SERVERS).into_iter().filter(|(_, pid)| is_here(*pid));
    let processes = processes.map(|(name, pid)| format!("{name} (process {pid})"));
    processes.chain(sockets.map(str::to_owned)).collect()
}

/// Returns every sshd of this node that listens.
fn list_servers() -> Vec<i32> {
    let pids = processes::list_numbers(Path::new("/proc")).into_iter().flatten().flatten();
    pids.filter(|pid| is_server(*pid) && is_here(*pid)).collect()
}

/// Returns whether a process is root's sshd that listens, not the sshd of a login.
fn is_server(pid: i32) -> bool {
    is_sshd_process(pid) && read_process(pid).is_some_and(|process| !process.is_sshd)
}

/// Returns whether a process is in this process's pid namespace. An sshd in a container serves
/// another node.
fn is_here(pid: i32) -> bool {
    is_in_own_namespace(pid, "pid") != Some(false)
}

fn proc_dir(pid: i32) -> PathBuf {
    Proc::host().dir(pid)
}

fn object(pid: i32) -> String {
    format!("sshd (process {pid})")
}

/// Returns whether a process is in this process's namespace of that kind; `None` if that cannot be
/// read.
fn is_in_own_namespace(pid: i32, kind: &str) -> Option<bool> {
    let link = |dir: &Path| fs::read_link(dir.join("ns").join(kind)).ok();
    Some(link(&proc_dir(pid))? == link(Path::new("/proc/self"))?)
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
    /// The file to which sshd writes its process id whenever it has read its configuration.
    pid_file: Option<PathBuf>,
    port: u16,
}

/// Servers that share a program and the options that change its configuration.
struct Server {
    /// The command line.
    object: String,
    /// The processes; none if each connection would start one.
    pids: Vec<i32>,
    /// The file of the configuration.
    file: PathBuf,
    configuration: Result<Configuration, Finding>,
}

impl Server {
    /// Returns a file that was changed after a process read it, and the process.
    fn find_unread_change(&self, files: &ConfigFiles) -> Option<(PathBuf, i32)> {
        let pid_file = self.configuration.as_ref().ok()?.pid_file.as_deref();
        self.pids.iter().find_map(|pid| {
            let changed = files.find_changed_since(read_at(*pid, pid_file)?)?;
            Some((changed.to_owned(), *pid))
        })
    }

    /// Returns whether this server sees IPv4 peers as IPv6 addresses.
    fn maps_v4_peers(&self) -> bool {
        let port = self.configuration.as_ref().map_or(0, |own| own.port);
        match self.pids.as_slice() {
            [] => maps_v4_peers_of_port(port),
            pids => pids.iter().any(|pid| maps_v4_peers(*pid)),
        }
    }
}

/// Returns when a server read its configuration, in seconds and nanoseconds: at each reload it writes its
/// process id anew. Without that file, when it started.
fn read_at(pid: i32, pid_file: Option<&Path>) -> Option<(i64, i64)> {
    let written = pid_file.and_then(|path| {
        let number: i32 = fs::read_to_string(path).ok()?.trim().parse().ok()?;
        let meta = fs::metadata(path).ok().filter(|_| number == pid)?;
        Some((meta.mtime(), meta.mtime_nsec()))
    });
    // Boot time and ticks are rounded, each by up to a second.
    written.or_else(|| Some((processes::start_time(&Proc::host(), pid)? + 2, 0)))
}

/// Reads each configuration of the servers once. If none listens, reads the one that would be started
/// for each connection.
fn read_configurations(servers: &[i32]) -> Vec<Server> {
    let mut commands: BTreeMap<(PathBuf, Vec<String>), Vec<i32>> = BTreeMap::new();
    for pid in servers {
        if let Some(command) = read_command(*pid) {
            commands.entry(command).or_default().push(*pid);
        }
    }
    if commands.is_empty() {
        if let Ok(program) = Path::new(DEFAULT_SSHD).canonicalize() {
            commands.insert((program, Vec::new()), Vec::new());
        }
    }
    let mut all = Vec::new();
    for ((program, options), pids) in commands {
        let object = [&[program.display().to_string()], options.as_slice()].concat().join(" ");
        let configuration = read_configuration(&object, &program, &options);
        all.push(Server { object, pids, file: config_file(&options), configuration });
    }
    all
}

/// Returns the file of the configuration that the options name.
fn config_file(options: &[String]) -> PathBuf {
    let mut options = options.iter();
    let mut file = DEFAULT_FILE;
    while let Some(option) = options.next() {
        match option.strip_prefix("-f") {
            Some("") => file = options.next().map_or(file, String::as_str),
            Some(attached) => file = attached,
            None => {}
        }
    }
    PathBuf::from(file)
}

/// Checks each configuration of the servers.
fn check_configurations(servers: &[i32], site: &Site) -> Vec<Finding> {
    let servers = read_configurations(servers);
    let has_service =
        |server: &Server| matches!(&server.configuration, Ok(own) if own.service == site.service);
    let is_served = servers.iter().any(has_service);
    servers.into_iter().flat_map(|server| check_configuration(server, site, is_served)).collect()
}

fn check_configuration(server: Server, site: &Site, is_served: bool) -> Vec<Finding> {
    let files = ConfigFiles::read(&server.file);
    let unread = server.find_unread_change(&files);
    let peers_are_mapped = server.maps_v4_peers();
    let configuration = match server.configuration {
        Ok(configuration) => configuration,
        Err(finding) => return vec![finding],
    };
    let place =
        Place { object: &server.object, file: &server.file, files: &files, peers_are_mapped };
    let mut findings = judge(&place, &configuration, &site.service, is_served);
    if let Some((changed, pid)) = unread {
        // What is fine in the file need not be so in the running server.
        findings.retain(|finding| finding.severity != Severity::Fine);
        let text = format!("was changed after {} read it, which goes on as before", object(pid));
        let remedy = "systemctl reload ssh (EL: sshd), then run this again";
        findings.push(Finding::warning(Check::SshdConfig, changed.display(), text, remedy));
    }
    findings
}

/// Where a configuration stands, and who connects to its servers.
struct Place<'a> {
    /// The command line.
    object: &'a str,
    /// The main file.
    file: &'a Path,
    files: &'a ConfigFiles,
    peers_are_mapped: bool,
}

impl Place<'_> {
    /// Says where to write a key: in place of the line that counts now, or else in the main file.
    fn where_to_write(&self, key: &str) -> String {
        match self.files.find_line(key) {
            Some(line) => format!("in place of {line}"),
            None => format!("into {}", self.file.display()),
        }
    }
}

/// Returns a warning if refusals of a user by this service cost others at the same address their
/// connections.
pub(crate) fn warn_of_penalties(service: &str) -> Option<String> {
    for server in read_configurations(&list_servers()) {
        let files = ConfigFiles::read(&server.file);
        let peers_are_mapped = server.maps_v4_peers();
        let Ok(own) = server.configuration else { continue };
        let place =
            Place { object: &server.object, file: &server.file, files: &files, peers_are_mapped };
        let fault = own.penalties.as_ref().and_then(|penalties| judge_penalties(&place, penalties));
        match fault {
            Some((text, remedy)) if own.service == service => {
                return Some(format!("sshd: {text}; {remedy}"));
            }
            _ => {}
        }
    }
    None
}

/// Returns what is wrong with penalties that are on, and the remedy.
fn judge_penalties(place: &Place<'_>, penalties: &Penalties) -> Option<(String, String)> {
    const PENALTIES: &str = "PerSourcePenalties is on: after some refused logins it drops everybody's \
                             connections from their address for a while";
    const KEY: &str = "persourcepenaltyexemptlist";
    if !penalties.are_on {
        return None;
    }
    let missing = penalties.list_missing(place.peers_are_mapped);
    if !missing.is_empty() {
        let list = [penalties.exempt.as_slice(), &missing].concat().join(",");
        let text = format!(
            "{PENALTIES}, and PerSourcePenaltyExemptList spares no IPv4 address: through a socket of \
             systemd sshd sees them as ::ffff:ADDRESS"
        );
        let remedy = format!(
            "write \"PerSourcePenaltyExemptList {list}\" {} and reload",
            place.where_to_write(KEY)
        );
        return Some((text, remedy));
    }
    if penalties.spare_any(place.peers_are_mapped) {
        return None;
    }
    let example = if place.peers_are_mapped { "::ffff:10.77.0.0/112" } else { "10.77.0.0/16" };
    let remedy = format!(
        "write \"PerSourcePenaltyExemptList {example}\", with the networks of your login nodes, {} and \
         reload",
        place.where_to_write(KEY)
    );
    Some((PENALTIES.to_owned(), remedy))
}

/// Judges the configuration of one server. It may have a service of its own: that is an error only if
/// no server has the service that is checked.
fn judge(
    place: &Place<'_>,
    configuration: &Configuration,
    service: &str,
    is_served: bool,
) -> Vec<Finding> {
    let object = place.object;
    let own = &configuration.service;
    if !configuration.uses_pam && configuration.is_for_system {
        let text = "UsePAM no, but AllowUsers lets in system accounts only";
        return vec![Finding::note(Check::SshdPam, object, text, "")];
    }
    let pam = if configuration.uses_pam {
        Finding::fine(Check::SshdPam, object, "UsePAM yes")
    } else {
        let text = "UsePAM no: sshd runs no PAM module, so every login is outside of jobs";
        let remedy = format!("write \"UsePAM yes\" {} and reload", place.where_to_write("usepam"));
        Finding::error(Check::SshdPam, object, text, remedy)
    };
    if own == service {
        let mut findings = vec![pam];
        if let Some(penalties) = &configuration.penalties {
            findings.push(match judge_penalties(place, penalties) {
                Some((text, remedy)) => {
                    Finding::warning(Check::SshdPenalties, object, text, remedy)
                }
                None => Finding::fine(
                    Check::SshdPenalties,
                    object,
                    "PerSourcePenalties spares addresses",
                ),
            });
        }
        return findings;
    }
    let (severity, text, remedy) = if is_served {
        (Severity::Note, "which was not checked", format!("job-adopt check --service {own}"))
    } else {
        let remedy = format!("set up /etc/pam.d/{own}, with service={own} on our lines");
        (Severity::Error, "not the one that was checked", remedy)
    };
    let text = format!("its PAM service is {own}, {text}");
    vec![pam, Finding::new(severity, Check::SshdService, object, text, remedy)]
}

/// Reads the program of a process, with the options that change its configuration. The title can be
/// trusted, because only root can have started the process.
fn read_command(pid: i32) -> Option<(PathBuf, Vec<String>)> {
    let title = fs::read(proc_dir(pid).join("cmdline")).ok()?;
    let program = fs::read_link(proc_dir(pid).join("exe")).ok()?;
    // After an upgrade the running file is deleted, and the next start runs the new one.
    let program = PathBuf::from(program.to_str()?.trim_end_matches(" (deleted)"));
    // OpenSSH before 8.2 has no options in its title.
    Some((program, parse_title(&String::from_utf8_lossy(&title)).unwrap_or_default()))
}

/// Reads the effective configuration, in the form of [`parse_configuration`].
///
/// # Errors
///
/// A finding that says why the configuration cannot be read.
fn read_configuration(
    object: &str,
    program: &Path,
    options: &[String],
) -> Result<Configuration, Finding> {
    if !geteuid().is_root() {
        let text = "only root can ask it for its configuration (sshd -T)";
        return Err(Finding::unknown(Check::SshdConfig, object, text, "run this as root"));
    }
    if let Err(why) = require_trusted(&Trust::root(), program) {
        let text = format!("runs as root, but {why}");
        return Err(Finding::error(Check::SshdConfig, object, text, trust_remedy(&why)));
    }
    let mut answer = query_in_clean_environment(Command::new(program).arg("-T").args(options));
    if matches!(&answer, Ok((false, why)) if why.contains(NO_PRIVSEP_DIR)) {
        answer = query_beside_run(program, options);
    }
    match answer {
        Ok((true, text)) => Ok(parse_configuration(&text, program)),
        Ok((false, why)) => {
            let why = why.trim().replace(['\r', '\n'], " ");
            let text = format!("sshd -T fails, and so will its next start: {why}");
            Err(Finding::error(
                Check::SshdConfig,
                object,
                text,
                "correct what it prints, then try: sshd -t",
            ))
        }
        Err(why) => {
            let text = format!("sshd -T gives no answer: {why}");
            Err(Finding::unknown(Check::SshdConfig, object, text, "sshd -T, by hand, shows why"))
        }
    }
}

/// What `sshd -T` says without `/run/sshd`, which its unit makes at the first connection.
const NO_PRIVSEP_DIR: &str = "Missing privilege separation directory";

/// Asks sshd for its configuration in a mount namespace with a `/run` of its own, where the folder is.
fn query_beside_run(program: &Path, options: &[String]) -> Result<(bool, String), String> {
    let script =
        "mount -t tmpfs -o mode=0755 tmpfs /run && mkdir -m 0755 /run/sshd && exec \"$@\" -T";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "sh", "-c", script, "sh"]);
    // sshd takes its other options in any order.
    query_in_clean_environment(command.arg(program).args(options))
}

/// Parses the output of `sshd -T`, which has a key in small letters and its value on each line.
fn parse_configuration(text: &str, program: &Path) -> Configuration {
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value.trim())
    };
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let exempt = value("persourcepenaltyexemptlist");
    Configuration {
        uses_pam: value("usepam") == Some("yes"),
        is_for_system: allows_system_only(text),
        service: value("pamservicename").unwrap_or(&name).to_owned(),
        penalties: value("persourcepenalties").map(|value| Penalties::parse(value, exempt)),
        pid_file: value("pidfile").filter(|file| *file != "none").map(PathBuf::from),
        port: value("port").and_then(|port| port.parse().ok()).unwrap_or(22),
    }
}

/// Returns whether `AllowUsers` names accounts below `UID_MIN` only, without a pattern.
fn allows_system_only(text: &str) -> bool {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let lists = lines.filter(|(name, _)| name.eq_ignore_ascii_case("allowusers"));
    let mut users = lists.flat_map(|(_, users)| users.split_whitespace()).peekable();
    let is_system = |name: &str| {
        // A pattern names no account; a host may follow the name.
        let account = find_user(name.split('@').next().unwrap_or_default());
        account.is_ok_and(|user| user.is_some_and(|user| user.uid.as_raw() < read_uid_min()))
    };
    users.peek().is_some() && users.all(is_system)
}

/// Parses the options in a listener's title, "sshd: PROGRAM OPTIONS [listener] ..." (sshd.c:
/// `prepare_proctitle`); `None` for another process.
fn parse_title(title: &str) -> Option<Vec<String>> {
    let (command, _) = title.strip_prefix("sshd: ")?.split_once(" [listener]")?;
    let mut words = command.split_whitespace().skip(1).peekable();
    let mut options = Vec::new();
    while let Some(word) = words.next() {
        match CONFIG_OPTIONS.into_iter().find(|option| word.starts_with(option)) {
            Some(option) if word == option => {
                options.push(option.to_owned());
                options.extend(words.next().map(str::to_owned));
            }
            Some(_) => options.push(word.to_owned()),
            None => {}
        }
    }
    Some(options)
}

/// Checks which files of this node a server sees, and its rights.
fn check_server(pid: i32, site: &Site) -> Vec<Finding> {
    let Some(shares_mounts) = is_in_own_namespace(pid, "mnt") else {
        let text = "its mounts and namespaces cannot be read";
        return vec![Finding::unknown(Check::SshdServer, object(pid), text, "run this as root")];
    };
    let mut findings = Vec::new();
    findings.extend(check_namespaces(pid));
    if !shares_mounts {
        findings.extend(check_cgroup_mount(pid));
        findings.extend(check_files(pid, site));
    }
    let status = proc::read(proc_dir(pid).join("status")).unwrap_or_default();
    findings
        .extend(check_capabilities(pid, proc::find_field(&status, "CapEff:").unwrap_or_default()));
    if findings.is_empty() {
        let text = "sees the same mounts as this process, and has what the module needs";
        findings.push(Finding::fine(Check::SshdServer, object(pid), text));
    }
    findings
}

fn check_namespaces(pid: i32) -> Option<Finding> {
    let is_other = |kind: &&str| is_in_own_namespace(pid, kind) == Some(false);
    let others: Vec<&str> = ["cgroup", "user"].into_iter().filter(is_other).collect();
    if others.is_empty() {
        return None;
    }
    let text = format!(
        "runs in another {} namespace, so it cannot move logins into jobs outside of that",
        others.join(" and ")
    );
    let remedy = "remove PrivateUsers= and ProtectControlGroups= from its unit (systemctl edit --full \
                  ssh, or sshd), or run it outside of the container";
    Some(Finding::error(Check::SshdNamespaces, object(pid), text, remedy))
}

fn check_cgroup_mount(pid: i32) -> Option<Finding> {
    let remedy = "remove ProtectControlGroups=, ReadOnlyPaths= and the like from its unit (systemctl \
                  edit --full ssh, or sshd)";
    let root = |mount: &Mount| mount.root().identity().ok();
    let theirs = open_hierarchy(&proc_dir(pid).join("root"));
    let text = match (theirs, open_hierarchy(Path::new("/"))) {
        (Ok(theirs), Ok(ours)) if root(&theirs) != root(&ours) => {
            format!("sees another cgroup v2 hierarchy at {}", theirs.path())
        }
        (Ok(_), _) => return None,
        (Err(why), _) => format!("as it sees the mounts, {why}"),
    };
    Some(Finding::error(Check::SshdCgroupMount, object(pid), text, remedy))
}

/// Checks the files that server and command must both see. No path may be or contain a link.
fn check_files(pid: i32, site: &Site) -> Vec<Finding> {
    let helper = site.settings().helper;
    let mounts = "PrivateMounts=, TemporaryFileSystem= and the like";
    let paths = [
        (Path::new("/run/job-adopt"), mounts),
        (site.config.registry.dir(), mounts),
        (&site.conf, "ReadOnlyPaths=, BindPaths= and the like"),
        (Path::new(&helper), "InaccessiblePaths=, BindPaths= and the like"),
        (Path::new("/dev"), "PrivateDevices="),
    ];
    paths.into_iter().filter_map(|(path, settings)| check_file(pid, path, settings)).collect()
}

fn check_file(pid: i32, path: &Path, settings: &str) -> Option<Finding> {
    let identity = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino()));
    let theirs = identity(&proc_dir(pid).join("root").join(path.strip_prefix("/").ok()?));
    let difference = match (theirs, identity(path)) {
        (Ok(theirs), Ok(ours)) if theirs == ours => return None,
        (Ok(_), _) => "sees another one there".to_owned(),
        // Other checks report a file that is missing for both.
        (Err(error), Err(_)) if error.kind() == ErrorKind::NotFound => return None,
        (Err(error), _) => format!("does not see it ({error})"),
    };
    let text = format!("{} {difference}", object(pid));
    let remedy = format!("remove {settings} from its unit (systemctl edit --full ssh, or sshd)");
    // Logins are in sshd's mount namespace, which may have devices of its own.
    let severity = if path == Path::new("/dev") { Severity::Warning } else { Severity::Error };
    Some(Finding::new(severity, Check::SshdFiles, path.display(), text, remedy))
}

/// Checks that a server has the required capabilities, which a container may take away
/// (capabilities(7)).
fn check_capabilities(pid: i32, effective: &str) -> Option<Finding> {
    let Ok(set) = u64::from_str_radix(effective, 16) else {
        let text = "its capabilities cannot be read";
        return Some(Finding::unknown(
            Check::SshdCapabilities,
            object(pid),
            text,
            "run this as root",
        ));
    };
    let has = |bit: u32| set & (1 << bit) != 0;
    let lacks =
        |(_, bit, by_admin): &(&str, u32, bool)| !(has(*bit) || *by_admin && has(CAP_SYS_ADMIN));
    let missing = REQUIRED_CAPABILITIES.into_iter().filter(lacks);
    let missing: Vec<&str> = missing.map(|(name, ..)| name).collect();
    (!missing.is_empty()).then(|| {
        let text = format!("lacks {}: logins are refused", missing.join(", "));
        let remedy =
            "add them to CapabilityBoundingSet= of its unit, or by --cap-add to its container";
        Finding::error(Check::SshdCapabilities, object(pid), text, remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad_findings(text: &str, service: &str, is_served: bool) -> Vec<String> {
        let configuration = parse_configuration(text, Path::new("/usr/sbin/sshd"));
        let files = ConfigFiles::default();
        let place = Place {
            object: "sshd",
            file: Path::new("/etc/site_config"),
            files: &files,
            peers_are_mapped: false,
        };
        let findings = judge(&place, &configuration, service, is_served);
        let bad = findings.iter().filter(|finding| finding.severity != Severity::Fine);
        bad.map(|finding| format!("{:?} {}", finding.severity, finding.check)).collect()
    }

    #[test]
    fn configuration_without_pam_or_with_other_service_is_reported() {
        assert_eq!(bad_findings("usepam yes\n", "sshd", true), [""; 0]);
        assert_eq!(bad_findings("usepam yes\n", "other", false), ["Error sshd-service"]);
        for text in ["usepam no\n", "", "permittunnel no\n"] {
            assert_eq!(bad_findings(text, "sshd", true), ["Error sshd-pam"], "{text}");
        }
        for users in ["root", "root@10.0.0.*", "root\nallowusers root@h"] {
            let text = format!("usepam no\npersourcepenalties authfail:5\nallowusers {users}\n");
            assert_eq!(bad_findings(&text, "sshd", true), ["Note sshd-pam"], "{users}");
        }
        for users in ["*", "r?ot", "root\nallowusers *", "no-such-account", "@h"] {
            let text = format!("usepam no\nallowusers {users}\n");
            assert_eq!(bad_findings(&text, "sshd", true), ["Error sshd-pam"], "{users}");
        }
        let alternative = "usepam yes\npamservicename ssh-alt\n";
        assert_eq!(bad_findings(alternative, "sshd", false), ["Error sshd-service"]);
        assert_eq!(bad_findings(alternative, "sshd", true), ["Note sshd-service"]);
        assert_eq!(bad_findings(alternative, "ssh-alt", true), [""; 0]);
    }

    /// The lines are those of OpenSSH 10.0.
    #[test]
    fn penalties_without_exempt_addresses_are_warned_of() {
        let on = "usepam yes\npersourcepenalties crash:90 authfail:5 noauth:1 grace-exceeded:10 \
                  refuseconnection:10 max:600 min:15 max-sources4:65536 max-sources6:65536 \
                  overflow:permissive overflow6:permissive\n";
        let none = format!("{on}persourcepenaltyexemptlist none\n");
        for text in [on, &none] {
            assert_eq!(bad_findings(text, "sshd", true), ["Warning sshd-penalties"], "{text}");
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
        let configuration = parse_configuration(text, Path::new("/usr/sbin/sshd"));
        let files = ConfigFiles::default();
        let remedy = |peers_are_mapped| {
            let file = Path::new("/etc/site_config");
            let place = Place { object: "sshd", file, files: &files, peers_are_mapped };
            judge_penalties(&place, configuration.penalties.as_ref().unwrap()).map(|(_, does)| does)
        };
        assert_eq!(remedy(false), None);
        let expected = "write \"PerSourcePenaltyExemptList 10.9.9.0/24,::ffff:10.9.9.0/120\" into \
                        /etc/site_config and reload";
        assert_eq!(remedy(true).as_deref(), Some(expected));
    }

    #[test]
    fn file_of_the_configuration_is_that_of_the_options() {
        let file = |options: &[&str]| {
            let options: Vec<String> = options.iter().map(|word| (*word).to_owned()).collect();
            config_file(&options).display().to_string()
        };
        assert_eq!(file(&[]), "/etc/ssh/sshd_config");
        assert_eq!(file(&["-oUsePAM=no", "-f", "/etc/site_config"]), "/etc/site_config");
        assert_eq!(file(&["-f/etc/site_config", "-o", "Port=3"]), "/etc/site_config");
    }

    #[test]
    fn program_names_service_unless_configuration_does() {
        let service = |text| parse_configuration(text, Path::new("/opt/sshd-alt")).service;
        assert_eq!(service("usepam yes\n"), "sshd-alt");
        assert_eq!(service("pamservicename x\n"), "x");
    }

    #[test]
    fn missing_capability_is_named() {
        let text = |set: &str| check_capabilities(1, set).map(|finding| finding.text);
        assert_eq!(text("000001ffffffffff"), None);
        let named = |set: &str| text(set).unwrap_or_default();
        assert!(named("000001ffffdfffff").contains("lacks CAP_SYS_ADMIN:"));
        assert!(named("000001ffffffffbf").contains("lacks CAP_SETGID:"));
        // CAP_BPF was split from CAP_SYS_ADMIN: one of them is enough.
        assert_eq!(text("0000017fffffffff"), None);
        assert!(named("0000017fffdfffff").contains("CAP_SYS_ADMIN, CAP_BPF:"));
        assert_eq!(named("no number"), "its capabilities cannot be read");
    }

    #[test]
    fn configuration_options_are_read_from_title_of_listener() {
        let options = |title: &str| parse_title(title).map(|options| options.join(" "));
        let rest = "[listener] 0 of 10-100 startups";
        assert_eq!(options(&format!("sshd: /usr/sbin/sshd -D {rest}")), Some(String::new()));
        let title = format!("sshd: /usr/sbin/sshd -D -f /etc/x -p 2222 -oUsePAM=no -e {rest}");
        assert_eq!(options(&title), Some("-f /etc/x -oUsePAM=no".into()));
        assert_eq!(options("sshd: alice [priv]"), None);
        assert_eq!(options("vim sshd: a [listener]"), None);
    }
}
