//! The sshd that listens: whether its configuration has logins pass the service's stack (`sshd -T`),
//! and what it sees of the node: a unit may give it other mounts, namespaces and capabilities than
//! this process has (systemd.exec(5): `ProtectControlGroups=`, `PrivateDevices=`).

use super::ask::ask;
use super::finding::Severity;
use super::mounts::hierarchy;
use super::programs::trusted;
use super::{Check, Finding, Site, roots};
use crate::ending::{read_process, runs_sshd};
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

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    let pids = processes::list_numbers(Path::new("/proc")).into_iter().flatten().flatten();
    let servers: Vec<i32> = pids.filter(|pid| is_server(*pid) && is_here(*pid)).collect();
    let mut found = configurations(&servers, site);
    found.extend(servers.iter().flat_map(|pid| views(*pid, site)));
    found.extend(roots(&OTHER).iter().filter(|(_, pid)| is_here(*pid)).map(|(name, pid)| {
        let text = "serves logins and may ask no PAM module of this service";
        let remedy = "stop it, or let only operators reach it";
        Finding::warning(OTHERS, format!("{name} (process {pid})"), text, remedy)
    }));
    found
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

/// What those that listen are configured to, each configuration once; where none does, what the one
/// would be that is started for each connection.
fn configurations(servers: &[i32], site: &Site) -> Vec<Finding> {
    let mut commands: BTreeSet<_> = servers.iter().filter_map(|pid| command(*pid)).collect();
    if let (true, Ok(program)) = (commands.is_empty(), Path::new(USUAL).canonicalize()) {
        commands.insert((program, Vec::new()));
    }
    let asked: Vec<_> = commands
        .iter()
        .map(|(program, options)| {
            let object = [&[program.display().to_string()], options.as_slice()].concat().join(" ");
            (effective(&object, program, options), object)
        })
        .collect();
    let is_served =
        |answer: &Result<(bool, String), _>| matches!(answer, Ok((_, own)) if *own == site.service);
    let served = asked.iter().any(|(answer, _)| is_served(answer));
    let judged = asked.into_iter().map(|(answer, object)| match answer {
        Ok((use_pam, own)) => judge(&object, use_pam, &own, &site.service, served),
        Err(finding) => vec![finding],
    });
    judged.flatten().collect()
}

/// Another instance than that of the service in question may have a service of its own.
fn judge(object: &str, use_pam: bool, own: &str, service: &str, served: bool) -> Vec<Finding> {
    let pam = match use_pam {
        true => Finding::fine(PAM, object, "UsePAM yes"),
        false => {
            let text = "UsePAM no: sshd runs no PAM module, and every login is outside of jobs";
            Finding::error(PAM, object, text, "write \"UsePAM yes\" into sshd_config and reload")
        }
    };
    let (severity, text, remedy) = match own == service {
        true => return vec![pam],
        false if served => {
            (Severity::Note, "not checked", format!("run: job-adopt check --service {own}"))
        }
        false => (
            Severity::Error,
            "not the one checked",
            format!("set up /etc/pam.d/{own}, with service={own} on our lines"),
        ),
    };
    let text = format!("its PAM service is {own}, {text}");
    vec![pam, Finding::new(severity, SERVICE, object, text, remedy)]
}

/// The program of a process, with those of its options that bear on its configuration. Its title is
/// believed, since only root can have started it.
fn command(pid: i32) -> Option<(PathBuf, Vec<String>)> {
    let title = fs::read(dir(pid).join("cmdline")).ok()?;
    let program = fs::read_link(dir(pid).join("exe")).ok()?;
    // After an upgrade the running one is no more, and the next start has the new one.
    let program = PathBuf::from(program.to_str()?.trim_end_matches(" (deleted)"));
    // OpenSSH before 8.2 tells no options.
    Some((program, options(&String::from_utf8_lossy(&title)).unwrap_or_default()))
}

/// What its configuration comes to, as [`parse`] has it, or the finding that says why that cannot be
/// told.
fn effective(object: &str, program: &Path, options: &[String]) -> Result<(bool, String), Finding> {
    if !geteuid().is_root() {
        let text = "only root can ask it for its configuration (sshd -T)";
        return Err(Finding::unknown(CONFIG, object, text, "run this as root"));
    }
    if let Err(why) = trusted(&Trust::root(), program) {
        let text = format!("runs as root, and {why}");
        return Err(Finding::error(CONFIG, object, text, "install it again"));
    }
    match ask(Command::new(program).arg("-T").args(options)) {
        Ok((true, text)) => Ok(parse(&text, program)),
        Ok((false, why)) => {
            let why = why.trim().replace(['\r', '\n'], " ");
            let text = format!("sshd -T fails, and so will its next start: {why}");
            Err(Finding::error(CONFIG, object, text, "correct what it names"))
        }
        Err(why) => {
            let text = format!("cannot be asked: {why}");
            Err(Finding::unknown(CONFIG, object, text, "run sshd -T by hand"))
        }
    }
}

/// Reads what the program wrote: a key in small letters and its value on each line. Gives whether it
/// uses PAM, and as which service: `PAMServiceName` (OpenSSH 9.8), else the program's name.
fn parse(text: &str, program: &Path) -> (bool, String) {
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(own, _)| own.eq_ignore_ascii_case(key)).map(|(_, value)| value.trim())
    };
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    (value("usepam") == Some("yes"), value("pamservicename").unwrap_or(&name).to_owned())
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
fn views(pid: i32, site: &Site) -> Vec<Finding> {
    let Some(same_mounts) = shares(pid, "mnt") else {
        let text = "its mounts and namespaces are not to be seen";
        return vec![Finding::unknown(SERVER, object(pid), text, "run this as root")];
    };
    let mut found = Vec::new();
    found.extend(namespaces(pid));
    if !same_mounts {
        found.extend(cgroup_mount(pid));
        found.extend(files(pid, site));
    }
    let status = proc::read(dir(pid).join("status")).unwrap_or_default();
    found.extend(capabilities(pid, proc::field(&status, "CapEff:").unwrap_or_default()));
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
    let root = |mount: &Mount| mount.root().identity().ok();
    let text = match (hierarchy(&dir(pid).join("root")), hierarchy(Path::new("/"))) {
        (Ok(mount), Ok(ours)) if root(&mount) != root(&ours) => {
            format!("it sees another cgroup v2 hierarchy at {}", mount.path())
        }
        (Ok(_), _) => return None,
        (Err((wrong, _)), _) => format!("as it sees the mounts, {wrong}"),
    };
    Some(Finding::error(CGROUP_MOUNT, object(pid), text, remedy))
}

/// What both must see alike. None of it may be a link, or be behind one.
fn files(pid: i32, site: &Site) -> Vec<Finding> {
    let (helper, mounts) =
        (site.settings().helper, "PrivateMounts=, TemporaryFileSystem= and the like");
    let paths = [
        (Path::new("/run/job-adopt"), mounts),
        (site.config.registry.dir(), mounts),
        (&site.conf, "ReadOnlyPaths=, BindPaths= and the like"),
        (Path::new(&helper), "InaccessiblePaths=, BindPaths= and the like"),
        (Path::new("/dev"), "PrivateDevices="),
    ];
    paths.into_iter().filter_map(|(path, settings)| file(pid, path, settings)).collect()
}

fn file(pid: i32, path: &Path, settings: &str) -> Option<Finding> {
    let identity = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino()));
    let theirs = identity(&dir(pid).join("root").join(path.strip_prefix("/").ok()?));
    let what = match (theirs, identity(path)) {
        (Ok(theirs), Ok(ours)) if theirs == ours => return None,
        (Ok(_), _) => "it sees another one".to_owned(),
        // Missing for both: other checks are about that.
        (Err(error), Err(_)) if error.kind() == ErrorKind::NotFound => return None,
        (Err(error), _) => format!("it does not see it ({error})"),
    };
    let text = format!("{}: {what}", object(pid));
    let remedy = format!("take {settings} from its unit");
    // Logins are in sshd's mounts, which they may have devices of their own in.
    let severity = if path == Path::new("/dev") { Severity::Warning } else { Severity::Error };
    Some(Finding::new(severity, FILES, path.display(), text, remedy))
}

/// What it may not do, as in a container (capabilities(7)).
fn capabilities(pid: i32, effective: &str) -> Option<Finding> {
    let Ok(set) = u64::from_str_radix(effective, 16) else {
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
        let (use_pam, own) = parse(text, Path::new("/usr/sbin/sshd"));
        let found = judge("sshd", use_pam, &own, service, served);
        let bad = found.iter().filter(|one| one.severity != Severity::Fine);
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
        assert_eq!(parse("usepam yes\n", Path::new("/opt/sshd-alt")).1, "sshd-alt");
        assert_eq!(parse("pamservicename x\n", Path::new("/opt/sshd-alt")).1, "x");
    }

    #[test]
    fn a_capability_that_is_missing_is_named() {
        let text = |set: &str| capabilities(1, set).map(|found| found.text);
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
}
