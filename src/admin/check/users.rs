//! The users' processes that are in none of their jobs.

use super::{Check, Finding, Site};
use crate::ending::real_uid;
use crate::people::{self, HELPER_USER};
use crate::strays::Look;
use helper::sources::processes;
use helper::sources::processes as listed;
use kernel::proc::Proc;
use kernel::sys::clock::now;
use nix::unistd::Uid;
use std::collections::BTreeMap;
use std::path::Path;

const STRAYS: Check = "users-outside-jobs";
const LEFT: Check = "helper-left";
/// Seconds that no phase of a login lasts (`timeout=`), and no question of `callerid`.
const LONGEST: i64 = 120;
/// Most users that are named.
const NAMED: usize = 8;

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    let look = match Look::at(&site.config) {
        Ok(look) => look,
        Err(error) => {
            let text = error.to_string();
            return vec![Finding::unknown(STRAYS, "users", text, "")];
        }
    };
    let mut counts = BTreeMap::new();
    look.outside.iter().for_each(|one| *counts.entry(one.uid).or_default() += 1);
    vec![strays(&counts), left(&old(site))]
}

/// Processes of the helper's account that are older than any login.
fn old(site: &Site) -> Vec<i32> {
    let own = site.account(HELPER_USER).map(|account| account.uid);
    let is_own = |pid: i32| own.is_some() && real_uid(pid).map(Uid::as_raw) == own;
    let pids = listed::list_numbers::<i32>(Path::new("/proc")).into_iter().flatten().flatten();
    pids.filter(|pid| is_own(*pid) && age(*pid) > Some(LONGEST)).take(NAMED).collect()
}

/// One of them got out of its login's hands, and could end every later helper, and so refuse every
/// login.
fn left(old: &[i32]) -> Finding {
    if old.is_empty() {
        return Finding::fine(LEFT, HELPER_USER, "no process of the account outlived its login");
    }
    let text = "outlived its login, and can end the helpers of all others: they are refused (JA08)";
    Finding::error(LEFT, format!("process {old:?}"), text, "kill it, and see how it came there")
}

/// For how many seconds a process has been there.
fn age(pid: i32) -> Option<i64> {
    Some(now() - processes::start_time(&Proc::here(), pid)?)
}

fn strays(counts: &BTreeMap<u32, usize>) -> Finding {
    if counts.is_empty() {
        return Finding::fine(STRAYS, "users", "no user has a process outside of their jobs");
    }
    let mut names: Vec<String> =
        counts.keys().take(NAMED).map(|uid| people::name_of(*uid)).collect();
    if counts.len() > NAMED {
        names.push(format!("and {} more", counts.len() - NAMED));
    }
    let sum: usize = counts.values().sum();
    let text = format!("{sum} of their processes are in none of their jobs");
    let remedy = "see those of users without a job: job-adopt strays; end them: --kill; what was \
                  started before the module was enabled stays until it is ended";
    Finding::note(STRAYS, names.join(", "), text, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Severity;

    #[test]
    fn a_helper_that_is_older_than_any_phase_is_an_error() {
        assert_eq!(left(&[]).severity, Severity::Fine);
        assert_eq!(left(&[7]).severity, Severity::Error);
        let own = age(std::process::id().cast_signed()).unwrap();
        let first = age(1).unwrap();
        assert!(own < 60 * 60 && first >= own, "{own} {first}");
    }

    #[test]
    fn they_are_counted() {
        assert_eq!(strays(&BTreeMap::new()).severity, Severity::Fine);
        let counts = (0..10).map(|uid| (4_000_000_000 + uid, 3));
        let finding = strays(&counts.collect());
        assert_eq!(finding.severity, Severity::Note);
        assert!(finding.text.starts_with("30 of"), "{}", finding.text);
        assert!(finding.object.ends_with("and 2 more"), "{}", finding.object);
    }
}
