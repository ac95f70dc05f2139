//! Whether libpam really runs our lines of the service's stack.

use super::{Check, Finding, Site};
use crate::resolve::stack::{self, Entry, Group, Place, Unfit, judge_group};

const SESSION: Check = "pam-session";
const ACCOUNT: Check = "pam-account";
const AUTH: Check = "pam-auth";

/// The lines of an account stack in front of which ours belongs.
const ACCOUNT_LINE: &str = "put \"account required pam_job_adopt.so\" above every other account \
                            line but pam_nologin's";
const SESSION_LINE: &str =
    "put \"session required pam_job_adopt.so\" below every other session line";

pub(super) fn findings(site: &Site<'_>) -> Vec<Finding> {
    let mut found = vec![session(site), account(site)];
    found.extend(auth(site));
    found
}

/// Whether a line of ours is for the service at all.
pub(super) fn is_for_service(entry: &Entry) -> bool {
    matches!(&entry.ours, Some(Ok(()) | Err(Unfit::Control | Unfit::Dash)))
}

fn object(site: &Site<'_>) -> String {
    format!("service {}", site.scene.service)
}

fn session(site: &Site<'_>) -> Finding {
    let service = object(site);
    match judge_group(&site.scene.root, &site.scene.service, Group::Session) {
        stack::Finding::Effective(place) => {
            Finding::fine(SESSION, place, "no session opens past this line")
        }
        stack::Finding::Absent => {
            let admits = !site.account.iter().any(is_for_service);
            let text = match admits {
                true => "has no line of pam_job_adopt.so: logins are in no job",
                false => "has an account line but no session line: every login is refused (JA09)",
            };
            Finding::error(SESSION, service, text, SESSION_LINE)
        }
        other => doubtful(site, SESSION, &other, Finding::error),
    }
}

/// Without it nobody is let out of a job, since the session phase judges again; but whoever is
/// refused is so late, and without a text.
fn account(site: &Site<'_>) -> Finding {
    match judge_group(&site.scene.root, &site.scene.service, Group::Account) {
        stack::Finding::Effective(place) => {
            Finding::fine(ACCOUNT, place, "no account is let in past this line")
        }
        stack::Finding::Absent => {
            let text = "has no account line of pam_job_adopt.so: who has no job is refused only \
                        after the login, without being told why";
            Finding::warning(ACCOUNT, object(site), text, ACCOUNT_LINE)
        }
        other => doubtful(site, ACCOUNT, &other, Finding::warning),
    }
}

/// A finding of a severity.
type Grave = fn(Check, String, String, String) -> Finding;

fn doubtful(site: &Site<'_>, check: Check, what: &stack::Finding, grave: Grave) -> Finding {
    let finding = |object: &Place, text: String, remedy: String| {
        grave(check, object.to_string(), text, remedy)
    };
    match what {
        stack::Finding::Skipped { ours, by } => {
            let text = format!("can be skipped by {by}, which may end the stack or leap over it");
            let remedy = match check == ACCOUNT {
                true => ACCOUNT_LINE.to_owned(),
                false => format!(
                    "change {by} so that it neither ends the stack nor leaps, or take its file in \
                     by substack instead of include"
                ),
            };
            finding(ours, text, remedy)
        }
        stack::Finding::Undone { by } => {
            let text = "can undo a refusal of pam_job_adopt.so (action reset)";
            finding(by, text.to_owned(), "take the action reset out of this line".to_owned())
        }
        stack::Finding::Unfit(place, why) => {
            finding(place, format!("this line of pam_job_adopt.so {why}"), fit(why))
        }
        stack::Finding::Maze => {
            let text = "has too many ways through it to tell whether one leads past our line";
            grave(check, object(site), text.to_owned(), "leap less in it".to_owned())
        }
        stack::Finding::Unreadable(why) => unreadable(site, check, why),
        stack::Finding::Effective(_) | stack::Finding::Absent => {
            grave(check, object(site), what.to_string(), String::new())
        }
    }
}

fn fit(why: &Unfit) -> String {
    match why {
        Unfit::Control => "write \"required\" for its control".to_owned(),
        Unfit::Dash => "take the leading \"-\" away".to_owned(),
        Unfit::Service(service) => {
            format!("take service={service} away, or run: job-adopt check --service {service}")
        }
    }
}

/// libpam refuses every login where it cannot read a stack; who is not root may not be able to.
fn unreadable(site: &Site<'_>, check: Check, why: &str) -> Finding {
    match site.is_root() {
        true => {
            let text = format!("cannot be read, so that libpam refuses every login: {why}");
            Finding::error(check, object(site), text, "mend what it names")
        }
        false => Finding::unknown(check, object(site), why, "run this as root"),
    }
}

/// An auth line of ours, which earlier versions had a use for.
fn auth(site: &Site<'_>) -> Option<Finding> {
    let entry = site.auth.iter().find(|entry| is_for_service(entry))?;
    let text = "does nothing: no login is given groups";
    Some(Finding::note(AUTH, &entry.place, text, "take this line out"))
}
