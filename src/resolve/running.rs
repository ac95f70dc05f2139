//! The jobs that a user may choose from.

use std::time::{Duration, Instant};

use super::survey::Survey;
use super::{Config, Node};
use crate::plan::{JobId, Request};

/// The running jobs of one user on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// Their ids.
    pub jobs: Vec<JobId>,
    /// What may have hidden others, each with the cause.
    pub unsure: Vec<String>,
}

impl Node {
    /// The jobs that a login of this request would find, looked up with the caller's own rights.
    #[must_use]
    pub fn running(&self, request: &Request, config: &Config) -> Running {
        let sources = match self.sources(request, config) {
            Ok(sources) => sources,
            Err(cause) => return Running { jobs: Vec::new(), unsure: vec![cause] },
        };
        let deadline = Instant::now() + Duration::from_millis(request.budget_ms.into());
        let mut survey = Survey::of(&sources, request.uid, deadline);
        let jobs = std::mem::take(&mut survey.jobs).into_iter().map(|job| job.id).collect();
        Running { jobs, unsure: survey.warnings() }
    }
}
