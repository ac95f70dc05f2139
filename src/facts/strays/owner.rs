//! Finds whose a process is, and whose processes may be strays: those of people who are not exempt.

use super::process::ProcessInfo;
use crate::exempt_accounts::{ExemptAccounts, read_service_lines};
use command::accounts::read_uid_min;
use command::error::Error;
use helper::Config;
use kernel::sys::nsfs::namespace_owner;
use nix::unistd::{Uid, User};
use std::collections::BTreeMap;
use std::path::Path;

/// The uids of the account `nobody` (systemd's UIDS-GIDS).
const NOBODY_UIDS: std::ops::RangeInclusive<u32> = 65_534..=65_535;

/// The account of a person, which is not exempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Person {
    pub(super) uid: u32,
    pub(super) name: String,
}

/// The owner of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A person whose processes may be strays.
    Person(Person),
    /// The system, or an exempt account.
    Exempt,
    /// No account of the node has this uid, or it cannot be looked up: the owner is unknown.
    Unknown(u32),
}

/// Finds the people whose processes may be strays.
#[derive(Debug)]
pub(super) struct PersonFinder {
    uid_min: u32,
    exempt: ExemptAccounts,
    /// The owners of the uids that were looked up.
    looked_up: BTreeMap<u32, Owner>,
}

impl PersonFinder {
    /// Reads the exempt accounts from the configuration and from the stack of every service.
    ///
    /// # Errors
    ///
    /// The errors of [`read_service_lines`] and of [`ExemptAccounts::read`].
    pub(super) fn read(config: &Config) -> Result<Self, Error> {
        Ok(Self {
            uid_min: read_uid_min(),
            exempt: ExemptAccounts::read(config, &read_service_lines(Path::new("/"))?)?,
            looked_up: BTreeMap::new(),
        })
    }

    /// Finds the owner of a process.
    ///
    /// A process in a user namespace is the namespace's owner's, as the kernel has recorded it: its uids
    /// may be any that the owner's container has. Neither its cgroup nor its login uid counts, since an
    /// unprivileged process can choose both. In a namespace that root or a service has made, the uid counts
    /// as outside of it. If that has no account, the kernel does not know for whom root has made the container.
    pub(super) fn find_owner(&mut self, info: &ProcessInfo) -> Owner {
        if info.uid() == 0 {
            return Owner::Exempt;
        }
        // Without the right to read the namespace the uid counts. Root always has that right.
        let owner = namespace_owner(info.process.pid).ok().flatten();
        let owner = owner.filter(|uid| !self.is_reserved(*uid));
        self.find_account(owner.unwrap_or(info.uid()))
    }

    /// Whether a uid belongs to the system and to no person.
    fn is_reserved(&self, uid: u32) -> bool {
        uid < self.uid_min || uid == u32::MAX || NOBODY_UIDS.contains(&uid)
    }

    /// Finds the owner of a uid, and keeps the answer for further processes.
    fn find_account(&mut self, uid: u32) -> Owner {
        if let Some(owner) = self.looked_up.get(&uid) {
            return owner.clone();
        }
        let owner = self.look_up(uid);
        self.looked_up.insert(uid, owner.clone());
        owner
    }

    /// Looks the account of a uid up, and judges whether it is exempt: as one of the system, by its uid, or
    /// by one of its groups.
    fn look_up(&self, uid: u32) -> Owner {
        if self.is_reserved(uid) || self.exempt.has_uid(uid) {
            return Owner::Exempt;
        }
        let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else {
            return Owner::Unknown(uid);
        };
        match self.exempt.has_user(&user) {
            Ok(true) => Owner::Exempt,
            Ok(false) => Owner::Person(Person {
                uid,
                name: user.name,
            }),
            Err(_) => Owner::Unknown(uid),
        }
    }
}
