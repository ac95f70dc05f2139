//! A job of Flux's: the kernel says whose it is, by the processes in its unit.
//!
//! The login goes into a leaf below the unit ([`super::site`]), where Flux neither waits for it nor
//! ends it: a keeper does that.

mod error;
mod imp;
pub(super) mod keeper;
mod policy;

pub use error::FluxFailure;
pub(super) use imp::Imp;
pub use policy::policy;

use super::Visit;
use crate::flux::unit_at;
use crate::plan::CgroupPath;

/// Refuses a path that is not that of the plan's job in the service manager of this account, and an
/// account that can be none of Flux's.
pub(super) fn require_unit(
    visit: &Visit<'_>,
    path: &CgroupPath,
    flux: u32,
) -> Result<(), FluxFailure> {
    let unit = unit_at(path.as_str(), flux);
    let is_jobs = unit.is_some_and(|unit| unit.id.to_string() == visit.plan.job.as_str());
    match is_jobs && flux != 0 && flux != visit.login.uid {
        true => Ok(()),
        false => Err(FluxFailure::Unit(path.clone(), flux)),
    }
}
