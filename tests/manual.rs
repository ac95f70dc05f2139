//! The manual pages name only what exists: job-adopt(1) the declared options, pam_job_adopt(8) the
//! arguments of the module, docs/migrate.md those of pam_slurm_adopt, job_adopt.conf(5) the keys of
//! the configuration, both with the default of each, and docs/settings.md what opens and the
//! variables of the prologs.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails has to say so at once"
)]
#![forbid(unsafe_code)]

use helper::Config;
use module::{Settings, Severity};
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = include_str!("../docs/man/job-adopt.1");
const MODULE_PAGE: &str = include_str!("../docs/man/pam_job_adopt.8");
const CONFIG_PAGE: &str = include_str!("../docs/man/job_adopt.conf.5");
const RECORD_PAGE: &str = include_str!("../docs/man/job-adopt-record.5");
const SETTINGS: &str = include_str!("../docs/settings.md");
const MIGRATE: &str = include_str!("../docs/migrate.md");
const ARGUMENTS: &str = include_str!("../src/module/settings.rs");

/// Lists the options that a text names, with or without roff's minus signs.
fn options(text: &str) -> BTreeSet<String> {
    let text = text.replace("\\-", "-").replace("\\fR", " ");
    let letter = |c: char| c.is_ascii_lowercase() || c == '-';
    let words = text.split(|c| !letter(c)).filter(|word| word.len() > 2);
    words.filter(|word| word.starts_with("--")).map(str::to_owned).collect()
}

/// Returns the lines of a section.
fn section_lines(name: &str) -> String {
    let body = PAGE.split(&format!(".SH {name}\n")).nth(1).unwrap();
    body.split("\n.SH ").next().unwrap().to_owned()
}

#[test]
fn every_documented_option_is_declared() {
    let known = options(&section_lines("OPTIONS"));
    assert!(known.len() > 20, "{known:?}");
    let unknown: Vec<_> = options(PAGE).into_iter().filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// Lists the names of the module's arguments that have one of these origins.
fn arguments_of(origins: &[&str]) -> BTreeSet<String> {
    let table = ARGUMENTS.split("\narguments! {\n").nth(1).unwrap();
    let table = table.split("\n}\n").next().unwrap();
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
fn every_argument_of_pam_slurm_adopt_is_in_migration_table() {
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

/// Returns the rows of a table of docs/settings.md: each name with its default.
fn settings(heading: &str) -> BTreeMap<String, String> {
    let table = SETTINGS.split(&format!("\n## {heading}\n")).nth(1).unwrap();
    let table = table.split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.flat_map(|row| {
        let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
        let default = cells[1].to_owned();
        let names = cells[0].split(", ").map(|name| name.trim_matches('`').to_owned());
        names.map(move |name| (name, default.clone())).collect::<Vec<_>>()
    })
    .collect()
}

/// Returns the default if it is in backticks, which a literal default always is.
fn literal_default(default: &str) -> Option<&str> {
    default.strip_prefix('`').and_then(|default| default.strip_suffix('`'))
}

/// Returns the entries of a section of a manual page: each name with its text, without fonts.
fn entries(page: &str, section: &str) -> BTreeMap<String, String> {
    let body = page.split(&format!(".SH {section}\n")).nth(1).unwrap();
    let body = body.split("\n.SH ").next().unwrap().replace("\\-", "-");
    let plain = |text: &str| {
        let fonts = ["\\fB", "\\fI", "\\fR", "\\fP"];
        fonts.iter().fold(text.to_owned(), |text, font| text.replace(font, ""))
    };
    body.split(".TP\n")
        .skip(1)
        .map(|entry| {
            let (tag, text) = entry.split_once('\n').unwrap();
            let name = tag.split_whitespace().nth(1).unwrap().trim_end_matches('=');
            (name.to_owned(), plain(text))
        })
        .collect()
}

/// Returns the default that an entry states: the word before "(default", or else the words after
/// "default", as far as commas join them.
fn stated_default(text: &str) -> Option<String> {
    let trim = |word: &str| word.trim_matches([',', '.', ';', ':']).to_owned();
    if let Some((before, _)) = text.split_once("(default") {
        return before.split_whitespace().last().map(trim);
    }
    let (_, after) = text.split_once("efault ")?;
    let mut value = String::new();
    for word in after.split_whitespace() {
        value.push_str(word);
        if !word.ends_with(',') || after.contains(", which") {
            break;
        }
        value.push(' ');
    }
    Some(trim(&value))
}

#[test]
fn every_argument_of_module_is_documented_with_its_default() {
    let entries = entries(MODULE_PAGE, "OPTIONS");
    assert_eq!(entries.keys().cloned().collect::<BTreeSet<_>>(), arguments());
    let (mut stated, mut unstated) = (0, Vec::new());
    for (name, text) in &entries {
        match stated_default(text) {
            // Only sshd is judged without the argument, under any name of its own.
            Some(value) if name == "service" => assert_eq!(value, "sshd"),
            Some(value) => {
                let parsed = Settings::parse(&[format!("{name}={value}")]);
                assert_eq!(parsed, Ok(Settings::default()), "{name}={value}");
                stated += 1;
            }
            None => unstated.push(name.as_str()),
        }
    }
    assert!(stated >= 10, "{stated}");
    let without = Settings::default();
    assert!(without.service.is_none() && without.node.is_none());
    assert!(!without.require_devices && !without.observe && without.log_level != Severity::Debug);
    assert!(without.exempt_uids.is_empty() && without.exempt_groups.is_empty());
    // A flag is off by default; the others need a value and have no default.
    let with_value: Vec<_> = unstated
        .into_iter()
        .filter(|name| Settings::parse(&[(*name).to_owned()]).is_err())
        .collect();
    assert_eq!(
        with_value,
        ["exempt_groups", "exempt_uids", "ignore_root", "nodename", "single_job_skip_rpc"]
    );
}

#[test]
fn every_configuration_key_is_documented_with_its_default() {
    let entries = entries(CONFIG_PAGE, "KEYS");
    let keys: BTreeSet<String> = Config::keys().map(str::to_owned).collect();
    assert_eq!(entries.keys().cloned().collect::<BTreeSet<_>>(), keys);
    let (mut stated, mut unstated) = (0, Vec::new());
    for (key, text) in &entries {
        let Some(value) = stated_default(text).filter(|_| key != "always_allowed") else {
            unstated.push(key.as_str());
            continue;
        };
        let parsed = Config::parse(format!("{key} = {value}").as_bytes());
        assert_eq!(parsed, Ok(Config::default()), "{key} = {value}");
        stated += 1;
    }
    assert!(stated >= 8, "{stated}");
    let without = Config::default();
    assert!(without.always_allowed.is_empty() && without.callerid_networks.is_empty());
    assert!(without.exempt_uids.is_empty() && without.exempt_groups.is_empty());
    assert!(without.devices.node_name.is_none() && without.devices.slurm_conf.is_none());
    assert!(without.slurm_spool.is_none());
    assert_eq!(without.login_limits, protocol::LoginLimits::default());
    assert!(without.message_file.is_none() && without.hint.is_none());
    assert_eq!(
        unstated,
        [
            "always_allowed", "callerid_networks", "exempt_groups", "exempt_uids", "hint",
            "login_cpu_weight", "login_memory", "login_tasks", "message_file", "nodename",
            "slurm_conf", "slurm_spool",
        ]
    );
}

#[test]
fn every_setting_that_opens_exists() {
    let table = SETTINGS.split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let keys: BTreeSet<String> = Config::keys().map(str::to_owned).collect();
    let mut named = BTreeSet::new();
    for row in rows {
        let cell = row.trim_start_matches("| ").split(" | ").next().unwrap();
        for code in cell.split('`').skip(1).step_by(2).filter(|code| !code.starts_with('/')) {
            let name = code.split(['=', ' ']).next().unwrap();
            assert!(name == "allow" || arguments().contains(name) || keys.contains(name), "{row}");
            named.insert(name.to_owned());
        }
    }
    assert!(named.len() > 8, "{named:?}");
}

/// Lists the variables that a prolog or an epilog takes from its environment, or defines at its top
/// for the admin to change, each with its default.
fn variables(script: &str) -> Vec<(String, Option<String>)> {
    let name = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_uppercase() && c != '_').unwrap_or(text.len());
        (text[..end].to_owned(), text[end..].to_owned())
    };
    let mut found = Vec::new();
    for line in script.lines() {
        if let Some(asked) = line.strip_prefix(": ") {
            found.extend(asked.split("${").skip(1).map(|word| {
                let (name, rest) = name(word);
                (name, rest.starts_with('=').then(|| "empty".to_owned()))
            }));
        }
        let (name, value) = name(line);
        let value =
            value.trim_start().strip_prefix('=').map(|value| value.trim().trim_matches('"'));
        let fixed = value.filter(|value| !value.is_empty() && !value.contains('$'));
        if let Some(value) = fixed.filter(|_| !name.is_empty() && name != "LC_ALL") {
            found.push((name, Some(format!("`{value}`"))));
        }
    }
    found
}

#[test]
fn every_prolog_variable_is_in_settings_with_default() {
    let rows = settings("Variables of prologs and epilogs");
    let packaging = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging");
    let scripts =
        ["slurm", "flux", "examples"].map(|folder| std::fs::read_dir(packaging.join(folder)));
    let mut seen = BTreeSet::new();
    for script in scripts.into_iter().flat_map(Result::unwrap) {
        let script = std::fs::read_to_string(script.unwrap().path()).unwrap();
        for (name, default) in variables(&script) {
            let documented = rows.get(&name).unwrap_or_else(|| panic!("{name} has no row"));
            if let Some(default) = default {
                assert_eq!(*documented, default, "{name}");
            } else {
                assert!(
                    literal_default(documented).is_none() && documented != "empty",
                    "{name} has no default: {documented}"
                );
            }
            seen.insert(name);
        }
    }
    assert_eq!(rows.keys().cloned().collect::<BTreeSet<_>>(), seen);
}

#[test]
fn every_record_variable_is_documented() {
    for name in helper::records::Environment::NAMES {
        assert!(RECORD_PAGE.contains(name), "{name}");
    }
}

/// Collects the names of checks in the sources of `check`: constants of the type `Check`.
fn collect_checks(folder: &std::path::Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_checks(&path, names);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let own = code.split(": Check = \"").skip(1);
        names.extend(own.map(|rest| rest.split('"').next().unwrap().to_owned()));
    }
}

#[test]
fn every_check_has_entry_and_every_entry_is_a_check() {
    let mut known = BTreeSet::new();
    collect_checks(
        &std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/admin/check"),
        &mut known,
    );
    assert!(known.contains("pam-session"), "{known:?}");
    let section = section_lines("CHECKS").replace("\\-", "-");
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

/// Lists the pages for people and the manual pages, each with its text in plain minus signs.
fn all_pages() -> Vec<(String, String)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages: Vec<_> =
        ["README.md", "CONTRIBUTING.md"].into_iter().map(|name| root.join(name)).collect();
    for folder in ["docs", "docs/man"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap();
        pages.extend(entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()));
    }
    let read = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap().replace("\\-", "-");
        (path.display().to_string(), text)
    };
    let pages: Vec<_> = pages.into_iter().map(read).collect();
    assert!(pages.len() > 20, "{}", pages.len());
    pages
}

/// Lists the words of a text that begin so, in any punctuation.
fn words_from<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    let ends = |c: char| c.is_whitespace() || "`'\"()[],;|<>\\".contains(c);
    let found = text.match_indices(prefix).map(|(at, _)| text[at..].split(ends).next().unwrap());
    found.map(|word| word.trim_end_matches(['.', ':', '/'])).collect()
}

#[test]
fn every_code_is_explained_and_no_other_is_named() {
    let known: Vec<String> = (0..=11).map(|number| format!("JA{number:02}")).collect();
    let source = include_str!("../src/protocol/message.rs");
    let of_source: Vec<&str> =
        source.split("= \"JA").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(of_source.iter().map(|code| format!("JA{code}")).collect::<Vec<_>>(), known);
    let causes = include_str!("../docs/troubleshoot.md");
    for code in &known {
        assert!(MODULE_PAGE.contains(&format!("\n{code}  ")), "{code} in pam_job_adopt(8)");
        assert!(causes.contains(&format!("\n| {code} | ")), "{code} in docs/troubleshoot.md");
    }
    for (page, text) in all_pages() {
        for (at, _) in text.match_indices("JA") {
            let code = &text.as_bytes()[at..text.len().min(at + 4)];
            let code = String::from_utf8_lossy(code).into_owned();
            let numbered = code[2..].chars().all(|c| c.is_ascii_digit()) && code.len() == 4;
            assert!(!numbered || known.contains(&code), "{page}: {code}");
        }
    }
}

#[test]
fn every_installed_path_on_a_page_is_packaged() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let installers = ["Makefile", "debian/rules"]
        .map(|name| std::fs::read_to_string(root.join(name)).unwrap())
        .concat();
    let mut seen = 0;
    for (page, text) in all_pages() {
        for path in words_from(&text, "/usr/share/job-adopt/") {
            let name = path.strip_prefix("/usr/share/job-adopt/").unwrap();
            let folder = name.split('*').next().unwrap();
            assert!(root.join("packaging").join(folder).exists(), "{page}: {path}");
            seen += 1;
        }
        for path in words_from(&text, "/usr/libexec/job-adopt/") {
            let name = path.strip_prefix("/usr/libexec/job-adopt/").unwrap();
            let installed = ["$(LIBEXEC)/", "libexec/job-adopt/"];
            let is_installed =
                installed.iter().any(|folder| installers.contains(&format!("{folder}{name}")));
            assert!(is_installed, "{page}: {path}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} paths");
}

#[test]
fn every_option_of_the_command_on_a_page_is_declared() {
    let known = options(&section_lines("OPTIONS"));
    let mut seen = 0;
    for (page, text) in all_pages() {
        for (at, _) in text.match_indices("job-adopt ") {
            // One command of a line, or one code span.
            let command = text[at..].split(['\n', '`', '|', '#', ';', '&']).next().unwrap();
            for option in options(command) {
                assert!(known.contains(&option), "{page}: {command}");
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "{seen} options");
}

/// Numbers that several pages repeat: text of a page, and the constant that it states.
#[test]
fn numbers_on_pages_are_those_of_the_source() {
    let stated = [
        ("docs/man/job-adopt-protocol.7", "At most 56 KiB.", "protocol/message.rs", "= 56 * 1024;"),
        ("docs/man/job-adopt-protocol.7", "At most 64 KiB;", "protocol/message.rs", "= 64 * 1024;"),
        (
            "docs/man/job-adopt-protocol.7",
            "at most 256 entries",
            "protocol/schema.rs",
            "ITEMS_MAX: usize = 256;",
        ),
        ("docs/man/job-adopt.1", "at most 3600", "admin/unregister.rs", "range(..=3600)"),
        (
            "docs/man/pam_job_adopt.8",
            "in the last ten minutes",
            "helper/records/read.rs",
            "NOTE_VALID_SECONDS: i64 = 600;",
        ),
    ];
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for (page, text, file, constant) in stated {
        let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
        let plain = read(root.join(page)).split_whitespace().collect::<Vec<_>>().join(" ");
        let source = read(root.join("src").join(file));
        // Both, or neither: a change of one side fails.
        assert!(plain.contains(text) && source.contains(constant), "{page}: {text}: {file}");
    }
}
