//! What `register` makes of a record's device names: the numbers that each login to the job reads.

use crate::config::Config;
use crate::devices::{AllowlistError, Policy, Resolver, build_allowlist};
use crate::jobs::records::{LoginTarget, Major, Record, RecordDevices, ResolvedList, Via};
use crate::login::{add_slurm_list, list_nameable_gpus};
use crate::node::{ContainerParts, FileError, Tree};
use protocol::Allowlist;
use std::collections::BTreeMap;
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
    resolver: &Resolver,
) -> Result<Registration, RegistrationError> {
    let request = match record.devices() {
        RecordDevices::Unspecified => return Err(RegistrationError::Unspecified),
        RecordDevices::Uncontained => return Ok(Registration::default()),
        RecordDevices::Requested(request) => request,
    };
    let mut allowlist = build_allowlist(&request, &config.always_allowed, resolver)?;
    if !allowlist.late.is_empty() {
        return Err(RegistrationError::LateDevices(allowlist.late));
    }
    if record.target == LoginTarget::Via(Via::Slurm) && request.policy != Policy::Strict {
        add_slurm_list(&mut allowlist, config, resolver);
    }
    let gpus = match list_nameable_gpus(&resolver.tree) {
        Ok(gpus) => gpus,
        Err(why) => {
            let warning = format!("env: no GPU is named: {why}");
            allowlist.warnings.push(warning);
            Vec::new()
        }
    };
    let list = ResolvedList {
        boot_id: resolver.tree.read_boot_id()?,
        node_name: resolver.settings.node_name.clone(),
        drivers: find_drivers(&allowlist.list, &resolver.tree)?,
        rules: allowlist.list,
        gpus,
    };
    Ok(Registration {
        list: Some(list),
        dropped: allowlist.dropped,
        warnings: allowlist.warnings,
        container: allowlist.container,
    })
}

/// Finds the drivers of the majors in a list. A major that no driver has is left out: its driver may be loaded later.
///
/// # Errors
///
/// [`FileError`] if `/proc/devices` cannot be read.
fn find_drivers(list: &Allowlist, tree: &Tree) -> Result<BTreeMap<Major, Vec<String>>, FileError> {
    let mut drivers = BTreeMap::new();
    for rule in list.rules() {
        let major = Major::of(rule);
        let names = tree.read_drivers()?.names_of(major.kind, major.number);
        let names: Vec<String> = names.map(str::to_owned).collect();
        if !names.is_empty() {
            drivers.insert(major, names);
        }
    }
    Ok(drivers)
}

#[cfg(test)]
pub(crate) mod tests;
