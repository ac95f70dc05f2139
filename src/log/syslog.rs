//! Lines to syslog, facility `authpriv`.
//!
//! Through a socket of our own for the time of one call: the C library's `syslog(3)` would leave
//! its descriptor, and the name it was opened with, behind in sshd.

use super::{Line, Severity};
use nix::unistd::getpid;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;
use syslog::{Facility, Formatter3164, Logger, LoggerBackend};

const SOCKET: &str = "/dev/log";
/// Longest wait for a syslog daemon that does not read, for all lines together: at the first that
/// cannot be written in this time the rest is given up.
const PATIENCE: Duration = Duration::from_millis(200);

/// In whose name a line is written.
#[derive(Clone, Copy, Debug)]
pub struct Speaker<'a> {
    /// Name of the program, before the process id.
    pub process: &'a str,
    /// What every line begins with; may be empty.
    pub prefix: &'a str,
}

/// Writes the lines that are at least as severe as `least`, in order. Where there is no syslog
/// daemon they are lost, as with `syslog(3)`.
pub fn write(lines: &[Line], least: Severity, speaker: Speaker<'_>) {
    let wanted: Vec<&Line> = lines.iter().filter(|line| line.severity <= least).collect();
    if wanted.is_empty() {
        return;
    }
    let Some(mut logger) = connect(speaker.process) else { return };
    for line in wanted {
        let text = format!("{}{}", speaker.prefix, line.text());
        let written = match line.severity {
            Severity::Alert => logger.alert(text),
            Severity::Error => logger.err(text),
            Severity::Warning => logger.warning(text),
            Severity::Notice => logger.notice(text),
            Severity::Info => logger.info(text),
            Severity::Debug => logger.debug(text),
        };
        if written.is_err() {
            return;
        }
    }
}

fn connect(process: &str) -> Option<Logger<LoggerBackend, Formatter3164>> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_write_timeout(Some(PATIENCE)).ok()?;
    socket.connect(SOCKET).ok()?;
    let formatter = Formatter3164 {
        facility: Facility::LOG_AUTHPRIV,
        hostname: None,
        process: process.into(),
        pid: u32::try_from(getpid().as_raw()).unwrap_or(0),
    };
    Some(Logger::new(LoggerBackend::Unix(socket), formatter))
}
