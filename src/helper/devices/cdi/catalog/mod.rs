//! The directories of specifications, read within bounds, and which file's definition of a device counts.

use super::{Format, QualifiedName, Spec, SpecDevice, name};
use crate::devices::tree;
use crate::devices::{DeviceError, Tree};
use kernel::trust::{Distrust, TrustedDir};
use nix::errno::Errno;
use std::cell::OnceCell;
use std::path::{Display, Path, PathBuf};

/// Most specifications of a directory.
pub const FILES_MAX: usize = 256;
/// Most bytes of all specifications together.
pub const BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Most names of a directory, whatever they are.
const NAMES_MAX: usize = 4096;

/// Most names and files that one text lists.
const SHOWN_MAX: usize = 6;

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
/// Of a file that the reader may not read, the kind is told by its name, where that is of the form that
/// the library for writing specifications gives it: `VENDOR-CLASS.json` or `VENDOR-CLASS_ID.json`, the
/// vendor a domain. Root wrote it, so the name is no trick, and claims of one vendor's driver, which
/// come and go with mode 0600, do not take every other vendor's devices away. Any other name says
/// nothing.
///
/// So of the files that cannot define a device, only those that could have replaced its definition
/// are parsed. Where the definition counts, a file that was found unusable becomes a warning.
#[derive(Debug, Default)]
pub struct Catalog {
    dirs: Vec<PathBuf>,
    pub(super) files: Vec<File>,
    /// How many were read.
    bytes: u64,
}

/// A file, parsed when it matters.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    rank: usize,
    format: Format,
    bytes: Vec<u8>,
    parsed: OnceCell<Result<Spec, Unusable>>,
}

/// Why a file cannot be used.
#[derive(Debug)]
pub(super) struct Unusable {
    pub(super) why: String,
    /// `VENDOR/CLASS`, where it is certain.
    pub(super) kind: Option<String>,
    /// Else the name of a file that could not be read, without its end, where that tells the kind.
    pub(super) named: Option<String>,
}

impl File {
    /// One with this content.
    pub(super) fn new(path: PathBuf, rank: usize, format: Format, bytes: Vec<u8>) -> Self {
        Self { path, rank, format, bytes, parsed: OnceCell::new() }
    }

    /// One of which is known what it says, or that it cannot be used.
    pub(super) fn known(path: PathBuf, rank: usize, parsed: Result<Spec, Unusable>) -> Self {
        Self { path, rank, format: Format::Json, bytes: Vec::new(), parsed: parsed.into() }
    }

    pub(super) fn spec(&self) -> Result<&Spec, &Unusable> {
        let parse = || {
            Spec::parse(&self.bytes, self.format).map_err(|error| Unusable {
                why: error.to_string(),
                kind: name::kind_of(&self.bytes, self.format),
                named: None,
            })
        };
        self.parsed.get_or_init(parse).as_ref()
    }

    /// Its definition of a device, and what else it says.
    fn device(&self, name: &QualifiedName) -> Option<(&Spec, &SpecDevice)> {
        let may = || std::str::from_utf8(&self.bytes).is_ok_and(|text| may_say(text, name.kind()));
        let spec = (self.parsed.get().is_some() || may()).then(|| self.spec())?.ok()?;
        Some((spec, spec.device(name)?))
    }

    /// What is wrong with it, if it has been parsed, after its path.
    fn fault(&self) -> Option<String> {
        let fault = match self.parsed.get()? {
            Err(fault) => fault.why.clone(),
            Ok(spec) => format!("line {}: a second document is not read", spec.second?),
        };
        Some(format!("{}: {fault}", self.path.display()))
    }
}

/// Whether the text of a file can mean this kind. A kind is written as it is, between characters
/// that no kind has, but for escapes: nothing else that is text without blanks can be spread over a
/// document, and neither aliases nor tags are taken.
fn may_say(text: &str, kind: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let alone = |at: usize| {
        let (before, after) = (text.get(..at), text.get(at + kind.len()..));
        !before.is_some_and(|text| text.ends_with(part))
            && !after.is_some_and(|text| text.starts_with(part))
    };
    text.contains('\\') || text.match_indices(kind).any(|(at, _)| alone(at))
}

impl Unusable {
    /// A file of this name that the reader may not read.
    pub(super) fn unreadable(file: &str) -> Self {
        let why = "job-adopt, as whom logins look, may not read it: chmod 644".to_owned();
        let stem = file.rsplit_once('.').map(|(stem, _)| stem);
        let has_vendor = |stem: &&str| {
            stem.match_indices('-')
                .any(|(at, _)| stem.get(..at).is_some_and(|vendor| vendor.contains('.')))
        };
        Self { why, kind: None, named: stem.filter(has_vendor).map(str::to_owned) }
    }

    fn may_define(&self, kind: &str) -> bool {
        if let Some(stem) = &self.named {
            let rest = stem.strip_prefix(&kind.replace('/', "-"));
            return rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
        }
        self.kind.as_ref().is_none_or(|own| own == kind)
    }
}

impl Catalog {
    /// What these directories hold, the last of which ranks highest. One that is not there holds
    /// nothing.
    ///
    /// The specifications are the files whose names end in `.json` or `.yaml`, in lower case, hidden
    /// ones too, of the directory itself. All have to be believed, as [`Tree::trust`] says. The highest
    /// rank is read first, so that a limit cuts off what counts least; what is cut off is a file that
    /// cannot be used, as any other.
    /// Errors: a directory cannot be listed, is not believed, or holds more than 256
    /// specifications.
    pub fn read(tree: &Tree, dirs: &[PathBuf]) -> Result<Self, DeviceError> {
        let mut catalog = Self { dirs: dirs.to_vec(), ..Self::default() };
        for (rank, dir) in dirs.iter().enumerate().rev() {
            catalog.add(tree, dir, rank)?;
        }
        Ok(catalog)
    }

    fn add(&mut self, tree: &Tree, shown: &Path, rank: usize) -> Result<(), DeviceError> {
        let path = tree.locate("/").join(shown.strip_prefix("/").unwrap_or(shown));
        let dir = match tree.trust().dir(&path) {
            Err(error) if error.is_missing() => return Ok(()),
            dir => dir?,
        };
        let names = tree::list_all_names(&dir, NAMES_MAX)?;
        let with_format = |name: String| format_of(&name).map(|format| (name, format));
        let files: Vec<_> = names.into_iter().filter_map(with_format).collect();
        if files.len() > FILES_MAX {
            let fault = format_args!("holds more than {FILES_MAX} specifications");
            return Err(DeviceError::at(shown.display(), fault));
        }
        for (name, format) in files {
            self.file(&dir, &name, format, shown.join(&name), rank);
        }
        Ok(())
    }

    fn file(&mut self, dir: &TrustedDir, name: &str, format: Format, path: PathBuf, rank: usize) {
        let file = match self.content(dir, name, format) {
            Ok(Some(bytes)) => File::new(path, rank, format, bytes),
            Ok(None) => return,
            Err(unusable) => File::known(path, rank, Err(unusable)),
        };
        self.files.push(file);
    }

    /// What is in a file; `None` where it has gone since the directory was listed, which is as if it
    /// had gone before.
    fn content(
        &mut self,
        dir: &TrustedDir,
        name: &str,
        format: Format,
    ) -> Result<Option<Vec<u8>>, Unusable> {
        let unusable = |why: String| Unusable { why, kind: None, named: None };
        // Such a name is not the file's own, and would seem to have gone.
        if name.contains(char::REPLACEMENT_CHARACTER) {
            return Err(unusable("the name is no UTF-8".to_owned()));
        }
        if self.bytes <= BYTES_MAX {
            let bytes = match dir.read(Path::new(name), format.max_bytes() as u64) {
                Ok(bytes) => bytes,
                Err(error) if error.is_missing() => return Ok(None),
                Err(error) => {
                    let denied = *error.cause() == Distrust::Open(Errno::EACCES);
                    let other = || unusable(error.cause().to_string());
                    return Err(if denied { Unusable::unreadable(name) } else { other() });
                }
            };
            self.bytes = self.bytes.saturating_add(bytes.len() as u64);
            if self.bytes <= BYTES_MAX {
                return Ok(Some(bytes));
            }
        }
        Err(unusable(format!("the specifications have more than {BYTES_MAX} bytes in all")))
    }

    /// The definition of a device that counts, and the file in which it stands.
    /// Fails: there is none, or not just one, or one in doubt.
    pub(super) fn definition(
        &self,
        name: &QualifiedName,
    ) -> Result<(&File, &Spec, &SpecDevice), DeviceError> {
        let defines = |file| File::device(file, name).map(|(spec, device)| (file, spec, device));
        let all: Vec<_> = self.files.iter().filter_map(defines).collect();
        let rank = all.iter().map(|(file, ..)| file.rank).max();
        let mut highest = all.into_iter().filter(|(file, ..)| Some(file.rank) == rank);
        match (highest.next(), highest.next()) {
            (None, _) => Err(self.missing(name.kind())),
            (Some((one, ..)), Some((other, ..))) => Err(DeviceError::new(format_args!(
                "defined in both {} and {}",
                one.path.display(),
                other.path.display()
            ))),
            (Some((file, spec, device)), None) => match self.doubt(name.kind(), file.rank) {
                None => Ok((file, spec, device)),
                Some((path, why)) => Err(DeviceError::new(format_args!(
                    "defined in {}, but {path} would come first and cannot be used: {why}; repair \
                     or remove it",
                    file.path.display(),
                ))),
            },
        }
    }

    /// A file that may have replaced a definition of this kind and rank, and what is wrong with it.
    fn doubt(&self, kind: &str, rank: usize) -> Option<(Display<'_>, &str)> {
        let higher = self.files.iter().filter(|file| file.rank > rank);
        let mut faults = higher.filter_map(|file| Some((file.path.display(), file.spec().err()?)));
        let (path, fault) = faults.find(|(_, fault)| fault.may_define(kind))?;
        Some((path, &fault.why))
    }

    /// The files that have been found to be unusable, or not to be read to their ends.
    pub(super) fn faults(&self) -> impl Iterator<Item = String> {
        self.files.iter().filter_map(File::fault)
    }

    fn missing(&self, kind: &str) -> DeviceError {
        let (mut known, mut faults) = (Vec::new(), Vec::new());
        for file in &self.files {
            match file.spec() {
                Ok(spec) if spec.kind == kind => {
                    for device in &spec.devices {
                        if !known.contains(&device.name.as_str()) {
                            known.push(&device.name);
                        }
                    }
                }
                Err(fault) if fault.may_define(kind) => faults.extend(file.fault()),
                _ => {}
            }
        }
        let dirs: Vec<_> = self.dirs.iter().map(|dir| dir.display()).collect();
        let unusable = match faults.as_slice() {
            [] => String::new(),
            faults => format!("; cannot be used: {}", few(faults)),
        };
        DeviceError::new(match known.is_empty() {
            true => format!("no specification of kind {kind} in {}{unusable}", few(&dirs)),
            false => format!("kind {kind} has no such device; it has {}{unusable}", few(&known)),
        })
    }
}

fn few(items: &[impl ToString]) -> String {
    let shown: Vec<String> = items.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
    match items.len().saturating_sub(SHOWN_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
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
