//! Conditions of the fuzz targets in `fuzz/`.
#![allow(
    clippy::unwrap_used,
    reason = "a test that fails has to say so at once"
)]
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use helper::Config;
use helper::jobs::records::Record;
use module::{ArgumentOrigin, Settings};
use protocol::{Reply, Request, VERSION, Verdict};
use serde_json::Value;

/// Maximum number of files in a corpus. Every `make test-stress` runs all of them.
const CORPUS_MAX: usize = 50;
/// Maximum bytes of a file.
const FILE_MAX: u64 = 16 * 1024;

fn list_folder(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect()
}

fn stems(folder: &str) -> BTreeSet<String> {
    list_folder(folder)
        .iter()
        .map(|path| path.file_stem().unwrap().to_str().unwrap().into())
        .collect()
}

#[test]
fn each_corpus_is_small_and_has_a_target() {
    let targets = stems("fuzz/src/bin");
    assert_eq!(stems("fuzz/corpus"), targets);
    assert!(stems("fuzz/dictionaries").is_subset(&targets));
    for target in targets {
        let files = list_folder(&format!("fuzz/corpus/{target}"));
        assert!(
            (1..=CORPUS_MAX).contains(&files.len()),
            "{target}: {} files",
            files.len()
        );
        for file in files {
            let size = file.metadata().unwrap().len();
            assert!(size <= FILE_MAX, "{}: {size} bytes", file.display());
        }
    }
}

/// The targets are a package with its own versions. They test the shipped code only if these agree, in
/// every crate that both have: no target reads a command line.
#[test]
fn fuzzed_crates_have_shipped_versions() {
    let name = |package: &String| package.split(' ').next().unwrap().to_owned();
    let fuzzed = locked_crates("fuzz/Cargo.lock");
    let names: BTreeSet<String> = fuzzed.iter().map(name).collect();
    let mut shipped = shipped_crates();
    shipped.retain(|package| names.contains(&name(package)));
    let missing: Vec<&String> = shipped.difference(&fuzzed).collect();
    assert!(
        shipped.len() > 10 && missing.is_empty(),
        "not in fuzz/Cargo.lock: {missing:?}"
    );
}

/// Lists the third-party crates that the programs are built from, each `NAME vVERSION`.
fn shipped_crates() -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--offline",
            "--workspace",
            "--edges",
            "normal,build",
        ])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    // A crate of the workspace has its path behind the version, a macro its kind.
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.contains("(/"));
    lines
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .collect()
}

/// Lists the third-party crates of a lock file, each `NAME vVERSION`.
fn locked_crates(lock: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(lock);
    let text = std::fs::read_to_string(path).unwrap();
    // A crate without a source belongs to the workspace.
    let packages = text
        .split("[[package]]")
        .filter(|package| package.contains("\nsource = "));
    packages
        .map(|package| {
            let mut words = package.split('"').skip(1).step_by(2);
            format!("{} v{}", words.next().unwrap(), words.next().unwrap())
        })
        .collect()
}

fn read_corpus(target: &str) -> Vec<Vec<u8>> {
    list_folder(&format!("fuzz/corpus/{target}"))
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

/// A fuzzer that starts with refused inputs alone never gets further.
#[test]
fn corpora_have_accepted_inputs() {
    let versioned =
        |bytes: &Vec<u8>| [b"version\0s", VERSION.as_bytes(), b"\0", bytes.as_slice()].concat();
    let requests = read_corpus("request");
    let taken = requests
        .iter()
        .filter_map(|bytes| Request::decode(&versioned(bytes)).ok());
    let taken: Vec<Request> = taken.collect();
    assert!(
        taken.iter().any(|request| !request.unit.is_empty()),
        "no request with a unit"
    );
    let replies = read_corpus("reply");
    let replies = replies
        .iter()
        .filter_map(|bytes| Reply::decode(&versioned(bytes)).ok());
    let mut words = BTreeSet::new();
    for reply in replies {
        words.insert(reply.verdict.as_str());
        if let Verdict::Admit(plan) = &reply.verdict {
            words.extend([plan.placement.as_str(), plan.containment.as_str()]);
        }
    }
    let all = "admit enforce flux inherit inherit+enforce none not-enforced refuse registry slurm";
    assert_eq!(words, all.split(' ').collect());
    let every = std::fs::read("fuzz/corpus/config/every-key").unwrap();
    Config::parse(&every).unwrap();
    let text = String::from_utf8(every).unwrap();
    for key in Config::keys() {
        assert!(text.contains(key), "{key}");
        let dictionary = std::fs::read_to_string("fuzz/dictionaries/config").unwrap();
        assert!(
            dictionary.contains(&format!("\"{key}\"")),
            "{key} is not in the dictionary"
        );
    }
}

/// A fuzzer that never meets a word finds no fault behind it.
#[test]
fn dictionaries_have_every_argument_and_every_key_of_a_record() {
    let arguments = std::fs::read_to_string("fuzz/dictionaries/arguments").unwrap();
    for origin in [ArgumentOrigin::Slurm, ArgumentOrigin::Ours] {
        for name in Settings::names(origin) {
            let words = [format!("\"{name}\""), format!("\"{name}=")];
            let is_there = words.iter().any(|word| arguments.contains(word));
            assert!(is_there, "{name} is not in the dictionary of arguments");
        }
    }
    let records = std::fs::read_to_string("fuzz/dictionaries/record").unwrap();
    for key in declared_record_keys() {
        assert!(
            records.contains(&format!("\"\\\"{key}\\\"")),
            "{key} is not in the dictionary of records"
        );
    }
}

/// Lists the keys of a record from its declaration, by the error for another one.
fn declared_record_keys() -> Vec<String> {
    let error = Record::parse(br#"{"nonesuch":0}"#).unwrap_err().to_string();
    let (_, declared) = error.split_once("expected one of ").unwrap();
    let keys = declared.split('`').skip(1).step_by(2);
    keys.map(str::to_owned).collect()
}

#[test]
fn dictionary_of_records_has_keys_of_device_numbers() {
    let dictionary = std::fs::read_to_string("fuzz/dictionaries/record").unwrap();
    let bytes = std::fs::read("fuzz/corpus/record/resolved").unwrap();
    let record = Record::parse(&bytes).unwrap();
    assert_eq!(record.to_json().unwrap().as_bytes(), bytes);
    let written: Value = serde_json::from_slice(&bytes).unwrap();
    let numbers = &written["resolved"];
    let objects = [&written, numbers, &numbers["gpus"][0]];
    let keys: Vec<&String> = objects
        .iter()
        .flat_map(|object| object.as_object().unwrap().keys())
        .collect();
    assert_eq!(keys.len(), 6 + 5 + 4, "{keys:?}");
    for key in keys {
        assert!(
            dictionary.contains(&format!("\"\\\"{key}\\\"")),
            "{key} is not in the dictionary"
        );
    }
}
