//! Other services than the one that is checked.

use super::{Check, Finding, Site};
use crate::resolve::stack::{Entry, Group, entries};
use std::collections::BTreeSet;

const SERVICES: Check = "pam-services";
const DOORS: Check = "pam-doors";

const FOLDERS: [&str; 2] = ["etc/pam.d", "usr/lib/pam.d"];
/// Services by which people come to a shell of a node, besides ssh, and do not take one over from a
/// login that is there already as su(1) does.
const SHELLS: [&str; 15] = [
    "cockpit",
    "dropbear",
    "gdm-password",
    "jupyterhub",
    "kshell",
    "lightdm",
    "login",
    "remote",
    "rexec",
    "rlogin",
    "rsh",
    "rstudio",
    "sddm",
    "vsftpd",
    "xrdp-sesman",
];

pub(super) fn findings(site: &Site<'_>) -> Vec<Finding> {
    let own = site.scene.service.to_ascii_lowercase();
    let (mut passed, mut judged, mut doors) = (Vec::new(), Vec::new(), Vec::new());
    for service in services(site).into_iter().filter(|service| *service != own) {
        let ours = ours(site, &service);
        if ours.iter().any(super::stack::is_for_service) {
            judged.push(service);
        } else if !ours.is_empty() {
            passed.push(service);
        } else if SHELLS.contains(&service.as_str()) {
            doors.push(service);
        }
    }
    let mut found = Vec::new();
    if !passed.is_empty() {
        let text = "run the module, which answers PAM_IGNORE there: service= names another";
        found.push(Finding::note(SERVICES, passed.join(", "), text, ""));
    }
    for service in judged {
        let text = "is judged as well, and was not checked";
        let remedy = format!("run: job-adopt check --service {service}");
        found.push(Finding::note(SERVICES, service, text, remedy));
    }
    if !doors.is_empty() {
        let text = "open sessions without the module, outside of any job";
        let remedy = "let only operators use them, or give their stacks both lines with service=";
        found.push(Finding::note(DOORS, doors.join(", "), text, remedy));
    }
    found
}

/// The names of services, sorted.
fn services(site: &Site<'_>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in FOLDERS {
        let Ok(listed) = std::fs::read_dir(site.scene.root.join(folder)) else { continue };
        names.extend(listed.flatten().filter_map(|entry| entry.file_name().into_string().ok()));
    }
    names
}

fn ours(site: &Site<'_>, service: &str) -> Vec<Entry> {
    let of = |group| entries(&site.scene.root, service, group).unwrap_or_default();
    let all = of(Group::Account).into_iter().chain(of(Group::Session));
    all.filter(|entry| entry.ours.is_some()).collect()
}
