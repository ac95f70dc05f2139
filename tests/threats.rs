//! Every promise of docs/threats.md names tests that exist.
#![allow(
    clippy::unwrap_used,
    reason = "a test that fails has to say so at once"
)]
#![forbid(unsafe_code)]

use std::path::Path;

const THREATS: &str = include_str!("../docs/threats.md");

/// Returns whether `module::path::name` is a test of tests/ or beside the code.
fn exists(test: &str) -> bool {
    let (module, name) = test.rsplit_once("::").unwrap();
    let module = module.replace("::", "/");
    let places = [
        "tests/native/M.rs",
        "tests/M.rs",
        "src/M.rs",
        "src/M/mod.rs",
        "src/M/tests.rs",
    ];
    places.iter().any(|place| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(place.replace('M', &module));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // Tests that need another kernel have a second attribute, by which they are ignored.
        let declaration = |rest: &'_ str| {
            rest.lines()
                .map(str::trim_start)
                .find(|line| !line.starts_with("#["))
                .map(str::to_owned)
        };
        let start = format!("fn {name}(");
        text.split("#[test]\n")
            .skip(1)
            .any(|rest| declaration(rest).is_some_and(|line| line.starts_with(&start)))
    })
}

#[test]
fn every_promise_names_tests_that_exist() {
    let table = THREATS.split("## What is promised").nth(1).unwrap();
    let table = table.split("\n## ").next().unwrap();
    // Each group is a table: its head names the group, and each further row has one promise.
    let rows = table
        .lines()
        .filter(|line| line.contains(" | ") && !line.ends_with(" | tests"));
    let rows: Vec<&str> = rows.collect();
    assert!(rows.len() >= 75, "{} promises", rows.len());
    for row in rows {
        let tests = row.rsplit(" | ").next().unwrap();
        let tests: Vec<&str> = tests
            .split(", ")
            .map(|test| test.trim_matches('`'))
            .collect();
        for test in tests {
            assert!(test.contains("::") && exists(test), "{test}: {row}");
        }
    }
}
