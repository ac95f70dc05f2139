//! The log: lines of logfmt to syslog, facility `authpriv`.

#![forbid(unsafe_code)]

mod line;
mod syslog;

pub use line::{Line, Severity};
pub use syslog::{Speaker, write};
