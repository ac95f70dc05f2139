//! What has to hold for the devices of a job of Flux's.

use super::Config;
use super::plan::{Contained, NoPlan, misconfigured};
use crate::device::Resolver;
use crate::source::Job;

/// What has to hold for the devices of a login to a job of Flux's.
pub(super) fn by_flux(job: &Job, _: &Config, _: &Resolver) -> Result<Contained, NoPlan> {
    Err(misconfigured(job, "not built yet".to_owned()))
}
