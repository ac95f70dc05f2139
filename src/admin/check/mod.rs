//! `check`: finds causes that refuse logins, admit them outside of their jobs, or let them leave.
//!
//! Each file checks one subject and changes nothing, except that [`kernel`] makes and removes a
//! cgroup. A finding names one cause and its remedy.

mod config;
mod finding;
mod flux;
mod installed;
mod kernel;
mod mounts;
mod penalties;
pub(super) mod programs;
mod registry;
mod site;
mod slices;
mod slurm;
mod sources;
pub(super) mod sshd;
mod sshd_config;
pub(super) mod stack;
#[cfg(test)]
mod tests;
mod trial_cgroup;
mod trusted_file;
mod users;

use crate::error::Error;
use crate::options::{Conf, parse_service};
use crate::output::Output;
use ::kernel::trust::Trust;
use clap::Args;
use config::ConfigFacts;
use finding::{CheckReport, Finding};
use flux::FluxFacts;
use helper::Config;
use kernel::KernelFacts;
use mounts::MountFacts;
use programs::ProgramFacts;
use registry::RegistryFacts;
use site::Site;
use slices::SliceFacts;
use slurm::SlurmFacts;
use sources::SourceFacts;
use sshd::SshdFacts;
use stack::StackFacts;
use std::path::PathBuf;
use users::UserFacts;

/// Find problems of this node, and show how to solve them
#[derive(Debug, Args)]
#[command(after_help = "\
Shows what refuses logins, admits them outside of their jobs, or lets them leave the job, the worst first.
Much of it only root can check. It changes nothing; it tries the kernel in a temporary cgroup.
Exit status: 0 fine, notes at most, 1 warnings or errors, 2 wrong usage, 3 unknown; --nagios and --nhc
have their own.")]
pub(super) struct Options {
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

pub(super) fn execute(options: &Options, output: &mut Output<'_>) -> Result<u8, Error> {
    let conf = options.conf.path()?;
    // An unusable configuration is one of the findings.
    let config = Config::read(&conf, &Trust::root()).unwrap_or_default();
    let site = Site::read("/".into(), &options.service, conf, config);
    let report = CheckReport::new([check_setup(&site), check_node(&site)].concat());
    let (_, code, nagios, nhc) = report.exit_statuses();
    if options.nagios || options.nhc {
        writeln!(output.out, "{}", report.monitoring_line())?;
        return Ok(if options.nhc { nhc } else { nagios });
    }
    report.write(options.json, options.verbose, output)?;
    Ok(code)
}

/// Counts the slices of users that are not closed; `None` if a slice could not be checked.
pub(super) fn count_open_slices(conf: PathBuf, config: Config) -> Option<usize> {
    let site = Site::read("/".into(), "sshd", conf, config);
    slices::count_open(&SliceFacts::read(&site).findings())
}

/// Checks the files that the site has set up: PAM stack, programs, configuration, schedulers.
fn check_setup(site: &Site) -> Vec<Finding> {
    let programs = ProgramFacts::read(site);
    let config = ConfigFacts::read(site);
    let registry = RegistryFacts::read(site);
    let slurm = SlurmFacts::read(site);
    let sources =
        site.is_here().then(|| SourceFacts::read(site, slurm.has_slurm(), slurm.conf_path()));
    let flux = FluxFacts::read(site);
    let stack = StackFacts::read(site);
    let mut findings = stack.findings();
    findings.extend(programs.findings());
    findings.extend(config.findings());
    findings.extend(registry.findings());
    findings.extend(sources.iter().flat_map(SourceFacts::findings));
    findings.extend(slurm.findings());
    findings.extend(flux.findings());
    findings
}

/// Checks the running node: sshd, mounts, kernel, slices, users.
fn check_node(site: &Site) -> Vec<Finding> {
    let mounts = MountFacts::read(site);
    let kernel = KernelFacts::read(site);
    let slices = SliceFacts::read(site);
    let users = UserFacts::read(site);
    let sshd = SshdFacts::read(site);
    let mut findings = sshd.findings();
    findings.extend(mounts.findings());
    findings.extend(kernel.findings());
    findings.extend(slices.findings());
    findings.extend(mounts.choices_finding());
    findings.extend(users.findings());
    findings
}
