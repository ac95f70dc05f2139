//! What both halves know of the jobs of Flux's system instance: how their ids and units are named,
//! and which processes of a unit say whose it is.
//!
//! Flux's account runs each job of another user's in a unit of its own service manager
//! (`imp-shell-RANK-ID.service`). The IMP of flux-security is that unit's first process: a setuid
//! program, so that its real uid is the account's and the others are root's, which no user can
//! bring about in a cgroup that is the account's. It starts the job's shell as the job's user.

#![forbid(unsafe_code)]

mod f58;
mod process;

use crate::plan::decimal;

pub use f58::FluxId;
pub use process::{Imp, Shell, imp, is_imp, shell};

/// A unit of a job's, by its name `imp-shell-RANK-ID.service`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit {
    /// The job.
    pub id: FluxId,
    /// Rank of the broker that runs it: a node may have several.
    pub rank: u32,
}

impl Unit {
    /// Reads a unit's name; `None` for one that is not a job's, spelled as Flux spells it.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (rank, id) =
            name.strip_prefix("imp-shell-")?.strip_suffix(".service")?.split_once('-')?;
        Some(Self { id: FluxId::canonical(id)?, rank: decimal(rank)? })
    }
}

/// Where the service manager of this account has its units: their cgroups' parents, below the
/// cgroup v2 mount. Newer ones have a slice of applications.
#[must_use]
pub fn folders(flux: u32) -> [String; 2] {
    let manager = format!("/user.slice/user-{flux}.slice/user@{flux}.service");
    [format!("{manager}/app.slice"), manager]
}

/// The unit whose cgroup this is; `None` for anything that is not right below where the account has
/// its units.
#[must_use]
pub fn unit_at(cgroup: &str, flux: u32) -> Option<Unit> {
    let (folder, name) = cgroup.rsplit_once('/')?;
    folders(flux).iter().any(|known| known == folder).then(|| Unit::parse(name))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_named_as_flux_names_them() {
        let unit = Unit { id: FluxId(633_528_662), rank: 12 };
        assert_eq!(Unit::parse("imp-shell-12-fxyzzy.service"), Some(unit));
        assert!(Unit::parse("imp-shell-0-f1.service").is_some());
        for name in [
            "",
            "shell-0-f1.service",
            "imp-shell-f1.service",
            "imp-shell--f1.service",
            "imp-shell-00-f1.service",
            "imp-shell-+1-f1.service",
            "imp-shell--1-f1.service",
            "imp-shell-4294967296-f1.service",
            "imp-shell-0-f11.service",
            "imp-shell-0-f0.service",
            "imp-shell-0-1234.service",
            "imp-shell-0-\u{192}1.service",
            "imp-shell-0-f1",
            "imp-shell-0-f1.scope",
            "imp-shell-0-f1.service.service",
            "imp-shell-0-f1.service ",
            "imp-shell-0-f1-2.service",
            " imp-shell-0-f1.service",
            "ximp-shell-0-f1.service",
            "imp-shell@0-f1.service",
        ] {
            assert_eq!(Unit::parse(name), None, "{name:?}");
        }
    }

    #[test]
    fn only_the_accounts_own_service_manager_has_them() {
        let at = |path: &str| unit_at(path, 992).is_some();
        assert!(at("/user.slice/user-992.slice/user@992.service/app.slice/imp-shell-0-f1.service"));
        assert!(at("/user.slice/user-992.slice/user@992.service/imp-shell-0-f1.service"));
        for path in [
            "",
            "imp-shell-0-f1.service",
            "/imp-shell-0-f1.service",
            "/user.slice/user-1001.slice/user@1001.service/app.slice/imp-shell-0-f1.service",
            "/user.slice/user-992.slice/user@1001.service/app.slice/imp-shell-0-f1.service",
            "/user.slice/user-992.slice/imp-shell-0-f1.service",
            "/user.slice/user-992.slice/user@992.service/background.slice/imp-shell-0-f1.service",
            "/user.slice/user-992.slice/user@992.service/app.slice/x/imp-shell-0-f1.service",
            "/user.slice/user-992.slice/user@992.service/app.slice/imp-shell-0-f1.service/x",
            "/user.slice/user-992.slice/user@992.service/app.slice/imp-shell-0-f1.service/",
            "/x/user.slice/user-992.slice/user@992.service/app.slice/imp-shell-0-f1.service",
            "/user.slice/user-0992.slice/user@992.service/imp-shell-0-f1.service",
        ] {
            assert!(!at(path), "{path}");
        }
    }
}
