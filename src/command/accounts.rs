//! Looks up users and groups for all commands, and takes on the rights of the helper's account.

use crate::error::Error;
use helper::jobs::records::Record;
use nix::errno::Errno;
use nix::unistd::{
    Gid, Group, Uid, User, getegid, geteuid, getgrouplist, getgroups, setegid, seteuid, setgroups,
};
use protocol::parse_decimal;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The uid of the account `nobody`, which has no job.
pub const NOBODY_UID: u32 = 65_534;

/// Looks up the account of this name; `None` if there is none.
///
/// # Errors
///
/// [`Error::Failed`] if the name service cannot be asked.
pub fn find_user(name: &str) -> Result<Option<User>, Error> {
    User::from_name(name).map_err(|errno| Error::failed("look up user", name, errno.desc()))
}

/// Looks up the account of this name.
///
/// # Errors
///
/// The errors of [`find_user`], and [`Error::Failed`] if there is no such account.
pub fn require_user(name: &str) -> Result<User, Error> {
    find_user(name)?.ok_or_else(|| Error::failed("look up user", name, "no such user"))
}

/// Looks up the group of this name; `None` if there is none.
///
/// # Errors
///
/// [`Error::Failed`] if the name service cannot be asked.
pub fn find_group(name: &str) -> Result<Option<Group>, Error> {
    Group::from_name(name).map_err(|errno| Error::failed("look up group", name, errno.desc()))
}

/// Looks up the groups of a user.
///
/// # Errors
///
/// [`Error::Failed`] if the name service cannot be asked.
pub fn list_groups(user: &User) -> Result<Vec<Gid>, Error> {
    let failed = |errno: Errno| Error::failed("look up the groups of", &user.name, errno.desc());
    let name = CString::new(user.name.as_str()).map_err(|_| failed(Errno::EINVAL))?;
    getgrouplist(&name, user.gid).map_err(failed)
}

/// Whether a user is in the group of this name. A group that does not exist has no members.
///
/// # Errors
///
/// [`Error::Failed`] if the name service cannot be asked.
pub fn is_in_group(user: &User, group: &str) -> Result<bool, Error> {
    let Some(group) = find_group(group)? else {
        return Ok(false);
    };
    is_member(user, &group)
}

/// Whether a user is in a group, by the rule of a login (`pam_modutil_user_in_group_nam_nam` of Linux-PAM): it is the
/// user's primary group or one of the supplementary ones, or lists the user.
///
/// # Errors
///
/// [`Error::Failed`] if the name service cannot be asked.
pub fn is_member(user: &User, group: &Group) -> Result<bool, Error> {
    Ok(group.mem.contains(&user.name) || list_groups(user)?.contains(&group.gid))
}

/// Describes each of these exempt users and groups that the name service does not know, or cannot tell, as the arguments
/// of our lines spell them. Such a group may be made later: until then it exempts nobody.
pub fn describe_missing_accounts(uids: &[u32], groups: &[String]) -> Vec<String> {
    let mut missing = Vec::new();
    for uid in uids {
        let fault = match User::from_uid(Uid::from_raw(*uid)) {
            Ok(Some(_)) => continue,
            Ok(None) => "no account has this uid, so it exempts nobody",
            Err(errno) => errno.desc(),
        };
        missing.push(format!("exempt_uids={uid}: {fault}"));
    }
    for name in groups {
        let fault = match Group::from_name(name) {
            Ok(Some(_)) => continue,
            Ok(None) => "no such group, so it exempts nobody",
            Err(errno) => errno.desc(),
        };
        missing.push(format!("exempt_groups={name}: {fault}"));
    }
    missing
}

/// Looks up the uid of a user who is given by name or number. The number needs no account.
///
/// # Errors
///
/// The errors of [`require_user`] for a text that is no number.
pub fn resolve_uid(text: &str) -> Result<u32, Error> {
    match require_user(text) {
        Ok(account) => Ok(account.uid.as_raw()),
        Err(error) => parse_decimal(text).ok_or(error),
    }
}

/// Looks up the name of an account, or its number if it has no name.
pub fn user_name(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

/// Names of accounts, each of which is looked up once: the C library reads all of `/etc/passwd` for each name, and many
/// jobs have few users.
#[derive(Debug, Default)]
pub struct UserNames(BTreeMap<u32, String>);

impl UserNames {
    /// Returns the name of an account, or its number if it has no name.
    pub fn name(&mut self, uid: u32) -> String {
        self.0.entry(uid).or_insert_with(|| user_name(uid)).clone()
    }
}

/// Parses a uid, which needs no account.
///
/// # Errors
///
/// A text, if it is no uid.
pub fn parse_uid(text: &str) -> Result<u32, &'static str> {
    parse_decimal(text)
        .filter(|uid| *uid != u32::MAX)
        .ok_or("not a uid")
}

/// Parses the uid of a user who can own a job.
///
/// # Errors
///
/// A text, if no job can belong to this number.
pub fn parse_owner(text: &str) -> Result<u32, &'static str> {
    parse_decimal(text)
        .filter(|uid| Record::can_own_job(*uid))
        .ok_or("not the number of a user who can own a job")
}

/// Looks up the account of a user who can own a job.
///
/// # Errors
///
/// [`Error::Input`] for a user who can own none, and the errors of [`require_user`].
pub fn require_owner(name: &str, command: &str) -> Result<User, Error> {
    let account = require_user(name)?;
    if !Record::can_own_job(account.uid.as_raw()) {
        return Err(Error::usage(command, format!("user {name} can own no job")));
    }
    Ok(account)
}

/// The first uid of people if login.defs(5) has none.
const DEFAULT_UID_MIN: u32 = 1000;
/// The last uid of people in passwd(5) if login.defs(5) has none.
const DEFAULT_UID_MAX: u32 = 60_000;

/// Reads the first uid of people on this node.
pub fn read_uid_min() -> u32 {
    let defs = fs::read("/etc/login.defs").unwrap_or_default();
    parse_uid_limit(&defs, "UID_MIN").unwrap_or(DEFAULT_UID_MIN)
}

/// Reads the last uid that this node gives to people in passwd(5). A name service may have people above it.
pub fn read_uid_max() -> u32 {
    let defs = fs::read("/etc/login.defs").unwrap_or_default();
    parse_uid_limit(&defs, "UID_MAX").unwrap_or(DEFAULT_UID_MAX)
}

/// Parses `UID_MIN` or `UID_MAX` of login.defs(5), whose comments may be in any encoding; `None` if the file does not set
/// it.
fn parse_uid_limit(defs: &[u8], key: &str) -> Option<u32> {
    String::from_utf8_lossy(defs).lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == key).then(|| words.next()?.parse().ok())?
    })
}

/// Refuses any user but root.
///
/// # Errors
///
/// [`Error::Failed`], which names the operation.
pub fn require_root(operation: &str) -> Result<(), Error> {
    if !Uid::effective().is_root() {
        return Err(Error::Failed(format!("{operation}: must be run as root")));
    }
    Ok(())
}

/// The account that the helper runs as.
pub const HELPER_USER: &str = "job-adopt";

/// Why nothing was looked up with the rights of the helper's account.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RightsError {
    /// There is no such account, or it has root's rights: no login gets as far as to the look-up.
    #[error("{0}")]
    NoAccount(String),
    /// The kernel refuses, as in a container without the capability for it: logins may well have these rights.
    #[error("take the rights of {HELPER_USER}: {reason}", reason = .0.desc())]
    NotTaken(Errno),
}

/// Calls `look_up` with the rights of the helper's account, if this process is root: root may read
/// files that the helper cannot. Any other user keeps their own rights. The caller has its own again when this returns
/// or panics.
///
/// # Errors
///
/// [`RightsError`] without the account, or if its rights could not be taken; `look_up` is not called then.
pub fn with_helper_rights<T>(look_up: impl FnOnce() -> T) -> Result<T, RightsError> {
    if !geteuid().is_root() {
        return Ok(look_up());
    }
    let account = find_helper().map_err(RightsError::NoAccount)?;
    let failed = RightsError::NotTaken;
    let _own = OwnRights::read().map_err(failed)?;
    setgroups(&[])
        .and_then(|()| setegid(account.gid))
        .and_then(|()| seteuid(account.uid))
        .map_err(failed)?;
    Ok(look_up())
}

/// Calls `look_up` as [`with_helper_rights`] does; without the helper's account, with the rights of this process. That
/// account is a finding of its own, by which every login is refused: what else is wrong is looked for all the same.
///
/// # Errors
///
/// [`RightsError::NotTaken`]: root would read what no login can.
pub fn with_helper_rights_if_any<T>(look_up: impl Fn() -> T) -> Result<T, RightsError> {
    match with_helper_rights(&look_up) {
        Err(RightsError::NoAccount(_)) => Ok(look_up()),
        result => result,
    }
}

/// The rights of this process, which lowers them. Its drop gives them back.
struct OwnRights {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl OwnRights {
    fn read() -> nix::Result<Self> {
        Ok(Self {
            uid: geteuid(),
            gid: getegid(),
            groups: getgroups()?,
        })
    }
}

impl Drop for OwnRights {
    /// Gives the rights back. Ends the process if that fails: half of them would do half of what root asked for. The
    /// uid comes first, since only root may set groups.
    fn drop(&mut self) {
        let restored = seteuid(self.uid)
            .and_then(|()| setegid(self.gid))
            .and_then(|()| setgroups(&self.groups));
        if restored.is_err() {
            std::process::abort();
        }
    }
}

/// Looks up the account that the helper runs as.
///
/// # Errors
///
/// A text for the admin, if there is no such account or it has rights of root.
pub fn find_helper() -> Result<User, String> {
    let account = User::from_name(HELPER_USER).ok().flatten();
    let account = account.filter(|user| !user.uid.is_root() && user.gid != Gid::from_raw(0));
    account.ok_or_else(|| {
        format!("the system user {HELPER_USER} does not exist, or has root's uid or gid: create it")
    })
}

/// Makes a program run as the helper's account, if this process is root, and in one group: the one of this name or,
/// without a name or such a group, the account's own. What a user, or another host, could do to the program gives no
/// rights of root's.
///
/// # Errors
///
/// A text that says what is wrong with the account.
pub fn run_as_helper(command: &mut Command, group: Option<&str>) -> Result<(), String> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let account = find_helper()?;
    let group = group.and_then(|name| Group::from_name(name).ok().flatten());
    let gid = group.map_or(account.gid, |group| group.gid);
    // The standard library drops root's other groups before it sets the uid.
    command.uid(account.uid.as_raw()).gid(gid.as_raw());
    Ok(())
}

/// Calls `look_up` with the rights that it has at a login.
///
/// # Errors
///
/// [`Error::Failed`] if root cannot take these rights: root would read what no login can.
pub fn with_login_rights<T>(look_up: impl FnOnce() -> T) -> Result<T, Error> {
    with_helper_rights(look_up).map_err(|error| Error::Failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_limits_of_login_defs_are_parsed() {
        for (defs, min, max) in [
            (
                &b"#UID_MIN 5\nUID_MAX 9\nUID_MIN\t\t 500\n"[..],
                Some(500),
                Some(9),
            ),
            (b"# f\xfcr Menschen\nUID_MIN 500 # \xfc\n", Some(500), None),
            (b"UID_MIN x\n", None, None),
            (b"", None, None),
        ] {
            assert_eq!(parse_uid_limit(defs, "UID_MIN"), min);
            assert_eq!(parse_uid_limit(defs, "UID_MAX"), max);
        }
    }
}
