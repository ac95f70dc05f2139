//! Checks the drop-ins of others for users' slices: a device that one of them allows, whoever is outside of jobs can open.

use super::file_edit::FileEdit;
use super::finding::{Check, Finding};
use super::site::Site;
use super::slices::must_close_slices;
use super::unit_files::{Setting, find_in_file};
use command::accounts::user_name;
use facts::closed_slices::closed_slice_rules;
use helper::devices::{Resolver, Specifier};
use protocol::DeviceRule;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of unit files (systemd.unit(5)).
const UNIT_DIRS: [&str; 8] = [
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// The name of our files in each folder.
const OWN_FILE_NAME: &str = "job-adopt.conf";
const KEY: &str = "DeviceAllow";
/// The access of an entry without one (systemd.resource-control(5)).
const DEFAULT_ACCESS: &str = "rwm";

/// The slices that a drop-in is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    EveryUser,
    User(u32),
}

/// Lines of others that open devices in users' slices.
#[derive(Debug, Default)]
pub(super) struct SliceDropInFacts(Vec<(Scope, Setting)>);

impl SliceDropInFacts {
    /// Reads the drop-ins of users' slices that have to be closed; none where logins stay in the slices.
    pub(super) fn read(site: &Site) -> Self {
        if !must_close_slices(site) {
            return Self::default();
        }
        let resolver = Resolver::new(site.tree(), site.config.devices.clone());
        let allowed = closed_slice_rules(&site.config, &resolver);
        // If they are not known, what a file opens to one user may be meant.
        let exempt = site.list_exempt_accounts().ok();
        let is_judged = |scope: &Scope| match scope {
            Scope::EveryUser => true,
            Scope::User(uid) => exempt
                .as_ref()
                .is_some_and(|accounts| !accounts.contains_key(uid)),
        };
        let mut lines = read_drop_ins(site);
        lines.retain(|(scope, setting)| {
            is_judged(scope) && opens_more(&resolver, &allowed, setting.value())
        });
        Self(lines)
    }

    /// Warns of each line.
    pub(super) fn findings(&self) -> Vec<Finding> {
        self.0
            .iter()
            .map(|(scope, setting)| {
                let whose = match scope {
                    Scope::EveryUser => "every user".to_owned(),
                    Scope::User(uid) => user_name(*uid),
                };
                let text = format!(
                    "{}: opens a device to what {whose} runs outside of jobs",
                    setting.text
                );
                let remedy = FileEdit::remove(&setting.place, &setting.text)
                    .then("systemctl daemon-reload")
                    .to_string();
                Finding::warning(Check::SlicesOthers, &setting.place, text, remedy)
            })
            .collect()
    }
}

/// Reads the lines of others that allow devices in users' slices.
fn read_drop_ins(site: &Site) -> Vec<(Scope, Setting)> {
    let mut lines = Vec::new();
    // /lib may lead to /usr/lib.
    let dirs: BTreeSet<PathBuf> = UNIT_DIRS
        .iter()
        .filter_map(|dir| site.at(dir).canonicalize().ok())
        .collect();
    for dir in dirs {
        for (name, path) in list_dir(&dir) {
            let Some(scope) = scope_of(&name) else {
                continue;
            };
            if path.is_file() {
                add_lines(&mut lines, scope, &path);
                continue;
            }
            for (file, file_path) in list_dir(&path) {
                if file.ends_with(".conf") && file != OWN_FILE_NAME {
                    add_lines(&mut lines, scope, &file_path);
                }
            }
        }
    }
    lines
}

/// Lists a folder by name; nothing of one that cannot be read.
fn list_dir(dir: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<(String, PathBuf)> = entries
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect();
    files.sort();
    files
}

fn add_lines(lines: &mut Vec<(Scope, Setting)>, scope: Scope, file: &Path) {
    let settings = find_in_file(file, &[KEY]).into_iter();
    lines.extend(settings.map(|setting| (scope, setting)));
}

/// The slices that a unit file or a folder of drop-ins with this name is for; `None` if no user's slice is among them.
fn scope_of(name: &str) -> Option<Scope> {
    let slice = name.strip_suffix(".d").unwrap_or(name);
    let prefix = slice.strip_suffix(".slice")?;
    match prefix {
        "user-" => Some(Scope::EveryUser),
        _ => prefix.strip_prefix("user-")?.parse().ok().map(Scope::User),
    }
}

/// Checks whether an entry of `DeviceAllow=` opens more than closed slices do. One that does not resolve, since its device
/// is not there yet, does.
fn opens_more(resolver: &Resolver, allowed: &[DeviceRule], entry: &str) -> bool {
    let (spec, access) = entry.split_once(' ').unwrap_or((entry, DEFAULT_ACCESS));
    let devices = Specifier::new(spec, access.trim())
        .ok()
        .and_then(|specifier| resolver.resolve_specifier(&specifier).ok());
    devices.is_none_or(|resolved| {
        let is_allowed = |rule: &DeviceRule| allowed.iter().any(|other| covers(other, rule));
        resolved.devices.is_empty()
            || !resolved
                .devices
                .iter()
                .all(|device| is_allowed(&device.rule))
    })
}

/// Checks whether the devices of one rule include those of the other. Accesses do not matter: no user makes a node.
fn covers(rule: &DeviceRule, other: &DeviceRule) -> bool {
    (rule.kind(), rule.major()) == (other.kind(), other.major())
        && (rule.minor().is_none() || rule.minor() == other.minor())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use helper::Config;

    #[test]
    fn lines_of_others_are_found_with_their_scope() {
        let scratch = Scratch::new();
        let line = "[Slice]\nDeviceAllow=/dev/nvidia0\n";
        for file in [
            "etc/systemd/system/user-.slice.d/site.conf",
            "etc/systemd/system/user-.slice.d/job-adopt.conf",
            "etc/systemd/system/user-1002.slice.d/gpu.conf",
            "etc/systemd/system/user-1002.slice.d/gpu.conf.old",
            "etc/systemd/system.control/user-1003.slice.d/50-DeviceAllow.conf",
            "etc/systemd/system/ssh.service.d/x.conf",
        ] {
            scratch.file(file, line);
        }
        let conf = scratch.path().join("none");
        let site = Site::read(scratch.path().to_owned(), "sshd", conf, Config::default());
        let found: Vec<(Scope, String)> = read_drop_ins(&site)
            .into_iter()
            .map(|(scope, setting)| (scope, setting.place.to_string()))
            .collect();
        let at = |path: &str| format!("{}/{path}:2", scratch.path().display());
        assert_eq!(
            found,
            [
                (
                    Scope::EveryUser,
                    at("etc/systemd/system/user-.slice.d/site.conf")
                ),
                (
                    Scope::User(1002),
                    at("etc/systemd/system/user-1002.slice.d/gpu.conf")
                ),
                (
                    Scope::User(1003),
                    at("etc/systemd/system.control/user-1003.slice.d/50-DeviceAllow.conf")
                ),
            ]
        );
        let warned = SliceDropInFacts(read_drop_ins(&site)).findings();
        assert!(
            warned[0]
                .text
                .contains("DeviceAllow=/dev/nvidia0: opens a device to what every user")
        );
        assert!(warned[1].remedy.advice().contains("remove the line"));
    }

    /// `/dev/fuse` is in our own drop-in.
    #[test]
    fn device_of_closed_slices_opens_no_more() {
        let config = Config::default();
        let tree = helper::node::Tree::host();
        let resolver = Resolver::new(tree, config.devices.clone());
        let allowed = closed_slice_rules(&config, &resolver);
        assert!(!opens_more(&resolver, &allowed, "/dev/null rw"));
        assert!(!opens_more(&resolver, &allowed, "char-pts"));
        assert!(opens_more(&resolver, &allowed, "/dev/no-such-gpu0 rw"));
        assert!(opens_more(&resolver, &allowed, "char-mem rw"));
    }
}
