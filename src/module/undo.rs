//! If anything fails between the first change and the proof, also by a panic, this login leaves
//! nothing behind.

use super::Failure;
use super::job::Started;
use crate::kernel::cgroup::{Dir, MADE, Origin, mark};
use crate::kernel::namespace::{Namespace, Outside};
use crate::protocol::LeafName;

/// What has been changed so far, and how to change it back. Dropping it does so.
#[derive(Debug)]
pub(super) struct Undo {
    pub(super) origin: Origin,
    made: Option<(Dir, LeafName)>,
    keeper: Option<Started>,
    moved: bool,
    outside: Option<Outside>,
}

impl Undo {
    /// Nothing has been changed yet.
    pub(super) fn new(origin: Origin) -> Self {
        Self { origin, made: None, keeper: None, moved: false, outside: None }
    }

    /// Makes the leaf of that name below `job`, unless it is there.
    /// Errors: As [`Dir::make_child`] and [`mark`]; what was made is then undone like the rest.
    pub(super) fn make_leaf(&mut self, job: &Dir, name: &LeafName) -> Result<(), Failure> {
        let below = job.try_clone()?;
        if !job.make_child(name.as_str())? {
            return Ok(());
        }
        self.made = Some((below, name.clone()));
        Ok(mark(&job.child(name.as_str())?, MADE)?)
    }

    /// A keeper of the leaf was started for this login.
    pub(super) fn started(&mut self, keeper: Started) {
        self.keeper = Some(keeper);
    }

    /// From here on the login may be in the job.
    pub(super) fn moving(&mut self) {
        self.moved = true;
    }

    /// Joins the job's namespaces.
    /// Errors: As [`Outside::enter`].
    pub(super) fn enter(&mut self, inside: &[Namespace]) -> Result<(), Failure> {
        match inside {
            [] => Ok(()),
            _ => Ok(self.outside.insert(Outside::open(inside)?).enter(inside)?),
        }
    }

    /// Everything stays as it is now.
    pub(super) fn commit(mut self) {
        self.made = None;
        self.moved = false;
        self.outside = None;
        if let Some(keeper) = self.keeper.take() {
            keeper.keep();
        }
    }

    /// Changes everything back and returns the failure to report: the one that led here, or that
    /// the way back is barred as well.
    pub(super) fn back(&mut self, failure: Failure) -> Failure {
        match self.change_back() {
            Ok(()) => failure,
            Err(error) => Failure::Stuck(Box::new(failure), error),
        }
    }

    fn change_back(&mut self) -> crate::kernel::cgroup::Result<()> {
        // First: the job's namespaces may have another /proc.
        let left = self.outside.take().map_or(Ok(()), |outside| outside.back());
        let result = if std::mem::take(&mut self.moved) { self.origin.back() } else { Ok(()) };
        if let Some((job, name)) = self.made.take() {
            // Another login may have joined meanwhile; then the leaf is theirs.
            let _ = job.remove_child(name.as_str());
        }
        // Last of all, since it looks for itself whether the leaf is still needed.
        self.keeper = None;
        Ok(left?).and(result)
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = self.change_back();
    }
}
