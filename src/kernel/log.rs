//! Writes the log: lines of logfmt, with keys in a fixed order, to syslog's facility `authpriv`.
//!
//! It uses its own socket for the time of one call. The C library's `syslog(3)` would leave a descriptor and
//! the name of the program behind in sshd.

use crate::sys::clock::{local_time, now};
use nix::unistd::getpid;
use std::fmt::{self, Write as _};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// The severity of a line, with the numbers of syslog(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// `action_*` or the off switch opened a login, a way back failed, or the module has an internal error.
    Alert = 1,
    /// This program or the node is at fault.
    Error = 3,
    /// A requested object does not exist.
    Warning = 4,
    /// A login was refused.
    Notice = 5,
    /// A login was admitted.
    Info = 6,
    /// A single step succeeded.
    Debug = 7,
}

/// A line of `key=value` pairs. Empty values are left out, values with other than plain characters are
/// quoted, and no control character remains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Severity of the line.
    pub severity: Severity,
    /// True if the minimum severity does not filter the line.
    is_unfiltered: bool,
    text: String,
}

/// Maximum bytes of a value. The rest is cut off.
const VALUE_BYTES_MAX: usize = 600;

impl Line {
    /// Creates a line without pairs.
    pub fn new(severity: Severity) -> Self {
        Self {
            severity,
            is_unfiltered: false,
            text: String::new(),
        }
    }

    /// Adds a pair, unless the value is empty. A value is cut after 600 bytes.
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

    /// Lets the line be written whatever the minimum severity is.
    pub fn unfiltered(self) -> Self {
        Self {
            is_unfiltered: true,
            ..self
        }
    }

    /// Tells whether the line is written if `min` is the minimum severity.
    fn passes(&self, min: Severity) -> bool {
        self.is_unfiltered || self.severity <= min
    }

    /// The pairs as text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Appends a value: as it is if all its characters are plain and it is short enough, else between quotes. There `"`
/// and `\` get a backslash, a disruptive character becomes `?`, and `...` stands for what does not fit into
/// `VALUE_BYTES_MAX` bytes.
fn push_value(text: &mut String, value: &str) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:@+-,%=".contains(&byte);
    if value.len() <= VALUE_BYTES_MAX && value.bytes().all(is_plain) {
        text.push_str(value);
        return;
    }
    text.push('"');
    let mut capacity = VALUE_BYTES_MAX;
    for character in value.chars() {
        let Some(left) = capacity.checked_sub(character.len_utf8()) else {
            text.push_str("...");
            break;
        };
        capacity = left;
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            _ if is_disruptive(character) => text.push('?'),
            _ => text.push(character),
        }
    }
    text.push('"');
}

/// Tells whether a character controls a terminal, breaks a line or reorders it: a control character of ASCII
/// or Latin-1, a separator of lines or paragraphs, or a mark that changes the direction of text. Every text of
/// ours about names that others choose is checked by this table.
pub fn is_disruptive(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

const SOCKET: &str = "/dev/log";
/// Maximum wait for a syslog daemon that does not read. The first line that cannot be written in this time
/// ends the call.
const SEND_TIMEOUT: Duration = Duration::from_millis(200);

/// Writes the lines that are unfiltered or at least as severe as `min`, in order. `process` is the program's name in the
/// log, and each line follows `prefix`, which may be empty. Without a syslog daemon the lines are lost, as
/// with `syslog(3)`.
pub fn write(lines: &[Line], min: Severity, process: &str, prefix: &str) {
    if lines.iter().any(|line| line.passes(min)) {
        if let Ok(log) = Log::open() {
            log.write(lines, min, process, prefix);
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
    /// As `connect(2)`, for example without a daemon.
    pub fn open() -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        socket.connect(SOCKET)?;
        Ok(Self(socket))
    }

    /// Does the same as [`write()`], through this connection.
    pub fn write(&self, lines: &[Line], min: Severity, process: &str, prefix: &str) {
        for line in lines.iter().filter(|line| line.passes(min)) {
            if self
                .0
                .send(format_record(line, process, prefix).as_bytes())
                .is_err()
            {
                return;
            }
        }
    }
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Formats a line as in RFC 3164 without a host name, as syslog(3) does. The formatter of the crate `syslog`
/// 7.0.0 would bring ten crates into sshd, and writes the time of UTC, which daemons take for local time; a
/// test compares the rest with it.
fn format_record(line: &Line, process: &str, prefix: &str) -> String {
    let priority = libc::LOG_AUTHPRIV | line.severity as i32;
    let when = local_time(now()).and_then(|time| {
        let month = MONTHS.get(usize::try_from(time.tm_mon).ok()?)?;
        let day = time.tm_mday;
        let hour = time.tm_hour;
        let minute = time.tm_min;
        let second = time.tm_sec;
        Some(format!(
            "{month} {day:2} {hour:02}:{minute:02}:{second:02} "
        ))
    });
    // Without a time the daemon adds its own.
    let when = when.unwrap_or_default();
    format!(
        "<{priority}>{when}{process}[{}]: {prefix}{}",
        getpid(),
        line.text()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use syslog::{Facility, Formatter3164, LogFormat};

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
    fn value_cannot_forge_a_line() {
        let forged = line("a\nb\rc\u{1b}[2Jd\0e\u{85}f\u{2028}g\u{202e}h\u{61c}i\u{200f}j");
        assert!(!forged.chars().any(is_disruptive), "{forged:?}");
        assert_eq!(forged, "k=\"a?b?c?[2Jd?e?f?g?h?i?j\"");
    }

    #[test]
    fn long_values_are_cut() {
        assert!(line(&"x".repeat(5000)).len() < VALUE_BYTES_MAX + 20);
        assert!(line(&"ä".repeat(5000)).ends_with("...\""));
    }

    /// Splits a record into its priority and what follows the time.
    fn without_time(record: &str) -> (&str, &str) {
        let (priority, rest) = record.split_once('>').unwrap();
        (
            priority,
            rest.split_at_checked("Nov  1 04:05:06 ".len()).unwrap().1,
        )
    }

    #[test]
    fn record_has_the_bytes_of_the_crate_syslog_but_for_the_time() {
        let formatter = Formatter3164 {
            facility: Facility::LOG_AUTHPRIV,
            hostname: None,
            process: "sshd".to_owned(),
            pid: std::process::id(),
        };
        for (severity, theirs) in [
            (Severity::Alert, syslog::Severity::LOG_ALERT),
            (Severity::Error, syslog::Severity::LOG_ERR),
            (Severity::Warning, syslog::Severity::LOG_WARNING),
            (Severity::Notice, syslog::Severity::LOG_NOTICE),
            (Severity::Info, syslog::Severity::LOG_INFO),
            (Severity::Debug, syslog::Severity::LOG_DEBUG),
        ] {
            let mut expected = Vec::new();
            formatter.format(&mut expected, theirs, "p: a=b").unwrap();
            let expected = String::from_utf8(expected).unwrap();
            let record = format_record(&Line::new(severity).with("a", "b"), "sshd", "p: ");
            assert_eq!(without_time(&record), without_time(&expected));
        }
    }

    #[test]
    fn line_has_form_of_rfc_3164() {
        let line = Line::new(Severity::Notice).with("a", "b");
        let line = format_record(&line, "sshd", "p: ");
        let rest = line.strip_prefix("<85>").unwrap();
        let (time, rest) = rest.split_at_checked("Nov  1 04:05:06 ".len()).unwrap();
        assert_eq!(rest, format!("sshd[{}]: p: a=b", getpid()));
        let (month, time) = time.split_at_checked(3).unwrap();
        assert!(MONTHS.contains(&month), "{line}");
        let shape: String = time
            .chars()
            .map(|c| if c.is_ascii_digit() { '9' } else { c })
            .collect();
        assert!(
            [" 99 99:99:99 ", "  9 99:99:99 "].contains(&shape.as_str()),
            "{line}"
        );
    }
}
