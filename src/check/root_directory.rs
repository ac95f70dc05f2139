//! Checks that every user may pass the root directory. Where that is not so, the helper reaches no file at all, and each
//! check that reads with its rights would report a cause of its own.

use super::finding::{Check, Finding, Severity};
use super::site::Site;
use facts::trusted_file::EXECUTE_BY_OTHERS;
use std::os::unix::fs::MetadataExt;

/// The text of `EACCES`, which findings have that the closed directory explains.
const DENIAL: &str = "ermission denied";

/// Reads the permission bits of the site's root directory; `None` if they cannot be read.
pub(super) fn read_root_mode(site: &Site) -> Option<u32> {
    site.root.metadata().ok().map(|meta| meta.mode() & 0o7777)
}

/// Judges the permission bits of the root directory; `None` if they are not known.
pub(super) fn judge_root_directory(mode: Option<u32>) -> Option<Finding> {
    let mode = mode?;
    if mode & EXECUTE_BY_OTHERS != 0 {
        let text = "lets every user pass";
        return Some(Finding::fine(Check::RootDirectory, "/", text));
    }
    let text = format!(
        "has mode {mode:04o}, so neither the helper nor any user reaches a file: every login is refused"
    );
    let remedy = "let everybody pass, by chmod 0755 /; then find out who closed it, such as an archive that was unpacked \
                  there";
    Some(Finding::error(Check::RootDirectory, "/", text, remedy))
}

/// Takes out what a closed root directory explains, so that its cause stands alone.
pub(super) fn keep_cause_alone(findings: &mut Vec<Finding>) {
    let is_closed = findings.iter().any(|finding| {
        finding.check == Check::RootDirectory && finding.severity == Severity::Error
    });
    if is_closed {
        findings.retain(|finding| !finding.text.contains(DENIAL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_root_directory_is_the_one_cause() {
        assert_eq!(judge_root_directory(None), None);
        let open = judge_root_directory(Some(0o755)).unwrap();
        assert_eq!(open.severity, Severity::Fine);
        let closed = judge_root_directory(Some(0o700)).unwrap();
        assert_eq!(closed.severity, Severity::Error);
        let denied = Finding::error(Check::Configuration, "/c", "open: Permission denied", "");
        let other = Finding::warning(Check::SlicesDropIn, "x", "is not closed", "");
        let mut findings = vec![denied.clone(), closed.clone(), other.clone()];
        keep_cause_alone(&mut findings);
        assert_eq!(findings, [closed, other]);
        let mut of_open = vec![open.clone(), denied.clone()];
        keep_cause_alone(&mut of_open);
        assert_eq!(of_open, [open, denied]);
    }
}
