//! Supplementary groups of the process that becomes the login.

use crate::plan::GroupId;
use nix::errno::Errno;
use nix::unistd::{Gid, getgroups, setgroups};

/// Most supplementary groups of a process: `NGROUPS_MAX` of `linux/limits.h`.
const NGROUPS_MAX: usize = 65_536;

/// Adds groups to those that the calling process has. It has to be privileged, and to have the
/// login's own groups already.
///
/// # Errors
/// `EINVAL` where they would be more than the kernel keeps, `EPERM` for a process without
/// `CAP_SETGID` (setgroups(2)); nothing has changed then.
pub fn add_groups(groups: &[GroupId]) -> Result<(), Errno> {
    let all = joined(getgroups()?, groups);
    if all.len() > NGROUPS_MAX { Err(Errno::EINVAL) } else { setgroups(&all) }
}

fn joined(mut groups: Vec<Gid>, more: &[GroupId]) -> Vec<Gid> {
    for group in more.iter().map(|group| Gid::from_raw(group.number())) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_added_and_none_is_taken_away() {
        let had: Vec<Gid> = [5, 44].map(Gid::from_raw).into();
        let more: Vec<GroupId> = ["44", "105"].map(|gid| gid.parse().unwrap()).into();
        assert_eq!(joined(had, &more), [5, 44, 105].map(Gid::from_raw));
    }
}
