//! What devices a unit without a filter should have: its file, which the helper is to read.

use super::super::site::{Site, Spot};
use super::super::{Failure, Visit};
use super::FluxFailure;
use crate::plan::{Containment, Placement, Request};
use crate::trust::Trust;
use std::path::Path;

/// The text of the unit's file, where the plan goes by the IMP's filter and there is none. The IMP
/// attaches it before it starts the shell, which has been seen: so none will come.
///
/// # Errors
/// Any [`Failure`] of looking at the job; [`FluxFailure::Policy`] and [`FluxFailure::Text`].
pub fn policy(visit: &Visit<'_>) -> Result<Option<String>, Failure> {
    let Placement::Unit { path, flux } = &visit.plan.placement else { return Ok(None) };
    let inherits = matches!(visit.plan.containment, Containment::Inherit | Containment::Both(_));
    if !inherits || Site::open(visit, Spot::Unit { path, flux: *flux })?.has_filter()? {
        return Ok(None);
    }
    let run = format!("/run/user/{flux}");
    let (_, name) = path.as_str().rsplit_once('/').unwrap_or_default();
    let file = format!("{run}/systemd/transient/{name}");
    let trust = Trust::below(Path::new(&run), *flux).or_owned_by(0);
    let text =
        trust.read(Path::new(&file), Request::UNIT_MAX as u64).map_err(FluxFailure::Policy)?;
    // A request cannot carry a NUL (RFC 38).
    let text = String::from_utf8(text).ok().filter(|text| !text.contains('\0'));
    Ok(Some(text.ok_or(FluxFailure::Text)?))
}
