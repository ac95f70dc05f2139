//! A list of devices as a directory: each is named by a file, whose content is never read.
//!
//! ```text
//! GPU-UUID               a GPU of NVIDIA's
//! MIG-UUID               a MIG instance
//! MIG-GPU-UUID/GI/CI     the same as older drivers name it
//! cdi/VENDOR/CLASS/NAME  a CDI device; also cdi/VENDOR/CLASS=NAME
//! imex/CHANNEL           an IMEX channel
//! all                    all GPUs of NVIDIA's
//! none, void             no device, beside nothing else
//! ```
//!
//! This is the list that NVIDIA's container tools take from files mounted below
//! `/var/run/nvidia-container-devices`. What they trust for being a mount, is trusted here for
//! being root's, directory by directory. They prefer such a list to the variable
//! `NVIDIA_VISIBLE_DEVICES`; here nothing ever reads the variable, since any process can set it.
//! They skip an entry that they do not know; here it refuses the whole list. The number of a GPU is
//! no entry: theirs is the order of one library, which is not the order of the minors.

use crate::helper::devices::tree;
use std::path::{Path, PathBuf};

use super::cdi::QualifiedName;
use super::{DeviceError, GpuName, Named, Tree};
use crate::helper::devices::tree::Entry;
use crate::helper::printable;
use crate::kernel::trust::{TrustError, TrustedDir};
use crate::protocol::decimal;

/// Most files, and most names of one directory.
const ENTRIES_MAX: usize = 1024;

/// The devices that a directory lists; none where it is empty.
/// Fails: it is not there or not believed, or has an entry of another form or type, a link, an
/// empty directory in it, or more than 1,024 entries.
pub fn read(tree: &Tree, path: &Path) -> Result<Vec<Named>, DeviceError> {
    let Some(absolute) = path.to_str().filter(|path| path.starts_with('/')) else {
        return Err(fault(path, "not an absolute path"));
    };
    let dir = tree.trust().dir(&tree.at(absolute)).map_err(distrusted)?;
    let mut list = List::default();
    for name in tree::all_names(&dir, ENTRIES_MAX).map_err(distrusted)? {
        list.top(&dir, &name)?;
    }
    match list.none {
        Some(entry) if list.files > 1 => Err(fault(&entry, "stands beside other entries")),
        _ => Ok(list.devices),
    }
}

#[derive(Debug, Default)]
struct List {
    devices: Vec<Named>,
    files: usize,
    /// The entry that says that there is no device.
    none: Option<PathBuf>,
}

impl List {
    /// An entry of the directory itself.
    fn top(&mut self, dir: &TrustedDir, name: &str) -> Result<(), DeviceError> {
        match tree::entry(dir, Path::new(name)).map_err(distrusted)? {
            Entry::Dir(below) => match name {
                "cdi" => each(&below, |name| self.vendor(&below, name)),
                "imex" => each(&below, |name| self.file(&below, name, channel(name))),
                gpu if gpu.starts_with("MIG-GPU-") => {
                    each(&below, |gi| self.instances(&below, gpu, gi))
                }
                _ => Err(unknown(below.path())),
            },
            Entry::File | Entry::CharDevice if matches!(name, "none" | "void") => {
                self.none = Some(dir.path().join(name));
                self.count(dir)
            }
            _ => self.file(dir, name, gpu(name)),
        }
    }

    /// `MIG-GPU-UUID/GI`, which holds compute instances.
    fn instances(&mut self, dir: &TrustedDir, gpu: &str, gi: &str) -> Result<(), DeviceError> {
        let below = directory(dir, gi)?;
        each(&below, |ci| self.file(&below, ci, instance(&format!("{gpu}/{gi}/{ci}"))))
    }

    /// `cdi/VENDOR`, which holds classes, or classes and names in one.
    fn vendor(&mut self, dir: &TrustedDir, vendor: &str) -> Result<(), DeviceError> {
        let below = directory(dir, vendor)?;
        each(&below, |class| match tree::entry(&below, Path::new(class)).map_err(distrusted)? {
            Entry::Dir(names) => {
                each(&names, |name| self.file(&names, name, cdi(vendor, class, name)))
            }
            _ => {
                let device = class.split_once('=').and_then(|(of, name)| cdi(vendor, of, name));
                self.file(&below, class, device)
            }
        })
    }

    /// A file, and the device that it names if its name is of a form that fits its place.
    fn file(
        &mut self,
        dir: &TrustedDir,
        name: &str,
        device: Option<Named>,
    ) -> Result<(), DeviceError> {
        let path = dir.path().join(name);
        let device = device.ok_or_else(|| unknown(&path))?;
        match tree::entry(dir, Path::new(name)).map_err(distrusted)? {
            Entry::File | Entry::CharDevice => self.devices.push(device),
            Entry::Dir(_) | Entry::Other => {
                return Err(fault(&path, "neither a file nor a character device"));
            }
        }
        self.count(dir)
    }

    fn count(&mut self, dir: &TrustedDir) -> Result<(), DeviceError> {
        self.files += 1;
        match self.files > ENTRIES_MAX {
            true => Err(fault(dir.path(), "more than 1024 entries")),
            false => Ok(()),
        }
    }
}

/// Every name of a directory in the list, of which there has to be one.
fn each(
    dir: &TrustedDir,
    mut read: impl FnMut(&str) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let names = tree::all_names(dir, ENTRIES_MAX).map_err(distrusted)?;
    if names.is_empty() {
        return Err(fault(dir.path(), "empty, so that it names no device"));
    }
    names.iter().try_for_each(|name| read(name))
}

fn directory(dir: &TrustedDir, name: &str) -> Result<TrustedDir, DeviceError> {
    match tree::entry(dir, Path::new(name)).map_err(distrusted)? {
        Entry::Dir(below) => Ok(below),
        _ => Err(unknown(&dir.path().join(name))),
    }
}

fn gpu(name: &str) -> Option<Named> {
    match name.parse() {
        _ if name == "all" => Some(Named::AllGpus),
        Ok(name @ (GpuName::Uuid(_) | GpuName::Mig(_))) => Some(Named::Gpu(name.to_string())),
        _ => None,
    }
}

fn instance(name: &str) -> Option<Named> {
    match name.parse() {
        Ok(name @ GpuName::Instance { .. }) => Some(Named::Gpu(name.to_string())),
        _ => None,
    }
}

/// A channel in decimal digits, without leading zeros as the driver writes it.
fn channel(name: &str) -> Option<Named> {
    decimal(name).map(Named::Imex)
}

fn cdi(vendor: &str, class: &str, name: &str) -> Option<Named> {
    let kind = format!("{vendor}/{class}");
    let device: QualifiedName = format!("{kind}={name}").parse().ok()?;
    let same = device.kind() == kind && device.name() == name;
    same.then(|| Named::Cdi(device.to_string()))
}

fn fault(path: &Path, what: &str) -> DeviceError {
    DeviceError::at(printable(&path.to_string_lossy()), what)
}

fn unknown(path: &Path) -> DeviceError {
    fault(path, "names no device as a device directory does")
}

fn distrusted(error: TrustError) -> DeviceError {
    DeviceError::new(printable(&error.to_string()))
}

#[cfg(test)]
mod tests;
