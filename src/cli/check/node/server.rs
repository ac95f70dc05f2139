//! What the sshd that listens sees of the node: a unit may give it other mounts and namespaces
//! than this process has (systemd.exec(5): `ProtectControlGroups=`, `PrivateDevices=`).

use super::cgroups::Hierarchy;
use super::mountinfo::Mounts;
use super::{Check, Finding, Scene};
use crate::cli::ending::{read_process, runs_sshd};
use crate::proc;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, fstat};
use std::fs;
use std::path::{Path, PathBuf};

const SERVER: Check = "sshd-server";
const NAMESPACES: Check = "sshd-namespaces";
const CGROUP_MOUNT: Check = "sshd-cgroup-mount";
const FILES: Check = "sshd-files";
const SANDBOX: Check = "sshd-sandbox";

/// Where the helper is, unless `helper=` says otherwise.
const HELPER: &str = "/usr/libexec/job-adopt/resolve";

/// An sshd of root's that listens.
#[derive(Clone, Debug)]
pub(in super::super) struct Server {
    pub(in super::super) pid: i32,
}

impl Server {
    /// All of them: by their executable and a socket that listens.
    pub(in super::super) fn all() -> Vec<Self> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        // What is the sshd of a login is told from the one that listens there.
        let listens = |&pid: &i32| {
            runs_sshd(pid) && read_process(pid).is_some_and(|process| !process.is_sshd)
        };
        let mut pids: Vec<i32> = pids.filter(listens).collect();
        pids.sort_unstable();
        pids.into_iter().map(|pid| Self { pid }).collect()
    }

    /// Whether it numbers processes as this process does. One of a container has cgroups and
    /// capabilities of its own.
    pub(in super::super) fn is_here(&self) -> bool {
        self.shares("pid") != Some(false)
    }

    /// Its directory in `/proc`.
    pub(super) fn dir(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.pid))
    }

    /// The value of a line of its `status`.
    pub(super) fn status(&self, key: &str) -> Option<String> {
        status(&self.dir(), key)
    }

    fn object(&self) -> String {
        format!("sshd (process {})", self.pid)
    }

    /// Whether it has the same namespace of that kind as this process; `None` where that is not
    /// to be seen.
    fn shares(&self, kind: &str) -> Option<bool> {
        let link = |dir: &Path| fs::read_link(dir.join("ns").join(kind)).ok();
        Some(link(&self.dir())? == link(Path::new("/proc/self"))?)
    }
}

/// The value of a line of `/proc/PID/status`.
pub(super) fn status(dir: &Path, key: &str) -> Option<String> {
    let text = proc::read(dir.join("status")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

pub(super) fn findings(servers: &[Server], own: &Mounts, scene: &Scene) -> Vec<Finding> {
    if servers.is_empty() {
        let text = "no sshd listens, so what it sees of this node cannot be told";
        let remedy = "start it; one that systemd starts for each connection (ssh.socket) is seen \
                      by: job-adopt check --live USER";
        return vec![Finding::note(SERVER, "sshd", text, remedy)];
    }
    servers.iter().flat_map(|server| of(server, own, scene)).collect()
}

fn of(server: &Server, own: &Mounts, scene: &Scene) -> Vec<Finding> {
    let object = server.object();
    if !server.is_here() {
        let text = "it runs in another pid namespace, as one of a container does";
        let remedy = "where it is to take logins into jobs, run this command in there as well";
        return vec![Finding::note(NAMESPACES, object, text, remedy)];
    }
    let Ok(mounts) = Mounts::of(&server.dir()) else {
        let text = "its mounts and namespaces are not to be seen";
        return vec![Finding::unknown(SERVER, object, text, "run this as root")];
    };
    let mut findings = vec![namespaces(server)];
    if server.shares("mnt") == Some(false) {
        findings.push(cgroup_mount(server, &mounts, own));
        findings.extend(files(server, scene));
    } else {
        findings.push(Finding::fine(SERVER, &object, "it sees the same mounts as this process"));
    }
    findings.extend(sandbox(server));
    findings
}

fn namespaces(server: &Server) -> Finding {
    let others: Vec<&str> =
        ["cgroup", "user"].into_iter().filter(|kind| server.shares(kind) == Some(false)).collect();
    let object = server.object();
    if others.is_empty() {
        return Finding::fine(NAMESPACES, object, "its namespaces are those of this process");
    }
    let text = format!(
        "it runs in another {} namespace: it cannot move a login into what is outside of it",
        others.join(" and ")
    );
    let remedy = "PrivateUsers=no and no ProtectControlGroups=private, ProtectControlGroups=strict \
                  or container around it";
    Finding::error(NAMESPACES, object, text, remedy)
}

fn cgroup_mount(server: &Server, mounts: &Mounts, own: &Mounts) -> Finding {
    let object = server.object();
    let remedy = "take ProtectControlGroups=, ReadOnlyPaths= and the like from its unit: systemctl \
                  cat ssh.service sshd.service";
    let wrong = |text: String| Finding::error(CGROUP_MOUNT, object.clone(), text, remedy);
    match (Hierarchy::of(mounts), Hierarchy::of(own)) {
        (Hierarchy::Missing(_), _) => wrong("it sees no cgroup v2: every login is refused".into()),
        (Hierarchy::ReadOnly(mount), _) => {
            wrong(format!("it sees {} read-only: no login can be moved into its job", mount.point))
        }
        (Hierarchy::Foreign(mount), _) => {
            wrong(format!("it sees {} as another cgroup namespace does", mount.point))
        }
        (Hierarchy::Usable(mount), Hierarchy::Usable(ours)) if mount.device != ours.device => {
            wrong(format!("it sees another cgroup v2 hierarchy at {}", mount.point))
        }
        (Hierarchy::Usable(mount), _) => {
            let text = format!("it sees {} writable, in mounts of its own", mount.point);
            Finding::fine(CGROUP_MOUNT, object, text)
        }
    }
}

/// What both have to see alike.
fn files(server: &Server, scene: &Scene) -> Vec<Finding> {
    let registry = scene.config.registry.dir().to_owned();
    let paths = [
        (PathBuf::from("/run/job-adopt"), "PrivateMounts=, TemporaryFileSystem= and the like"),
        (registry, "PrivateMounts=, TemporaryFileSystem= and the like"),
        (scene.conf.clone(), "ReadOnlyPaths=, BindPaths= and the like"),
        (PathBuf::from(HELPER), "InaccessiblePaths=, BindPaths= and the like"),
        (PathBuf::from("/dev"), "PrivateDevices="),
    ];
    paths.iter().filter_map(|(path, settings)| file(server, path, settings)).collect()
}

fn file(server: &Server, path: &Path, settings: &str) -> Option<Finding> {
    let theirs = identity_in(&server.dir().join("root"), path);
    let ours = identity_in(Path::new("/proc/self/root"), path);
    let text = match (theirs, ours) {
        (Ok(theirs), Ok(ours)) if theirs == ours => return None,
        // Missing for both: other checks are about that.
        (Err(Errno::ENOENT), Err(_)) => return None,
        (Ok(_), _) => "it sees another one".to_owned(),
        (Err(Errno::ENOENT), Ok(_)) => "it does not see it".to_owned(),
        (Err(errno), _) => {
            let text = format!("what {} sees there: {}", server.object(), errno.desc());
            return Some(Finding::unknown(FILES, path.display(), text, "run this as root"));
        }
    };
    let text = format!("{}: {text}", server.object());
    let remedy = format!("take {settings} from its unit");
    // Logins are in sshd's mounts, which they may have devices of their own in.
    Some(match path == Path::new("/dev") {
        true => Finding::warning(FILES, path.display(), text, remedy),
        false => Finding::error(FILES, path.display(), text, remedy),
    })
}

/// Device and inode of a path below another root directory.
fn identity_in(root: &Path, path: &Path) -> Result<(u64, u64), Errno> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let root = open(root, flags | OFlag::O_DIRECTORY, Mode::empty())?;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let stat = fstat(openat2(&root, path, how)?)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// What its unit takes away from it by other means than mounts.
fn sandbox(server: &Server) -> Option<Finding> {
    let mut what = Vec::new();
    if server.status("NoNewPrivs").as_deref() == Some("1") {
        what.push("no_new_privs, so that logins can use no sudo");
    }
    if server.status("Seccomp").is_some_and(|mode| mode != "0") {
        what.push("a filter of system calls");
    }
    (!what.is_empty()).then(|| {
        let text = format!("it has {}", what.join(" and "));
        let remedy = "see whether all logins work: job-adopt check --live USER; else take \
                      NoNewPrivileges= and SystemCallFilter= from its unit";
        Finding::warning(SANDBOX, server.object(), text, remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_by_its_keys() {
        let own = Path::new("/proc/self");
        assert_eq!(status(own, "Pid"), Some(std::process::id().to_string()));
        assert_eq!(status(own, "Pi"), None);
    }

    #[test]
    fn a_path_is_the_same_below_ones_own_root() {
        let root = Path::new("/proc/self/root");
        let Ok(found) = identity_in(root, Path::new("/proc/self/status")) else { return };
        assert_eq!(found.0, identity_in(Path::new("/"), Path::new("/proc/self/status")).unwrap().0);
        assert_eq!(identity_in(root, Path::new("/no/such")), Err(Errno::ENOENT));
    }
}
