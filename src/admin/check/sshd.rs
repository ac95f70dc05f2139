//! The sshd that listens: whether its configuration has logins pass the service's stack (`sshd -T`),
//! and what it sees of the node: a unit may give it other mounts, namespaces and capabilities than
//! this process has (systemd.exec(5): `ProtectControlGroups=`, `PrivateDevices=`).

use super::ask::ask;
use super::mounts::hierarchy;
use super::programs::distrust;
use super::{Check, Finding, Scene};
use crate::admin::ending::{read_process, real_uid, runs_sshd};
use crate::helper::sources::processes;
use crate::kernel::cgroup::Mount;
use crate::kernel::proc::{self, Proc};
use crate::kernel::trust::Trust;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{Uid, geteuid};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

const CONFIG: Check = "sshd-config";
const PAM: Check = "sshd-pam";
const SERVICE: Check = "sshd-service";
const OTHERS: Check = "ssh-others";
const SERVER: Check = "sshd-server";
const NAMESPACES: Check = "sshd-namespaces";
const CGROUP_MOUNT: Check = "sshd-cgroup-mount";
const FILES: Check = "sshd-files";
const CAPABILITIES: Check = "sshd-capabilities";

/// Where packages have it.
const USUAL: &str = "/usr/sbin/sshd";
/// Where the helper is, unless `helper=` says otherwise.
const HELPER: &str = "/usr/libexec/job-adopt/resolve";
/// Servers of logins over the network that are not OpenSSH's, by the names of their processes.
const OTHER: [&str; 8] =
    ["dropbear", "tinysshd", "lshd", "telnetd", "in.telnetd", "in.rlogind", "in.rshd", "rlogind"];
/// Options of sshd that bear on its configuration, and take a value.
const KEPT: [&str; 2] = ["-f", "-o"];
/// Capabilities without which the module refuses every login, by their numbers in
/// `linux/capability.h`, and whether `CAP_SYS_ADMIN` does as well.
const NEEDED: [(&str, u32, bool); 5] = [
    ("CAP_SYS_ADMIN", SYS_ADMIN, false),
    ("CAP_BPF", 39, true),
    ("CAP_NET_ADMIN", 12, true),
    ("CAP_SETUID", 7, false),
    ("CAP_SETGID", 6, false),
];
const SYS_ADMIN: u32 = 21;

pub(super) fn findings(scene: &Scene) -> Vec<Finding> {
    let servers: Vec<i32> = pids().filter(|pid| is_server(*pid) && is_here(*pid)).collect();
    let mut found = configurations(&servers, &scene.service);
    found.extend(servers.iter().flat_map(|pid| views(*pid, scene)));
    found.extend(pids().filter_map(other));
    found
}

fn pids() -> impl Iterator<Item = i32> {
    processes::numbers(Path::new("/proc")).into_iter().flatten().flatten()
}

/// Whether it is an sshd of root's that listens, and not that of a login.
fn is_server(pid: i32) -> bool {
    runs_sshd(pid) && read_process(pid).is_some_and(|process| !process.is_sshd)
}

/// Whether it numbers processes as this process does. A container's is another node's.
fn is_here(pid: i32) -> bool {
    shares(pid, "pid") != Some(false)
}

fn dir(pid: i32) -> PathBuf {
    Proc::here().dir(pid)
}

fn object(pid: i32) -> String {
    format!("sshd (process {pid})")
}

/// Whether it has the same namespace of that kind as this process; `None` where that is not to be
/// seen.
fn shares(pid: i32, kind: &str) -> Option<bool> {
    let link = |dir: &Path| fs::read_link(dir.join("ns").join(kind)).ok();
    Some(link(&dir(pid))? == link(Path::new("/proc/self"))?)
}

/// A server of another make.
fn other(pid: i32) -> Option<Finding> {
    let name = proc::read(dir(pid).join("comm")).ok()?;
    let name = name.trim_end();
    let runs = OTHER.contains(&name) && is_here(pid) && real_uid(pid).is_some_and(Uid::is_root);
    runs.then(|| {
        let text = "serves logins and may ask no PAM module of this service";
        let remedy = "stop it, or let only operators reach it";
        Finding::warning(OTHERS, format!("{name} (process {pid})"), text, remedy)
    })
}

/// A program, with those of its options that bear on its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Instance {
    program: PathBuf,
    options: Vec<String>,
}

/// What matters of a configuration.
#[derive(Debug)]
struct Effective {
    use_pam: bool,
    /// `PAMServiceName` (OpenSSH 9.8), else the program's name.
    service: String,
}

/// What those that listen are configured to, each configuration once; where none does, what the one
/// would be that is started for each connection.
fn configurations(servers: &[i32], service: &str) -> Vec<Finding> {
    let mut instances: Vec<Instance> = Vec::new();
    for pid in servers {
        let new = Instance::of(*pid).filter(|instance| !instances.contains(instance));
        instances.extend(new);
    }
    if let (true, Ok(program)) = (instances.is_empty(), Path::new(USUAL).canonicalize()) {
        instances.push(Instance { program, options: Vec::new() });
    }
    let asked: Vec<_> = instances.iter().map(|one| (one.shown(), one.effective())).collect();
    let serves = |effective: &Effective| effective.service == service;
    let served = asked.iter().any(|(_, answer)| answer.as_ref().is_ok_and(serves));
    let judged = asked.into_iter().map(|(object, answer)| match answer {
        Ok(effective) => judge(&object, &effective, service, served),
        Err(finding) => vec![*finding],
    });
    judged.flatten().collect()
}

/// Another instance than that of the service in question may have a service of its own.
fn judge(object: &str, effective: &Effective, service: &str, served: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    found.push(match effective.use_pam {
        true => Finding::fine(PAM, object, "UsePAM yes"),
        false => {
            let text = "UsePAM no: sshd runs no PAM module, and every login is outside of jobs";
            Finding::error(PAM, object, text, "write \"UsePAM yes\" into sshd_config and reload")
        }
    });
    let own = &effective.service;
    if own != service && !served {
        let text = format!("its PAM service is {own}, and not {service}");
        let remedy = format!("set up /etc/pam.d/{own}, with service={own} on our lines");
        found.push(Finding::error(SERVICE, object, text, remedy));
    } else if own != service {
        let text = format!("its PAM service is {own}, which was not checked");
        let remedy = format!("run: job-adopt check --service {own}");
        found.push(Finding::note(SERVICE, object, text, remedy));
    }
    found
}

impl Instance {
    /// That of a process, whose title is believed, since only root can have started it.
    fn of(pid: i32) -> Option<Self> {
        let title = fs::read(dir(pid).join("cmdline")).ok()?;
        let program = fs::read_link(dir(pid).join("exe")).ok()?;
        // After an upgrade the running one is no more, and the next start has the new one.
        let program = PathBuf::from(program.to_str()?.trim_end_matches(" (deleted)"));
        // OpenSSH before 8.2 tells no options.
        let options = options(&String::from_utf8_lossy(&title)).unwrap_or_default();
        Some(Self { program, options })
    }

    /// How it is named in findings.
    fn shown(&self) -> String {
        let program = self.program.display().to_string();
        [&[program], self.options.as_slice()].concat().join(" ")
    }

    /// What its configuration comes to, or the finding that says why that cannot be told.
    fn effective(&self) -> Result<Effective, Box<Finding>> {
        let object = self.shown();
        if !geteuid().is_root() {
            let text = "only root can ask it for its configuration (sshd -T)";
            return Err(Box::new(Finding::unknown(CONFIG, object, text, "run this as root")));
        }
        if let Some(why) = distrust(&Trust::root(), &self.program) {
            let text = format!("runs as root, and {why}");
            return Err(Box::new(Finding::error(CONFIG, object, text, "install it again")));
        }
        let name = self.program.file_name().and_then(OsStr::to_str).unwrap_or("sshd");
        match ask(&self.program, &[&["-T".to_owned()], self.options.as_slice()].concat()) {
            Ok((true, text)) => Ok(Effective::parse(&text, name)),
            Ok((false, why)) => {
                let why = why.trim().replace(['\r', '\n'], " ");
                let text = format!("sshd -T fails, and so will its next start: {why}");
                Err(Box::new(Finding::error(CONFIG, object, text, "correct what it names")))
            }
            Err(why) => {
                let text = format!("cannot be asked: {why}");
                Err(Box::new(Finding::unknown(CONFIG, object, text, "run sshd -T by hand")))
            }
        }
    }
}

impl Effective {
    /// Reads the text that the program of this name wrote: a key in small letters and its value on
    /// each line.
    fn parse(text: &str, program: &str) -> Self {
        let value = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(own, _)| own.eq_ignore_ascii_case(key)).map(|(_, value)| value.trim())
        };
        let service = value("pamservicename").unwrap_or(program).to_owned();
        Self { use_pam: value("usepam") == Some("yes"), service }
    }
}

/// The options in a listener's title, "sshd: PROGRAM OPTIONS [listener] ..." (sshd.c:
/// `prepare_proctitle`); `None` for another process.
fn options(title: &str) -> Option<Vec<String>> {
    let (command, _) = title.strip_prefix("sshd: ")?.split_once(" [listener]")?;
    let mut words = command.split_whitespace().skip(1).peekable();
    let mut options = Vec::new();
    while let Some(word) = words.next() {
        match KEPT.into_iter().find(|option| word.starts_with(option)) {
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

/// What a server sees of this node and may do on it.
fn views(pid: i32, scene: &Scene) -> Vec<Finding> {
    let Some(same_mounts) = shares(pid, "mnt") else {
        let text = "its mounts and namespaces are not to be seen";
        return vec![Finding::unknown(SERVER, object(pid), text, "run this as root")];
    };
    let mut found = Vec::new();
    found.extend(namespaces(pid));
    if !same_mounts {
        found.extend(cgroup_mount(pid));
        found.extend(files(pid, scene));
    }
    found.extend(capabilities(pid, status(&dir(pid), "CapEff")));
    if found.is_empty() {
        let text = "it sees the same mounts as this process, and has what the module needs";
        found.push(Finding::fine(SERVER, object(pid), text));
    }
    found
}

fn namespaces(pid: i32) -> Option<Finding> {
    let others: Vec<&str> =
        ["cgroup", "user"].into_iter().filter(|kind| shares(pid, kind) == Some(false)).collect();
    if others.is_empty() {
        return None;
    }
    let text = format!(
        "it runs in another {} namespace: it cannot move a login into what is outside of it",
        others.join(" and ")
    );
    let remedy = "PrivateUsers=no and no ProtectControlGroups=private, ProtectControlGroups=strict \
                  or container around it";
    Some(Finding::error(NAMESPACES, object(pid), text, remedy))
}

fn cgroup_mount(pid: i32) -> Option<Finding> {
    let remedy = "take ProtectControlGroups=, ReadOnlyPaths= and the like from its unit: systemctl \
                  cat ssh.service sshd.service";
    let root = |mount: &Mount| fstat(mount.root()).map(|stat| (stat.st_dev, stat.st_ino));
    let text = match (hierarchy(&dir(pid).join("root")), hierarchy(Path::new("/"))) {
        (Ok(mount), Ok(ours)) if root(&mount) != root(&ours) => {
            format!("it sees another cgroup v2 hierarchy at {}", mount.path())
        }
        (Ok(_), _) => return None,
        (Err((wrong, _)), _) => format!("as it sees the mounts, {wrong}"),
    };
    Some(Finding::error(CGROUP_MOUNT, object(pid), text, remedy))
}

/// What both must see alike.
fn files(pid: i32, scene: &Scene) -> Vec<Finding> {
    let registry = scene.config.registry.dir().to_owned();
    let paths = [
        (PathBuf::from("/run/job-adopt"), "PrivateMounts=, TemporaryFileSystem= and the like"),
        (registry, "PrivateMounts=, TemporaryFileSystem= and the like"),
        (scene.conf.clone(), "ReadOnlyPaths=, BindPaths= and the like"),
        (PathBuf::from(HELPER), "InaccessiblePaths=, BindPaths= and the like"),
        (PathBuf::from("/dev"), "PrivateDevices="),
    ];
    paths.iter().filter_map(|(path, settings)| file(pid, path, settings)).collect()
}

fn file(pid: i32, path: &Path, settings: &str) -> Option<Finding> {
    let theirs = identity_in(&dir(pid).join("root"), path);
    let ours = identity_in(Path::new("/proc/self/root"), path);
    let text = match (theirs, ours) {
        (Ok(theirs), Ok(ours)) if theirs == ours => return None,
        // Missing for both: other checks are about that.
        (Err(Errno::ENOENT), Err(_)) => return None,
        (Ok(_), _) => "it sees another one".to_owned(),
        (Err(Errno::ENOENT), Ok(_)) => "it does not see it".to_owned(),
        (Err(errno), _) => {
            let text = format!("what {} sees there: {}", object(pid), errno.desc());
            return Some(Finding::unknown(FILES, path.display(), text, "run this as root"));
        }
    };
    let text = format!("{}: {text}", object(pid));
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

/// The value of a line of `/proc/PID/status`.
fn status(dir: &Path, key: &str) -> Option<String> {
    let text = proc::read(dir.join("status")).ok()?;
    proc::field(&text, &format!("{key}:")).map(str::to_owned)
}

/// What it may not do, as in a container (capabilities(7)).
fn capabilities(pid: i32, effective: Option<String>) -> Option<Finding> {
    let Some(set) = effective.and_then(|text| u64::from_str_radix(&text, 16).ok()) else {
        let text = "its capabilities are not to be seen";
        return Some(Finding::unknown(CAPABILITIES, object(pid), text, "run this as root"));
    };
    let has = |bit: u32| set & (1 << bit) != 0;
    let lacks = |(_, bit, admin): &(&str, u32, bool)| !(has(*bit) || *admin && has(SYS_ADMIN));
    let missing: Vec<&str> = NEEDED.into_iter().filter(lacks).map(|(name, ..)| name).collect();
    (!missing.is_empty()).then(|| {
        let text = format!("it lacks {}: logins are refused", missing.join(", "));
        let remedy = "give them: CapabilityBoundingSet= of its unit, --cap-add of its container";
        Finding::error(CAPABILITIES, object(pid), text, remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str, service: &str, served: bool) -> Vec<String> {
        let found = judge("sshd", &Effective::parse(text, "sshd"), service, served);
        let bad = found.iter().filter(|one| one.severity != super::super::finding::Severity::Fine);
        bad.map(|one| format!("{:?} {}", one.severity, one.check)).collect()
    }

    #[test]
    fn what_is_amiss_is_named() {
        assert_eq!(judged("usepam yes\n", "sshd", true), [""; 0]);
        assert_eq!(judged("usepam yes\n", "other", false), ["Error sshd-service"]);
        for text in ["usepam no\n", "", "permittunnel no\n"] {
            assert_eq!(judged(text, "sshd", true), ["Error sshd-pam"], "{text}");
        }
        let alternative = "usepam yes\npamservicename ssh-alt\n";
        assert_eq!(judged(alternative, "sshd", false), ["Error sshd-service"]);
        assert_eq!(judged(alternative, "sshd", true), ["Note sshd-service"]);
        assert_eq!(judged(alternative, "ssh-alt", true), [""; 0]);
    }

    #[test]
    fn the_program_names_the_service_where_nothing_else_does() {
        assert_eq!(Effective::parse("usepam yes\n", "sshd-alt").service, "sshd-alt");
        assert_eq!(Effective::parse("pamservicename x\n", "sshd-alt").service, "x");
    }

    #[test]
    fn a_capability_that_is_missing_is_named() {
        let text = |set: &str| capabilities(1, Some(set.to_owned())).map(|found| found.text);
        assert_eq!(text("000001ffffffffff"), None);
        let named = |set: &str| text(set).unwrap_or_default();
        assert!(named("000001ffffdfffff").contains("lacks CAP_SYS_ADMIN:"));
        assert!(named("000001ffffffffbf").contains("lacks CAP_SETGID:"));
        // Nothing but CAP_BPF and what it came from: one of them is enough.
        assert_eq!(text("0000017fffffffff"), None);
        assert!(named("0000017fffdfffff").contains("CAP_SYS_ADMIN, CAP_BPF:"));
        assert_eq!(named("no number"), "its capabilities are not to be seen");
    }

    #[test]
    fn a_listener_tells_its_options() {
        let kept = |title: &str| options(title).map(|options| options.join(" "));
        let rest = "[listener] 0 of 10-100 startups";
        assert_eq!(kept(&format!("sshd: /usr/sbin/sshd -D {rest}")), Some(String::new()));
        let title = format!("sshd: /usr/sbin/sshd -D -f /etc/x -p 2222 -oUsePAM=no -e {rest}");
        assert_eq!(kept(&title), Some("-f /etc/x -oUsePAM=no".into()));
        assert_eq!(kept("sshd: alice [priv]"), None);
        assert_eq!(kept("vim sshd: a [listener]"), None);
    }

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
