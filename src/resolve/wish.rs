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
        let running = jobs.iter().any(|job| job.id == wish);
        if !running {
            warnings.push(format!("chosen job {wish} is not running here"));
        }
        running.then_some(wish)
    }
}
