use super::*;
use crate::device::cdi::tests::{device, file};
use crate::device::cdi::{Edits, FileFault};
use crate::random::Random;

/// Ranks of the files that define `v.com/gpu=0`, and rank and kind of those that cannot be used.
fn catalog(good: &[(&str, usize)], bad: &[(&str, usize, Option<&str>)]) -> Catalog {
    let mut catalog = Catalog::of(&["/etc/cdi".into(), "/run/cdi".into()]);
    for (path, rank) in good {
        catalog.add(file(path, *rank, "v.com/gpu", &[device("0", Edits::default())]));
    }
    for (path, rank, kind) in bad {
        let file = Unusable { path: path.into(), why: FileFault::Bytes };
        catalog.suspect(Suspect { file, rank: *rank, kind: kind.map(str::to_owned) });
    }
    catalog
}

fn counts(catalog: &Catalog) -> Result<PathBuf, CdiFault> {
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
    let conflict = CdiFault::Conflict(["a".into(), "b".into()]);
    assert_eq!(conflict.to_string(), "defined in both a and b");
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
            assert_eq!(catalog.unusable().count(), 1);
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
                            the specifications have more than 16777216 bytes in all; \
                            repair or remove it";
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
                    bad: the specifications have more than 16777216 bytes in all";
    assert_eq!(text(&doubted, "w.com/gpu=0"), expected);
}

#[test]
fn only_a_few_of_many_devices_are_listed() {
    let devices: Vec<_> =
        (0..99).map(|number| device(&number.to_string(), Edits::default())).collect();
    let mut catalog = Catalog::default();
    catalog.add(file("low", 0, "v.com/gpu", &devices));
    catalog.add(file("high", 1, "v.com/gpu", &devices));
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
                let file = Unusable { path: self.path.clone().into(), why: FileFault::Bytes };
                catalog.suspect(Suspect { file, rank: self.rank, kind: kind.clone() });
            }
            _ => {
                let device = device(&self.device, Edits::default());
                catalog.add(file(&self.path, self.rank, self.kind, &[device]));
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
        let files: Vec<Written> =
            (0..1 + random.index(5)).map(|number| Written::random(&mut random, number)).collect();
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
