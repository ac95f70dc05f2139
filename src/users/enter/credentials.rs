//! The identity and the rights of a container's process, for what a login runs beside it.
//!
//! Who joins a user namespace of their own has all capabilities there, and stays the owner outside. A program from
//! the image would get more than the container has: so the login becomes what the chosen process is.

use command::sys::process::drop_bounding_capability;
use kernel::proc::{Proc, find_field, read};
use nix::errno::Errno;
use nix::sys::prctl::set_no_new_privs;
use nix::unistd::{Gid, Uid, getgid, getgroups, getuid, setgroups, setresgid, setresuid};
use std::io::{self, ErrorKind};

/// Number of bits in which the kernel shows capabilities.
const CAPABILITY_BITS: u32 = u64::BITS;

/// What a process is and may do, in the numbers of its own user namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Credentials {
    uid: u32,
    gid: u32,
    /// Supplementary groups; `None` if the namespace lets nobody change them, or one has no number there.
    groups: Option<Vec<u32>>,
    /// The capabilities that a program gets as root of the namespace, and at most, as bits.
    bounding: u64,
    no_new_privileges: bool,
}

impl Credentials {
    /// Reads the credentials of a process.
    ///
    /// # Errors
    ///
    /// As `open(2)`; [`ErrorKind::InvalidData`] for lines that are not as documented, or if its uid or gid has
    /// no number in its user namespace.
    pub(super) fn read(pid: i32) -> io::Result<Self> {
        let dir = Proc::host().dir(pid);
        let file = |name: &str| read(dir.join(name));
        Self::parse(
            &file("status")?,
            &file("uid_map")?,
            &file("gid_map")?,
            &file("setgroups")?,
        )
        .ok_or_else(|| ErrorKind::InvalidData.into())
    }

    /// Parses the texts of `status`, `uid_map`, `gid_map` and `setgroups` in a process's directory of
    /// `/proc`. `None` for lines that are not as documented, and if the uid or gid has no number in the user
    /// namespace.
    fn parse(status: &str, uid_map: &str, gid_map: &str, setgroups: &str) -> Option<Self> {
        let first = |name: &str| {
            let numbers = find_field(status, name)?;
            numbers.split_ascii_whitespace().next()?.parse().ok()
        };
        let groups: Option<Vec<u32>> = find_field(status, "Groups:")?
            .split_ascii_whitespace()
            .map(|group| map_id(gid_map, group.parse().ok()?))
            .collect();
        let capabilities = |name: &str| u64::from_str_radix(find_field(status, name)?, 16).ok();
        let uid = map_id(uid_map, first("Uid:")?)?;
        let no_new_privileges = find_field(status, "NoNewPrivs:")? != "0";
        let mut bounding = capabilities("CapBnd:")?;
        let permitted = capabilities("CapPrm:")?;
        // A program that root executes gets the whole bounding set. Securebits can forbid that to the process, and
        // no file shows them, so root keeps what the process has now. Another user gets more only by a setuid program,
        // which the process could execute as well, unless it has no_new_privs.
        if uid == 0 || no_new_privileges {
            bounding &= permitted;
        }
        Some(Self {
            uid,
            gid: map_id(gid_map, first("Gid:")?)?,
            groups: groups.filter(|_| setgroups.trim() == "allow"),
            bounding,
            no_new_privileges,
        })
    }

    /// The uid inside.
    pub(super) fn uid(&self) -> Uid {
        Uid::from_raw(self.uid)
    }

    /// Gives this process, which has joined the user namespace, these credentials. A program that it executes
    /// then has no capability that the container's process could not have.
    ///
    /// # Errors
    ///
    /// As `prctl(2)`, `setgroups(2)`, `setresgid(2)` and `setresuid(2)`.
    pub(super) fn apply(&self) -> io::Result<()> {
        for capability in 0..CAPABILITY_BITS {
            if self.bounding >> capability & 1 == 1 {
                continue;
            }
            match drop_bounding_capability(capability) {
                // The kernel has no more capabilities.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
                result => result?,
            }
        }
        self.change_groups()?;
        let gid = Gid::from_raw(self.gid);
        if getgid() != gid {
            setresgid(gid, gid, gid)?;
        }
        let uid = self.uid();
        if getuid() != uid {
            setresuid(uid, uid, uid)?;
        }
        if self.no_new_privileges {
            set_no_new_privs()?;
        }
        Ok(())
    }

    /// Sets the supplementary groups, unless this process has them already or nobody may change them. It
    /// fails as `getgroups(2)` and `setgroups(2)`.
    fn change_groups(&self) -> Result<(), Errno> {
        let Some(groups) = &self.groups else {
            return Ok(());
        };
        let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
        if getgroups()? == groups {
            return Ok(());
        }
        setgroups(&groups)
    }
}

/// Finds the number inside of a user namespace for one outside, by the lines of `uid_map` or `gid_map`
/// (user_namespaces(7)); `None` if it has none there.
fn map_id(map: &str, outside: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let inside = numbers.next()?.ok()?;
        let start = numbers.next()?.ok()?;
        let count = numbers.next()?.ok()?;
        let offset = outside
            .checked_sub(start)
            .filter(|offset| *offset < count)?;
        inside.checked_add(offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "         0       1001          1\n         1     100000      65536\n";

    fn status(uid: u32, groups: &str) -> String {
        format!(
            "Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t1001\t1001\t1001\t1001\n\
             Groups:\t{groups}\nCapPrm:\t00000000000005fb\nCapBnd:\t00000000800405fb\nNoNewPrivs:\t1\n"
        )
    }

    #[test]
    fn number_outside_is_mapped_to_the_one_inside() {
        for (outside, inside) in [(1001, Some(0)), (100_000, Some(1)), (165_535, Some(65536))] {
            assert_eq!(map_id(MAP, outside), inside, "{outside}");
        }
        for outside in [0, 1000, 1002, 165_536, u32::MAX] {
            assert_eq!(map_id(MAP, outside), None, "{outside}");
        }
        assert_eq!(map_id("0 0 4294967295\n", 7), Some(7));
        assert_eq!(map_id("4294967295 0 2\n", 1), None);
        assert_eq!(map_id("0 x 1\n", 0), None);
    }

    #[test]
    fn credentials_are_those_inside() {
        let credentials = Credentials::parse(&status(100_000, "100004 "), MAP, MAP, "allow\n");
        let expected = Credentials {
            uid: 1,
            gid: 0,
            groups: Some(vec![5]),
            bounding: 0x5fb,
            no_new_privileges: true,
        };
        assert_eq!(credentials, Some(expected));
    }

    /// Securebits can keep root from what its bounding set has, and no file shows them.
    #[test]
    fn root_gets_no_more_than_its_permitted_capabilities() {
        let bounding = |uid, no_new_privileges| {
            let line = format!("NoNewPrivs:\t{no_new_privileges}\n");
            let status = status(uid, "").replace("NoNewPrivs:\t1\n", &line);
            Credentials::parse(&status, MAP, MAP, "allow\n").map(|found| found.bounding)
        };
        let [root, other] = [1001, 100_000];
        assert_eq!(bounding(root, 0), Some(0x5fb));
        assert_eq!(bounding(root, 1), Some(0x5fb));
        assert_eq!(bounding(other, 1), Some(0x5fb));
        assert_eq!(bounding(other, 0), Some(0x8004_05fb));
    }

    #[test]
    fn groups_that_cannot_be_set_stay() {
        let groups = |groups: &str, setgroups: &str| {
            let status = status(1001, groups);
            Credentials::parse(&status, MAP, MAP, setgroups).map(|found| found.groups)
        };
        assert_eq!(groups("", "allow\n"), Some(Some(Vec::new())));
        assert_eq!(groups("", "deny\n"), Some(None));
        assert_eq!(groups("4711 ", "allow\n"), Some(None));
    }

    #[test]
    fn process_whose_uid_has_no_number_inside_has_no_credentials() {
        assert_eq!(
            Credentials::parse(&status(7, ""), MAP, MAP, "allow\n"),
            None
        );
        assert_eq!(Credentials::parse("", MAP, MAP, "allow\n"), None);
    }

    #[test]
    fn own_credentials_are_read() {
        let own = Credentials::read(nix::unistd::getpid().as_raw()).unwrap();
        assert_eq!(own.uid, getuid().as_raw());
        assert_eq!(own.gid, getgid().as_raw());
    }
}
