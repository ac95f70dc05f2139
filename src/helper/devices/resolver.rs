//! Resolves specifiers to the numbers that they have on this node.

use crate::devices::{DeviceSettings, Specifier, specifier};
use crate::node::{DeviceError, ResolvedDevices, Tree};
use crate::slurm_conf::{SlurmConfSearch, read_allowed_devices};

/// Resolves specifiers on one node by its site's settings.
#[derive(Debug)]
pub struct Resolver {
    /// The node's files.
    pub tree: Tree,
    /// The site's settings.
    pub settings: DeviceSettings,
    slurm_conf: SlurmConfSearch,
}

impl Resolver {
    /// Makes a resolver that reads the files of `tree`.
    pub fn new(tree: Tree, settings: DeviceSettings) -> Self {
        let slurm_conf = SlurmConfSearch::new(tree.clone(), settings.slurm_conf.clone());
        Self::with_slurm_conf(slurm_conf, settings)
    }

    /// Makes a resolver that shares the search for Slurm's configuration, and its node's files.
    pub(crate) fn with_slurm_conf(slurm_conf: SlurmConfSearch, settings: DeviceSettings) -> Self {
        let tree = slurm_conf.tree().clone();
        Self {
            tree,
            settings,
            slurm_conf,
        }
    }

    /// The search for the Slurm configuration of the node.
    pub fn slurm_conf(&self) -> &SlurmConfSearch {
        &self.slurm_conf
    }

    /// Lists the devices that Slurm's own list allows to each job (`AllowedDevicesFile` in `cgroup.conf`; none
    /// without that key or file), and warnings for the log. An entry or a file that cannot be used allows nothing,
    /// refuses no login, and gives a warning.
    pub(crate) fn slurm_allowed_devices(&self) -> (Vec<Specifier>, Vec<String>) {
        let files = self.slurm_conf.files();
        let lines = match files.and_then(read_allowed_devices) {
            Ok(Some(lines)) => lines,
            Ok(None) => return (Vec::new(), Vec::new()),
            Err(error) => return (Vec::new(), vec![format!("AllowedDevicesFile: {error}")]),
        };
        let mut specifiers = Vec::new();
        let mut warnings = Vec::new();
        for line in lines.iter().filter(|line| !line.text.trim().is_empty()) {
            let specifier = match Specifier::parse_site_entry(line.text.trim()) {
                Ok(specifier) => specifier,
                Err(why) => {
                    warnings.push(format!("{}: {why}", line.at));
                    continue;
                }
            };
            match specifier.skip_reason() {
                Some(reason) => warnings.push(format!("{}: {specifier} {reason}", line.at)),
                None => specifiers.push(specifier),
            }
        }
        (specifiers, warnings)
    }

    /// Resolves the devices of a specifier: at least one, except for a preset, which may find none.
    ///
    /// # Errors
    ///
    /// This node has no such device.
    pub fn resolve_specifier(&self, specifier: &Specifier) -> Result<ResolvedDevices, DeviceError> {
        specifier::resolve(&self.tree, specifier, &self.settings.names)
    }
}
