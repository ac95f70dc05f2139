//! Which file's definition of a device counts.

use std::fmt;
use std::path::PathBuf;

use super::{QualifiedName, Spec, SpecDevice, scan};
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
/// Where the definition counts, the unusable file becomes a warning.
#[derive(Debug, Default)]
pub struct Catalog {
    dirs: Vec<PathBuf>,
    pub(super) files: Vec<File>,
    pub(super) suspects: Vec<Suspect>,
}

#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) rank: usize,
    pub(super) spec: Spec,
}

/// A file that cannot be used.
#[derive(Debug)]
pub(super) struct Suspect {
    pub(super) path: PathBuf,
    pub(super) why: String,
    pub(super) rank: usize,
    /// `VENDOR/CLASS`, where it is certain.
    pub(super) kind: Option<String>,
}

impl fmt::Display for Suspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
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
    /// A directory cannot be listed, is not believed, or holds more than 256 specifications.
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
    ) -> Result<(&File, &SpecDevice), DeviceError> {
        let all: Vec<_> = self
            .files
            .iter()
            .filter_map(|file| file.spec.device(name).map(|device| (file, device)))
            .collect();
        let rank = all.iter().map(|(file, _)| file.rank).max();
        let mut highest = all.into_iter().filter(|(file, _)| Some(file.rank) == rank);
        match (highest.next(), highest.next()) {
            (None, _) => Err(self.missing(name.kind())),
            (Some((one, _)), Some((other, _))) => Err(DeviceError::new(format_args!(
                "defined in both {} and {}",
                one.path.display(),
                other.path.display()
            ))),
            (Some((file, device)), None) => match self.doubt(name.kind(), file.rank) {
                None => Ok((file, device)),
                Some(Suspect { path, why, .. }) => Err(DeviceError::new(format_args!(
                    "defined in {}, but {} would come first and cannot be used: {why}; repair or \
                     remove it",
                    file.path.display(),
                    path.display(),
                ))),
            },
        }
    }

    /// A file that may have replaced a definition of this kind and rank.
    fn doubt(&self, kind: &str, rank: usize) -> Option<&Suspect> {
        let replaces = |suspect: &&Suspect| suspect.rank > rank && suspect.may_define(kind);
        self.suspects.iter().find(replaces)
    }

    fn missing(&self, kind: &str) -> DeviceError {
        let mut known: Vec<&str> = Vec::new();
        let of_kind = self.files.iter().filter(|file| file.spec.kind == kind);
        for device in of_kind.flat_map(|file| &file.spec.devices) {
            if !known.contains(&device.name.as_str()) {
                known.push(&device.name);
            }
        }
        let dirs: Vec<_> = self.dirs.iter().map(|dir| dir.display()).collect();
        let suspects = self.suspects.iter().filter(|suspect| suspect.may_define(kind));
        let unusable = match suspects.collect::<Vec<_>>().as_slice() {
            [] => String::new(),
            files => format!("; cannot be used: {}", few(files)),
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
            catalog.suspects.push(suspect(path, *rank, kind.map(str::to_owned)));
        }
        catalog
    }

    fn suspect(path: &str, rank: usize, kind: Option<String>) -> Suspect {
        Suspect { path: path.into(), why: "no good".to_owned(), rank, kind }
    }

    fn counts(catalog: &Catalog) -> Result<PathBuf, DeviceError> {
        let name = "v.com/gpu=0".parse().unwrap();
        catalog.definition(&name).map(|(file, _)| file.path.clone())
    }

    #[test]
    fn the_highest_directory_comes_first_whatever_the_order() {
        for files in [[("low", 0), ("high", 1)], [("high", 1), ("low", 0)]] {
            assert_eq!(counts(&catalog(&files, &[])), Ok("high".into()));
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
                assert_eq!(catalog.suspects.len(), 1);
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
                    catalog.suspects.push(suspect(&self.path, self.rank, kind.clone()));
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
                    catalog.definition(&name).ok().map(|(file, _)| file.path.display().to_string())
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
