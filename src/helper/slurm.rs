//! Which device policy a Slurm job must have.

use super::config::SlurmDevices;
use super::plan::{Contained, NoPlan, contained, has_list, unusable};
use super::{Config, Evidence};
use crate::helper::devices::gres::Inventory;
use crate::helper::devices::slurm::{Files, constrains_devices};
use crate::helper::devices::{Policy, Resolved, Resolver, Unfit, Wanted, allowlist};
use crate::helper::sources::Job;
use crate::protocol::{Containment, Probe};

/// Where Slurm constrains devices, its own filter holds, and besides it what a record or the site
/// says. The nodes to try are those of the GPUs that it keeps from others' jobs.
/// Fails: [`NoPlan`] where Slurm's configuration cannot be read, and as for a record.
pub(super) fn by_slurm(
    job: &Job,
    config: &Config,
    resolver: &Resolver,
    evidence: &mut Evidence,
) -> Result<(Contained, Vec<Probe>), NoPlan> {
    let (tree, settings) = (&resolver.tree, &resolver.settings);
    let files = Files::find(tree, settings).map_err(unusable(job))?;
    let constrains = constrains_devices(&files).map_err(unusable(job))?;
    let word = if constrains { "yes" } else { "no" };
    let shown = files.path("cgroup.conf");
    evidence.add("slurm", format_args!("{}: ConstrainDevices={word}", shown.display()));
    let closed = !has_list(job) && config.slurm.devices == SlurmDevices::Closed;
    let (mut inventory, mut inherit) = (None, false);
    if constrains || closed {
        let own = Inventory::read(&files, settings).map_err(unusable(job))?;
        let has = own.has_devices(tree).map_err(unusable(job))?;
        evidence.add("slurm", gres(&own, has));
        inherit = constrains && has;
        inventory = Some(own);
    }
    let (mut own, mut probes) = (Contained::none(), Vec::new());
    if let Some(record) = job.record.as_ref().filter(|_| has_list(job)) {
        own = contained(record, config, resolver)?;
    } else if let Some(inventory) = inventory.as_ref().filter(|_| closed) {
        own = by_list(job, inventory, config, resolver)?;
    }
    if let Some(inventory) = inventory.filter(|_| inherit) {
        probes = inventory.probes(tree).map_err(unusable(job))?;
        own.containment = match own.containment {
            Containment::Enforce(list) | Containment::Both(list) => Containment::Both(list),
            Containment::None | Containment::Inherit => Containment::Inherit,
        };
    }
    Ok((own, probes))
}

fn gres(inventory: &Inventory, has: bool) -> String {
    let detected = match (inventory.auto_detect, has) {
        (true, true) => ", AutoDetect finds GPUs",
        (true, false) => ", AutoDetect finds no GPU",
        (false, _) => "",
    };
    format!("{}: {} device files{detected}", inventory.path.display(), inventory.files.len())
}

/// The standard devices, all that Slurm gives out, and the site's.
fn by_list(
    job: &Job,
    inventory: &Inventory,
    config: &Config,
    resolver: &Resolver,
) -> Result<Contained, NoPlan> {
    let wanted = Wanted { policy: Policy::Closed, allow: &[], named: Vec::new() };
    let resolved = allowlist(&wanted, &config.always_allowed, resolver).map_err(unusable(job))?;
    let Resolved { mut list, dropped, mut warnings, .. } = resolved;
    let gres = inventory.devices(&resolver.tree).map_err(unusable(job))?;
    warnings.extend(gres.warnings);
    for device in gres.devices {
        list.push(device.rule).map_err(|_| unusable(job)(Unfit::TooMany))?;
    }
    Ok(Contained { containment: Containment::Enforce(list), dropped, warnings })
}
