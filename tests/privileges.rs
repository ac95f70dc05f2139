//! The code of each privilege: third-party crates, unsafe code, and how much code can run as root.
//!
//! Cargo enforces the arrows between the rooms of `src`, and those without unsafe code have `forbid(unsafe_code)`.
//! The numbers are printed for review, without a limit.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a failing test must report at once"
)]
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each artifact, and the crate that contains all of it.
const ARTIFACTS: [(&str, &str); 4] = [
    ("module", "pam"),
    ("keeper", "keeper"),
    ("helper", "helper"),
    ("command", "admin"),
];
/// Crates that parse a grammar.
const PARSERS: [&str; 6] = [
    "clap",
    "saphyr-parser",
    "serde",
    "serde_json",
    "toml",
    "winnow",
];

/// Rooms whose code can run as root inside sshd.
const ROOT_ROOMS: [&str; 5] = ["pam", "module", "schedulers", "kernel", "protocol"];

#[test]
fn each_artifact_links_the_crates_that_the_page_lists() {
    let page = fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    let listed = lists(page.split("```").nth(1).unwrap());
    for (artifact, package) in ARTIFACTS {
        let linked = third_party_crates(package);
        println!("{artifact}: {} third-party crates", linked.len());
        assert_eq!(listed[artifact], linked, "{artifact}");
    }
    let parsers: Vec<_> = PARSERS
        .iter()
        .filter(|name| listed["module"].contains(**name))
        .collect();
    assert!(parsers.is_empty(), "root parses with {parsers:?}");
    assert!(
        PARSERS.iter().all(|name| listed["command"].contains(*name)),
        "a parser's name is wrong"
    );
}

/// What a name of a device means is decided by `register`, once: whoever writes a specification reaches no login.
#[test]
fn login_links_no_names_of_devices() {
    for (package, expected) in [
        ("pam", "kernel module pam protocol schedulers"),
        ("keeper", "keeper kernel protocol"),
        ("helper", "helper kernel protocol schedulers"),
    ] {
        assert_eq!(linked_rooms(package), words(expected), "{package}");
    }
    assert!(linked_crates("admin").contains("\nnaming v"));
    assert!(!third_party_crates("helper").contains("saphyr-parser"));
    // The package of the programs depends on all rooms.
    let program = fs::read_to_string(root().join("src/bin/helper.rs")).unwrap();
    let other_rooms = ["admin::", "keeper::", "naming::"];
    assert!(other_rooms.iter().all(|room| !program.contains(room)));
}

/// The wings of the command stand side by side on the facts, so that each is read and changed by itself.
#[test]
fn no_wing_of_the_command_links_another() {
    let wings = words("check explain jobs setup users");
    let shared = words("command facts helper keeper kernel module naming protocol schedulers");
    for wing in &wings {
        let mut linked = linked_rooms(wing);
        assert!(linked.remove(wing), "{wing}");
        assert!(linked.is_subset(&shared), "{wing}: {linked:?}");
    }
    // Its commands have their caller's rights: they call nothing of the keeper, of the facts or of what root runs.
    assert_eq!(
        linked_rooms("users"),
        words("command helper kernel module protocol schedulers users")
    );
    assert!(wings.is_subset(&linked_rooms("admin")));
    assert!(!linked_rooms("command").contains("facts"));
}

/// Returns the crates of this project that a package links.
fn linked_rooms(package: &str) -> BTreeSet<String> {
    let linked = linked_crates(package);
    let ours = linked.lines().filter(|line| line.contains("(/"));
    ours.filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Only tests judge filters by it; the command asks the kernel.
#[test]
fn no_artifact_has_the_interpreter_of_filters() {
    for (artifact, package) in ARTIFACTS {
        let linked = linked_crates(package);
        assert!(linked.contains("\nkernel v"), "{linked}");
        assert!(!linked.contains("interpreter v"), "{artifact}");
    }
}

/// The lints deny it everywhere else.
#[test]
fn unsafe_code_is_allowed_in_six_files() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("\nunsafe_code = \"deny\"\n"));
    let allows = |file: &PathBuf| code(file).contains("allow(unsafe_code)");
    let mut found: Vec<_> = sources(&root().join("src"))
        .into_iter()
        .filter(allows)
        .collect();
    found.sort();
    let src = root().join("src");
    let files = [
        "bin/helper.rs",
        "command/sys/mod.rs",
        "kernel/sys/mod.rs",
        "pam/lib.rs",
        "setup/sys/mod.rs",
        "users/sys/mod.rs",
    ];
    assert_eq!(found, files.map(|file| src.join(file)));
}

/// Lines count without comments, blank lines and tests.
#[test]
fn amount_of_code_is_printed() {
    let mut lines_of_root = 0;
    for entry in fs::read_dir(root().join("src")).unwrap() {
        let room = entry.unwrap();
        if !room.path().is_dir() {
            continue;
        }
        let name = room.file_name().into_string().unwrap();
        let text: String = sources(&room.path())
            .iter()
            .map(|file| code(file))
            .collect();
        let lines = text.lines().count();
        println!(
            "src/{name}: {lines} lines of code, {} unsafe blocks",
            unsafe_blocks(&text)
        );
        if ROOT_ROOMS.contains(&name.as_str()) {
            lines_of_root += lines;
        }
    }
    println!("can run as root inside sshd: {lines_of_root} lines of code");
    assert!(lines_of_root > 0);
}

fn unsafe_blocks(text: &str) -> usize {
    text.matches("unsafe {").count()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Reads lists of words, each with its name at the start of a line. The name of an earlier list
/// stands for its contents, and `-WORD` removes a word.
fn lists(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut lists: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace().map(ToOwned::to_owned);
        if !line.starts_with(' ') {
            name = words.next().unwrap();
        }
        let mut list = lists.remove(&name).unwrap_or_default();
        for word in words {
            match (lists.get(&word), word.strip_prefix('-')) {
                (Some(earlier), _) => list.extend(earlier.iter().cloned()),
                (None, Some(without)) => assert!(list.remove(without), "{word}"),
                (None, None) => drop(list.insert(word)),
            }
        }
        lists.insert(name.clone(), list);
    }
    lists
}

/// Lists the third-party crates that are linked into a package.
fn third_party_crates(package: &str) -> BTreeSet<String> {
    let linked = linked_crates(package);
    // Crates of the workspace appear with their folder.
    let others = linked.lines().filter(|line| !line.contains("(/"));
    others
        .filter_map(|line| line.split_whitespace().next())
        .map(ToOwned::to_owned)
        .collect()
}

/// Lists the crates that are linked into a package, one a line, without those that run during its build.
fn linked_crates(package: &str) -> String {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--offline",
            "--edges",
            "normal,no-proc-macro",
        ])
        .args(["--prefix", "none", "--format", "{p}", "--package", package])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Lists the Rust files below a folder, without those of tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        match path.file_name().unwrap().to_str().unwrap() {
            "tests" | "tests.rs" | "testing.rs" | "build.rs" => {}
            _ if path.is_dir() => found.extend(sources(&path)),
            name if name.ends_with(".rs") => found.push(path),
            _ => {}
        }
    }
    found
}

/// Reads a file without blank lines, comments, and the tests at its end.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let tests = text.match_indices("#[cfg(test)]\nmod ").map(|(at, _)| at);
    let inline = |at: &usize| {
        text[*at..]
            .lines()
            .nth(1)
            .is_some_and(|line| line.ends_with('{'))
    };
    let end = tests.into_iter().find(inline).unwrap_or(text.len());
    let lines = text[..end].lines().filter(|line| !line.trim().is_empty());
    let lines = lines.filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}
