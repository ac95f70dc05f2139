//! The limits of the caller, which a command of the user gets back.

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::stat::{Mode, umask};

/// The umask and limits that this process got from its caller.
#[derive(Clone, Copy, Debug)]
pub struct CallerLimits {
    umask: Mode,
    /// Soft and hard limit of descriptors; `None` if they could not be read.
    descriptors: Option<(rlim_t, rlim_t)>,
}

impl CallerLimits {
    /// Replaces umask and soft limit by those that this process needs; returns the caller's. The helper
    /// must be able to read the files that are created here, whatever the umask of a prolog, and
    /// descriptors hold a job's processes and cgroups, for which the default soft limit is low.
    pub fn replace() -> Self {
        let umask = umask(Mode::from_bits_truncate(0o022));
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).ok();
        if let Some((_, hard)) = descriptors {
            // Ignore a failure: the lower limit only holds fewer descriptors at a time.
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
        Self { umask, descriptors }
    }

    /// Restores the caller's values, in the child that executes the command.
    ///
    /// # Errors
    ///
    /// The errors of `setrlimit(2)`.
    pub fn restore(self) -> nix::Result<()> {
        umask(self.umask);
        match self.descriptors {
            Some((soft, hard)) => setrlimit(Resource::RLIMIT_NOFILE, soft, hard),
            None => Ok(()),
        }
    }
}
