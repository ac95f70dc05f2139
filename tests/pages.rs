//! The pages: their links lead somewhere, they are short and in plain sentences, and their commands
//! are run.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails has to say so at once"
)]
#![forbid(unsafe_code)]

mod prose;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use prose::{double_genitive, headless, phrases, sentences, without_code};

const ALL_WORDS: usize = 22_100;
const MANUAL_WORDS: usize = 8_400;
const README_LINES: usize = 130;
const SENTENCE: f64 = 25.0;
const CELL: usize = 300;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Lists the files of a folder with this ending, as paths from the root.
fn files(folder: &str, ending: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut paths: Vec<String> = names
        .filter(|name| name.ends_with(ending))
        .map(|name| format!("{folder}/{name}"))
        .collect();
    paths.sort();
    paths
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Lists the pages for people.
fn pages() -> Vec<String> {
    let mut pages = files("docs", ".md");
    pages.extend(["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned));
    pages
}

fn manuals() -> Vec<String> {
    (1..=8).flat_map(|section| files("docs/man", &format!(".{section}"))).collect()
}

/// A line of a page, with its number.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    Heading(usize, &'a str),
    /// Begins a paragraph or an item of a list.
    First(usize, &'a str),
    More(usize, &'a str),
    Row(usize, &'a str),
    /// Holds the info string of a fenced block.
    Fence(usize, &'a str),
}

/// Returns the lines without fenced blocks, HTML and empty lines.
fn lines(text: &str) -> Vec<Line<'_>> {
    let (mut seen, mut fence, mut paragraph, mut table) = (Vec::new(), None, false, false);
    let mut all = (1..).zip(text.lines()).peekable();
    while let Some((number, whole)) = all.next() {
        let line = whole.trim();
        // Rows of this table need no bar at the ends.
        let next = all.peek().map_or("", |(_, next)| next.trim());
        let rule = next.contains('|') && next.chars().all(|c| "|-: ".contains(c));
        table = fence.is_none() && !line.is_empty() && (table || line.starts_with('|') || rule);
        let ticks = line.len() - line.trim_start_matches('`').len();
        match fence {
            Some(length) if ticks >= length && ticks == line.len() => fence = None,
            Some(_) => {}
            None if ticks >= 3 => {
                fence = Some(ticks);
                seen.push(Line::Fence(number, line[ticks..].trim()));
            }
            None if line.is_empty() || line.starts_with('<') => {}
            None if line.starts_with('#') => {
                seen.push(Line::Heading(number, line.trim_start_matches('#').trim()));
            }
            None if table => seen.push(Line::Row(number, line)),
            None => {
                let (line, item) = item(line);
                seen.push(if paragraph && !item {
                    Line::More(number, line)
                } else {
                    Line::First(number, line)
                });
                paragraph = true;
                continue;
            }
        }
        paragraph = false;
    }
    assert!(fence.is_none(), "a fenced block has no end");
    seen
}

/// Returns a line without the mark of an item, and whether it had one.
fn item(line: &str) -> (&str, bool) {
    let rest = line.trim_start_matches("> ");
    let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let item = ["- ", "* "].iter().find_map(|mark| rest.strip_prefix(mark));
    let item = item.or_else(|| digits.strip_prefix(". ").filter(|_| digits.len() < rest.len()));
    match item {
        Some(text) => {
            let boxes = ["[ ] ", "[x] "].iter().find_map(|mark| text.strip_prefix(mark));
            (boxes.unwrap_or(text), true)
        }
        None => (rest, false),
    }
}

/// Splits a row into cells.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|').replace("\\|", "\0");
    row.trim_end_matches('|').split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
}

/// Returns the paragraphs and items of a page, each with the number of its first line.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for line in lines(text) {
        match line {
            Line::First(number, line) => found.push((number, line.to_owned())),
            Line::More(_, line) => {
                let (_, last) = found.last_mut().unwrap();
                last.push(' ');
                last.push_str(line);
            }
            _ => {}
        }
    }
    found
}

/// Returns the paragraphs of a manual page, without tags, examples and the synopsis.
fn manual_paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut example, mut tag, mut fresh, mut section) = (false, false, true, String::new());
    for (number, line) in (1..).zip(text.lines()) {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            ".SH" => section = rest.trim_matches('"').to_owned(),
            ".EX" | ".nf" => example = true,
            ".EE" | ".fi" => example = false,
            _ => {}
        }
        if example || section == "SYNOPSIS" || section == "NAME" {
            continue;
        }
        let text = match name {
            ".TP" | ".TQ" => {
                (tag, fresh) = (true, true);
                continue;
            }
            ".B" | ".I" | ".BR" | ".RB" | ".IR" | ".RI" | ".BI" | ".IB" => rest,
            _ if line.starts_with('.') || line.starts_with('\'') => {
                fresh = true;
                continue;
            }
            _ => line,
        };
        if std::mem::take(&mut tag) {
            continue;
        }
        let mut text =
            text.replace("\\-", "-").replace("\\(aq", "'").replace("\\&", "").replace("\\(co", "`");
        for font in ["\\fB", "\\fI", "\\fR", "\\fP"] {
            text = text.replace(font, "");
        }
        if std::mem::take(&mut fresh) || found.is_empty() {
            found.push((number, text));
        } else {
            let (_, last) = found.last_mut().unwrap();
            last.push(' ');
            last.push_str(&text);
        }
    }
    found
}

fn paragraphs_of(path: &str) -> Vec<(usize, String)> {
    let text = read(path);
    if path.ends_with(".md") { paragraphs(&text) } else { manual_paragraphs(&text) }
}

/// Returns the mean length of a page's sentences.
fn mean(paragraphs: &[(usize, String)]) -> f64 {
    let sentences: Vec<Vec<&str>> =
        paragraphs.iter().flat_map(|(_, text)| sentences(text)).collect();
    let words: usize = sentences.iter().map(Vec::len).sum();
    let [words, sentences] =
        [words, sentences.len().max(1)].map(|count| u32::try_from(count).unwrap());
    f64::from(words) / f64::from(sentences)
}

/// Lists the targets of a text's links and pictures.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (_, prose) in lines(text).iter().filter_map(|line| match line {
        Line::Heading(number, text)
        | Line::First(number, text)
        | Line::More(number, text)
        | Line::Row(number, text) => Some((number, without_code(text))),
        Line::Fence(..) => None,
    }) {
        for rest in prose.split("](").skip(1) {
            found.push(rest.split([')', ' ']).next().unwrap().to_owned());
        }
        if let Some((name, target)) =
            prose.split_once("]: ").filter(|(name, _)| name.starts_with('['))
        {
            assert!(!name.is_empty());
            found.push(target.trim().to_owned());
        }
    }
    for attribute in ["src=\"", "href=\"", "srcset=\""] {
        let ends = text.split(attribute).skip(1);
        found.extend(ends.map(|rest| rest.split('"').next().unwrap().to_owned()));
    }
    found
}

/// Lists the anchors of a page's headings, in the form that GitHub gives them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in lines(text) {
        let Line::Heading(_, heading) = line else { continue };
        let heading = match heading.split_once("](") {
            Some((before, after)) => {
                format!("{}{}", before.replace('[', ""), after.split_once(')').unwrap().1)
            }
            None => heading.to_owned(),
        };
        let kept = heading.to_lowercase().replace(' ', "-");
        let anchor: String =
            kept.chars().filter(|&c| c.is_alphanumeric() || c == '-' || c == '_').collect();
        let count = seen.entry(anchor.clone()).or_default();
        anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    for mark in ["id=\"", "name=\""] {
        anchors.extend(
            text.split(mark).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()),
        );
    }
    anchors
}

/// Returns the reason why a link of a page leads nowhere.
fn link_fault(page: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) =
        link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let folder = Path::new(page).parent().unwrap();
    let mut target = root().join(page);
    if !path.is_empty() {
        target = root().join(folder).join(path);
    }
    match target.canonicalize() {
        Ok(file) if file.starts_with(root().canonicalize().unwrap()) => target = file,
        _ => return Some(format!("{page}: {link}: there is no such file")),
    }
    let there = anchor.is_none_or(|anchor| {
        fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor))
    });
    (!there).then(|| format!("{page}: {link}: there is no such heading"))
}

fn assert_none(offences: &[String]) {
    assert!(offences.is_empty(), "\n{}", offences.join("\n"));
}

/// No scheduler of these could be installed.
#[test]
fn example_never_run_is_named_as_such() {
    const CLAIM: &str = "written from documentation, never run";
    for example in ["openpbs.py", "lsf.sh"] {
        let text = read(&format!("packaging/examples/{example}"));
        let first = text.lines().find(|line| line.starts_with("# ")).unwrap();
        assert!(first.contains(CLAIM), "{example}: {first}");
    }
    let texts = pages().into_iter().chain(manuals()).chain(["CHANGELOG.md".to_owned()]);
    for path in texts {
        let text = read(&path);
        let text = text.replace(['*', '\n'], " ").split_whitespace().collect::<Vec<_>>().join(" ");
        let names = ["OpenPBS", "openpbs", "LSF", "lsf.sh"].map(|name| text.contains(name));
        assert!(!names.contains(&true) || text.contains(CLAIM), "{path}");
    }
}

#[test]
fn every_link_leads_somewhere() {
    let mut all = pages();
    all.push("CHANGELOG.md".to_owned());
    let mut offences = Vec::new();
    let mut followed = 0;
    for page in all {
        for link in links(&read(&page)) {
            followed += 1;
            offences.extend(link_fault(&page, &link));
        }
    }
    assert!(followed > 40, "{followed} links");
    assert_none(&offences);
}

#[test]
fn pages_are_short() {
    // The bar of a table and the sign of a comment are no words.
    let is_word = |word: &&str| word.chars().any(char::is_alphanumeric);
    let words = |path: &String| read(path).split_whitespace().filter(is_word).count();
    let pages: Vec<(String, usize)> =
        pages().into_iter().map(|page| (page.clone(), words(&page))).collect();
    let manuals: Vec<(String, usize)> =
        manuals().into_iter().map(|page| (page.clone(), words(&page))).collect();
    let sum = |of: &[(String, usize)]| of.iter().map(|(_, words)| words).sum::<usize>();
    let all = sum(&pages) + sum(&manuals);
    assert!(sum(&manuals) <= MANUAL_WORDS, "{} words: {manuals:?}", sum(&manuals));
    assert!(all <= ALL_WORDS, "{all} words: {pages:?} {manuals:?}");
    let readme = read("README.md").lines().count();
    assert!(readme <= README_LINES, "README.md has {readme} lines");
}

#[test]
fn sentences_are_short() {
    let mut offences = Vec::new();
    for page in pages().into_iter().chain(manuals()) {
        let paragraphs = paragraphs_of(&page);
        let mean = mean(&paragraphs);
        println!("{page}: {mean:.1} words a sentence");
        if mean > SENTENCE {
            offences.push(format!("{page}: {mean:.1} words a sentence"));
        }
    }
    assert_none(&offences);
}

#[test]
fn table_cells_are_short() {
    let mut offences = Vec::new();
    for page in pages() {
        let text = read(&page);
        for line in lines(&text) {
            let Line::Row(number, row) = line else { continue };
            for cell in cells(row).iter().filter(|cell| cell.chars().count() > CELL) {
                offences
                    .push(format!("{page}:{number}: {} characters: {cell}", cell.chars().count()));
            }
        }
    }
    assert_none(&offences);
}

#[test]
fn pages_and_changelog_keep_prose_rules() {
    let mut offences = Vec::new();
    let changelog = ["CHANGELOG.md".to_owned()];
    for page in pages().into_iter().chain(manuals()).chain(changelog) {
        let mut texts = paragraphs_of(&page);
        if page.ends_with(".md") {
            let text = read(&page);
            for line in lines(&text) {
                match line {
                    Line::Heading(number, text) => texts.push((number, text.to_owned())),
                    Line::Row(number, row) => {
                        texts.extend(cells(row).into_iter().map(|cell| (number, cell)));
                    }
                    _ => {}
                }
            }
        }
        for (number, text) in texts {
            for breach in prose::breaches(&text) {
                offences.push(format!("{page}:{number}: {breach}"));
            }
        }
    }
    assert_none(&offences);
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
    let part_of_a_path = |c: char| c.is_alphanumeric() || "_-./".contains(c);
    let in_address =
        |at: usize| text[..at].rsplit([' ', '\n', '(', '"']).next().unwrap().contains("://");
    let mut found: Vec<String> = text
        .match_indices("docs/")
        .filter(|&(at, _)| !in_address(at))
        .map(|(at, _)| {
            let path = text[at..].split(|c| !part_of_a_path(c)).next().unwrap();
            path.trim_end_matches(['.', '/']).to_owned()
        })
        .collect();
    for section in 1..=8 {
        for (at, _) in text.match_indices(&format!("({section})")) {
            let name = text[..at].rsplit(|c: char| !part_of_a_path(c)).next().unwrap();
            if name.contains("job-adopt") || name.contains("job_adopt") {
                found.push(format!("docs/man/{name}.{section}"));
            }
        }
    }
    found
}

#[test]
fn every_named_page_exists() {
    let mut files = Vec::new();
    for folder in ["src", "packaging", "debian", "pam.d", "docs"] {
        collect_files(&root().join(folder), &mut files);
    }
    files.extend(
        ["Makefile", "README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name)),
    );
    let (mut offences, mut seen) = (Vec::new(), 0);
    for file in files {
        // A picture or an archive is no text.
        let Ok(text) = fs::read_to_string(&file) else { continue };
        for page in page_names(&text) {
            seen += 1;
            if !root().join(&page).exists() {
                offences.push(format!("{}: {page}", file.display()));
            }
        }
    }
    assert!(seen > 40, "{seen} names");
    assert_none(&offences);
}

/// Pages whose commands no node runs, since they build or test the project itself.
const ABOUT_THE_PROJECT: [&str; 4] =
    ["CONTRIBUTING.md", "SECURITY.md", "docs/release.md", "docs/dependencies.md"];

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
    let mut offences = Vec::new();
    for page in pages() {
        let text = read(&page);
        let mut commands = false;
        for line in lines(&text) {
            let Line::Fence(number, info) = line else { continue };
            match block_runs(info) {
                Ok(runs) => commands |= runs,
                Err(why) => offences.push(format!("{page}:{number}: \"{info}\": {why}")),
            }
        }
        if commands != run.contains(page.as_str()) && !ABOUT_THE_PROJECT.contains(&page.as_str()) {
            offences.push(format!(
                "{page}: commands: {commands}, in tests/node/groups/pages: {}",
                !commands
            ));
        }
    }
    assert_none(&offences);
}

/// Proofs that each rule above can fail.
mod rules {
    use super::*;

    #[test]
    fn links_are_found_and_checked() {
        let text = "# A `b` & C\n[x](#a-b--c) ![p](docs/none.svg)\n```\n[no](x)\n```\n`[no](y)`\n[z]: SECURITY.md\n";
        assert_eq!(links(text), ["#a-b--c", "docs/none.svg", "SECURITY.md"]);
        assert!(anchors(text).contains("a-b--c"));
        assert_eq!(anchors("# A\n## A\n"), ["a", "a-1"].map(str::to_owned).into());
        for link in
            ["docs/none.md", "#no-such-heading", "SECURITY.md#none", "../README.md", "/etc/passwd"]
        {
            assert!(link_fault("README.md", link).is_some(), "{link}");
        }
        for link in ["docs/design.md", "packaging", "https://example.org/none"] {
            assert_eq!(link_fault("README.md", link), None);
        }
    }

    #[test]
    fn sentences_are_counted() {
        let lengths: Vec<_> =
            sentences("One two. Three `a.b` four? (Five.) six").iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 3, 2]);
        let text = "# H\n\nOne two.\nThree.\n\n- [ ] four five\n  six\n- seven\n\n| a b |\n\n```sh\nx y z\n```\n";
        let lengths = |found: Vec<(usize, String)>| -> Vec<usize> {
            found.iter().flat_map(|(_, text)| sentences(text)).map(|words| words.len()).collect()
        };
        assert_eq!(lengths(paragraphs(text)), [2, 1, 3, 1]);
        let roff = ".SH NAME\na b c\n.SH DESCRIPTION\nOne\n.B two\nthree.\n.TP\n.B tag\nFour five.\n.EX\nx y z\n.EE\n";
        assert_eq!(lengths(manual_paragraphs(roff)), [3, 2]);
        assert!(mean(&[(1, "word ".repeat(26))]) > SENTENCE);
    }

    #[test]
    fn cells_are_split() {
        assert_eq!(cells("| a | `b\\|c` |"), ["a", "`b|c`"]);
        let tables = "| a |\n\nx\n\na | b\n---|---\nc | d\n\ne | f";
        let row = |line: &Line<'_>| matches!(line, Line::Row(..));
        assert_eq!(
            lines(tables).iter().map(row).collect::<Vec<_>>(),
            [true, false, true, true, true, false]
        );
    }

    #[test]
    fn double_genitives_are_found() {
        for text in [
            "a job of Slurm's.", "a line of theirs", "one of the user's that",
            "a cgroup of Flux's is",
        ] {
            assert!(double_genitive(text).is_some(), "{text}");
        }
        for text in
            ["of Slurm's jobs", "of the user's own jobs", "the user's", "it's of use", "of others"]
        {
            assert_eq!(double_genitive(text), None);
        }
    }

    #[test]
    fn headless_clauses_are_found() {
        assert!(headless("One. What is there stays.").is_some());
        for text in
            ["What is there?", "Look at what is there.", "Whatsoever is there.", "What is there"]
        {
            assert_eq!(headless(text), None);
        }
    }

    #[test]
    fn forbidden_phrases_are_found() {
        assert_eq!(phrases("It Has to\nbe, amended."), ["has to be"]);
    }

    #[test]
    fn names_of_pages_are_found() {
        let text = "see docs/slurm.md. And job-adopt(1), pam_unix(8) in packaging/docs/x, \
             https://example.org/docs/y";
        assert_eq!(page_names(text), ["docs/slurm.md", "docs/x", "docs/man/job-adopt.1"]);
    }

    #[test]
    fn blocks_with_commands_are_recognised() {
        assert_eq!(
            (block_runs("sh"), block_runs("sh norun: it reboots"), block_runs("json")),
            (Ok(true), Ok(false), Ok(false))
        );
        for info in ["sh norun", "sh norun: ", "sh run", "bash"] {
            assert!(block_runs(info).is_err(), "{info}");
        }
        let text = "1. x\n\n   ````sh\n   ```\n   ````\n```text\n```\n";
        assert_eq!(
            lines(text),
            [Line::First(1, "x"), Line::Fence(3, "sh"), Line::Fence(6, "text")]
        );
    }
}
