//! Checks for processes outside of jobs: those of users, and those that helpers left behind.

use super::finding::{Check, Finding};
use super::remedy::{Remedy, run};
use super::site::Site;
use crate::accounts::{self, HELPER_USER};
use crate::error::Error;
use crate::job::strays::Snapshot;
use crate::process::real_uid;
use helper::jobs::sources::processes;
use kernel::proc::Proc;
use kernel::sys::clock::now;
use nix::unistd::Uid;
use std::collections::BTreeSet;
use std::path::Path;

/// Longest life of a helper: no phase of a login (`timeout=`) and no query of `callerid` takes longer.
const HELPER_AGE_MAX_SECONDS: i64 = 120;
/// Maximum users and processes in a finding.
const NAMES_MAX: usize = 8;

/// What was found out about the processes of the node; an error if they cannot be listed.
#[derive(Debug)]
pub(super) struct UserFacts(Result<ProcessFacts, Error>);

#[derive(Debug)]
struct ProcessFacts {
    /// If not, all users are outside of jobs, and nothing is wrong about that.
    logins_join_jobs: bool,
    /// Those of users who have a job.
    of_job_owners: OutsideProcesses,
    /// Those that `strays` shows.
    strays: OutsideProcesses,
    /// Processes of the helper's account that are older than any login; at most [`NAMES_MAX`].
    old_helpers: Vec<i32>,
}

/// The processes of users outside of their jobs.
#[derive(Debug, Default)]
struct OutsideProcesses {
    processes: usize,
    users: usize,
    /// The names of the first users; at most [`NAMES_MAX`].
    names: Vec<String>,
}

impl UserFacts {
    /// Lists the users' processes outside of jobs, and old processes of the helper's account.
    pub(super) fn read(site: &Site) -> Self {
        Self(
            Snapshot::read(&site.config, None).map(|snapshot| ProcessFacts {
                logins_join_jobs: site.logins_join_jobs(),
                of_job_owners: OutsideProcesses::count(
                    snapshot.of_job_owners().map(|process| process.uid),
                ),
                strays: OutsideProcesses::count(
                    snapshot.into_strays().iter().map(|process| process.uid),
                ),
                old_helpers: find_old_helpers(site),
            }),
        )
    }

    /// Judges the processes of users and of the helper's account.
    pub(super) fn findings(&self) -> Vec<Finding> {
        match &self.0 {
            Ok(facts) => {
                let mut findings = facts.judge_outside();
                findings.push(judge_old_helpers(&facts.old_helpers));
                findings
            }
            Err(error) => vec![Finding::unknown(
                Check::UsersOutsideJobs,
                "users",
                error,
                "",
            )],
        }
    }
}

impl OutsideProcesses {
    /// Counts processes and their users, given the uid of each process.
    fn count(uids: impl Iterator<Item = u32>) -> Self {
        let mut processes = 0;
        let mut users = BTreeSet::new();
        for uid in uids {
            processes += 1;
            users.insert(uid);
        }
        let names = users
            .iter()
            .take(NAMES_MAX)
            .map(|uid| accounts::user_name(*uid))
            .collect();
        Self {
            processes,
            users: users.len(),
            names,
        }
    }

    /// Notes the number of processes, below the names of their users.
    fn note(&self, text: &str, remedy: impl Into<Remedy>) -> Finding {
        let mut object = self.names.join(", ");
        if self.users > self.names.len() {
            object.push_str(&format!(", and {} more", self.users - self.names.len()));
        }
        let text = format!(
            "{} of their processes are outside of {text}",
            self.processes
        );
        Finding::note(Check::UsersOutsideJobs, object, text, remedy)
    }
}

impl ProcessFacts {
    /// Reports processes outside of their users' jobs, as notes: they may be older than the module. What `strays` does
    /// not show gets no command.
    fn judge_outside(&self) -> Vec<Finding> {
        if !self.logins_join_jobs {
            let text = "their processes do not count, since logins join no jobs here";
            return vec![Finding::fine(Check::UsersOutsideJobs, "users", text)];
        }
        let mut findings = Vec::new();
        if self.strays.processes > 0 {
            let remedy = run("job-adopt strays").and("which shows them, and --kill ends them");
            findings.push(self.strays.note("jobs, and they have none here", remedy));
        }
        if self.of_job_owners.processes > 0 {
            let advice = "nothing: logins from before the module was enabled, and services of systemctl --user, stay \
                          until they end; strays shows what outlives the user's last job";
            findings.push(self.of_job_owners.note("their jobs", advice));
        }
        if findings.is_empty() {
            let text = "no user has a process outside of their jobs";
            findings.push(Finding::fine(Check::UsersOutsideJobs, "users", text));
        }
        findings
    }
}

/// Finds processes of the helper's account that are older than any login, at most [`NAMES_MAX`] of them; none
/// if the account is missing.
fn find_old_helpers(site: &Site) -> Vec<i32> {
    let Some(helper) = site.find_account(HELPER_USER) else {
        return Vec::new();
    };
    let pids = processes::list_numbers::<i32>(Path::new("/proc"))
        .into_iter()
        .flatten()
        .flatten();
    // `None`, the age of a process that has ended, is less than any number.
    pids.filter(|pid| real_uid(*pid).map(Uid::as_raw) == Some(helper.uid))
        .filter(|pid| age_seconds(*pid) > Some(HELPER_AGE_MAX_SECONDS))
        .take(NAMES_MAX)
        .collect()
}

/// The age of a process; `None` if it has ended.
fn age_seconds(pid: i32) -> Option<i64> {
    Some(now() - processes::start_time(&Proc::host(), pid)?)
}

/// Reports old helpers as an error: such a process has escaped its login, and can kill every later
/// helper and so refuse every login.
fn judge_old_helpers(pids: &[i32]) -> Finding {
    if pids.is_empty() {
        let text = "no process of the account is older than a login takes";
        return Finding::fine(Check::HelperLeft, HELPER_USER, text);
    }
    let text = "is older than any login takes, and can kill the helpers of all logins (JA08)";
    let numbers: Vec<String> = pids.iter().map(i32::to_string).collect();
    let remedy =
        run(format!("kill -KILL {}", numbers.join(" "))).and("and find out who started it");
    Finding::error(Check::HelperLeft, format!("process {pids:?}"), text, remedy)
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

    fn facts(of_job_owners: OutsideProcesses, strays: OutsideProcesses) -> ProcessFacts {
        ProcessFacts {
            logins_join_jobs: true,
            of_job_owners,
            strays,
            old_helpers: Vec::new(),
        }
    }

    #[test]
    fn processes_outside_of_jobs_are_counted() {
        let none = facts(OutsideProcesses::default(), OutsideProcesses::default());
        assert_eq!(none.judge_outside()[0].severity, Severity::Fine);
        let uids = (0..30).map(|process| 4_000_000_000 + process % 10);
        let findings =
            facts(OutsideProcesses::default(), OutsideProcesses::count(uids)).judge_outside();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].severity, Severity::Note);
        assert!(findings[0].text.starts_with("30 of"), "{findings:?}");
        assert!(
            findings[0].object.ends_with("4000000007, and 2 more"),
            "{findings:?}"
        );
    }

    /// `strays` prints nothing about users who have a job.
    #[test]
    fn strays_is_advised_only_for_what_it_shows() {
        let one = || OutsideProcesses::count(std::iter::once(4_000_000_000));
        let findings = facts(one(), OutsideProcesses::default()).judge_outside();
        assert_eq!(findings[0].remedy.command, "");
        let of_strays = facts(OutsideProcesses::default(), one()).judge_outside();
        assert_eq!(of_strays[0].remedy.command, "job-adopt strays");
        assert_eq!(facts(one(), one()).judge_outside().len(), 2);
    }

    /// All users who are logged in would be named beside a command that ends their processes.
    #[test]
    fn nobody_is_outside_of_jobs_while_logins_join_none() {
        let one = || OutsideProcesses::count(std::iter::once(4_000_000_000));
        let mut new_node = facts(one(), one());
        new_node.logins_join_jobs = false;
        let findings = new_node.judge_outside();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].severity, Severity::Fine);
    }

    #[test]
    fn processes_that_cannot_be_listed_are_unknown() {
        let findings = UserFacts(Err(Error::failed("list", "/proc", "gone"))).findings();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].severity, Severity::Unknown);
        assert_eq!(findings[0].text, "list /proc: gone");
    }
}
