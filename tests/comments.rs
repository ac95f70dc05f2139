//! Comments, doc comments and names of tests keep the rules for pages.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails has to say so at once"
)]
#![forbid(unsafe_code)]

mod prose;

use std::fs;
use std::path::{Path, PathBuf};

/// Files and folders whose comments are checked. The list grows until it has all.
#[rustfmt::skip]
const COVERED: &[&str] = &[
    ".ci",
    "Cargo.toml",
    "Makefile",
    "benches",
    "build.rs",
    "debian",
    "docs/pictures",
    "fuzz",
    "packaging",
    "pam.d",
    "src/admin",
    "src/bin",
    "src/helper",
    "src/keeper",
    "src/kernel",
    "src/module",
    "src/pam",
    "src/protocol",
    "src/schedulers",
    "src/testing.rs",
    "tests",
];

/// Inputs of tests, whose text is not ours to choose.
const INPUTS: [&str; 4] =
    ["tests/fixtures", "fuzz/corpus", "fuzz/dictionaries", "packaging/floor/zig.txt"];

/// Endings of files without comments, or with comments in a form that is not read here.
const SKIPPED: [&str; 4] = ["md", "json", "svg", "lock"];

/// Phrases that stand in no comment and no name of a test, besides those of pages.
const NEVER: [&str; 14] = [
    "is to be", "are to be", "was to be", "were to be", "says so", "nobody", "nobody s",
    "somebody", "somebody s", "anybody", "likewise", "as above", "in vain until", "no say",
];

/// Words that begin a sentence without a head: "Whether it lives.", "That of a process."
const BEGINNINGS: [&str; 6] = ["Whether", "That of", "Those of", "That a", "That the", "Where"];

/// Headings that rustdoc has in another form: `# Errors`.
const HEADINGS: [&str; 4] = ["Errors:", "Fails:", "Panics:", "Safety:"];

/// Words without a noun, which no name of a Rust test has.
const PRONOUNS: [&str; 9] =
    ["it", "they", "them", "what", "whatever", "who", "whoever", "whichever", "nobody"];

/// Words that begin no name of a Rust test.
const ARTICLES: [&str; 6] = ["a", "an", "the", "so", "one", "its"];

/// Words that begin no name of a check on a booted node, which is a sentence.
const CHECK_PRONOUNS: [&str; 7] = ["it", "they", "them", "so", "what", "who", "whoever"];

/// A paragraph of a comment, or the name of a test, with the number of its first line.
type Text = (usize, String);

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Lists the files below a path of the repository, without inputs.
fn files_below(path: &str) -> Vec<String> {
    if INPUTS.contains(&path) {
        return Vec::new();
    }
    let full = root().join(path);
    if !full.is_dir() {
        return vec![path.to_owned()];
    }
    let mut names: Vec<String> = fs::read_dir(full)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "target")
        .collect();
    names.sort();
    names.iter().flat_map(|name| files_below(&format!("{path}/{name}"))).collect()
}

/// Returns the indentation, the mark and the text of a line that is a comment.
fn split_comment<'a>(line: &'a str, marks: &[&'a str]) -> Option<(usize, &'a str, &'a str)> {
    let bare = line.trim_start();
    let mark = marks.iter().find(|mark| bare.starts_with(**mark))?;
    Some((line.len() - bare.len(), mark, bare[mark.len()..].trim()))
}

/// Returns the text of a comment behind code.
fn trailing_comment<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let (code, text) = line.split_once(&format!(" {mark} "))?;
    (code.matches(['"', '\'']).count() % 2 == 0).then_some(text)
}

/// Lists the paragraphs of all comments with these marks, without fenced code.
fn paragraphs(text: &str, marks: &[&str]) -> Vec<Text> {
    let mut found: Vec<Text> = Vec::new();
    let (mut open, mut fenced) = (None, false);
    for (number, line) in (1..).zip(text.lines()) {
        let Some((indent, mark, words)) = split_comment(line, marks) else {
            open = None;
            if let Some(words) = marks.last().and_then(|mark| trailing_comment(line, mark)) {
                found.push((number, words.to_owned()));
            }
            continue;
        };
        if words.starts_with("```") {
            fenced = !fenced;
        }
        if fenced || words.is_empty() || words.starts_with("```") || line.starts_with("#!") {
            open = None;
        } else if open == Some((indent, mark)) && !words.starts_with("- ") {
            let (_, last) = found.last_mut().unwrap();
            last.push(' ');
            last.push_str(words);
        } else {
            found.push((number, words.to_owned()));
            open = Some((indent, mark));
        }
    }
    found
}

/// Lists the paragraphs of the comments of C.
fn c_paragraphs(text: &str) -> Vec<Text> {
    let mut found = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while let Some((code, behind)) = rest.split_once("/*") {
        line += code.lines().count().saturating_sub(1);
        let (comment, after) = behind.split_once("*/").unwrap_or((behind, ""));
        let words: Vec<&str> =
            comment.lines().map(|line| line.trim().trim_start_matches('*').trim()).collect();
        found.extend(
            words
                .split(|line| line.is_empty())
                .filter(|part| !part.is_empty())
                .map(|part| (line, part.join(" "))),
        );
        line += comment.lines().count().saturating_sub(1);
        rest = after;
    }
    found
}

/// Lists the names of Rust tests, as words.
fn rust_tests(text: &str) -> Vec<Text> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| **line == "#[test]") {
        let item = lines[at..].iter().find_map(|line| line.strip_prefix("fn ")).unwrap();
        found.push((at + 1, item.split('(').next().unwrap().replace('_', " ")));
    }
    found
}

/// Lists the names of checks on booted nodes.
fn node_checks(text: &str) -> Vec<Text> {
    let line = |(number, line): (usize, &str)| {
        let name = line.trim().strip_prefix("try ")?;
        let name = name.strip_prefix(['\'', '"'])?.split(['\'', '"']).next()?;
        Some((number, name.to_owned()))
    };
    (1..).zip(text.lines()).filter_map(line).collect()
}

/// Describes every breach of the rules in a comment.
fn breaches(text: &str) -> Vec<String> {
    let mut found = prose::breaches(text);
    let text = prose::without_code(text);
    let phrases = prose::phrases_of(&text, &NEVER);
    found.extend(phrases.iter().map(|phrase| format!("\"{phrase}\"")));
    found.extend(
        HEADINGS
            .iter()
            .filter(|heading| text.starts_with(**heading))
            .map(|heading| format!("\"{heading}\" is no heading of rustdoc")),
    );
    for words in prose::sentences(&text) {
        let sentence = words.join(" ");
        let begins = |beginning: &&&str| sentence.starts_with(&format!("{beginning} "));
        if let Some(beginning) = BEGINNINGS.iter().find(begins).filter(|_| !sentence.ends_with('?'))
        {
            found.push(format!("\"{beginning}\" begins a sentence: {sentence}"));
        }
    }
    found
}

/// Describes every breach of the rules in the name of a Rust test.
fn test_breaches(name: &str) -> Vec<String> {
    let words: Vec<&str> = name.split_whitespace().collect();
    let mut found = prose::phrases_of(name, &NEVER);
    found.extend(words.iter().filter(|word| PRONOUNS.contains(word)));
    found.extend(words.first().filter(|word| ARTICLES.contains(word)));
    found.iter().map(|word| format!("test \"{name}\" has \"{word}\"")).collect()
}

/// Describes every breach of the rules in the name of a check, behind its group.
fn check_breaches(name: &str) -> Vec<String> {
    let sentence = name.rsplit(": ").next().unwrap();
    let mut found = breaches(&format!("{name}."));
    let first = sentence.split_whitespace().next().filter(|word| CHECK_PRONOUNS.contains(word));
    found.extend(first.map(|word| format!("check \"{name}\" begins with \"{word}\"")));
    found
}

/// Describes every breach of the rules in a file.
fn file_breaches(path: &str) -> Vec<String> {
    let (_, ending) = path.rsplit_once('.').unwrap_or((path, ""));
    if SKIPPED.contains(&ending) {
        return Vec::new();
    }
    // A picture or an archive is no text.
    let Ok(text) = fs::read_to_string(root().join(path)) else { return Vec::new() };
    let (comments, names) = match ending {
        "rs" => (paragraphs(&text, &["///", "//!", "//"]), rust_tests(&text)),
        "c" => (c_paragraphs(&text), Vec::new()),
        _ => (paragraphs(&text, &["#"]), node_checks(&text)),
    };
    let judge_name = if ending == "rs" { test_breaches } else { check_breaches };
    let judge = |texts: &[Text], judge: fn(&str) -> Vec<String>| -> Vec<String> {
        let located = texts.iter().flat_map(|(line, text)| {
            judge(text).into_iter().map(move |breach| format!("{path}:{line}: {breach}"))
        });
        located.collect()
    };
    [judge(&comments, breaches), judge(&names, judge_name)].concat()
}

#[test]
fn comments_and_test_names_keep_the_rules() {
    let mut breaches = Vec::new();
    for path in COVERED {
        assert!(Path::new(&root()).join(path).exists(), "{path}");
        breaches.extend(files_below(path).iter().flat_map(|file| file_breaches(file)));
    }
    assert!(breaches.is_empty(), "{} breaches\n{}", breaches.len(), breaches.join("\n"));
}

/// Proofs that each rule above can fail.
mod rules {
    use super::*;

    #[test]
    fn comments_are_found_in_every_form() {
        let rust = "//! One.\n//!\n//! Two\n//! lines.\nfn f() {} // Three.\n    /// Four.\n    // Five.\nlet s = \"a // b\";\n/// ```\n/// no\n/// ```\n";
        let texts: Vec<(usize, String)> = paragraphs(rust, &["///", "//!", "//"]);
        let expected = [(1, "One."), (3, "Two lines."), (5, "Three."), (6, "Four."), (7, "Five.")];
        assert_eq!(texts, expected.map(|(line, text)| (line, text.to_owned())));
        let shell = "#!/bin/sh\n# One\n# two.\nx=1 # Three.\necho '# no'\n";
        let expected = [(2, "One two."), (4, "Three.")];
        assert_eq!(paragraphs(shell, &["#"]), expected.map(|(line, text)| (line, text.to_owned())));
        let c = "/*\n * One\n * two.\n */\nint a; /* Three. */\n";
        let texts: Vec<String> = c_paragraphs(c).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["One two.", "Three."]);
    }

    #[test]
    fn names_are_found() {
        let rust = "#[test]\n#[ignore]\nfn frozen_job_refuses() {\n";
        assert_eq!(rust_tests(rust), [(1, "frozen job refuses".to_owned())]);
        let shell = "try 'a b' f\n    try \"c\" g\nretry 'd' h\n";
        assert_eq!(node_checks(shell), [(1, "a b".to_owned()), (2, "c".to_owned())]);
    }

    #[test]
    fn breaches_are_found() {
        for text in [
            "Nobody is left to tell.",
            "The path is to be opened.",
            "What is there stays.",
            "Whether the leaf is gone.",
            "That of a process.",
            "A job of Slurm's.",
            "Errors: none.",
            "Likewise.",
            "That a keeper lives.",
            "Where it is missing, ask.",
        ] {
            assert!(!breaches(text).is_empty(), "{text}");
        }
        for text in [
            "Returns whether the leaf is gone.",
            "A job of `nobody`.",
            "What is there?",
            "That is why the pin stays.",
            "Kills every process in the cgroup and below.",
        ] {
            assert_eq!(breaches(text), [""; 0], "{text}");
        }
        for name in ["a job ends", "login that it made", "so does ssh", "nobody joins"] {
            assert!(!test_breaches(name).is_empty(), "{name}");
        }
        assert_eq!(test_breaches("frozen job refuses login within a second"), [""; 0]);
        for name in ["podman: it ends with the job", "Slurm: nobody is let in"] {
            assert!(!check_breaches(name).is_empty(), "{name}");
        }
        assert_eq!(check_breaches("podman: a container ends with the job"), [""; 0]);
    }
}
