//! `check --live USER`: the service's own stack, run for a user.

use super::{Finding, Scene};

/// What a login of `user` would be, by running the stack in a child.
pub(super) fn live(_user: &str, _scene: &Scene) -> Vec<Finding> {
    Vec::new()
}
