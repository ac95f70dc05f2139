//! Checks the configuration, the registry, and the file that switches the module off.

use super::{Check, Finding, Site};
use crate::accounts;
use helper::devices::{Resolver, Specifier, gpu_count};
use helper::records::ReadError;
use helper::{Config, ConfigError};
use protocol::{Allowlist, SourceName};
use std::fmt::Display;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const CONFIGURATION: Check = "configuration";
const ALWAYS_ALLOWED: Check = "always-allowed";
const SWITCHED_OFF: Check = "switched-off";
const ENFORCED: Check = "enforced";
const REGISTRY: Check = "registry";
const RECORDS: Check = "records";

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    let mut findings = vec![check_switch(site), check_file(site)];
    findings.extend(check_enforce(site));
    let specifiers = site.config.always_allowed.iter();
    findings.extend(specifiers.filter_map(|specifier| check_always_allowed(site, specifier)));
    findings.extend(check_registry(site));
    findings
}

fn check_file(site: &Site) -> Finding {
    let object = site.conf.display();
    let read = || Config::read(&site.conf, &site.trust);
    // A missing account is a finding of its own.
    match site.with_helper_rights(read).unwrap_or_else(|_| read()) {
        Ok(_) => Finding::fine(
            CONFIGURATION,
            object,
            "is right, or not there, and only root can change it",
        ),
        Err(ConfigError::UntrustedFile(error)) => {
            let text = format!("is not believed, every login is refused (JA09): {error}");
            Finding::error(
                CONFIGURATION,
                object,
                text,
                "chown root: and chmod go-w,a+r what is named",
            )
        }
        Err(error) => {
            let text = format!("every login is refused (JA09): {error}");
            Finding::error(
                CONFIGURATION,
                object,
                text,
                "correct the line; job_adopt.conf(5) has the keys",
            )
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
        (gpus, _) => format!("opens GPUs to every job: {gpus}"),
    };
    Some(Finding::warning(
        ALWAYS_ALLOWED,
        object,
        text,
        "take it out: a job's own devices are in its record",
    ))
}

fn check_switch(site: &Site) -> Finding {
    let path = site.at(module::OFF_SWITCH_PATH);
    match path.symlink_metadata() {
        Ok(meta) if meta.uid() == site.trust.owner() => {
            let text = "is there: the module ignores every login, which nothing keeps out then";
            Finding::error(
                SWITCHED_OFF,
                path.display(),
                text,
                format!("rm {}", module::OFF_SWITCH_PATH),
            )
        }
        _ => Finding::fine(SWITCHED_OFF, path.display(), "switches nothing off"),
    }
}

fn check_enforce(site: &Site) -> Option<Finding> {
    let path = site.config.enforce.as_deref()?;
    let object = format!("enforce = if-exists:{}", path.display());
    let trusted = path.parent().map(|parent| site.trust.dir(parent));
    if let Some(error) = trusted.and_then(Result::err).filter(|error| !error.is_missing()) {
        let text = format!("somebody else than root decides whether it exists: {error}");
        let remedy = "name a path in folders that only root can write";
        return Some(Finding::warning(ENFORCED, object, text, remedy));
    }
    Some(match path.symlink_metadata() {
        Ok(_) => Finding::fine(ENFORCED, object, "exists: logins are judged on this node"),
        Err(_) => {
            let text = "does not exist: logins are not judged on this node";
            Finding::note(ENFORCED, object, text, "none on a login node; else make that path")
        }
    })
}

/// Checks the registry, and finds the records in it that refuse their owners' logins.
fn check_registry(site: &Site) -> Vec<Finding> {
    let Config { registry, sources, .. } = &site.config;
    let object = registry.dir().display();
    let chown = "chown root: and chmod go-w what is named";
    match site.trust.dir(registry.dir()) {
        _ if !sources.contains(&SourceName::Registry) => return Vec::new(),
        // `register` makes it.
        Err(error) if error.is_missing() => return Vec::new(),
        Err(error) => {
            let text = format!("is not believed, every login is refused (JA09): {error}");
            return vec![Finding::error(REGISTRY, object, text, chown)];
        }
        Ok(_) => {}
    }
    let users = match registry.list_users() {
        Ok(users) => users,
        Err(error) => return vec![Finding::unknown(REGISTRY, object, error, "run this as root")],
    };
    let mut findings = vec![Finding::fine(REGISTRY, object, "only root can write it")];
    for uid in users {
        let broken = |path: &Path, cause: &dyn Display, remedy: &str| {
            let text = format!("refuses logins of {} (JA09): {cause}", accounts::user_name(uid));
            Finding::error(RECORDS, path.display(), text, remedy)
        };
        match registry.read_user(&site.trust, uid) {
            Ok(records) => {
                let files = records.broken.iter().filter(|file| file.job.is_some());
                let remedy = "correct or remove it, or register the job again";
                findings.extend(files.map(|file| broken(&file.path, &file.cause, remedy)));
            }
            Err(ReadError::NoRegistry) => {}
            Err(error) => findings.push(broken(&registry.user_dir(uid), &error, chown)),
        }
    }
    findings
}
