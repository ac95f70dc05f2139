//! What turns the module off on this node.

use super::{Check, Finding, Site};
use crate::resolve::Enforce;
use crate::switch;
use std::os::unix::fs::MetadataExt;

const OFF: Check = "switched-off";
const ENFORCE: Check = "enforced";

pub(super) fn findings(site: &Site<'_>) -> Vec<Finding> {
    let mut found = vec![off(site)];
    found.extend(enforce(site));
    found
}

fn off(site: &Site<'_>) -> Finding {
    let path = site.path(switch::OFF);
    match path.symlink_metadata() {
        Ok(meta) if meta.uid() == site.trust.owner() => {
            let text = "is there: the module ignores every login, which nothing keeps out then";
            Finding::error(OFF, path.display(), text, format!("rm {}", switch::OFF))
        }
        Ok(_) => {
            let text = "is there, but not root's, so that it switches nothing off";
            Finding::note(OFF, path.display(), text, format!("rm {}", switch::OFF))
        }
        Err(_) => Finding::fine(OFF, path.display(), "is not there: the module is on"),
    }
}

fn enforce(site: &Site<'_>) -> Option<Finding> {
    let Enforce::IfExists(path) = &site.scene.config.enforce else { return None };
    let object = format!("enforce = if-exists:{}", path.display());
    let trusted = path.parent().map(|parent| site.trust.dir(parent));
    if let Some(error) = trusted.and_then(Result::err).filter(|error| !error.is_missing()) {
        let text = format!("somebody else than root decides whether it exists: {error}");
        let remedy = "name a path in folders that only root can write";
        return Some(Finding::warning(ENFORCE, object, text, remedy));
    }
    Some(match path.symlink_metadata() {
        Ok(_) => Finding::fine(ENFORCE, object, "exists: logins are judged on this node"),
        Err(_) => {
            let text = "does not exist: logins are not judged on this node";
            Finding::note(ENFORCE, object, text, "none on a login node; else make that path")
        }
    })
}
