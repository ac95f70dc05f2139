//! Settings of the kernel that filters depend on.

use super::{Check, Finding, Scene};
use std::fs;

const HARDEN: Check = "kernel-bpf-readable";
const UNPRIVILEGED: Check = "kernel-unprivileged-bpf";

pub(super) fn findings(scene: &Scene) -> Vec<Finding> {
    let value = |path: &str| -> Option<u32> {
        fs::read_to_string(scene.at(path)).ok()?.trim().parse().ok()
    };
    let harden = value("/proc/sys/net/core/bpf_jit_harden");
    let restrict = value("/proc/sys/kernel/kptr_restrict");
    let mut findings = vec![readable(harden, restrict)];
    findings.extend(unprivileged(value("/proc/sys/kernel/unprivileged_bpf_disabled")));
    findings
}

/// Root reads constants that are blinded as long as addresses are not hidden from it.
fn readable(harden: Option<u32>, restrict: Option<u32>) -> Finding {
    match (harden, restrict) {
        (Some(2..), Some(2..)) => Finding::note(
            HARDEN,
            "kernel.kptr_restrict",
            "with net.core.bpf_jit_harden=2 and kernel.kptr_restrict=2 the kernel shows nobody the \
             instructions of filters: logins are confined all the same, but job-adopt devices \
             cannot tell what filters allow",
            "sysctl kernel.kptr_restrict=1 where that is wanted",
        ),
        _ => Finding::fine(HARDEN, "kernel.kptr_restrict", "root can read filters back"),
    }
}

fn unprivileged(disabled: Option<u32>) -> Option<Finding> {
    (disabled == Some(0)).then(|| {
        Finding::note(
            UNPRIVILEGED,
            "kernel.unprivileged_bpf_disabled",
            "only filters attached with ALLOW_MULTI, as ours are, can be relied on to stay: the \
             others are not safe against removal by an unprivileged process of the node",
            "sysctl kernel.unprivileged_bpf_disabled=1, and know what docs/threats.md says of it",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Severity;
    use super::*;

    #[test]
    fn only_both_together_hide_filters() {
        for (harden, restrict, severity) in [
            (Some(2), Some(2), Severity::Note),
            (Some(2), Some(1), Severity::Fine),
            (Some(1), Some(2), Severity::Fine),
            (None, None, Severity::Fine),
        ] {
            assert_eq!(readable(harden, restrict).severity, severity);
        }
        assert!(unprivileged(Some(0)).is_some());
        assert!(unprivileged(Some(2)).is_none() && unprivileged(None).is_none());
    }
}
