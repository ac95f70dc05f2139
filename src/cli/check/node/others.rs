//! Other services that start what users want: cron(8), atd(8), and what logind leaves.

use super::{Check, Finding, Scene};
use crate::bpf::{self, Purpose};
use crate::cgroup::{Membership, Mount};
use crate::cli::ending::real_uid;
use crate::plan::CgroupPath;
use crate::resolve::Guarded;
use nix::unistd::Uid;
use std::fs;
use std::path::PathBuf;

const CRON: Check = "cron-guard";
const LOGIND: Check = "logind-kill";

/// Programs that run commands of users, by the names of their files.
const DAEMONS: [&str; 5] = ["cron", "crond", "atd", "anacron", "fcron"];

pub(super) fn findings(scene: &Scene) -> Vec<Finding> {
    let mut findings: Vec<Finding> = match scene.config.guarded {
        _ if !scene.is_enforced() => Vec::new(),
        Guarded::Nothing => Vec::new(),
        _ => daemons().iter().map(|(pid, name)| cron(*pid, name)).collect(),
    };
    findings.extend(logind(scene));
    findings
}

/// Those that run, by their executable: numbers and names.
fn daemons() -> Vec<(i32, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let daemon = |pid: i32| {
        let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let name = path.file_name()?.to_str()?.trim_end_matches(" (deleted)").to_owned();
        let roots = real_uid(pid).is_some_and(Uid::is_root);
        (roots && DAEMONS.contains(&name.as_str())).then_some((pid, name))
    };
    let mut found: Vec<(i32, String)> = pids.filter_map(daemon).collect();
    // Each job of a user's has a copy of the daemon above it.
    found.sort();
    found.dedup_by(|one, other| one.1 == other.1);
    found
}

fn cron(pid: i32, name: &str) -> Finding {
    let object = format!("{name} (process {pid})");
    match is_guarded(pid) {
        Ok(Some(path)) => {
            let text = format!("what it starts in {path} opens no guarded device");
            Finding::fine(CRON, object, text)
        }
        Ok(None) => Finding::warning(
            CRON,
            object,
            "it runs commands of users outside of jobs and of their slices, with every device",
            "guard its service: cp -r the folder of its name in /usr/share/job-adopt/systemd to \
             /etc/systemd/system/, systemctl daemon-reload, and restart it; or let users have none: \
             crontab(1), at.allow(5)",
        ),
        Err(why) => Finding::unknown(CRON, object, why, "run this as root"),
    }
}

/// The cgroup of a process, where a guard is in force there.
fn is_guarded(pid: i32) -> Result<Option<String>, String> {
    let membership = Membership::of(pid).map_err(|error| error.to_string())?;
    let path = membership.unified().unwrap_or("/").to_owned();
    let mount = Mount::open().map_err(|error| error.to_string())?;
    let place = match path.parse::<CgroupPath>() {
        Ok(path) => mount.place(&path).map_err(|error| error.to_string())?,
        // The root, which is nobody's to guard.
        Err(_) => return Ok(None),
    };
    let dir = place.dir().map_err(|error| error.to_string())?;
    let running = bpf::in_force(dir).map_err(|error| error.to_string())?;
    Ok(running.iter().any(|program| program.purpose() == Some(Purpose::Guard)).then_some(path))
}

/// `KillUserProcesses=` of logind.conf(5): for the processes of sessions, which a login that was
/// taken into a job is no part of.
fn logind(scene: &Scene) -> Option<Finding> {
    let kills = setting(scene)?;
    matches!(kills.as_str(), "yes" | "true" | "on" | "1").then(|| {
        Finding::note(
            LOGIND,
            "KillUserProcesses=yes",
            "logind ends what is left of a session in its scope; logins in jobs are elsewhere, and \
             what they leave behind ends with the job",
            "nothing, unless users count on it",
        )
    })
}

/// The last one that is set counts, of the file and then of the drop-ins by their names.
fn setting(scene: &Scene) -> Option<String> {
    let folders = ["/usr/lib/systemd", "/run/systemd", "/etc/systemd"];
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let entries = fs::read_dir(scene.at(&format!("{folder}/logind.conf.d")));
        files.extend(entries.into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    files.retain(|path| path.extension().is_some_and(|end| end == "conf"));
    files.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    files.insert(0, scene.at("/etc/systemd/logind.conf"));
    let texts = files.iter().filter_map(|path| fs::read_to_string(path).ok());
    texts.rev().find_map(|text| value(&text))
}

fn value(text: &str) -> Option<String> {
    text.lines().rev().find_map(|line| {
        let (key, value) = line.trim().split_once('=')?;
        (key.trim() == "KillUserProcesses").then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_the_last_one_and_no_comment() {
        let text =
            "[Login]\n#KillUserProcesses=no\nKillUserProcesses=no\n KillUserProcesses = yes\n";
        assert_eq!(value(text).as_deref(), Some("yes"));
        assert_eq!(value("#KillUserProcesses=yes\nKillUserProcess=yes\n"), None);
    }
}
