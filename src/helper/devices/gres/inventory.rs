//! All generic resources of a node, as its slurmd reads them.

use super::conf::FILES_MAX;
use super::device_file::{find_device, resolve_file};
use super::dialect::Detection;
use super::{
    DETECTED_RESOURCES, Dialect, FaultyRecord, GRES_CONF, GresConf, HostListError, RecordFault,
    Resources, node_or_host_name,
};
use crate::node::{Device, DeviceError, ResolvedDevices, Tree, topology};
use crate::slurm_conf::{ConfError, GresTypes, SlurmConfFiles, read_gres_types};
use protocol::{PROBES_MAX, Probe};
use std::path::PathBuf;

/// Whether GPUs that Slurm gives out may be missing in an inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GpuLoss {
    Possible,
    None,
}

/// The device files of all generic resources of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The path of `gres.conf`.
    pub path: PathBuf,
    /// Each file once.
    pub files: Vec<String>,
    /// The first file of each GPU.
    gpu_files: Vec<String>,
    /// True if Slurm keeps some device file from jobs that do not have it. A faulty record counts as having one.
    has_constrained_files: bool,
    /// Whether Slurm detects the GPUs of the node itself.
    detection: Detection,
    /// Why GPUs that Slurm gives out may be missing; `None` if none is.
    pub gpu_fault: Option<String>,
    /// Records that are left out, and why.
    pub warnings: Vec<String>,
}

impl Inventory {
    /// Reads `gres.conf` beside `slurm.conf`, as the slurmd of `dialect` does; without the file, the inventory is empty.
    /// What cannot be read is left out with a warning, so that a login opens none of its devices, and counts as a
    /// device that Slurm constrains.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read(
        files: &SlurmConfFiles,
        node_name: Option<&str>,
        dialect: Dialect,
    ) -> Result<Self, DeviceError> {
        let path = files.path_of(GRES_CONF);
        let mut inventory = Self {
            path: path.clone(),
            ..Self::default()
        };
        let lines = match files.read_lines(GRES_CONF) {
            Ok(lines) => lines,
            // A missing file that it includes is an error.
            Err(ConfError::UnreadableFile(error)) if error.is_missing() && error.path() == path => {
                return Ok(inventory);
            }
            Err(error) => return Err(error.into()),
        };
        let types = read_gres_types(files)?;
        let conf = GresConf::from_lines(&lines, &node_or_host_name(node_name)?, dialect);
        // Slurm detects GPUs only for resources that it has.
        if DETECTED_RESOURCES.iter().any(|name| types.contains(name)) {
            inventory.detection = conf.detection();
        }
        for line in conf.faulty_lines() {
            // It may be of GPUs, and have any devices.
            inventory.has_constrained_files = true;
            inventory.leave_out(format!("{line}; it is left out"), GpuLoss::Possible);
        }
        if inventory.detection == Detection::Uncertain && conf.faulty_lines().is_empty() {
            let what = "AutoDetect= has a word that is not known here; what it finds is left out";
            inventory.leave_out(format!("{}: {what}", path.display()), GpuLoss::Possible);
        }
        for name in conf.names() {
            inventory.add_records(&conf, name, &types);
        }
        Ok(inventory)
    }

    /// Notes what is left out, and whether GPUs that Slurm gives out may be among it.
    fn leave_out(&mut self, what: String, loss: GpuLoss) {
        if loss == GpuLoss::Possible {
            self.gpu_fault.get_or_insert_with(|| what.clone());
        }
        self.warnings.push(what);
    }

    /// Adds the files of the records of one name. If one is faulty, all of the name are left out.
    fn add_records(&mut self, conf: &GresConf, name: &str, types: &GresTypes) {
        let is_gpu = name.eq_ignore_ascii_case("gpu");
        let resources = match self.check_records(conf, name) {
            Ok(resources) => resources,
            Err(faulty) => {
                let is_used = types.contains(&faulty.name);
                self.has_constrained_files |= is_used;
                let loss = if is_gpu && is_used {
                    GpuLoss::Possible
                } else {
                    GpuLoss::None
                };
                self.leave_out(format!("{faulty}; Name={} is left out", faulty.name), loss);
                return;
            }
        };
        // One record with the flag is enough for all of the name.
        let is_count_only = resources
            .records()
            .iter()
            .any(|record| record.is_count_only);
        for record in resources.records() {
            if is_gpu {
                self.gpu_files.extend_from_slice(record.first_files());
            }
            for file in record.files() {
                if !self.files.contains(file) {
                    self.files.push(file.clone());
                }
            }
            let has_files = !record.files().is_empty();
            self.has_constrained_files |= has_files && !is_count_only && types.contains(name);
        }
    }

    /// Reads the records of one name and makes slurmd's checks. The files of all names together may not exceed
    /// [`FILES_MAX`].
    fn check_records(&self, conf: &GresConf, name: &str) -> Result<Resources, FaultyRecord> {
        let resources = conf.records_of(name)?;
        resources.check_as_slurmd()?;
        let mut file_count = self.files.len();
        for record in resources.records() {
            file_count += record.files().len();
            if file_count > FILES_MAX {
                return Err(FaultyRecord {
                    at: record.at.clone(),
                    name: record.name.clone(),
                    fault: RecordFault::InvalidList("File", HostListError::TooLong),
                });
            }
        }
        Ok(resources)
    }

    /// Tells whether Slurm could keep any device from a job: a file, or a GPU that it detects.
    ///
    /// # Errors
    ///
    /// The GPUs of the node cannot be listed.
    pub fn has_devices(&self, tree: &Tree) -> Result<bool, DeviceError> {
        if self.has_constrained_files {
            return Ok(true);
        }
        Ok(!self.list_detectable_nodes(tree)?.is_empty())
    }

    /// Lists one node of each GPU that Slurm detects, or may detect.
    ///
    /// # Errors
    ///
    /// The GPUs of the node cannot be listed.
    fn list_detectable_nodes(&self, tree: &Tree) -> Result<Vec<Device>, DeviceError> {
        if self.detection == Detection::Off {
            return Ok(Vec::new());
        }
        topology::list_detectable_nodes(tree)
    }

    /// Tells whether Slurm detects the GPUs of the node itself.
    pub fn has_auto_detect(&self) -> bool {
        self.detection == Detection::On
    }

    /// Resolves the devices of all files and those of the GPUs that Slurm detects, with what GPUs share. A file
    /// whose device does not resolve is left out with a warning.
    ///
    /// # Errors
    ///
    /// The GPUs of the node cannot be listed, or what they share does not resolve.
    pub fn devices(&self, tree: &Tree) -> Result<ResolvedDevices, DeviceError> {
        let mut resolved = ResolvedDevices::default();
        let mut devices = Vec::new();
        for file in &self.files {
            match resolve_file(tree, file) {
                Ok(device) => devices.push(device),
                Err(error) => resolved
                    .warnings
                    .push(format!("{}: {error}", self.path.display())),
            }
        }
        let companions = topology::find_companions(tree, &devices)?;
        resolved.extend(devices.into());
        resolved.extend(companions);
        if self.has_auto_detect() {
            for gpu in topology::list_gpus(tree)? {
                resolved.extend(gpu.devices);
            }
        }
        // No registration can fail here: the login does without them.
        let late = std::mem::take(&mut resolved.late);
        resolved.warnings.extend(late);
        Ok(resolved)
    }

    /// Lists what the module tries to open after the move, to see that Slurm's own filter holds: one node of
    /// each GPU, none twice, at most as many as a plan may have. Nodes of any driver count, since Slurm's
    /// filter denies a number whatever driver has it. A file without a device is left out.
    ///
    /// # Errors
    ///
    /// The GPUs of the node cannot be listed.
    pub fn list_probes(&self, tree: &Tree) -> Result<Vec<Probe>, DeviceError> {
        let mut nodes = Vec::new();
        for file in &self.gpu_files {
            nodes.extend(find_device(tree, file));
        }
        nodes.extend(self.list_detectable_nodes(tree)?);
        let mut probes: Vec<Probe> = Vec::new();
        for node in nodes {
            // A path that a plan cannot have is not tried.
            let Ok(probe) = format!("{} {}", node.rule, node.node).parse::<Probe>() else {
                continue;
            };
            if probes.iter().all(|known| known.device != probe.device) {
                probes.push(probe);
            }
        }
        probes.truncate(PROBES_MAX);
        Ok(probes)
    }
}

#[cfg(test)]
mod tests;
