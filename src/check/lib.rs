//! `check`: finds causes that refuse logins, admit them outside of their jobs, or let them leave.
//!
//! Each file checks one subject. A value of facts is read from the node, which changes nothing, except
//! that `trial_cgroup` makes and removes a cgroup; a pure function judges it. So each judgement can be
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
use config::ConfigFacts;
use finding::{Check, CheckReport, Finding, Severity};
use flux::FluxFacts;
use flux_units::FluxUnitFacts;
use helper::Config;
use kernel::KernelFacts;
use logins::LoginFacts;
use mounts::MountFacts;
use nologin::{find_nologin_files, judge_nologin_file};
use programs::ProgramFacts;
use protocol::SourceName;
use refusals::RefusalFacts;
use registry::RegistryFacts;
use root_directory::{judge_root_directory, keep_cause_alone, read_root_mode};
use several_jobs::SeveralJobsFacts;
use site::Site;
use slice_drop_ins::SliceDropInFacts;
use slices::SliceFacts;
use slurm::SlurmFacts;
use slurm_spool::SpoolFacts;
use sources::SourceFacts;
use sshd::SshdFacts;
use stack::StackFacts;
use std::path::{Path, PathBuf};
use users::UserFacts;

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
/// that monitoring asks for. `is_tried` tells whether the node below a root tries a change, which ends before a remedy.
/// Returns the exit status that fits the gravest finding.
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
    let setup = SetupFacts::read(&site);
    let node = NodeFacts::read(&site);
    let mut findings = [setup.findings(), node.findings()].concat();
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

/// What was found out about the files that the site has set up.
struct SetupFacts<'a> {
    root_mode: Option<u32>,
    stack: StackFacts<'a>,
    programs: ProgramFacts,
    config: ConfigFacts,
    registry: RegistryFacts,
    /// `None` in the folder of a test, which has no sources to query.
    sources: Option<SourceFacts>,
    slurm: SlurmFacts,
    spool: Option<SpoolFacts>,
    flux: FluxFacts,
    logins: LoginFacts,
    nologin_files: Vec<PathBuf>,
}

/// Checks whose error keeps the helper from being run: why it gives no answer is said then.
const HELPER_CHECKS: [Check; 3] = [Check::Helper, Check::Account, Check::Selinux];

impl<'a> SetupFacts<'a> {
    /// Reads the facts about the files that the site has set up.
    fn read(site: &'a Site) -> Self {
        let slurm = SlurmFacts::read(site);
        let sources = site
            .is_here()
            .then(|| SourceFacts::read(site, slurm.has_slurm(), slurm.conf_path()));
        Self {
            root_mode: read_root_mode(site),
            stack: StackFacts::read(site),
            programs: ProgramFacts::read(site),
            config: ConfigFacts::read(site),
            registry: RegistryFacts::read(site),
            sources,
            logins: LoginFacts::read(site, slurm.conf_path().is_some()),
            spool: slurm
                .source_lines()
                .and_then(|lines| SpoolFacts::read(site, lines)),
            slurm,
            flux: FluxFacts::read(site),
            nologin_files: find_nologin_files(site),
        }
    }

    /// Judges all of these facts, in the order in which a report shows findings of the same severity.
    fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = judge_root_directory(self.root_mode).into_iter().collect();
        findings.extend(self.stack.findings());
        findings.extend(self.programs.findings());
        let is_explained = findings.iter().any(|finding| {
            finding.severity == Severity::Error && HELPER_CHECKS.contains(&finding.check)
        });
        let of_logins = self.logins.findings(self.stack.session_state());
        findings.extend(
            of_logins
                .into_iter()
                .filter(|finding| !(is_explained && finding.check == Check::HelperRun)),
        );
        findings.extend(self.config.findings());
        findings.extend(self.registry.findings());
        let sources = self.sources.iter().flat_map(SourceFacts::findings);
        // The directory at fault is a finding already.
        let is_repeated = self.registry.is_distrusted();
        findings.extend(
            sources.filter(|finding| {
                !(is_repeated && finding.object == SourceName::Registry.as_str())
            }),
        );
        findings.extend(self.slurm.findings());
        findings.extend(self.spool.iter().flat_map(SpoolFacts::findings));
        findings.extend(self.flux.findings());
        findings.extend(
            self.nologin_files
                .iter()
                .map(|file| judge_nologin_file(file)),
        );
        findings
    }
}

/// What was found out about the running node.
struct NodeFacts {
    sshd: SshdFacts,
    refusals: RefusalFacts,
    mounts: MountFacts,
    kernel: KernelFacts,
    slices: SliceFacts,
    slice_drop_ins: SliceDropInFacts,
    users: UserFacts,
    several_jobs: SeveralJobsFacts,
    flux_units: FluxUnitFacts,
}

impl NodeFacts {
    /// Reads the facts about the running node.
    fn read(site: &Site) -> Self {
        Self {
            sshd: SshdFacts::read(site),
            refusals: RefusalFacts::read(site),
            mounts: MountFacts::read(site),
            kernel: KernelFacts::read(site),
            slices: SliceFacts::read(site),
            slice_drop_ins: SliceDropInFacts::read(site),
            users: UserFacts::read(site),
            several_jobs: SeveralJobsFacts::read(site),
            flux_units: FluxUnitFacts::read(site),
        }
    }

    /// Judges all of these facts, in the order in which a report shows findings of the same severity.
    fn findings(&self) -> Vec<Finding> {
        let mut findings = self.sshd.findings();
        findings.extend(self.refusals.findings());
        findings.extend(self.mounts.findings());
        findings.extend(self.kernel.findings());
        findings.extend(self.slices.findings());
        findings.extend(self.slice_drop_ins.findings());
        findings.extend(self.mounts.judge_use_mount());
        findings.extend(self.users.findings());
        findings.extend(self.several_jobs.findings());
        findings.extend(self.flux_units.findings());
        findings
    }
}
