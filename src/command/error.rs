//! The errors of commands, and their exit codes.

use crate::exit_status::{EXIT_FAILED, EXIT_FINE, EXIT_UNKILLABLE, EXIT_USAGE};
use helper::ConfigError;
use helper::jobs::records::RecordError;
use helper::printable;
use kernel::OperationError;
use kernel::bpf;
use kernel::cgroup;
use kernel::trust::TrustError;
use std::fmt;
use std::io;

/// The failure of a command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An argument or a record is invalid.
    #[error("{0}")]
    Input(String),
    /// A command line is wrong, or a program is run in the wrong way. The hint says what helps, on a line of its own.
    #[error("{fault}\n{hint}")]
    Usage {
        /// What is wrong.
        fault: String,
        /// What to read or to run.
        hint: String,
    },
    /// An operation failed, in the form "operation object: cause".
    #[error("{0}")]
    Failed(String),
    /// Processes with these numbers remain in a cgroup.
    #[error(
        "empty {cgroup}: processes {} are still there; try again later",
        list_pids(pids)
    )]
    Remaining {
        /// The path of the cgroup.
        cgroup: String,
        /// The numbers of the processes.
        pids: Vec<i32>,
    },
    /// An operation failed: what its user does about it, and the cause on a line of its own.
    #[error("{advice}\n{cause}")]
    Advised {
        /// What to do.
        advice: String,
        /// The cause, as for [`Error::Failed`].
        cause: String,
    },
    /// There are several to choose from: what was looked for, and lines that show each.
    #[error("{fault}\n{}", choices.join("\n"))]
    Several {
        /// What there is more than one of.
        fault: String,
        /// Each with the command that chooses it.
        choices: Vec<String>,
    },
    /// Processes remain that no signal ends, in the form "operation object: cannot be killed: processes".
    #[error("{0}")]
    Unkillable(String),
    /// Standard output could not be written. Only `write!` gives this error, since every other system
    /// call goes through [`Error::failed`].
    #[error("write standard output: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    /// Builds the error for an operation on an object that failed, for this cause.
    pub fn failed(operation: &str, object: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self::Failed(format!("{operation} {object}: {cause}"))
    }

    /// Builds the error for a wrong command line, with a hint at the command's help, or at the general
    /// help if `command` is empty.
    pub fn usage(command: &str, what: impl fmt::Display) -> Self {
        match command {
            "" => Self::Usage {
                fault: what.to_string(),
                hint: "try: job-adopt --help".to_owned(),
            },
            _ => Self::Usage {
                fault: format!("{command}: {what}"),
                hint: format!("try: job-adopt {command} --help"),
            },
        }
    }

    /// The exit code. A reader that closed standard output is no failure.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_) | Self::Usage { .. } => EXIT_USAGE,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => EXIT_FINE,
            Self::Unkillable(_) => EXIT_UNKILLABLE,
            Self::Failed(_)
            | Self::Advised { .. }
            | Self::Several { .. }
            | Self::Remaining { .. }
            | Self::Output(_) => EXIT_FAILED,
        }
    }
}

/// Maximum process numbers in a message.
const PIDS_MAX: usize = 8;

fn list_pids(pids: &[i32]) -> String {
    let mut names: Vec<String> = pids
        .iter()
        .take(PIDS_MAX)
        .map(ToString::to_string)
        .collect();
    if pids.len() > PIDS_MAX {
        names.push("...".into());
    }
    names.join(", ")
}

impl From<RecordError> for Error {
    fn from(error: RecordError) -> Self {
        Self::Input(format!("read record: {error}"))
    }
}

/// Converts errors into [`Error::Failed`], made printable: users name the cgroups inside of their jobs.
macro_rules! from_printable {
    ($($kind:ty),*) => {
        $(impl From<$kind> for Error {
            fn from(error: $kind) -> Self {
                Self::Failed(printable(&error.to_string()))
            }
        })*
    };
}

from_printable!(
    bpf::Error,
    cgroup::Error,
    OperationError,
    ConfigError,
    TrustError
);
