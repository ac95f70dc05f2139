//! job-adopt(1) and `--help` name the same options.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails has to say so at once"
)]
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::process::Command;

const PAGE: &str = include_str!("../docs/man/job-adopt.1");
const COMMANDS: [&str; 6] = ["run", "register", "unregister", "list", "resolve", "devices"];
const DEVICE_OPTIONS: [&str; 5] = ["--device", "--cdi", "--gpu", "--gres", "--device-dir"];

fn help(command: Option<&str>) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_job-adopt"));
    let output = program.args(command).arg("--help").output().unwrap();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}

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

/// The options that have a paragraph of their own in a section.
fn entries(name: &str) -> BTreeSet<String> {
    let section = section(name);
    section
        .split(".TP\n")
        .skip(1)
        .flat_map(|entry| options(entry.lines().next().unwrap()))
        .collect()
}

#[test]
fn every_option_has_an_entry_and_every_entry_is_an_option() {
    let mut helped = options(&help(None));
    helped.extend(COMMANDS.iter().flat_map(|command| options(&help(Some(command)))));
    let mut described = entries("JOB OPTIONS");
    described.extend(entries("OTHER OPTIONS"));
    assert_eq!(described, helped);
}

#[test]
fn the_synopsis_of_a_command_names_its_options() {
    let synopsis = section("SYNOPSIS");
    let jobs = entries("JOB OPTIONS");
    for command in COMMANDS {
        let line = |part: &&str| part.starts_with(&format!(".B job\\-adopt {command}"));
        let line = synopsis.split(".br\n").find(line).unwrap();
        let mut named = options(line);
        if line.contains("job options") {
            named.extend(jobs.iter().cloned());
        }
        if line.contains("device options") {
            named.extend(DEVICE_OPTIONS.map(str::to_owned));
        }
        let mut helped = options(&help(Some(command)));
        helped.remove("--help");
        let unnamed: Vec<_> = helped.difference(&named).collect();
        assert!(unnamed.is_empty(), "{command}: {unnamed:?}");
        let unknown: Vec<_> = options(line).difference(&helped).cloned().collect();
        assert!(unknown.is_empty(), "{command}: {unknown:?}");
    }
}
