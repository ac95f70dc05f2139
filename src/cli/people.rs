//! Users, by name and number.

use super::{Error, Options};
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
    match (options.parsed::<u32>("--uid", "user number")?, options.value("--user")) {
        (Some(uid), None) => Ok(uid),
        (None, Some(name)) => account(name).map(|user| user.uid.as_raw()),
        _ => Err(options.usage("exactly one of --uid and --user is needed")),
    }
}
