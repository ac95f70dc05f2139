//! The cgroup of a record, checked before the registry is locked: nobody else waits for the check.

use super::stamped_cgroup::CheckedCgroup;
use command::accounts;
use command::error::Error;
use command::options::OPERATION_TIMEOUT;
use helper::jobs::records::{LoginTarget, Record};
use kernel::lock::Lock;
use std::time::Instant;

/// Maximum checks of a cgroup whose directory or stamp changes meanwhile.
const CHECK_TRIES: u32 = 5;

/// The checked cgroup of a record, if it names one.
pub(super) type CheckedTarget = Result<Option<CheckedCgroup>, Error>;

/// Checks the record's cgroup and then takes the registry's lock, so that no other call waits for the check.
/// It checks again if the cgroup has changed until the lock was taken. A fault of the cgroup is a part of the result,
/// since the caller reports other faults of the record first.
///
/// # Errors
///
/// [`Error::Failed`] if the lock cannot be taken, or if the cgroup changes each time.
pub(super) fn check_and_lock(record: &Record) -> Result<(CheckedTarget, Lock), Error> {
    for _ in 0..CHECK_TRIES {
        let checked = check_target(record);
        let lock = Lock::take(Lock::REGISTRY_OFFSET, Instant::now() + OPERATION_TIMEOUT)?;
        let is_current = match (&record.target, &checked) {
            (LoginTarget::Cgroup(path), Ok(Some(cgroup))) => cgroup.is_current(path),
            // Without a cgroup, or with a fault of it, there is nothing to check again.
            _ => Ok(true),
        };
        match is_current {
            Ok(true) => return Ok((checked, lock)),
            Ok(false) => {}
            Err(error) => return Ok((Err(error), lock)),
        }
    }
    let cause = "its cgroup, or the stamp there, changes again and again; try again later";
    Err(Error::failed("register job", &record.id, cause))
}

/// Checks the cgroup that the record names. `Ok(None)` for a record without one: a scheduler places that
/// job's logins. It fails with [`Error`] if an account of the record is unknown, or if the cgroup cannot be
/// opened.
fn check_target(record: &Record) -> CheckedTarget {
    let LoginTarget::Cgroup(path) = &record.target else {
        return Ok(None);
    };
    let mut accounts = Vec::new();
    for name in record.accounts.iter().flatten() {
        accounts.push(accounts::resolve_uid(name)?);
    }
    let deadline = Instant::now() + OPERATION_TIMEOUT;
    CheckedCgroup::check(path, record, accounts, deadline).map(Some)
}
