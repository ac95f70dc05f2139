//! Checks the programs of a login: the module, its helper and keeper, and the helper's account.

use super::finding::{Check, Finding};
use super::installed;
use super::site::{Account, NOBODY_UID, Site};
use super::trusted_file::{require_trusted, trust_remedy};
use crate::accounts::HELPER_USER;
pub(crate) use helper::stack::{find_module, find_module_folder};
use kernel::sys::clock::now;
use kernel::sys::file::get_xattr;
use kernel::trust::{Distrust, Trust, TrustError};
use protocol::{VERSION, VERSION_MISMATCH};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::Path;

pub(super) fn findings(site: &Site) -> Vec<Finding> {
    let helper = site.at(&site.settings().helper);
    let modules: BTreeSet<&str> = site.own_lines().map(|entry| entry.module.as_str()).collect();
    let modules = modules.into_iter().flat_map(|name| check_module(site, name, &helper));
    let mut findings: Vec<Finding> = modules.collect();
    findings.push(check_helper(site, &helper));
    findings.extend(check_keeper(site, &helper));
    findings.extend(check_selinux_label(site, &helper));
    findings.push(check_account(site));
    findings
}

fn check_module(site: &Site, name: &str, helper: &Path) -> Vec<Finding> {
    let folder = if name.starts_with('/') {
        Some(site.root.clone())
    } else {
        find_module_folder(&site.root)
    };
    let Some(path) = folder.map(|folder| folder.join(name.trim_start_matches('/'))) else {
        let text = "was not found: the folder of the PAM modules is not known";
        let remedy = "find / -name pam_permit.so shows it; give the full path in the PAM lines";
        return vec![Finding::unknown(Check::ModuleFile, name, text, remedy)];
    };
    let object = path.display();
    // libpam follows links.
    let Ok(real) = path.canonicalize() else {
        let text = "is missing, so every login of the service is refused, root's too";
        let remedy = "job-adopt pam --remove, or install the module again";
        return vec![Finding::error(Check::ModuleFile, object, text, remedy)];
    };
    let file = match require_trusted(&site.trust, &real) {
        Ok(_) => Finding::fine(Check::ModuleFile, object, "exists, and only root can change it"),
        Err(why) => {
            let text = format!("runs as root at every login, but {why}");
            Finding::error(Check::ModuleFile, object, text, trust_remedy(&why))
        }
    };
    let version = check_version(Check::ModuleVersion, &path, &real, "install both packages again");
    let mut findings = vec![file, version];
    findings.extend(installed::findings(site, &real, helper));
    findings
}

/// Checks that a file has the version of this program: module and helper refuse logins if their
/// versions differ.
fn check_version(check: Check, shown_path: &Path, path: &Path, again: &str) -> Finding {
    let object = shown_path.display();
    match find_version(&std::fs::read(path).unwrap_or_default()).as_deref() {
        Some(VERSION) => {
            Finding::fine(check, object, format!("can be used, and is of version {VERSION}"))
        }
        Some(other) => {
            let text = format!(
                "is of version {other}, but job-adopt is of {VERSION}: module and helper of different \
                 versions refuse logins (JA08)"
            );
            let remedy = "install both packages again, in one version";
            Finding::error(check, object, text, remedy)
        }
        None => Finding::unknown(check, object, "shows no version", again),
    }
}

fn check_helper(site: &Site, path: &Path) -> Finding {
    // The account job-adopt runs it.
    if let Err(why) = require_executable(&site.trust, path, 0o001) {
        let text = format!("cannot be run, so every login is refused (JA09): {why}");
        return Finding::error(
            Check::Helper,
            path.display(),
            text,
            mode_remedy(path, &why, "0711"),
        );
    }
    let remedy = if site.is_root() { "install both packages again" } else { "run this as root" };
    check_version(Check::Helper, path, path, remedy)
}

/// Checks the keeper, which ends the logins of Flux jobs. It may be missing on a node without Flux.
fn check_keeper(site: &Site, helper: &Path) -> Option<Finding> {
    let path = helper.with_file_name("keeper");
    let has_flux = super::sources::find_flux_account(site).is_some_and(|account| account.uid != 0);
    if !has_flux && path.symlink_metadata().is_err() {
        return None;
    }
    Some(match require_executable(&site.trust, &path, 0o111) {
        Ok(()) => Finding::fine(Check::Keeper, path.display(), "can be run"),
        Err(why) => {
            let text = format!("cannot be run, so logins to Flux jobs are refused: {why}");
            Finding::error(Check::Keeper, path.display(), text, mode_remedy(&path, &why, "0755"))
        }
    })
}

/// Returns the remedy for a program that the module would not run, and that should have this mode.
fn mode_remedy(path: &Path, why: &TrustError, mode: &str) -> String {
    let shown = path.display();
    match path.symlink_metadata() {
        Err(_) => "install both packages again".to_owned(),
        Ok(_) if why.path() == path => format!("chown root: {shown} && chmod {mode} {shown}"),
        Ok(_) => trust_remedy(why),
    }
}

/// Checks the helper's SELinux label, if SELinux enforces: then only our policy lets sshd do what a
/// login needs. A label that the loaded policy does not know counts as missing.
fn check_selinux_label(site: &Site, helper: &Path) -> Option<Finding> {
    let selinux = site.at("/sys/fs/selinux");
    std::fs::read(selinux.join("enforce")).ok().filter(|enforce| enforce == b"1")?;
    let file = File::open(helper).ok()?;
    let label = get_xattr(file.as_fd(), c"security.selinux").unwrap_or_default();
    let context = File::options().write(true).open(selinux.join("context"));
    let is_known = context.and_then(|mut context| context.write_all(&label)).is_ok();
    let label = String::from_utf8_lossy(&label);
    if is_known && label.contains(":job_adopt_helper_exec_t") {
        return Some(Finding::fine(
            Check::Selinux,
            helper.display(),
            "has the label of our policy",
        ));
    }
    let text = format!(
        "SELinux enforces without our policy, or this file lacks its label: every login but root's is \
         refused (label {label:?})"
    );
    let remedy = "semodule -X 200 -i /usr/share/job-adopt/selinux/job-adopt.cil; \
                  restorecon -RF /usr/libexec/job-adopt /run/job-adopt";
    Some(Finding::error(Check::Selinux, helper.display(), text, remedy))
}

/// Checks that the module would run a program: only root can have written it, and its mode has one of
/// these execute bits.
fn require_executable(trust: &Trust, path: &Path, rights: u32) -> Result<(), TrustError> {
    let mode = require_trusted(trust, path)?;
    if mode & 0o6000 != 0 || mode & rights == 0 {
        return Err(TrustError::new(path, Distrust::WrongMode(mode)));
    }
    Ok(())
}

/// Finds the version that a program of this project has in one of its texts.
fn find_version(bytes: &[u8]) -> Option<String> {
    let (before, after) = VERSION_MISMATCH.split_once(VERSION)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-+~".contains(c);
    let text = String::from_utf8_lossy(bytes);
    let versions = text.split(before).skip(1).filter_map(|rest| Some(rest.split_once(after)?.0));
    let mut versions =
        versions.filter(|version| !version.is_empty() && version.chars().all(is_plain));
    versions.next().map(str::to_owned)
}

fn check_account(site: &Site) -> Finding {
    let object = format!("account {HELPER_USER}");
    let make = "/usr/libexec/job-adopt/account makes it";
    let Some(Account { uid, gid, .. }) = site.find_account(HELPER_USER) else {
        let text = "does not exist, so every login is refused (JA09)";
        return Finding::error(Check::Account, object, text, make);
    };
    if uid == 0 || gid == 0 {
        let text = "has root's uid or gid, so every login is refused (JA09)";
        let remedy = format!("remove it from /etc/passwd; {make} anew");
        return Finding::error(Check::Account, object, text, remedy);
    }
    let is_other = |other: &Account| other.uid == uid && other.name != HELPER_USER;
    if uid == NOBODY_UID || site.local_accounts().iter().any(is_other) {
        let text = format!(
            "shares uid {uid} with other accounts, whose processes can change what a login finds"
        );
        return Finding::warning(
            Check::Account,
            object,
            text,
            "usermod --uid N job-adopt, where no other account has the uid N",
        );
    }
    let shadow = std::fs::read(site.at("/etc/shadow")).unwrap_or_default();
    if is_usable(&String::from_utf8_lossy(&shadow)) {
        let text = "is not locked and expired, so cron and other services run programs for it";
        let remedy = "usermod --lock --expiredate 1 job-adopt";
        return Finding::warning(Check::Account, object, text, remedy);
    }
    Finding::fine(Check::Account, object, format!("exists, uid {uid}"))
}

/// Returns whether shadow(5) has the helper's account with a password or without an expiry date. The
/// file lacks accounts of other name services, and only root can read it.
fn is_usable(shadow: &str) -> bool {
    let mut lines = shadow.lines();
    let Some(line) = lines.find(|line| line.split(':').next() == Some(HELPER_USER)) else {
        return false;
    };
    let field = |index| line.split(':').nth(index).unwrap_or_default();
    let today = now() / (24 * 60 * 60);
    let has_expired = field(7).parse().is_ok_and(|day: i64| (1..today).contains(&day));
    !(has_expired && field(1).starts_with(['!', '*']))
}
