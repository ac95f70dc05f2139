//! Checks whether a running sshd sees the node as this process does. A unit may give it other mounts,
//! namespaces and capabilities (systemd.exec(5): `ProtectControlGroups=`, `PrivateDevices=`).

use super::finding::{Check, Finding, Severity};
use super::locked_memory::LockedMemory;
use super::mounts::{HierarchyError, open_hierarchy};
use super::remedy::Remedy;
use super::site::Site;
use super::unit_files::unset_keys;
use facts::root_processes::shares_namespace;
use facts::service_unit::find_unit;
use helper::stack::service_dirs;
use kernel::proc::{self, Proc};
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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

/// The folder of the files that modules read.
const LIMITS_DIR: &str = "/etc/security";

pub(super) fn proc_dir(pid: i32) -> PathBuf {
    Proc::host().dir(pid)
}

/// The object of findings about a server.
pub(super) fn process_object(pid: i32) -> String {
    format!("sshd (process {pid})")
}

/// A server that listens, and what its mounts, namespaces, capabilities and limits do to logins.
#[derive(Debug)]
pub(super) struct ServerProcess {
    pid: i32,
    /// `None` if no unit runs it.
    unit: Option<String>,
    /// `None` if its namespaces cannot be read.
    view: Option<View>,
}

#[derive(Debug)]
struct View {
    /// The kinds of namespaces that hold the server, and not this process.
    other_namespaces: Vec<&'static str>,
    /// Why its cgroup v2 mount takes no login.
    cgroup_fault: Option<CgroupFault>,
    hidden_files: Vec<HiddenFile>,
    /// `None` if its capabilities cannot be read.
    capabilities: Option<u64>,
    locked_memory: LockedMemory,
}

#[derive(Debug, thiserror::Error)]
enum CgroupFault {
    #[error("sees another cgroup v2 hierarchy at {0}")]
    OtherHierarchy(String),
    #[error("as it sees the mounts, {0}")]
    Unusable(HierarchyError),
}

/// A file of this node that the server does not see.
#[derive(Debug)]
struct HiddenFile {
    path: PathBuf,
    /// Settings of units that have this effect.
    settings: &'static str,
    severity: Severity,
    /// The failure to open it; `None` if there is another file.
    error: Option<io::Error>,
}

impl ServerProcess {
    pub(super) fn read(pid: i32, site: &Site) -> Self {
        let view = shares_namespace(&Proc::host(), pid, "mnt")
            .map(|shares_mounts| View::read(pid, site, shares_mounts));
        Self {
            pid,
            unit: find_unit(pid),
            view,
        }
    }

    /// Judges whether the module can work in the logins of this server, and what these inherit from it.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let object = process_object(self.pid);
        let Some(view) = &self.view else {
            let text = "its mounts and namespaces cannot be read";
            return vec![Finding::unknown(
                Check::SshdServer,
                object,
                text,
                "run this as root",
            )];
        };
        let mut findings = Vec::new();
        // "private" and "strict" of ProtectControlGroups= give the unit a cgroup namespace of its own.
        let namespace_remedy = self.unit_remedy(
            &["PrivateUsers", "ProtectControlGroups"],
            "remove PrivateUsers= and ProtectControlGroups= from its unit, or run it outside of the container",
        );
        findings.extend(judge_namespaces(
            &object,
            &view.other_namespaces,
            namespace_remedy,
        ));
        if let Some(fault) = &view.cgroup_fault {
            let cgroup_remedy = self.unit_remedy(
                &["ProtectControlGroups", "ReadOnlyPaths", "InaccessiblePaths"],
                "remove ProtectControlGroups=, ReadOnlyPaths= and the like from its unit",
            );
            findings.push(Finding::error(
                Check::SshdCgroupMount,
                &object,
                fault,
                cgroup_remedy,
            ));
        }
        for file in &view.hidden_files {
            let advice = format!("remove {} from its unit", file.settings);
            let file_remedy = self.unit_remedy(file.keys(), &advice);
            findings.push(file.finding(&object, file_remedy));
        }
        let capability_remedy = self.unit_remedy(
            &["CapabilityBoundingSet"],
            "add them to CapabilityBoundingSet= of its unit, or by --cap-add to its container",
        );
        findings.extend(judge_capabilities(
            &object,
            view.capabilities,
            capability_remedy,
        ));
        if findings.is_empty() {
            let text = "sees the same mounts as this process, and has what the module needs";
            findings.push(Finding::fine(Check::SshdServer, &object, text));
        }
        // These do not count above: what logins inherit does not keep the module from working.
        findings.extend(view.locked_memory.finding(&object));
        findings
    }
}

impl ServerProcess {
    /// Names the lines of the server's unit that set these keys, or `advice` if none does or no unit runs the server.
    fn unit_remedy(&self, keys: &[&str], advice: &str) -> Remedy {
        match &self.unit {
            Some(unit) => unset_keys(unit, keys, advice),
            None => advice.into(),
        }
    }
}

impl View {
    /// Reads what a server's process sees and inherits. If `shares_mounts`, it sees the mounts that this
    /// process sees, and they need no comparison.
    fn read(pid: i32, site: &Site, shares_mounts: bool) -> Self {
        let status = proc::read(proc_dir(pid).join("status")).unwrap_or_default();
        let capabilities = proc::find_field(&status, "CapEff:").unwrap_or_default();
        Self {
            other_namespaces: ["cgroup", "user"]
                .into_iter()
                .filter(|kind| shares_namespace(&Proc::host(), pid, kind) == Some(false))
                .collect(),
            cgroup_fault: if shares_mounts {
                None
            } else {
                find_cgroup_fault(pid)
            },
            hidden_files: if shares_mounts {
                Vec::new()
            } else {
                find_hidden_files(pid, site)
            },
            capabilities: parse_capabilities(capabilities),
            locked_memory: LockedMemory::read(&proc_dir(pid)),
        }
    }
}

/// Reports the kinds of namespaces in which a server differs from this process; `None` if there are none.
fn judge_namespaces(object: &str, others: &[&str], remedy: Remedy) -> Option<Finding> {
    if others.is_empty() {
        return None;
    }
    let text = format!(
        "runs in another {} namespace, so it cannot move logins into jobs outside of that",
        others.join(" and ")
    );
    Some(Finding::error(Check::SshdNamespaces, object, text, remedy))
}

/// Finds why the server's mount of cgroup v2 takes no login: it is missing or read-only, whatever this process sees, or
/// it is another hierarchy than this process's. `None` if neither holds; without a writable mount of this process there
/// is nothing to compare.
fn find_cgroup_fault(pid: i32) -> Option<CgroupFault> {
    let theirs = match open_hierarchy(&proc_dir(pid).join("root")) {
        Ok(mount) => mount,
        Err(error) => return Some(CgroupFault::Unusable(error)),
    };
    let ours = open_hierarchy(Path::new("/")).ok()?;
    if theirs.root().identity().ok() == ours.root().identity().ok() {
        return None;
    }
    Some(CgroupFault::OtherHierarchy(theirs.path().to_owned()))
}

/// Finds the files that server and command must both see, and the server does not.
///
/// The server's files are opened below `/proc/PID/root`. No path may be or contain an absolute link, which would
/// lead out of there.
fn find_hidden_files(pid: i32, site: &Site) -> Vec<HiddenFile> {
    let helper = site.settings().helper;
    let mounts = "PrivateMounts=, TemporaryFileSystem= and the like";
    let binds = "BindPaths=, BindReadOnlyPaths= and the like";
    let mut hidden = Vec::new();
    // The module works with another `/dev`, but logins then have the devices of that one.
    for (path, severity, settings) in [
        (Path::new("/run/job-adopt"), Severity::Error, mounts),
        (site.config.registry.dir(), Severity::Error, mounts),
        (
            site.conf.as_path(),
            Severity::Error,
            "ReadOnlyPaths=, BindPaths= and the like",
        ),
        (
            Path::new(&helper),
            Severity::Error,
            "InaccessiblePaths=, BindPaths= and the like",
        ),
        (Path::new("/dev"), Severity::Warning, "PrivateDevices="),
    ] {
        hidden.extend(HiddenFile::find(pid, path, severity, settings));
    }
    // Other PAM files may be right: whether they take logins into jobs is judged as a login there reads them.
    let mut folders = service_dirs(Path::new("/"));
    folders.push(LIMITS_DIR.into());
    let entries = site.account.iter().chain(&site.session);
    let files: BTreeSet<&Path> = entries.map(|entry| entry.place.file.as_path()).collect();
    for path in folders.iter().map(PathBuf::as_path).chain(files) {
        let is_explained = hidden
            .iter()
            .any(|file: &HiddenFile| path.starts_with(&file.path));
        if !is_explained {
            hidden.extend(HiddenFile::find(pid, path, Severity::Warning, binds));
        }
    }
    hidden
}

impl HiddenFile {
    /// Compares a file of this node with the one that a server sees at its path; `None` if they are the same
    /// file, or if neither exists: other checks report that.
    fn find(pid: i32, path: &Path, severity: Severity, settings: &'static str) -> Option<Self> {
        let their_path = proc_dir(pid)
            .join("root")
            .join(path.strip_prefix("/").ok()?);
        let ours = file_identity(path).ok();
        let error = match file_identity(&their_path) {
            Ok(theirs) if ours == Some(theirs) => return None,
            Ok(_) => None,
            Err(error) if ours.is_none() && error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => Some(error),
        };
        Some(Self {
            path: path.to_owned(),
            settings,
            severity,
            error,
        })
    }

    /// The settings of a unit that may keep it from seeing the file.
    fn keys(&self) -> &'static [&'static str] {
        if self.is_dev() {
            return &["PrivateDevices"];
        }
        &[
            "BindPaths",
            "BindReadOnlyPaths",
            "InaccessiblePaths",
            "PrivateMounts",
            "TemporaryFileSystem",
        ]
    }

    fn is_dev(&self) -> bool {
        self.path == Path::new("/dev")
    }

    fn finding(&self, server: &str, remedy: Remedy) -> Finding {
        let text = match &self.error {
            Some(error) => format!("{server} does not see it ({error})"),
            None => format!("{server} sees another one there, which is not checked in whole"),
        };
        Finding::new(
            self.severity,
            Check::SshdFiles,
            self.path.display(),
            text,
            remedy,
        )
    }
}

/// The device and inode of a file.
fn file_identity(path: &Path) -> io::Result<(u64, u64)> {
    path.metadata().map(|meta| (meta.dev(), meta.ino()))
}

/// Parses the mask of capabilities in a process's status.
fn parse_capabilities(mask: &str) -> Option<u64> {
    u64::from_str_radix(mask, 16).ok()
}

/// Reports the required capabilities that a server lacks, since a container may take them away
/// (capabilities(7)); `None` if it has all. `effective` is `None` if they cannot be read.
fn judge_capabilities(object: &str, effective: Option<u64>, remedy: Remedy) -> Option<Finding> {
    let Some(set) = effective else {
        let text = "its capabilities cannot be read";
        return Some(Finding::unknown(
            Check::SshdCapabilities,
            object,
            text,
            "run this as root",
        ));
    };
    let mut missing = Vec::new();
    for (name, number, by_admin) in REQUIRED_CAPABILITIES {
        let is_included = by_admin && has_capability(set, CAP_SYS_ADMIN);
        if !is_included && !has_capability(set, number) {
            missing.push(name);
        }
    }
    if missing.is_empty() {
        return None;
    }
    let text = format!("lacks {}: logins are refused", missing.join(", "));
    Some(Finding::error(
        Check::SshdCapabilities,
        object,
        text,
        remedy,
    ))
}

fn has_capability(set: u64, number: u32) -> bool {
    set & (1 << number) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capability_is_named() {
        let text = |set: &str| {
            judge_capabilities("sshd", parse_capabilities(set), Remedy::default())
                .map(|finding| finding.text)
        };
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
    fn each_difference_of_view_is_reported() {
        let good = || View {
            other_namespaces: Vec::new(),
            cgroup_fault: None,
            hidden_files: Vec::new(),
            capabilities: Some(u64::MAX),
            locked_memory: LockedMemory::default(),
        };
        let hidden = |path: &str| {
            let file = HiddenFile {
                path: path.into(),
                settings: "PrivateMounts=",
                severity: Severity::Error,
                error: None,
            };
            View {
                hidden_files: vec![file],
                ..good()
            }
        };
        let other = CgroupFault::OtherHierarchy("/sys/fs/cgroup".to_owned());
        for (view, expected) in [
            (Some(good()), "fine sshd-server"),
            (None, "unknown sshd-server"),
            (
                Some(View {
                    other_namespaces: vec!["user"],
                    ..good()
                }),
                "error sshd-namespaces",
            ),
            (
                Some(View {
                    cgroup_fault: Some(other),
                    ..good()
                }),
                "error sshd-cgroup-mount",
            ),
            (Some(hidden("/run/job-adopt")), "error sshd-files"),
            (
                Some(View {
                    capabilities: None,
                    ..good()
                }),
                "unknown sshd-capabilities",
            ),
        ] {
            let findings = ServerProcess {
                pid: 7,
                unit: None,
                view,
            }
            .findings();
            let [finding] = findings.as_slice() else {
                panic!("{findings:?}")
            };
            assert_eq!(format!("{} {}", finding.severity, finding.check), expected);
        }
    }
}
