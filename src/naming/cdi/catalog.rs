//! Reads the directories of specifications within bounds, and decides which file's definition of a
//! device counts.

use super::{Format, QualifiedName, Spec, SpecDevice, name};
use helper::node::{DeviceError, Tree, list_first};
use helper::trusted_dir;
use kernel::trust::{Distrust, TrustedDir};
use nix::errno::Errno;
use std::cell::OnceCell;
use std::path::{Display, Path, PathBuf};

/// Maximum specifications of a directory.
pub const FILES_MAX: usize = 1024;
/// Maximum bytes of all specifications together.
pub const BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Maximum names of a directory, including other files.
const NAMES_MAX: usize = 16_384;

/// Maximum names or files that one text lists.
const LISTED_MAX: usize = 6;

/// The contents of the directories of specifications.
///
/// The definition of a device in the directory of the highest rank counts. If two files of that
/// directory define the device, no definition counts, not even one of lower rank. Definitions below
/// the one that counts do not matter, not even their conflicts.
///
/// An unusable file may have defined any device of its kind or, if its kind is unknown, any device at
/// all. Trusting a definition that the file perhaps replaced would revive what root has removed;
/// trusting no definition would let one bad file hide every good one. So:
///
/// | the definition lies | the unusable file | the definition |
/// |---|---|---|
/// | in a directory of higher rank | any | counts: the file could not have replaced it |
/// | in the same directory | any | counts: of the two, neither would have come first |
/// | in one of lower rank | of another kind | counts: the file did not mean this device |
/// | in one of lower rank | of this kind, or of no known one | does not count |
/// | nowhere | any | is missing, and the file is named if it may be the reason |
///
/// The name of a file that the reader may not open shows its kind, if it has the form that the
/// library for writing specifications uses: `VENDOR-CLASS.json` or `VENDOR-CLASS_ID.json`, with a
/// domain as vendor. Root wrote the file, so the name is no trick, and the claims of one vendor's
/// driver, which come and go with mode 0600, do not hide the devices of every other vendor. Any
/// other name leaves the kind unknown. The same holds for a file whose text cannot contain the kind:
/// a driver may leave a thousand claims behind, and to parse each took longer than to read it.
///
/// Of the other files that cannot define a device, only those that could have replaced its definition
/// are parsed. If the definition counts, each file that turned out to be unusable becomes a warning.
#[derive(Debug, Default)]
pub struct Catalog {
    dirs: Vec<PathBuf>,
    pub(super) files: Vec<SpecFile>,
    /// Bytes read so far.
    bytes: u64,
}

/// A file, which is parsed when it matters.
#[derive(Debug)]
pub(super) struct SpecFile {
    pub(super) path: PathBuf,
    /// Index of the file's directory among those of the catalog; the definition of the highest rank counts.
    rank: usize,
    format: Format,
    bytes: Vec<u8>,
    parsed: OnceCell<Result<Spec, UnusableSpec>>,
}

/// Reason why a specification cannot be used.
#[derive(Debug)]
pub(super) struct UnusableSpec {
    pub(super) why: String,
    /// `VENDOR/CLASS`, if it is certain.
    pub(super) kind: Option<String>,
    /// Name of an unreadable file without its extension, if the name shows the kind.
    pub(super) stem: Option<String>,
}

impl SpecFile {
    /// A file with this content.
    pub(super) fn new(path: PathBuf, rank: usize, format: Format, bytes: Vec<u8>) -> Self {
        Self {
            path,
            rank,
            format,
            bytes,
            parsed: OnceCell::new(),
        }
    }

    /// A file that is parsed already, or that cannot be used.
    pub(super) fn from_result(
        path: PathBuf,
        rank: usize,
        parsed: Result<Spec, UnusableSpec>,
    ) -> Self {
        Self {
            path,
            rank,
            // A file that is parsed needs neither format nor bytes.
            format: Format::Json,
            bytes: Vec::new(),
            parsed: parsed.into(),
        }
    }

    /// Parses the file at the first call; returns its specification, or why it cannot be used.
    pub(super) fn parse_spec(&self) -> Result<&Spec, &UnusableSpec> {
        self.parsed
            .get_or_init(|| {
                Spec::parse(&self.bytes, self.format).map_err(|error| UnusableSpec {
                    why: error.to_string(),
                    kind: name::find_kind(&self.bytes, self.format),
                    stem: None,
                })
            })
            .as_ref()
    }

    /// Finds the file's specification and its definition of a device; `None` if the file does not define it or cannot
    /// be used. A file whose text cannot contain the kind is not parsed.
    fn find_device(&self, name: &QualifiedName) -> Option<(&Spec, &SpecDevice)> {
        if self.parsed.get().is_none() && !self.can_contain_kind(name.kind()) {
            return None;
        }
        let spec = self.parse_spec().ok()?;
        Some((spec, spec.device(name)?))
    }

    /// Tells whether the file's text can contain this kind; a text that is not UTF-8 counts as one that can.
    fn can_contain_kind(&self, kind: &str) -> bool {
        std::str::from_utf8(&self.bytes).map_or(true, |text| can_contain_kind(text, kind))
    }

    /// Tells whether the file need not be parsed for this kind: its name shows another one, and its text cannot
    /// contain this one. False once it has been parsed.
    fn shows_other_kind(&self, kind: &str) -> bool {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.parsed.get().is_none()
            && stem_with_kind(&name).is_some_and(|stem| !is_stem_of_kind(stem, kind))
            && !self.can_contain_kind(kind)
    }

    /// Describes the path and the fault of the file; `None` if it has none, or has not been parsed.
    fn fault(&self) -> Option<String> {
        let fault = match self.parsed.get()? {
            Err(fault) => fault.why.clone(),
            Ok(spec) => format!(
                "line {}: a second document is not read",
                spec.second_document?
            ),
        };
        Some(format!("{}: {fault}", self.path.display()))
    }
}

/// Tells whether the text of a file can contain this kind. A text with a backslash can, since an escape may
/// spell any character. In every other text a kind appears literally between characters that no kind contains:
/// a word without blanks cannot be spread over a document, and aliases and tags are refused.
fn can_contain_kind(text: &str, kind: &str) -> bool {
    if text.contains('\\') {
        return true;
    }
    text.match_indices(kind).any(|(start, _)| {
        let before = text.get(..start).unwrap_or_default();
        let after = text.get(start + kind.len()..).unwrap_or_default();
        !before.ends_with(is_kind_character) && !after.starts_with(is_kind_character)
    })
}

/// Tells whether a kind can have this character.
fn is_kind_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_-./".contains(character)
}

impl UnusableSpec {
    /// A file of an unknown kind.
    fn new(why: String) -> Self {
        Self {
            why,
            kind: None,
            stem: None,
        }
    }

    /// The state of a file with this name that the reader may not open.
    pub(super) fn from_name(file: &str) -> Self {
        let why = "job-adopt, as whom logins look, may not read it: chmod 644".to_owned();
        Self {
            why,
            kind: None,
            stem: stem_with_kind(file).map(str::to_owned),
        }
    }

    /// Tells whether the file may define a device of this kind.
    fn can_define(&self, kind: &str) -> bool {
        if let Some(stem) = &self.stem {
            return is_stem_of_kind(stem, kind);
        }
        self.kind.as_ref().is_none_or(|own| own == kind)
    }
}

/// Returns the name of a file without its extension, if the name shows the kind: it begins with `VENDOR-CLASS`, with
/// a domain as vendor. `None` for any other name.
fn stem_with_kind(file: &str) -> Option<&str> {
    let (stem, _) = file.rsplit_once('.')?;
    stem.match_indices('-')
        .any(|(end, _)| stem.get(..end).is_some_and(|vendor| vendor.contains('.')))
        .then_some(stem)
}

/// Tells whether such a name is `VENDOR-CLASS` or `VENDOR-CLASS_ID` of this kind.
fn is_stem_of_kind(stem: &str, kind: &str) -> bool {
    let rest = stem.strip_prefix(&kind.replace('/', "-"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

impl Catalog {
    /// Reads these directories; the last one ranks highest. A missing one has no files.
    ///
    /// The specifications are the files of the directory itself whose names end in `.json` or
    /// `.yaml`, in lower case, including hidden ones. Each must be trusted according to
    /// [`Tree::trust`]. The highest rank is read first, so that a limit cuts off what counts least. A
    /// file that is cut off is an unusable file.
    ///
    /// # Errors
    ///
    /// A directory cannot be listed, is not trusted, or has more than 1,024 specifications.
    pub fn read(tree: &Tree, dirs: &[PathBuf]) -> Result<Self, DeviceError> {
        let mut catalog = Self {
            dirs: dirs.to_vec(),
            ..Self::default()
        };
        for (rank, dir) in dirs.iter().enumerate().rev() {
            catalog.add_dir(tree, dir, rank)?;
        }
        Ok(catalog)
    }

    /// Reads the specifications of one directory, which has this rank. A missing directory has none.
    ///
    /// # Errors
    ///
    /// The directory cannot be listed, is not trusted, or has too many specifications.
    fn add_dir(&mut self, tree: &Tree, path: &Path, rank: usize) -> Result<(), DeviceError> {
        // `Tree::locate` takes UTF-8 alone, which a directory's path need not be.
        let located = tree
            .locate("/")
            .join(path.strip_prefix("/").unwrap_or(path));
        let dir = match tree.trust().dir(&located) {
            Err(error) if error.is_missing() => return Ok(()),
            result => result?,
        };
        let mut files = Vec::new();
        for name in trusted_dir::list_all_names(&dir, NAMES_MAX)? {
            files.extend(format_from_name(&name).map(|format| (name, format)));
        }
        if files.len() > FILES_MAX {
            let fault = format!(
                "holds {} specifications, more than {FILES_MAX}: remove those that drivers left behind",
                files.len()
            );
            return Err(DeviceError::at(path.display(), fault));
        }
        for (name, format) in files {
            self.add_file(&dir, &name, format, path.join(&name), rank);
        }
        Ok(())
    }

    /// Reads one file, which stays unparsed until it matters. A file that cannot be read is kept as an unusable one;
    /// one that is gone by now is left out.
    fn add_file(
        &mut self,
        dir: &TrustedDir,
        name: &str,
        format: Format,
        path: PathBuf,
        rank: usize,
    ) {
        let file = match self.read_file(dir, name, format) {
            Ok(Some(bytes)) => SpecFile::new(path, rank, format, bytes),
            Ok(None) => return,
            Err(unusable) => SpecFile::from_result(path, rank, Err(unusable)),
        };
        self.files.push(file);
    }

    /// Reads the content of a file, and counts its bytes against the limit for all files; `None` if it was
    /// removed after the directory was listed, which counts like a removal before.
    ///
    /// # Errors
    ///
    /// Why the file is unusable: its name is no UTF-8, it cannot be read, or it and those before it are too large
    /// together. After that no further file is read.
    fn read_file(
        &mut self,
        dir: &TrustedDir,
        name: &str,
        format: Format,
    ) -> Result<Option<Vec<u8>>, UnusableSpec> {
        // The listing has this character in place of bytes that are no UTF-8: no file has the name, and opening it
        // would report a removed file.
        if name.contains(char::REPLACEMENT_CHARACTER) {
            return Err(UnusableSpec::new("the name is no UTF-8".to_owned()));
        }
        let too_large = || {
            UnusableSpec::new(format!(
                "the specifications have more than {BYTES_MAX} bytes in all"
            ))
        };
        if self.bytes > BYTES_MAX {
            return Err(too_large());
        }
        let bytes = match dir.read(Path::new(name), format.bytes_max() as u64) {
            Ok(bytes) => bytes,
            Err(error) if error.is_missing() => return Ok(None),
            Err(error) if *error.cause() == Distrust::Open(Errno::EACCES) => {
                return Err(UnusableSpec::from_name(name));
            }
            Err(error) => return Err(UnusableSpec::new(error.cause().to_string())),
        };
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > BYTES_MAX {
            return Err(too_large());
        }
        Ok(Some(bytes))
    }

    /// Finds the definition of a device that counts, with its file.
    ///
    /// # Errors
    ///
    /// There is no definition, two files of one rank define the device, or an unusable file may
    /// override the definition.
    pub(super) fn find_definition(
        &self,
        name: &QualifiedName,
    ) -> Result<(&SpecFile, &Spec, &SpecDevice), DeviceError> {
        let mut definitions = Vec::new();
        for file in &self.files {
            definitions.extend(
                file.find_device(name)
                    .map(|(spec, device)| (file, spec, device)),
            );
        }
        let rank = definitions.iter().map(|(file, ..)| file.rank).max();
        let mut highest = definitions
            .into_iter()
            .filter(|(file, ..)| Some(file.rank) == rank);
        let Some((file, spec, device)) = highest.next() else {
            return Err(self.missing_device_error(name.kind()));
        };
        let path = file.path.display();
        if let Some((other, ..)) = highest.next() {
            let other = other.path.display();
            return Err(DeviceError::new(format_args!(
                "defined in both {path} and {other}"
            )));
        }
        if let Some((first, why)) = self.unusable_override(name.kind(), file.rank) {
            return Err(DeviceError::new(format_args!(
                "defined in {path}, but {first} would come first and cannot be used: {why}; repair or \
                 remove it"
            )));
        }
        Ok((file, spec, device))
    }

    /// Finds an unusable file of a higher rank than this one that may define devices of this kind, with its path and
    /// fault; `None` if there is none, so that a definition of this rank counts.
    fn unusable_override(&self, kind: &str, rank: usize) -> Option<(Display<'_>, &str)> {
        let higher = self.files.iter().filter(|file| file.rank > rank);
        for file in higher.filter(|file| !file.shows_other_kind(kind)) {
            match file.parse_spec() {
                Err(fault) if fault.can_define(kind) => {
                    return Some((file.path.display(), &fault.why));
                }
                // It is of another kind, or usable: then it does not define the device, or it would have the rank.
                _ => {}
            }
        }
        None
    }

    /// Lists the faults of all parsed files: those that are unusable or have a second document.
    pub(super) fn faults(&self) -> impl Iterator<Item = String> {
        self.files.iter().filter_map(SpecFile::fault)
    }

    /// Makes the error of a device of this kind that no file defines. It lists the kind's devices, and the unusable
    /// files that may have defined the missing one.
    fn missing_device_error(&self, kind: &str) -> DeviceError {
        let mut known = Vec::new();
        let mut faults = Vec::new();
        for file in &self.files {
            match file.parse_spec() {
                Ok(spec) if spec.kind == kind => {
                    for device in &spec.devices {
                        if !known.contains(&device.name.as_str()) {
                            known.push(&device.name);
                        }
                    }
                }
                Err(fault) if fault.can_define(kind) => faults.extend(file.fault()),
                _ => {}
            }
        }
        let dirs: Vec<_> = self.dirs.iter().map(|dir| dir.display()).collect();
        let unusable = match faults.as_slice() {
            [] => String::new(),
            faults => format!("; cannot be used: {}", list_first(LISTED_MAX, faults)),
        };
        if known.is_empty() {
            let dirs = list_first(LISTED_MAX, &dirs);
            let why = format!("no specification of kind {kind} in {dirs}{unusable}");
            return DeviceError::new(why);
        }
        let known = list_first(LISTED_MAX, &known);
        DeviceError::new(format!(
            "kind {kind} has no such device; it has {known}{unusable}"
        ))
    }
}

/// The format of a file by the end of its name; `None` for a file that is no specification.
fn format_from_name(name: &str) -> Option<Format> {
    match name.rsplit_once('.')?.1 {
        "json" => Some(Format::Json),
        "yaml" => Some(Format::Yaml),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
