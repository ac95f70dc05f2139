//! Checks the sshd that listens: its configuration (`sshd -T`) must take logins through the service's
//! stack, and it must see the node as this process does. A unit may give it other mounts, namespaces
//! and capabilities (systemd.exec(5): `ProtectControlGroups=`, `PrivateDevices=`).

use super::finding::Severity;
use super::mounts::open_hierarchy;
use super::programs::require_trusted;
use super::{Check, Finding, Site, root_processes, trust_remedy};
use crate::accounts::find_user;
use crate::child_process::query_in_clean_environment;
use crate::ending::{is_sshd_process, read_process};
use crate::strays::read_uid_min;
use helper::sources::processes;
use kernel::cgroup::Mount;
use kernel::proc::{self, Proc};
use kernel::trust::Trust;
use nix::unistd::geteuid;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const SSHD_CONFIG: Check = "sshd-config";
const SSHD_PAM: Check = "sshd-pam";
const SSHD_SERVICE: Check = "sshd-service";
const SSHD_PENALTIES: Check = "sshd-penalties";
const SSH_OTHERS: Check = "ssh-others";
const SSHD_SERVER: Check = "sshd-server";
const SSHD_NAMESPACES: Check = "sshd-namespaces";
const SSHD_CGROUP_MOUNT: Check = "sshd-cgroup-mount";
const SSHD_FILES: Check = "sshd-files";
const SSHD_CAPABILITIES: Check = "sshd-capabilities";

/// The path of packages' sshd.
const DEFAULT_SSHD: &str = "/usr/sbin/sshd";
/// Process names of other servers than OpenSSH that take logins over the network.
const OTHER_SERVERS: [&str; 8] =
    ["dropbear", "tinysshd", "lshd", "telnetd", "in.telnetd", "in.rlogind", "in.rshd", "rlogind"];
/// Sockets of systemd that start such a server for each connection: between connections no process shows it.
const OTHER_SOCKETS: [&str; 3] = ["dropbear.socket", "telnet.socket", "tinysshd.socket"];
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
        Finding::warning(SSH_OTHERS, object, text, remedy)
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
    /// Refused logins cost everybody at their address connections; `None` before OpenSSH 9.8, which
    /// cannot do so.
    punishes_addresses: Option<bool>,
}

/// Reads each configuration of the servers once, with the command line that it belongs to. If none
/// listens, reads the one that would be started for each connection.
fn read_configurations(servers: &[i32]) -> Vec<(String, Result<Configuration, Finding>)> {
    let mut commands: BTreeSet<_> = servers.iter().filter_map(|pid| read_command(*pid)).collect();
    if let (true, Ok(program)) = (commands.is_empty(), Path::new(DEFAULT_SSHD).canonicalize()) {
        commands.insert((program, Vec::new()));
    }
    let configuration = |(program, options): &(PathBuf, Vec<String>)| {
        let object = [&[program.display().to_string()], options.as_slice()].concat().join(" ");
        let configuration = read_configuration(&object, program, options);
        (object, configuration)
    };
    commands.iter().map(configuration).collect()
}

/// Checks each configuration of the servers.
fn check_configurations(servers: &[i32], site: &Site) -> Vec<Finding> {
    let configurations = read_configurations(servers);
    let is_served = configurations
        .iter()
        .any(|(_, configuration)| matches!(configuration, Ok(own) if own.service == site.service));
    let findings = configurations.into_iter().map(|(object, configuration)| match configuration {
        Ok(configuration) => judge(&object, &configuration, &site.service, is_served),
        Err(finding) => vec![finding],
    });
    findings.flatten().collect()
}

/// Returns a warning if refusals of a user by this service cost others at the same address their
/// connections.
pub(crate) fn warn_of_penalties(service: &str) -> Option<String> {
    let configurations = read_configurations(&list_servers()).into_iter();
    let mut own = configurations.filter_map(|(_, configuration)| configuration.ok());
    let punishes = own.any(|own| own.service == service && own.punishes_addresses == Some(true));
    punishes.then(|| format!("sshd: {PENALTIES}; {EXEMPT_ADDRESSES}"))
}

const PENALTIES: &str = "PerSourcePenalties is on: after some refused logins it drops everybody's \
                         connections from their address for a while";
const EXEMPT_ADDRESSES: &str = "write \"PerSourcePenaltyExemptList 10.77.0.0/16\", with the networks \
                                of your login nodes, into sshd_config and reload";

/// Judges the configuration of one server. It may have a service of its own: that is an error only if
/// no server has the service that is checked.
fn judge(
    object: &str,
    configuration: &Configuration,
    service: &str,
    is_served: bool,
) -> Vec<Finding> {
    let own = &configuration.service;
    let pam = match configuration.uses_pam {
        true => Finding::fine(SSHD_PAM, object, "UsePAM yes"),
        false if configuration.is_for_system => {
            let text = "UsePAM no, but AllowUsers lets in system accounts only";
            return vec![Finding::note(SSHD_PAM, object, text, "")];
        }
        false => {
            let text = "UsePAM no: sshd runs no PAM module, so every login is outside of jobs";
            Finding::error(
                SSHD_PAM,
                object,
                text,
                "write \"UsePAM yes\" into sshd_config and reload",
            )
        }
    };
    let penalties = configuration.punishes_addresses.map(|punishes| match punishes {
        true => Finding::warning(SSHD_PENALTIES, object, PENALTIES, EXEMPT_ADDRESSES),
        false => Finding::fine(SSHD_PENALTIES, object, "PerSourcePenalties spares addresses"),
    });
    let (severity, text, remedy) = match own == service {
        true => return [pam].into_iter().chain(penalties).collect(),
        false if is_served => {
            (Severity::Note, "which was not checked", format!("job-adopt check --service {own}"))
        }
        false => (
            Severity::Error,
            "not the one that was checked",
            format!("set up /etc/pam.d/{own}, with service={own} on our lines"),
        ),
    };
    let text = format!("its PAM service is {own}, {text}");
    vec![pam, Finding::new(severity, SSHD_SERVICE, object, text, remedy)]
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
        return Err(Finding::unknown(SSHD_CONFIG, object, text, "run this as root"));
    }
    if let Err(why) = require_trusted(&Trust::root(), program) {
        let text = format!("runs as root, but {why}");
        return Err(Finding::error(SSHD_CONFIG, object, text, trust_remedy(&why)));
    }
    match query_in_clean_environment(Command::new(program).arg("-T").args(options)) {
        Ok((true, text)) => Ok(parse_configuration(&text, program)),
        Ok((false, why)) => {
            let why = why.trim().replace(['\r', '\n'], " ");
            let text = format!("sshd -T fails, and so will its next start: {why}");
            Err(Finding::error(
                SSHD_CONFIG,
                object,
                text,
                "correct what it prints, then try: sshd -t",
            ))
        }
        Err(why) => {
            let text = format!("sshd -T gives no answer: {why}");
            Err(Finding::unknown(SSHD_CONFIG, object, text, "sshd -T, by hand, shows why"))
        }
    }
}

/// Parses the output of `sshd -T`, which has a key in small letters and its value on each line.
fn parse_configuration(text: &str, program: &Path) -> Configuration {
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value.trim())
    };
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let exempts = value("persourcepenaltyexemptlist").is_some_and(|list| list != "none");
    let punishes = |value| value != "no" && !exempts;
    Configuration {
        uses_pam: value("usepam") == Some("yes"),
        is_for_system: allows_system_only(text),
        service: value("pamservicename").unwrap_or(&name).to_owned(),
        punishes_addresses: value("persourcepenalties").map(punishes),
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
        return vec![Finding::unknown(SSHD_SERVER, object(pid), text, "run this as root")];
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
        findings.push(Finding::fine(SSHD_SERVER, object(pid), text));
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
    Some(Finding::error(SSHD_NAMESPACES, object(pid), text, remedy))
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
        (Err((why, _)), _) => format!("as it sees the mounts, {why}"),
    };
    Some(Finding::error(SSHD_CGROUP_MOUNT, object(pid), text, remedy))
}

/// Checks the files that server and command must both see. No path may be or contain a link.
fn check_files(pid: i32, site: &Site) -> Vec<Finding> {
    let (helper, mounts) =
        (site.settings().helper, "PrivateMounts=, TemporaryFileSystem= and the like");
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
    Some(Finding::new(severity, SSHD_FILES, path.display(), text, remedy))
}

/// Checks that a server has the required capabilities, which a container may take away
/// (capabilities(7)).
fn check_capabilities(pid: i32, effective: &str) -> Option<Finding> {
    let Ok(set) = u64::from_str_radix(effective, 16) else {
        let text = "its capabilities cannot be read";
        return Some(Finding::unknown(SSHD_CAPABILITIES, object(pid), text, "run this as root"));
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
        Finding::error(SSHD_CAPABILITIES, object(pid), text, remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad_findings(text: &str, service: &str, is_served: bool) -> Vec<String> {
        let configuration = parse_configuration(text, Path::new("/usr/sbin/sshd"));
        let findings = judge("sshd", &configuration, service, is_served);
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
