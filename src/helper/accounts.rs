//! Finds accounts in `/etc/passwd`, and groups in `/etc/group`.
//!
//! No name service is queried: the helper is linked statically, which the C library's name service
//! does not support, and each login would query a directory.

use crate::node::Tree;
use crate::text::printable;
use protocol::parse_decimal;
use std::collections::BTreeSet;
use std::io;

/// Finds the uid of an account that `/etc/passwd` has, or that is a number; `None` without such an account.
///
/// # Errors
///
/// As `open(2)` and `read(2)` of `/etc/passwd`.
pub(crate) fn find_local_uid(name: &str) -> io::Result<Option<u32>> {
    if let Some(uid) = parse_decimal(name) {
        return Ok(Some(uid));
    }
    Ok(find_uid_in(&std::fs::read("/etc/passwd")?, name))
}

/// Finds the uid of an account in the text of passwd(5), in which names of people may be in any encoding. `None`
/// without the account, or if its uid is no number.
fn find_uid_in(passwd: &[u8], name: &str) -> Option<u32> {
    for line in String::from_utf8_lossy(passwd).lines() {
        let fields: Vec<&str> = line.splitn(4, ':').collect();
        let [account, _, uid, _] = *fields else {
            continue;
        };
        if account == name {
            return parse_decimal(uid);
        }
    }
    None
}

/// Lists, for warnings, by name and number those of these groups that `/etc/group` has and that the user is not in. A
/// group that is not there may have the user in a directory service, and is left out; a file that cannot be read counts
/// as empty. Without any gid no file is read.
pub(crate) fn local_groups_without(tree: &Tree, user: &str, gids: &BTreeSet<u32>) -> Vec<String> {
    if gids.is_empty() {
        return Vec::new();
    }
    let primary = tree
        .read_text("/etc/passwd")
        .ok()
        .and_then(|passwd| find_primary_gid(&passwd, user));
    let groups = tree.read_text("/etc/group").unwrap_or_default();
    let mut lacking = Vec::new();
    for line in groups.lines() {
        let fields: Vec<&str> = line.splitn(4, ':').collect();
        let [name, _, gid, members] = *fields else {
            continue;
        };
        let Some(gid) = parse_decimal(gid).filter(|gid| gids.contains(gid)) else {
            continue;
        };
        if Some(gid) != primary && !members.split(',').any(|member| member == user) {
            lacking.push(format!("{} ({gid})", printable(name)));
        }
    }
    lacking
}

/// Returns the primary gid of the user from the text of a passwd file; `None` for a user without a line, or if the
/// user's first line has no number for it.
fn find_primary_gid(passwd: &str, user: &str) -> Option<u32> {
    for line in passwd.lines() {
        let mut fields = line.split(':');
        if fields.next() == Some(user) {
            return fields.nth(2).and_then(parse_decimal);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{find_uid_in, local_groups_without};
    use crate::node::Tree;
    use crate::testing::Scratch;

    #[test]
    fn only_local_groups_without_the_user_are_lacking() {
        let scratch = Scratch::new();
        scratch.file("etc/passwd", "root:x:0:0::/:\nalice:x:1001:44:A:/:\n");
        scratch.file(
            "etc/group",
            "video:x:44:\nrender:x:105:bob,alice\nkvm:x:106:malice,alice2\nx\nodd:x:y:\n",
        );
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let lacking = |user: &str| local_groups_without(&tree, user, &[44, 105, 106, 900].into());
        assert_eq!(lacking("alice"), ["kvm (106)"]);
        assert_eq!(lacking("bob"), ["video (44)", "kvm (106)"]);
        assert_eq!(local_groups_without(&tree, "bob", &[].into()), [""; 0]);
    }

    #[test]
    fn account_with_a_comment_in_latin_1_is_found() {
        let passwd = b"root:x:0:0::/:/bin/sh\nflux:x:500:500:F\xfcr Jobs:/:/bin/false\nx:y\n";
        assert_eq!(find_uid_in(passwd, "flux"), Some(500));
        assert_eq!(find_uid_in(passwd, "x"), None);
        assert_eq!(find_uid_in(passwd, "none"), None);
    }
}
