//! The users' processes that are in none of their jobs.

use super::{Check, Finding, Scene};
use crate::admin::ending::real_uid;
use crate::admin::people::{self, HELPER_USER};
use crate::admin::strays::Look;
use crate::helper::sources::processes as listed;
use crate::kernel::proc::{self, Proc};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const STRAYS: Check = "users-outside-jobs";
const LEFT: Check = "helper-left";
/// Ticks of a second in what the kernel tells (`USER_HZ`).
const TICKS: u64 = 100;
/// Longer than `timeout=` may be.
const LONGEST: Duration = Duration::from_secs(120);
/// Most users that are named.
const NAMED: usize = 8;

pub(super) fn findings(scene: &Scene) -> Vec<Finding> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    match Look::at(&scene.config) {
        Ok(look) => look.outside.iter().for_each(|one| *counts.entry(one.uid).or_default() += 1),
        Err(error) => {
            let text = error.text().unwrap_or_default();
            return vec![Finding::unknown(STRAYS, "users", text, "")];
        }
    }
    vec![found(&counts), left(&old(scene))]
}

/// Processes of the helper's account that are older than any phase of a login and any question of
/// `callerid`.
fn old(scene: &Scene) -> Vec<String> {
    let own = scene.account(HELPER_USER).map(|account| account.uid);
    let old = |(pid, uid): (i32, u32)| {
        (Some(uid) == own && age(pid)? > LONGEST).then(|| format!("process {pid}"))
    };
    let pids = listed::numbers::<i32>(Path::new("/proc")).into_iter().flatten().flatten();
    let owned = pids.filter_map(|pid| Some((pid, real_uid(pid)?.as_raw())));
    owned.filter_map(old).take(NAMED).collect()
}

/// One of them got out of its login's hands, and could end every later helper, and so refuse every
/// login.
fn left(old: &[String]) -> Finding {
    if old.is_empty() {
        return Finding::fine(LEFT, HELPER_USER, "no process of the account outlived its login");
    }
    let text = "outlived its login, and can end the helpers of all others: they are refused (JA08)";
    Finding::error(LEFT, old.join(", "), text, "kill it, and see how it came there")
}

/// For how long a process has been there.
fn age(pid: i32) -> Option<Duration> {
    let started = Proc::here().stat(pid).ok()?.start;
    let uptime = proc::read("/proc/uptime").ok()?;
    let up: u64 = uptime.split('.').next()?.parse().ok()?;
    up.checked_sub(started / TICKS).map(Duration::from_secs)
}

fn found(counts: &BTreeMap<u32, usize>) -> Finding {
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
    use crate::admin::check::finding::Severity;

    #[test]
    fn a_helper_that_is_older_than_any_phase_is_an_error() {
        assert_eq!(left(&[]).severity, Severity::Fine);
        assert_eq!(left(&["process 7".to_owned()]).severity, Severity::Error);
        let own = age(std::process::id().cast_signed()).unwrap();
        let first = age(1).unwrap();
        assert!(own < Duration::from_secs(60 * 60) && first >= own, "{own:?} {first:?}");
    }

    #[test]
    fn they_are_counted() {
        assert_eq!(found(&BTreeMap::new()).severity, Severity::Fine);
        let counts = (0..10).map(|uid| (4_000_000_000 + uid, 3));
        let finding = found(&counts.collect());
        assert_eq!(finding.severity, Severity::Note);
        assert!(finding.text.starts_with("30 of"), "{}", finding.text);
        assert!(finding.object.ends_with("and 2 more"), "{}", finding.object);
    }
}
