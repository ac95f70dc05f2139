//! Reads Slurm's devices as the login of a Slurm job does, for `job-adopt check`: without a job of Slurm's no login reads
//! them.

use super::node::Node;
use crate::config::{Config, SlurmDevices};
use crate::devices::gres::{Dialect, Inventory};
use crate::node::DeviceError;
use crate::slurm_conf::read_constrain_devices;

impl Node {
    /// Reads what the login of a Slurm job without a record reads of Slurm's devices, on the node of that name. Returns
    /// the warnings that such a login logs; none if no login reads the devices. `dialect` is that of the node's slurmd.
    ///
    /// # Errors
    ///
    /// Those that refuse such a login.
    pub fn read_slurm_devices(
        &self,
        node: &str,
        config: &Config,
        dialect: Dialect,
    ) -> Result<Vec<String>, DeviceError> {
        let search = self.slurm_conf(config);
        let files = search.files()?;
        let constrains = read_constrain_devices(files)?;
        let is_closed = config.slurm_devices == SlurmDevices::Closed;
        if !constrains && !is_closed {
            return Ok(Vec::new());
        }
        let tree = self.tree();
        let settings = Self::device_settings(node, config);
        let inventory = Inventory::read(files, settings.node_name.as_deref(), dialect)?;
        // Where Slurm's own filter confines the login, a GPU that is left out opens nothing and refuses nobody.
        if let Some(fault) = inventory.gpu_fault.as_ref().filter(|_| !constrains) {
            return Err(DeviceError::at(files.path_of("gres.conf").display(), fault));
        }
        if inventory.has_devices(&tree)? && constrains {
            inventory.list_probes(&tree)?;
        }
        let mut warnings = inventory.warnings.clone();
        if is_closed {
            warnings.extend(inventory.devices(&tree)?.warnings);
        }
        Ok(warnings)
    }
}
