//! Checks for processes outside of jobs: those of users, and those that helpers left behind.

use super::finding::{Check, Finding};
use super::own_command::{OwnCommand, Subcommand};
use super::remedy::{Remedy, run};
use super::site::Site;
use command::accounts::{self, HELPER_USER};
use command::error::Error;
use facts::root_processes::shares_namespace;
use facts::strays::{Snapshot, require_adoption};
use helper::jobs::sources::processes;
use kernel::proc::Proc;
use kernel::sys::clock::now;
use std::collections::BTreeSet;

/// Longest life of a helper: no phase of a login (`timeout=`) and no query of `callerid` takes longer.
const HELPER_AGE_MAX_SECONDS: i64 = 120;
/// Maximum users and processes in a finding.
const NAMES_MAX: usize = 8;

/// What was found out about the processes of the node.
#[derive(Debug)]
pub(super) struct UserFacts {
    /// Those outside of jobs; an error if they cannot be listed, or told from those of exempt accounts.
    outside: Result<ProcessFacts, Error>,
    /// Processes of the helper's account that are older than any login; at most [`NAMES_MAX`].
    old_helpers: Vec<i32>,
}

#[derive(Debug)]
struct ProcessFacts {
    /// If it fails, users are outside of jobs, and nothing is wrong about that.
    adoption: Result<(), &'static str>,
    /// Those of users who have a job.
    of_job_owners: OutsideProcesses,
    /// Those of users who have no job for certain, which `strays` shows.
    strays: OutsideProcesses,
    /// What the jobs are that logins cannot find, since only a stamp shows them.
    unrecorded: Vec<String>,
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
        let outside = Snapshot::read(&site.config, None).map(|snapshot| ProcessFacts {
            unrecorded: snapshot.unrecorded_jobs().map(str::to_owned).collect(),
            adoption: require_adoption(&site.config),
            of_job_owners: OutsideProcesses::count(
                snapshot.of_job_owners().map(|process| process.uid),
            ),
            strays: OutsideProcesses::count(
                snapshot
                    .into_certain_strays()
                    .iter()
                    .map(|process| process.uid),
            ),
        });
        let old_helpers = site
            .find_account(HELPER_USER)
            .map(|helper| find_old_helpers(&Proc::host(), helper.uid))
            .unwrap_or_default();
        Self {
            outside,
            old_helpers,
        }
    }

    /// Judges the processes of users and of the helper's account.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = match &self.outside {
            Ok(facts) => facts.judge_outside(),
            Err(error) => {
                let remedy = "mend what it names: until then nobody can tell who is outside of jobs, and strays ends nothing";
                let finding = Finding::unknown(Check::UsersOutsideJobs, "users", error, remedy);
                vec![finding]
            }
        };
        findings.push(judge_old_helpers(&self.old_helpers));
        findings
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
    /// not show gets no command, and nothing is reported where `strays --kill` refuses.
    fn judge_outside(&self) -> Vec<Finding> {
        if let Err(why) = self.adoption {
            let text = format!("may be outside of jobs: {why}");
            return vec![Finding::fine(Check::UsersOutsideJobs, "users", text)];
        }
        let mut findings = Vec::new();
        for job in &self.unrecorded {
            let text = format!("logins do not find this job: {job}");
            let advice = "see job-adopt config for the registry that logins read; end none of the job's processes before";
            findings.push(Finding::error(Check::Records, "registry", text, advice));
        }
        if self.strays.processes > 0 {
            let remedy = run(OwnCommand::job_adopt::<&str>(Subcommand::Strays, []))
                .and("which shows them, and --kill ends them");
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

/// Finds processes of the helper's account that are older than any login, at most [`NAMES_MAX`] of them. Those in another
/// pid namespace, as of a container, see no process of a login, and may be of an account with the same uid there.
fn find_old_helpers(proc: &Proc, uid: u32) -> Vec<i32> {
    let pids = processes::list_numbers::<i32>(&proc.at)
        .into_iter()
        .flatten()
        .flatten();
    // `None`, the age of a process that has ended, is less than any number.
    pids.filter(|pid| {
        proc.read_process(*pid)
            .is_ok_and(|process| process.uids[0] == uid)
    })
    .filter(|pid| age_seconds(proc, *pid) > Some(HELPER_AGE_MAX_SECONDS))
    .filter(|pid| shares_namespace(proc, *pid, "pid") != Some(false))
    .take(NAMES_MAX)
    .collect()
}

/// The age of a process; `None` if it has ended.
fn age_seconds(proc: &Proc, pid: i32) -> Option<i64> {
    Some(now() - processes::start_time(proc, pid)?)
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
    // No command: it may be of a container that has the node's pids, or of another account with the uid, and of a job.
    let remedy = format!(
        "see what it is: ps -o pid,user,lstart,cgroup,args -p {}; if no container, and no other account of its uid, has \
         started it, kill -KILL {}, and find out who has",
        numbers.join(","),
        numbers.join(" ")
    );
    Finding::error(Check::HelperLeft, format!("process {pids:?}"), text, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;
    use crate::testing::Scratch;
    use std::os::unix::fs::symlink;

    /// A kill may end a job of a container.
    #[test]
    fn helper_older_than_any_phase_is_an_error_without_command() {
        assert_eq!(judge_old_helpers(&[]).severity, Severity::Fine);
        let finding = judge_old_helpers(&[7, 8]);
        assert_eq!(finding.severity, Severity::Error);
        assert_eq!(finding.remedy.command(), "");
        assert!(
            finding.remedy.advice().contains("-p 7,8; if no container"),
            "{finding:?}"
        );
        let own = age_seconds(&Proc::host(), i32::try_from(std::process::id()).unwrap()).unwrap();
        let first = age_seconds(&Proc::host(), 1).unwrap();
        assert!(own < 60 * 60 && first >= own, "{own} {first}");
    }

    #[test]
    fn old_process_in_a_pid_namespace_of_its_own_is_no_helper() {
        let scratch = Scratch::new();
        scratch.file("stat", "btime 100\n");
        let ticks_of_now = (now() - 100) * 100;
        for (pid, namespace, uid, start) in [
            (11, "pid:[1]", 990, 0),
            (12, "pid:[2]", 990, 0),
            (13, "pid:[1]", 991, 0),
            (14, "pid:[1]", 990, ticks_of_now),
            (std::process::id(), "pid:[1]", 0, 0),
        ] {
            let uids = format!("{uid}\t{uid}\t{uid}\t{uid}");
            let status = format!("Name:\tx\nState:\tS (sleeping)\nPPid:\t1\nUid:\t{uids}\n");
            scratch.file(&format!("{pid}/status"), &status);
            let fields = "S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0";
            scratch.file(
                &format!("{pid}/stat"),
                &format!("{pid} (x) {fields} {start} 0 0\n"),
            );
            scratch.dir(&format!("{pid}/ns"));
            symlink(namespace, scratch.path().join(format!("{pid}/ns/pid"))).unwrap();
        }
        let proc = Proc::with_root(scratch.path().to_owned());
        assert_eq!(find_old_helpers(&proc, 990), [11]);
    }

    fn facts(of_job_owners: OutsideProcesses, strays: OutsideProcesses) -> ProcessFacts {
        ProcessFacts {
            adoption: Ok(()),
            of_job_owners,
            strays,
            unrecorded: Vec::new(),
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
        assert_eq!(findings[0].remedy.command(), "");
        let of_strays = facts(OutsideProcesses::default(), one()).judge_outside();
        assert_eq!(of_strays[0].remedy.command(), "job-adopt strays");
        assert_eq!(facts(one(), one()).judge_outside().len(), 2);
    }

    /// All users who are logged in would be named beside a command that ends their processes.
    #[test]
    fn nobody_is_outside_of_jobs_while_logins_join_none() {
        let one = || OutsideProcesses::count(std::iter::once(4_000_000_000));
        let mut new_node = facts(one(), one());
        new_node.adoption = Err("/run/job-adopt/off is there");
        let findings = new_node.judge_outside();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].severity, Severity::Fine);
    }

    #[test]
    fn processes_that_cannot_be_listed_are_unknown() {
        let facts = UserFacts {
            outside: Err(Error::failed("list", "/proc", "gone")),
            old_helpers: vec![7],
        };
        let findings = facts.findings();
        assert_eq!(findings.len(), 2);
        assert_eq!(findings[0].severity, Severity::Unknown);
        assert_eq!(findings[0].text, "list /proc: gone");
        assert_eq!(findings[1].severity, Severity::Error, "{findings:?}");
    }
}
