//! The programs that the module runs.

use super::{Check, Finding, Site};
use crate::plan::{SPEAKS_TO, VERSION};
use crate::trust::Trust;
use nix::unistd::User;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const HELPER: Check = "helper";
const KEEPER: Check = "keeper";

pub(super) fn findings(site: &Site<'_>) -> Vec<Finding> {
    let helper = site.path(&site.settings().helper);
    let mut found = helper_is_fit(site, &helper);
    found.extend(keeper_is_fit(site, &helper));
    found
}

fn helper_is_fit(site: &Site<'_>, path: &Path) -> Vec<Finding> {
    let object = path.display();
    let closed = || (mode(path)? & 0o001 == 0).then(|| "job-adopt cannot run it".to_owned());
    if let Some(why) = unfit(&site.trust, path).or_else(closed) {
        let text = format!("{why}: every login is refused (JA09)");
        let remedy = "install it again, root's, mode 0711, in folders that only root can write";
        return vec![Finding::error(HELPER, object, text, remedy)];
    }
    let carried = std::fs::read(path).ok().and_then(|bytes| carried_version(&bytes));
    let mut found = match carried.as_deref() {
        Some(VERSION) => {
            let text = format!("is fit to be run, and of version {VERSION}");
            vec![Finding::fine(HELPER, object, text)]
        }
        Some(other) => {
            let text = format!("is of version {other}, this program of {VERSION}");
            let remedy = "install module, helper and program of one version";
            vec![Finding::error(HELPER, object, text, remedy)]
        }
        None => {
            let text = "is fit to be run; of which version it is cannot be told";
            let remedy = if site.is_root() { "install it again" } else { "run this as root" };
            vec![Finding::unknown(HELPER, object, text, remedy)]
        }
    };
    if mode(path).is_some_and(|mode| mode & 0o044 != 0) {
        let text = "can be read by the account that it runs as, which can trace it then";
        found.push(Finding::note(HELPER, path.display(), text, "chmod 0711 it"));
    }
    found
}

/// It ends the logins of Flux's jobs, and is missed where there are such.
fn keeper_is_fit(site: &Site<'_>, helper: &Path) -> Option<Finding> {
    let path = helper.parent().map(|folder| folder.join("keeper"))?;
    let has_flux = super::flux::account(site).is_some_and(|uid| uid != 0);
    if !has_flux && path.symlink_metadata().is_err() {
        return None;
    }
    Some(match unfit(&site.trust, &path) {
        None => Finding::fine(KEEPER, path.display(), "is fit to be run"),
        Some(why) => {
            let text = format!("{why}: logins to jobs of Flux's are refused");
            let remedy = "install it again, root's, mode 0755, in folders that only root can write";
            Finding::error(KEEPER, path.display(), text, remedy)
        }
    })
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
    let owner = trust.owner();
    match meta.mode() {
        _ if !meta.is_file() => Some("is no regular file".to_owned()),
        _ if meta.uid() != owner => Some(format!("belongs to {}", named(meta.uid()))),
        mode if mode & 0o022 != 0 => {
            Some(format!("is writable by others (mode {:04o})", mode & 0o7777))
        }
        _ => None,
    }
}

fn named(uid: u32) -> String {
    match User::from_uid(uid.into()) {
        Ok(Some(user)) => user.name,
        _ => format!("uid {uid}"),
    }
}

/// The version that a file of ours tells in one of its texts.
pub(super) fn carried_version(bytes: &[u8]) -> Option<String> {
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
