//! A device list as a directory: the name of each file names a device. No file is ever read.
//!
//! ```text
//! GPU-UUID               an NVIDIA GPU
//! MIG-UUID               a MIG instance
//! MIG-GPU-UUID/GI/CI     a MIG instance as older drivers name it
//! cdi/VENDOR/CLASS/NAME  a CDI device; also cdi/VENDOR/CLASS=NAME
//! imex/CHANNEL           an IMEX channel
//! all                    all NVIDIA GPUs
//! none, void             no device; must be the only entry
//! ```
//!
//! NVIDIA's container tools take this list from files mounted below
//! `/var/run/nvidia-container-devices`. They trust the files because these are mounts; this code
//! trusts them because root owns each directory. An entry is a regular file, or `/dev/null` mounted over
//! one, as the device plugin mounts it; another device is none. They prefer such a list to the variable
//! `NVIDIA_VISIBLE_DEVICES`; this code never reads the variable, since any process can set it. They
//! skip an unknown entry; here it refuses the whole list. The number of a GPU is no entry: it would
//! follow the order of one library, which is not the order of the minors.

use std::path::{Path, PathBuf};

use crate::cdi::QualifiedName;
use crate::gpu_name::GpuName;
use helper::devices::DeviceName;
use helper::node::{DeviceError, Tree};
use helper::printable;
use helper::trusted_dir::{self, TrustedEntry};
use kernel::trust::{TrustError, TrustedDir};
use protocol::parse_decimal;

/// Maximum files, and maximum names of one directory.
const ENTRIES_MAX: usize = 1024;

/// Reads the devices that a directory lists; none if it is empty.
///
/// # Errors
///
/// The directory is missing or not trusted, or contains an entry of another form or type, a link, an
/// empty directory, `none` or `void` beside other entries, or more than 1,024 entries.
pub fn read(tree: &Tree, path: &Path) -> Result<Vec<DeviceName>, DeviceError> {
    let Some(absolute) = path.to_str().filter(|path| path.starts_with('/')) else {
        return Err(fault(path, "not an absolute path"));
    };
    let dir = tree
        .trust()
        .dir(&tree.locate(absolute))
        .map_err(distrusted)?;
    let mut list = DirectoryList::default();
    for name in trusted_dir::list_all_names(&dir, ENTRIES_MAX).map_err(distrusted)? {
        list.add_top_entry(&dir, &name)?;
    }
    match list.none_entry {
        Some(entry) if list.file_count > 1 => Err(fault(&entry, "stands beside other entries")),
        _ => Ok(list.devices),
    }
}

#[derive(Debug, Default)]
struct DirectoryList {
    devices: Vec<DeviceName>,
    file_count: usize,
    /// The entry `none` or `void`.
    none_entry: Option<PathBuf>,
}

impl DirectoryList {
    /// Adds an entry of the list's own directory.
    fn add_top_entry(&mut self, dir: &TrustedDir, name: &str) -> Result<(), DeviceError> {
        match trusted_dir::read_entry(dir, Path::new(name)).map_err(distrusted)? {
            TrustedEntry::Dir(subdir) => match name {
                "cdi" => for_each_name(&subdir, |vendor| self.add_vendor(&subdir, vendor)),
                "imex" => for_each_name(&subdir, |channel| {
                    self.add_file(&subdir, channel, parse_channel(channel))
                }),
                gpu if gpu.starts_with("MIG-GPU-") => {
                    for_each_name(&subdir, |gi| self.add_instances(&subdir, gpu, gi))
                }
                _ => Err(unknown(subdir.path())),
            },
            TrustedEntry::File | TrustedEntry::NullDevice if matches!(name, "none" | "void") => {
                self.none_entry = Some(dir.path().join(name));
                self.count_file(dir)
            }
            _ => self.add_file(dir, name, parse_gpu(name)),
        }
    }

    /// Adds the compute instances in `MIG-GPU-UUID/GI`.
    fn add_instances(&mut self, dir: &TrustedDir, gpu: &str, gi: &str) -> Result<(), DeviceError> {
        let subdir = open_directory(dir, gi)?;
        for_each_name(&subdir, |ci| {
            self.add_file(&subdir, ci, parse_instance(&format!("{gpu}/{gi}/{ci}")))
        })
    }

    /// Adds the devices in `cdi/VENDOR`, which contains `CLASS/NAME` and `CLASS=NAME`.
    fn add_vendor(&mut self, dir: &TrustedDir, vendor: &str) -> Result<(), DeviceError> {
        let subdir = open_directory(dir, vendor)?;
        for_each_name(&subdir, |entry| {
            match trusted_dir::read_entry(&subdir, Path::new(entry)).map_err(distrusted)? {
                TrustedEntry::Dir(names) => for_each_name(&names, |name| {
                    self.add_file(&names, name, parse_cdi(vendor, entry, name))
                }),
                _ => {
                    let parts = entry.split_once('=');
                    let device = parts.and_then(|(class, name)| parse_cdi(vendor, class, name));
                    self.add_file(&subdir, entry, device)
                }
            }
        })
    }

    /// Adds the `device` that a file names, or refuses the list if its name fits no form.
    fn add_file(
        &mut self,
        dir: &TrustedDir,
        name: &str,
        device: Option<DeviceName>,
    ) -> Result<(), DeviceError> {
        let path = dir.path().join(name);
        let device = device.ok_or_else(|| unknown(&path))?;
        match trusted_dir::read_entry(dir, Path::new(name)).map_err(distrusted)? {
            TrustedEntry::File | TrustedEntry::NullDevice => self.devices.push(device),
            TrustedEntry::Dir(_) | TrustedEntry::Other => {
                return Err(fault(&path, "neither a file nor /dev/null"));
            }
        }
        self.count_file(dir)
    }

    /// Counts a file of the list, which may have [`ENTRIES_MAX`] of them.
    fn count_file(&mut self, dir: &TrustedDir) -> Result<(), DeviceError> {
        self.file_count += 1;
        if self.file_count > ENTRIES_MAX {
            return Err(fault(dir.path(), "more than 1024 entries"));
        }
        Ok(())
    }
}

/// Calls `add` for every name of a subdirectory of the list, which must not be empty.
fn for_each_name(
    dir: &TrustedDir,
    mut add: impl FnMut(&str) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let names = trusted_dir::list_all_names(dir, ENTRIES_MAX).map_err(distrusted)?;
    if names.is_empty() {
        return Err(fault(dir.path(), "empty, so that it names no device"));
    }
    for name in &names {
        add(name)?;
    }
    Ok(())
}

/// Opens a subdirectory of the list; any other entry refuses the list.
fn open_directory(dir: &TrustedDir, name: &str) -> Result<TrustedDir, DeviceError> {
    match trusted_dir::read_entry(dir, Path::new(name)).map_err(distrusted)? {
        TrustedEntry::Dir(subdir) => Ok(subdir),
        _ => Err(unknown(&dir.path().join(name))),
    }
}

/// Parses the name of a file of the list's own directory: `all`, or the UUID of a GPU or a MIG instance. `None` for
/// any other name, also for a number.
fn parse_gpu(name: &str) -> Option<DeviceName> {
    if name == "all" {
        return Some(DeviceName::AllGpus);
    }
    match name.parse() {
        Ok(gpu @ (GpuName::Uuid(_) | GpuName::Mig(_))) => Some(DeviceName::Gpu(gpu.to_string())),
        _ => None,
    }
}

/// Parses `MIG-GPU-UUID/GI/CI`; `None` for any other name.
fn parse_instance(name: &str) -> Option<DeviceName> {
    match name.parse() {
        Ok(gpu @ GpuName::Instance { .. }) => Some(DeviceName::Gpu(gpu.to_string())),
        _ => None,
    }
}

/// Parses the number of a channel without leading zeros, as the driver writes it; `None` for any other name.
fn parse_channel(name: &str) -> Option<DeviceName> {
    parse_decimal(name).map(DeviceName::Imex)
}

/// Makes a CDI device of its three parts; `None` if they form no qualified name, or one of other parts.
fn parse_cdi(vendor: &str, class: &str, name: &str) -> Option<DeviceName> {
    let kind = format!("{vendor}/{class}");
    let device: QualifiedName = format!("{kind}={name}").parse().ok()?;
    let has_same_parts = device.kind() == kind && device.name() == name;
    has_same_parts.then(|| DeviceName::Cdi(device.to_string()))
}

/// Describes the fault of an entry.
fn fault(path: &Path, what: &str) -> DeviceError {
    DeviceError::at(printable(&path.to_string_lossy()), what)
}

/// The fault of an entry whose name fits no form.
fn unknown(path: &Path) -> DeviceError {
    fault(path, "names no device as a device directory does")
}

/// Converts the error of an entry that is not trusted or cannot be read.
fn distrusted(error: TrustError) -> DeviceError {
    DeviceError::new(printable(&error.to_string()))
}

#[cfg(test)]
mod tests;
