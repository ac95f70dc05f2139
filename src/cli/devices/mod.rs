//! `devices`: what names of devices stand for, and what a job's filters let through.

mod asked;
mod attached;
mod nodes;
mod resolved;
mod target;

use super::options::Known;
use super::{EXIT_FAILED, EXIT_FINE, Error, Options, Output, config, help, require_root, show};
use crate::device::{Resolver, Tree};
use crate::trust::Trust;
use nix::unistd::Uid;
use serde::Serialize;
use std::ffi::OsString;
use std::path::Path;

pub(super) const KNOWN: [Known; 10] = [
    Known::Flag("--json"),
    Known::Once("--conf"),
    Known::Once("--root"),
    Known::Many("--device"),
    Known::Many("--cdi"),
    Known::Many("--gpu"),
    Known::Many("--gres"),
    Known::Many("--device-dir"),
    Known::Once("--cgroup"),
    Known::Once("--job"),
];

pub(super) fn command(
    arguments: impl IntoIterator<Item = OsString>,
    output: &mut Output<'_>,
) -> Result<u8, Error> {
    let options = Options::parse("devices", &KNOWN, arguments)?;
    if options.has("--help") {
        return show(help::DEVICES, output);
    }
    let asked = asked::asked(&options)?;
    let json = options.has("--json");
    match Question::of(&options, !asked.is_empty())? {
        Question::Resolve => {
            let resolver = resolver(&options)?;
            let report = resolved::Report::of(&asked, &resolver);
            report.write(json, output)?;
            Ok(report.code())
        }
        Question::Attached => {
            require_root("read device filters")?;
            let target = target::Target::of(&options)?;
            let report = attached::Report::of(&target, &tree(&options)?)?;
            report.write(json, output)?;
            Ok(report.code())
        }
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// What names stand for.
    Resolve,
    /// What the filters at a cgroup let through.
    Attached,
}

impl Question {
    fn of(options: &Options, named: bool) -> Result<Self, Error> {
        let wrong = |what| Err(options.usage(what));
        let placed = match (options.has("--cgroup"), options.has("--job")) {
            (true, true) => return wrong("give one of --cgroup and --job, not both"),
            (cgroup, job) => cgroup || job,
        };
        match (placed, named) {
            (true, true) => wrong("give devices, or one of --cgroup and --job, not both"),
            (true, false) => Ok(Self::Attached),
            (false, true) => Ok(Self::Resolve),
            (false, false) => wrong("name a device, or give --cgroup or --job"),
        }
    }
}

fn resolver(options: &Options) -> Result<Resolver, Error> {
    Ok(Resolver::new(tree(options)?, config(options)?.devices))
}

/// The node's own files, or those below `--root`, which have to be the caller's.
fn tree(options: &Options) -> Result<Tree, Error> {
    let Some(root) = options.value("--root") else { return Ok(Tree::here()) };
    let root = Path::new(root)
        .canonicalize()
        .map_err(|error| Error::failed("open", crate::legible::legible(root), error))?;
    match root == Path::new("/") {
        true => Ok(Tree::here()),
        false => Ok(Tree::laid_out(&root, Trust::below(&root, Uid::effective().as_raw()))),
    }
}

fn write_json(shown: &impl Serialize, output: &mut Output<'_>) -> Result<(), Error> {
    let text = serde_json::to_string(shown).map_err(std::io::Error::from)?;
    writeln!(output.out, "{text}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// Fails for a key of a report that job-adopt(1) does not have.
    pub(super) fn documented(report: &impl Serialize) {
        const PAGE: &str = include_str!("../../../docs/man/job-adopt.1");
        let section = PAGE.split(".SH JSON OF DEVICES\n").nth(1).unwrap();
        let section = section.split("\n.SH ").next().unwrap();
        let words: Vec<&str> =
            section.split(|c: char| !c.is_ascii_lowercase() && c != '_').collect();
        fn keys(value: &Value, all: &mut Vec<String>) {
            match value {
                Value::Object(map) => map.iter().for_each(|(key, value)| {
                    all.push(key.clone());
                    keys(value, all);
                }),
                Value::Array(list) => list.iter().for_each(|value| keys(value, all)),
                _ => {}
            }
        }
        let mut all = Vec::new();
        keys(&serde_json::to_value(report).unwrap(), &mut all);
        assert!(all.iter().all(|key| words.contains(&key.as_str())), "{all:?}");
    }

    fn question(line: &str) -> Result<Question, Error> {
        let words = line.split(' ').filter(|word| !word.is_empty()).map(OsString::from);
        let options = Options::parse("devices", &KNOWN, words)?;
        let named = !asked::asked(&options)?.is_empty();
        Question::of(&options, named)
    }

    #[test]
    fn each_question_has_its_options() {
        for (line, asked) in [
            ("/dev/null --json", Question::Resolve),
            ("--gpu 0 --root /x", Question::Resolve),
            ("--cgroup /a", Question::Attached),
            ("--job 7", Question::Attached),
        ] {
            assert_eq!(question(line).unwrap(), asked, "{line}");
        }
    }

    #[test]
    fn what_makes_no_question_is_wrong_usage() {
        for line in [
            "",
            "--json",
            "--cgroup /a --job 7",
            "--cgroup /a /dev/null",
            "--cgroup /a --would-deny",
            "--policy closed /dev/null",
        ] {
            assert!(matches!(question(line), Err(Error::Usage(..))), "{line:?}");
        }
    }
}
