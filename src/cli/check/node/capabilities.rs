//! What root may do here, and what sshd's root may (capabilities(7)): in a container it is less.

use super::server::{Server, status};
use super::{Check, Finding};
use std::path::Path;

const OWN: Check = "capabilities";
const SERVER: Check = "sshd-capabilities";

/// `CAP_SYS_ADMIN`, which stands in for those that were once a part of it.
const SYS_ADMIN: u64 = 1 << 21;

/// A capability that the module needs.
struct Needed {
    name: &'static str,
    /// Its bit, by its number in `linux/capability.h`.
    bit: u64,
    /// What does not work without it.
    loses: &'static str,
    /// Whether logins are refused without it.
    vital: bool,
    /// Whether `CAP_SYS_ADMIN` does as well.
    admin: bool,
}

const NEEDED: [Needed; 8] = [
    Needed {
        name: "CAP_SYS_ADMIN",
        bit: SYS_ADMIN,
        loses: "jobs cannot be stamped and filters not be read: every login is refused",
        vital: true,
        admin: true,
    },
    Needed {
        name: "CAP_BPF",
        bit: 1 << 39,
        loses: "no filter can be loaded",
        vital: true,
        admin: true,
    },
    Needed {
        name: "CAP_NET_ADMIN",
        bit: 1 << 12,
        loses: "no filter can be loaded",
        vital: true,
        admin: true,
    },
    Needed {
        name: "CAP_SETUID",
        bit: 1 << 7,
        loses: "the helper cannot be started",
        vital: true,
        admin: false,
    },
    Needed {
        name: "CAP_SETGID",
        bit: 1 << 6,
        loses: "the helper cannot be started",
        vital: true,
        admin: false,
    },
    Needed {
        name: "CAP_KILL",
        bit: 1 << 5,
        loses: "logins are not ended with their job",
        vital: false,
        admin: false,
    },
    Needed {
        name: "CAP_SYS_PTRACE",
        bit: 1 << 19,
        loses: "what processes of others see and have open cannot be told",
        vital: false,
        admin: false,
    },
    Needed {
        name: "CAP_SYS_RESOURCE",
        bit: 1 << 24,
        loses: "no limit can be raised: the helper runs under those of the login",
        vital: false,
        admin: false,
    },
];

pub(super) fn findings(servers: &[Server]) -> Vec<Finding> {
    let mut findings = vec![judge(OWN, "this process", status(Path::new("/proc/self"), "CapEff"))];
    for server in servers.iter().filter(|server| server.is_here()) {
        let object = format!("sshd (process {})", server.pid);
        findings.push(judge(SERVER, &object, server.status("CapEff")));
    }
    findings
}

fn judge(check: Check, object: &str, effective: Option<String>) -> Finding {
    let Some(set) = effective.and_then(|text| u64::from_str_radix(&text, 16).ok()) else {
        return Finding::unknown(check, object, "its capabilities are not to be seen", "");
    };
    if set == 0 && check == OWN {
        let text = "it has no capabilities: filters, other processes and the kernel's part of this \
                    cannot be looked at";
        return Finding::unknown(check, object, text, "run this as root");
    }
    let has = |needed: &Needed| {
        let enough = if needed.admin { needed.bit | SYS_ADMIN } else { needed.bit };
        set & enough != 0
    };
    let missing: Vec<&Needed> = NEEDED.iter().filter(|needed| !has(needed)).collect();
    if missing.is_empty() {
        return Finding::fine(check, object, "it has every capability that is needed");
    }
    let list: Vec<String> =
        missing.iter().map(|needed| format!("{} ({})", needed.name, needed.loses)).collect();
    let text = format!("it lacks {}", list.join("; "));
    let remedy = "give them: CapabilityBoundingSet= of a unit, --cap-add of a container";
    match missing.iter().any(|needed| needed.vital) {
        true => Finding::error(check, object, text, remedy),
        false => Finding::note(check, object, text, remedy),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Severity;
    use super::*;

    fn judged(check: Check, set: &str) -> (Severity, String) {
        let finding = judge(check, "x", Some(set.to_owned()));
        (finding.severity, finding.text)
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(judged(OWN, "000001ffffffffff").0, Severity::Fine);
        assert_eq!(judged(OWN, "0000000000000000").0, Severity::Unknown);
        let (severity, text) = judged(OWN, "000001fffeffffff");
        assert_eq!(severity, Severity::Note);
        assert!(text.starts_with("it lacks CAP_SYS_RESOURCE (no limit"), "{text}");
        let (severity, text) = judged(SERVER, "000001ffffdfffff");
        assert_eq!(severity, Severity::Error);
        assert!(text.contains("CAP_SYS_ADMIN") && !text.contains("CAP_BPF"), "{text}");
        // Nothing but CAP_BPF and what it came from: one of them is enough.
        assert_eq!(judged(OWN, "0000017fffffffff").0, Severity::Fine);
        let (severity, text) = judged(OWN, "0000017fffdfffff");
        assert_eq!(severity, Severity::Error);
        assert!(text.contains("CAP_BPF"), "{text}");
        assert_eq!(judged(SERVER, "0").0, Severity::Error);
        assert_eq!(judged(SERVER, "no number").0, Severity::Unknown);
    }
}
