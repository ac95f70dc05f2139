//! What every check of `check` is given.

use crate::resolve::Config;
use std::path::PathBuf;

/// The node that is checked.
#[derive(Debug)]
pub(super) struct Scene {
    /// `/`, but in tests.
    pub(super) root: PathBuf,
    /// The PAM service.
    pub(super) service: String,
    /// Where the configuration is.
    pub(super) conf: PathBuf,
    /// The configuration, or the default where it cannot be read.
    pub(super) config: Config,
}
