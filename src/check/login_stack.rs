//! What a login reads of the service's stack: the helper judges it without root's rights, and where each sshd stands, which
//! may have other files there than this process.

use super::remedy::{Remedy, shell_path};
use facts::trusted_file::find_closed_folder;
use helper::stack::{Group, StackError, StackFinding, judge_stack};
use protocol::{Reply, SessionLine, Verdict};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The state of the service's stack, and what becomes of logins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LoginStack {
    /// Our session line runs in each login, or nobody asks for it.
    Confines,
    /// Our account line refuses every login, since no session line of ours is sure to run.
    Refuses {
        cause: String,
        /// The file that cannot be read, if that is the cause.
        unreadable: Option<PathBuf>,
    },
    /// No account line of ours is sure to be asked: nothing refuses the login, and nothing moves it into a job.
    Opens { cause: String },
}

/// The account lines, as libpam reads them with root's rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccountLines {
    /// Each login asks one of ours, or libpam cannot read them, and then refuses.
    Ask,
    /// None is ours, or none that each login asks.
    PassUsBy,
}

impl AccountLines {
    /// Reads the lines where this process stands.
    pub(super) fn read(service: &str) -> Self {
        Self::from_finding(&judge_stack(Path::new("/"), service, Group::Account))
    }

    fn from_finding(finding: &StackFinding) -> Self {
        match finding {
            // libpam refuses where it cannot read or rejects a line.
            StackFinding::Effective(_)
            | StackFinding::Unreadable(_)
            | StackFinding::Rejected(..) => Self::Ask,
            _ => Self::PassUsBy,
        }
    }
}

impl LoginStack {
    /// Takes the state from a helper's reply, as the module does in the account phase. The cause is read anew with the
    /// rights of this process, which are the helper's.
    pub(super) fn from_reply(reply: &Reply, service: &str, account: AccountLines) -> Self {
        let is_asked = !matches!(reply.verdict, Verdict::NotEnforced);
        if !is_asked || reply.stack != SessionLine::Missing {
            return Self::Confines;
        }
        match Self::read(service, account) {
            // Something else than modes keeps the helper from the files.
            Self::Confines => Self::Refuses {
                cause: reply.detail.clone(),
                unreadable: None,
            },
            found => found,
        }
    }

    /// Reads the state where this process stands, with its rights.
    pub(super) fn read(service: &str, account: AccountLines) -> Self {
        Self::judge(
            judge_stack(Path::new("/"), service, Group::Session),
            account,
        )
    }

    fn judge(session: StackFinding, account: AccountLines) -> Self {
        let cause = session.to_string();
        match (session, account) {
            (StackFinding::Effective(_), _) => Self::Confines,
            (_, AccountLines::PassUsBy) => Self::Opens { cause },
            (StackFinding::Unreadable(StackError::UnreadableFile { path, .. }), _) => {
                Self::Refuses {
                    cause,
                    unreadable: Some(path),
                }
            }
            _ => Self::Refuses {
                cause,
                unreadable: None,
            },
        }
    }

    /// Describes what becomes of logins, with the cause; `None` if they get into their jobs.
    pub(super) fn describe(&self) -> Option<String> {
        match self {
            Self::Confines => None,
            Self::Refuses { cause, .. } => Some(format!(
                "as a login reads the PAM files, every login is refused (JA09): {cause}"
            )),
            Self::Opens { cause } => Some(format!(
                "the PAM files there let logins in without a job: {cause}"
            )),
        }
    }

    /// What to do about a file that only root can read; `None` if that is not the fault.
    pub(super) fn remedy(&self) -> Option<Remedy> {
        let Self::Refuses {
            unreadable: Some(path),
            ..
        } = self
        else {
            return None;
        };
        let closed = shell_path(find_closed_folder(path).unwrap_or(path));
        let text = format!(
            "the helper, and so everybody, has to read {closed}, which has no secret: chmod a+rX {closed}"
        );
        Some(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use helper::stack::FileLine;

    fn ours() -> FileLine {
        FileLine {
            file: "/etc/pam.d/sshd".into(),
            line: 1,
        }
    }

    #[test]
    fn what_becomes_of_logins_depends_on_our_account_line() {
        let ask = AccountLines::Ask;
        let pass = AccountLines::PassUsBy;
        let confines = LoginStack::judge(StackFinding::Effective(ours()), ask);
        assert_eq!(confines.describe(), None);
        let refuses = LoginStack::judge(StackFinding::Absent, ask);
        assert!(
            refuses
                .describe()
                .is_some_and(|text| text.contains("every login is refused (JA09)"))
        );
        let opens = LoginStack::judge(StackFinding::Absent, pass);
        assert!(
            opens
                .describe()
                .is_some_and(|text| text.contains("without a job"))
        );
        // A line of ours that a login can pass over asks nothing of it.
        let by = || FileLine { line: 2, ..ours() };
        let skipped = StackFinding::Skipped {
            ours: ours(),
            by: by(),
        };
        for (finding, expected) in [
            (skipped, pass),
            (StackFinding::Absent, pass),
            (StackFinding::Effective(ours()), ask),
        ] {
            assert_eq!(AccountLines::from_finding(&finding), expected, "{finding}");
        }
        // Our session line decides alone.
        let late = LoginStack::judge(StackFinding::Effective(ours()), pass);
        assert_eq!(late, LoginStack::Confines);
    }

    #[test]
    fn file_that_only_root_reads_is_named_with_its_remedy() {
        let finding = StackFinding::Unreadable(StackError::UnreadableFile {
            path: "/no-such/common-session".into(),
            cause: "Permission denied".to_owned(),
        });
        let stack = LoginStack::judge(finding, AccountLines::Ask);
        let remedy = stack.remedy().unwrap();
        assert!(
            remedy
                .advice()
                .ends_with("chmod a+rX /no-such/common-session"),
            "{remedy:?}"
        );
        let absent = LoginStack::judge(StackFinding::Absent, AccountLines::Ask);
        assert_eq!(absent.remedy(), None);
    }
}
