//! The module's file: there, root's, and of the program's version.

use super::program::{carried_version, distrust};
use super::{Check, Finding, Site};
use crate::plan::VERSION;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const FILE: Check = "module-file";
const RELEASE: Check = "module-version";

/// A module that every Linux-PAM has, so that its folder is that of modules.
const STOCK: &str = "pam_permit.so";

pub(super) fn findings(site: &Site<'_>) -> Vec<Finding> {
    let named: BTreeSet<&str> = site.ours().map(|(_, entry)| entry.module.as_str()).collect();
    named.into_iter().flat_map(|name| file(site, name)).collect()
}

fn file(site: &Site<'_>, name: &str) -> Vec<Finding> {
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
    let mut found = Vec::new();
    found.push(match distrust(&site.trust, &real) {
        None => Finding::fine(FILE, &object, "is there, and only root can change it"),
        Some(why) => {
            let text = format!("runs as root in every login, and {why}");
            Finding::error(FILE, &object, text, "chown root: and chmod go-w what is named")
        }
    });
    found.push(release(&object, &real));
    found
}

/// Module and helper refuse logins where their versions differ.
fn release(object: &str, path: &Path) -> Finding {
    let carried = std::fs::read(path).ok().and_then(|bytes| carried_version(&bytes));
    match carried.as_deref() {
        Some(VERSION) => Finding::fine(RELEASE, object, format!("is of version {VERSION}")),
        Some(other) => {
            let text = format!("is of version {other}, this program of {VERSION}");
            Finding::error(
                RELEASE,
                object,
                text,
                "install module, helper and program of one version",
            )
        }
        None => {
            let text = "does not tell its version";
            Finding::unknown(RELEASE, object, text, format!("install the module of {VERSION}"))
        }
    }
}

/// Where libpam looks for a module. Of several folders of modules the first is that of this
/// program's architecture, which sshd's is as well.
fn place(site: &Site<'_>, name: &str) -> Option<PathBuf> {
    if name.starts_with('/') {
        return Some(site.path(name));
    }
    let arch = std::env::consts::ARCH;
    let folders = ["usr/lib", "lib"].map(|lib| format!("{lib}/{arch}-linux-gnu/security"));
    let others = ["usr/lib64/security", "lib64/security", "usr/lib/security", "lib/security"];
    let mut all = folders.iter().map(String::as_str).chain(others);
    let folder = all.find(|folder| site.path(folder).join(STOCK).exists())?;
    Some(site.path(folder).join(name))
}
