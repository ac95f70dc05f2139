//! Users, by name and number.

use super::{Error, Options};
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

/// The number that `--uid` or `--user` gives.
///
/// # Errors
/// [`Error::Usage`] without or with both of them, [`Error::Failed`] for a name that is none.
pub(super) fn owner(options: &Options) -> Result<u32, Error> {
    let uid = match (options.value("--uid"), options.value("--user")) {
        (Some(text), None) => {
            let uid = text.parse::<u32>().ok().filter(|uid| uid.to_string() == text);
            uid.ok_or_else(|| options.usage(format!("option --uid: {text} is no user number")))?
        }
        (None, Some(name)) => account(name)?.uid.as_raw(),
        _ => return Err(options.usage("exactly one of --uid and --user is needed")),
    };
    may_own(uid, options)
}

/// # Errors
/// [`Error::Usage`] for a number that no job can belong to.
pub(super) fn may_own(uid: u32, options: &Options) -> Result<u32, Error> {
    match Record::may_own(uid) {
        true => Ok(uid),
        false => Err(options.usage(format!("uid {uid} can own no job"))),
    }
}
