//! job-adopt(1) names no option that there is not; pam_job_adopt(8) names the arguments
//! that the module knows, docs/migrate.md those of pam_slurm_adopt, and job_adopt.conf(5) the keys of the
//! configuration.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails has to say so at once"
)]
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

const PAGE: &str = include_str!("../docs/man/job-adopt.1");
const MODULE_PAGE: &str = include_str!("../docs/man/pam_job_adopt.8");
const CONFIG_PAGE: &str = include_str!("../docs/man/job_adopt.conf.5");
const RECORD_PAGE: &str = include_str!("../docs/man/job-adopt-record.5");
const MIGRATE: &str = include_str!("../docs/migrate.md");
const ARGUMENTS: &str = include_str!("../src/module/settings.rs");

/// The options that a text names, with roff's minus signs or without.
fn options(text: &str) -> BTreeSet<String> {
    let text = text.replace("\\-", "-").replace("\\fR", " ");
    let letter = |c: char| c.is_ascii_lowercase() || c == '-';
    let words = text.split(|c| !letter(c)).filter(|word| word.len() > 2);
    words.filter(|word| word.starts_with("--")).map(str::to_owned).collect()
}

/// The lines of a section.
fn section(name: &str) -> String {
    let body = PAGE.split(&format!(".SH {name}\n")).nth(1).unwrap();
    body.split("\n.SH ").next().unwrap().to_owned()
}

#[test]
fn every_option_that_the_page_names_is_declared() {
    let known = options(&section("OPTIONS"));
    assert!(known.len() > 20, "{known:?}");
    let unknown: Vec<_> = options(PAGE).into_iter().filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// The names of the module's arguments, but for those that were removed; of some origins alone.
fn arguments_of(origins: &[&str]) -> BTreeSet<String> {
    let table = ARGUMENTS.split("\narguments! {\n").nth(1).unwrap();
    let table = table.split("\n    removed {\n").next().unwrap();
    let rows = table.lines().map(str::trim_start);
    let of =
        |line: &&str| line.split_once(" \"").is_some_and(|(origin, _)| origins.contains(&origin));
    let rows = rows.filter(of);
    rows.map(|row| row.split('"').nth(1).unwrap().to_owned()).collect()
}

fn arguments() -> BTreeSet<String> {
    let known = arguments_of(&["Slurm", "Ours"]);
    assert!(known.len() >= 20 && known.contains("single_job_skip_rpc"), "{known:?}");
    known
}

#[test]
fn every_argument_of_the_module_is_in_its_page() {
    let page = MODULE_PAGE.split(".SH OPTIONS\n").nth(1).unwrap();
    let page = page.split("\n.SH ").next().unwrap().replace("\\-", "-");
    let entries: Vec<&str> =
        page.split(".TP\n").skip(1).map(|entry| entry.lines().next().unwrap()).collect();
    for name in arguments() {
        let is_entry = |entry: &&str| {
            let word = entry.split_whitespace().nth(1).unwrap_or_default();
            word.trim_end_matches('=') == name
        };
        assert!(entries.iter().any(is_entry), "{name}");
    }
}

#[test]
fn every_argument_of_pam_slurm_adopt_is_in_the_table_for_the_change() {
    let table = MIGRATE.split("\n## Options\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let first = |row: &str| row.trim_start_matches("| ").split(" | ").next().unwrap().to_owned();
    let named: BTreeSet<String> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|row| {
            let cell = first(row);
            cell.split(", ").map(|name| name.trim_matches('`').to_owned()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(named, arguments_of(&["Slurm"]));
}

#[test]
fn every_key_of_the_configuration_is_in_its_page() {
    for key in pam_job_adopt::helper::Config::keys() {
        assert!(CONFIG_PAGE.contains(&format!(".TP\n.B {key}\n")), "{key}");
    }
}

#[test]
fn every_variable_that_a_record_keeps_is_in_its_page() {
    for name in pam_job_adopt::helper::records::Environment::NAMES {
        assert!(RECORD_PAGE.contains(name), "{name}");
    }
}

/// The names of checks in the sources of `check`: constants of the type `Check`.
fn checks(folder: &std::path::Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            checks(&path, names);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let own = code.split(": Check = \"").skip(1);
        names.extend(own.map(|rest| rest.split('"').next().unwrap().to_owned()));
    }
}

#[test]
fn every_check_has_an_entry_and_every_entry_is_a_check() {
    let mut known = BTreeSet::new();
    checks(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/admin/check"), &mut known);
    assert!(known.contains("pam-session"), "{known:?}");
    let section = section("CHECKS").replace("\\-", "-");
    let table = section.split("\n.nf\n").nth(1).unwrap().split("\n.fi").next().unwrap();
    let mut described = BTreeSet::new();
    for line in table.lines() {
        let (names, _) = line.split_once("  ").unwrap();
        for name in names.split(", ") {
            assert!(described.insert(name.to_owned()), "{name} stands twice");
        }
    }
    assert_eq!(described, known);
}
