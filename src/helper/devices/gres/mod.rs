//! Slurm's generic resources by the files that `gres.conf` gives them.

mod conf;
mod hostlist;

use super::slurm::{At, ConfError, Files, Text, joined};
use super::tree::if_missing;
use super::{Device, DeviceError, ResolvedDevices, Settings, Tree, driver, topology};
use crate::protocol::{Access, MAX_PROBES, Probe};
use conf::FILES_MAX;
pub use conf::{GresConf, Record, Resources};
pub use hostlist::{HostList, HostListError};
use std::path::{Path, PathBuf};

/// The file, beside `slurm.conf`.
const NAME: &str = "gres.conf";
/// The resources of which Slurm finds the devices, and their order, itself where `AutoDetect` says
/// so: GPUs, and what shares them.
const DETECTED: [&str; 3] = ["gpu", "mps", "shard"];

/// What slurmd says that the node has, in the order that it counts by: the prolog writes it in the form
/// of `gres.conf`, with [`stamp`] before it.
const TOLD: &str = "/run/job-adopt/gres.conf";
const TOLD_MAX: u64 = 1024 * 1024;
/// Drivers by which the GPUs that Slurm finds may come to be others.
const GPU_DRIVERS: [&str; 4] = ["nvidia", "amdgpu", "i915", "xe"];

/// The devices of one generic resource, for reading and writing: of `name`, which is `NAME` or
/// `NAME:TYPE`, that with the index `index` on this node. Slurm counts by the lines of the file, so
/// the n-th file of a name is not in general the n-th GPU of the node. With `AutoDetect`, and with
/// several types, which it takes in the order of `Gres=` in `slurm.conf`, only slurmd tells.
/// Fails: there is no such resource, it has no device, or slurmd was not asked.
pub fn resolve(
    tree: &Tree,
    settings: &Settings,
    name: &str,
    index: u32,
) -> Result<ResolvedDevices, DeviceError> {
    let files = Files::find(tree, settings)?;
    let (path, texts) = (files.path(NAME), files.lines(NAME)?);
    let mut path = path.display().to_string();
    let node = node_name(settings)?;
    let (name, kind) = name.split_once(':').map_or((name, None), |(name, kind)| (name, Some(kind)));
    let conf = GresConf::of(&texts, &node).map_err(line_error)?;
    let mut resources = conf.resources(name).map_err(line_error)?;
    let finds = conf.auto_detect() && DETECTED.iter().any(|own| own.eq_ignore_ascii_case(name));
    if finds || resources.several_types() {
        let why = if finds { "AutoDetect" } else { "more than one Type=" };
        let conf = told(tree, &node).map_err(|fault| {
            let advice = "the prolog asks slurmd with DEVICES=lists";
            DeviceError::at(
                &path,
                format_args!("{why} leaves the order to Slurm; {advice}: {fault}"),
            )
        })?;
        resources = conf.resources(name).map_err(line_error)?;
        path = TOLD.to_owned();
    }
    let (record, files) =
        resources.resource(u64::from(index)).ok_or_else(|| match resources.count() {
            0 => DeviceError::at(&path, format_args!("no record with Name={name} for node {node}")),
            count => {
                DeviceError::at(&path, format_args!("Name={name} has {count} here, counted from 0"))
            }
        })?;
    let failed = |why: &str| Err(DeviceError::at(&record.at, why));
    if kind.is_some_and(|kind| !record.kind.eq_ignore_ascii_case(kind)) {
        return match record.kind.as_str() {
            "" => failed("the record has no Type="),
            own => failed(&format!("it is of type {own}")),
        };
    }
    if files.is_empty() {
        return failed("the record has no File=, so no device is known");
    }
    let devices = files.iter().map(|file| device(tree, file));
    Ok(devices.collect::<Result<Vec<_>, _>>()?.into())
}

/// What slurmd has told of the node, if that is so still.
fn told(tree: &Tree, node: &str) -> Result<GresConf, DeviceError> {
    let bytes = tree.trust().read(&tree.locate(TOLD), TOLD_MAX).map_err(|error| {
        match error.is_missing() {
            true => DeviceError::at(TOLD, "it was not asked yet"),
            false => error.into(),
        }
    })?;
    let text = String::from_utf8_lossy(&bytes);
    if text.lines().next() != Some(&stamp(tree)?) {
        return Err(DeviceError::at(TOLD, "of another boot or driver"));
    }
    let at = |line| At { file: Path::new(TOLD).into(), line };
    let texts = joined(&text).into_iter().map(|(line, text)| Text { at: at(line), text });
    GresConf::of(&texts.collect::<Vec<_>>(), node).map_err(line_error)
}

/// A comment that names this boot and the versions of the drivers of GPUs.
fn stamp(tree: &Tree) -> Result<String, DeviceError> {
    let mut stamp = format!("# {}", tree.read_text("/proc/sys/kernel/random/boot_id")?.trim_end());
    for driver in GPU_DRIVERS {
        let text = |name| tree.read_text(&format!("/sys/module/{driver}/{name}"));
        // One of the kernel's own has no version.
        let version = text("version").or_else(|_| text("initstate"));
        stamp = format!("{stamp} {}", version.or_else(if_missing(|| "-".into()))?.trim_end());
    }
    Ok(stamp)
}

fn node_name(settings: &Settings) -> Result<String, DeviceError> {
    match &settings.node_name {
        Some(node) => Ok(node.clone()),
        None => {
            let failed =
                |errno: nix::errno::Errno| DeviceError::at("get the host's name", errno.desc());
            let host = nix::unistd::gethostname().map_err(failed)?;
            Ok(host.to_string_lossy().into_owned())
        }
    }
}

fn device(tree: &Tree, file: &str) -> Result<Device, DeviceError> {
    let node = tree.read_node(file).map_err(|error| DeviceError::at(file, error))?;
    driver::check_node(tree, file, node)?;
    Device::from_node(file, node, Access::RW)
}

fn line_error((at, fault): (At, String)) -> DeviceError {
    DeviceError::at(at, fault)
}

/// The device files of all generic resources of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Where `gres.conf` lies.
    pub path: PathBuf,
    /// Each file once.
    pub files: Vec<String>,
    /// Of each GPU the first file.
    gpus: Vec<String>,
    /// Whether Slurm looks for the GPUs of the node itself.
    pub auto_detect: bool,
}

impl Inventory {
    /// Reads the file that lies beside `slurm.conf`. Without it there are none.
    /// Fails: it cannot be read, or told what it means.
    pub fn read(files: &Files, settings: &Settings) -> Result<Self, DeviceError> {
        let path = files.path(NAME);
        let mut inventory = Self { path: path.clone(), ..Self::default() };
        let texts = match files.lines(NAME) {
            Err(ConfError::File(error)) if error.is_missing() && error.path() == path => {
                return Ok(inventory);
            }
            texts => texts?,
        };
        let conf = GresConf::of(&texts, &node_name(settings)?).map_err(line_error)?;
        inventory.auto_detect = conf.auto_detect();
        for record in conf.records() {
            let record = record.map_err(line_error)?;
            if record.name.eq_ignore_ascii_case("gpu") {
                inventory.gpus.extend_from_slice(record.first_files());
            }
            for file in record.files() {
                if !inventory.files.contains(file) {
                    inventory.files.push(file.clone());
                }
            }
            if inventory.files.len() > FILES_MAX {
                return Err(line_error((record.at, format!("File=: {HostListError}"))));
            }
        }
        Ok(inventory)
    }

    /// Whether there is anything that Slurm could keep from a job: files, or GPUs that it finds.
    /// Fails: the GPUs of the node cannot be told.
    pub fn has_devices(&self, tree: &Tree) -> Result<bool, DeviceError> {
        Ok(!self.files.is_empty() || self.auto_detect && !topology::list_gpus(tree)?.is_empty())
    }

    /// All devices, with what those among them that are GPUs cannot be used without. One that is not
    /// there is left out and named.
    /// Fails: the GPUs of the node cannot be told.
    pub fn devices(&self, tree: &Tree) -> Result<ResolvedDevices, DeviceError> {
        let mut found = ResolvedDevices::default();
        let mut named = Vec::new();
        for file in &self.files {
            match device(tree, file) {
                Ok(device) => named.push(device),
                Err(error) => found.warnings.push(format!("{}: {error}", self.path.display())),
            }
        }
        let companions = topology::find_companions(tree, &named)?;
        found.extend(named.into());
        found.extend(companions);
        if self.auto_detect {
            for gpu in topology::list_gpus(tree)? {
                found.extend(gpu.devices);
            }
        }
        Ok(found)
    }

    /// One node of each GPU, each once, as many as a plan may have. Whose driver its numbers are
    /// does not matter: what Slurm keeps from others are these numbers.
    /// Fails: the GPUs of the node cannot be told.
    pub fn probes(&self, tree: &Tree) -> Result<Vec<Probe>, DeviceError> {
        let named = self.gpus.iter().filter_map(|file| {
            tree.read_node(file)
                .ok()
                .and_then(|node| Device::from_node(file, node, Access::RW).ok())
        });
        let mut nodes: Vec<Device> = named.collect();
        if self.auto_detect {
            nodes.extend(topology::list_gpus(tree)?.into_iter().map(|gpu| gpu.own_node));
        }
        let mut probes: Vec<Probe> = Vec::new();
        for node in nodes {
            let probe = format!("{} {}", node.rule, node.node).parse::<Probe>();
            let known = |probe: &Probe| probes.iter().any(|own| own.device == probe.device);
            probes.extend(probe.ok().filter(|probe| !known(probe)));
        }
        probes.truncate(MAX_PROBES);
        Ok(probes)
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod inventory_tests {
    use super::*;
    use crate::helper::devices::topology::tests::layout::Layout;
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
        let settings = Settings { node_name: Some("n1".into()), ..Settings::default() };
        let files = Files::find(&tree, &settings).unwrap();
        (tree, Inventory::read(&files, &settings))
    }

    fn shown(text: &str) -> (bool, Vec<String>, Vec<String>) {
        let scratch = node(text);
        let (tree, inventory) = read(&scratch);
        let inventory = inventory.unwrap();
        let devices = inventory.devices(&tree).unwrap().devices;
        let devices = devices.iter().map(|device| device.node.clone()).collect();
        let probes = inventory.probes(&tree).unwrap();
        let probes = probes.iter().map(|probe| probe.path.to_string()).collect();
        (inventory.has_devices(&tree).unwrap(), devices, probes)
    }

    #[test]
    fn all_files_of_the_node_count_and_gpus_are_tried() {
        let (has, devices, probes) = shown(
            "NodeName=n[1-2] Name=gpu Type=b File=/dev/nvidia[2,0]\nName=shard Count=8 \
             File=/dev/nvidia0\nName=nic File=/dev/nic0\nNodeName=n3 Name=gpu File=/dev/nvidia3\n\
             Name=gpu Type=a MultipleFiles=/dev/nvidia1,/dev/nvidia3\nName=bw Count=4G\n",
        );
        assert!(has);
        let own = ["/dev/nvidia0", "/dev/nic0", "/dev/nvidia1", "/dev/nvidia3", "/dev/nvidia2"];
        assert_eq!(devices[..5], own);
        assert!(devices.contains(&"/dev/nvidiactl".to_owned()), "{devices:?}");
        assert_eq!(probes, ["/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia0"]);
    }

    #[test]
    fn a_gpu_is_tried_whether_its_driver_is_known_or_not() {
        let scratch = node("Name=gpu File=/dev/nvidia[0-1],/dev/gone\n");
        scratch.file("proc/devices", "Character devices:\n10 misc\n");
        let (tree, inventory) = read(&scratch);
        let inventory = inventory.unwrap();
        assert_eq!(inventory.probes(&tree).unwrap().len(), 2);
        assert_eq!(inventory.devices(&tree).unwrap().warnings.len(), 3);
    }

    #[test]
    fn gpus_that_slurm_finds_itself_count_and_are_tried() {
        let layout = Layout::new();
        layout.scratch.file("etc/slurm/slurm.conf", "");
        layout.scratch.file("etc/slurm/gres.conf", "AutoDetect=nvml\n");
        layout.nvidia("0000:01:00.0", 1);
        layout.nvidia("0000:02:00.0", 0);
        let (tree, inventory) = read(&layout.scratch);
        let inventory = inventory.unwrap();
        assert_eq!((inventory.has_devices(&tree), inventory.files.len()), (Ok(true), 0));
        let probes = inventory.probes(&tree).unwrap();
        let probes: Vec<_> = probes.iter().map(|probe| probe.path.as_str()).collect();
        assert_eq!(probes, ["/dev/nvidia1", "/dev/nvidia0"]);
        let found = inventory.devices(&tree).unwrap();
        assert!(found.devices.iter().any(|device| device.node == "/dev/nvidiactl"), "{found:?}");
        layout.scratch.file("etc/slurm/gres.conf", "AutoDetect=nvml\nNodeName=n1 AutoDetect=off\n");
        let (tree, inventory) = read(&layout.scratch);
        assert_eq!(inventory.unwrap().has_devices(&tree), Ok(false));
    }

    #[test]
    fn what_is_counted_only_or_not_detected_is_no_device() {
        for text in ["", "Name=gpu Count=4\n", "AutoDetect=nvml\n", "NodeName=n9 File=/dev/nic0"] {
            assert_eq!(shown(text), (false, vec![], vec![]), "{text}");
        }
        let scratch = node("");
        std::fs::remove_file(scratch.path().join("etc/slurm/gres.conf")).unwrap();
        let (tree, inventory) = read(&scratch);
        assert_eq!(inventory.unwrap().has_devices(&tree), Ok(false));
    }

    #[test]
    fn a_file_that_cannot_be_told_is_no_inventory() {
        for text in
            ["Name=gpu Fil=/dev/nvidia0", "Name=gpu File=/etc/x", "Name=gpu File=/dev/a[", "x"]
        {
            let scratch = node(text);
            let (_, inventory) = read(&scratch);
            let error = inventory.unwrap_err().to_string();
            assert!(error.contains("gres.conf:1: "), "{text}: {error}");
        }
        let scratch = node("Name=gpu File=/dev/nvidia0,/dev/gone\n");
        let (tree, inventory) = read(&scratch);
        let found = inventory.unwrap().devices(&tree).unwrap();
        assert!(found.warnings.first().unwrap().contains("/dev/gone"), "{found:?}");
    }
}
