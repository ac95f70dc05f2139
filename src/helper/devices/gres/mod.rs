//! Slurm's generic resources, by the device files that `gres.conf` lists for them.

mod conf;
mod fault;
mod hostlist;
mod record;

use crate::node::none_if_missing;
use crate::node::{Device, DeviceError, NodeError, ResolvedDevices, Tree, driver, topology};
use crate::slurm_conf::{
    ConfError, ConfLine, GresTypes, SlurmConfFiles, SlurmConfSearch, read_gres_types,
};
use conf::FILES_MAX;
pub use conf::GresConf;
pub use fault::{FaultyLine, FaultyRecord, RecordFault};
pub use hostlist::{HostList, HostListError};
use protocol::{Access, PROBES_MAX, Probe};
pub use record::{GresRecord, Resources};
use std::path::{Path, PathBuf};

/// Name of the file beside `slurm.conf`.
const GRES_CONF: &str = "gres.conf";
/// Resources whose devices and order Slurm detects itself if `AutoDetect` is on: GPUs, and resources
/// that share them.
const DETECTED_RESOURCES: [&str; 3] = ["gpu", "mps", "shard"];

/// The resources of the node as slurmd reports and counts them. The prolog writes this file in the
/// form of `gres.conf`, after the line of [`boot_stamp`].
const SLURMD_GRES: &str = "/run/job-adopt/gres.conf";
const SLURMD_GRES_BYTES_MAX: u64 = 1024 * 1024;
/// GPU drivers. Loading another version may change the GPUs that Slurm detects.
const GPU_DRIVERS: [&str; 4] = ["nvidia", "amdgpu", "i915", "xe"];

/// Resolves the devices, for reading and writing, of the generic resource `name`, which is `NAME` or
/// `NAME:TYPE`, with the index `index` on this node.
///
/// The index counts across types; `TYPE` only has to agree. Slurm counts by the lines of the file, so the
/// n-th file of a name may differ from the n-th GPU of the node. Only slurmd knows the order with `AutoDetect`,
/// and with several types, which it takes in the order of `Gres=` in `slurm.conf`.
///
/// # Errors
///
/// There is no such resource, it has no device, or the order of slurmd is needed and missing.
pub fn resolve(
    slurm_conf: &SlurmConfSearch,
    node_name: Option<&str>,
    name: &str,
    index: u32,
) -> Result<ResolvedDevices, DeviceError> {
    let tree = slurm_conf.tree();
    let files = slurm_conf.files()?;
    let lines = files.read_lines(GRES_CONF)?;
    // The file that errors name.
    let mut path = files.path_of(GRES_CONF).display().to_string();
    let node = node_or_host_name(node_name)?;
    let (resource, kind) = match name.split_once(':') {
        Some((resource, kind)) => (resource, Some(kind)),
        None => (name, None),
    };
    if !read_gres_types(files)?.contains(resource) {
        return Err(DeviceError::at(
            files.path_of("slurm.conf").display(),
            format_args!("GresTypes= has no {resource}, so Slurm has no such resource"),
        ));
    }
    let conf = GresConf::from_lines(&lines, &node)?;
    let mut resources = conf.resources(resource)?;
    resources.check_as_slurmd()?;
    if let Some(why) = why_slurmd_orders(&conf, resource, &resources) {
        let slurmd_conf = read_slurmd_gres(tree, &node).map_err(|fault| {
            let advice = "the prolog asks slurmd with DEVICES=lists";
            DeviceError::at(
                &path,
                format_args!("{why} leaves the order to Slurm; {advice}: {fault}"),
            )
        })?;
        resources = slurmd_conf.resources(resource)?;
        path = SLURMD_GRES.to_owned();
    }
    let Some((record, device_files)) = resources.resource(u64::from(index)) else {
        let why = match resources.count() {
            0 => format!("no record with Name={resource} for node {node}"),
            count => format!("Name={resource} has {count} here, counted from 0"),
        };
        return Err(DeviceError::at(path, why));
    };
    if kind.is_some_and(|kind| !record.kind.eq_ignore_ascii_case(kind)) {
        let why = match record.kind.as_str() {
            "" => "the record has no Type=".to_owned(),
            actual => format!("it is of type {actual}"),
        };
        return Err(DeviceError::at(&record.at, why));
    }
    if device_files.is_empty() {
        let why = "the record has no File=, so no device is known";
        return Err(DeviceError::at(&record.at, why));
    }
    let mut devices = Vec::new();
    for file in device_files {
        devices.push(resolve_file(tree, file)?);
    }
    Ok(devices.into())
}

/// Tells why only slurmd knows the order of a resource; `None` if the records give the order.
fn why_slurmd_orders(
    conf: &GresConf,
    resource: &str,
    resources: &Resources,
) -> Option<&'static str> {
    let is_detected = DETECTED_RESOURCES
        .iter()
        .any(|detected| detected.eq_ignore_ascii_case(resource));
    if is_detected && conf.has_auto_detect() {
        return Some("AutoDetect");
    }
    resources
        .has_several_types()
        .then_some("more than one Type=")
}

/// Reads the resources that slurmd reported.
///
/// # Errors
///
/// The file is missing, not trusted or malformed, or of another boot or driver.
fn read_slurmd_gres(tree: &Tree, node: &str) -> Result<GresConf, DeviceError> {
    let path = tree.locate(SLURMD_GRES);
    let bytes = match tree.trust().read(&path, SLURMD_GRES_BYTES_MAX) {
        Err(error) if error.is_missing() => {
            return Err(DeviceError::at(SLURMD_GRES, "it was not asked yet"));
        }
        result => result?,
    };
    let text = String::from_utf8_lossy(&bytes);
    if text.lines().next() != Some(&boot_stamp(tree)?) {
        return Err(DeviceError::at(SLURMD_GRES, "of another boot or driver"));
    }
    let lines = ConfLine::parse_all(&text, Path::new(SLURMD_GRES));
    Ok(GresConf::from_lines(&lines, node)?)
}

/// Makes the first line of [`SLURMD_GRES`], which the prolog writes in the same way: a comment that names this boot and
/// the versions of the GPU drivers, `-` for one that is not loaded.
fn boot_stamp(tree: &Tree) -> Result<String, DeviceError> {
    let mut stamp = format!(
        "# {}",
        tree.read_text("/proc/sys/kernel/random/boot_id")?
            .trim_end()
    );
    for driver in GPU_DRIVERS {
        let dir = format!("/sys/module/{driver}");
        let version = tree
            .read_text(&format!("{dir}/version"))
            // A driver of the kernel itself has no version.
            .or_else(|_| tree.read_text(&format!("{dir}/initstate")));
        let version = none_if_missing(version)?.unwrap_or_else(|| "-".to_owned());
        stamp = format!("{stamp} {}", version.trim_end());
    }
    Ok(stamp)
}

/// The node's name in `gres.conf`: the configured one, else the host's.
fn node_or_host_name(configured: Option<&str>) -> Result<String, DeviceError> {
    if let Some(node) = configured {
        return Ok(node.to_owned());
    }
    let host = nix::unistd::gethostname()
        .map_err(|errno| DeviceError::at("get the host's name", errno.desc()))?;
    Ok(host.to_string_lossy().into_owned())
}

/// Resolves a device file of a record, for reading and writing.
///
/// # Errors
///
/// The file is missing, no device, outside of `/dev` behind its links, or must not be a job's.
fn resolve_file(tree: &Tree, file: &str) -> Result<Device, DeviceError> {
    let failed = |error| DeviceError::at(file, error);
    let path = real_path(tree, file).map_err(failed)?;
    let node = tree.read_node(&path).map_err(failed)?;
    driver::check_node(tree, &path, node)?;
    Device::from_node(&path, node, Access::RW)
}

/// Finds the path of a file behind symbolic links, which slurmd follows as well.
///
/// # Errors
///
/// The links cannot be followed, or lead outside of `/dev`.
fn real_path(tree: &Tree, file: &str) -> Result<String, NodeError> {
    let path = tree.follow_links(file)?;
    if path.starts_with("/dev/") {
        Ok(path)
    } else {
        Err(NodeError::SymbolicLink)
    }
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
    /// True if Slurm detects the GPUs of the node itself.
    pub auto_detect: bool,
    /// Records that are left out, and why; those of GPUs only if `GresTypes` lacks `gpu`.
    pub warnings: Vec<String>,
}

impl Inventory {
    /// Reads `gres.conf` beside `slurm.conf`; without the file, the inventory is empty. A faulty record is left
    /// out with a warning, so that a login opens none of its devices.
    ///
    /// # Errors
    ///
    /// The file cannot be read; a line is faulty that could be a record of any name; a GPU's record is faulty,
    /// and `GresTypes` has `gpu`.
    pub fn read(files: &SlurmConfFiles, node_name: Option<&str>) -> Result<Self, DeviceError> {
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
        let conf = GresConf::from_lines(&lines, &node_or_host_name(node_name)?)?;
        // Slurm detects GPUs only for resources that it has.
        let detects = DETECTED_RESOURCES.iter().any(|name| types.contains(name));
        inventory.auto_detect = conf.has_auto_detect() && detects;
        for name in conf.names() {
            inventory.add_records(&conf, name, &types)?;
        }
        Ok(inventory)
    }

    /// Adds the files of the records of one name. Faulty ones are left out with a warning, unless they are of GPUs
    /// that Slurm gives out.
    ///
    /// # Errors
    ///
    /// A faulty record of GPUs, if `GresTypes` has `gpu`.
    fn add_records(
        &mut self,
        conf: &GresConf,
        name: &str,
        types: &GresTypes,
    ) -> Result<(), DeviceError> {
        let is_gpu = name.eq_ignore_ascii_case("gpu");
        let resources = match self.check_records(conf, name) {
            Ok(resources) => resources,
            Err(faulty) if is_gpu && types.contains(name) => return Err(faulty.into()),
            Err(faulty) => {
                self.has_constrained_files |= types.contains(&faulty.name);
                self.warnings
                    .push(format!("{faulty}; Name={} is left out", faulty.name));
                return Ok(());
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
        Ok(())
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
        Ok(
            self.has_constrained_files
                || self.auto_detect && !topology::list_gpus(tree)?.is_empty(),
        )
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
        if self.auto_detect {
            for gpu in topology::list_gpus(tree)? {
                resolved.extend(gpu.devices);
            }
        }
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
        if self.auto_detect {
            nodes.extend(
                topology::list_gpus(tree)?
                    .into_iter()
                    .map(|gpu| gpu.own_node),
            );
        }
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

/// Finds the device of a file, whatever its driver; `None` if there is none.
fn find_device(tree: &Tree, file: &str) -> Option<Device> {
    let path = real_path(tree, file).ok()?;
    let node = tree.read_node(&path).ok()?;
    Device::from_node(&path, node, Access::RW).ok()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod inventory_tests {
    use super::*;
    use crate::node::topology::tests::layout::Layout;
    use crate::testing::Scratch;

    fn node(text: &str) -> Scratch {
        let scratch = Scratch::new();
        scratch.file("etc/slurm/slurm.conf", "");
        scratch.file("etc/slurm/gres.conf", text);
        scratch.file("proc/devices", "Character devices:\n10 misc\n195 nvidia\n");
        for minor in 0..4 {
            scratch.file(&format!("dev/nvidia{minor}"), &format!("c 195:{minor}"));
        }
        scratch.file("dev/nvidiactl", "c 195:255");
        scratch.file("dev/nic0", "c 10:7");
        scratch
    }

    fn read(scratch: &Scratch) -> (Tree, Result<Inventory, DeviceError>) {
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let files = SlurmConfFiles::find(&tree, None).unwrap();
        (tree, Inventory::read(&files, Some("n1")))
    }

    /// Tells whether the inventory has devices, the paths of these, and those of its probes.
    fn summarize(text: &str) -> (bool, Vec<String>, Vec<String>) {
        let scratch = node(text);
        let (tree, inventory) = read(&scratch);
        let inventory = inventory.unwrap();
        let devices = inventory.devices(&tree).unwrap().devices;
        let devices = devices.iter().map(|device| device.node.clone()).collect();
        let probes = inventory.list_probes(&tree).unwrap();
        let probes = probes.iter().map(|probe| probe.path.to_string()).collect();
        (inventory.has_devices(&tree).unwrap(), devices, probes)
    }

    #[test]
    fn inventory_has_all_files_of_the_node_and_probes_its_gpus() {
        let (has_devices, devices, probes) = summarize(
            "NodeName=n[1-2] Name=gpu Type=b File=/dev/nvidia[2,0]\nName=shard Count=8 \
             File=/dev/nvidia0\nName=nic File=/dev/nic0\nNodeName=n3 Name=gpu File=/dev/nvidia3\n\
             Name=gpu Type=a MultipleFiles=/dev/nvidia1,/dev/nvidia3\nName=bw Count=4G\n",
        );
        assert!(has_devices);
        let own = [
            "/dev/nvidia0",
            "/dev/nic0",
            "/dev/nvidia1",
            "/dev/nvidia3",
            "/dev/nvidia2",
        ];
        assert_eq!(devices[..5], own);
        assert!(
            devices.contains(&"/dev/nvidiactl".to_owned()),
            "{devices:?}"
        );
        assert_eq!(probes, ["/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia0"]);
    }

    #[test]
    fn gpu_without_a_known_driver_is_probed() {
        let scratch = node("Name=gpu File=/dev/nvidia[0-1],/dev/gone\n");
        scratch.file("proc/devices", "Character devices:\n10 misc\n");
        let (tree, inventory) = read(&scratch);
        let inventory = inventory.unwrap();
        assert_eq!(inventory.list_probes(&tree).unwrap().len(), 2);
        assert_eq!(inventory.devices(&tree).unwrap().warnings.len(), 3);
    }

    #[test]
    fn detected_gpus_are_in_the_inventory_and_are_probed() {
        let layout = Layout::new();
        layout.scratch.file("etc/slurm/slurm.conf", "");
        layout
            .scratch
            .file("etc/slurm/gres.conf", "AutoDetect=nvml\n");
        layout.nvidia("0000:01:00.0", 1);
        layout.nvidia("0000:02:00.0", 0);
        let (tree, inventory) = read(&layout.scratch);
        let inventory = inventory.unwrap();
        assert_eq!(
            (inventory.has_devices(&tree), inventory.files.len()),
            (Ok(true), 0)
        );
        let probes = inventory.list_probes(&tree).unwrap();
        let probes: Vec<_> = probes.iter().map(|probe| probe.path.as_str()).collect();
        assert_eq!(probes, ["/dev/nvidia1", "/dev/nvidia0"]);
        let found = inventory.devices(&tree).unwrap();
        assert!(
            found
                .devices
                .iter()
                .any(|device| device.node == "/dev/nvidiactl"),
            "{found:?}"
        );
        layout.scratch.file(
            "etc/slurm/gres.conf",
            "AutoDetect=nvml\nNodeName=n1 AutoDetect=off\n",
        );
        let (other_tree, other_inventory) = read(&layout.scratch);
        assert_eq!(other_inventory.unwrap().has_devices(&other_tree), Ok(false));
    }

    #[test]
    fn counted_resources_and_undetected_gpus_are_no_devices() {
        for text in [
            "",
            "Name=gpu Count=4\n",
            "AutoDetect=nvml\n",
            "NodeName=n9 File=/dev/nic0",
        ] {
            assert_eq!(summarize(text), (false, vec![], vec![]), "{text}");
        }
        let scratch = node("");
        std::fs::remove_file(scratch.path().join("etc/slurm/gres.conf")).unwrap();
        let (tree, inventory) = read(&scratch);
        assert_eq!(inventory.unwrap().has_devices(&tree), Ok(false));
    }

    /// A record of another name than the one asked for may have faults: logins open no device of it, and they still
    /// wait for Slurm's filter.
    #[test]
    fn faulty_record_of_another_name_is_a_warning() {
        for fault in [
            "Fil=/dev/nic0",
            "File=/etc/x",
            "File=/dev/a[",
            "File=/dev/n[0-1024]",
        ] {
            let scratch = node(&format!(
                "Name=gpu File=/dev/nvidia0\nName=nic Count=1 {fault}\n"
            ));
            let (tree, inventory) = read(&scratch);
            let inventory = inventory.unwrap();
            assert_eq!(inventory.files, ["/dev/nvidia0"], "{fault}");
            let [warning] = inventory.warnings.as_slice() else {
                panic!("{fault}")
            };
            assert!(
                warning.contains("gres.conf:2: ") && warning.contains("Name=nic"),
                "{warning}"
            );
            assert_eq!(inventory.list_probes(&tree).unwrap().len(), 1);
        }
        let scratch = node("Name=nic Fil=/dev/nic0\n");
        let (tree, inventory) = read(&scratch);
        assert_eq!(inventory.unwrap().has_devices(&tree), Ok(true));
        for text in [
            "NodeName=n9 Name=gpu Fil=x\n",
            "Name=gpu Flags=CountOnly File=/dev/nvidia0\n",
        ] {
            let other_scratch = node(text);
            let (other_tree, other_inventory) = read(&other_scratch);
            let other_inventory = other_inventory.unwrap();
            assert_eq!(
                (
                    other_inventory.has_devices(&other_tree),
                    other_inventory.warnings.len()
                ),
                (Ok(false), 0)
            );
        }
    }

    /// Slurm ignores records whose name is not in `GresTypes=`. If they counted as devices, every login would wait
    /// for a filter that Slurm does not attach.
    #[test]
    fn records_outside_gres_types_are_no_devices() {
        let text = "Name=nic File=/dev/nic0\nName=gpu Fil=x\nAutoDetect=nvml\n";
        let scratch = node(text);
        scratch.file("etc/slurm/slurm.conf", "GresTypes=fpga\n");
        let (tree, inventory) = read(&scratch);
        let inventory = inventory.unwrap();
        assert_eq!(
            (inventory.has_devices(&tree), inventory.auto_detect),
            (Ok(false), false)
        );
        assert_eq!(inventory.warnings.len(), 1);
    }

    #[test]
    fn malformed_file_gives_no_inventory() {
        for text in [
            "Name=gpu Fil=/dev/nvidia0",
            "Name=gpu File=/etc/x",
            "Name=gpu File=/dev/a[",
            "x",
        ] {
            let scratch = node(text);
            let (_, inventory) = read(&scratch);
            let error = inventory.unwrap_err().to_string();
            assert!(error.contains("gres.conf:1: "), "{text}: {error}");
        }
        let scratch = node("Name=gpu File=/dev/nvidia0,/dev/gone\n");
        let (tree, inventory) = read(&scratch);
        let found = inventory.unwrap().devices(&tree).unwrap();
        assert!(
            found.warnings.first().unwrap().contains("/dev/gone"),
            "{found:?}"
        );
    }
}
