//! Lines to syslog, facility `authpriv`.
//!
//! Through a socket of our own for the time of one call: the C library's `syslog(3)` would leave
//! its descriptor, and the name it was opened with, behind in sshd.

use crate::session::{Line, Severity};
use nix::unistd::getpid;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;
use syslog::{Facility, Formatter3164, Logger, LoggerBackend};

const SOCKET: &str = "/dev/log";
/// Longest wait for a syslog daemon that does not read.
const PATIENCE: Duration = Duration::from_millis(200);

/// Writes lines in order. Where there is no syslog daemon they are lost, as with `syslog(3)`.
pub(super) fn write(lines: &[Line], least: Severity, service: &str, phase: &str) {
    let wanted: Vec<&Line> = lines.iter().filter(|line| line.severity <= least).collect();
    if wanted.is_empty() {
        return;
    }
    let Some(mut logger) = connect(service) else { return };
    for line in wanted {
        // The prefix of pam_syslog(3), which log readers know.
        let text = format!("pam_job_adopt({service}:{phase}): {}", line.text());
        let _ = match line.severity {
            Severity::Alert => logger.alert(text),
            Severity::Error => logger.err(text),
            Severity::Warning => logger.warning(text),
            Severity::Notice => logger.notice(text),
            Severity::Info => logger.info(text),
            Severity::Debug => logger.debug(text),
        };
    }
}

/// The identifier is the service's name, which is what sshd itself logs under.
fn connect(service: &str) -> Option<Logger<LoggerBackend, Formatter3164>> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_write_timeout(Some(PATIENCE)).ok()?;
    socket.connect(SOCKET).ok()?;
    let formatter = Formatter3164 {
        facility: Facility::LOG_AUTHPRIV,
        hostname: None,
        process: service.to_owned(),
        pid: u32::try_from(getpid().as_raw()).unwrap_or(0),
    };
    Some(Logger::new(LoggerBackend::Unix(socket), formatter))
}
