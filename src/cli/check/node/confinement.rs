//! What a security module of the kernel does with sshd, and so with the module in it.

use super::server::Server;
use super::{Check, Finding, Scene};
use std::fs;

const SELINUX: Check = "selinux";
const APPARMOR: Check = "apparmor";

pub(super) fn findings(servers: &[Server], scene: &Scene) -> Vec<Finding> {
    let enforce = fs::read_to_string(scene.at("/sys/fs/selinux/enforce")).ok();
    let mut findings: Vec<Finding> = enforce
        .map(|text| selinux(text.trim(), servers.first().and_then(context)))
        .into_iter()
        .collect();
    for server in servers.iter().filter(|server| server.is_here()) {
        findings.extend(profile(server).and_then(|profile| apparmor(server.pid, &profile)));
    }
    findings
}

/// The label of a process, without the NUL that may end it.
fn label(server: &Server, file: &str) -> Option<String> {
    let text = fs::read_to_string(server.dir().join("attr").join(file)).ok()?;
    Some(text.trim_end_matches(['\0', '\n']).to_owned())
}

fn context(server: &Server) -> Option<String> {
    label(server, "current")
}

fn profile(server: &Server) -> Option<String> {
    label(server, "apparmor/current")
}

fn selinux(enforce: &str, context: Option<String>) -> Finding {
    let context = context.unwrap_or_else(|| "an unknown domain".into());
    if enforce != "1" {
        let text = format!("it is permissive: what it would refuse sshd ({context}) is logged");
        let remedy = "ausearch -m avc, and see that nothing of sshd's or job_adopt's stands there \
                      before it is made enforcing";
        return Finding::note(SELINUX, "SELinux", text, remedy);
    }
    let text = format!(
        "it is enforcing, and no policy for it is shipped: sshd ({context}) may be kept from \
         bpf(2), from cgroups or from the helper, and then logins are refused"
    );
    let remedy = "job-adopt check --live USER, and ausearch -m avc for what was refused; the module \
                  clears the exec context that pam_selinux sets before it starts its helper";
    Finding::warning(SELINUX, "SELinux", text, remedy)
}

fn apparmor(pid: i32, profile: &str) -> Option<Finding> {
    let object = format!("sshd (process {pid})");
    let (name, mode) = profile.rsplit_once(" (").unwrap_or((profile, ""));
    match (name, mode) {
        ("", _) => None,
        ("unconfined", _) | (_, "unconfined)") => {
            Some(Finding::fine(APPARMOR, object, "no profile of AppArmor confines it"))
        }
        (name, "enforce)") => {
            let text = format!(
                "the profile {name} of AppArmor confines it: it has to allow bpf(2), cgroups, \
                 /run/job-adopt and the helper"
            );
            let remedy = "job-adopt check --live USER, and see the kernel's log for apparmor=\
                          \"DENIED\"; add what is missing to the profile";
            Some(Finding::warning(APPARMOR, object, text, remedy))
        }
        (name, _) => {
            let text = format!("the profile {name} of AppArmor is not enforced");
            Some(Finding::note(APPARMOR, object, text, "see what it logs before it is enforced"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Severity;
    use super::*;

    #[test]
    fn modes() {
        assert_eq!(selinux("1", None).severity, Severity::Warning);
        assert_eq!(
            selinux("0", Some("system_u:system_r:sshd_t:s0".into())).severity,
            Severity::Note
        );
        let judged = |profile| apparmor(7, profile).map(|finding| finding.severity);
        assert_eq!(judged("unconfined"), Some(Severity::Fine));
        assert_eq!(judged("/usr/sbin/sshd (unconfined)"), Some(Severity::Fine));
        assert_eq!(judged("/usr/sbin/sshd (enforce)"), Some(Severity::Warning));
        assert_eq!(judged("/usr/sbin/sshd (complain)"), Some(Severity::Note));
        assert_eq!(judged(""), None);
    }
}
