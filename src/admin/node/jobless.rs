//! A user of this node who has no job here, to ask a PAM stack about.

use crate::accounts::{self, read_uid_min};
use crate::error::Error;
use crate::job::running_jobs::{NodeJobs, find_running_jobs};
use crate::output::Output;
use helper::Config;
use kernel::trust::Trust;
use module::Settings;
use nix::unistd::User;
use protocol::parse_decimal;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The account that never has a job.
const NOBODY: &str = "nobody";
/// Maximum accounts that are looked at.
const CANDIDATES_MAX: usize = 64;

/// The users who have jobs here.
struct JobOwners {
    uids: BTreeSet<u32>,
    /// Set if every source of jobs has answered.
    is_complete: bool,
}

/// Finds the name of a user without a job here: the `requested` one, or else one whom our lines, with these
/// settings, do not exempt and who is not among `other_than`, the users whom a trial expects to get in. It looks at the
/// people in this node's passwd(5) and then at `nobody`; if a source of jobs has not answered, only at `nobody`, who
/// never has one.
///
/// # Errors
///
/// [`Error::Failed`] if the requested user is unknown or has a job, if there is no user without a job who is
/// not exempt, or if jobs or accounts cannot be looked up.
pub(super) fn find_jobless_user(
    requested: Option<&str>,
    other_than: &[String],
    settings: &Settings,
    output: &mut Output<'_>,
) -> Result<String, Error> {
    let owners = find_job_owners(settings, output)?;
    if let Some(name) = requested {
        let user = accounts::require_user(name)?;
        if owners.uids.contains(&user.uid.as_raw()) {
            return Err(Error::failed(
                "try",
                name,
                "has a job here: name a user without one",
            ));
        }
        return Ok(user.name);
    }
    let mut names = if owners.is_complete {
        list_people()
    } else {
        Vec::new()
    };
    names.retain(|name| !other_than.contains(name));
    names.truncate(CANDIDATES_MAX);
    names.push(NOBODY.to_owned());
    for name in names {
        let Some(user) = accounts::find_user(&name)? else {
            continue;
        };
        if !owners.uids.contains(&user.uid.as_raw()) && !is_exempt(&user, settings)? {
            return Ok(user.name);
        }
    }
    let why =
        "there is no user without a job whom the lines do not exempt: name one by --without-job";
    Err(Error::failed("try", "the stack", why))
}

/// Finds the users who have jobs here, by the configuration that our lines name in these settings. It fails
/// with [`Error::Failed`] if the configuration cannot be used or the registry cannot be listed.
fn find_job_owners(settings: &Settings, output: &mut Output<'_>) -> Result<JobOwners, Error> {
    let config = Config::read(Path::new(&settings.conf), &Trust::root())?;
    let NodeJobs { jobs, is_complete } = find_running_jobs(&config, output)?;
    Ok(JobOwners {
        uids: jobs.iter().map(|job| job.uid).collect(),
        is_complete,
    })
}

/// Lists the names of this node's own accounts of people; none if passwd(5) cannot be read.
fn list_people() -> Vec<String> {
    let passwd = fs::read("/etc/passwd").unwrap_or_default();
    parse_people(&passwd, read_uid_min())
}

/// Parses the names of the accounts from this uid on, but `nobody`, from the text of passwd(5). Its field of real names
/// may be in any encoding, and lines without a name and a uid are left out.
fn parse_people(passwd: &[u8], uid_min: u32) -> Vec<String> {
    let mut names = Vec::new();
    for line in String::from_utf8_lossy(passwd).lines() {
        let [name, _, uid, ..] = *line.split(':').collect::<Vec<_>>() else {
            continue;
        };
        if parse_decimal(uid).is_some_and(|uid| uid >= uid_min) && name != NOBODY {
            names.push(name.to_owned());
        }
    }
    names
}

/// Whether the settings exempt the user, by uid or by group. It fails with [`Error::Failed`] if the groups
/// cannot be looked up.
fn is_exempt(user: &User, settings: &Settings) -> Result<bool, Error> {
    if settings.exempt_uids.contains(&user.uid.as_raw()) {
        return Ok(true);
    }
    for group in &settings.exempt_groups {
        if accounts::is_in_group(user, group)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_accounts_from_the_first_uid_on() {
        let passwd = b"root:x:0:0::/:/bin/sh\nnobody:x:65534:1::/:/bin/false\n\
                       alice:x:1001:1:M\xfcller:/:/bin/sh\nbroken\nbob:x:1002:1::/:/bin/sh\n";
        assert_eq!(parse_people(passwd, 1000), ["alice", "bob"]);
        assert_eq!(parse_people(passwd, 1002), ["bob"]);
    }
}
