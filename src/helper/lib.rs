//! The unprivileged half: turns a request into a reply.
//!
//! ```text
//! request -> Config -> Survey of the sources -> choose one job -> its devices -> reply
//!                 \-> stack: does the service's PAM stack run our session line?
//! ```

#![forbid(unsafe_code)]

mod answer;
mod caller;
pub mod callerid;
mod choice;
mod clock;
mod config;
pub mod devices;
mod environment;
mod plan;
pub mod records;
pub mod sources;
pub mod stack;
mod survey;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
mod unit_policy;

use std::fmt;

use kernel::log::is_disruptive;
use protocol::{Reason, Refusal, Reply, SessionLine, Verdict, parse_decimal};

pub use answer::{Node, answer, main};
pub use choice::{parse_choice, read_choice};
pub use clock::{Clock, Deadline};
pub use config::{Config, ConfigError, JobEnvironment, SlurmDevices};
pub use plan::{JobContainment, PlanRefusal, contain_by_record};
pub use survey::SourceHealth;

/// Returns the uid of an account that `/etc/passwd` has, or that is a number. It queries no name
/// service: the helper is linked statically, which the C library's name service does not support, and
/// each login would query a directory.
fn find_local_uid(name: &str) -> std::io::Result<Option<u32>> {
    if let Some(uid) = parse_decimal(name) {
        return Ok(Some(uid));
    }
    Ok(find_uid_in(&std::fs::read("/etc/passwd")?, name))
}

/// Returns the uid of an account of passwd(5), in which names of people may be in any encoding.
fn find_uid_in(passwd: &[u8], name: &str) -> Option<u32> {
    for line in String::from_utf8_lossy(passwd).lines() {
        let fields: Vec<&str> = line.splitn(4, ':').collect();
        match *fields {
            [account, _, uid, _] if account == name => return parse_decimal(uid),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod passwd_tests {
    use super::find_uid_in;

    #[test]
    fn account_with_a_comment_in_latin_1_is_found() {
        let passwd = b"root:x:0:0::/:/bin/sh\nflux:x:500:500:F\xfcr Jobs:/:/bin/false\nx:y\n";
        assert_eq!(find_uid_in(passwd, "flux"), Some(500));
        assert_eq!(find_uid_in(passwd, "x"), None);
        assert_eq!(find_uid_in(passwd, "none"), None);
    }
}

/// Returns a refusal that names no job and no device.
fn refusal(reason: Reason) -> Refusal {
    Refusal { reason, jobs: Vec::new(), ended: None, device: String::new() }
}

/// Returns a reply without texts for the user, and with an unchecked stack.
fn reply(verdict: Verdict, detail: String) -> Reply {
    let (warnings, hint, message) = (Vec::new(), String::new(), String::new());
    let auth_fault = "was not examined".to_owned();
    Reply { stack: SessionLine::Unchecked, auth_fault, detail, warnings, hint, message, verdict }
}

/// Returns an untrusted text with `?` for each character that the log replaces as well, so that it stays
/// on one line, in its order.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_disruptive(c) { '?' } else { c }).collect()
}

/// The facts that led to a reply, in order: lines of a word and a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence(Vec<(&'static str, String)>);

impl Evidence {
    /// Returns the lines.
    pub fn lines(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(word, text)| (*word, text.as_str()))
    }

    fn add(&mut self, word: &'static str, text: impl fmt::Display) {
        self.0.push((word, printable(&text.to_string())));
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().try_for_each(|(word, text)| writeln!(f, "{word}: {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_text_stays_on_one_line() {
        assert_eq!(printable("a\u{e4}\n\u{1b}[1m\u{9b}"), "a\u{e4}??[1m?");
        let reordered = "a\u{61c}\u{200f}\u{2028}\u{202e}\u{2066}\u{feff}b";
        assert_eq!(printable(reordered), "a??????b");
    }
}
