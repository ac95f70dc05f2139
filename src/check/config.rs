//! Checks the configuration, and the file that switches the module off.

use super::finding::{Check, Finding, Severity};
use super::remedy::shell_path;
use super::site::Site;
use super::trusted_file::trust_remedy;
use command::accounts::RightsError;
use facts::configuration::ConfigFault;
use facts::configuration::describe_fault;
use facts::configuration::require_configuration;
use facts::jobs::{NodeJobs, Records};
use facts::restricted_nodes::{NodeMode, NodeUser, RestrictedNodes};
use facts::root_processes::runs_slurm;
use helper::devices::{Resolver, Specifier};
use helper::node::{ResolvedDevices, gpu_count, topology};
use helper::{Config, ConfigError};
use kernel::cgroup::Mount;
use kernel::trust::TrustError;
use protocol::{Allowlist, LimitKey, LoginLimits};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum users that a finding names.
const USERS_SHOWN_MAX: usize = 8;

/// What was found out about the configuration.
#[derive(Debug)]
pub(super) struct ConfigFacts {
    /// The file that switches the module off.
    off_switch: PathBuf,
    /// Root owns that file; the module ignores any other.
    is_off: bool,
    /// The path of the configuration.
    conf: PathBuf,
    /// Whether logins can use the configuration.
    file: Result<(), ConfigFault>,
    /// The file of the key `enforce`; `None` if the module always decides.
    enforce: Option<(PathBuf, EnforceState)>,
    /// The entries of `always_allowed` that resolve on this node.
    always_allowed: Vec<AllowedDevices>,
    restricted_modes: Result<Vec<RestrictedMode>, RightsError>,
    /// Limits of logins whose controller is not on cgroup v2, one for each key.
    limits_without_controller: Vec<LimitKey>,
    login_limits: LoginLimits,
    /// A disk of this node counts weights.
    weighs_disks: bool,
}

/// The file whose existence makes the module decide.
#[derive(Debug)]
enum EnforceState {
    /// Others than root can make or remove it.
    Distrusted(TrustError),
    Present,
    Missing {
        /// This is a compute node.
        has_jobs: bool,
    },
}

/// What an entry of `always_allowed` gives to every job.
#[derive(Debug)]
struct AllowedDevices {
    specifier: String,
    gpus: u32,
    /// All devices fit into one list; `gpus` counts those that do.
    fits_in_list: bool,
    warnings: Vec<String>,
}

/// Nodes of GPUs that their mode keeps from users, although a job's filter opens them.
#[derive(Debug)]
struct RestrictedMode {
    nodes: String,
    /// The mode, and who can open the nodes.
    mode: String,
    /// No group can open the nodes.
    is_owners_alone: bool,
    /// Users with jobs here who cannot open them; at most [`USERS_SHOWN_MAX`].
    excluded: Vec<String>,
}

impl ConfigFacts {
    /// Reads the configuration, the file that switches the module off, and what of this node the keys are
    /// about.
    pub(super) fn read(site: &Site) -> Self {
        let off_switch = site.at(module::OFF_SWITCH_PATH);
        let Config {
            enforce,
            always_allowed,
            devices,
            ..
        } = &site.config;
        let resolver = Resolver::new(site.tree(), devices.clone());
        Self {
            off_switch,
            is_off: site.is_switched_off(),
            conf: site.conf.clone(),
            file: require_configuration(&site.conf, &site.trust, &site.root),
            enforce: enforce
                .as_ref()
                .map(|path| (path.clone(), EnforceState::read(site, path))),
            always_allowed: always_allowed
                .iter()
                .filter_map(|specifier| AllowedDevices::read(&resolver, specifier))
                .collect(),
            restricted_modes: list_restricted_modes(site),
            limits_without_controller: list_limits_without_controller(site),
            login_limits: site.config.login_limits,
            weighs_disks: weighs_disks(site),
        }
    }

    /// Judges the configuration, key by key where a key is set.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![self.judge_switch(), self.judge_file()];
        if let Some((path, state)) = &self.enforce {
            findings.push(state.finding(path, &self.conf));
        }
        findings.extend(
            self.always_allowed
                .iter()
                .filter_map(AllowedDevices::finding),
        );
        match &self.restricted_modes {
            Ok(modes) => findings.extend(modes.iter().map(RestrictedMode::finding)),
            Err(error) => {
                let text = format!("could not be looked at as a login does: {error}");
                let remedy = "run this as root of the node";
                findings.push(Finding::unknown(Check::DeviceModes, "GPUs", text, remedy));
            }
        }
        findings.extend(
            self.limits_without_controller
                .iter()
                .map(judge_limit_without_controller),
        );
        findings.extend(self.judge_order_of_memory());
        findings.extend(self.judge_disk_weight());
        findings
    }

    /// Judges whether the module is switched off, by a file that root owns: the module ignores any other.
    fn judge_switch(&self) -> Finding {
        let object = self.off_switch.display();
        if !self.is_off {
            let text = "is not there, so the module is on";
            return Finding::fine(Check::SwitchedOff, object, text);
        }
        let text = "switches the module off: every user can log in, outside of jobs";
        // No command: it would close the node to those whom the switch was made for.
        let remedy = format!(
            "if what it was made for is over: rm {}, and see by job-adopt strays which logins are outside of jobs",
            module::OFF_SWITCH_PATH
        );
        Finding::error(Check::SwitchedOff, object, text, remedy)
    }

    /// Warns if `login_memory_high` is not below `login_memory`: logins are then killed before they are
    /// slowed down. `None` if it is below, if one of both is not set, or if one is in MiB and the other in
    /// percent of the job's limit, which cannot be compared.
    fn judge_order_of_memory(&self) -> Option<Finding> {
        let limits = &self.login_limits;
        // A limit is in one of two units, and 0 in the other one; a limit that is not set is 0 in both.
        let is_sound = match (limits.memory_mib, limits.memory_percent) {
            (0, 0) => true,
            (mib, 0) => limits.memory_high_mib < mib,
            (_, percent) => limits.memory_high_percent < percent,
        };
        if is_sound {
            return None;
        }
        let text = "is not below login_memory, so logins are killed before they are slowed down";
        let remedy = "lower it to some nine tenths of login_memory, or remove one of both";
        Some(Finding::warning(
            Check::LoginLimits,
            "login_memory_high",
            text,
            remedy,
        ))
    }

    /// Reports a weight of logins that no disk counts; `None` if there is no weight, if a disk counts it, or
    /// if the missing controller is reported already.
    fn judge_disk_weight(&self) -> Option<Finding> {
        const KEY: &str = "login_io_weight";
        let lacks_controller = self
            .limits_without_controller
            .iter()
            .any(|limit| limit.key == KEY);
        if self.login_limits.io_weight == 0 || lacks_controller || self.weighs_disks {
            return None;
        }
        let text = "has no effect: no disk of this node counts weights";
        let remedy = "enable io.cost.qos in the root of cgroup v2, or BFQ for a disk (write bfq into \
                      /sys/block/DISK/queue/scheduler), or remove the key";
        Some(Finding::note(Check::LoginLimits, KEY, text, remedy))
    }

    /// Judges whether the configuration can be used; a missing file has the defaults.
    fn judge_file(&self) -> Finding {
        let object = self.conf.display();
        match &self.file {
            Ok(()) => {
                let text = "is valid, or missing, and only root can change it";
                Finding::fine(Check::Configuration, object, text)
            }
            Err(fault) => {
                let text = describe_fault(fault);
                let remedy = match fault {
                    ConfigFault::Unread(_) => {
                        let remedy = "run this as root of the node";
                        return Finding::unknown(Check::Configuration, object, text, remedy);
                    }
                    ConfigFault::Unusable(ConfigError::UntrustedFile(error)) => trust_remedy(error),
                    // No command takes the line away: its key would have the default, which may open the node.
                    ConfigFault::Unusable(ConfigError::InvalidLine(..)) => {
                        "correct that line; man job_adopt.conf has all keys".into()
                    }
                };
                Finding::error(Check::Configuration, object, text, remedy)
            }
        }
    }
}

impl EnforceState {
    /// Finds out whether the file exists, and whether only root can make or remove it.
    fn read(site: &Site, path: &Path) -> Self {
        if let Some(Err(error)) = path.parent().map(|parent| site.trust.dir(parent)) {
            // A folder that is missing has no file either: that is the last case.
            if !error.is_missing() {
                return Self::Distrusted(error);
            }
        }
        if path.symlink_metadata().is_ok() {
            return Self::Present;
        }
        Self::Missing {
            has_jobs: runs_jobs(site),
        }
    }

    /// Judges the file at `path` of the key `enforce`, which makes the module decide while it exists. Its
    /// absence is an error on a node that runs jobs, and a note on another one. `conf` is the path of the
    /// configuration.
    fn finding(&self, path: &Path, conf: &Path) -> Finding {
        let file = path.display();
        let object = format!("enforce = if-exists:{file}");
        match self {
            Self::Distrusted(error) => {
                let text = format!("can be made or removed by others than root: {error}");
                Finding::warning(Check::Enforced, object, text, trust_remedy(error))
            }
            Self::Present => {
                let text = "exists, so the module decides on the logins to this node";
                Finding::fine(Check::Enforced, object, text)
            }
            Self::Missing { has_jobs: true } => {
                let text = "does not exist, so every user gets in, outside of jobs, and this node runs jobs";
                let remedy = format!(
                    "make it, by touch {}, or correct the path in {}",
                    shell_path(path),
                    conf.display()
                );
                Finding::error(Check::Enforced, object, text, remedy)
            }
            Self::Missing { has_jobs: false } => {
                let text = "does not exist, so the module lets every user log in to this node";
                let remedy = format!("unless this is a login node: touch {}", shell_path(path));
                Finding::note(Check::Enforced, object, text, remedy)
            }
        }
    }
}

/// Checks whether this is a compute node: a daemon of Slurm runs here, or jobs are registered.
fn runs_jobs(site: &Site) -> bool {
    site.is_here() && runs_slurm()
        || site
            .config
            .registry
            .list_users()
            .is_ok_and(|users| !users.is_empty())
}

impl AllowedDevices {
    /// Reads what an entry comes to here; `None` for one that cannot be resolved, as on nodes without that device.
    fn read(resolver: &Resolver, specifier: &Specifier) -> Option<Self> {
        match specifier.skip_reason() {
            Some(reason) => Some(Self::skipped(specifier, reason)),
            None => {
                let resolved = resolver.resolve_specifier(specifier).ok()?;
                Some(Self::resolved(specifier, resolved))
            }
        }
    }

    /// An entry that logins skip: it has no devices, and the reason as its warning.
    fn skipped(specifier: &Specifier, reason: &str) -> Self {
        Self {
            specifier: specifier.to_string(),
            gpus: 0,
            fits_in_list: true,
            warnings: vec![reason.to_owned()],
        }
    }

    fn resolved(specifier: &Specifier, resolved: ResolvedDevices) -> Self {
        let mut list = Allowlist::new();
        let mut fits_in_list = true;
        for device in &resolved.devices {
            // What does not fit is left out of the count of GPUs.
            if list.push(device.rule).is_err() {
                fits_in_list = false;
                break;
            }
        }
        Self {
            specifier: specifier.to_string(),
            gpus: gpu_count(&list),
            fits_in_list,
            warnings: resolved.warnings,
        }
    }

    /// Judges an entry; `None` if it opens no GPU, has no warning and fits into a list. Of several faults it
    /// reports the first in this order.
    fn finding(&self) -> Option<Finding> {
        let text = if self.gpus > 0 {
            format!("gives {} of the GPUs to every job", self.gpus)
        } else if !self.fits_in_list {
            "names more devices than a list can hold".to_owned()
        } else if !self.warnings.is_empty() {
            self.warnings.join("; ")
        } else {
            return None;
        };
        let object = format!("always_allowed, {}", self.specifier);
        let remedy = "remove it from always_allowed: a job gets its own devices from its scheduler or record";
        Some(Finding::warning(Check::AlwaysAllowed, object, text, remedy))
    }
}

/// Lists the nodes of GPUs that not every user can open, grouped by their mode. There are none if the GPUs
/// cannot be listed: the command `devices` shows why.
///
/// # Errors
///
/// As [`Site::with_helper_rights_if_any`].
fn list_restricted_modes(site: &Site) -> Result<Vec<RestrictedMode>, RightsError> {
    let tree = site.tree();
    let list = || topology::list_gpus(&tree).unwrap_or_default();
    let mut restricted = RestrictedNodes::default();
    for gpu in site.with_helper_rights_if_any(list)? {
        for device in gpu.devices.devices {
            restricted.add_if_restricted(&tree, &device.node, device.rule.access());
        }
    }
    if restricted.is_empty() {
        return Ok(Vec::new());
    }
    let users = find_job_owners(site);
    Ok(restricted
        .iter()
        .map(|(mode, nodes)| RestrictedMode::new(mode, nodes, &users))
        .collect())
}

impl RestrictedMode {
    /// Finds out which of these users cannot open the nodes.
    fn new(mode: &NodeMode, nodes: String, users: &[NodeUser]) -> Self {
        Self {
            nodes,
            mode: mode.to_string(),
            is_owners_alone: mode.is_owners_alone(),
            excluded: users
                .iter()
                .filter(|user| mode.excludes(user))
                .map(|user| user.name.clone())
                .take(USERS_SHOWN_MAX)
                .collect(),
        }
    }

    /// Reports the mode as a warning if it keeps out everybody, or a user who has a job now.
    fn finding(&self) -> Finding {
        let is_warning = self.is_owners_alone || !self.excluded.is_empty();
        let severity = if is_warning {
            Severity::Warning
        } else {
            Severity::Note
        };
        let mode = &self.mode;
        let text = if self.excluded.is_empty() {
            format!("{mode}: others cannot open them, whatever their jobs are given")
        } else {
            format!(
                "{mode}, which keeps out users with jobs here: {}",
                self.excluded.join(", ")
            )
        };
        let remedy = "add the users to that group; MODE=\"0666\" in a rule of udev opens them to all that runs outside \
                      of confined jobs: only if check reports neither open slices nor slurm-devices";
        Finding::new(severity, Check::DeviceModes, &self.nodes, text, remedy)
    }
}

/// Finds the users who have a job now, as far as records and schedulers can be read and accounts be looked up.
pub(super) fn find_job_owners(site: &Site) -> Vec<NodeUser> {
    let records = Records::read(&site.config.registry, &site.trust).unwrap_or_default();
    let mut uids: BTreeSet<u32> = records.usable.iter().map(|record| record.uid).collect();
    if site.is_here() {
        let jobs = NodeJobs::read_beside(records, &site.config);
        uids.extend(jobs.running.iter().map(|job| job.uid));
    }
    uids.into_iter()
        .filter_map(|uid| NodeUser::find(uid).ok())
        .collect()
}

/// Reads a file in the root of cgroup v2; empty if it is not there.
fn read_root_cgroup(site: &Site, file: &str) -> String {
    let mount = Mount::open_below(&site.root).map_or("/sys/fs/cgroup", |mount| mount.path());
    fs::read_to_string(site.at(mount).join(file)).unwrap_or_default()
}

/// Lists the limits of logins that apply to no job here, since their controller is not on cgroup v2.
fn list_limits_without_controller(site: &Site) -> Vec<LimitKey> {
    let controllers = read_root_cgroup(site, "cgroup.controllers");
    let mut limits: Vec<LimitKey> = site.config.login_limits.list_keys().collect();
    // A weight of disks has two files, one after the other.
    limits.dedup_by_key(|limit| limit.key);
    limits.retain(|limit| {
        !controllers
            .split_whitespace()
            .any(|word| word == limit.controller)
    });
    limits
}

/// Checks whether a disk of this node counts weights: the controller of costs is on for one
/// (cgroup-v2.rst, "IO Interface Files"), or BFQ is the scheduler of one.
fn weighs_disks(site: &Site) -> bool {
    let costs = read_root_cgroup(site, "io.cost.qos");
    if costs.split_whitespace().any(|word| word == "enable=1") {
        return true;
    }
    let disks = fs::read_dir(site.at("/sys/block"));
    disks.into_iter().flatten().flatten().any(|disk| {
        let schedulers = fs::read_to_string(disk.path().join("queue/scheduler"));
        schedulers.is_ok_and(|text| text.contains("[bfq]"))
    })
}

/// Reports a limit of logins that applies to no job, since its controller is not on cgroup v2.
fn judge_limit_without_controller(limit: &LimitKey) -> Finding {
    let text = format!(
        "applies to no job: cgroup v2 does not have the controller {}",
        limit.controller
    );
    let remedy = "boot with systemd.unified_cgroup_hierarchy=1 and without cgroup_disable=, or \
                  remove the key";
    Finding::warning(Check::LoginLimits, limit.key, text, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::trust::Distrust;

    #[test]
    fn state_of_enforce_decides_severity() {
        let distrusted = TrustError::new(Path::new("/etc/x"), Distrust::WrongOwner(7));
        for (state, severity) in [
            (EnforceState::Distrusted(distrusted), Severity::Warning),
            (EnforceState::Present, Severity::Fine),
            (EnforceState::Missing { has_jobs: true }, Severity::Error),
            (EnforceState::Missing { has_jobs: false }, Severity::Note),
        ] {
            let finding = state.finding(Path::new("/etc/x/gpus"), Path::new("/etc/x.conf"));
            assert_eq!(finding.severity, severity, "{finding:?}");
        }
    }

    #[test]
    fn mode_is_a_warning_if_it_keeps_somebody_out() {
        let finding = |is_owners_alone: bool, excluded: &[&str]| {
            let excluded = excluded.iter().map(|name| (*name).to_owned()).collect();
            let nodes = "/dev/dri/renderD128".to_owned();
            let mode = "mode 0660".to_owned();
            RestrictedMode {
                nodes,
                mode,
                is_owners_alone,
                excluded,
            }
            .finding()
        };
        let severity =
            |is_owners_alone: bool, excluded: &[&str]| finding(is_owners_alone, excluded).severity;
        assert_eq!(severity(false, &[]), Severity::Note);
        assert_eq!(severity(false, &["alice"]), Severity::Warning);
        assert_eq!(severity(true, &[]), Severity::Warning);
        // A mode for all is safe only where nobody is outside of a filter.
        let advice = finding(false, &[]).remedy;
        assert!(
            advice
                .advice()
                .contains("only if check reports neither open slices nor slurm-devices")
        );
    }
}
