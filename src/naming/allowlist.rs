//! A job's allowlist, with the devices that it has by names.

use crate::resolver::NameResolver;
use crate::unresolved_name::UnresolvedName;
use helper::devices::{self, DeviceName, DeviceRequest, JobAllowlist, Specifier, TooManyEntries};
use thiserror::Error;

/// Why a job has no allowlist.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AllowlistError {
    /// A name that must resolve does not.
    #[error("{0}")]
    UnresolvedName(UnresolvedName),
    /// The list is too long.
    #[error(transparent)]
    TooManyEntries(#[from] TooManyEntries),
}

/// Builds the allowlist of a job as [`devices::build_allowlist`] does, with the devices of these names, each of which must
/// resolve.
///
/// # Errors
///
/// A name does not resolve, or the list is too long.
pub fn build_allowlist(
    request: &DeviceRequest<'_>,
    names: &[DeviceName],
    site: &[Specifier],
    resolver: &NameResolver,
) -> Result<JobAllowlist, AllowlistError> {
    let named = resolver.resolve_names(names);
    let named = named.map_err(AllowlistError::UnresolvedName)?;
    let list = devices::build_allowlist(request, named, site, &resolver.specifiers)?;
    Ok(list)
}

#[cfg(test)]
mod tests;
