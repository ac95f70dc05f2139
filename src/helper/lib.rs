//! The unprivileged half: from a request to a reply.
//!
//! ```text
//! request -> Config -> Survey of the sources -> choose one job -> its devices -> reply
//!                 \-> stack: does the service's PAM stack run our session line?
//! ```

#![forbid(unsafe_code)]

mod answer;
mod caller;
pub mod callerid;
mod choose;
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

use protocol::{Reason, Refusal, Reply, Stack, Verdict, parse_decimal};

pub use answer::{Node, answer, main};
pub use choose::{parse as parse_choice, read_choice};
pub use config::{Config, ConfigError, JobEnvironment, SlurmDevices};
pub use plan::{Contained, NoPlan, contained};
pub use survey::Health;

/// The uid of an account that `/etc/passwd` has, or that is a number. Nobody else is asked: the
/// helper is linked statically, which the C library's name service is not made for, and a directory
/// would be asked at every login.
fn local_uid(name: &str) -> std::io::Result<Option<u32>> {
    if let Some(uid) = parse_decimal(name) {
        return Ok(Some(uid));
    }
    let passwd = std::fs::read("/etc/passwd")?;
    let mut lines =
        passwd.split(|&byte| byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    Ok(lines.find_map(|line| match *line.splitn(4, ':').collect::<Vec<_>>() {
        [found, _, uid, _] if found == name => parse_decimal(uid),
        _ => None,
    }))
}

fn refusal(reason: Reason) -> Refusal {
    Refusal { reason, jobs: Vec::new(), ended: None, device: String::new() }
}

fn reply(verdict: Verdict, detail: String) -> Reply {
    let (warnings, hint, message) = (Vec::new(), String::new(), String::new());
    Reply { stack: Stack::Unchecked, detail, warnings, hint, message, verdict }
}

/// A text of others, made fit for one line that a person reads: with `?` for control characters.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Lines of a word and what there is to say about it, in the order in which they came to light.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence(Vec<(&'static str, String)>);

impl Evidence {
    /// The lines.
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
    fn a_text_stays_on_its_line() {
        assert_eq!(printable("a\u{e4}\n\u{1b}[1m\u{9b}"), "a\u{e4}??[1m?");
    }
}
