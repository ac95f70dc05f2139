//! What the user has chosen.

use super::{Evidence, Node};
use crate::plan::JobId;
use crate::source::Job;

impl Node {
    /// The one of these jobs that the user has chosen; `None` also for a choice that cannot be
    /// used, of which `warnings` then tells.
    pub(super) fn wish(
        &self,
        uid: u32,
        jobs: &[Job],
        evidence: &mut Evidence,
        warnings: &mut Vec<String>,
    ) -> Option<JobId> {
        let wish = match self.choices().read(uid) {
            Ok(Some(wish)) => wish,
            Ok(None) => {
                evidence.add("chosen", "none");
                return None;
            }
            Err(error) => {
                warnings.push(format!("choice not used: {error}"));
                return None;
            }
        };
        let exactly = jobs.iter().find(|job| job.id == wish);
        let meant = exactly.or_else(|| jobs.iter().find(|job| job.goes_by(&wish)));
        if meant.is_none() {
            warnings.push(format!("chosen job {wish} is not running here"));
        }
        meant.map(|job| job.id.clone())
    }
}
