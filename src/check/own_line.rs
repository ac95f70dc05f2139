//! Checks the arguments of a line of our module: whether they are valid, and which of them let logins be outside of jobs.

use super::finding::{Check, Finding};
use super::pam_edits::remove_word;
use super::remedy::{Remedy, shell_word};
use super::site::Site;
use helper::stack::{Entry, FileLine};
use module::{Action, Settings};
use protocol::Request;
use std::path::Path;

/// The arguments of a line of our module.
#[derive(Debug)]
pub(super) struct OwnLine<'a> {
    place: &'a FileLine,
    arguments: Result<Arguments<'a>, String>,
    /// The exempt users and groups that do not exist.
    missing: Vec<String>,
}

#[derive(Debug)]
struct Arguments<'a> {
    settings: Settings,
    conf: ConfArgument<'a>,
}

/// How the configuration of a line stands to the one that is checked.
#[derive(Debug)]
enum ConfArgument<'a> {
    Missing,
    /// Another one was checked.
    Other(&'a Path),
    Checked,
}

impl<'a> OwnLine<'a> {
    /// Parses the arguments of one of our lines, and finds out how its `conf=` stands to the checked
    /// configuration.
    pub(super) fn read(site: &'a Site, entry: &'a Entry) -> Self {
        let arguments = Settings::parse(&entry.arguments).map(|settings| {
            let conf = ConfArgument::read(site, Path::new(&settings.conf));
            Arguments { settings, conf }
        });
        let missing = match &arguments {
            Ok(Arguments { settings, .. }) => site.describe_missing_accounts(settings),
            Err(_) => Vec::new(),
        };
        Self {
            place: &entry.place,
            arguments,
            missing,
        }
    }

    /// Checks whether an argument leaves users to other modules.
    pub(super) fn opens(&self) -> bool {
        self.arguments.as_ref().is_ok_and(|arguments| {
            let settings = &arguments.settings;
            settings.observe
                || [
                    settings.no_jobs,
                    settings.adopt_failure,
                    settings.generic_failure,
                ]
                .iter()
                .any(|action| *action != Action::Deny)
        })
    }

    /// Judges the arguments, and reports those that let a login be outside of a job.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let place = self.place;
        let Arguments { settings, conf } = match &self.arguments {
            Ok(arguments) => arguments,
            Err(error) => {
                let text = format!("{error}: every login is refused (JA09)");
                // No command takes it away: what was meant may close what its default opens.
                let remedy = "correct that argument, rather than remove it: its default may open the node; man \
                              pam_job_adopt has all";
                return vec![Finding::error(Check::PamArguments, place, text, remedy)];
            }
        };
        let mut findings = vec![conf.finding(place, &settings.conf)];
        findings.extend(find_opening_actions(place, settings));
        if settings.observe {
            let text = "observe: nothing is enforced; the log shows what would happen";
            // No command: it would end the observation.
            let advice = "go on until the log is as you expect, which job-adopt compare sums up; then, on both lines";
            let remedy = Remedy::from(advice).and(remove_word(place, "observe").advice());
            findings.push(Finding::warning(Check::PamOpen, place, text, remedy));
        }
        for text in list_exemptions(settings) {
            findings.push(Finding::note(Check::PamOpen, place, text, ""));
        }
        for text in &self.missing {
            let remedy = "correct the name, or make the account; until then these users are refused without a job";
            findings.push(Finding::warning(Check::PamArguments, place, text, remedy));
        }
        let has_exempt = !settings.exempt_uids.is_empty() || !settings.exempt_groups.is_empty();
        if settings.exempt_join && !has_exempt {
            let text = "exempt_join has no effect: no user is exempt";
            let advice = "or add exempt_groups=NAMES or exempt_uids=NUMBERS";
            let remedy = remove_word(place, "exempt_join").and(advice);
            findings.push(Finding::warning(Check::PamArguments, place, text, remedy));
        }
        // The one finding is that about `conf`.
        if findings.len() == 1 {
            findings.push(Finding::fine(
                Check::PamOpen,
                place,
                "no argument opens anything",
            ));
        }
        findings
    }
}

/// Finds the actions that let logins be outside of jobs.
fn find_opening_actions(place: &FileLine, settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, action, effect) in [
        (
            "action_no_jobs",
            settings.no_jobs,
            "users without a job are left to other modules",
        ),
        (
            "action_adopt_failure",
            settings.adopt_failure,
            "logins that cannot join are let in",
        ),
        (
            "action_generic_failure",
            settings.generic_failure,
            "faults of the node let logins in",
        ),
    ] {
        if action != Action::Deny {
            let text = format!("{name}={action} opens: {effect}, outside of jobs");
            let remedy = remove_word(place, &format!("{name}={action}"));
            findings.push(Finding::warning(Check::PamOpen, place, text, remedy));
        }
    }
    findings
}

/// Describes each argument that exempts users, and what these get.
fn list_exemptions(settings: &Settings) -> Vec<String> {
    let effect = if settings.exempt_join {
        "log in to their job, and outside of jobs if they have none or cannot join it"
    } else {
        "log in outside of jobs, also while they have one"
    };
    let uids: Vec<String> = settings.exempt_uids.iter().map(u32::to_string).collect();
    let mut texts = Vec::new();
    for (argument, users, list) in [
        ("exempt_uids", "these users", uids.join(",")),
        (
            "exempt_groups",
            "members of these groups",
            settings.exempt_groups.join(","),
        ),
    ] {
        if !list.is_empty() {
            texts.push(format!("{argument}={list} opens: {users} {effect}"));
        }
    }
    texts
}

impl<'a> ConfArgument<'a> {
    /// Compares the configuration `conf` of a line with the one that is checked. The usual configuration may
    /// be missing: its defaults then hold. In the folder of a test the paths differ, and are not compared.
    fn read(site: &'a Site, conf: &Path) -> Self {
        if conf != Path::new(Request::DEFAULT_CONF) && conf.symlink_metadata().is_err() {
            Self::Missing
        } else if conf != site.conf && site.is_here() {
            Self::Other(&site.conf)
        } else {
            Self::Checked
        }
    }

    /// Judges whether the line's configuration `conf` exists, and is the one that is checked.
    fn finding(&self, place: &FileLine, conf: &str) -> Finding {
        match self {
            Self::Missing => {
                let text =
                    format!("has conf={conf}, which does not exist: every login is refused (JA09)");
                // Without the argument another configuration holds, or the defaults, which may open the node.
                let remedy = "bring the file back (see whether its file system is mounted), or correct the path";
                Finding::error(Check::PamArguments, place, text, remedy)
            }
            Self::Other(checked) => {
                let text = format!("has conf={conf}, but {} was checked", checked.display());
                let remedy = format!(
                    "check with that one: job-adopt check --conf {}",
                    shell_word(conf)
                );
                Finding::warning(Check::PamArguments, place, text, remedy)
            }
            Self::Checked => Finding::fine(Check::PamArguments, place, "its arguments are valid"),
        }
    }
}
