//! The jobs that a user may choose from.

use std::time::Instant;

use super::survey::Survey;
use super::{Config, Node};
use crate::plan::JobId;

/// The running jobs of one user on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Their ids.
    pub jobs: Vec<JobId>,
    /// What may have hidden others, each with the cause.
    pub unsure: Vec<String>,
}

impl Node {
    /// The jobs among which a login of this user would be, looked up with the caller's own rights
    /// until `deadline`; `node` is this node's name.
    #[must_use]
    pub fn selection(&self, config: &Config, node: &str, uid: u32, deadline: Instant) -> Selection {
        let sources = match self.sources(&self.tree(), node, config) {
            Ok(sources) => sources,
            Err(cause) => return Selection { jobs: Vec::new(), unsure: vec![cause] },
        };
        let mut survey = Survey::of(&sources, uid, deadline);
        let jobs = std::mem::take(&mut survey.jobs).into_iter().map(|job| job.id).collect();
        Selection { jobs, unsure: survey.warnings() }
    }
}
