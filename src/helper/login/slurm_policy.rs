//! The device containment of a Slurm job, by Slurm's configuration and its record.

use super::containment::{JobContainment, Planner, add_slurm_list};
use super::refusal::LoginRefusal;
use crate::config::SlurmDevices;
use crate::devices::gres::{Dialect, Inventory};
use crate::devices::{DeviceRequest, Policy, TooManyEntries, build_allowlist};
use crate::node::ResolvedDevices;
use crate::slurm_conf::read_constrain_devices;
use protocol::Probe;

impl Planner<'_> {
    /// Decides the containment of a Slurm job, and which device nodes to probe.
    ///
    /// If Slurm constrains devices and the node has any that it gives out, its own filter must hold, and besides it
    /// the list of the record or of the site (`slurm_devices = closed`); else that list alone, if there is one. The nodes
    /// to probe are those of the GPUs that Slurm constrains.
    ///
    /// What `gres.conf` has that cannot be read is left out, and refuses no login that Slurm's own filter confines.
    ///
    /// # Errors
    ///
    /// [`LoginRefusal`] if Slurm's configuration or the devices in it cannot be read, and for the causes of
    /// [`super::contain_by_record`].
    pub(super) fn contain_by_slurm(
        &mut self,
    ) -> Result<(JobContainment, Vec<Probe>), LoginRefusal> {
        let constrains = self.read_constraint()?;
        let record = self.job.record_of_devices();
        let is_closed = record.is_none() && self.config.slurm_devices == SlurmDevices::Closed;
        // Without either, Slurm's inventory of the node does not matter.
        if !constrains && !is_closed {
            let containment = match record {
                Some(record) => self.contain_by_record(record)?,
                None => JobContainment::none(),
            };
            return Ok((containment, Vec::new()));
        }
        let inventory = self.read_inventory()?;
        if let Some(fault) = inventory.gpu_fault.as_ref().filter(|_| !constrains) {
            return Err(self.refuse_devices(fault));
        }
        let has_devices = inventory
            .has_devices(&self.resolver.tree)
            .map_err(|error| self.refuse_devices(error))?;
        self.evidence
            .add("slurm", describe_gres(&inventory, has_devices));
        let mut containment = match record {
            Some(record) => self.contain_by_record(record)?,
            None if is_closed => self.contain_by_inventory(&inventory)?,
            None => JobContainment::none(),
        };
        containment.warnings.extend_from_slice(&inventory.warnings);
        if !constrains || !has_devices {
            return Ok((containment, Vec::new()));
        }
        let probes = inventory
            .list_probes(&self.resolver.tree)
            .map_err(|error| self.refuse_devices(error))?;
        Ok((containment.with_inherited_filter(), probes))
    }

    /// Reads whether Slurm restricts its jobs to their own devices (`ConstrainDevices` of cgroup.conf(5)).
    fn read_constraint(&mut self) -> Result<bool, LoginRefusal> {
        let files = self
            .resolver
            .slurm_conf()
            .files()
            .map_err(|error| self.refuse_devices(error))?;
        let constrains =
            read_constrain_devices(files).map_err(|error| self.refuse_devices(error))?;
        let word = if constrains { "yes" } else { "no" };
        let path = files.path_of("cgroup.conf");
        let line = format!("{}: ConstrainDevices={word}", path.display());
        self.evidence.add("slurm", line);
        Ok(constrains)
    }

    /// Reads the generic resources of the node.
    fn read_inventory(&self) -> Result<Inventory, LoginRefusal> {
        let files = self
            .resolver
            .slurm_conf()
            .files()
            .map_err(|error| self.refuse_devices(error))?;
        let node_name = self.resolver.settings.node_name.as_deref();
        let dialect = Dialect(self.job.slurm);
        Inventory::read(files, node_name, dialect).map_err(|error| self.refuse_devices(error))
    }

    /// The list of a job without a record under `slurm_devices = closed`: the standard devices, every device in Slurm's
    /// inventory of the node (which of them are this job's, only Slurm's own filter decides), those of `always_allowed`,
    /// and those of Slurm's own list if the site wants it ([`add_slurm_list`]).
    ///
    /// # Errors
    ///
    /// [`LoginRefusal`] if a device of the inventory cannot be read, or if they are too many for a list.
    fn contain_by_inventory(&self, inventory: &Inventory) -> Result<JobContainment, LoginRefusal> {
        let request = DeviceRequest {
            policy: Policy::Closed,
            allow: &[],
        };
        let mut allowlist = build_allowlist(
            &request,
            ResolvedDevices::default(),
            &self.config.always_allowed,
            self.resolver,
        )
        .map_err(|error| self.refuse_devices(error))?;
        let gres = inventory
            .devices(&self.resolver.tree)
            .map_err(|error| self.refuse_devices(error))?;
        allowlist.warnings.extend(gres.warnings);
        for device in gres.devices {
            if allowlist.list.push(device.rule).is_err() {
                return Err(self.refuse_devices(TooManyEntries));
            }
        }
        add_slurm_list(&mut allowlist, self.config, self.resolver);
        Ok(JobContainment::from_allowlist(allowlist))
    }
}

/// Describes Slurm's inventory of the node, for the evidence.
fn describe_gres(inventory: &Inventory, has_devices: bool) -> String {
    let detected = match (inventory.has_auto_detect(), has_devices) {
        (true, true) => ", AutoDetect finds GPUs",
        (true, false) => ", AutoDetect finds no GPU",
        (false, _) => "",
    };
    format!(
        "{}: {} device files{detected}",
        inventory.path.display(),
        inventory.files.len()
    )
}
