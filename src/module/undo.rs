//! Records the changes for a login and rolls them back. If a step fails between the first change
//! and the last check, even by a panic, the login leaves nothing behind.

use crate::attributes::Attributes;
use crate::error::Failure;
use crate::keeper::KeeperHandle;
use kernel::cgroup::{Dir, MADE_XATTR, Origin, set_mark};
use protocol::{LeafName, Reason};

/// Requires that root owns a leaf, which root has made.
fn require_root_owner(leaf: &Dir) -> Result<(), Failure> {
    match leaf.owner()? {
        0 => Ok(()),
        uid => {
            let cause = format!(
                "{} is uid {uid}'s, and not the leaf that was made",
                leaf.path()
            );
            Err(Failure::new(Reason::AdoptionFailed, cause))
        }
    }
}

/// The changes so far. Its drop rolls them back.
#[derive(Debug)]
pub(super) struct Undo {
    /// The cgroups of the login before the move.
    pub(super) origin: Origin,
    /// Its attributes before the move.
    pub(super) attributes: Attributes,
    /// The job's cgroup, and the name of the leaf that this login made there.
    made_leaf: Option<(Dir, LeafName)>,
    /// The keeper of the leaf, if this login has started it.
    pub(super) keeper: Option<KeeperHandle>,
    /// The login may be in the job.
    pub(super) moved: bool,
}

impl Undo {
    /// Starts before any change, and reads the attributes of the login, some of which the move changes.
    pub(super) fn new(origin: Origin) -> Self {
        let attributes = Attributes::read();
        Self {
            origin,
            attributes,
            made_leaf: None,
            keeper: None,
            moved: false,
        }
    }

    /// Makes the leaf of that name below `job`, unless it exists.
    ///
    /// # Errors
    ///
    /// The errors of [`Dir::make_child`] and [`set_mark`]; a new leaf is rolled back like the
    /// other changes. The user of a job may own its cgroup, and so replace the new leaf: one that is
    /// not root's is never marked.
    pub(super) fn make_leaf(&mut self, job: &Dir, name: &LeafName) -> Result<(), Failure> {
        let job_dir = job.clone();
        if !job.make_child(name.as_str())? {
            return Ok(());
        }
        self.made_leaf = Some((job_dir, name.clone()));
        let leaf = job.child(name.as_str())?;
        require_root_owner(&leaf)?;
        Ok(set_mark(&leaf, MADE_XATTR)?)
    }

    /// Keeps all changes; `drop` then rolls nothing back.
    pub(super) fn commit(mut self) {
        self.made_leaf = None;
        self.moved = false;
        if let Some(keeper) = self.keeper.take() {
            keeper.confirm_login();
        }
    }

    /// Rolls back all changes. Returns the failure to report: the given one, or
    /// [`Failure::MoveBackFailed`].
    pub(super) fn roll_back(&mut self, failure: Failure) -> Failure {
        match self.restore() {
            Ok(()) => failure,
            Err(error) => Failure::MoveBackFailed(Box::new(failure), error),
        }
    }

    /// Moves the login back, puts its attributes back, and removes the leaf that it made if nobody else is in it. A
    /// second call does nothing.
    ///
    /// # Errors
    ///
    /// The failure of the move back alone.
    fn restore(&mut self) -> kernel::cgroup::Result<()> {
        let mut moved_back = Ok(());
        if std::mem::take(&mut self.moved) {
            moved_back = self.origin.move_back();
            self.attributes.put_back();
        }
        if let Some((job, name)) = self.made_leaf.take() {
            // Ignore the error: another login may have joined, and needs the leaf then.
            let _ = job.remove_child(name.as_str());
        }
        // Release the keeper last: it checks itself whether the leaf is still needed.
        self.keeper = None;
        moved_back
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = self.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The user of a job that owns its cgroup can put one in the place of the new leaf.
    #[test]
    fn leaf_of_another_account_is_not_taken_for_the_one_that_was_made() {
        if !nix::unistd::Uid::effective().is_root() {
            return crate::testing::skip("needs root");
        }
        let path = std::env::temp_dir().join(format!("job-adopt-leaf-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let leaf = Dir::new(std::fs::File::open(&path).unwrap().into(), "/job/job-adopt");
        assert!(require_root_owner(&leaf).is_ok());
        std::os::unix::fs::chown(&path, Some(1001), None).unwrap();
        let refused = require_root_owner(&leaf);
        std::fs::remove_dir(&path).unwrap();
        assert!(refused.is_err());
    }
}
