//! The pages: their links and anchors lead somewhere, pages that files name exist, files of ours
//! that pages name are installed, and blocks of commands are run on a node.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a failing test must report at once"
)]
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pages whose commands no node runs, since they build or test the project itself.
const ABOUT_THE_PROJECT: [&str; 4] = [
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/release.md",
    "docs/dependencies.md",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Lists the pages for people, as paths from the root.
fn pages() -> Vec<String> {
    let mut pages = ["README.md", "CONTRIBUTING.md", "SECURITY.md"]
        .map(str::to_owned)
        .to_vec();
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            pages.push(format!("docs/{name}"));
        }
    }
    pages
}

/// A line of a page that is not inside a fenced block.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    Heading(&'a str),
    Text(&'a str),
    /// The info string of a fenced block.
    Fence(&'a str),
}

/// Returns the lines outside of fenced blocks, each with its number.
fn lines(text: &str) -> Vec<(usize, Line<'_>)> {
    let mut found = Vec::new();
    let mut fence = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let ticks = line.len() - line.trim_start_matches('`').len();
        if let Some(length) = fence {
            if ticks >= length && ticks == line.len() {
                fence = None;
            }
        } else if ticks >= 3 {
            fence = Some(ticks);
            found.push((number, Line::Fence(line[ticks..].trim())));
        } else if line.starts_with('#') {
            found.push((number, Line::Heading(line.trim_start_matches('#').trim())));
        } else {
            found.push((number, Line::Text(line)));
        }
    }
    assert!(fence.is_none(), "a fenced block has no end");
    found
}

/// Returns a text without the insides of its code spans.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// Lists the targets of a page's links and pictures.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (_, line) in lines(text) {
        let (Line::Heading(line) | Line::Text(line)) = line else {
            continue;
        };
        let prose = without_code(line);
        for rest in prose.split("](").skip(1) {
            found.push(rest.split([')', ' ']).next().unwrap().to_owned());
        }
        if let Some((_, target)) = prose.split_once("]: ").filter(|_| prose.starts_with('[')) {
            found.push(target.trim().to_owned());
        }
    }
    for attribute in ["src=\"", "href=\"", "srcset=\""] {
        for rest in text.split(attribute).skip(1) {
            found.push(rest.split('"').next().unwrap().to_owned());
        }
    }
    found
}

/// Lists the anchors of a page's headings, in the form that GitHub gives them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in lines(text) {
        let Line::Heading(heading) = line else {
            continue;
        };
        let mut heading = heading.to_owned();
        if let Some((before, after)) = heading.split_once("](") {
            heading = format!(
                "{}{}",
                before.replace('[', ""),
                after.split_once(')').unwrap().1
            );
        }
        let anchor: String = heading
            .to_lowercase()
            .replace(' ', "-")
            .chars()
            .filter(|&c| c.is_alphanumeric() || c == '-' || c == '_')
            .collect();
        let count = counts.entry(anchor.clone()).or_default();
        anchors.insert(if *count == 0 {
            anchor
        } else {
            format!("{anchor}-{count}")
        });
        *count += 1;
    }
    for mark in ["id=\"", "name=\""] {
        for rest in text.split(mark).skip(1) {
            anchors.insert(rest.split('"').next().unwrap().to_owned());
        }
    }
    anchors
}

/// Returns the reason why a link of a page leads nowhere.
fn link_fault(page: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() {
        root().join(page)
    } else {
        root().join(page).parent().unwrap().join(path)
    };
    let target = target.canonicalize().ok();
    let Some(file) = target.filter(|file| file.starts_with(root().canonicalize().unwrap())) else {
        return Some(format!("{page}: {link}: there is no such file"));
    };
    if anchor.is_empty()
        || fs::read_to_string(file).is_ok_and(|text| anchors(&text).contains(anchor))
    {
        return None;
    }
    Some(format!("{page}: {link}: there is no such heading"))
}

#[test]
fn every_link_leads_somewhere() {
    let mut faults = Vec::new();
    let mut followed = 0;
    for page in pages().into_iter().chain(["CHANGELOG.md".to_owned()]) {
        for link in links(&read(&page)) {
            followed += 1;
            faults.extend(link_fault(&page, &link));
        }
    }
    assert!(followed > 40, "{followed} links");
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Collects the files below a folder.
fn collect_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Lists the pages that a text names: docs/NAME.md, and our manual pages as NAME(SECTION).
fn page_names(text: &str) -> Vec<String> {
    let text = text.replace("\\-", "-");
    let is_part_of_path = |c: char| c.is_alphanumeric() || "_-./".contains(c);
    let mut found = Vec::new();
    for (at, _) in text.match_indices("docs/") {
        let before = text[..at].rsplit([' ', '\n', '(', '"']).next().unwrap();
        if !before.contains("://") {
            let path = text[at..].split(|c| !is_part_of_path(c)).next().unwrap();
            found.push(path.trim_end_matches(['.', '/']).to_owned());
        }
    }
    for section in 1..=8 {
        for (at, _) in text.match_indices(&format!("({section})")) {
            let name = text[..at]
                .rsplit(|c: char| !is_part_of_path(c))
                .next()
                .unwrap();
            if name.contains("job-adopt") || name.contains("job_adopt") {
                found.push(format!("docs/man/{name}.{section}"));
            }
        }
    }
    found
}

#[test]
fn every_named_page_exists() {
    let mut files = ["Makefile", "README.md", "CONTRIBUTING.md", "SECURITY.md"]
        .map(|name| root().join(name))
        .to_vec();
    for folder in ["src", "packaging", "debian", "pam.d", "docs", ".github"] {
        collect_files(&root().join(folder), &mut files);
    }
    let mut missing = Vec::new();
    let mut named = 0;
    for file in files {
        // A picture or an archive is no text.
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        for page in page_names(&text) {
            named += 1;
            if !root().join(&page).exists() {
                missing.push(format!("{}: {page}", file.display()));
            }
        }
    }
    assert!(named > 40, "{named} names");
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

/// Installs into an empty folder. The programs are empty.
fn stage_installation() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    let _ = fs::remove_dir_all(&folder);
    let [built, stage] = ["built", "stage"].map(|name| folder.join(name));
    fs::create_dir_all(built.join("completions")).unwrap();
    for file in ["pam_job_adopt.so", "helper", "keeper", "job-adopt"] {
        fs::write(built.join(file), "").unwrap();
    }
    for shell in ["bash", "zsh", "fish"] {
        fs::write(built.join("completions").join(shell), "").unwrap();
    }
    let output = Command::new(root().join("packaging/install"))
        .arg(built)
        .env("DESTDIR", &stage)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    stage
}

#[test]
fn every_named_file_of_ours_is_installed() {
    let stage = stage_installation();
    let mut pages = pages();
    for entry in fs::read_dir(root().join("docs/man")).unwrap() {
        pages.push(format!(
            "docs/man/{}",
            entry.unwrap().file_name().into_string().unwrap()
        ));
    }
    let mut named = 0;
    for page in pages {
        let text = read(&page).replace("\\-", "-");
        for folder in ["/usr/share/job-adopt/", "/usr/libexec/job-adopt/"] {
            for (at, _) in text.match_indices(folder) {
                let ends = |c: char| c.is_whitespace() || "*`'\"()[],;|<>\\".contains(c);
                let path = text[at..]
                    .split(ends)
                    .next()
                    .unwrap()
                    .trim_end_matches(['.', ':']);
                assert!(
                    stage.join(&path[1..]).exists(),
                    "{page}: {path} is not installed"
                );
                named += 1;
            }
        }
    }
    assert!(named > 10, "{named} files");
}

/// Returns whether a fenced block holds commands that are run. An info string of neither kind is an
/// error.
fn block_runs(info: &str) -> Result<bool, &'static str> {
    match info.split_once(' ').unwrap_or((info, "")) {
        ("sh", "") => Ok(true),
        ("sh", more) => match more.strip_prefix("norun: ") {
            Some(reason) if !reason.trim().is_empty() => Ok(false),
            _ => Err("write `sh`, or `sh norun: REASON`"),
        },
        ("bash" | "shell" | "zsh", _) => Err("write `sh`, so that the block is run"),
        _ => Ok(false),
    }
}

#[test]
fn every_page_with_commands_is_run_on_a_node() {
    let group = read("tests/node/groups/pages");
    let run: BTreeSet<&str> = group
        .lines()
        .filter_map(|line| line.strip_prefix("page "))
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    let mut faults = Vec::new();
    for page in pages() {
        let mut has_commands = false;
        for (number, line) in lines(&read(&page)) {
            let Line::Fence(info) = line else { continue };
            match block_runs(info) {
                Ok(runs) => has_commands |= runs,
                Err(why) => faults.push(format!("{page}:{number}: \"{info}\": {why}")),
            }
        }
        let is_run = run.contains(page.as_str()) || ABOUT_THE_PROJECT.contains(&page.as_str());
        if has_commands && !is_run {
            faults.push(format!(
                "{page} has commands, but is not in tests/node/groups/pages"
            ));
        }
        if !has_commands && run.contains(page.as_str()) {
            faults.push(format!(
                "{page} is in tests/node/groups/pages, but has no commands"
            ));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Proofs that each rule above can fail.
mod rules {
    use super::*;

    #[test]
    fn broken_link_is_found() {
        let text = "# A `b` & C\n[x](#a-b--c) ![p](docs/none.svg)\n```\n[no](x)\n```\n`[no](y)`\n[z]: SECURITY.md\n";
        assert_eq!(links(text), ["#a-b--c", "docs/none.svg", "SECURITY.md"]);
        assert!(anchors(text).contains("a-b--c"));
        assert_eq!(
            anchors("# A\n## A\n"),
            ["a", "a-1"].map(str::to_owned).into()
        );
        for link in [
            "docs/none.md",
            "#no-such-heading",
            "SECURITY.md#none",
            "../README.md",
            "/etc/passwd",
        ] {
            assert!(link_fault("README.md", link).is_some(), "{link}");
        }
        for link in ["docs/design.md", "packaging", "https://example.org/none"] {
            assert_eq!(link_fault("README.md", link), None);
        }
    }

    #[test]
    fn name_of_page_is_found() {
        let text = "see docs/slurm.md. And job-adopt(1), pam_unix(8) in packaging/docs/x, \
             https://example.org/docs/y";
        assert_eq!(
            page_names(text),
            ["docs/slurm.md", "docs/x", "docs/man/job-adopt.1"]
        );
    }

    #[test]
    fn block_with_commands_is_recognised() {
        for (info, runs) in [
            ("sh", true),
            ("sh norun: it reboots", false),
            ("json", false),
        ] {
            assert_eq!(block_runs(info), Ok(runs), "{info}");
        }
        for info in ["sh norun", "sh norun: ", "sh run", "bash"] {
            assert!(block_runs(info).is_err(), "{info}");
        }
        let text = "x\n   ````sh\n   ```\n   ````\n```text\n```\n";
        assert_eq!(
            lines(text),
            [
                (1, Line::Text("x")),
                (2, Line::Fence("sh")),
                (5, Line::Fence("text"))
            ]
        );
    }
}
