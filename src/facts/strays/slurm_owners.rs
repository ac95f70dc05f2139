//! Asks Slurm's controller whose a job is about which nothing on the node tells: its daemon does not answer, only root has
//! processes in it, as in an idle allocation, and it has no record.

use crate::squeue;
use helper::Config;
use helper::jobs::sources::{Doubt, PossibleOwners};
use protocol::JobId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Longest wait for the controller.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum jobs of one question.
const JOBS_MAX: usize = 256;

/// The owners of the jobs that were asked about in one call; `None` for a job of which the controller knows nothing.
#[derive(Debug, Default)]
pub(super) struct SlurmOwners(BTreeMap<JobId, Option<u32>>);

impl SlurmOwners {
    /// Limits each doubt that concerns everybody to the owner of its job, if the controller knows that one. It is asked
    /// about each job once.
    pub(super) fn limit(&mut self, doubts: &mut [Doubt], config: &Config) {
        let new: BTreeSet<JobId> = doubts
            .iter()
            .filter(|doubt| doubt.owners == PossibleOwners::Any)
            .filter_map(|doubt| doubt.job.clone())
            .filter(|job| !self.0.contains_key(job))
            .take(JOBS_MAX)
            .collect();
        if !new.is_empty() {
            let ids: Vec<&str> = new.iter().map(JobId::as_str).collect();
            // Without an answer nothing is known.
            let text = squeue::query_jobs(&ids.join(","), "%A %U", config, ANSWER_TIMEOUT)
                .unwrap_or_default();
            let found = parse_owners(&text);
            self.0.extend(new.into_iter().map(|job| {
                let owner = found.get(job.as_str()).copied();
                (job, owner)
            }));
        }
        for doubt in doubts {
            let known = doubt.job.as_ref().and_then(|job| *self.0.get(job)?);
            if let (PossibleOwners::Any, Some(uid)) = (&doubt.owners, known) {
                doubt.owners = PossibleOwners::Only(BTreeSet::from([uid]));
            }
        }
    }
}

/// Parses the lines of `squeue`: the id of a job and the uid of its owner. Other lines are skipped.
fn parse_owners(text: &str) -> BTreeMap<&str, u32> {
    let lines = text.lines().filter_map(|line| line.trim().split_once(' '));
    lines
        .filter_map(|(job, uid)| Some((job, uid.trim().parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_lines_name_owners() {
        let owners = parse_owners("7 1001\n 8   1002 \n9\n10 x\nslurm_load_jobs error: 11 0\n");
        assert_eq!(owners, BTreeMap::from([("7", 1001), ("8", 1002)]));
        assert!(parse_owners("").is_empty());
    }
}
