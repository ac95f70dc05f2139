//! The Identification Protocol's two lines (RFC 1413 sections 3 to 5).

use crate::plan::JobId;

/// Most bytes of either line, its end included: many times what ours have.
pub const LINE_MAX: usize = 256;

/// What is asked: a connection between the two hosts that talk, by its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The port on the host that is asked: the ssh client's.
    pub local: u16,
    /// The port on the host that asks: sshd's.
    pub foreign: u16,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The connection is this job's: `USERID : OTHER : 4242`. The id is no name of a user, which is
    /// what the operating system `OTHER` says.
    Job(JobId),
    /// There is no such connection, or no job owns it: `ERROR : NO-USER`.
    NoUser,
    /// The host that asks is told nothing: `ERROR : HIDDEN-USER`.
    Hidden,
    /// The question had no two ports: `ERROR : INVALID-PORT`.
    InvalidPort,
    /// It could not be found out: `ERROR : UNKNOWN-ERROR`.
    Unknown,
}

/// A line that is not as the protocol has it, or not about what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

impl Query {
    /// The line of the question.
    #[must_use]
    pub fn line(self) -> String {
        format!("{} , {}\r\n", self.local, self.foreign)
    }
}
