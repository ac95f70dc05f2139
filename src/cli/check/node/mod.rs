//! The node itself: kernel, mounts, users, guards.

use super::{Finding, Scene};

/// What the node has to be said of.
pub(super) fn findings(_scene: &Scene) -> Vec<Finding> {
    Vec::new()
}
