//! Checks the sshd that listens: its configuration (`sshd -T`) must take logins through the service's
//! stack, and it must see the node as this process does.

use super::file_edit::FileEdit;
use super::finding::{Check, Finding, Severity};
use super::remedy::{Remedy, shell_word};
use super::server_process::{ServerProcess, process_object};
use super::site::Site;
use super::sshd_match::judge_match_blocks;
use super::trusted_file::trust_remedy;
use facts::root_processes::root_processes;
use facts::sshd::configuration::{Configuration, ConfigurationError};
use facts::sshd::list_servers;
use facts::sshd::penalties::PenaltyFault;
use facts::sshd::startups::count_online_cores;
use facts::sshd::{Server, read_servers};
use facts::systemd;
use helper::stack::FileLine;
use std::path::{Path, PathBuf};

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
            findings.extend(judge_server(server, &self.service, is_served));
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

/// Reports why the configuration of a server is not known.
fn judge_unread(server: &Server, error: &ConfigurationError) -> Finding {
    let (severity, remedy) = match error {
        ConfigurationError::NotRoot => (Severity::Unknown, "run this as root".into()),
        ConfigurationError::Distrusted(why) => (Severity::Error, trust_remedy(why)),
        ConfigurationError::Rejected(why) => (Severity::Error, correct_line(why)),
        ConfigurationError::Unanswered(_) => {
            (Severity::Unknown, "see what it says: sshd -T".into())
        }
    };
    Finding::new(severity, Check::SshdConfig, &server.object, error, remedy)
}

/// Judges the configuration, or reports why it is not known; see [`judge_configuration`] for the arguments.
fn judge_server(server: &Server, service: &str, is_served: bool) -> Vec<Finding> {
    let configuration = match &server.configuration {
        Ok(configuration) => configuration,
        Err(error) => return vec![judge_unread(server, error)],
    };
    let mut findings = judge_configuration(server, configuration, service, is_served);
    if let Some((changed, pid)) = &server.unread_change {
        // What is fine in the file need not be so in the running server.
        findings.retain(|finding| finding.severity != Severity::Fine);
        let process = process_object(*pid);
        let text = format!("was changed after {process} read it, which goes on as before");
        let reload = server.reload.as_deref().unwrap_or("restart it");
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
fn judge_configuration(
    server: &Server,
    configuration: &Configuration,
    service: &str,
    is_served: bool,
) -> Vec<Finding> {
    if !configuration.uses_pam && configuration.is_for_system {
        let text = "UsePAM no, but AllowUsers lets in system accounts only";
        return vec![Finding::note(Check::SshdPam, &server.object, text, "")];
    }
    let mut findings = vec![judge_pam(server, configuration.uses_pam)];
    if configuration.service != service {
        findings.push(judge_other_service(
            server,
            &configuration.service,
            is_served,
        ));
    } else if let Some(penalties) = &configuration.penalties {
        findings.push(match server.find_penalty_fault(penalties) {
            Some(PenaltyFault { text, remedy }) => {
                Finding::warning(Check::SshdPenalties, &server.object, text, remedy)
            }
            None => {
                let text = "PerSourcePenalties spares addresses";
                Finding::fine(Check::SshdPenalties, &server.object, text)
            }
        });
    }
    findings.extend(judge_match_blocks(&server.files, Path::new("/"), service));
    findings.extend(judge_startups(server, configuration));
    findings
}

/// Judges whether a launcher can start a rank for each core of the node by ssh. Only a note, since most
/// launchers log in once to each node.
fn judge_startups(server: &Server, configuration: &Configuration) -> Option<Finding> {
    let startups = configuration.startups?;
    let cores = count_online_cores()?;
    let text = startups.find_fault(cores)?;
    let remedy = format!(
        "for such launchers write \"{}\" {} and reload",
        startups.sufficient_line(cores),
        server.where_to_write(&startups.key.to_ascii_lowercase())
    );
    Some(Finding::note(
        Check::SshdStartups,
        &server.object,
        text,
        remedy,
    ))
}

/// Judges whether the server runs PAM modules at all.
fn judge_pam(server: &Server, uses_pam: bool) -> Finding {
    if uses_pam {
        return Finding::fine(Check::SshdPam, &server.object, "UsePAM yes");
    }
    let text = "UsePAM no: sshd runs no PAM module, so every login is outside of jobs";
    let remedy = if server.object.to_ascii_lowercase().contains("usepam") {
        "remove UsePAM from its command line, and restart it".into()
    } else {
        set_key(server, "UsePAM", "yes")
    };
    Finding::error(Check::SshdPam, &server.object, text, remedy)
}

/// Reports that the server's PAM service is `own` and not the checked one. That is an error unless
/// another server has the checked service (`is_served`).
fn judge_other_service(server: &Server, own: &str, is_served: bool) -> Finding {
    // Only a check of its stack knows whether a line of another module there may go.
    let remedy = format!(
        "check that one: job-adopt check --service {}",
        shell_word(own)
    );
    if is_served {
        let text = format!("its PAM service is {own}, which was not checked");
        return Finding::note(Check::SshdService, &server.object, text, remedy);
    }
    let text = format!("its PAM service is {own}, not the one that was checked");
    Finding::error(Check::SshdService, &server.object, text, remedy)
}

/// The change that sets a key, in place of the line that counts now, or else above all others, and how the server
/// reads it.
fn set_key(server: &Server, key: &str, value: &str) -> Remedy {
    let new = format!("{key} {value}");
    let edit = match server.files.find_place(&key.to_ascii_lowercase()) {
        Some((place, text)) => FileEdit::replace(place, text, new),
        None => {
            let first = FileLine {
                file: server.file.clone(),
                line: 1,
            };
            FileEdit::insert_above(&first, new)
        }
    };
    match &server.reload {
        Some(reload) => edit.then(reload),
        None => edit,
    }
    .into()
}

/// Names the line that sshd complains of. No command takes it away: the block of a `Match` would then hold for all,
/// and a key would have its default, which may let more people in.
fn correct_line(complaint: &str) -> Remedy {
    match find_rejected_line(complaint) {
        Some((file, number)) => format!(
            "correct {}:{number}, and do not reload before sshd -t is silent",
            file.display()
        )
        .into(),
        None => "correct what it prints, then try: sshd -t".into(),
    }
}

/// Finds the file and line of sshd's complaint, as `FILE line N: ` and `FILE: line N: `.
fn find_rejected_line(complaint: &str) -> Option<(PathBuf, usize)> {
    let (file, rest) = complaint.split_once(" line ")?;
    let number = rest.split(':').next()?.parse().ok()?;
    let file = file.rsplit(' ').next()?.trim_end_matches(':');
    file.starts_with('/').then(|| (PathBuf::from(file), number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use facts::sshd::config_files::ConfigFiles;
    use facts::sshd::configuration::parse_configuration;
    use kernel::trust::{Distrust, TrustError};

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
        let findings = judge_server(&server(text), service, is_served);
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
        let other = judge_other_service(&server(alternative), "ssh-alt", false);
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

    /// Without the line its key has the default, and a block of `Match` holds for all.
    #[test]
    fn line_that_sshd_rejects_is_left_to_a_person() {
        let complaint = "/etc/ssh/sshd_config: line 9: Bad configuration option: AllowGruops";
        let remedy = correct_line(complaint);
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
        let changed = Server {
            unread_change,
            ..server("usepam yes\n")
        };
        let findings = judge_server(&changed, "sshd", true);
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
            assert_eq!(
                judge_unread(&server(""), &error).severity,
                severity,
                "{error:?}"
            );
        }
    }
}
