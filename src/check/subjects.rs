//! The subjects of `check`, a row for each: it reads what it judges. The names of the findings are in [`Check`].

use super::config::ConfigFacts;
use super::finding::{Check, Finding, Severity};
use super::flux::FluxFacts;
use super::flux_units::FluxUnitFacts;
use super::kernel::KernelFacts;
use super::logins::LoginFacts;
use super::mounts::MountFacts;
use super::nologin::{find_nologin_files, judge_nologin_file};
use super::programs::ProgramFacts;
use super::refusals::RefusalFacts;
use super::registry::RegistryFacts;
use super::root_directory::{judge_root_directory, read_root_mode};
use super::several_jobs::SeveralJobsFacts;
use super::site::Site;
use super::slice_drop_ins::SliceDropInFacts;
use super::slices::SliceFacts;
use super::slurm::SlurmFacts;
use super::slurm_spool::SpoolFacts;
use super::sources::SourceFacts;
use super::sshd::SshdFacts;
use super::stack::StackFacts;
use super::users::UserFacts;
use protocol::SourceName;

/// What several subjects judge by, read once.
pub(super) struct SharedFacts<'a> {
    site: &'a Site,
    stack: StackFacts<'a>,
    registry: RegistryFacts,
    slurm: SlurmFacts,
    mounts: MountFacts,
}

/// Reads the facts about a subject and judges them.
type Subject = fn(&SharedFacts<'_>) -> Vec<Finding>;

/// The files that the site has set up, in the order in which a report shows findings of the same severity.
const SETUP: [Subject; 11] = [
    |facts| {
        judge_root_directory(read_root_mode(facts.site))
            .into_iter()
            .collect()
    },
    |facts| facts.stack.findings(),
    |facts| ProgramFacts::read(facts.site).findings(),
    |facts| {
        let reads_slurm = facts.slurm.conf_path().is_some();
        LoginFacts::read(facts.site, reads_slurm).findings(facts.stack.session_state())
    },
    |facts| ConfigFacts::read(facts.site).findings(),
    |facts| facts.registry.findings(),
    judge_sources,
    |facts| facts.slurm.findings(),
    |facts| {
        let lines = facts.slurm.source_lines();
        let spool = lines.and_then(|lines| SpoolFacts::read(facts.site, lines));
        spool.iter().flat_map(SpoolFacts::findings).collect()
    },
    |facts| FluxFacts::read(facts.site).findings(),
    |facts| {
        let files = find_nologin_files(facts.site);
        files.iter().map(|file| judge_nologin_file(file)).collect()
    },
];

/// The running node, also in the order of a report.
const NODE: [Subject; 10] = [
    |facts| SshdFacts::read(facts.site).findings(),
    |facts| RefusalFacts::read(facts.site).findings(),
    |facts| facts.mounts.findings(),
    |facts| KernelFacts::read(facts.site).findings(),
    |facts| SliceFacts::read(facts.site).findings(),
    |facts| SliceDropInFacts::read(facts.site).findings(),
    |facts| facts.mounts.judge_use_mount().into_iter().collect(),
    |facts| UserFacts::read(facts.site).findings(),
    |facts| SeveralJobsFacts::read(facts.site).findings(),
    |facts| FluxUnitFacts::read(facts.site).findings(),
];

/// Checks whose error keeps the helper from being run: why it gives no answer is said then.
const HELPER_CHECKS: [Check; 3] = [Check::Helper, Check::Account, Check::Selinux];

impl<'a> SharedFacts<'a> {
    pub(super) fn read(site: &'a Site) -> Self {
        Self {
            site,
            stack: StackFacts::read(site),
            registry: RegistryFacts::read(site),
            slurm: SlurmFacts::read(site),
            mounts: MountFacts::read(site),
        }
    }

    /// Judges the files that the site has set up.
    pub(super) fn judge_setup(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = SETUP.iter().flat_map(|judge| judge(self)).collect();
        let is_explained = findings.iter().any(|finding| {
            finding.severity == Severity::Error && HELPER_CHECKS.contains(&finding.check)
        });
        findings.retain(|finding| !(is_explained && finding.check == Check::HelperRun));
        findings
    }

    /// Judges the running node.
    pub(super) fn judge_node(&self) -> Vec<Finding> {
        NODE.iter().flat_map(|judge| judge(self)).collect()
    }
}

/// Judges the sources of jobs. The folder of a test has none.
fn judge_sources(facts: &SharedFacts<'_>) -> Vec<Finding> {
    if !facts.site.is_here() {
        return Vec::new();
    }
    let slurm = &facts.slurm;
    let sources = SourceFacts::read(facts.site, slurm.has_slurm(), slurm.conf_path());
    let mut findings = sources.findings();
    // The directory at fault is a finding already.
    if facts.registry.is_distrusted() {
        findings.retain(|finding| finding.object != SourceName::Registry.as_str());
    }
    findings
}
