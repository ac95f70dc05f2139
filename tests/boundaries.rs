//! Arrows between the folders of `src` run one way, so that the tree tells who runs what as root.
//!
//! Read from the text: every path that starts at the crate's root, tests left out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails has to say so at once"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each folder of `src`, and the folders that it may import.
const ARROWS: [(&str, &[&str]); 9] = [
    ("bin", &["admin", "helper", "keeper"]),
    ("admin", &["keeper", "helper", "module", "schedulers", "kernel", "protocol"]),
    ("helper", &["schedulers", "kernel", "protocol"]),
    ("keeper", &["schedulers", "kernel", "protocol"]),
    ("pam", &["module", "kernel", "protocol"]),
    // Root inside sshd: no parser of the helper's, nothing of the command.
    ("module", &["schedulers", "kernel", "protocol"]),
    ("schedulers", &["kernel", "protocol"]),
    ("kernel", &["protocol"]),
    ("protocol", &[]),
];

/// What is imported everywhere, by tests alone.
const TESTS: &str = "testing";

#[test]
fn arrows_run_one_way() {
    let mut wrong = Vec::new();
    for (room, allowed) in ARROWS {
        for file in sources(&root().join(room)) {
            let text = code(&fs::read_to_string(&file).unwrap());
            for import in imports(&text) {
                if import != room && import != TESTS && !allowed.contains(&import.as_str()) {
                    wrong.push(format!("{} imports {import}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that run back:\n{}", wrong.join("\n"));
}

/// The lints deny it everywhere else.
#[test]
fn unsafe_code_stands_where_it_may() {
    let manifest = fs::read_to_string(root().with_file_name("Cargo.toml")).unwrap();
    assert!(manifest.contains("\nunsafe_code = \"deny\"\n"));
    let mut found: Vec<_> = sources(&root())
        .into_iter()
        .filter(|file| code(&fs::read_to_string(file).unwrap()).contains("(unsafe_code)"))
        .map(|file| file.strip_prefix(root()).unwrap().to_string_lossy().into_owned())
        .collect();
    found.sort();
    assert_eq!(found, ["admin/sys/mod.rs", "bin/resolve.rs", "kernel/sys/mod.rs", "pam/mod.rs"]);
}

#[test]
fn every_folder_has_its_arrows() {
    let entries = fs::read_dir(root()).unwrap().map(Result::unwrap);
    let folders = entries.filter(|entry| entry.path().is_dir());
    let found: BTreeSet<_> =
        folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert_eq!(found, ARROWS.iter().map(|(room, _)| (*room).to_owned()).collect());
    // A reader that finds no arrow proves nothing.
    let module = sources(&root().join("module"));
    let arrows: BTreeSet<_> =
        module.iter().flat_map(|file| imports(&code(&fs::read_to_string(file).unwrap()))).collect();
    assert!(arrows.contains("kernel") && arrows.contains("protocol"), "{arrows:?}");
}

#[test]
fn imports_are_read_from_every_form() {
    let text = "use crate::{kernel::{bpf, cgroup}, protocol::Plan};\nuse crate::module;\n\
                fn f() -> crate::helper::Answer { pam_job_adopt::admin::main() }";
    let all = ["admin", "helper", "kernel", "module", "protocol"];
    assert_eq!(imports(text), all.map(ToOwned::to_owned).into());
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The Rust files below a folder, but for those of tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        match path.file_name().unwrap().to_str().unwrap() {
            "tests" | "tests.rs" => {}
            _ if path.is_dir() => found.extend(sources(&path)),
            name if name.ends_with(".rs") => found.push(path),
            _ => {}
        }
    }
    found
}

/// A file without its comments and without the tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let without_comment = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text.lines().map(|line| without_comment(line) + "\n").collect()
}

/// The first names of all paths from the crate's root.
fn imports(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for root in ["crate::", "pam_job_adopt::"] {
        for (at, _) in text.match_indices(root) {
            let rest = &text[at + root.len()..];
            match rest.strip_prefix('{') {
                Some(group) => found.extend(firsts(group)),
                None => found.extend(first(rest)),
            }
        }
    }
    found
}

/// The first name of a path.
fn first(path: &str) -> Option<String> {
    let name: String =
        path.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// The first name of each path in a group, whose opening brace has been read.
fn firsts(group: &str) -> Vec<String> {
    let mut depth = 0;
    let mut paths = vec![String::new()];
    for character in group.chars() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => paths.push(String::new()),
            _ => paths.last_mut().unwrap().push(character),
        }
    }
    paths.iter().filter_map(|path| first(path)).collect()
}
