//! `devices`: resolves names of devices, and shows which devices a job's filters allow.

mod attached;
mod nodes;
mod probe;
mod requested;
mod resolved;
mod write_dir;

use clap::{ArgGroup, Args};
use command::accounts::{self, with_login_rights};
use command::error::Error;
use command::options::parse_job_id;
use command::options::{Conf, parse_value};
use command::output::Output;
use facts::device_options::{self, DeviceOptions};
use facts::restricted_nodes::NodeUser;
use helper::node::Tree;
use kernel::trust::Trust;
use naming::NameResolver;
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
all NVIDIA GPUs. With --cgroup or --job it shows what the filters there let through (root). It warns of nodes whose
mode keeps out the user, the job's owner or the caller; for root without a job, anyone.
Exit status: 0 fine, 1 a name does not resolve, 2 wrong usage, 3 cannot tell."
)]
pub struct Options {
    /// Names of devices
    #[arg(value_name = "NAME", value_parser = requested::parse_operand)]
    operands: Vec<requested::Operand>,
    #[command(flatten)]
    named: DeviceOptions,
    /// A cgroup, below the cgroup v2 mount
    #[arg(long, value_name = "PATH", value_parser = parse_value::<CgroupPath>)]
    cgroup: Option<CgroupPath>,
    /// A job of a scheduler or of the registry
    #[arg(long, value_name = "ID", value_parser = parse_job_id, conflicts_with = "cgroup")]
    job: Option<JobId>,
    /// Judge modes of nodes for this user, by name or number
    #[arg(long)]
    user: Option<String>,
    /// Write the names as a directory for device_dir, as root
    #[arg(
        long,
        value_name = "DIR",
        value_parser = device_options::parse_directory,
        conflicts_with_all = ["cgroup", "root", "json", "user"],
    )]
    write_dir: Option<String>,
    /// Look names and nodes up below DIR, for tests
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    conf: Conf,
}

/// Runs `devices`: writes a directory of devices, shows what the kernel allows in a cgroup, or shows what
/// names resolve to, whichever the options ask for. Modes of nodes are judged for the user of `--user`;
/// without the option for the owner of the shown job or, for names, for the caller unless that is root; and
/// else for everyone.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    if let Some(dir) = &options.write_dir {
        return write_dir::execute(options, Path::new(dir));
    }
    let mut user = match &options.user {
        Some(name) => Some(NodeUser::find(accounts::resolve_uid(name)?)?),
        None => None,
    };
    if let Some(target) = attached::open_target(options)? {
        // A filter is shown even if its owner has no account any more.
        let owner = target.owner.and_then(|uid| NodeUser::find(uid).ok());
        let user = user.or(owner);
        let mut report =
            attached::FilterReport::read(&target, &open_tree(options)?, user.as_ref())?;
        if let Some(id) = &options.job {
            report.add_number_warning(id, options)?;
        }
        report.write(options.json, output)?;
        return Ok(report.exit_code());
    }
    let caller = Uid::effective();
    // A caller without an account counts as everyone.
    if user.is_none() && !caller.is_root() {
        user = NodeUser::find(caller.as_raw()).ok();
    }
    let report = resolve_names(options, user.as_ref())?;
    report.write(options.json, output)?;
    Ok(report.exit_code())
}

/// Resolves the names of the command line: on this node with the rights that a login's helper has, and below `--root`
/// with those of the caller.
fn resolve_names(
    options: &Options,
    user: Option<&NodeUser>,
) -> Result<resolved::NameReport, Error> {
    let resolver = NameResolver::new(open_tree(options)?, options.conf.read()?.devices);
    let names = requested::requested_names(options);
    let resolve = || resolved::NameReport::resolve(&names, &resolver, user);
    match options.root {
        Some(_) => Ok(resolve()),
        None => with_login_rights(resolve),
    }
}

/// Returns the node's own files, or those below `--root`, which the caller must own.
fn open_tree(options: &Options) -> Result<Tree, Error> {
    let Some(root) = &options.root else {
        return Ok(Tree::host());
    };
    let root = root.canonicalize().map_err(|error| {
        Error::failed("open", helper::printable(&root.to_string_lossy()), error)
    })?;
    if root == Path::new("/") {
        Ok(Tree::host())
    } else {
        Ok(Tree::with_root(
            &root,
            Trust::below(&root, Uid::effective().as_raw()),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use serde_json::Value;

    /// Asserts that job-adopt(1) has every key of a report.
    pub(super) fn assert_documented(report: &impl serde::Serialize) {
        const PAGE: &str = include_str!("../../../docs/man/job-adopt.1");
        let section = PAGE.split(".SH JSON OF DEVICES\n").nth(1).unwrap();
        let section = section.split("\n.SH ").next().unwrap();
        let words: Vec<&str> = section
            .split(|c: char| !c.is_ascii_lowercase() && c != '_')
            .collect();
        fn collect_keys(value: &Value, all: &mut Vec<String>) {
            match value {
                Value::Object(map) => {
                    for (key, member) in map {
                        all.push(key.clone());
                        collect_keys(member, all);
                    }
                }
                Value::Array(list) => {
                    for member in list {
                        collect_keys(member, all);
                    }
                }
                _ => {}
            }
        }
        let mut all = Vec::new();
        collect_keys(&serde_json::to_value(report).unwrap(), &mut all);
        assert!(
            all.iter().all(|key| words.contains(&key.as_str())),
            "{all:?}"
        );
    }

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse_line(line: &str) -> Result<Line, clap::Error> {
        Line::try_parse_from(["devices"].into_iter().chain(line.split_whitespace()))
    }

    #[test]
    fn names_cgroup_or_job_are_accepted() {
        for line in [
            "/dev/null --json",
            "--gpu 0 --root /x",
            "--cgroup /a",
            "--job 7 --json",
        ] {
            parse_line(line).unwrap();
        }
    }

    #[test]
    fn no_subject_or_two_subjects_are_wrong_usage() {
        for line in [
            "",
            "--json",
            "--cgroup /a --job 7",
            "--cgroup /a all",
            "--job 7 --gpu 0",
        ] {
            assert!(parse_line(line).is_err(), "{line:?}");
        }
    }
}
