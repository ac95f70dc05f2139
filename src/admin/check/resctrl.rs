//! Checks whether logins leave the part of caches and memory bandwidth that their job has (resctrl.rst): a process
//! begins in the group of its parent, and leaves it only if its number is written to another group's `tasks`.

use super::config::find_job_owners;
use super::finding::{Check, Finding};
use super::site::Site;
use super::sshd::list_servers;
use kernel::proc::{self, Proc};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Maximum tasks of a group whose user is looked up.
const TASKS_MAX: usize = 256;

/// A group with tasks of users who have jobs here.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    name: String,
    /// Names of the users.
    users: BTreeSet<String>,
    /// An sshd is in it, and with it its logins.
    has_server: bool,
}

/// The groups of this node, without the default group, which has the tasks of no other one.
#[derive(Debug, Default)]
pub(super) struct ResctrlFacts(Vec<Group>);

impl ResctrlFacts {
    /// Reads the groups and who has tasks in them; there are none without the resctrl file system.
    pub(super) fn read(site: &Site) -> Self {
        let groups = read_groups(&site.at("/sys/fs/resctrl"));
        if groups.is_empty() {
            return Self::default();
        }
        let owners = find_job_owners(site);
        let owners: Vec<(u32, &str)> = owners
            .iter()
            .map(|owner| (owner.uid, owner.name.as_str()))
            .collect();
        let servers = list_servers();
        let groups = groups
            .into_iter()
            .map(|(name, tasks)| Group::new(name, &tasks, &owners, &servers, &find_uid));
        Self(groups.collect())
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        self.0.iter().filter_map(Group::finding).collect()
    }
}

impl Group {
    /// Describes a group by its tasks. Of the `owners` of jobs, given by uid and name, it names those who
    /// have a task among the first [`TASKS_MAX`]. `servers` are the processes of sshd, and `find_uid` returns
    /// the uid of a task, `None` if it has ended.
    fn new(
        name: String,
        tasks: &[i32],
        owners: &[(u32, &str)],
        servers: &[i32],
        find_uid: &dyn Fn(i32) -> Option<u32>,
    ) -> Self {
        let mut users = BTreeSet::new();
        for task in tasks.iter().take(TASKS_MAX) {
            let uid = find_uid(*task);
            let owner = owners.iter().find(|(owner, _)| Some(*owner) == uid);
            users.extend(owner.map(|(_, user)| (*user).to_owned()));
        }
        Self {
            name,
            users,
            has_server: tasks.iter().any(|task| servers.contains(task)),
        }
    }

    /// Reports a group that has tasks of users with jobs and not the logins of these users; `None` for any
    /// other group.
    fn finding(&self) -> Option<Finding> {
        if self.users.is_empty() || self.has_server {
            return None;
        }
        let users: Vec<&str> = self.users.iter().map(String::as_str).collect();
        let object = format!("/sys/fs/resctrl/{}", self.name);
        let text = format!(
            "has tasks of {}, who have jobs here, and no login: these stay in the group of sshd",
            users.join(", ")
        );
        let remedy = "let a session line below ours write the number of the login's sshd into tasks \
                      (pam_exec(8); its shell has that number in $PPID and the job in SLURM_JOB_ID or FLUX_JOB_ID)";
        Some(Finding::warning(Check::Resctrl, object, text, remedy))
    }
}

fn find_uid(task: i32) -> Option<u32> {
    Proc::host().effective_uid(task).ok()
}

/// Reads the groups below the default one, each by name with its tasks; none without the file system.
fn read_groups(mount: &Path) -> Vec<(String, Vec<i32>)> {
    let mut groups = Vec::new();
    let entries = fs::read_dir(mount).into_iter().flatten().flatten();
    for entry in entries {
        // The kernel's own folders there, such as `info`, have no such file.
        let Ok(tasks) = proc::read(entry.path().join("tasks")) else {
            continue;
        };
        let tasks = tasks.lines().filter_map(|line| line.parse().ok()).collect();
        groups.push((entry.file_name().to_string_lossy().into_owned(), tasks));
    }
    groups.sort();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn group_that_logins_leave_is_a_warning() {
        let scratch = Scratch::new();
        for (file, text) in [
            ("resctrl/tasks", "1\n77\n"),
            ("resctrl/schemata", "L3:0=ff\n"),
            ("resctrl/info/L3/num_closids", "16\n"),
            ("resctrl/mon_groups/m1/tasks", "20\n"),
            ("resctrl/job_7/tasks", "20\n21\n"),
            ("resctrl/job_8/tasks", "30\n"),
            ("resctrl/logins/tasks", "20\n77\n"),
            ("resctrl/empty/tasks", ""),
        ] {
            scratch.file(file, text);
        }
        let users = [(20, 1001), (21, 1001), (30, 1002), (77, 0)];
        let find_uid = |task: i32| {
            let user = users.iter().find(|(known, _)| *known == task);
            user.map(|(_, uid)| *uid)
        };
        let owners = [(1001, "alice")];
        let groups = read_groups(&scratch.path().join("resctrl"));
        let names: Vec<&str> = groups.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["empty", "job_7", "job_8", "logins"]);
        let groups = groups
            .into_iter()
            .map(|(name, tasks)| Group::new(name, &tasks, &owners, &[77], &find_uid));
        let findings = ResctrlFacts(groups.collect()).findings();
        let [finding] = findings.as_slice() else {
            panic!("{findings:?}")
        };
        assert_eq!(finding.object, "/sys/fs/resctrl/job_7");
        assert!(finding.text.contains("tasks of alice,"), "{finding:?}");
        assert!(read_groups(&scratch.path().join("nothing")).is_empty());
    }
}
