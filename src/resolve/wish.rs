//! What the user has chosen.

use super::Node;
use crate::plan::JobId;
use crate::source::Job;

impl Node {
    /// The one of these jobs that the user has chosen; `None` also for a choice that cannot be
    /// used, of which `warnings` then tells.
    pub(super) fn wish(&self, uid: u32, jobs: &[Job], warnings: &mut Vec<String>) -> Option<JobId> {
        let wish = self.choices().read(uid).unwrap_or_else(|error| {
            warnings.push(format!("choice not used: {error}"));
            None
        })?;
        let running = jobs.iter().any(|job| job.id == wish);
        if !running {
            warnings.push(format!("chosen job {wish} is not running here"));
        }
        running.then_some(wish)
    }
}
