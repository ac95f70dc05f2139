//! What a login runs: the module, its helper and keeper, and the account of the helper.

use super::finding::Severity;
use super::{Account, Check, Finding, Site, installed};
use crate::admin::people::HELPER_USER;
use crate::kernel::sys::clock::now;
use crate::kernel::sys::file::get_xattr;
use crate::kernel::trust::{Distrust, Trust};
use crate::protocol::{SPEAKS_TO, VERSION};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const FILE: Check = "module-file";
const RELEASE: Check = "module-version";
const ACCOUNT: Check = "account";
const HELPER: Check = "helper";
const KEEPER: Check = "keeper";
const SELINUX: Check = "selinux";

/// A module that every Linux-PAM has, so that its folder is that of modules.
const STOCK: &str = "pam_permit.so";

pub(super) fn findings(site: &Site<'_>) -> Vec<Finding> {
    let named: BTreeSet<&str> = site.ours().map(|(_, entry)| entry.module.as_str()).collect();
    let mut found: Vec<Finding> = named.into_iter().flat_map(|name| module(site, name)).collect();
    let helper = site.scene.at(&site.settings().helper);
    found.push(helper_is_fit(site, &helper));
    found.extend(keeper_is_fit(site, &helper));
    found.extend(labelled(site, &helper));
    found.push(account(site));
    found
}

fn module(site: &Site<'_>, name: &str) -> Vec<Finding> {
    let Some(path) = place(site, name) else {
        let text = "cannot be found: no folder of PAM modules has pam_permit.so";
        return vec![Finding::unknown(FILE, name, text, "look where libpam finds its modules")];
    };
    let object = path.display().to_string();
    // libpam follows links.
    let Ok(real) = path.canonicalize() else {
        let text = "is not there: libpam refuses every login of the service, root's too";
        let remedy = "install the module there, or take our lines out of the stack";
        return vec![Finding::error(FILE, object, text, remedy)];
    };
    let file = match distrust(&site.trust, &real) {
        None => Finding::fine(FILE, &object, "is there, and only root can change it"),
        Some(why) => {
            let text = format!("runs as root in every login, and {why}");
            Finding::error(FILE, &object, text, "chown root: and chmod go-w what is named")
        }
    };
    let whole = installed::findings(site, &real, &site.scene.at(&site.settings().helper));
    let own = release(RELEASE, &object, &real, "install the module again");
    [file, own].into_iter().chain(whole).collect()
}

/// Module and helper refuse logins where their versions differ.
fn release(check: Check, object: impl Display, path: &Path, again: &str) -> Finding {
    let carried = std::fs::read(path).ok().and_then(|bytes| carried_version(&bytes));
    match carried.as_deref() {
        Some(VERSION) => Finding::fine(check, object, format!("is fit, and of version {VERSION}")),
        Some(other) => {
            let text = format!("is of version {other}, this program of {VERSION}");
            let remedy = "install module, helper and program of one version";
            Finding::error(check, object, text, remedy)
        }
        None => Finding::unknown(check, object, "does not tell its version", again),
    }
}

/// Where libpam looks for a module. Of several folders of modules the first is that of this
/// program's architecture, which sshd's is as well.
fn place(site: &Site<'_>, name: &str) -> Option<PathBuf> {
    if name.starts_with('/') {
        return Some(site.scene.at(name));
    }
    Some(module_folder(&site.scene.root)?.join(name))
}

/// The folder of PAM modules of the node whose files are below `root`.
pub(in crate::admin) fn module_folder(root: &Path) -> Option<PathBuf> {
    let arch = std::env::consts::ARCH;
    let folders = ["usr/lib", "lib"].map(|lib| format!("{lib}/{arch}-linux-gnu/security"));
    let others = ["usr/lib64/security", "lib64/security", "usr/lib/security", "lib/security"];
    let all = folders.iter().map(String::as_str).chain(others);
    all.map(|folder| root.join(folder)).find(|folder| folder.join(STOCK).exists())
}

fn helper_is_fit(site: &Site<'_>, path: &Path) -> Finding {
    let closed = || (mode(path)? & 0o001 == 0).then(|| "job-adopt cannot run it".to_owned());
    if let Some(why) = unfit(&site.trust, path).or_else(closed) {
        let text = format!("{why}: every login is refused (JA09)");
        let remedy = "install it again, root's, mode 0711, in folders that only root can write";
        return Finding::error(HELPER, path.display(), text, remedy);
    }
    let again = if site.is_root() { "install it again" } else { "run this as root" };
    release(HELPER, path.display(), path, again)
}

/// It ends the logins of Flux jobs, and is missed where Flux is.
fn keeper_is_fit(site: &Site<'_>, helper: &Path) -> Option<Finding> {
    let path = helper.parent().map(|folder| folder.join("keeper"))?;
    let has_flux = super::sources::flux_account(site).is_some_and(|account| account.uid != 0);
    if !has_flux && path.symlink_metadata().is_err() {
        return None;
    }
    Some(match unfit(&site.trust, &path) {
        None => Finding::fine(KEEPER, path.display(), "is fit to be run"),
        Some(why) => {
            let text = format!("{why}: logins to Flux jobs are refused");
            let remedy = "install it again, root's, mode 0755, in folders that only root can write";
            Finding::error(KEEPER, path.display(), text, remedy)
        }
    })
}

/// Where SELinux enforces, only our policy lets sshd do what a login needs. A label that the policy in
/// force does not know is none.
fn labelled(site: &Site<'_>, helper: &Path) -> Option<Finding> {
    let selinux = site.scene.at("/sys/fs/selinux");
    std::fs::read(selinux.join("enforce")).ok().filter(|enforce| enforce == b"1")?;
    let file = File::open(helper).ok()?;
    let label = get_xattr(file.as_fd(), c"security.selinux").unwrap_or_default();
    let asked = File::options().write(true).open(selinux.join("context"));
    let known = asked.and_then(|mut asked| asked.write_all(&label)).is_ok();
    let label = String::from_utf8_lossy(&label);
    if known && label.contains(":job_adopt_helper_exec_t") {
        return Some(Finding::fine(SELINUX, helper.display(), "has the label of our policy"));
    }
    let text = format!("SELinux enforces, and its policy does not know it as ours ({label:?})");
    let remedy = "semodule -i /usr/share/job-adopt/selinux/job-adopt.cil; \
                  restorecon -RF /usr/libexec/job-adopt /run/job-adopt";
    Some(Finding::error(SELINUX, helper.display(), text, remedy))
}

/// Why the module would not run it; nothing where it would.
fn unfit(trust: &Trust, path: &Path) -> Option<String> {
    if let Some(why) = distrust(trust, path) {
        return Some(why);
    }
    match mode(path) {
        Some(mode) if mode & 0o6000 != 0 => Some("is set-user-ID or set-group-ID".to_owned()),
        Some(mode) if mode & 0o111 == 0 => Some("is not executable".to_owned()),
        _ => None,
    }
}

fn mode(path: &Path) -> Option<u32> {
    path.symlink_metadata().ok().map(|meta| meta.permissions().mode())
}

/// Why somebody else than root may have written this file; nothing where nobody can.
pub(super) fn distrust(trust: &Trust, path: &Path) -> Option<String> {
    let meta = match path.symlink_metadata() {
        Ok(meta) => meta,
        Err(error) => return Some(format!("cannot be looked at: {error}")),
    };
    if let Some(Err(error)) = path.parent().map(|parent| trust.dir(parent)) {
        return Some(error.to_string());
    }
    let cause = match meta.mode() {
        _ if !meta.is_file() => Distrust::NotRegular,
        _ if meta.uid() != trust.owner() => Distrust::Owner(meta.uid()),
        mode if mode & 0o022 != 0 => Distrust::Writable(mode & 0o7777),
        _ => return None,
    };
    Some(format!("is {cause}"))
}

/// The version that a file of ours tells in one of its texts.
fn carried_version(bytes: &[u8]) -> Option<String> {
    let (before, after) = SPEAKS_TO.split_once(VERSION)?;
    let (before, after) = (before.as_bytes(), after.as_bytes());
    let starts = bytes.windows(before.len()).enumerate().filter(|(_, part)| *part == before);
    let version = |(at, _): (usize, &[u8])| {
        let rest: Vec<u8> = bytes.iter().skip(at + before.len()).take(64).copied().collect();
        let end = rest.windows(after.len()).position(|part| part == after)?;
        let version = String::from_utf8(rest.into_iter().take(end).collect()).ok()?;
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-+~".contains(c);
        (!version.is_empty() && version.chars().all(plain)).then_some(version)
    };
    starts.filter_map(version).next()
}

fn account(site: &Site<'_>) -> Finding {
    let shadow = std::fs::read_to_string(site.scene.at("/etc/shadow")).unwrap_or_default();
    match judge(site.scene.account(HELPER_USER).as_ref(), &site.scene.local_accounts()) {
        fine if fine.severity == Severity::Fine && is_open(&shadow) => {
            let text = "is not locked and expired: cron and others take it for a person's";
            let remedy = "usermod --lock --expiredate 1 job-adopt";
            Finding::warning(ACCOUNT, fine.object, text, remedy)
        }
        other => other,
    }
}

/// Whether shadow(5) has the account with a password or without an end. It is not in there where
/// accounts come from elsewhere, and only root can tell.
fn is_open(shadow: &str) -> bool {
    let fields: Vec<Vec<&str>> = shadow.lines().map(|line| line.split(':').collect()).collect();
    let own = fields.iter().find(|fields| fields.first() == Some(&HELPER_USER));
    let field = |at: usize| own.and_then(|fields| fields.get(at).copied()).unwrap_or_default();
    let today = now() / (24 * 60 * 60);
    let over = field(7).parse().is_ok_and(|day: i64| (1..today).contains(&day));
    own.is_some() && !(over && field(1).starts_with(['!', '*']))
}

fn judge(own: Option<&Account>, local: &[Account]) -> Finding {
    let object = format!("account {HELPER_USER}");
    let make = "make a system account of its own: /usr/libexec/job-adopt/account";
    let Some(own) = own else {
        let text = "does not exist: every login is refused (JA09)";
        return Finding::error(ACCOUNT, object, text, make);
    };
    if own.uid == 0 || own.gid == 0 {
        let text = "has root's uid or gid: every login is refused (JA09)";
        return Finding::error(ACCOUNT, object, text, make);
    }
    let shared: Vec<&str> = local
        .iter()
        .filter(|other| other.uid == own.uid && other.name != own.name)
        .map(|other| other.name.as_str())
        .collect();
    if !shared.is_empty() || own.uid == 65534 {
        let others = if shared.is_empty() { "nobody".to_owned() } else { shared.join(", ") };
        let text = format!(
            "shares uid {} with {others}, whose processes can trace those that look jobs up",
            own.uid
        );
        return Finding::warning(ACCOUNT, object, text, "give it a uid of its own");
    }
    Finding::fine(ACCOUNT, object, format!("exists, uid {}", own.uid))
}
