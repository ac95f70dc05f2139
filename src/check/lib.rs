//! `check`: finds causes that refuse logins, admit them outside of their jobs, or let them leave.
//!
//! Each subject has a file, and its row in `subjects`. A value of facts is read from the node, which changes
//! nothing, except that `trial_cgroup` makes and removes a cgroup; a pure function judges it. So each judgement can be
//! tested without a node. A finding names one cause and its remedy.

#![forbid(unsafe_code)]

mod config;
mod file_edit;
mod finding;
mod flux;
mod flux_units;
mod kernel;
mod locked_memory;
mod login_stack;
mod login_view;
mod logins;
pub mod metrics;
mod module_loading;
mod mounts;
mod name_service;
mod nologin;
mod other_modules;
mod own_command;
mod own_line;
mod pam_edits;

mod programs;
mod refusals;
mod registry;
mod remedy;
mod root_directory;
mod server_process;

mod several_jobs;
mod site;
mod slice_drop_ins;
mod slices;
mod slurm;
mod slurm_namespace;
mod slurm_spool;
mod sources;
mod sshd;

mod sshd_match;
mod stack;
mod subjects;

mod system_calls;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
#[cfg(test)]
mod tests;
mod threaded_modules;
mod trial_cgroup;
mod trusted_file;
mod unit_files;
mod users;

use ::kernel::trust::Trust;
use clap::Args;
use command::error::Error;
use command::options::{Conf, parse_service};
use command::output::Output;
use finding::CheckReport;
use helper::Config;
use root_directory::keep_cause_alone;
use site::Site;
use slices::SliceFacts;
use std::path::{Path, PathBuf};
use subjects::SharedFacts;

/// Find problems of this node, and show how to solve them
#[derive(Debug, Args)]
#[command(after_help = "\
Shows what refuses logins, admits them outside of their jobs, or lets them leave the job, the worst first.
Much of it only root can check. It changes nothing; it tries the kernel in a temporary cgroup.
Exit status: 0 fine, notes at most, 1 warnings or errors, 2 wrong usage, 3 unknown; --nagios and --nhc
have their own.")]
pub struct Options {
    /// The PAM service
    #[arg(long, value_name = "NAME", default_value = "sshd", value_parser = parse_service)]
    service: String,
    /// Show what is fine as well
    #[arg(long)]
    verbose: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// As one line, with the exit status of Nagios plugins
    #[arg(long, conflicts_with_all = ["verbose", "json"])]
    nagios: bool,
    /// As one line for NHC, which drains the node if there are errors
    #[arg(long, conflicts_with_all = ["verbose", "json", "nagios"])]
    nhc: bool,
    #[command(flatten)]
    conf: Conf,
}

/// Runs `check`: collects the facts about the node, judges them, and writes the findings, or the one line
/// that monitoring asks for. `is_tried` tells whether `enable` tries a change of the node with this root: remedies by
/// `enable` wait for its end. Returns the exit status that fits the gravest finding.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(
    options: &Options,
    is_tried: impl Fn(&Path) -> bool,
    output: &mut Output<'_>,
) -> Result<u8, Error> {
    let conf = options.conf.path()?;
    // An unusable configuration is one of the findings.
    let config = Config::read(&conf, &Trust::root()).unwrap_or_default();
    let site = Site::read("/".into(), &options.service, conf, config);
    let facts = SharedFacts::read(&site);
    let mut findings = [facts.judge_setup(), facts.judge_node()].concat();
    keep_cause_alone(&mut findings);
    if is_tried(&site.root) {
        for finding in &mut findings {
            finding.remedy = std::mem::take(&mut finding.remedy).during_try();
        }
    }
    let report = CheckReport::new(findings);
    let status = report.status();
    if options.nagios || options.nhc {
        writeln!(output.out, "{}", report.monitoring_line())?;
        return Ok(if options.nhc {
            status.nhc
        } else {
            status.nagios
        });
    }
    report.write(options.json, options.verbose, output)?;
    Ok(status.exit)
}

/// Counts for `metrics` what of users' slices is not closed ([`slices::count_open`]); `None` if a part could
/// not be checked. `conf` is the path of `config`.
fn count_open_slices(conf: PathBuf, config: Config) -> Option<usize> {
    let site = Site::read("/".into(), "sshd", conf, config);
    slices::count_open(&SliceFacts::read(&site).findings())
}
