//! Checks the configuration, the registry, and the file that switches the module off.

use super::finding::{Check, Finding, Severity};
use super::site::{Site, root_processes};
use super::trusted_file::trust_remedy;
use crate::accounts;
use crate::explain::devices::modes::{NodeMode, NodeUser, RestrictedNodes};
use crate::job::running_jobs::query_scheduler;
use helper::devices::{Resolver, Specifier};
use helper::jobs::records::{LoginTarget, ReadError, Record};
use helper::node::{gpu_count, topology};
use helper::{Config, ConfigError};
use kernel::cgroup::{Mount, ignore_gone};
use protocol::{Allowlist, LimitKey, SourceName};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    let mut findings = vec![check_switch(site), check_file(site)];
    findings.extend(check_enforce(site));
    let specifiers = site.config.always_allowed.iter();
    findings.extend(specifiers.filter_map(|specifier| check_always_allowed(site, specifier)));
    findings.extend(check_device_modes(site));
    findings.extend(check_login_limits(site));
    findings.extend(check_registry(site));
    findings
}

/// Finds nodes of GPUs that their mode keeps from users, although a job's filter opens them; a warning if it
/// keeps out a user who has a job now. GPUs that cannot be listed are none here: `devices` says why.
fn check_device_modes(site: &Site) -> Vec<Finding> {
    let tree = site.tree();
    let list = || topology::list_gpus(&tree).unwrap_or_default();
    let mut restricted = RestrictedNodes::default();
    for gpu in site.with_helper_rights(list).unwrap_or_else(|_| list()) {
        for device in gpu.devices.devices {
            restricted.add(&tree, &device.node, device.rule.access());
        }
    }
    if restricted.is_empty() {
        return Vec::new();
    }
    let users = find_job_owners(site);
    let describe = |(mode, nodes): (&NodeMode, String)| {
        let excluded: Vec<&str> = users
            .iter()
            .filter(|user| mode.excludes(user))
            .map(|user| user.name.as_str())
            .take(USERS_SHOWN_MAX)
            .collect();
        let is_warning = mode.is_owners_alone() || !excluded.is_empty();
        let severity = if is_warning { Severity::Warning } else { Severity::Note };
        let text = if excluded.is_empty() {
            format!("{mode}: others cannot open them, whatever their jobs are given")
        } else {
            format!("{mode}, which keeps out users with jobs here: {}", excluded.join(", "))
        };
        let remedy = "add the users to that group, or set MODE=\"0666\" in a rule of udev: the \
                      filters of jobs keep the others out";
        Finding::new(severity, Check::DeviceModes, nodes, text, remedy)
    };
    restricted.iter().map(describe).collect()
}

/// Maximum users that a finding names.
const USERS_SHOWN_MAX: usize = 8;

/// Finds the users who have a job now, as far as records and schedulers can be read and accounts be looked up.
fn find_job_owners(site: &Site) -> Vec<NodeUser> {
    let mut uids = BTreeSet::new();
    for uid in site.config.registry.list_users().unwrap_or_default() {
        let records = site.config.registry.read_user(&site.trust, uid);
        if records.is_ok_and(|found| !found.records.is_empty()) {
            uids.insert(uid);
        }
    }
    if site.is_here() {
        for source in &site.config.sources {
            if let Ok((running, _)) = query_scheduler(*source, &site.config) {
                uids.extend(running.into_iter().map(|(uid, _)| uid));
            }
        }
    }
    uids.into_iter().filter_map(|uid| NodeUser::find(uid).ok()).collect()
}

/// Finds limits of logins that apply to no job here, since their controller is not on cgroup v2.
fn check_login_limits(site: &Site) -> Vec<Finding> {
    let limits = site.config.login_limits;
    let mount = Mount::open_below(&site.root).map_or("/sys/fs/cgroup", |mount| mount.path());
    let available = fs::read_to_string(site.at(mount).join("cgroup.controllers"));
    let available = available.unwrap_or_default();
    let is_missing = |limit: &LimitKey| {
        !available.split_whitespace().any(|controller| controller == limit.controller)
    };
    let describe = |LimitKey { key, controller, .. }| {
        let text =
            format!("applies to no job: cgroup v2 does not have the controller {controller}");
        let remedy = "boot with systemd.unified_cgroup_hierarchy=1 and without cgroup_disable=, or \
                      remove the key";
        Finding::warning(Check::LoginLimits, key, text, remedy)
    };
    limits.list_keys().filter(is_missing).map(describe).collect()
}

fn check_file(site: &Site) -> Finding {
    let object = site.conf.display();
    let read = || Config::read(&site.conf, &site.trust);
    // A missing account is a finding of its own.
    match site.with_helper_rights(read).unwrap_or_else(|_| read()) {
        Ok(_) => Finding::fine(
            Check::Configuration,
            object,
            "is valid, or missing, and only root can change it",
        ),
        Err(ConfigError::UntrustedFile(error)) => {
            let text = format!("cannot be used, so every login is refused (JA09): {error}");
            Finding::error(Check::Configuration, object, text, trust_remedy(&error))
        }
        Err(error) => {
            let text = format!("has a mistake, so every login is refused (JA09): {error}");
            let remedy = "correct that line; man job_adopt.conf has all keys";
            Finding::error(Check::Configuration, object, text, remedy)
        }
    }
}

/// Checks an entry of `always_allowed`, which every job is given.
fn check_always_allowed(site: &Site, specifier: &Specifier) -> Option<Finding> {
    let resolver = Resolver::new(site.tree(), site.config.devices.clone());
    let object = format!("always_allowed, {specifier}");
    let resolved = resolver.resolve_specifier(specifier).ok()?;
    let mut list = Allowlist::new();
    let fits = resolved.devices.iter().all(|device| list.push(device.rule).is_ok());
    let text = match (gpu_count(&list), resolved.warnings.as_slice()) {
        (0, []) if fits => return None,
        (0, _) => resolved.warnings.join("; "),
        (gpus, _) => format!("gives {gpus} of the GPUs to every job"),
    };
    Some(Finding::warning(
        Check::AlwaysAllowed,
        object,
        text,
        "remove it from always_allowed: a job gets its own devices from its scheduler or record",
    ))
}

fn check_switch(site: &Site) -> Finding {
    let path = site.at(module::OFF_SWITCH_PATH);
    match path.symlink_metadata() {
        Ok(meta) if meta.uid() == site.trust.owner() => {
            let text = "switches the module off: every user can log in, outside of jobs";
            Finding::error(
                Check::SwitchedOff,
                path.display(),
                text,
                format!("rm {}", module::OFF_SWITCH_PATH),
            )
        }
        _ => Finding::fine(Check::SwitchedOff, path.display(), "is not there, so the module is on"),
    }
}

fn check_enforce(site: &Site) -> Option<Finding> {
    let path = site.config.enforce.as_deref()?;
    let object = format!("enforce = if-exists:{}", path.display());
    let trusted = path.parent().map(|parent| site.trust.dir(parent));
    if let Some(error) = trusted.and_then(Result::err).filter(|error| !error.is_missing()) {
        let text = format!("can be made or removed by others than root: {error}");
        let remedy = trust_remedy(&error);
        return Some(Finding::warning(Check::Enforced, object, text, remedy));
    }
    Some(match path.symlink_metadata() {
        Ok(_) => Finding::fine(
            Check::Enforced,
            object,
            "exists, so the module decides on the logins to this node",
        ),
        Err(_) if runs_jobs(site) => {
            let text =
                "does not exist, so every user gets in, outside of jobs, and this node runs jobs";
            let remedy =
                format!("touch {}, or correct the path in {}", path.display(), site.conf.display());
            Finding::error(Check::Enforced, object, text, remedy)
        }
        Err(_) => {
            let text = "does not exist, so the module lets every user log in to this node";
            let remedy = format!("touch {}, unless this is a login node", path.display());
            Finding::note(Check::Enforced, object, text, remedy)
        }
    })
}

/// Returns whether this is a compute node: Slurm's daemon runs here, or jobs are registered.
fn runs_jobs(site: &Site) -> bool {
    let has_records = || site.config.registry.list_users().is_ok_and(|users| !users.is_empty());
    site.is_here() && !root_processes(&["slurmd"]).is_empty() || has_records()
}

/// Pause before a second look: the epilog of such a job may be removing its record.
const EPILOG_GRACE: Duration = Duration::from_secs(1);

fn is_cgroup_gone(site: &Site, record: &Record) -> bool {
    let LoginTarget::Cgroup(path) = &record.target else { return false };
    let open = Mount::open_below(&site.root).and_then(|mount| mount.open_chain(path));
    ignore_gone(open).is_ok_and(|chain| chain.is_none())
}

fn path_of_record(site: &Site, record: &Record) -> PathBuf {
    site.config.registry.record_path(record.uid, &record.id)
}

fn describe_stale_record(site: &Site, record: &Record) -> Finding {
    let file = path_of_record(site, record);
    let user = accounts::user_name(record.uid);
    let text = format!("is of a job whose cgroup is gone, so it admits no login of {user} (JA01)");
    let remedy = format!("job-adopt unregister {}, and see why its epilog did not", record.id);
    Finding::warning(Check::Records, file.display(), text, remedy)
}

/// Checks the registry, and finds the records in it that refuse their owners' logins.
fn check_registry(site: &Site) -> Vec<Finding> {
    let Config { registry, sources, .. } = &site.config;
    let object = registry.dir().display();
    match site.trust.dir(registry.dir()) {
        _ if !sources.contains(&SourceName::Registry) => return Vec::new(),
        // `register` makes it.
        Err(error) if error.is_missing() => return Vec::new(),
        Err(error) => {
            let text = format!("cannot be used, so every login is refused (JA09): {error}");
            return vec![Finding::error(Check::Registry, object, text, trust_remedy(&error))];
        }
        Ok(_) => {}
    }
    let users = match registry.list_users() {
        Ok(users) => users,
        Err(error) => {
            return vec![Finding::unknown(Check::Registry, object, error, "run this as root")];
        }
    };
    let mut findings = vec![Finding::fine(Check::Registry, object, "only root can write it")];
    let mut stale = Vec::new();
    for uid in users {
        let broken = |path: &Path, cause: &dyn Display, remedy: &str| {
            let text = format!("makes logins of {} fail (JA09): {cause}", accounts::user_name(uid));
            Finding::error(Check::Records, path.display(), text, remedy)
        };
        match registry.read_user(&site.trust, uid) {
            Ok(mut records) => {
                records.records.retain(|record| is_cgroup_gone(site, record));
                stale.append(&mut records.records);
                let files = records.broken.iter().filter(|file| file.job.is_some());
                findings.extend(files.map(|file| {
                    let path = file.path.display();
                    let remedy = format!("rm {path}, and if the job still runs, register it again");
                    broken(&file.path, &file.cause, &remedy)
                }));
            }
            Err(ReadError::NoRegistry) => {}
            Err(error) => {
                let dir = registry.user_dir(uid);
                let shown = dir.display();
                let remedy = format!("chown -R root: {shown} && chmod -R go-w {shown}");
                findings.push(broken(&dir, &error, &remedy));
            }
        }
    }
    if !stale.is_empty() {
        sleep(EPILOG_GRACE);
        stale
            .retain(|record| path_of_record(site, record).exists() && is_cgroup_gone(site, record));
    }
    findings.extend(stale.iter().map(|record| describe_stale_record(site, record)));
    findings
}
