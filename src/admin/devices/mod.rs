//! `devices`: what names of devices stand for, and what a job's filters let through.

mod asked;
mod attached;
mod nodes;
mod resolved;

use super::accounts::with_login_rights;
use super::command_line::value;
use super::names::{self, DeviceOptions};
use super::{Conf, EXIT_FAILED, EXIT_FINE, Error, Output};
use clap::{ArgGroup, Args};
use helper::devices::{Resolver, Tree};
use kernel::trust::Trust;
use nix::unistd::Uid;
use protocol::{CgroupPath, JobId};
use std::path::{Path, PathBuf};

/// Show what names of devices stand for, or what filters let through
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("where").args(["cgroup", "job"]).conflicts_with_all(["operands", "DeviceOptions"]),
    group = ArgGroup::new("what").required(true).multiple(true).args([
        "operands", "device", "cdi", "gpu", "gres", "device_dir", "cgroup", "job",
    ]),
    after_help = "\
NAME is a specifier ('SPEC ACCESS' in one word), a CDI name, a GPU, NAME:INDEX, imex/N, or all for
all NVIDIA GPUs. With --cgroup or --job it shows what the filters there let through (root).
Exit status: 0 fine, 1 a name does not resolve, 2 wrong usage, 3 cannot tell."
)]
pub(super) struct Options {
    /// Names of devices
    #[arg(value_name = "NAME", value_parser = asked::operand)]
    operands: Vec<asked::Operand>,
    #[command(flatten)]
    named: DeviceOptions,
    /// A cgroup, below the cgroup v2 mount
    #[arg(long, value_name = "PATH", value_parser = value::<CgroupPath>)]
    cgroup: Option<CgroupPath>,
    /// A registered job
    #[arg(long, value_name = "ID", value_parser = names::job_id, conflicts_with = "cgroup")]
    job: Option<JobId>,
    /// Look names and nodes up below DIR, for tests
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    conf: Conf,
}

pub(super) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    if let Some(target) = attached::target(options)? {
        let report = attached::Report::of(&target, &tree(options)?)?;
        report.write(options.json, output)?;
        return Ok(report.code());
    }
    let resolver = Resolver::new(tree(options)?, options.conf.read()?.devices);
    let look = || resolved::Report::of(&asked::asked(options), &resolver);
    let report = match options.root {
        Some(_) => look(),
        None => with_login_rights(look, output),
    };
    report.write(options.json, output)?;
    Ok(report.code())
}

/// The node's own files, or those below `--root`, which have to be the caller's.
fn tree(options: &Options) -> Result<Tree, Error> {
    let Some(root) = &options.root else { return Ok(Tree::host()) };
    let shown = || helper::printable(&root.to_string_lossy());
    let root = root.canonicalize().map_err(|error| Error::failed("open", shown(), error))?;
    match root == Path::new("/") {
        true => Ok(Tree::host()),
        false => Ok(Tree::with_root(&root, Trust::below(&root, Uid::effective().as_raw()))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::command_line::{Asked, Command, parse};
    use super::*;
    use serde_json::Value;

    /// Fails for a key of a report that job-adopt(1) does not have.
    pub(super) fn documented(report: &impl serde::Serialize) {
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

    fn question(line: &str) -> Result<(), Error> {
        let words = ["devices"].into_iter().chain(line.split_whitespace());
        let words: Vec<std::ffi::OsString> = words.map(Into::into).collect();
        let Asked::Command(Command::Devices(_)) = parse(&words, "")? else { panic!("{line}") };
        Ok(())
    }

    #[test]
    fn each_question_has_its_options() {
        for line in ["/dev/null --json", "--gpu 0 --root /x", "--cgroup /a", "--job 7 --json"] {
            question(line).unwrap();
        }
    }

    #[test]
    fn what_makes_no_question_is_wrong_usage() {
        for line in ["", "--json", "--cgroup /a --job 7", "--cgroup /a all", "--job 7 --gpu 0"] {
            assert!(matches!(question(line), Err(Error::Input(_))), "{line:?}");
        }
    }
}
