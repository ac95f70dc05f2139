//! Tells whether logins are taken into jobs on this node. If they are not, or if users without a job may log in,
//! processes are outside of jobs by the admin's will.

use helper::Config;
use helper::stack::{Entry, Group, read_entries};
use module::{Action, Settings, is_off};
use std::path::Path;

/// The session lines of sshd's PAM stack; none if it cannot be read.
fn read_session_lines() -> Vec<Entry> {
    read_entries(Path::new("/"), "sshd", Group::Session).unwrap_or_default()
}

/// Requires that every login is taken into a job.
///
/// # Errors
///
/// The cause, as a text for the admin.
pub fn require_adoption(config: &Config) -> Result<(), &'static str> {
    if config.missing_enforce_path().is_some() {
        return Err("logins are not judged on this node (enforce)");
    }
    if is_off() {
        return Err("/run/job-adopt/off is there");
    }
    if !read_session_lines().iter().any(takes_all_logins) {
        return Err("no session line of sshd's PAM stack takes all logins into jobs");
    }
    Ok(())
}

fn takes_all_logins(line: &Entry) -> bool {
    let admits_without_job =
        Settings::parse(&line.arguments).is_ok_and(|settings| settings.no_jobs == Action::Ignore);
    line.is_fit() && !line.is_observing() && !admits_without_job
}
