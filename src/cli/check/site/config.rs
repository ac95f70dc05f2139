//! The configuration: believed, right, and not wider than it looks.

use super::{Check, Finding, Site};
use crate::cli::as_helper::as_helper;
use crate::device::{Resolver, Specifier, Tree, gpu_count};
use crate::plan::Allowlist;
use crate::resolve::{Config, ConfigError};
use nix::unistd::Group;
use std::path::Path;

const FILE: Check = "configuration";
const WIDE: Check = "always-allowed";
const NAMES: Check = "groups";
const MESSAGE: Check = "message-file";

/// Most bytes of the message: what the helper takes.
const MESSAGE_MAX: u64 = 400;

pub(super) fn findings(site: &Site<'_>) -> Vec<Finding> {
    let mut found = vec![file(site)];
    found.extend(site.scene.config.always_allowed.iter().filter_map(|one| wide(site, one)));
    found.extend(groups(site));
    found.extend(message(site));
    found
}

/// What the helper's account would read.
pub(super) fn with_its_rights<T>(site: &Site<'_>, look: impl FnOnce() -> T) -> Result<T, String> {
    match site.is_here() {
        true => as_helper(look),
        false => Ok(look()),
    }
}

fn file(site: &Site<'_>) -> Finding {
    let path = &site.scene.conf;
    let object = path.display();
    let read = with_its_rights(site, || Config::read(path, &site.trust));
    // That the account is missing is a finding of its own.
    let read = read.unwrap_or_else(|_| Config::read(path, &site.trust));
    match read {
        Ok(_) if path.symlink_metadata().is_err() => {
            Finding::fine(FILE, object, "is not there: the defaults hold")
        }
        Ok(_) => Finding::fine(FILE, object, "is right, and only root can change it"),
        Err(ConfigError::File(error)) => {
            let text = format!("is not believed, every login is refused (JA09): {error}");
            Finding::error(FILE, object, text, "chown root: and chmod go-w,a+r what is named")
        }
        Err(error) => {
            let text = format!("every login is refused (JA09): {error}");
            Finding::error(FILE, object, text, "mend the line; job_adopt.conf(5) has the keys")
        }
    }
}

/// An entry that every job is given.
fn wide(site: &Site<'_>, specifier: &Specifier) -> Option<Finding> {
    let tree = match site.is_here() {
        true => Tree::here(),
        false => Tree::laid_out(&site.scene.root, site.trust.clone()),
    };
    let resolver = Resolver::new(tree, site.scene.config.devices.clone());
    let object = format!("always_allowed, {specifier}");
    let found = match resolver.specifier(specifier) {
        Ok(found) => found,
        Err(error) => {
            let text = format!("is left out: {error}");
            return Some(Finding::note(WIDE, object, text, "take it out where it is not needed"));
        }
    };
    let mut list = Allowlist::new();
    let fits = found.devices.iter().all(|device| list.push(device.rule).is_ok());
    let text = match (gpu_count(&list), found.warnings.as_slice()) {
        (0, []) if fits => return None,
        (0, _) => found.warnings.join("; "),
        (1, _) => "opens a GPU to every job".to_owned(),
        (gpus, _) => format!("opens {gpus} GPUs to every job"),
    };
    Some(Finding::warning(WIDE, object, text, "take it out: a job's own devices are in its record"))
}

/// Groups that the configuration or our lines name and this node does not have.
fn groups(site: &Site<'_>) -> Vec<Finding> {
    let (config, object) = (&site.scene.config, site.scene.conf.display().to_string());
    let of_lines = site
        .lines
        .iter()
        .map(|line| (line.entry.place.to_string(), "exempt_groups", &line.settings.exempt_groups));
    let of_file = [(object, "exempt_groups", &config.exempt_groups)];
    let missing = |name: &&String| matches!(Group::from_name(name), Ok(None));
    let judged = of_file.into_iter().chain(of_lines).filter_map(|(object, key, names)| {
        let names: Vec<_> = names.iter().filter(missing).map(String::as_str).collect();
        let text = format!("{key} names groups that this node does not have: {}", names.join(", "));
        (!names.is_empty()).then(|| Finding::note(NAMES, object, text, "mend the names"))
    });
    judged.collect()
}

fn message(site: &Site<'_>) -> Option<Finding> {
    let path: &Path = site.scene.config.message_file.as_deref()?;
    let read = with_its_rights(site, || site.trust.read(path, MESSAGE_MAX));
    let error = match read.ok()? {
        Ok(_) => return Some(Finding::fine(MESSAGE, path.display(), "is shown to who is refused")),
        Err(error) => error,
    };
    let text = format!("is not shown to who is refused: {error}");
    let remedy = "a file of at most 400 bytes, root's, that everybody can read";
    Some(Finding::warning(MESSAGE, path.display(), text, remedy))
}
