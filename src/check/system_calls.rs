//! Checks the system calls that the unit of an sshd forbids. The filter of a process cannot be tried in another one, and
//! what it forbids ends sshd by default: the user reads "Connection closed", and no log has a line.

use super::finding::{Check, Finding};
use super::remedy::Remedy;
use super::unit_files::unset_keys;
use facts::systemd::read_properties;

/// System calls of the module and its helper that every login makes on cgroup v2, without a way around them.
const REQUIRED_CALLS: [&str; 12] = [
    "bpf",
    "clone",
    "connect",
    "execveat",
    "fgetxattr",
    "openat",
    "pipe2",
    "setgroups",
    "setresgid",
    "setresuid",
    "socket",
    "waitid",
];
/// Address families that every login needs: sockets of the log, of Slurm's daemons and of the bus.
const REQUIRED_FAMILIES: [&str; 1] = ["AF_UNIX"];

/// What the unit of a server forbids its logins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ForbiddenCalls {
    unit: String,
    calls: Vec<&'static str>,
    families: Vec<&'static str>,
    /// What to do about the lines of the unit that say so.
    remedy: Remedy,
}

impl ForbiddenCalls {
    /// Asks systemd what a unit forbids of what logins need; `None` if it is nothing, or if systemd cannot be asked.
    pub(super) fn read(unit: &str) -> Option<Self> {
        let properties = read_properties(unit, "SystemCallFilter,RestrictAddressFamilies")?;
        let calls = list_forbidden(&properties, "SystemCallFilter", &REQUIRED_CALLS);
        let families = list_forbidden(&properties, "RestrictAddressFamilies", &REQUIRED_FAMILIES);
        if calls.is_empty() && families.is_empty() {
            return None;
        }
        let mut keys = Vec::new();
        if !calls.is_empty() {
            keys.push("SystemCallFilter");
        }
        if !families.is_empty() {
            keys.push("RestrictAddressFamilies");
        }
        Some(Self {
            unit: unit.to_owned(),
            calls,
            families,
            remedy: unset_keys(unit, &keys, "allow them in it"),
        })
    }

    /// Reports what is forbidden as an error.
    pub(super) fn finding(&self, server: &str) -> Finding {
        let mut words = self.calls.clone();
        words.extend(&self.families);
        let text = format!(
            "its unit {} forbids {}, which logins need: sshd is ended at a login, or the login refused",
            self.unit,
            words.join(", ")
        );
        Finding::error(Check::SshdSystemCalls, server, text, self.remedy.clone())
    }
}

/// Lists those of the words that a property of a unit forbids. As systemctl shows it, it has the words that are allowed,
/// or behind `~` those that are forbidden; a word may have a number of an error behind a colon. An empty property, also
/// behind `~`, forbids nothing.
fn list_forbidden(properties: &str, property: &str, words: &[&'static str]) -> Vec<&'static str> {
    let mut lines = properties
        .lines()
        .filter_map(|line| line.strip_prefix(property)?.strip_prefix('='));
    let value = lines.next().unwrap_or_default();
    let (listed, forbids_listed) = match value.strip_prefix('~') {
        Some(rest) => (rest, true),
        None => (value, false),
    };
    let listed: Vec<&str> = listed
        .split_whitespace()
        .filter_map(|word| word.split(':').next())
        .collect();
    if listed.is_empty() {
        return Vec::new();
    }
    words
        .iter()
        .copied()
        .filter(|word| listed.contains(word) == forbids_listed)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_calls_are_found_in_both_kinds_of_lists() {
        let words = ["bpf", "clone"];
        for (value, expected) in [
            ("", &[][..]),
            ("~", &[]),
            ("~bpf perf_event_open", &["bpf"]),
            ("~bpf:EPERM", &["bpf"]),
            ("~mount", &[]),
            ("clone read", &["bpf"]),
            ("bpf clone:1", &[]),
        ] {
            let properties = format!("RestrictAddressFamilies=\nSystemCallFilter={value}\n");
            let forbidden = list_forbidden(&properties, "SystemCallFilter", &words);
            assert_eq!(forbidden, expected, "{value}");
        }
        assert!(list_forbidden("", "SystemCallFilter", &words).is_empty());
    }

    #[test]
    fn finding_names_what_to_allow_and_where_it_is_forbidden() {
        let forbidden = ForbiddenCalls {
            unit: "ssh.service".to_owned(),
            calls: vec!["bpf"],
            families: vec!["AF_UNIX"],
            remedy: "/a:2: remove the line \"SystemCallFilter=~bpf\"".into(),
        };
        let finding = forbidden.finding("sshd (process 7)");
        assert!(finding.text.contains("forbids bpf, AF_UNIX"));
        let advice = finding.remedy.advice();
        assert!(advice.starts_with("/a:2: remove the line"), "{advice}");
    }
}
