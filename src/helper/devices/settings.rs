//! The site's settings for the resolution of device names.

use crate::devices::Specifier;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The site's settings for the resolution of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSettings {
    /// Directories of CDI specifications, in ascending order of precedence.
    pub cdi_dirs: Vec<PathBuf>,
    /// Slurm's configuration, beside which `gres.conf` lies. `None` means Slurm's own search path.
    pub slurm_conf: Option<PathBuf>,
    /// The node's name in `gres.conf`. `None` means the host's name, in full or up to its first dot.
    pub node_name: Option<String>,
    /// The site's own names of devices, `@NAME`, which stand for no further names.
    pub names: BTreeMap<String, Vec<Specifier>>,
}

impl Default for DeviceSettings {
    fn default() -> Self {
        Self {
            cdi_dirs: vec![PathBuf::from("/etc/cdi"), PathBuf::from("/run/cdi")],
            slurm_conf: None,
            node_name: None,
            names: BTreeMap::new(),
        }
    }
}
