//! The management groups of a PAM stack.

/// A PAM management group: the function of a module that a line calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Authentication.
    Auth,
    /// Permission to log in.
    Account,
    /// Setting up the login.
    Session,
}

impl Group {
    /// Returns the word that lines of the group begin with.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Account => "account",
            Self::Session => "session",
        }
    }
}
