//! Third-party crates: where they come from, their licences, and that each is there once.
//!
//! Advisories are not checked: their database is no crate, and a build may have no network.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a failing test must report at once"
)]
#![forbid(unsafe_code)]

use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// The only source of crates, as `Cargo.lock` spells it.
const SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Licences that let binaries be distributed under both licences of this project, as the crates spell
/// them. `debian/copyright` and the rpm's `License` name what these ask to be named.
const LICENCES: [&str; 8] = [
    "(MIT OR Apache-2.0) AND NCSA",
    "(MIT OR Apache-2.0) AND Unicode-3.0",
    "Apache-2.0 OR MIT",
    "MIT",
    "MIT OR Apache-2.0",
    "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
    "MIT/Apache-2.0",
    "Unlicense OR MIT",
];

/// The third-party crates that a lock file names.
fn third_party_crates(manifest: &str) -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--format-version", "1", "--manifest-path"])
        .arg(format!("{}/{manifest}", env!("CARGO_MANIFEST_DIR")))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter().cloned();
    let crates: Vec<_> = packages.filter(|package| !package["source"].is_null()).collect();
    assert!(crates.iter().any(|package| package["name"] == "libc"), "{manifest} names no crates");
    crates
}

#[test]
fn crates_come_from_one_source_with_known_licences() {
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        for package in third_party_crates(manifest) {
            let name = &package["name"];
            assert_eq!(package["source"], SOURCE, "{manifest}: {name}");
            let licence = package["license"].as_str().unwrap_or_default();
            assert!(LICENCES.contains(&licence), "{manifest}: {name} has the licence {licence:?}");
        }
    }
}

#[test]
fn each_crate_is_built_in_one_version() {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in third_party_crates("Cargo.toml") {
        let name = package["name"].as_str().unwrap().to_owned();
        versions.entry(name).or_default().push(package["version"].to_string());
    }
    versions.retain(|_, versions| versions.len() > 1);
    assert!(versions.is_empty(), "in several versions: {versions:?}");
}
