//! The slices of users that exist.

use kernel::cgroup::{self, Dir, Mount, ignore_gone};

/// The slice of a user who is logged in, or has a lingering manager.
#[derive(Debug)]
pub struct UserSlice {
    /// The name of the unit.
    pub name: String,
    /// The uid of the user.
    pub uid: u32,
    /// Its cgroup.
    pub dir: Dir,
}

/// Lists the slices of users that exist; `None` if there is no `user.slice` on cgroup v2.
///
/// # Errors
///
/// As `open(2)` and `getdents(2)`, but for a slice that ends meanwhile.
pub fn list_user_slices() -> cgroup::Result<Option<Vec<UserSlice>>> {
    let mount = match Mount::open() {
        Ok(mount) => mount,
        Err(cgroup::Error::NotMounted) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(above) = ignore_gone(mount.root().child("user.slice"))? else {
        return Ok(None);
    };
    let mut slices = Vec::new();
    for name in above.children()? {
        let name = name.to_string_lossy().into_owned();
        let Some(uid) = uid_of_slice(&name) else {
            continue;
        };
        // The user may have logged out meanwhile.
        if let Some(dir) = ignore_gone(above.child(&*name))? {
            slices.push(UserSlice { name, uid, dir });
        }
    }
    Ok(Some(slices))
}

/// Parses the uid in the name of a user's slice; `None` for another name.
fn uid_of_slice(name: &str) -> Option<u32> {
    name.strip_prefix("user-")?
        .strip_suffix(".slice")?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closed_slices::{UNUSED_SLICE, UNUSED_UID};

    #[test]
    fn names_of_other_slices_have_no_uid() {
        assert_eq!(uid_of_slice("user-1001.slice"), Some(1001));
        assert_eq!(uid_of_slice(UNUSED_SLICE), Some(UNUSED_UID));
        for name in [
            "user-.slice",
            "user-1001.scope",
            "user@1001.service",
            "user.slice",
        ] {
            assert_eq!(uid_of_slice(name), None, "{name}");
        }
    }
}
