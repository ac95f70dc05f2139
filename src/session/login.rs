//! One login, as PAM tells of it.

use crate::plan::Phase;

/// The facts of one login, as PAM tells them. Texts that it does not tell are empty.
#[derive(Clone, Debug)]
pub struct Login {
    /// Which phase it is in.
    pub phase: Phase,
    /// `PAM_USER`.
    pub user: String,
    /// Numeric user id, never 0.
    pub uid: u32,
    /// `PAM_SERVICE`.
    pub service: String,
    /// `PAM_RHOST`.
    pub rhost: String,
    /// PAM's `SSH_CONNECTION`.
    pub ssh_connection: String,
    /// Name of this node.
    pub node: String,
}

/// This node's name where the admin gives none: the host name up to its first dot.
#[must_use]
pub fn node_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name = name.to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}
