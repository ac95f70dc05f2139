//! The licences of all crates that a release contains: debian/copyright and the rpm name them as the
//! crates themselves do.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails has to say so at once"
)]
#![forbid(unsafe_code)]

#[path = "skipped/notes.rs"]
mod notes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A licence expression: of each inner set one licence may be chosen, and all sets hold.
type Terms = BTreeSet<BTreeSet<String>>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Parses an expression of Cargo, of rpm or of debian/copyright.
fn terms(expression: &str) -> Terms {
    let plain = expression
        .replace(['(', ')'], "")
        .replace(", and ", " AND ")
        .replace('/', " or ");
    let plain = plain.replace(" OR ", " or ");
    let choices = plain.split(" AND ");
    choices
        .map(|choice| {
            choice
                .split(" or ")
                .map(|name| name.trim().to_owned())
                .collect()
        })
        .collect()
}

/// Lists third-party crates by name, with the licence of each.
///
/// # Errors
///
/// What cargo reports, if it does not have one of these crates.
fn crates(options: &[&str]) -> Result<BTreeMap<String, Terms>, String> {
    let cargo = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--workspace", "--prefix", "none"])
        .args(["--format", "{p}|{l}"])
        .args(options)
        .current_dir(root())
        .output()
        .unwrap();
    if !cargo.status.success() {
        return Err(String::from_utf8_lossy(&cargo.stderr).into_owned());
    }
    let text = String::from_utf8(cargo.stdout).unwrap();
    // A crate of this workspace has its path behind the version.
    let lines = text
        .lines()
        .filter(|line| !line.contains(&root().display().to_string()));
    let rows = lines.filter_map(|line| line.split_once('|'));
    let rows = rows.map(|(name, licence)| {
        let name = name.split(' ').next().unwrap().to_owned();
        (name, terms(licence.trim_end_matches(" (*)")))
    });
    Ok(rows.collect())
}

/// Lists the crates of every system, which cargo fetches if it compiled for this one alone so far. Without a network it
/// lists those of this system, and notes that.
fn crates_of_all_systems() -> BTreeMap<String, Terms> {
    crates(&["--edges", "all", "--target", "all"]).unwrap_or_else(|error| {
        let required = std::env::var("JOB_ADOPT_TESTS").as_deref() == Ok("all");
        assert!(!required, "{error}");
        notes::add("needs a network, by which cargo fetches the crates of other systems");
        crates(&["--edges", "all", "--offline"]).unwrap()
    })
}

/// Lists the crates of debian/copyright, with the licence of each.
fn crates_of_copyright(text: &str) -> BTreeMap<String, Terms> {
    let mut found = BTreeMap::new();
    for paragraph in text
        .split("\n\n")
        .filter(|paragraph| paragraph.starts_with("Files:"))
    {
        let (files, rest) = paragraph.split_once("\nCopyright:").unwrap();
        let licence = rest
            .split_once("\nLicense: ")
            .unwrap()
            .1
            .lines()
            .next()
            .unwrap();
        for pattern in files.split_whitespace() {
            if let Some(name) = pattern.strip_prefix("vendor/") {
                let name = name.strip_suffix("-*").unwrap().to_owned();
                assert!(
                    found.insert(name, terms(licence)).is_none(),
                    "{pattern} stands twice"
                );
            }
        }
    }
    found
}

/// Cargo.lock names every crate, and `vendor/` of a release has them all.
#[test]
fn copyright_of_debian_names_each_crate_with_its_licence() {
    let text = fs::read_to_string(root().join("debian/copyright")).unwrap();
    let all = crates_of_all_systems();
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let locked = lock
        .split("[[package]]")
        .filter(|package| package.contains("\nsource = "));
    let locked: BTreeSet<_> = locked
        .map(|package| package.split('"').nth(1).unwrap().to_owned())
        .collect();
    assert!(locked.len() > 40, "{locked:?}");
    assert_eq!(
        crates_of_copyright(&text)
            .keys()
            .cloned()
            .collect::<BTreeSet<_>>(),
        locked
    );
    let named = crates_of_copyright(&text);
    for (name, licence) in &all {
        assert_eq!(named.get(name), Some(licence), "{name}");
    }
    let licences: BTreeSet<&String> = named.values().flatten().flatten().collect();
    for licence in licences {
        assert!(
            text.contains(&format!("\nLicense: {licence}\n ")),
            "the text of {licence}"
        );
    }
}

#[test]
fn rpm_names_the_licences_of_all_linked_and_build_crates() {
    let spec = fs::read_to_string(root().join("packaging/rpm/job-adopt.spec")).unwrap();
    let named = spec
        .lines()
        .find_map(|line| line.strip_prefix("License:"))
        .unwrap();
    let mut built = terms("MIT OR Apache-2.0");
    let crates = crates(&["--edges", "normal,build", "--offline"]).unwrap();
    built.extend(crates.into_values().flatten());
    assert_eq!(terms(named.trim()), built);
}

/// Fedora asks for `bundled(crate(NAME)) = VERSION` for each crate that a program of the package contains.
#[test]
fn rpm_provides_the_bundled_crates_of_each_package() {
    let spec = fs::read_to_string(root().join("packaging/rpm/job-adopt.spec")).unwrap();
    let spec = spec.replace("\\\n", " ");
    let listed = |name: &str| -> BTreeSet<String> {
        let prefix = format!("%global {name} ");
        let list = spec
            .lines()
            .find_map(|line| line.strip_prefix(&prefix))
            .unwrap();
        list.split_whitespace().map(ToOwned::to_owned).collect()
    };
    let mut command = listed("command_crates");
    assert!(command.remove("%{login_crates}"));
    command.extend(listed("login_crates"));
    assert_eq!(
        listed("login_crates"),
        linked_crates(&["pam", "keeper", "helper"])
    );
    assert_eq!(command, linked_crates(&["admin"]));
    for (package, list) in [
        ("Recommends:     pam_job_adopt", "command"),
        ("%description -n pam_job_adopt\n", "login"),
    ] {
        let preamble = spec.split_once(package).unwrap().0;
        let last = preamble.rsplit("%{lua: bundle(").next().unwrap();
        assert!(
            last.starts_with(&format!("\"%{list}_crates\")}}")),
            "{package}"
        );
    }
}

/// Lists the third-party crates that these packages of the workspace link, each `NAME=VERSION`.
fn linked_crates(packages: &[&str]) -> BTreeSet<String> {
    let cargo = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--offline",
            "--edges",
            "normal,no-proc-macro",
        ])
        .args(["--prefix", "none", "--format", "{p}"])
        .args(packages.iter().flat_map(|package| ["--package", package]))
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        cargo.status.success(),
        "{}",
        String::from_utf8_lossy(&cargo.stderr)
    );
    let text = String::from_utf8(cargo.stdout).unwrap();
    // A crate of this workspace has its path behind the version.
    let third_party = text
        .lines()
        .filter(|line| !line.is_empty() && !line.contains("(/"));
    third_party
        .map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap();
            format!("{name}={}", words.next().unwrap().trim_start_matches('v'))
        })
        .collect()
}

#[test]
fn expressions_are_compared_by_meaning() {
    assert_eq!(terms("MIT/Apache-2.0"), terms("Apache-2.0 OR MIT"));
    assert_eq!(
        terms("(MIT OR Apache-2.0) AND X"),
        terms("Apache-2.0 or MIT, and X")
    );
    assert_ne!(terms("MIT"), terms("MIT OR Unlicense"));
}
