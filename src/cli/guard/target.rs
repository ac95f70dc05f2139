//! Which cgroups a guard is for.

use super::super::{Error, Options, people};
use crate::cgroup::{Mount, subtree};
use crate::guard;
use crate::plan::{CgroupPath, decimal};
use nix::unistd::User;
use std::fmt;

/// Below it systemd has the users' slices.
const USERS: &str = "/user.slice";
/// Below it systemd has the services that have no other slice.
const SERVICES: &str = "/system.slice";
/// Longest name of a unit (systemd.unit(5)).
const UNIT_MAX: usize = 255;

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
    /// [`Error::Usage`] for none or for several kinds of them.
    pub(super) fn of(options: &Options) -> Result<Vec<Self>, Error> {
        let one_of = ["--uid", "--user", "--all", "--service"];
        if one_of.iter().filter(|name| options.has(name)).count() != 1 {
            return Err(options.usage("exactly one of --uid, --user, --all, --service is needed"));
        }
        if let Some(name) = options.value("--service") {
            return Ok(vec![Self::service(name, options)?]);
        }
        if options.has("--all") {
            return Self::all();
        }
        let uid = match (options.value("--uid"), options.value("--user")) {
            (_, Some(name)) => people::account(name)?.uid.as_raw(),
            (text, None) => {
                let uid = text.and_then(decimal).filter(|uid| *uid != u32::MAX);
                let text = text.unwrap_or_default();
                uid.ok_or_else(|| options.usage(format!("option --uid: {text} is no user number")))?
            }
        };
        Ok(vec![Self::user(uid)?])
    }

    fn user(uid: u32) -> Result<Self, Error> {
        let path = guard::slice(uid).map_err(|error| Error::Failed(error.to_string()))?;
        Ok(Self { path, uid: Some(uid) })
    }

    fn service(name: &str, options: &Options) -> Result<Self, Error> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
        let is_name = name.len() <= UNIT_MAX && name.bytes().all(fits);
        let stem = name.strip_suffix(".service").filter(|stem| is_name && !stem.is_empty());
        let path = stem.and_then(|name| format!("{SERVICES}/{name}.service").parse().ok());
        let path = path
            .ok_or_else(|| options.usage(format!("option --service: {name} is no NAME.service")))?;
        Ok(Self { path, uid: None })
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
