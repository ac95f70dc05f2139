//! Why a command failed, and the exit code that stands for it.

use crate::helper::ConfigError;
use crate::helper::printable;
use crate::helper::records::RecordError;
use crate::kernel::Failed;
use crate::kernel::bpf;
use crate::kernel::cgroup;
use crate::kernel::trust::TrustError;
use std::fmt;
use std::io;

/// Why a command failed.
#[derive(Debug)]
pub(super) enum Error {
    /// The command line is none: the command, and what is wrong.
    Usage(String, String),
    /// What was given cannot be used.
    Input(String),
    /// Something could not be read or done, in the form "operation object: cause".
    Failed(String),
    /// Our own output could not be written.
    Output(io::Error),
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
        Self::Usage(command.to_owned(), what.to_string())
    }

    /// The exit code.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Usage(..) | Self::Input(_) => super::EXIT_USAGE,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => super::EXIT_FINE,
            Self::Failed(_) | Self::Output(_) => super::EXIT_FAILED,
        }
    }

    /// The text for standard error; nothing where nobody reads our output any more.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Usage(command, what) if command.is_empty() => {
                Some(format!("{what}\ntry: job-adopt --help"))
            }
            Self::Usage(command, what) => {
                Some(format!("{command}: {what}\ntry: job-adopt {command} --help"))
            }
            Self::Input(what) | Self::Failed(what) => Some(what.clone()),
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => None,
            Self::Output(error) => Some(format!("write standard output: {error}")),
        }
    }
}

impl From<io::Error> for Error {
    /// Errors of `write!` to our output; every other system call goes through [`Error::failed`].
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<RecordError> for Error {
    fn from(error: RecordError) -> Self {
        Self::Input(format!("read record: {error}"))
    }
}

macro_rules! failed {
    ($($kind:ty),*) => {
        $(impl From<$kind> for Error {
            fn from(error: $kind) -> Self {
                Self::Failed(error.to_string())
            }
        })*
    };
}

impl From<cgroup::Error> for Error {
    /// Whoever owns the inside of a job's cgroup names the cgroups in it.
    fn from(error: cgroup::Error) -> Self {
        Self::Failed(printable(&error.to_string()))
    }
}

failed!(bpf::Error, Failed, ConfigError, TrustError);
