//! Whatever happens between the first change and the proof, also a panic or the death of sshd:
//! nothing of this login stays behind.

use super::Failure;
use super::way_back::WayBack;
use crate::cgroup::{Dir, MadeMark};
use crate::plan::LeafName;

/// What has been changed so far, and how to change it back. Dropping it does so.
#[derive(Debug)]
pub(super) struct Undo {
    way_back: WayBack,
    job: Dir,
    made: Option<LeafName>,
    moved: bool,
}

impl Undo {
    /// Nothing has been changed yet.
    pub(super) fn new(way_back: WayBack, job: Dir) -> Self {
        Self { way_back, job, made: None, moved: false }
    }

    /// This login has made the leaf of that name.
    ///
    /// # Errors
    /// As [`MadeMark::set`]; the leaf is then undone like everything else.
    pub(super) fn made_leaf(&mut self, name: &LeafName) -> Result<(), Failure> {
        self.made = Some(name.clone());
        let leaf = self.job.child(name.as_str())?;
        self.way_back.made(&leaf);
        Ok(MadeMark::set(&leaf)?)
    }

    /// From here on the login may be in the leaf.
    pub(super) fn moving(&mut self) {
        self.moved = true;
    }

    /// The move is over, and with it the time in which the login could be frozen unnoticed.
    pub(super) fn call_off_watch(&self) {
        self.way_back.call_off_watch();
    }

    /// Waits until the watchdog is gone.
    pub(super) fn end_watch(&mut self) {
        self.way_back.end_watch();
    }

    /// Everything stays as it is now.
    pub(super) fn commit(mut self) {
        self.made = None;
        self.moved = false;
    }

    /// Changes everything back and returns the failure to report: the one that led here, or that
    /// the way back is barred as well.
    pub(super) fn run(mut self, failure: Failure) -> Failure {
        match self.back() {
            Ok(()) => failure,
            Err(error) => Failure::Stuck(Box::new(failure), error),
        }
    }

    fn back(&mut self) -> crate::cgroup::Result<()> {
        let result = if std::mem::take(&mut self.moved) { self.way_back.go() } else { Ok(()) };
        if let Some(name) = self.made.take() {
            // Another login may have joined meanwhile; then the leaf is theirs.
            let _ = self.job.remove_child(name.as_str());
        }
        result
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = self.back();
    }
}
