//! Slurm's configuration files: where they lie, their lines, and the little of them that matters
//! here.
//!
//! Read as Slurm reads them, but only where nobody besides root and Slurm's own account can have
//! written them.

mod lines;
mod place;
mod values;

use nix::errno::Errno;
use thiserror::Error;

use crate::kernel::trust::{Distrust, TrustError};

pub use lines::{At, Line, Text, joined};
pub use place::{Files, Texts, believed};
pub use values::{NodesDirs, SpoolPath, constrains, constrains_devices};

/// Why there is no answer from Slurm's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfError {
    /// There is no `slurm.conf`, and so nothing beside it.
    #[error("slurm.conf is not found, give its path as slurm_conf")]
    NoConf,
    /// A file is not there, or is not believed.
    #[error("{0}{advice}", advice = advice(.0))]
    File(TrustError),
    /// This line of the file is at fault.
    #[error("{0}: {1}")]
    Line(At, String),
}

impl ConfError {
    /// Whether a file is simply not there.
    pub fn is_missing(&self) -> bool {
        match self {
            Self::NoConf => true,
            Self::File(error) => error.is_missing(),
            Self::Line(..) => false,
        }
    }
}

fn advice(error: &TrustError) -> &'static str {
    match error.cause() {
        Distrust::Owner(_) | Distrust::Writable(_) => {
            "; the file and its directories have to be root's or the account slurm's, and writable \
             by nobody else"
        }
        Distrust::Open(Errno::ELOOP | Errno::ENOTDIR) => {
            "; no symbolic link is followed: give the real path as slurm_conf"
        }
        _ => "",
    }
}
