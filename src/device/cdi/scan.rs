//! The directories of specifications, read within bounds.

use std::path::{Path, PathBuf};

use super::catalog::{Catalog, File, Suspect};
use super::{CdiFault, FileFault, Format, Spec, Unusable, kind};
use crate::device::Tree;
use crate::trust::TrustedDir;

/// Most specifications of a directory.
pub const FILES_MAX: usize = 256;
/// Most bytes of all specifications together.
pub const BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Most devices of all specifications together.
pub const DEVICES_MAX: usize = 4096;
/// Most names of a directory, whatever they are.
const NAMES_MAX: usize = 4096;

/// Reads the directories, the last of which ranks highest. One that is not there holds nothing.
///
/// The specifications are the files whose names end in `.json` or `.yaml`, in lower case, hidden
/// ones too, of the directory itself. All have to be believed, as [`Tree::trust`] says. The highest
/// rank is read first, so that a limit cuts off what counts least; what is cut off is a file that
/// cannot be used, as any other.
///
/// # Errors
/// [`CdiFault::Dir`], [`CdiFault::Crowded`].
pub(super) fn read(tree: &Tree, dirs: &[PathBuf]) -> Result<Catalog, CdiFault> {
    let mut scan = Scan { catalog: Catalog::of(dirs), bytes: 0, devices: 0 };
    for (rank, dir) in dirs.iter().enumerate().rev() {
        scan.dir(tree, dir, rank)?;
    }
    Ok(scan.catalog)
}

struct Scan {
    catalog: Catalog,
    bytes: u64,
    devices: usize,
}

impl Scan {
    fn dir(&mut self, tree: &Tree, shown: &Path, rank: usize) -> Result<(), CdiFault> {
        let path = tree.at("/").join(shown.strip_prefix("/").unwrap_or(shown));
        let dir = match tree.trust().dir(&path) {
            Err(error) if error.is_missing() => return Ok(()),
            dir => dir.map_err(CdiFault::Dir)?,
        };
        let names = dir.all_names(NAMES_MAX).map_err(CdiFault::Dir)?;
        let with_format = |name: String| format_of(&name).map(|format| (name, format));
        let files: Vec<_> = names.into_iter().filter_map(with_format).collect();
        if files.len() > FILES_MAX {
            return Err(CdiFault::Crowded(shown.to_owned()));
        }
        for (name, format) in files {
            self.file(&dir, &name, format, shown.join(&name), rank);
        }
        Ok(())
    }

    fn file(&mut self, dir: &TrustedDir, name: &str, format: Format, path: PathBuf, rank: usize) {
        match self.spec(dir, name, format) {
            Ok(Some(spec)) => self.catalog.add(File { path, rank, spec }),
            Ok(None) => {}
            Err((why, kind)) => {
                self.catalog.suspect(Suspect { file: Unusable { path, why }, rank, kind });
            }
        }
    }

    /// What a file says; `None` where it has gone since the directory was listed, which is as if it
    /// had gone before. Beside what is wrong with it, its kind where that is certain.
    fn spec(
        &mut self,
        dir: &TrustedDir,
        name: &str,
        format: Format,
    ) -> Result<Option<Spec>, (FileFault, Option<String>)> {
        // Such a name is not the file's own, and would seem to have gone.
        if name.contains(char::REPLACEMENT_CHARACTER) {
            return Err((FileFault::Name, None));
        }
        if self.bytes > BYTES_MAX {
            return Err((FileFault::Bytes, None));
        }
        let bytes = match dir.read(Path::new(name), format.max_bytes() as u64) {
            Err(error) if error.is_missing() => return Ok(None),
            bytes => bytes.map_err(|error| (FileFault::Trust(error.cause().clone()), None))?,
        };
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > BYTES_MAX {
            return Err((FileFault::Bytes, None));
        }
        let spec = Spec::parse(&bytes, format)
            .map_err(|error| (FileFault::Spec(error), kind::of(&bytes, format)))?;
        let devices = self.devices.saturating_add(spec.devices.len());
        if devices > DEVICES_MAX {
            return Err((FileFault::Devices, Some(spec.kind)));
        }
        self.devices = devices;
        Ok(Some(spec))
    }
}

fn format_of(name: &str) -> Option<Format> {
    match name.rsplit_once('.')?.1 {
        "json" => Some(Format::Json),
        "yaml" => Some(Format::Yaml),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
