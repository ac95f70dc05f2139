//! Where the login came from, and the way back there.

use super::attendant::Attendant;
use super::{Budget, Failure};
use crate::cgroup::{Error, Mount, Origin};
use crate::sys::child::Watch;
use std::os::fd::AsFd;

/// The login's own cgroups, opened before anything else is done.
#[derive(Debug)]
pub(super) struct Departure {
    /// None on a node that has cgroup v1 only.
    mount: Option<Mount>,
    origin: Origin,
}

impl Departure {
    /// Opens them.
    ///
    /// # Errors
    /// [`Failure::Cgroup`] where one cannot be opened, or there is more than one view of it.
    pub(super) fn open() -> Result<Self, Failure> {
        let mount = match Mount::open() {
            Ok(mount) => Some(mount),
            Err(Error::NotMounted) => None,
            Err(error) => return Err(error.into()),
        };
        let origin = Origin::open(mount.as_ref())?;
        Ok(Self { mount, origin })
    }

    /// What the attendant needs to look after the move.
    pub(super) fn watch(&self, budget: &Budget) -> Watch<'_> {
        let patience = i32::try_from(budget.left().as_millis()).unwrap_or(i32::MAX);
        Watch {
            origins: self.origin.ways().collect(),
            root: self.mount.as_ref().map(|mount| mount.root().as_fd()),
            patience_ms: patience.max(1),
        }
    }
}

/// The way back, and the attendant that is ready to go it for us.
#[derive(Debug)]
pub(super) struct WayBack {
    origin: Origin,
    attendant: Option<Attendant>,
}

impl WayBack {
    pub(super) fn new(departure: Departure, attendant: Attendant) -> Self {
        Self { origin: departure.origin, attendant: Some(attendant) }
    }

    /// A leaf of this path is about to be made by this login.
    pub(super) fn making(&self, path: &str) {
        if let Some(attendant) = &self.attendant {
            attendant.making(path);
        }
    }

    /// It was there already.
    pub(super) fn not_made(&self) {
        if let Some(attendant) = &self.attendant {
            attendant.not_made();
        }
    }

    /// Ends the watch. Only then is it proof to read back where the login is: an attendant whose
    /// patience runs out moves it.
    pub(super) fn end_watch(&mut self) {
        self.attendant = None;
    }

    /// Whether the watch goes on.
    pub(super) fn is_watched(&self) -> bool {
        self.attendant.is_some()
    }

    /// Refuses a job that uses a v1 hierarchy in which there is no way back.
    ///
    /// # Errors
    /// As [`Origin::require`].
    pub(super) fn require<'a>(
        &self,
        hierarchies: impl IntoIterator<Item = &'a str>,
    ) -> crate::cgroup::Result<()> {
        self.origin.require(hierarchies)
    }

    /// Goes back, in every hierarchy.
    ///
    /// # Errors
    /// As [`Origin::back`].
    pub(super) fn go(&self) -> crate::cgroup::Result<()> {
        self.origin.back()
    }
}
