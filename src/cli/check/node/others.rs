//! What logind leaves.

use super::{Check, Finding, Scene};
use std::fs;
use std::path::PathBuf;

const LOGIND: Check = "logind-kill";

pub(super) fn findings(scene: &Scene) -> Vec<Finding> {
    logind(scene).into_iter().collect()
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
