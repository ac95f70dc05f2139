//! Whether the helper sees the processes of others in `/proc` (`hidepid`, proc(5)).

use super::mountinfo::{Mount, Mounts};
use super::{Check, Finding};
use nix::unistd::User;

const HIDEPID: Check = "proc-hidepid";
/// The account that the helper runs as.
const HELPER: &str = "job-adopt";

pub(super) fn findings(mounts: &Mounts) -> Vec<Finding> {
    let Some(proc) = mounts.at("/proc") else {
        let text = "it is not mounted: no login can be judged";
        return vec![Finding::error(HIDEPID, "/proc", text, "mount -t proc proc /proc")];
    };
    vec![of(proc, is_helper_in)]
}

fn of(proc: &Mount, helper_in: impl Fn(u32) -> bool) -> Finding {
    let hidden = proc.value("hidepid").unwrap_or("0");
    if matches!(hidden, "0" | "off") {
        return Finding::fine(HIDEPID, "/proc", "everybody sees every process");
    }
    let gid = proc.value("gid").and_then(|gid| gid.parse().ok()).unwrap_or(0);
    let text = format!("it hides the processes of others (hidepid={hidden}, gid={gid})");
    if gid != 0 && helper_in(gid) {
        let text = format!("{text}, and the group of {HELPER} sees them");
        return Finding::fine(HIDEPID, "/proc", text);
    }
    let text = format!(
        "{text}, from {HELPER} as well: jobs of records and of Slurm are found all the same, jobs \
         of Flux are not, and other nodes are not told whose a connection is"
    );
    let remedy = format!(
        "mount -o remount,gid=N /proc, N being the primary group of {HELPER} (the helper has no \
         other), and SupplementaryGroups= of it in job-adopt-callerid@.service"
    );
    Finding::warning(HIDEPID, "/proc", text, remedy)
}

/// By its primary group: the helper gives up all others.
fn is_helper_in(gid: u32) -> bool {
    let helper = User::from_name(HELPER).ok().flatten();
    helper.is_some_and(|user| user.gid.as_raw() == gid)
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Severity;
    use super::*;

    #[test]
    fn the_group_that_sees_has_to_be_the_helpers() {
        let judged = |options: &str, member: bool| {
            let mounts =
                Mounts::parse(&format!("9 1 0:9 / /proc rw,nosuid - proc proc {options}\n"));
            of(mounts.at("/proc").unwrap(), |gid| gid == 44 && member).severity
        };
        assert_eq!(judged("rw", false), Severity::Fine);
        for hidden in ["hidepid=2", "hidepid=invisible", "hidepid=1", "hidepid=ptraceable"] {
            assert_eq!(judged(&format!("rw,{hidden}"), true), Severity::Warning, "{hidden}");
            assert_eq!(judged(&format!("rw,{hidden},gid=44"), true), Severity::Fine, "{hidden}");
            assert_eq!(judged(&format!("rw,{hidden},gid=44"), false), Severity::Warning);
        }
        assert_eq!(findings(&Mounts::default()).first().unwrap().severity, Severity::Error);
    }
}
