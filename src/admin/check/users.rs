//! Checks for processes outside of jobs: those of users, and those that helpers left behind.

use super::finding::{Check, Finding};
use super::site::Site;
use crate::accounts::{self, HELPER_USER};
use crate::job::strays::Snapshot;
use crate::process::real_uid;
use helper::jobs::sources::processes;
use kernel::proc::Proc;
use kernel::sys::clock::now;
use nix::unistd::Uid;
use std::collections::BTreeMap;
use std::path::Path;

/// Longest life of a helper: no phase of a login (`timeout=`) and no query of `callerid` takes longer.
const HELPER_AGE_MAX_SECONDS: i64 = 120;
/// Maximum users and processes in a finding.
const NAMES_MAX: usize = 8;

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    let snapshot = match Snapshot::read(&site.config, None) {
        Ok(snapshot) => snapshot,
        Err(error) => {
            let text = error.to_string();
            return vec![Finding::unknown(Check::UsersOutsideJobs, "users", text, "")];
        }
    };
    let mut counts = BTreeMap::new();
    for process in &snapshot.outside {
        *counts.entry(process.uid).or_default() += 1;
    }
    vec![judge_counts(&counts), judge_old_helpers(&find_old_helpers(site))]
}

/// Finds processes of the helper's account that are older than any login.
fn find_old_helpers(site: &Site) -> Vec<i32> {
    let uid = site.find_account(HELPER_USER).map(|account| account.uid);
    let is_helper = |pid: i32| uid.is_some() && real_uid(pid).map(Uid::as_raw) == uid;
    let is_old = |pid: i32| age_seconds(pid) > Some(HELPER_AGE_MAX_SECONDS);
    let pids = processes::list_numbers::<i32>(Path::new("/proc")).into_iter().flatten().flatten();
    pids.filter(|pid| is_helper(*pid) && is_old(*pid)).take(NAMES_MAX).collect()
}

/// Reports old helpers as an error: such a process has escaped its login, and can kill every later
/// helper and so refuse every login.
fn judge_old_helpers(pids: &[i32]) -> Finding {
    if pids.is_empty() {
        return Finding::fine(
            Check::HelperLeft,
            HELPER_USER,
            "no process of the account is older than a login takes",
        );
    }
    let text = "is older than any login takes, and can kill the helpers of all logins (JA08)";
    let numbers: Vec<String> = pids.iter().map(i32::to_string).collect();
    let remedy = format!("kill -KILL {}, and find out who started it", numbers.join(" "));
    Finding::error(Check::HelperLeft, format!("process {pids:?}"), text, remedy)
}

/// Returns the age of a process.
fn age_seconds(pid: i32) -> Option<i64> {
    Some(now() - processes::start_time(&Proc::host(), pid)?)
}

fn judge_counts(counts: &BTreeMap<u32, usize>) -> Finding {
    if counts.is_empty() {
        return Finding::fine(
            Check::UsersOutsideJobs,
            "users",
            "no user has a process outside of their jobs",
        );
    }
    let mut names: Vec<String> =
        counts.keys().take(NAMES_MAX).map(|uid| accounts::user_name(*uid)).collect();
    if counts.len() > NAMES_MAX {
        names.push(format!("and {} more", counts.len() - NAMES_MAX));
    }
    let sum: usize = counts.values().sum();
    let text = format!("{sum} of their processes are outside of their jobs");
    let remedy = "job-adopt strays shows those of users without a job, and --kill ends them; what \
                  was started before the module was enabled stays until it ends";
    Finding::note(Check::UsersOutsideJobs, names.join(", "), text, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Severity;

    #[test]
    fn helper_older_than_any_phase_is_an_error() {
        assert_eq!(judge_old_helpers(&[]).severity, Severity::Fine);
        assert_eq!(judge_old_helpers(&[7]).severity, Severity::Error);
        let own = age_seconds(i32::try_from(std::process::id()).unwrap()).unwrap();
        let first = age_seconds(1).unwrap();
        assert!(own < 60 * 60 && first >= own, "{own} {first}");
    }

    #[test]
    fn processes_outside_of_jobs_are_counted() {
        assert_eq!(judge_counts(&BTreeMap::new()).severity, Severity::Fine);
        let counts = (0..10).map(|uid| (4_000_000_000 + uid, 3));
        let finding = judge_counts(&counts.collect());
        assert_eq!(finding.severity, Severity::Note);
        assert!(finding.text.starts_with("30 of"), "{}", finding.text);
        assert!(finding.object.ends_with("and 2 more"), "{}", finding.object);
    }
}
