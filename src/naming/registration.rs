//! What `register` makes of a record's device names: the numbers that each login to the job reads.

use crate::allowlist::{AllowlistError, build_allowlist};
use crate::resolver::NameResolver;
use helper::devices::Policy;
use helper::jobs::records::{LoginTarget, Record, RecordDevices, ResolvedList, Via};
use helper::node::{ContainerParts, FileError};
use helper::{Config, add_slurm_list, list_nameable_gpus, note_numbers};
use thiserror::Error;

/// The devices of a record on this node, and what to tell its prolog about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// The numbers; `None` for a record that asks for no list.
    pub list: Option<ResolvedList>,
    /// Entries of `DeviceAllow` that this node does not have, each with the reason.
    pub dropped: Vec<String>,
    /// Warnings for the log.
    pub warnings: Vec<String>,
    /// What specifications give to containers beside the devices.
    pub container: ContainerParts,
}

/// Why a record's names have no numbers.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegistrationError {
    /// The record does not say which devices the job has.
    #[error("it says nothing about devices")]
    Unspecified,
    /// A name that must resolve does not, or the names mean more devices than a list can have.
    #[error(transparent)]
    Devices(#[from] AllowlistError),
    /// A driver that jobs with these GPUs need is not loaded: its devices have no numbers yet, and the job would never
    /// have them.
    #[error("{}", .0.join("; "))]
    LateDevices(Vec<String>),
    /// The node's boot or its drivers cannot be read.
    #[error(transparent)]
    Node(#[from] FileError),
}

/// Resolves the device names of a record.
///
/// # Errors
///
/// [`RegistrationError`].
pub fn resolve_record(
    record: &Record,
    config: &Config,
    resolver: &NameResolver,
) -> Result<Registration, RegistrationError> {
    let request = match record.devices() {
        RecordDevices::Unspecified => return Err(RegistrationError::Unspecified),
        RecordDevices::Uncontained => return Ok(Registration::default()),
        RecordDevices::Requested(request) => request,
    };
    let names = record.device_names();
    let specifiers = &resolver.specifiers;
    let mut allowlist = build_allowlist(&request, &names, &config.always_allowed, resolver)?;
    if !allowlist.late.is_empty() {
        return Err(RegistrationError::LateDevices(allowlist.late));
    }
    if record.target == LoginTarget::Via(Via::Slurm) && request.policy != Policy::Strict {
        add_slurm_list(&mut allowlist, config, specifiers);
    }
    let gpus = match list_nameable_gpus(&specifiers.tree) {
        Ok(gpus) => gpus,
        Err(why) => {
            let warning = format!("env: no GPU is named: {why}");
            allowlist.warnings.push(warning);
            Vec::new()
        }
    };
    let list = note_numbers(allowlist.list, gpus, specifiers)?;
    Ok(Registration {
        list: Some(list),
        dropped: allowlist.dropped,
        warnings: allowlist.warnings,
        container: allowlist.container,
    })
}

#[cfg(test)]
mod tests;
