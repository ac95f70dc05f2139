use super::*;
use crate::device::cdi::tests::{device, file};
use crate::device::cdi::{Edits, FileFault};

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
