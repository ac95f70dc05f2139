//! Checks the programs of a login: the module, its helper and keeper, and the helper's account.

use super::{Account, Check, Finding, NOBODY_UID, Site, installed};
use crate::accounts::HELPER_USER;
use kernel::sys::clock::now;
use kernel::sys::file::get_xattr;
use kernel::trust::{Distrust, Trust, TrustError};
use protocol::{VERSION, VERSION_MISMATCH};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const MODULE_FILE: Check = "module-file";
const MODULE_VERSION: Check = "module-version";
const ACCOUNT: Check = "account";
const HELPER: Check = "helper";
const KEEPER: Check = "keeper";
const SELINUX: Check = "selinux";

/// A module that every Linux-PAM has; it shows which folder has the modules.
const STOCK_MODULE: &str = "pam_permit.so";

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
    let folder = match name.starts_with('/') {
        true => Some(site.root.clone()),
        false => find_module_folder(&site.root),
    };
    let Some(path) = folder.map(|folder| folder.join(name.trim_start_matches('/'))) else {
        let text = "cannot be found: no folder of PAM modules has pam_permit.so";
        return vec![Finding::unknown(
            MODULE_FILE,
            name,
            text,
            "look where libpam finds its modules",
        )];
    };
    let object = path.display();
    // libpam follows links.
    let Ok(real) = path.canonicalize() else {
        let text = "is not there: libpam refuses every login of the service, root's too";
        let remedy = "install the module there, or take our lines out of the stack";
        return vec![Finding::error(MODULE_FILE, object, text, remedy)];
    };
    let file = match require_trusted(&site.trust, &real) {
        Ok(_) => Finding::fine(MODULE_FILE, object, "is there, and only root can change it"),
        Err(why) => {
            let text = format!("runs as root in every login, and {why}");
            Finding::error(MODULE_FILE, object, text, "chown root: and chmod go-w what is named")
        }
    };
    let version = check_version(MODULE_VERSION, &path, &real, "install the module again");
    let mut findings = vec![file, version];
    findings.extend(installed::findings(site, &real, helper));
    findings
}

/// Checks that a file has the version of this program: module and helper refuse logins if their
/// versions differ.
fn check_version(check: Check, shown_path: &Path, path: &Path, again: &str) -> Finding {
    let object = shown_path.display();
    match find_version(&std::fs::read(path).unwrap_or_default()).as_deref() {
        Some(VERSION) => Finding::fine(check, object, format!("is fit, and of version {VERSION}")),
        Some(other) => {
            let text = format!("is of version {other}, this program of {VERSION}");
            let remedy = "install module, helper and program of one version";
            Finding::error(check, object, text, remedy)
        }
        None => Finding::unknown(check, object, "does not tell its version", again),
    }
}

/// Returns the folder of PAM modules of the node whose files are below `root`. Of several it takes
/// that of this program's architecture, which is sshd's as well.
pub(crate) fn find_module_folder(root: &Path) -> Option<PathBuf> {
    let arch = std::env::consts::ARCH;
    let folders = ["usr/lib", "lib"].map(|lib| format!("{lib}/{arch}-linux-gnu/security"));
    let others = ["usr/lib64/security", "lib64/security", "usr/lib/security", "lib/security"];
    let all = folders.iter().map(String::as_str).chain(others);
    all.map(|folder| root.join(folder)).find(|folder| folder.join(STOCK_MODULE).exists())
}

fn check_helper(site: &Site, path: &Path) -> Finding {
    // The account job-adopt runs it.
    if let Err(why) = require_executable(&site.trust, path, 0o001) {
        let text = format!("{why}: every login is refused (JA09)");
        let remedy = "install it again, root's, mode 0711, in folders that only root can write";
        return Finding::error(HELPER, path.display(), text, remedy);
    }
    let remedy = if site.is_root() { "install it again" } else { "run this as root" };
    check_version(HELPER, path, path, remedy)
}

/// Checks the keeper, which ends the logins of Flux jobs. It may be missing on a node without Flux.
fn check_keeper(site: &Site, helper: &Path) -> Option<Finding> {
    let path = helper.with_file_name("keeper");
    let has_flux = super::sources::find_flux_account(site).is_some_and(|account| account.uid != 0);
    if !has_flux && path.symlink_metadata().is_err() {
        return None;
    }
    Some(match require_executable(&site.trust, &path, 0o111) {
        Ok(()) => Finding::fine(KEEPER, path.display(), "is fit to be run"),
        Err(why) => {
            let text = format!("{why}: logins to Flux jobs are refused");
            let remedy = "install it again, root's, mode 0755, in folders that only root can write";
            Finding::error(KEEPER, path.display(), text, remedy)
        }
    })
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
        return Some(Finding::fine(SELINUX, helper.display(), "has the label of our policy"));
    }
    let text = format!("SELinux enforces, and its policy does not know it as ours ({label:?})");
    let remedy = "semodule -X 200 -i /usr/share/job-adopt/selinux/job-adopt.cil; \
                  restorecon -RF /usr/libexec/job-adopt /run/job-adopt";
    Some(Finding::error(SELINUX, helper.display(), text, remedy))
}

/// Checks that the module would run a program: only root can have written it, and its mode has one of
/// these execute bits.
fn require_executable(trust: &Trust, path: &Path, rights: u32) -> Result<(), TrustError> {
    let mode = require_trusted(trust, path)?;
    match mode & 0o6000 == 0 && mode & rights != 0 {
        true => Ok(()),
        false => Err(TrustError::new(path, Distrust::WrongMode(mode))),
    }
}

/// Checks that only root can have written a file; returns its mode.
///
/// # Errors
///
/// [`TrustError`] for a file or a folder that others may write, and for anything but a regular file.
pub(super) fn require_trusted(trust: &Trust, path: &Path) -> Result<u32, TrustError> {
    if let Some(parent) = path.parent() {
        trust.dir(parent)?;
    }
    let meta =
        path.symlink_metadata().map_err(|error| TrustError::from_error("look at", path, error))?;
    if !meta.is_file() {
        return Err(TrustError::new(path, Distrust::NotRegular));
    }
    trust.check_owner(meta.uid(), meta.mode(), path)?;
    Ok(meta.mode() & 0o7777)
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
    let make = "make a system account of its own: /usr/libexec/job-adopt/account";
    let Some(Account { uid, gid, .. }) = site.find_account(HELPER_USER) else {
        let text = "does not exist: every login is refused (JA09)";
        return Finding::error(ACCOUNT, object, text, make);
    };
    if uid == 0 || gid == 0 {
        let text = "has root's uid or gid: every login is refused (JA09)";
        return Finding::error(ACCOUNT, object, text, make);
    }
    let is_other = |other: &Account| other.uid == uid && other.name != HELPER_USER;
    if uid == NOBODY_UID || site.local_accounts().iter().any(is_other) {
        let text = format!(
            "shares uid {uid} with others, whose processes can trace those that look jobs up"
        );
        return Finding::warning(ACCOUNT, object, text, "give it a uid of its own");
    }
    if is_usable(&std::fs::read_to_string(site.at("/etc/shadow")).unwrap_or_default()) {
        let text = "is not locked and expired: cron and others take it for a person's";
        let remedy = "usermod --lock --expiredate 1 job-adopt";
        return Finding::warning(ACCOUNT, object, text, remedy);
    }
    Finding::fine(ACCOUNT, object, format!("exists, uid {uid}"))
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
