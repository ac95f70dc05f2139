//! Which file's definition of a device counts.

use std::path::PathBuf;

use super::{CdiFault, QualifiedName, Spec, SpecDevice, Unusable, scan};
use crate::device::Tree;

/// What the directories of specifications hold.
///
/// Of a device's definitions the one in the directory of the highest rank counts; where two files of
/// that directory define it, none does, and no lower one in their place. What lies below the one
/// that counts does not matter, conflicts included.
///
/// A file that cannot be used may have defined any device of its kind and, where not even its kind
/// can be told, any device at all. To believe what it was perhaps there to replace would bring back
/// what root has done away with; to believe nothing would let one bad file hide every good one. So:
///
/// | the definition lies | the unusable file | the definition |
/// |---|---|---|
/// | in a directory of higher rank | any | counts: the file could not have replaced it |
/// | in the same directory | any | counts: of the two, neither would have come first |
/// | in one of lower rank | of another kind | counts: the file did not mean this device |
/// | in one of lower rank | of this kind, or of no known one | does not count |
/// | nowhere | any | is missing, and the file is named if it may be the reason |
///
/// Where the definition counts, the unusable file becomes a warning.
#[derive(Debug, Default)]
pub struct Catalog {
    dirs: Vec<PathBuf>,
    files: Vec<File>,
    suspects: Vec<Suspect>,
}

/// A specification that was read.
#[derive(Debug)]
pub(super) struct File {
    /// Where it lies.
    pub(super) path: PathBuf,
    /// The rank of its directory.
    pub(super) rank: usize,
    /// What it says.
    pub(super) spec: Spec,
}

/// A file that cannot be used.
#[derive(Debug)]
pub(super) struct Suspect {
    /// Which, and why.
    pub(super) file: Unusable,
    /// The rank of its directory.
    pub(super) rank: usize,
    /// `VENDOR/CLASS`, where it is certain.
    pub(super) kind: Option<String>,
}

impl Suspect {
    fn may_define(&self, kind: &str) -> bool {
        self.kind.as_ref().is_none_or(|own| own == kind)
    }
}

impl Catalog {
    /// What these directories hold, the last of which comes first in precedence.
    ///
    /// # Errors
    /// [`CdiFault`] where a directory cannot be listed or is not believed.
    pub fn read(tree: &Tree, dirs: &[PathBuf]) -> Result<Self, CdiFault> {
        scan::read(tree, dirs)
    }

    /// What these directories hold, of which nothing has been added yet.
    pub(super) fn of(dirs: &[PathBuf]) -> Self {
        Self { dirs: dirs.to_vec(), ..Self::default() }
    }

    pub(super) fn add(&mut self, file: File) {
        self.files.push(file);
    }

    pub(super) fn suspect(&mut self, suspect: Suspect) {
        self.suspects.push(suspect);
    }

    /// The files that cannot be used.
    pub(super) fn unusable(&self) -> impl Iterator<Item = &Unusable> {
        self.suspects.iter().map(|suspect| &suspect.file)
    }

    /// The definition of a device that counts, and the file in which it stands.
    ///
    /// # Errors
    /// [`CdiFault`] where there is none, or not just one, or one in doubt.
    pub(super) fn definition(
        &self,
        name: &QualifiedName,
    ) -> Result<(&File, &SpecDevice), CdiFault> {
        let all: Vec<_> = self
            .files
            .iter()
            .filter_map(|file| file.spec.device(name).map(|device| (file, device)))
            .collect();
        let rank = all.iter().map(|(file, _)| file.rank).max();
        let mut highest = all.into_iter().filter(|(file, _)| Some(file.rank) == rank);
        match (highest.next(), highest.next()) {
            (None, _) => Err(self.missing(name.kind())),
            (Some((one, _)), Some((other, _))) => {
                Err(CdiFault::Conflict([one.path.clone(), other.path.clone()]))
            }
            (Some((file, device)), None) => match self.doubt(name.kind(), file.rank) {
                None => Ok((file, device)),
                Some(unusable) => Err(CdiFault::Doubtful { file: file.path.clone(), unusable }),
            },
        }
    }

    /// A file that may have replaced a definition of this kind and rank.
    fn doubt(&self, kind: &str, rank: usize) -> Option<Unusable> {
        let replaces = |suspect: &&Suspect| suspect.rank > rank && suspect.may_define(kind);
        self.suspects.iter().find(replaces).map(|suspect| suspect.file.clone())
    }

    fn missing(&self, kind: &str) -> CdiFault {
        let unusable = self.suspects.iter().filter(|suspect| suspect.may_define(kind));
        let unusable = unusable.map(|suspect| suspect.file.clone()).collect();
        let of_kind = self.files.iter().filter(|file| file.spec.kind == kind);
        let mut known: Vec<String> = Vec::new();
        for device in of_kind.flat_map(|file| &file.spec.devices) {
            if !known.contains(&device.name) {
                known.push(device.name.clone());
            }
        }
        match known.is_empty() {
            true => CdiFault::Kind { kind: kind.to_owned(), dirs: self.dirs.clone(), unusable },
            false => CdiFault::Device { kind: kind.to_owned(), known, unusable },
        }
    }
}

#[cfg(test)]
mod tests;
