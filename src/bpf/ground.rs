//! The cgroups that a decision about filters is made on.

use super::compose::Reach;
use crate::cgroup::{Dir, Leaf};

/// A leaf and every cgroup above it, and how far ours may reach.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    /// The leaf first, the root of the mount last.
    pub levels: &'a [Dir],
    /// Index of the job's own cgroup.
    pub job: usize,
    /// Where ours may go.
    pub reach: Reach,
}

impl<'a> Ground<'a> {
    /// That of a leaf of a job that nobody else attaches filters to.
    pub fn of(leaf: &'a Leaf) -> Self {
        Self { levels: leaf.levels(), job: leaf.job_level(), reach: Reach::Job }
    }
}
