//! Users, by name and number.

use super::Error;
use crate::plan::decimal;
use crate::registry::Record;
use nix::unistd::{Uid, User};

/// The account of a name.
///
/// # Errors
/// [`Error::Failed`] where there is none, or where it cannot be told.
pub(super) fn account(name: &str) -> Result<User, Error> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(Error::failed("look up user", name, "no such user")),
        Err(errno) => Err(Error::failed("look up user", name, errno.desc())),
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
///
/// # Errors
/// A text, for a number that no job can belong to.
pub(super) fn owner(text: &str) -> Result<u32, String> {
    let uid = decimal(text).filter(|uid| Record::may_own(*uid));
    uid.ok_or_else(|| "not the number of a user who can own a job".into())
}

/// The account of a user who can own a job.
///
/// # Errors
/// [`Error::Usage`] of this command for a user who cannot, else as [`account`].
pub(super) fn owning(name: &str, command: &str) -> Result<User, Error> {
    let account = account(name)?;
    match Record::may_own(account.uid.as_raw()) {
        true => Ok(account),
        false => Err(Error::usage(command, format!("user {name} can own no job"))),
    }
}
