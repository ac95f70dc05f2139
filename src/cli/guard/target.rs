//! Which cgroups a guard is for.

use super::super::{Error, people};
use crate::cgroup::{Mount, subtree};
use crate::guard;
use crate::plan::{CgroupPath, decimal};
use clap::Args;
use nix::unistd::User;
use std::fmt;

/// Below it systemd has the users' slices.
const USERS: &str = "/user.slice";
/// Below it systemd has the services that have no other slice.
const SERVICES: &str = "/system.slice";
/// Longest name of a unit (systemd.unit(5)).
const UNIT_MAX: usize = 255;

/// Whose slice, or which service.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct Whose {
    /// Whose slice, by number; root's is never guarded
    #[arg(long, value_parser = number)]
    uid: Option<u32>,
    /// The same by name
    #[arg(long)]
    user: Option<String>,
    /// Those of all users that are there
    #[arg(long)]
    all: bool,
    /// A service in place of a slice, as cron.service
    #[arg(long, value_name = "NAME", value_parser = service)]
    service: Option<CgroupPath>,
}

impl Whose {
    /// Whether it is root's slice.
    pub(super) fn is_roots(&self) -> bool {
        self.uid == Some(0) || self.user.as_deref() == Some("root")
    }
}

fn number(text: &str) -> Result<u32, &'static str> {
    decimal(text).filter(|uid| *uid != u32::MAX).ok_or("not the number of a user")
}

fn service(name: &str) -> Result<CgroupPath, &'static str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    let is_name = name.len() <= UNIT_MAX && name.bytes().all(fits);
    let stem = name.strip_suffix(".service").filter(|stem| is_name && !stem.is_empty());
    let path = stem.and_then(|name| format!("{SERVICES}/{name}.service").parse().ok());
    path.ok_or("not NAME.service")
}

/// A cgroup that is to be guarded.
#[derive(Debug)]
pub(super) struct Target {
    /// Where it is.
    pub(super) path: CgroupPath,
    /// Whose slice it is; `None` for a service.
    pub(super) uid: Option<u32>,
}

impl Target {
    /// Those that the command line names.
    ///
    /// # Errors
    /// [`Error::Failed`] for a user that is none, and where slices cannot be listed.
    pub(super) fn of(whose: &Whose) -> Result<Vec<Self>, Error> {
        match whose {
            Whose { service: Some(path), .. } => Ok(vec![Self { path: path.clone(), uid: None }]),
            Whose { user: Some(name), .. } => {
                Ok(vec![Self::user(people::account(name)?.uid.as_raw())?])
            }
            Whose { uid: Some(uid), .. } => Ok(vec![Self::user(*uid)?]),
            _ => Self::all(),
        }
    }

    fn user(uid: u32) -> Result<Self, Error> {
        let path = guard::slice(uid).map_err(|error| Error::Failed(error.to_string()))?;
        Ok(Self { path, uid: Some(uid) })
    }

    /// The slices of all users but root's that are there.
    fn all() -> Result<Vec<Self>, Error> {
        let users = USERS.parse().map_err(|error| Error::failed("find", USERS, error))?;
        let place = subtree::unless_gone(Mount::open()?.place(&users))?;
        let mut uids = Vec::new();
        if let Some(place) = place {
            for name in place.dir()?.children()? {
                let uid = name.to_str().and_then(uid_of).filter(|uid| *uid != 0);
                uids.extend(uid);
            }
        }
        uids.sort_unstable();
        uids.into_iter().map(Self::user).collect()
    }

    /// Why it is not there.
    pub(super) fn absent(&self) -> &'static str {
        match self.uid {
            Some(uid) if matches!(User::from_uid(uid.into()), Ok(None)) => {
                "no user has that number"
            }
            Some(_) => "nobody is logged in",
            None => "it is not running, or in another slice",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

/// Whose slice has this name.
fn uid_of(name: &str) -> Option<u32> {
    name.strip_prefix("user-")?.strip_suffix(".slice").and_then(decimal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_tells_whose_it_is() {
        assert_eq!(uid_of("user-1001.slice"), Some(1001));
        for other in ["user-.slice", "user-01.slice", "user-1-2.slice", "user-1.scope", "1.slice"] {
            assert_eq!(uid_of(other), None, "{other}");
        }
    }
}
