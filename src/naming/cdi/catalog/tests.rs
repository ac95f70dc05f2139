use super::*;
use crate::cdi::Edits;
use crate::cdi::tests::{device, file};
use crate::testing::Random;

/// A catalog with files of these ranks that define `v.com/gpu=0`, and with unusable files of
/// these ranks and kinds.
fn catalog(good: &[(&str, usize)], bad: &[(&str, usize, Option<&str>)]) -> Catalog {
    let mut catalog = Catalog {
        dirs: vec!["/etc/cdi".into(), "/run/cdi".into()],
        ..Catalog::default()
    };
    for (path, rank) in good {
        catalog.files.push(file(
            path,
            *rank,
            "v.com/gpu",
            &[device("0", Edits::default())],
        ));
    }
    for (path, rank, kind) in bad {
        catalog
            .files
            .push(unusable(path, *rank, kind.map(str::to_owned)));
    }
    catalog
}

fn unusable(path: &str, rank: usize, kind: Option<String>) -> SpecFile {
    let unusable = UnusableSpec {
        why: "no good".to_owned(),
        kind,
        stem: None,
    };
    SpecFile::from_result(path.into(), rank, Err(unusable))
}

fn counts(catalog: &Catalog) -> Result<PathBuf, DeviceError> {
    let name = "v.com/gpu=0".parse().unwrap();
    catalog
        .find_definition(&name)
        .map(|(file, ..)| file.path.clone())
}

#[test]
fn directory_of_the_highest_rank_counts_in_any_order() {
    for files in [[("low", 0), ("high", 1)], [("high", 1), ("low", 0)]] {
        assert_eq!(counts(&catalog(&files, &[])), Ok("high".into()));
    }
}

/// The library for writing specifications gives files such names.
#[test]
fn unreadable_file_overrides_only_the_kind_in_its_name() {
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
        let unreadable = Err(UnusableSpec::from_name(file));
        catalog
            .files
            .push(SpecFile::from_result(file.into(), 1, unreadable));
        let found = counts(&catalog);
        assert_eq!(found.is_ok(), counts_still, "{file}: {found:?}");
        if let Err(error) = found {
            assert!(
                error.to_string().contains("may not read it: chmod 644"),
                "{error}"
            );
        }
    }
}

#[test]
fn two_definitions_of_one_rank_are_an_error_and_revive_no_lower_one() {
    let conflict = DeviceError::new("defined in both a and b");
    for files in [&[("a", 1), ("b", 1)][..], &[("low", 0), ("a", 1), ("b", 1)]] {
        assert_eq!(counts(&catalog(files, &[])), Err(conflict.clone()));
    }
}

#[test]
fn conflict_below_the_definition_that_counts_does_not_matter() {
    assert_eq!(
        counts(&catalog(&[("a", 0), ("b", 0), ("c", 1)], &[])),
        Ok("c".into())
    );
}

#[test]
fn unusable_file_hides_no_definition_of_its_rank_or_above() {
    for kind in [None, Some("v.com/gpu"), Some("w.com/gpu")] {
        for rank in [0, 1] {
            let catalog = catalog(&[("good", 1)], &[("bad", rank, kind)]);
            assert_eq!(counts(&catalog), Ok("good".into()), "{kind:?} {rank}");
            assert_eq!(catalog.faults().count(), 1);
        }
    }
}

#[test]
fn unusable_file_hides_no_definition_of_another_kind() {
    let catalog = catalog(&[("good", 0)], &[("bad", 1, Some("w.com/gpu"))]);
    assert_eq!(counts(&catalog), Ok("good".into()));
}

#[test]
fn unusable_file_revives_no_lower_definition() {
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
fn missing_device_and_missing_kind_have_different_errors() {
    let with = |bad| catalog(&[("good", 0)], bad);
    let text = |catalog: &Catalog, name: &str| {
        catalog
            .find_definition(&name.parse().unwrap())
            .unwrap_err()
            .to_string()
    };
    let plain = with(&[]);
    assert_eq!(
        text(&plain, "w.com/gpu=0"),
        "no specification of kind w.com/gpu in /etc/cdi, /run/cdi"
    );
    assert_eq!(
        text(&plain, "v.com/gpu=7"),
        "kind v.com/gpu has no such device; it has 0"
    );
    let doubted = with(&[("bad", 0, None), ("other", 1, Some("x.com/gpu"))]);
    let expected = "no specification of kind w.com/gpu in /etc/cdi, /run/cdi; cannot be used: \
                bad: no good";
    assert_eq!(text(&doubted, "w.com/gpu=0"), expected);
}

#[test]
fn error_lists_only_the_first_devices() {
    let devices: Vec<_> = (0..99)
        .map(|number| device(&number.to_string(), Edits::default()))
        .collect();
    let mut catalog = Catalog::default();
    catalog.files.push(file("low", 0, "v.com/gpu", &devices));
    catalog.files.push(file("high", 1, "v.com/gpu", &devices));
    let error = catalog
        .find_definition(&"v.com/gpu=x".parse().unwrap())
        .unwrap_err();
    let expected = "kind v.com/gpu has no such device; it has 0, 1, 2, 3, 4, 5 and 93 more";
    assert_eq!(error.to_string(), expected);
}

const KINDS: [&str; 2] = ["v.com/gpu", "w.com/gpu"];

/// A file with one device, and the kind that is still known once it is broken.
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
        Self {
            path: number.to_string(),
            rank: random.index(3),
            kind,
            device,
            broken,
        }
    }

    fn put(&self, catalog: &mut Catalog, whole: bool) {
        match (&self.broken, whole) {
            (Some(kind), false) => {
                catalog
                    .files
                    .push(unusable(&self.path, self.rank, kind.clone()));
            }
            _ => {
                let device = device(&self.device, Edits::default());
                catalog
                    .files
                    .push(file(&self.path, self.rank, self.kind, &[device]));
            }
        }
    }
}

/// A name only ever resolves to a definition of the highest rank that defined it, and names that no
/// broken file can have meant resolve as before.
#[test]
fn breaking_files_revives_no_old_definition_and_hides_no_independent_one() {
    let mut random = Random::new(0x2545_f491_4f6c_dd1d);
    let mut seen = [0; 3];
    for _ in 0..3000 {
        let files: Vec<Written> = (0..1 + random.index(5))
            .map(|number| Written::random(&mut random, number))
            .collect();
        let mut before = Catalog::default();
        let mut after = Catalog::default();
        for file in &files {
            file.put(&mut before, true);
            file.put(&mut after, false);
        }
        for (kind, device) in KINDS.iter().flat_map(|kind| [(*kind, "0"), (*kind, "1")]) {
            let name = format!("{kind}={device}").parse().unwrap();
            let path = |catalog: &Catalog| {
                catalog
                    .find_definition(&name)
                    .ok()
                    .map(|(file, ..)| file.path.display().to_string())
            };
            let before = path(&before);
            let after = path(&after);
            let of_name = |file: &&Written| file.kind == kind && file.device == device;
            let highest = files.iter().filter(of_name).map(|file| file.rank).max();
            let is_matching = |found: &String| {
                files
                    .iter()
                    .any(|file| file.path == *found && Some(file.rank) == highest)
            };
            assert!(after.as_ref().is_none_or(is_matching), "{after:?}");
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

mod directories {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::super::*;
    use crate::testing::Scratch;

    /// A specification of `v.com/gpu` with these devices.
    fn json(devices: &[&str]) -> String {
        let device = |name: &&str| {
            format!(
                r#"{{"name":"{name}","containerEdits":{{"deviceNodes":[{{"path":"/dev/x"}}]}}}}"#
            )
        };
        let devices: Vec<String> = devices.iter().map(device).collect();
        let devices = devices.join(",");
        format!(r#"{{"cdiVersion":"0.6.0","kind":"v.com/gpu","devices":[{devices}]}}"#)
    }

    /// A specification of `v.com/gpu` with this device and this many bytes.
    fn padded(device: &str, bytes: usize) -> String {
        let text = json(&[device]);
        text.clone() + &" ".repeat(bytes - text.len())
    }

    fn scan(scratch: &Scratch, dirs: &[&str]) -> Result<Catalog, DeviceError> {
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let dirs: Vec<PathBuf> = dirs.iter().map(PathBuf::from).collect();
        Catalog::read(&tree, &dirs)
    }

    /// The file whose definition of a device counts.
    fn file_of(catalog: &Catalog, device: &str) -> Option<PathBuf> {
        let name = format!("v.com/gpu={device}").parse().unwrap();
        catalog
            .find_definition(&name)
            .ok()
            .map(|(file, ..)| file.path.clone())
    }

    /// Parses all files, and returns the unusable ones with their faults.
    fn unusable(catalog: &Catalog) -> Vec<(String, String)> {
        let fault = |file: &SpecFile| {
            Some((
                file.path.display().to_string(),
                file.parse_spec().err()?.why.clone(),
            ))
        };
        catalog.files.iter().filter_map(fault).collect()
    }

    #[test]
    fn specifications_are_files_of_the_directory_itself_with_known_extensions() {
        let scratch = Scratch::new();
        let read = ["a.json", ".hidden.json", ".json", "x.tmp.json"];
        let others = [
            "a.yml",
            "b.JSON",
            "c.Yaml",
            "d.json.tmp",
            "json",
            "e.json5",
            "sub/f.json",
        ];
        for (number, name) in read.into_iter().chain(others).enumerate() {
            scratch.file(&format!("etc/cdi/{name}"), &json(&[&number.to_string()]));
        }
        let catalog = scan(&scratch, &["/etc/cdi"]).unwrap();
        for (number, name) in read.iter().enumerate() {
            let path = Path::new("/etc/cdi").join(name);
            assert_eq!(file_of(&catalog, &number.to_string()), Some(path));
        }
        for number in read.len()..read.len() + others.len() {
            assert_eq!(file_of(&catalog, &number.to_string()), None, "{number}");
        }
        assert_eq!(unusable(&catalog), []);
    }

    #[test]
    fn last_directory_ranks_highest_and_missing_one_is_empty() {
        let scratch = Scratch::new();
        scratch.file("etc/cdi/a.json", &json(&["0", "1"]));
        scratch.file("run/cdi/a.json", &json(&["1"]));
        let catalog = scan(&scratch, &["/etc/cdi", "/none/cdi", "/run/cdi"]).unwrap();
        assert_eq!(file_of(&catalog, "0"), Some("/etc/cdi/a.json".into()));
        assert_eq!(file_of(&catalog, "1"), Some("/run/cdi/a.json".into()));
        let other_catalog = scan(&scratch, &["/run/cdi", "/etc/cdi"]).unwrap();
        assert_eq!(file_of(&other_catalog, "1"), Some("/etc/cdi/a.json".into()));
    }

    #[test]
    fn untrusted_or_unreadable_directory_fails_every_name() {
        let scratch = Scratch::new();
        scratch.file("etc/cdi/a.json", &json(&["0"]));
        scratch.file("run/file", "");
        symlink("../etc/cdi", scratch.path().join("run/link")).unwrap();
        scratch.dir("run/open");
        scratch.mode("run/open", 0o777);
        for (dir, cause) in [
            ("/run/file", Distrust::Open(Errno::ENOTDIR)),
            ("/run/link", Distrust::Open(Errno::ENOTDIR)),
            ("/run/open", Distrust::Writable(0o777)),
            ("/run/../etc/cdi", Distrust::OutsideAnchor),
        ] {
            let fault = scan(&scratch, &[dir, "/etc/cdi"]).unwrap_err();
            let text = fault.to_string();
            assert!(
                text.contains(dir) && text.contains(&cause.to_string()),
                "{text}"
            );
        }
    }

    #[test]
    fn untrusted_file_is_unusable_and_has_no_kind() {
        let scratch = Scratch::new();
        scratch.file("etc/cdi/a.json", &json(&["0"]));
        scratch.file("run/cdi/open.json", "");
        scratch.mode("run/cdi/open.json", 0o666);
        scratch.file("run/one", "");
        let bad = |name: &str| scratch.path().join("run/cdi").join(name);
        std::fs::hard_link(scratch.path().join("run/one"), bad("two.json")).unwrap();
        symlink("/etc/cdi/a.json", bad("link.json")).unwrap();
        symlink("nowhere", bad("gone.json")).unwrap();
        std::fs::create_dir(bad("sub.json")).unwrap();
        let catalog = scan(&scratch, &["/etc/cdi", "/run/cdi"]).unwrap();
        let trust = |name: &str, cause: Distrust| (format!("/run/cdi/{name}"), cause.to_string());
        let expected = [
            trust("gone.json", Distrust::Open(Errno::ELOOP)),
            trust("link.json", Distrust::Open(Errno::ELOOP)),
            trust("open.json", Distrust::Writable(0o666)),
            trust("sub.json", Distrust::NotRegular),
            trust("two.json", Distrust::SeveralNames(2)),
        ];
        for each_expected in &expected {
            assert!(unusable(&catalog).contains(each_expected), "{expected:?}");
        }
        assert_eq!(file_of(&catalog, "0"), None);
    }

    #[test]
    fn file_whose_name_is_no_utf_8_is_unusable_and_not_missing() {
        let scratch = Scratch::new();
        let dir = scratch.dir("etc/cdi");
        std::fs::write(dir.join(OsStr::from_bytes(b"\xff.json")), json(&["0"])).unwrap();
        let catalog = scan(&scratch, &["/etc/cdi"]).unwrap();
        assert_eq!(
            unusable(&catalog),
            [(
                "/etc/cdi/\u{fffd}.json".to_owned(),
                "the name is no UTF-8".to_owned()
            )]
        );
    }

    #[test]
    fn file_removed_after_the_listing_is_ignored() {
        let scratch = Scratch::new();
        let path = scratch.dir("etc/cdi");
        let mut catalog = Catalog::default();
        let dir = scratch.trust().dir(&path).unwrap();
        catalog.add_file(&dir, "a.json", Format::Json, path.join("a.json"), 0);
        assert_eq!(catalog.files.len(), 0);
    }

    #[test]
    fn broken_file_overrides_its_kind_and_truncated_one_all_kinds() {
        let scratch = Scratch::new();
        scratch.file("etc/cdi/a.json", &json(&["0"]));
        let broken = json(&["0"]).replace("cdiVersion", "version");
        scratch.file("run/cdi/b.json", &broken.replace("v.com", "w.com"));
        let dirs = ["/etc/cdi", "/run/cdi"];
        assert!(file_of(&scan(&scratch, &dirs).unwrap(), "0").is_some());
        for text in [broken.as_str(), broken.trim_end_matches('}'), "", "[]"] {
            scratch.file("run/cdi/b.json", text);
            let catalog = scan(&scratch, &dirs).unwrap();
            assert_eq!(file_of(&catalog, "0"), None, "{text:?}");
            let fault = Spec::parse(text.as_bytes(), Format::Json)
                .unwrap_err()
                .to_string();
            assert_eq!(
                unusable(&catalog),
                [("/run/cdi/b.json".to_owned(), fault)],
                "{text:?}"
            );
        }
    }

    #[test]
    fn names_and_files_of_a_directory_are_bounded() {
        let scratch = Scratch::new();
        for number in 0..=FILES_MAX {
            scratch.file(&format!("etc/cdi/{number}.json"), "");
        }
        let crowded = scan(&scratch, &["/etc/cdi"]).unwrap_err().to_string();
        assert!(
            crowded.starts_with("/etc/cdi: holds 1025 specifications, more than 1024"),
            "{crowded}"
        );
        std::fs::remove_file(scratch.path().join("etc/cdi/0.json")).unwrap();
        assert_eq!(
            scan(&scratch, &["/etc/cdi"]).unwrap().files.len(),
            FILES_MAX
        );
        for number in 0..=NAMES_MAX {
            std::fs::write(scratch.dir("run/cdi").join(number.to_string()), "").unwrap();
        }
        let fault = scan(&scratch, &["/run/cdi"]).unwrap_err();
        let other_crowded = Distrust::TooManyNames(NAMES_MAX).to_string();
        assert!(fault.to_string().contains(&other_crowded), "{fault}");
    }

    /// Drivers of claims write one file for each, and leave some behind.
    #[test]
    fn stale_files_of_other_kinds_are_not_parsed() {
        let scratch = Scratch::new();
        let device = padded("0", 200);
        let stale = "---\ncdiVersion: 0.5.0\nkind: k8s.gpu.nvidia.com/claim\ndevices:\n- name: x\n  \
                     containerEdits: [\n";
        for number in 0..1000 {
            scratch.file(
                &format!("run/cdi/k8s.gpu.nvidia.com-claim_{number}.yaml"),
                stale,
            );
        }
        for path in ["etc/cdi/a.json", "run/cdi/a.json"] {
            scratch.file(path, &device);
            let catalog = scan(&scratch, &["/etc/cdi", "/run/cdi"]).unwrap();
            assert_eq!(file_of(&catalog, "0"), Some(format!("/{path}").into()));
            let parsed = catalog
                .files
                .iter()
                .filter(|file| file.parsed.get().is_some());
            assert_eq!(parsed.count(), 1, "{path}");
            std::fs::remove_file(scratch.path().join(path)).unwrap();
        }
    }

    #[test]
    fn broken_file_overrides_only_the_kind_in_its_name_or_text() {
        let scratch = Scratch::new();
        scratch.file("etc/cdi/a.json", &json(&["0"]));
        let counts = || {
            let catalog = scan(&scratch, &["/etc/cdi", "/run/cdi"]).unwrap();
            file_of(&catalog, "0").is_some()
        };
        for (name, text, is_other) in [
            ("w.com-gpu.json", "{", true),
            ("w.com-gpu_7.json", "{\"kind\": \"w.com/gpu\"", true),
            ("w.com-gpu.json", "{\"kind\": \"v.com/gpu\"", false),
            ("w.com-gpu.json", "{\"kind\": \"v.com\\/gpu\"", false),
            ("v.com-gpu.json", "{", false),
            ("v.com-gpu_7.json", "{", false),
            ("v.com-gpux.json", "{", true),
            ("w-gpu.json", "{", false),
        ] {
            let path = format!("run/cdi/{name}");
            scratch.file(&path, text);
            assert_eq!(counts(), is_other, "{name}: {text}");
            std::fs::remove_file(scratch.path().join(path)).unwrap();
        }
        let latin_1 = scratch.path().join("run/cdi/w.com-gpu.json");
        std::fs::write(latin_1, b"{\"kind\": \"v.com/gpu\", \"a\": \"\xe4").unwrap();
        assert!(!counts());
    }

    #[test]
    fn bytes_of_a_file_are_bounded() {
        let scratch = Scratch::new();
        let limit = Format::Json.bytes_max();
        scratch.file("etc/cdi/a.json", &padded("0", limit));
        assert!(file_of(&scan(&scratch, &["/etc/cdi"]).unwrap(), "0").is_some());
        scratch.file("etc/cdi/a.json", &padded("0", limit + 1));
        let catalog = scan(&scratch, &["/etc/cdi"]).unwrap();
        let larger = Distrust::TooLarge(limit as u64).to_string();
        assert_eq!(unusable(&catalog), [("/etc/cdi/a.json".to_owned(), larger)]);
    }

    #[test]
    fn bytes_of_all_files_are_bounded_and_the_lowest_rank_is_cut_first() {
        let scratch = Scratch::new();
        for name in ["a", "b", "c", "d"] {
            scratch.file(
                &format!("etc/cdi/{name}.json"),
                &padded(name, Format::Json.bytes_max()),
            );
        }
        scratch.file("etc/cdi/e.json", "");
        scratch.mode("etc/cdi/e.json", 0o666);
        scratch.file("run/cdi/f.json", &json(&["f"]));
        let catalog = scan(&scratch, &["/etc/cdi", "/run/cdi"]).unwrap();
        // The last file is not opened any more.
        let why = format!("the specifications have more than {BYTES_MAX} bytes in all");
        let cut = ["d", "e"].map(|name| (format!("/etc/cdi/{name}.json"), why.clone()));
        assert_eq!(unusable(&catalog), cut);
        for name in ["a", "b", "c", "f"] {
            assert!(file_of(&catalog, name).is_some(), "{name}");
        }
    }

    #[test]
    fn only_files_that_can_matter_are_parsed() {
        let scratch = Scratch::new();
        scratch.file("etc/cdi/low.json", "{");
        scratch.file("run/cdi/a.json", &json(&["0"]));
        scratch.file("run/cdi/b.json", "{");
        scratch.file("run/cdi/c.json", "{ v.com/gpu");
        scratch.file("run/cdi/d.json", "{ v.com/gpu1 x-v.com/gpu");
        let catalog = scan(&scratch, &["/etc/cdi", "/run/cdi"]).unwrap();
        assert_eq!(file_of(&catalog, "0"), Some("/run/cdi/a.json".into()));
        let parsed = |scanned: &Catalog| -> Vec<_> {
            scanned
                .faults()
                .map(|fault| fault.split_once(": ").unwrap().0.to_owned())
                .collect()
        };
        assert_eq!(parsed(&catalog), ["/run/cdi/c.json"], "names the kind");
        assert_eq!(file_of(&catalog, "1"), None);
        assert_eq!(parsed(&catalog).len(), 4, "why it is missing is told");
        // Every file that could override a definition is parsed.
        let other_catalog = scan(&scratch, &["/run/cdi", "/etc/cdi"]).unwrap();
        assert_eq!(file_of(&other_catalog, "0"), None);
        assert_eq!(
            parsed(&other_catalog),
            ["/etc/cdi/low.json", "/run/cdi/c.json"]
        );
    }

    #[test]
    fn kind_counts_in_every_spelling() {
        let scratch = Scratch::new();
        let yaml = "cdiVersion: 0.6.0\nkind: KIND\ndevices: [{name: x, containerEdits: \
                    {deviceNodes: [{path: /dev/x}]}}]\n";
        for kind in [
            "v.com/gpu",
            "'v.com/gpu'",
            r#""v.com\x2fgpu""#,
            r#""v.\u0063om/gp\165""#,
        ] {
            scratch.file("etc/cdi/a.yaml", &yaml.replace("KIND", kind));
            let known = !kind.ends_with("165\"");
            let found = file_of(&scan(&scratch, &["/etc/cdi"]).unwrap(), "x").is_some();
            assert_eq!(found, known, "{kind}");
        }
        for kind in ["v.com\\/gpu", "v.com/\\u0067pu"] {
            scratch.file("run/cdi/a.json", &json(&["y"]).replace("v.com/gpu", kind));
            assert!(
                file_of(&scan(&scratch, &["/run/cdi"]).unwrap(), "y").is_some(),
                "{kind}"
            );
        }
    }
}
