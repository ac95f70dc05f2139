//! Jobs of Flux's, by the units that its system instance runs them in.

use super::{Found, Source, SourceError};
use crate::plan::SourceName;
use std::time::Instant;

/// Flux as a source.
#[derive(Debug)]
pub struct FluxSource;

impl Source for FluxSource {
    fn name(&self) -> SourceName {
        SourceName::Flux
    }

    fn jobs(&self, _: u32, _: Instant) -> Result<Found, SourceError> {
        Err(SourceError::Absent("not built yet".to_owned()))
    }
}
