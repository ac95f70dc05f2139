//! What a process inherits and we change for ourselves, to be given back to a command of others.

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::stat::{Mode, umask};

/// What was so when this process started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    umask: Mode,
    /// Soft and hard limit of descriptors; `None` where they could not be read.
    descriptors: Option<(rlim_t, rlim_t)>,
}

impl Caller {
    /// Notes what is so and sets what we need: the unprivileged half has to read what is made
    /// here, whatever umask a prolog has, and the processes and cgroups of a job are held by
    /// descriptors, for which the usual soft limit is low.
    pub(super) fn replace() -> Self {
        let umask = umask(Mode::from_bits_truncate(0o022));
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).ok();
        if let Some((_, hard)) = descriptors {
            // With the lower limit there are only fewer of them at a time.
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
        Self { umask, descriptors }
    }

    /// Makes it so again, in the process that becomes the command.
    ///
    /// # Errors
    /// As `setrlimit(2)`.
    pub(super) fn restore(self) -> nix::Result<()> {
        umask(self.umask);
        match self.descriptors {
            Some((soft, hard)) => setrlimit(Resource::RLIMIT_NOFILE, soft, hard),
            None => Ok(()),
        }
    }
}
