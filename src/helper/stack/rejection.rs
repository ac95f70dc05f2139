//! What no version of libpam runs as it is written, or not every version in the same way.

use std::path::PathBuf;
use thiserror::Error;

/// The name of a character that editors do not show as one, with its number.
pub(super) fn name_false_blank(c: char) -> String {
    let name = match c {
        '\r' => "a carriage return",
        '\u{b}' => "a vertical tab",
        '\u{c}' => "a form feed",
        '\u{a0}' | '\u{202f}' => "a no-break space",
        '\u{ad}' => "a soft hyphen",
        '\u{200b}' => "a zero-width space",
        '\u{feff}' => "a byte order mark",
        _ => "the character",
    };
    match name {
        "the character" => format!("{name} U+{:04X}", u32::from(c)),
        _ => format!("{name} (U+{:04X})", u32::from(c)),
    }
}

/// Why nothing can be said about a stack with a certain line: libpam rejects it, by which it refuses
/// every login that reaches the line, or its versions from 1.3 to 1.7 read the line differently.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Rejection {
    /// Before 1.6 the continuation follows the gap; since then the line ends there.
    #[error("is continued over an empty line or a comment, which not every libpam skips")]
    ContinuedOverGap,
    /// Bytes of a line, with its continuations, or of a comment.
    #[error("has {0} bytes: libpam before 1.6 takes those above 1,023 for another line")]
    TooLong(usize),
    /// The file ends after a backslash, so libpam refuses all of it.
    #[error("ends in a line's middle, so libpam refuses the file")]
    Unfinished,
    /// A carriage return, a no-break space or the like.
    #[error("has {}, which libpam takes for a part of a word", name_false_blank(*.0))]
    FalseBlank(char),
    /// Neither a group nor, on this node, `@include`; with a control by which that refuses.
    #[error("begins with {0}, which is no group, so libpam refuses every login there")]
    UnknownGroup(String),
    /// A group and nothing else.
    #[error("has no control, so libpam refuses every login there")]
    NoControl,
    /// A group and a control by which that refuses, and nothing else.
    #[error("names no module, so libpam refuses every login there")]
    NoModule,
    /// Debian's libpam crashes there, others refuse every login.
    #[error("includes nothing, so libpam refuses every login")]
    NoFile,
    /// libpam reads the file's lines only up to this one.
    #[error("has the module name {0:?}, so libpam refuses the file")]
    UnusableModuleName(String),
    /// A control that libpam does not understand: it takes every return value as bad.
    #[error(
        "has the control [{0}], which libpam does not understand, so it refuses every login there"
    )]
    BadControl(String),
    /// libpam before 1.6 calculates such a number modulo 2³², later versions reject it.
    #[error("jumps over {0} lines, a number that not every libpam reads alike")]
    HugeJump(String),
    /// Our own module, at a path where there is none.
    #[error("names {0}, which does not exist, so libpam refuses every login there")]
    MissingModule(PathBuf),
    /// The service has no file of its own, and some builds of libpam then read this one.
    #[error("may have the service's lines, which only some builds of libpam read there")]
    PamConf,
}
