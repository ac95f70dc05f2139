//! What a site says about where device names are looked up.

use std::path::PathBuf;

/// Where names are looked up, and what of them is taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Directories of CDI specifications, the last one first in precedence.
    pub cdi_dirs: Vec<PathBuf>,
    /// Variables that a CDI specification may set for a login.
    pub cdi_env: Vec<String>,
    /// Groups that a CDI specification may add to a login, by number.
    pub cdi_gids: Vec<u32>,
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
            cdi_env: Vec::new(),
            cdi_gids: Vec::new(),
            slurm_conf: None,
            node_name: None,
        }
    }
}
