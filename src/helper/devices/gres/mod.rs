//! Slurm's generic resources, by the device files that `gres.conf` lists for them.

mod conf;
mod dialect;
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
use dialect::Detection;
pub use dialect::{Dialect, ListSyntax};
pub use fault::{FaultyLine, FaultyRecord, RecordFault};
pub use hostlist::{HostList, HostListError};
use protocol::{Access, NodeName, PROBES_MAX, Probe};
pub use record::{GresRecord, Resources};
use std::path::{Path, PathBuf};

/// Name of the file beside `slurm.conf`.
const GRES_CONF: &str = "gres.conf";
/// Resources whose devices and order Slurm detects itself if `AutoDetect` is on: GPUs, and resources
/// that share them.
const DETECTED_RESOURCES: [&str; 3] = ["gpu", "mps", "shard"];

/// Beginning of the path of a file with the resources of a node as its slurmd reports and counts them
/// ([`slurmd_gres_path`]). The prolog writes it in the form of `gres.conf`, after the line of [`boot_stamp`].
const SLURMD_GRES: &str = "/run/job-adopt/gres";
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
    // Which release of slurmd reads the file is not known here.
    let conf = GresConf::from_lines(&lines, &node, Dialect::default());
    let resources = match read_resources(&conf, resource)? {
        Ordered::ByFile(resources) => resources,
        Ordered::BySlurmd(unordered) => {
            let reported = read_slurmd_gres(tree, node_name, &node);
            let (slurmd_path, slurmd_conf) = reported.map_err(|fault| match unordered {
                Unordered::ByRelease(error) => error,
                Unordered::Always(why) => {
                    let advice = "the prolog asks slurmd with DEVICES=lists";
                    let why = format!("{why} leaves the order to Slurm; {advice}: {fault}");
                    DeviceError::at(&path, why)
                }
            })?;
            path = slurmd_path;
            slurmd_conf.resources(resource)?
        }
    };
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

/// The resources of one name, or why only slurmd knows their order.
enum Ordered {
    /// The records give the order.
    ByFile(Resources),
    BySlurmd(Unordered),
}

/// Why the order of resources is not that of their records.
enum Unordered {
    /// By this setting every slurmd has an order of its own.
    Always(&'static str),
    /// Only some releases read the file, and which one reads it is not known.
    ByRelease(DeviceError),
}

/// Reads the resources of a name as each release of slurmd reads them.
///
/// # Errors
///
/// A record that no release takes.
fn read_resources(conf: &GresConf, resource: &str) -> Result<Ordered, DeviceError> {
    if let Some(faulty) = conf.faulty_lines().first() {
        if !faulty.fault.depends_on_release() {
            return Err(faulty.clone().into());
        }
        let error = faulty.clone().into();
        return Ok(Ordered::BySlurmd(Unordered::ByRelease(error)));
    }
    let resources = match conf.resources(resource) {
        Err(faulty) if faulty.fault.depends_on_release() => {
            return Ok(Ordered::BySlurmd(Unordered::ByRelease(faulty.into())));
        }
        resources => resources?,
    };
    resources.check_as_slurmd()?;
    let is_detected = DETECTED_RESOURCES
        .iter()
        .any(|detected| detected.eq_ignore_ascii_case(resource));
    if is_detected && conf.has_auto_detect() {
        return Ok(Ordered::BySlurmd(Unordered::Always("AutoDetect")));
    }
    if resources.has_several_types() {
        return Ok(Ordered::BySlurmd(Unordered::Always("more than one Type=")));
    }
    Ok(Ordered::ByFile(resources))
}

/// Reads the resources that the node's slurmd reported. Returns the path of the file as well: each of several slurmd on a
/// host has its own. A host may have its name in Slurm in full or up to the first dot; a configured name is exact.
///
/// # Errors
///
/// The file is missing, not trusted or malformed, or of another boot or driver; the name is none of a node in Slurm.
fn read_slurmd_gres(
    tree: &Tree,
    configured: Option<&str>,
    node: &str,
) -> Result<(String, GresConf), DeviceError> {
    let mut path = slurmd_gres_path(node)?;
    let mut bytes = read_if_exists(tree, &path)?;
    if let (None, None, Some((short, _))) = (configured, &bytes, node.split_once('.')) {
        path = slurmd_gres_path(short)?;
        bytes = read_if_exists(tree, &path)?;
    }
    let Some(bytes) = bytes else {
        return Err(DeviceError::at(path, "it was not asked yet"));
    };
    let text = String::from_utf8_lossy(&bytes);
    if text.lines().next() != Some(&boot_stamp(tree)?) {
        return Err(DeviceError::at(path, "of another boot or driver"));
    }
    let lines = ConfLine::parse_all(&text, Path::new(&path));
    let conf = GresConf::from_lines(&lines, node, Dialect::default());
    conf.require_readable()?;
    Ok((path, conf))
}

/// Makes the path of the answer of this node's slurmd.
///
/// # Errors
///
/// The name is none of a node in Slurm, and might lead to another file.
fn slurmd_gres_path(node: &str) -> Result<String, DeviceError> {
    match node.parse::<NodeName>() {
        Ok(name) => Ok(format!("{SLURMD_GRES}-{name}.conf")),
        Err(error) => Err(DeviceError::at(format_args!("node {node:?}"), error)),
    }
}

/// Reads an answer of slurmd; `None` if there is none.
fn read_if_exists(tree: &Tree, path: &str) -> Result<Option<Vec<u8>>, DeviceError> {
    match tree.trust().read(&tree.locate(path), SLURMD_GRES_BYTES_MAX) {
        Err(error) if error.is_missing() => Ok(None),
        result => Ok(Some(result?)),
    }
}

/// Makes the first line of slurmd's answer, which the prolog writes in the same way: a comment that names this boot and
/// the versions of the GPU drivers, `-` for one that is not loaded.
fn boot_stamp(tree: &Tree) -> Result<String, DeviceError> {
    let boot_id = tree.read_boot_id()?;
    let mut stamp = format!("# {boot_id}");
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
    use schedulers::stepd::Release;

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
        read_as(scratch, None)
    }

    fn read_as(
        scratch: &Scratch,
        release: Option<Release>,
    ) -> (Tree, Result<Inventory, DeviceError>) {
        let dialect = Dialect(release);
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let files = SlurmConfFiles::find(&tree, None).unwrap();
        (tree, Inventory::read(&files, Some("n1"), dialect))
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

    /// Slurm's detection lists the card as any other (`AutoDetect=oneapi`), also if all its virtual functions are given to
    /// virtual machines and have no node.
    #[test]
    fn card_with_virtual_functions_requires_the_filter_and_is_probed() {
        let layout = Layout::new();
        layout.scratch.file("etc/slurm/slurm.conf", "");
        let gres = "AutoDetect=oneapi\n";
        layout.scratch.file("etc/slurm/gres.conf", gres);
        layout.gpu("0000:03:00.0", "xe", &["card0", "renderD128"]);
        let count = "sys/devices/pci/0000:03:00.0/sriov_numvfs";
        layout.scratch.file(count, "2\n");
        layout.function("0000:03:00.1", "vfio-pci");
        let probe = || {
            let (tree, inventory) = read(&layout.scratch);
            let inventory = inventory.unwrap();
            assert_eq!(inventory.has_devices(&tree), Ok(true));
            let probes = inventory.list_probes(&tree).unwrap();
            probes
                .iter()
                .map(|probe| probe.path.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(probe(), ["/dev/dri/renderD128"]);
        layout.gpu("0000:03:00.2", "xe", &["card1", "renderD129"]);
        assert_eq!(probe(), ["/dev/dri/renderD128", "/dev/dri/renderD129"]);
        let (tree, inventory) = read(&layout.scratch);
        let devices = inventory.unwrap().devices(&tree).unwrap().devices;
        assert!(
            devices
                .iter()
                .all(|device| device.node != "/dev/dri/renderD128"),
            "the card sees what its functions work on: {devices:?}"
        );
    }

    /// A word of a later release, or a line that cannot be read, may turn detection on.
    #[test]
    fn gpus_that_may_be_detected_are_probed_and_not_listed() {
        let layout = Layout::new();
        layout.scratch.file("etc/slurm/slurm.conf", "");
        layout.nvidia("0000:01:00.0", 0);
        for (text, release) in [
            ("AutoDetect=later\n", Some(Release::V26_11.next())),
            ("x\n", None),
        ] {
            layout.scratch.file("etc/slurm/gres.conf", text);
            let (tree, inventory) = read_as(&layout.scratch, release);
            let inventory = inventory.unwrap();
            assert_eq!(inventory.has_devices(&tree), Ok(true), "{text}");
            assert_eq!(inventory.list_probes(&tree).unwrap().len(), 1, "{text}");
            assert_eq!(inventory.devices(&tree).unwrap().devices, [], "{text}");
        }
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
            (inventory.has_devices(&tree), inventory.has_auto_detect()),
            (Ok(false), false)
        );
        assert_eq!(inventory.gpu_fault, None);
        assert_eq!(inventory.warnings.len(), 1);
    }

    /// Slurm's own filter keeps such devices from a job, and it must be there: so they count, and are on no list.
    #[test]
    fn faulty_gpu_record_is_left_out_and_counts_as_a_device() {
        for text in [
            "Name=gpu Fil=/dev/nvidia0",
            "Name=gpu File=/dev/nvidia0 UUID=GPU-1",
            "Name=gpu UUID=GPU-1",
            "Name=gpu Name=nic New=1 File=/dev/nvidia0",
            "NodeName=n1 New=1 Name=nic Name=gpu File=/dev/nvidia0",
            "NodeName=n1 NodeName=n2 Name=gpu File=/dev/nvidia0",
            "UUID=GPU-1 Name=gpu File=/dev/nvidia0",
            "AutoDetect=nvml UUID=GPU-1",
            "NodeName=n[1]x,n1 Name=gpu File=/dev/nvidia0",
            "Name=gpu File=/etc/x",
            "Name=gpu File=/dev/a[",
            "x",
        ] {
            let scratch = node(&format!("{text}\nName=nic File=/dev/nic0\n"));
            let (tree, inventory) = read(&scratch);
            let inventory = inventory.unwrap();
            assert_eq!(inventory.files, ["/dev/nic0"], "{text}");
            assert_eq!(inventory.has_devices(&tree), Ok(true), "{text}");
            assert_eq!(inventory.list_probes(&tree).unwrap(), [], "{text}");
            let fault = inventory.gpu_fault.unwrap();
            assert!(fault.contains("gres.conf:1: "), "{text}: {fault}");
            assert_eq!(inventory.warnings, [fault], "{text}");
        }
        let scratch = node("Name=gpu File=/dev/nvidia0,/dev/gone\n");
        let (tree, inventory) = read(&scratch);
        let found = inventory.unwrap().devices(&tree).unwrap();
        assert!(
            found.warnings.first().unwrap().contains("/dev/gone"),
            "{found:?}"
        );
    }

    #[test]
    fn key_of_a_later_release_is_passed_over_if_the_nodes_slurmd_has_it() {
        let scratch = node("Name=gpu File=/dev/nvidia[0-1] UUID=GPU-1,GPU-2\n");
        for (release, files) in [
            (None, 0),
            (Some(Release::V26_05), 0),
            (Some(Release::V26_11), 2),
        ] {
            let (tree, inventory) = read_as(&scratch, release);
            let inventory = inventory.unwrap();
            assert_eq!(inventory.files.len(), files, "{release:?}");
            assert_eq!(inventory.gpu_fault.is_none(), files > 0, "{release:?}");
            assert_eq!(inventory.has_devices(&tree), Ok(true));
        }
        let without_file = node("Name=gpu UUID=GPU-1\n");
        let (tree, inventory) = read_as(&without_file, Some(Release::V26_11));
        let inventory = inventory.unwrap();
        assert_eq!(inventory.has_devices(&tree), Ok(true));
        assert!(inventory.gpu_fault.unwrap().contains("UUID= without File="));
    }

    #[test]
    fn suffix_behind_brackets_is_a_name_from_slurm_23_11_on() {
        let scratch =
            node("NodeName=n[1-2]-gpu,n1 Name=gpu File=/dev/nvidia1\nName=nic File=/dev/nic0\n");
        for (release, files, has_fault) in [
            (Some(Release::V22_05), vec!["/dev/nic0"], false),
            (Some(Release::V23_02), vec!["/dev/nic0"], false),
            (
                Some(Release::V23_11),
                vec!["/dev/nic0", "/dev/nvidia1"],
                false,
            ),
            (None, vec!["/dev/nic0"], true),
        ] {
            let (_, inventory) = read_as(&scratch, release);
            let inventory = inventory.unwrap();
            assert_eq!(inventory.files, files, "{release:?}");
            assert_eq!(inventory.gpu_fault.is_some(), has_fault, "{release:?}");
        }
    }

    /// A release that is not known here may detect the GPUs by a word that no earlier one has.
    #[test]
    fn unknown_word_of_auto_detect_counts_as_devices_for_a_newer_slurmd() {
        let layout = Layout::new();
        layout.scratch.file("etc/slurm/slurm.conf", "");
        layout
            .scratch
            .file("etc/slurm/gres.conf", "AutoDetect=npu\n");
        layout.nvidia("0000:01:00.0", 1);
        for (release, has_devices) in [
            (None, false),
            (Some(Release::V26_11), false),
            (Some(Release::V26_11.next()), true),
        ] {
            let (tree, inventory) = read_as(&layout.scratch, release);
            let inventory = inventory.unwrap();
            assert_eq!(inventory.has_devices(&tree), Ok(has_devices), "{release:?}");
            assert_eq!(inventory.gpu_fault.is_some(), has_devices, "{release:?}");
            assert_eq!(inventory.devices(&tree).unwrap().devices, []);
        }
    }
}
