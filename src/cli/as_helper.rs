//! What the helper would find, with the helper's rights.

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, User, getegid, geteuid, getgroups, setegid, seteuid, setgroups};

/// The account that the module looks jobs up as.
pub(super) const HELPER_USER: &str = "job-adopt";

/// Calls `look` with the rights of the helper's account where this is root, who may read what that
/// account may not; for anybody else with their own.
///
/// # Errors
/// What is wrong with the account, or why its rights could not be taken.
pub(super) fn as_helper<T>(look: impl FnOnce() -> T) -> Result<T, String> {
    if !geteuid().is_root() {
        return Ok(look());
    }
    let account = User::from_name(HELPER_USER).ok().flatten();
    let account = account.filter(|user| !user.uid.is_root() && user.gid != Gid::from_raw(0));
    let account = account.ok_or_else(|| {
        format!("the system user {HELPER_USER} does not exist, or has root's uid or gid: create it")
    })?;
    let _root = Lowered::to(account.uid, account.gid)
        .map_err(|errno| format!("take the rights of {HELPER_USER}: {}", errno.desc()))?;
    Ok(look())
}

/// The rights to go back to when it is dropped.
struct Lowered {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Lowered {
    fn to(uid: Uid, gid: Gid) -> nix::Result<Self> {
        let own = Self { uid: geteuid(), gid: getegid(), groups: getgroups()? };
        setgroups(&[])?;
        setegid(gid)?;
        seteuid(uid)?;
        Ok(own)
    }

    fn back(&self) -> Result<(), Errno> {
        seteuid(self.uid)?;
        setegid(self.gid)?;
        setgroups(&self.groups)
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        // The saved uid is still root's. Where this fails all the same, what follows has less
        // rights, and says so.
        let _ = self.back();
    }
}
