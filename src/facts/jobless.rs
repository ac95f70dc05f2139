//! A user of this node who has no job here, to ask a PAM stack about.

use crate::jobs::NodeJobs;
use command::accounts::{self, read_uid_max, read_uid_min};
use command::error::Error;
use module::{Exemption, Settings};
use nix::unistd::User;
use protocol::parse_decimal;
use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;

/// The account that never has a job.
const NOBODY: &str = "nobody";
/// Maximum accounts that are looked at.
const CANDIDATES_MAX: usize = 64;

/// Finds the name of a user without a job here: the `requested` one, or else one whom our lines, with these
/// settings, do not exempt and who is not among `other_than`, the users whom a trial expects to get in. It looks at the
/// people in this node's passwd(5) and then at `nobody`; if a source of jobs has not answered, only at `nobody`, who
/// never has one. `jobs` are the jobs of this node.
///
/// # Errors
///
/// [`Error::Failed`] if the requested user is unknown or has a job, if there is no user without a job who is
/// not exempt, or if accounts cannot be looked up.
pub fn find_jobless_user(
    requested: Option<&str>,
    other_than: &[String],
    settings: &Settings,
    jobs: &NodeJobs,
) -> Result<String, Error> {
    let owners: BTreeSet<u32> = jobs.running.iter().map(|job| job.uid).collect();
    if let Some(name) = requested {
        let user = accounts::require_user(name)?;
        if owners.contains(&user.uid.as_raw()) {
            return Err(Error::failed(
                "try",
                name,
                "has a job here: name a user without one",
            ));
        }
        return Ok(user.name);
    }
    let mut names = if jobs.doubts.is_empty() {
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
        if !owners.contains(&user.uid.as_raw()) && !is_exempt(&user, settings)? {
            return Ok(user.name);
        }
    }
    let why =
        "there is no user without a job whom the lines do not exempt: name one by --without-job";
    Err(Error::failed("try", "the stack", why))
}

/// Lists the names of this node's own accounts of people; none if passwd(5) cannot be read.
fn list_people() -> Vec<String> {
    let passwd = fs::read("/etc/passwd").unwrap_or_default();
    parse_people(&passwd, read_uid_min()..=read_uid_max())
}

/// Parses the names of the accounts with these uids, but `nobody`, from the text of passwd(5). Its field of real names
/// may be in any encoding, and lines without a name and a uid are left out. Above the uids of people are accounts such
/// as Debian's `slurm`, which an admin would take for locked out.
fn parse_people(passwd: &[u8], uids: RangeInclusive<u32>) -> Vec<String> {
    let mut names = Vec::new();
    for line in String::from_utf8_lossy(passwd).lines() {
        let [name, _, uid, ..] = *line.split(':').collect::<Vec<_>>() else {
            continue;
        };
        if parse_decimal(uid).is_some_and(|uid| uids.contains(&uid)) && name != NOBODY {
            names.push(name.to_owned());
        }
    }
    names
}

/// Whether the settings exempt the user, by uid or by group. It fails with [`Error::Failed`] if the groups
/// cannot be looked up.
fn is_exempt(user: &User, settings: &Settings) -> Result<bool, Error> {
    let uids = &settings.exempt_uids;
    let groups = &settings.exempt_groups;
    let is_in_group = |group: &str| accounts::is_in_group(user, group);
    Ok(Exemption::find(uids, groups, user.uid.as_raw(), is_in_group)?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_accounts_with_their_uids() {
        let passwd = b"root:x:0:0::/:/bin/sh\nnobody:x:65534:1::/:/bin/false\n\
                       alice:x:1001:1:M\xfcller:/:/bin/sh\nbroken\nbob:x:1002:1::/:/bin/sh\n\
                       slurm:x:64030:1::/:/bin/false\n";
        assert_eq!(parse_people(passwd, 1000..=60_000), ["alice", "bob"]);
        assert_eq!(parse_people(passwd, 1002..=60_000), ["bob"]);
    }
}
