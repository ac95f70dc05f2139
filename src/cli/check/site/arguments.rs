//! What stands behind our lines.

use super::{Check, Finding, Line, Site};
use crate::plan::Request;
use crate::resolve::stack::{Group, Place};
use crate::session::{Action, Settings};
use std::path::Path;

const ARGUMENTS: Check = "pam-arguments";
const OPEN: Check = "pam-open";
const EXEMPT: Check = "pam-exemptions";

pub(super) fn findings(site: &Site<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (_, entry) in site.ours() {
        match crate::pam::parse(&entry.arguments) {
            Ok(_) => found.push(Finding::fine(ARGUMENTS, &entry.place, "its arguments are known")),
            Err(error) => {
                let text = format!("{error}: every login is refused (JA09)");
                let remedy = "mend the argument; pam_job_adopt(8) has them all";
                found.push(Finding::error(ARGUMENTS, &entry.place, text, remedy));
            }
        }
    }
    for line in site.lines.iter().filter(|line| line.group != Group::Auth) {
        found.extend(opens(&line.settings, &line.entry.place));
        found.extend(other_conf(site, line));
    }
    found.extend(exempt(site));
    found
}

/// Whatever lets a login be outside of a job.
fn opens(settings: &Settings, place: &Place) -> Vec<Finding> {
    let default = |action| action == Action::Deny;
    let word = |action| match action {
        Action::Deny => "deny",
        Action::Ignore => "ignore",
        Action::Allow => "allow",
    };
    let knobs = [
        ("action_no_jobs", settings.no_jobs, "users without a job are left to other modules"),
        ("action_adopt_failure", settings.adopt_failure, "logins that cannot join are let in"),
        ("action_generic_failure", settings.generic_failure, "faults of the node let logins in"),
    ];
    let mut found = Vec::new();
    for (name, action, does) in knobs.into_iter().filter(|(_, action, _)| !default(*action)) {
        let text = format!("{name}={} opens: {does}, outside of jobs", word(action));
        found.push(Finding::warning(OPEN, place, text, format!("take {name} away")));
    }
    if settings.observe {
        let text = "observe: nothing is enforced, logins are only written about in the log";
        let remedy = "take observe away when the log says what you expect";
        found.push(Finding::warning(OPEN, place, text, remedy));
    }
    if found.is_empty() {
        found.push(Finding::fine(OPEN, place, "no argument opens anything"));
    }
    found
}

fn other_conf(site: &Site<'_>, line: &Line) -> Option<Finding> {
    let (conf, checked) = (Path::new(&line.settings.conf), &site.scene.conf);
    if conf != Path::new(Request::CONF) && conf.symlink_metadata().is_err() {
        let text = format!(
            "has conf={}, which is not there: every login is refused (JA09)",
            conf.display()
        );
        let remedy = "write the file, or take conf= away";
        return Some(Finding::error(ARGUMENTS, &line.entry.place, text, remedy));
    }
    let text = format!("has conf={}, but {} was checked", conf.display(), checked.display());
    let remedy = format!("run: job-adopt check --conf {}", conf.display());
    (conf != checked && site.is_here())
        .then(|| Finding::warning(ARGUMENTS, &line.entry.place, text, remedy))
}

/// The lists of the PAM line exempt from being judged, those of the configuration from being
/// guarded: each has its own purpose, but to have one without the other is mostly an oversight.
fn exempt(site: &Site<'_>) -> Option<Finding> {
    let line = site.lines.iter().find(|line| line.group == Group::Session)?;
    let (settings, config) = (&line.settings, &site.scene.config);
    let mut only = Vec::new();
    let mut compare = |what: &str, pam: Vec<String>, conf: Vec<String>| {
        let lacking = |have: &[String], other: &[String]| {
            let rest: Vec<_> = have.iter().filter(|one| !other.contains(one)).cloned().collect();
            rest.join(",")
        };
        let (here, there) = (lacking(&pam, &conf), lacking(&conf, &pam));
        for (list, place) in [(here, "the PAM line"), (there, "the configuration")] {
            if !list.is_empty() {
                only.push(format!("{what} {list} only in {place}"));
            }
        }
    };
    let texts = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect();
    compare("exempt_uids", texts(&settings.exempt_uids), texts(&config.exempt_uids));
    compare("exempt_groups", settings.exempt_groups.clone(), config.exempt_groups.clone());
    if only.is_empty() {
        return None;
    }
    let text = format!(
        "{}; the line exempts logins from being judged, the configuration slices from the guard",
        only.join("; ")
    );
    Some(Finding::note(EXEMPT, &line.entry.place, text, "name them in both unless it is meant so"))
}
