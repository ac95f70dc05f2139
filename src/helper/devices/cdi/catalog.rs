//! Which file's definition of a device counts.

use std::cell::OnceCell;
use std::path::{Display, PathBuf};

use super::{Format, QualifiedName, Spec, SpecDevice, name, scan};
use crate::helper::devices::{DeviceError, Tree};

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
    /// What these directories hold, the last of which comes first in precedence.
    /// Errors: a directory cannot be listed, is not believed, or holds more than 256
    /// specifications.
    pub fn read(tree: &Tree, dirs: &[PathBuf]) -> Result<Self, DeviceError> {
        scan::read(tree, dirs)
    }

    /// What these directories hold, of which nothing has been added yet.
    pub(super) fn of(dirs: &[PathBuf]) -> Self {
        Self { dirs: dirs.to_vec(), ..Self::default() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::devices::cdi::Edits;
    use crate::helper::devices::cdi::tests::{device, file};
    use crate::random::Random;

    /// Ranks of the files that define `v.com/gpu=0`, and rank and kind of those that cannot be used.
    fn catalog(good: &[(&str, usize)], bad: &[(&str, usize, Option<&str>)]) -> Catalog {
        let mut catalog = Catalog::of(&["/etc/cdi".into(), "/run/cdi".into()]);
        for (path, rank) in good {
            catalog.files.push(file(path, *rank, "v.com/gpu", &[device("0", Edits::default())]));
        }
        for (path, rank, kind) in bad {
            catalog.files.push(unusable(path, *rank, kind.map(str::to_owned)));
        }
        catalog
    }

    fn unusable(path: &str, rank: usize, kind: Option<String>) -> File {
        let unusable = Unusable { why: "no good".to_owned(), kind, named: None };
        File::known(path.into(), rank, Err(unusable))
    }

    fn counts(catalog: &Catalog) -> Result<PathBuf, DeviceError> {
        let name = "v.com/gpu=0".parse().unwrap();
        catalog.definition(&name).map(|(file, ..)| file.path.clone())
    }

    #[test]
    fn the_highest_directory_comes_first_whatever_the_order() {
        for files in [[("low", 0), ("high", 1)], [("high", 1), ("low", 0)]] {
            assert_eq!(counts(&catalog(&files, &[])), Ok("high".into()));
        }
    }

    /// By the name that the library gives a file, where it may not be read.
    #[test]
    fn a_file_that_may_not_be_read_is_in_doubt_for_the_kind_of_its_name() {
        for (file, counts_still) in [
            ("k8s.gpu.nvidia.com-claim_0b5c.json", true),
            ("w.com-gpu.yaml", true),
            ("v.com-gpus.json", true),
            ("v.com-gpu.json", false),
            ("v.com-gpu_0b5c.json", false),
            ("gpus.json", false),
            ("my-gpus.json", false),
            (".json", false),
        ] {
            let mut catalog = catalog(&[("low", 0)], &[]);
            let unreadable = Err(Unusable::unreadable(file));
            catalog.files.push(File::known(file.into(), 1, unreadable));
            let found = counts(&catalog);
            assert_eq!(found.is_ok(), counts_still, "{file}: {found:?}");
            if let Err(error) = found {
                assert!(error.to_string().contains("may not read it: chmod 644"), "{error}");
            }
        }
    }

    #[test]
    fn two_files_of_one_directory_define_nothing_and_nothing_lower_comes_back() {
        let conflict = DeviceError::new("defined in both a and b");
        for files in [&[("a", 1), ("b", 1)][..], &[("low", 0), ("a", 1), ("b", 1)]] {
            assert_eq!(counts(&catalog(files, &[])), Err(conflict.clone()));
        }
    }

    #[test]
    fn a_conflict_below_the_definition_that_counts_does_not_matter() {
        assert_eq!(counts(&catalog(&[("a", 0), ("b", 0), ("c", 1)], &[])), Ok("c".into()));
    }

    #[test]
    fn an_unusable_file_hides_nothing_of_its_own_rank_or_above() {
        for kind in [None, Some("v.com/gpu"), Some("w.com/gpu")] {
            for rank in [0, 1] {
                let catalog = catalog(&[("good", 1)], &[("bad", rank, kind)]);
                assert_eq!(counts(&catalog), Ok("good".into()), "{kind:?} {rank}");
                assert_eq!(catalog.faults().count(), 1);
            }
        }
    }

    #[test]
    fn an_unusable_file_hides_nothing_of_another_kind() {
        let catalog = catalog(&[("good", 0)], &[("bad", 1, Some("w.com/gpu"))]);
        assert_eq!(counts(&catalog), Ok("good".into()));
    }

    #[test]
    fn an_unusable_file_brings_no_older_definition_back() {
        for kind in [None, Some("v.com/gpu")] {
            for good in [&[("old", 0)][..], &[("older", 0), ("old", 1)]] {
                let error = counts(&catalog(good, &[("bad", 2, kind)])).unwrap_err();
                let text = error.to_string();
                let expected = "defined in old, but bad would come first and cannot be used: \
                            no good; repair or remove it";
                assert_eq!(text, expected);
            }
        }
    }

    #[test]
    fn a_missing_device_is_told_from_a_missing_kind() {
        let with = |bad| catalog(&[("good", 0)], bad);
        let text = |catalog: &Catalog, name: &str| {
            catalog.definition(&name.parse().unwrap()).unwrap_err().to_string()
        };
        let plain = with(&[]);
        assert_eq!(
            text(&plain, "w.com/gpu=0"),
            "no specification of kind w.com/gpu in /etc/cdi, /run/cdi"
        );
        assert_eq!(text(&plain, "v.com/gpu=7"), "kind v.com/gpu has no such device; it has 0");
        let doubted = with(&[("bad", 0, None), ("other", 1, Some("x.com/gpu"))]);
        let expected = "no specification of kind w.com/gpu in /etc/cdi, /run/cdi; cannot be used: \
                    bad: no good";
        assert_eq!(text(&doubted, "w.com/gpu=0"), expected);
    }

    #[test]
    fn only_a_few_of_many_devices_are_listed() {
        let devices: Vec<_> =
            (0..99).map(|number| device(&number.to_string(), Edits::default())).collect();
        let mut catalog = Catalog::default();
        catalog.files.push(file("low", 0, "v.com/gpu", &devices));
        catalog.files.push(file("high", 1, "v.com/gpu", &devices));
        let error = catalog.definition(&"v.com/gpu=x".parse().unwrap()).unwrap_err();
        let expected = "kind v.com/gpu has no such device; it has 0, 1, 2, 3, 4, 5 and 93 more";
        assert_eq!(error.to_string(), expected);
    }

    const KINDS: [&str; 2] = ["v.com/gpu", "w.com/gpu"];

    /// A file of one device, and how much of it can be made out once it is broken.
    struct Written {
        path: String,
        rank: usize,
        kind: &'static str,
        device: String,
        broken: Option<Option<String>>,
    }

    impl Written {
        fn random(random: &mut Random, number: usize) -> Self {
            let kind = KINDS[random.index(KINDS.len())];
            let broken = match random.index(4) {
                0 => Some(None),
                1 => Some(Some(kind.to_owned())),
                _ => None,
            };
            let device = random.index(2).to_string();
            Self { path: number.to_string(), rank: random.index(3), kind, device, broken }
        }

        fn put(&self, catalog: &mut Catalog, whole: bool) {
            match (&self.broken, whole) {
                (Some(kind), false) => {
                    catalog.files.push(unusable(&self.path, self.rank, kind.clone()));
                }
                _ => {
                    let device = device(&self.device, Edits::default());
                    catalog.files.push(file(&self.path, self.rank, self.kind, &[device]));
                }
            }
        }
    }

    /// Whatever breaks, a name means no other file's definition than one of the highest directory in
    /// which it was defined, and what no broken file can have meant stays as it was.
    #[test]
    fn breaking_files_brings_nothing_old_back_and_hides_nothing_independent() {
        let mut random = Random::new(0x2545_f491_4f6c_dd1d);
        let mut seen = [0; 3];
        for _ in 0..3000 {
            let files: Vec<Written> = (0..1 + random.index(5))
                .map(|number| Written::random(&mut random, number))
                .collect();
            let (mut before, mut after) = (Catalog::default(), Catalog::default());
            for file in &files {
                file.put(&mut before, true);
                file.put(&mut after, false);
            }
            for (kind, device) in KINDS.iter().flat_map(|kind| [(*kind, "0"), (*kind, "1")]) {
                let name = format!("{kind}={device}").parse().unwrap();
                let path = |catalog: &Catalog| {
                    catalog.definition(&name).ok().map(|(file, ..)| file.path.display().to_string())
                };
                let (before, after) = (path(&before), path(&after));
                let of_name = |file: &&Written| file.kind == kind && file.device == device;
                let highest = files.iter().filter(of_name).map(|file| file.rank).max();
                let meant = |path: &String| {
                    files.iter().any(|file| file.path == *path && Some(file.rank) == highest)
                };
                assert!(after.as_ref().is_none_or(meant), "{after:?}");
                let may_mean = |kinds: &Option<Option<String>>| match kinds {
                    Some(broken) => broken.as_deref().is_none_or(|broken| broken == kind),
                    None => false,
                };
                let independent = !files.iter().any(|file| may_mean(&file.broken));
                assert!(!independent || before == after, "{before:?} {after:?}");
                seen[match (&before, &after) {
                    (before, after) if before == after => 0,
                    (Some(_), None) => 1,
                    _ => 2,
                }] += 1;
            }
        }
        assert!(seen.iter().all(|count| *count > 10), "{seen:?}");
    }
}
