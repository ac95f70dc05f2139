//! The commands that `check` may print to be pasted: our own ones, and modes of our own files.

use command::shell::{shell_path, shell_word};
use protocol::Request;
use std::fmt::{self, Display};
use std::path::Path;

/// The program that makes the accounts of this project.
pub(super) const ACCOUNT_PROGRAM: &str = "/usr/libexec/job-adopt/account";

/// A command line that can be pasted into a root shell, at night or by a script.
///
/// It changes only what is ours: each constructor makes one of our own commands, or sets the mode of one of our files.
/// So no finding can offer a command that edits another program's file. None of them opens the node, gives a job's login
/// more than it had, or ends a job, but for `register --again`, which gives a job what its names mean today: whoever makes
/// one has to see to the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnCommand(String);

/// A subcommand of `job-adopt` that mends something.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subcommand {
    Enable,
    Register,
    Strays,
    Unregister,
}

/// A program beside the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramKind {
    Helper,
    Keeper,
}

impl ProgramKind {
    /// The mode with which it is installed.
    pub(super) fn mode(self) -> &'static str {
        match self {
            Self::Helper => "0711",
            Self::Keeper => "0755",
        }
    }
}

/// A file of ours.
#[derive(Clone, Copy, Debug)]
pub(super) enum OwnFile<'a> {
    /// A program at this path, whose bytes show that it is of this project: a mistyped `helper=` may name any file.
    Program(ProgramKind, &'a Path),
    /// The configuration at its usual path. It has no secrets.
    Configuration,
    /// A directory that this project makes in `/run`.
    RunDirectory(&'a Path),
}

impl OwnCommand {
    /// A call of `job-adopt`.
    pub(super) fn job_adopt<T: Display>(
        subcommand: Subcommand,
        arguments: impl IntoIterator<Item = T>,
    ) -> Self {
        let name = match subcommand {
            Subcommand::Enable => "enable",
            Subcommand::Register => "register",
            Subcommand::Strays => "strays",
            Subcommand::Unregister => "unregister",
        };
        let mut line = format!("job-adopt {name}");
        for argument in arguments {
            line.push(' ');
            line.push_str(&shell_word(argument));
        }
        Self(line)
    }

    /// Whether it changes the node by `enable`, which refuses to while a change is tried.
    pub(super) fn is_enable(&self) -> bool {
        self.0.starts_with("job-adopt enable ")
    }

    /// The command that makes the helper's account.
    pub(super) fn make_account() -> Self {
        Self(ACCOUNT_PROGRAM.to_owned())
    }

    /// Gives a file of ours the mode with which it is installed.
    pub(super) fn reset_mode(file: OwnFile<'_>) -> Self {
        let (mode, path) = match file {
            OwnFile::Program(kind, path) => (kind.mode(), path),
            OwnFile::Configuration => ("a+rX", Path::new(Request::DEFAULT_CONF)),
            OwnFile::RunDirectory(path) => ("0755", path),
        };
        Self(format!("chmod {mode} {}", shell_path(path)))
    }
}

impl Display for OwnCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_ours_with_quoted_words() {
        let helper = OwnFile::Program(ProgramKind::Helper, Path::new("/opt/a b/helper"));
        let conf = ["--conf", "/etc/a;b"];
        for (command, expected) in [
            (
                OwnCommand::job_adopt(Subcommand::Enable, ["--only", "slices,bus"]),
                "job-adopt enable --only slices,bus",
            ),
            (
                OwnCommand::job_adopt(Subcommand::Unregister, conf),
                "job-adopt unregister --conf '/etc/a;b'",
            ),
            (
                OwnCommand::job_adopt::<&str>(Subcommand::Strays, []),
                "job-adopt strays",
            ),
            (OwnCommand::make_account(), "/usr/libexec/job-adopt/account"),
            (
                OwnCommand::reset_mode(helper),
                "chmod 0711 '/opt/a b/helper'",
            ),
            (
                OwnCommand::reset_mode(OwnFile::Configuration),
                "chmod a+rX /etc/security/job_adopt.conf",
            ),
        ] {
            assert_eq!(command.to_string(), expected);
        }
    }
}
