//! Whether the sources answer.

use std::time::{Duration, Instant};

use super::{Config, Node};
use crate::plan::SourceName;
use crate::source::{Found, SourceError};

/// What one source answers, and how long it takes.
#[derive(Debug)]
pub struct Health {
    /// Which source.
    pub source: SourceName,
    /// Its answer.
    pub answer: Result<Found, SourceError>,
    /// How long that took.
    pub took: Duration,
}

impl Node {
    /// Asks each source of the configuration about a user, as at a login to the node of that name,
    /// for `each` at most.
    ///
    /// # Errors
    /// A text where none can be asked.
    pub fn health(
        &self,
        node: &str,
        config: &Config,
        uid: u32,
        each: Duration,
    ) -> Result<Vec<Health>, String> {
        let ask = |source: Box<dyn crate::source::Source>| {
            let began = Instant::now();
            let answer = source.jobs(uid, began + each);
            Health { source: source.name(), answer, took: began.elapsed() }
        };
        Ok(self.sources(&self.tree(), node, config)?.into_iter().map(ask).collect())
    }
}
