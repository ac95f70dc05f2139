//! The account that Flux's system instance runs as.

use std::fmt;

use crate::source::SourceError;
use nix::unistd::User;

/// An account, by name or by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// As the configuration has it.
    Name(String),
    /// Looked up already.
    Uid(u32),
}

impl Account {
    /// Its number; never root's, since everything of root's would look like an IMP.
    ///
    /// # Errors
    /// [`SourceError::Absent`] where there is no such account.
    pub fn uid(&self) -> Result<u32, SourceError> {
        let uid = match self {
            Self::Uid(uid) => *uid,
            Self::Name(name) => match User::from_name(name) {
                Ok(Some(user)) => user.uid.as_raw(),
                Ok(None) => return Err(SourceError::Absent(format!("no account {name}"))),
                Err(errno) => return Err(SourceError::Failed(format!("account {name}: {errno}"))),
            },
        };
        match uid {
            0 => Err(SourceError::Failed(format!("flux_user {self} is root, which Flux is not"))),
            uid => Ok(uid),
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Uid(uid) => uid.fmt(f),
        }
    }
}
