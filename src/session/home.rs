//! Which processes are a job's: those in its own cgroup and below it.

use crate::cgroup::Membership;
use crate::plan::is_within;

/// A job's own cgroup, in the hierarchy that the end of the job goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// On cgroup v2.
    Unified(String),
    /// On cgroup v1, in the hierarchy of the freezer.
    Freezer(String),
}

impl Home {
    /// Whether a process that is in these cgroups is in the job.
    pub(super) fn has(&self, process: &Membership) -> bool {
        let (job, found) = match self {
            Self::Unified(job) => (job, process.unified()),
            Self::Freezer(job) => (job, process.of_controller("freezer")),
        };
        !job.is_empty() && found.is_some_and(|found| is_within(found, job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_what_is_in_its_cgroup_and_below_it() {
        let unified = Home::Unified("/jobs/7".into());
        let freezer = Home::Freezer("/jobs/7".into());
        let at = |line: &str| Membership::parse(&format!("{line}\n")).unwrap();
        for (path, inside) in [
            ("/jobs/7", true),
            ("/jobs/7/step_0/a b", true),
            ("/jobs/71", false),
            ("/jobs", false),
            ("/", false),
            ("/x/jobs/7", false),
            ("/../jobs/7", false),
        ] {
            let (v2, v1) = (at(&format!("0::{path}")), at(&format!("3:freezer:{path}")));
            assert_eq!((unified.has(&v2), freezer.has(&v1)), (inside, inside), "{path}");
            assert!(!unified.has(&v1) && !freezer.has(&v2), "{path}: the other hierarchy");
        }
        assert!(!Home::Unified(String::new()).has(&at("0::/")));
    }
}
