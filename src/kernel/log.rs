//! The log: lines of logfmt, keys in a fixed order, to syslog, facility `authpriv`.
//!
//! Through a socket of our own for the time of one call: the C library's `syslog(3)` would leave
//! its descriptor, and the name it was opened with, behind in sshd.

use crate::sys::clock::{local_time, now};
use nix::unistd::getpid;
use std::fmt::{self, Write as _};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;
use syslog::Facility;

/// How bad it is, with the numbers of syslog(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A knob opened a login, or one is where it should not be.
    Alert = 1,
    /// Our own fault, or the node's.
    Error = 3,
    /// Something that was asked for is not there.
    Warning = 4,
    /// A refusal.
    Notice = 5,
    /// Everything as it should be.
    Info = 6,
    /// Steps on the way.
    Debug = 7,
}

/// A line of `key=value` pairs. Values that are empty are left out; values that hold anything but
/// plain characters are quoted, and control characters never pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How bad it is.
    pub severity: Severity,
    text: String,
}

/// Longest value; what follows is cut off.
const VALUE_MAX: usize = 600;

impl Line {
    /// A line without pairs.
    pub fn new(severity: Severity) -> Self {
        Self { severity, text: String::new() }
    }

    /// Adds a pair, unless the value is empty.
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        let value = value.to_string();
        if value.is_empty() {
            return self;
        }
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{key}=");
        push_value(&mut self.text, &value);
        self
    }

    /// The line.
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn push_value(text: &mut String, value: &str) {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:@+-,%=".contains(&byte);
    if value.len() <= VALUE_MAX && value.bytes().all(plain) {
        text.push_str(value);
        return;
    }
    text.push('"');
    let mut room = VALUE_MAX;
    for character in value.chars() {
        let Some(left) = room.checked_sub(character.len_utf8()) else {
            text.push_str("...");
            break;
        };
        room = left;
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            _ if is_control(character) => text.push('?'),
            _ => text.push(character),
        }
    }
    text.push('"');
}

/// Control characters of ASCII and Latin-1, line and paragraph separators, and the marks that
/// reverse the direction of what a terminal shows.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

const SOCKET: &str = "/dev/log";
/// Longest wait for a syslog daemon that does not read, for all lines together: at the first that
/// cannot be written in this time the rest is given up.
const PATIENCE: Duration = Duration::from_millis(200);

/// Writes the lines that are at least as severe as `least`, in order: under the program's name
/// `process`, each after `prefix`, which may be empty. Where there is no syslog daemon they are lost,
/// as with `syslog(3)`.
pub fn write(lines: &[Line], least: Severity, process: &str, prefix: &str) {
    if lines.iter().any(|line| line.severity <= least) {
        if let Ok(log) = Log::open() {
            log.write(lines, least, process, prefix);
        }
    }
}

/// A connection to the syslog daemon.
#[derive(Debug)]
pub struct Log(UnixDatagram);

impl Log {
    /// Connects to the syslog daemon.
    ///
    /// # Errors
    ///
    /// Fails as `connect(2)`, for example without a daemon.
    pub fn open() -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.connect(SOCKET)?;
        Ok(Self(socket))
    }

    /// Does the same as [`write()`], through this connection.
    pub fn write(&self, lines: &[Line], least: Severity, process: &str, prefix: &str) {
        for line in lines.iter().filter(|line| line.severity <= least) {
            if self.0.send(record(line, process, prefix).as_bytes()).is_err() {
                return;
            }
        }
    }
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A line in the form of RFC 3164 without a host name, as syslog(3) writes it. The crate's own brings a
/// library of times and time zones into sshd, and panics where that finds no zone.
fn record(line: &Line, process: &str, prefix: &str) -> String {
    let priority = Facility::LOG_AUTHPRIV as u8 | line.severity as u8;
    let when = local_time(now()).and_then(|time| {
        let month = MONTHS.get(usize::try_from(time.tm_mon).ok()?)?;
        let (day, hour, minute, second) = (time.tm_mday, time.tm_hour, time.tm_min, time.tm_sec);
        Some(format!("{month} {day:2} {hour:02}:{minute:02}:{second:02} "))
    });
    // Without a time the daemon takes its own.
    let when = when.unwrap_or_default();
    format!("<{priority}>{when}{process}[{}]: {prefix}{}", getpid(), line.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(value: &str) -> String {
        Line::new(Severity::Info).with("k", value).text().to_owned()
    }

    #[test]
    fn plain_values_are_bare_and_others_quoted() {
        assert_eq!(line("4242"), "k=4242");
        assert_eq!(line("/a b"), "k=\"/a b\"");
        assert_eq!(line("say \"x\\\""), "k=\"say \\\"x\\\\\\\"\"");
        assert_eq!(line(""), "");
    }

    #[test]
    fn nothing_forges_a_line() {
        let forged = line("a\nb\rc\u{1b}[2Jd\0e\u{85}f\u{2028}g\u{202e}h");
        assert!(!forged.chars().any(is_control), "{forged:?}");
        assert_eq!(forged, "k=\"a?b?c?[2Jd?e?f?g?h\"");
    }

    #[test]
    fn long_values_are_cut() {
        assert!(line(&"x".repeat(5000)).len() < VALUE_MAX + 20);
        assert!(line(&"ä".repeat(5000)).ends_with("...\""));
    }

    #[test]
    fn a_line_has_the_form_of_rfc_3164() {
        let line = Line::new(Severity::Notice).with("a", "b");
        let line = record(&line, "sshd", "p: ");
        let rest = line.strip_prefix("<85>").unwrap();
        let (time, rest) = rest.split_at_checked("Nov  1 04:05:06 ".len()).unwrap();
        assert_eq!(rest, format!("sshd[{}]: p: a=b", getpid()));
        let (month, time) = time.split_at_checked(3).unwrap();
        assert!(MONTHS.contains(&month), "{line}");
        let shape: String =
            time.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
        assert!([" 99 99:99:99 ", "  9 99:99:99 "].contains(&shape.as_str()), "{line}");
    }
}
