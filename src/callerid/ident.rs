//! The Identification Protocol's two lines (RFC 1413 sections 3 to 6).
//!
//! What is written has the form of the protocol's own examples. What is read may have blanks wherever
//! the protocol lets them be, and nothing else that it leaves open.

use crate::plan::JobId;

/// Most bytes of either line, its end included: many times what ours have.
pub const LINE_MAX: usize = 256;
/// Most digits of a port; zeros in front count.
const DIGITS_MAX: usize = 5;
/// Most bytes of a token.
const TOKEN_MAX: usize = 64;

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
    /// What an answer is about where the question had no two ports.
    pub const NONE: Self = Self { local: 0, foreign: 0 };

    /// The line of the question.
    #[must_use]
    pub fn line(self) -> String {
        format!("{self}\r\n")
    }

    /// Reads the line of a question, with or without its end: two ports, neither of them 0.
    ///
    /// # Errors
    /// [`Unreadable`], to which [`Answer::InvalidPort`] is the answer.
    pub fn parse(line: &[u8]) -> Result<Self, Unreadable> {
        Self::of_pair(text(line)?)
            .filter(|query| query.local > 0 && query.foreign > 0)
            .ok_or(Unreadable)
    }

    fn of_pair(pair: &str) -> Option<Self> {
        let (local, foreign) = pair.split_once(',')?;
        Some(Self { local: port(local)?, foreign: port(foreign)? })
    }
}

impl std::fmt::Display for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} , {}", self.local, self.foreign)
    }
}

impl Answer {
    /// The line of the answer to that question.
    #[must_use]
    pub fn line(&self, query: Query) -> String {
        match self {
            Self::Job(id) => format!("{query} : USERID : OTHER : {id}\r\n"),
            Self::NoUser => format!("{query} : ERROR : NO-USER\r\n"),
            Self::Hidden => format!("{query} : ERROR : HIDDEN-USER\r\n"),
            Self::InvalidPort => format!("{query} : ERROR : INVALID-PORT\r\n"),
            Self::Unknown => format!("{query} : ERROR : UNKNOWN-ERROR\r\n"),
        }
    }

    /// Reads the line of an answer to that question, with or without its end. An error of the
    /// sender's own, which has an `X` in front, is [`Answer::Unknown`].
    ///
    /// # Errors
    /// [`Unreadable`] for anything else, for an answer about other ports, and for what names no job:
    /// the user of a real system, or an id that no job can have.
    pub fn parse(line: &[u8], query: Query) -> Result<Self, Unreadable> {
        Self::of_text(text(line)?, query).ok_or(Unreadable)
    }

    fn of_text(text: &str, query: Query) -> Option<Self> {
        let (pair, rest) = text.split_once(':')?;
        let (kind, rest) = rest.split_once(':')?;
        if Query::of_pair(pair)? != query {
            return None;
        }
        match blank_trimmed(kind) {
            "ERROR" => Self::of_error(blank_trimmed(rest)),
            "USERID" => {
                let (system, id) = rest.split_once(':')?;
                // Whatever follows the colon is the id, so blanks behind it would be its own.
                let id = id.trim_start_matches(BLANKS).parse().ok()?;
                is_other(system).then_some(Self::Job(id))
            }
            _ => None,
        }
    }

    fn of_error(token: &str) -> Option<Self> {
        match token {
            "NO-USER" => Some(Self::NoUser),
            "HIDDEN-USER" => Some(Self::Hidden),
            "INVALID-PORT" => Some(Self::InvalidPort),
            "UNKNOWN-ERROR" => Some(Self::Unknown),
            _ => {
                let own = token.starts_with('X') && (2..=TOKEN_MAX).contains(&token.len());
                let plain = token.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
                (own && plain).then_some(Self::Unknown)
            }
        }
    }
}

const BLANKS: [char; 2] = [' ', '\t'];

fn blank_trimmed(text: &str) -> &str {
    text.trim_matches(BLANKS)
}

/// The characters of one line without its end, which may lack its carriage return.
fn text(line: &[u8]) -> Result<&str, Unreadable> {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let fits = line.len() <= LINE_MAX;
    let text = fits.then(|| std::str::from_utf8(text)).ok_or(Unreadable)?;
    text.map_err(|_| Unreadable)
}

fn port(text: &str) -> Option<u16> {
    let digits = blank_trimmed(text);
    let number = (1..=DIGITS_MAX).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    number.then(|| digits.parse().ok()).flatten()
}

/// `OTHER`, with or without the name of the character set that it has anyway.
fn is_other(system: &str) -> bool {
    let (system, charset) = system.split_once(',').unwrap_or((system, "US-ASCII"));
    blank_trimmed(system) == "OTHER" && blank_trimmed(charset) == "US-ASCII"
}

#[cfg(test)]
mod tests;
