//! What a site says about where device names are looked up.

use std::path::PathBuf;

/// Where names are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Directories of CDI specifications, the last one first in precedence.
    pub cdi_dirs: Vec<PathBuf>,
    /// Slurm's configuration, beside which `gres.conf` lies; where Slurm looks for it unless given.
    pub slurm_conf: Option<PathBuf>,
    /// The node's name in `gres.conf`; the host's name, in full or up to its
    /// first dot, unless given.
    pub node_name: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cdi_dirs: vec![PathBuf::from("/etc/cdi"), PathBuf::from("/run/cdi")],
            slurm_conf: None,
            node_name: None,
        }
    }
}
