//! Writes the log lines about a login.

use kernel::log::{self, Line, Log, Severity};
use kernel::proc::read_audit_number;
use protocol::{Decision, Phase, Reason, Request};

/// Returns the log line of a decision, with the facts of the login. In `session` it has audit's login uid and
/// session id, which lead to the commands that ran in the job. In `account` pam_loginuid(8) has not set them
/// yet: they would be those of whoever started sshd.
pub fn decision_line(
    severity: Severity,
    decision: Decision,
    reason: Option<Reason>,
    login: &Request,
) -> Line {
    let line = Line::new(severity)
        .with("decision", decision)
        .with("code", reason.map_or("", Reason::as_str))
        .with("user", &login.user)
        .with("uid", login.uid)
        .with("rhost", &login.rhost)
        .with("service", &login.service)
        .with("phase", login.phase.as_str());
    if login.phase == Phase::Account {
        return line;
    }
    line.with("auid", audit_number("loginuid"))
        .with("ses", audit_number("sessionid"))
}

/// Reads one of this process's numbers for audit; an empty text if it has none.
fn audit_number(file: &str) -> String {
    read_audit_number("self", file).map_or(String::new(), |number| number.to_string())
}

/// Writes the lines of at least the severity `min` under the service's name, as sshd itself does, and with the
/// prefix of pam_syslog(3), which log readers know. It writes to the `open` log, or else to the node's.
/// `service` is `PAM_SERVICE`, `phase` the function of libpam.
pub fn write_log(open: Option<&Log>, lines: &[Line], min: Severity, service: &str, phase: &str) {
    let prefix = format!("pam_job_adopt({service}:{phase}): ");
    match open {
        Some(open) => open.write(lines, min, service, &prefix),
        None => log::write(lines, min, service, &prefix),
    }
}
