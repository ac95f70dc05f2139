//! Checks whether users with several jobs on this node have a way to say which of them a login joins. An ssh from inside
//! of a job says it by caller identity, which needs `callerid_networks`.

use super::finding::{Check, Finding};
use super::site::Site;
use command::accounts;
use facts::jobs::NodeJobs;
use protocol::SeveralJobsPolicy;
use std::collections::BTreeMap;

/// Maximum users in a finding.
const NAMES_MAX: usize = 8;

/// What was found out about users with several jobs.
#[derive(Debug)]
pub(super) struct SeveralJobsFacts {
    /// Users with several jobs here, with the number of these; `None` if the jobs cannot be listed, which other checks
    /// report.
    users: Option<BTreeMap<u32, usize>>,
    /// What happens to a login that does not say its job.
    policy: SeveralJobsPolicy,
    /// Nodes exchange the identity of callers.
    has_networks: bool,
}

impl SeveralJobsFacts {
    /// Counts the jobs of each user, as far as they can be listed.
    pub(super) fn read(site: &Site) -> Self {
        // Other checks report a source that does not answer.
        let jobs = NodeJobs::read(&site.config);
        Self {
            users: jobs.ok().map(|jobs| count_several(&jobs)),
            policy: site.settings().several,
            has_networks: !site.config.callerid_networks.is_empty(),
        }
    }

    /// Notes the users whose logins from inside of a job do not say which. Users make this true by their jobs, so it is
    /// never more than a note.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let Some(users) = &self.users else {
            return Vec::new();
        };
        if self.has_networks || users.is_empty() {
            let text = "no login from inside of a job is in doubt which job it joins";
            return vec![Finding::fine(Check::SeveralJobs, "callerid_networks", text)];
        }
        let mut names: Vec<String> = users
            .iter()
            .take(NAMES_MAX)
            .map(|(uid, count)| format!("{} ({count} jobs)", accounts::user_name(*uid)))
            .collect();
        if users.len() > NAMES_MAX {
            names.push(format!("and {} more", users.len() - NAMES_MAX));
        }
        let fate = match self.policy {
            SeveralJobsPolicy::Deny => "are refused (JA05)",
            SeveralJobsPolicy::Newest => "join the newest, not the one that they come from",
        };
        let text = format!(
            "logins from inside of their jobs, as those of MPI launchers, {fate}: callerid_networks is not set"
        );
        let remedy = "where jobs start ranks by ssh, name the networks of the nodes as callerid_networks in \
                      job_adopt.conf of all of them (man job-adopt-callerid)";
        vec![Finding::note(
            Check::SeveralJobs,
            names.join(", "),
            text,
            remedy,
        )]
    }
}

/// Counts the jobs of each user who has several.
fn count_several(jobs: &NodeJobs) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for job in &jobs.running {
        *counts.entry(job.uid).or_insert(0) += 1;
    }
    counts.retain(|_, count| *count > 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;
    use facts::jobs::NodeJob;
    use protocol::Placement;

    fn jobs(owners: &[u32]) -> NodeJobs {
        let job = |(number, uid): (usize, &u32)| NodeJob {
            id: (number + 1).to_string().parse().unwrap(),
            uid: *uid,
            placement: Placement::Cgroup {
                path: "/a".parse().unwrap(),
                leaf: None,
            },
            started: None,
            ends: None,
            record: None,
        };
        NodeJobs {
            running: owners.iter().enumerate().map(job).collect(),
            ..NodeJobs::default()
        }
    }

    fn judge(owners: &[u32], policy: SeveralJobsPolicy, has_networks: bool) -> Finding {
        let facts = SeveralJobsFacts {
            users: Some(count_several(&jobs(owners))),
            policy,
            has_networks,
        };
        facts.findings().remove(0)
    }

    #[test]
    fn users_with_several_jobs_are_noted_unless_callers_are_known() {
        use SeveralJobsPolicy::{Deny, Newest};
        let several = [70_001, 70_002, 70_001, 70_001];
        let denied = judge(&several, Deny, false);
        assert_eq!(denied.severity, Severity::Note);
        assert!(denied.object.contains("70001 (3 jobs)"), "{denied:?}");
        assert!(!denied.object.contains("70002"), "{denied:?}");
        assert!(denied.text.contains("JA05"), "{denied:?}");
        assert!(!judge(&several, Newest, false).text.contains("JA05"));
        for (owners, has_networks) in [(&several[..], true), (&several[..2], false), (&[], false)] {
            let finding = judge(owners, Deny, has_networks);
            assert_eq!(finding.severity, Severity::Fine, "{owners:?}");
        }
    }

    #[test]
    fn long_list_of_users_is_cut() {
        let owners: Vec<u32> = (70_001..70_011).flat_map(|uid| [uid, uid]).collect();
        let finding = judge(&owners, SeveralJobsPolicy::Deny, false);
        assert!(finding.object.ends_with("and 2 more"), "{finding:?}");
    }
}
