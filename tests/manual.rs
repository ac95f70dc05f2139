//! The pages name all that is declared and nothing else: options of the command, arguments of the
//! module and keys of the configuration with the default of each, codes, and variables of the prologs.
//! Unit tests of `check` compare the names of checks.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a failing test must report at once"
)]
#![forbid(unsafe_code)]

use helper::Config;
use module::{ArgumentOrigin, Settings, Severity};
use protocol::{REPLY_BYTES_MAX, Reason, Request, Scheduler, SourceName, Variable};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const PAGE: &str = include_str!("../docs/man/job-adopt.1");
const MODULE_PAGE: &str = include_str!("../docs/man/pam_job_adopt.8");
const CONFIG_PAGE: &str = include_str!("../docs/man/job_adopt.conf.5");
const RECORD_PAGE: &str = include_str!("../docs/man/job-adopt-record.5");
const SETTINGS: &str = include_str!("../docs/settings.md");
const MIGRATE: &str = include_str!("../docs/migrate.md");
const PROTOCOL_PAGE: &str = include_str!("../docs/man/job-adopt-protocol.7");
const TROUBLESHOOT: &str = include_str!("../docs/troubleshoot.md");

/// Lists the options that a text names.
fn named_options(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_ascii_lowercase() && c != '-')
        .filter(|word| word.len() > 2 && word.starts_with("--"))
        .collect()
}

/// Lists the options of all commands.
fn declared_options() -> BTreeSet<String> {
    let mut all = admin::declaration();
    all.build();
    let commands = all
        .get_subcommands()
        .flat_map(|command| command.get_arguments());
    let options = commands
        .chain(all.get_arguments())
        .filter_map(|option| option.get_long());
    options.map(|name| format!("--{name}")).collect()
}

/// Unit tests of the command compare the synopsis and the section OPTIONS with the declaration.
#[test]
fn every_option_of_the_command_on_a_page_is_declared() {
    let declared = declared_options();
    assert!(declared.contains("--user"), "{declared:?}");
    let mut seen = 0;
    for (page, text) in all_pages() {
        for (at, _) in text.match_indices("job-adopt ") {
            // One command of a line, or one code span.
            let command = text[at..]
                .split(['\n', '`', '|', '#', ';', '&'])
                .next()
                .unwrap();
            for option in named_options(command) {
                assert!(declared.contains(option), "{page}: {command}");
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "{seen} options");
    for option in named_options(&plain_roff(PAGE)) {
        assert!(declared.contains(option), "{option} in job-adopt(1)");
    }
}

/// Returns a manual page without fonts and with plain minus signs.
fn plain_roff(page: &str) -> String {
    let mut text = page.replace("\\-", "-").replace("\\~", " ");
    for font in ["\\fB", "\\fI", "\\fR", "\\fP"] {
        text = text.replace(font, "");
    }
    text
}

/// Lists the names of the module's arguments that have one of these origins.
fn arguments_of(origins: &[ArgumentOrigin]) -> BTreeSet<String> {
    origins
        .iter()
        .flat_map(|origin| Settings::names(*origin))
        .map(str::to_owned)
        .collect()
}

fn arguments() -> BTreeSet<String> {
    arguments_of(&[ArgumentOrigin::Slurm, ArgumentOrigin::Ours])
}

#[test]
fn every_argument_of_pam_slurm_adopt_is_in_migration_table() {
    let table = MIGRATE
        .split("\n## Options\n")
        .nth(1)
        .unwrap()
        .split("\n## ")
        .next()
        .unwrap();
    let first = |row: &str| {
        row.trim_start_matches("| ")
            .split(" | ")
            .next()
            .unwrap()
            .to_owned()
    };
    let named: BTreeSet<String> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|row| {
            let cell = first(row);
            cell.split(", ")
                .map(|name| name.trim_matches('`').to_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(named, arguments_of(&[ArgumentOrigin::Slurm]));
}

/// Returns the rows of a table of docs/settings.md: each name with its default.
fn settings(heading: &str) -> BTreeMap<String, String> {
    let table = SETTINGS.split(&format!("\n## {heading}\n")).nth(1).unwrap();
    let table = table.split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.flat_map(|row| {
        let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
        let default = cells[1].to_owned();
        let names = cells[0]
            .split(", ")
            .map(|name| name.trim_matches('`').to_owned());
        names
            .map(move |name| (name, default.clone()))
            .collect::<Vec<_>>()
    })
    .collect()
}

/// Returns the default if it is in backticks, which a literal default always is.
fn literal_default(default: &str) -> Option<&str> {
    default
        .strip_prefix('`')
        .and_then(|default| default.strip_suffix('`'))
}

/// Returns the entries of a section of a manual page: each name with its text, without fonts.
fn entries(page: &str, section: &str) -> BTreeMap<String, String> {
    let body = page.split(&format!(".SH {section}\n")).nth(1).unwrap();
    let body = body.split("\n.SH ").next().unwrap();
    body.split(".TP\n")
        .skip(1)
        .map(|entry| {
            let (tag, text) = entry.split_once('\n').unwrap();
            let name = tag.split_whitespace().nth(1).unwrap().trim_end_matches('=');
            (name.replace("\\-", "-"), plain_roff(text))
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
    assert_eq!(
        entries.keys().cloned().collect::<BTreeSet<_>>(),
        arguments()
    );
    let mut stated = 0;
    let mut unstated = Vec::new();
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
        [
            "exempt_groups",
            "exempt_uids",
            "ignore_root",
            "nodename",
            "single_job_skip_rpc"
        ]
    );
}

#[test]
fn every_configuration_key_is_documented_with_its_default() {
    let entries = entries(CONFIG_PAGE, "KEYS");
    let keys: BTreeSet<String> = Config::keys().map(str::to_owned).collect();
    assert_eq!(entries.keys().cloned().collect::<BTreeSet<_>>(), keys);
    let mut stated = 0;
    let mut unstated = Vec::new();
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
            "always_allowed",
            "callerid_networks",
            "exempt_groups",
            "exempt_uids",
            "hint",
            "login_cpu_weight",
            "login_io_weight",
            "login_memory",
            "login_memory_high",
            "login_tasks",
            "message_file",
            "nodename",
            "slurm_conf",
            "slurm_spool",
        ]
    );
}

#[test]
fn every_setting_that_opens_exists() {
    let table = SETTINGS.split("\n## ").next().unwrap();
    let rows = table
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains('`'));
    let keys: BTreeSet<String> = Config::keys().map(str::to_owned).collect();
    let mut named = BTreeSet::new();
    for row in rows {
        let cell = row.trim_start_matches("| ").split(" | ").next().unwrap();
        for code in cell
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|code| !code.starts_with('/'))
        {
            let name = code.split(['=', ' ']).next().unwrap();
            assert!(
                name == "allow" || arguments().contains(name) || keys.contains(name),
                "{row}"
            );
            named.insert(name.to_owned());
        }
    }
    assert!(named.len() > 8, "{named:?}");
}

/// Lists the variables that a prolog or an epilog takes from its environment, or defines at its top
/// for the admin to change, each with its default.
fn variables(script: &str) -> Vec<(String, Option<String>)> {
    let name = |text: &str| {
        let end = text
            .find(|c: char| !c.is_ascii_uppercase() && c != '_')
            .unwrap_or(text.len());
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
        let (name, rest) = name(line);
        let value = rest
            .trim_start()
            .strip_prefix('=')
            .map(|value| value.trim().trim_matches('"'));
        let is_fixed = value.is_some_and(|value| !value.is_empty() && !value.contains('$'));
        if is_fixed && !name.is_empty() && name != "LC_ALL" {
            found.push((name, value.map(|value| format!("`{value}`"))));
        }
    }
    found
}

#[test]
fn every_prolog_variable_is_in_settings_with_default() {
    let rows = settings("Variables of prologs and epilogs");
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging");
    let scripts =
        ["slurm", "flux", "examples"].map(|folder| std::fs::read_dir(packaging.join(folder)));
    let mut seen = BTreeSet::new();
    for script in scripts.into_iter().flat_map(Result::unwrap) {
        let script = std::fs::read_to_string(script.unwrap().path()).unwrap();
        for (name, default) in variables(&script) {
            let documented = rows
                .get(&name)
                .unwrap_or_else(|| panic!("{name} has no row"));
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

/// The keys are read from the declaration, by the error for another one.
#[test]
fn every_key_of_a_record_is_documented() {
    let record = helper::jobs::records::Record::parse(br#"{"nonesuch":0}"#);
    let error = record.unwrap_err().to_string();
    let (_, declared) = error.split_once("expected one of ").unwrap();
    let declared: BTreeSet<&str> = declared.split('`').skip(1).step_by(2).collect();
    assert!(declared.contains("version"), "{error}");
    for key in declared {
        // An entry begins with one key or with several, and so does a row of a table.
        let is_entry = |line: &str| {
            let mut words = line.split([' ', ',', '"']).filter(|word| !word.is_empty());
            match words.next() {
                Some(".B" | ".BR") => words.any(|word| word == key),
                first => first == Some(key),
            }
        };
        assert!(
            RECORD_PAGE.lines().any(is_entry),
            "{key} is not on the page of records"
        );
    }
}

#[test]
fn every_record_variable_is_documented() {
    for name in helper::jobs::records::PrologEnvironment::SLURM_NAMES {
        assert!(RECORD_PAGE.contains(name), "{name}");
    }
    let (_, section) = RECORD_PAGE.split_once(".SH VARIABLES").unwrap();
    let (_, table) = section.split_once(".nf\n").unwrap();
    let (table, _) = table.split_once(".fi").unwrap();
    let registered = Scheduler::ALL
        .into_iter()
        .filter(|scheduler| scheduler.source() == SourceName::Registry);
    for scheduler in registered {
        let mut words = table
            .split([' ', ',', '\n'])
            .filter(|word| !word.is_empty())
            .skip_while(|word| *word != scheduler.as_str());
        words.next();
        let names: Vec<&str> = words
            .take_while(|word| word.parse::<Scheduler>().is_err())
            .collect();
        assert_eq!(names.first(), Some(&Variable::id_name(scheduler)));
        assert_eq!(
            names.iter().copied().collect::<BTreeSet<_>>(),
            Variable::names(scheduler).collect(),
            "{scheduler}"
        );
    }
}

/// Lists the pages for people and the manual pages, each with its text in plain minus signs.
fn all_pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages: Vec<_> = ["README.md", "CONTRIBUTING.md"]
        .into_iter()
        .map(|name| root.join(name))
        .collect();
    for folder in ["docs", "docs/man"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap();
        pages.extend(
            entries
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.is_file()),
        );
    }
    let read = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap().replace("\\-", "-");
        (path.display().to_string(), text)
    };
    let pages: Vec<_> = pages.into_iter().map(read).collect();
    assert!(pages.len() > 20, "{}", pages.len());
    pages
}

#[test]
fn every_code_is_explained_and_no_other_is_named() {
    for code in Reason::ALL {
        assert!(
            MODULE_PAGE.contains(&format!("\n{code}  ")),
            "{code} in pam_job_adopt(8)"
        );
        assert!(
            TROUBLESHOOT.contains(&format!("\n| {code} | ")),
            "{code} in docs/troubleshoot.md"
        );
    }
    for (page, text) in all_pages() {
        for (at, _) in text.match_indices("JA") {
            let Some(code) = text.get(at..at + 4) else {
                continue;
            };
            let is_numbered = code[2..].chars().all(|c| c.is_ascii_digit());
            assert!(
                !is_numbered || code.parse::<Reason>().is_ok(),
                "{page}: {code}"
            );
        }
    }
}

#[test]
fn sizes_of_messages_are_in_manual_page() {
    let page = PROTOCOL_PAGE
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    for bytes in [Request::BYTES_MAX, REPLY_BYTES_MAX] {
        let text = format!("At most {} KiB", bytes / 1024);
        assert!(page.contains(&text), "{text}");
    }
}
