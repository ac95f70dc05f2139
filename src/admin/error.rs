//! Why a command failed, and the exit code that stands for it.

use helper::ConfigError;
use helper::printable;
use helper::records::RecordError;
use kernel::Failed;
use kernel::bpf;
use kernel::cgroup;
use kernel::trust::TrustError;
use std::fmt;
use std::io;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// What was given cannot be used.
    #[error("{0}")]
    Input(String),
    /// Something could not be read or done, in the form "operation object: cause".
    #[error("{0}")]
    Failed(String),
    /// Our own output could not be written: what `write!` says, since every other system call goes
    /// through [`Error::failed`].
    #[error("write standard output: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    pub(super) fn failed(
        operation: &str,
        object: impl fmt::Display,
        cause: impl fmt::Display,
    ) -> Self {
        Self::Failed(format!("{operation} {object}: {cause}"))
    }

    /// A mistake in the command line of a command, of none where that is empty.
    pub(super) fn usage(command: &str, what: impl fmt::Display) -> Self {
        Self::Input(match command {
            "" => format!("{what}\ntry: job-adopt --help"),
            _ => format!("{command}: {what}\ntry: job-adopt {command} --help"),
        })
    }

    /// The exit code. That nobody reads our output any more is no failure.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Input(_) => super::EXIT_USAGE,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => super::EXIT_FINE,
            Self::Failed(_) | Self::Output(_) => super::EXIT_FAILED,
        }
    }
}

impl From<RecordError> for Error {
    fn from(error: RecordError) -> Self {
        Self::Input(format!("read record: {error}"))
    }
}

/// Whoever owns the inside of a job's cgroup names the cgroups in it.
macro_rules! failed {
    ($($kind:ty),*) => {
        $(impl From<$kind> for Error {
            fn from(error: $kind) -> Self {
                Self::Failed(printable(&error.to_string()))
            }
        })*
    };
}

failed!(bpf::Error, cgroup::Error, Failed, ConfigError, TrustError);
