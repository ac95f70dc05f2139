//! Finds accounts in `/etc/passwd`.
//!
//! No name service is queried: the helper is linked statically, which the C library's name service
//! does not support, and each login would query a directory.

use protocol::parse_decimal;
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

#[cfg(test)]
mod tests {
    use super::find_uid_in;

    #[test]
    fn account_with_a_comment_in_latin_1_is_found() {
        let passwd = b"root:x:0:0::/:/bin/sh\nflux:x:500:500:F\xfcr Jobs:/:/bin/false\nx:y\n";
        assert_eq!(find_uid_in(passwd, "flux"), Some(500));
        assert_eq!(find_uid_in(passwd, "x"), None);
        assert_eq!(find_uid_in(passwd, "none"), None);
    }
}
