//! Users by name and number, and the rights of the helper's account.

use super::{Error, Output};
use helper::records::Record;
use nix::errno::Errno;
use nix::unistd::{
    Gid, Group, Uid, User, getegid, geteuid, getgroups, setegid, seteuid, setgroups,
};
use protocol::decimal;

/// The account of a name, where there is one.
/// Fails: [`Error::Failed`] where that cannot be told.
pub(super) fn user(name: &str) -> Result<Option<User>, Error> {
    User::from_name(name).map_err(|errno| Error::failed("look up user", name, errno.desc()))
}

/// The account of a name.
/// Fails: as [`user`], and where there is none.
pub(super) fn account(name: &str) -> Result<User, Error> {
    user(name)?.ok_or_else(|| Error::failed("look up user", name, "no such user"))
}

/// As [`user`].
pub(super) fn group(name: &str) -> Result<Option<Group>, Error> {
    Group::from_name(name).map_err(|errno| Error::failed("look up group", name, errno.desc()))
}

/// The number of a user who is given by name or number.
/// Errors: as [`account`].
pub(super) fn number(text: &str) -> Result<u32, Error> {
    match (account(text), decimal(text)) {
        (Err(_), Some(uid)) => Ok(uid),
        (account, _) => Ok(account?.uid.as_raw()),
    }
}

/// The name of a number; the number itself where it has none.
pub(super) fn name_of(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

/// The number of a user who can own a job.
/// Fails: a text, for a number that no job can belong to.
pub(super) fn owner(text: &str) -> Result<u32, String> {
    let uid = decimal(text).filter(|uid| Record::can_own_job(*uid));
    uid.ok_or_else(|| "not the number of a user who can own a job".into())
}

/// The account of a user who can own a job.
/// Fails: [`Error::Input`] for a user who cannot, else as [`account`].
pub(super) fn owning(name: &str, command: &str) -> Result<User, Error> {
    let account = account(name)?;
    match Record::can_own_job(account.uid.as_raw()) {
        true => Ok(account),
        false => Err(Error::usage(command, format!("user {name} can own no job"))),
    }
}

/// The account that the module looks jobs up as.
pub(super) const HELPER_USER: &str = "job-adopt";

/// Calls `look` with the rights of the helper's account where this is root, who may read what that
/// account may not; for anybody else with their own.
/// Fails: what is wrong with the account, or why its rights could not be taken.
pub(super) fn as_helper<T>(look: impl FnOnce() -> T) -> Result<T, String> {
    if !geteuid().is_root() {
        return Ok(look());
    }
    let account = User::from_name(HELPER_USER).ok().flatten();
    let account = account.filter(|user| !user.uid.is_root() && user.gid != Gid::from_raw(0));
    let account = account.ok_or_else(|| {
        format!("the system user {HELPER_USER} does not exist, or has root's uid or gid: create it")
    })?;
    let failed = |errno: Errno| format!("take the rights of {HELPER_USER}: {}", errno.desc());
    let (uid, gid, groups) = (geteuid(), getegid(), getgroups().map_err(failed)?);
    let lowered =
        setgroups(&[]).and_then(|()| setegid(account.gid)).and_then(|()| seteuid(account.uid));
    let found = lowered.map(|()| look());
    // The saved uid is still root's. Where this fails all the same, what follows has less rights, and
    // says so.
    let _ = seteuid(uid).and_then(|()| setegid(gid)).and_then(|()| setgroups(&groups));
    found.map_err(failed)
}

/// The same of what a login would find here. Where there is no such account, no login finds anything,
/// which is said, and the caller's own rights do.
pub(super) fn as_login<T>(look: impl Fn() -> T, output: &mut Output<'_>) -> T {
    as_helper(&look).unwrap_or_else(|why| {
        output.warn(format_args!("warning: {why}"));
        look()
    })
}
