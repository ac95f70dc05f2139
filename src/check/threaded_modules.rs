//! PAM modules of others that have threads in sshd. The kernel lets no process with threads into the mounts of a job, so
//! such a module refuses each login to a job with private files.
//!
//! libpam loads the modules of all lines when a login begins, and the runtime of Go starts its threads when a module is
//! loaded. A module in another language that starts a thread is not found here; the log of a login names the threads.

use super::finding::{Check, Finding};
use super::site::Site;
use helper::stack::{Entry, Group, find_module, read_entries};
use kernel::sys::file::read_to_end;
use std::fs::File;
use std::path::Path;

/// Begins the record of the build in every program and library that is written in Go, also in one without symbols
/// (`debug/buildinfo`).
const GO_MARK: &[u8] = b"\xff Go buildinf:";
/// Maximum size of a module that is searched.
const MODULE_BYTES_MAX: u64 = 128 << 20;

/// Warns of each module of the service that is written in Go, at its first line.
pub(super) fn judge_threaded_modules(site: &Site) -> Vec<Finding> {
    let auth = read_entries(&site.root, &site.service, Group::Auth).unwrap_or_default();
    let mut names: Vec<&str> = Vec::new();
    let mut findings = Vec::new();
    for entry in auth.iter().chain(&site.account).chain(&site.session) {
        if entry.is_our_module() || names.contains(&entry.module.as_str()) {
            continue;
        }
        names.push(&entry.module);
        if find_module(&site.root, &entry.module).is_some_and(|file| is_written_in_go(&file)) {
            findings.push(describe(entry));
        }
    }
    findings
}

fn describe(entry: &Entry) -> Finding {
    let text = format!(
        "{} is written in Go and has threads in sshd: logins to jobs with private files are refused (JA07)",
        entry.file()
    );
    let remedy = "remove this module from the service, or set join_container=false on our lines, and logins keep the \
                  node's files";
    Finding::warning(Check::PamAuth, &entry.place, text, remedy)
}

/// Returns whether a file has the mark of Go. One that cannot be read has none: `find_missing_modules` names it if it is
/// missing.
fn is_written_in_go(file: &Path) -> bool {
    let bytes = File::open(file).and_then(|file| read_to_end(file.into(), MODULE_BYTES_MAX));
    bytes.is_ok_and(|bytes| bytes.windows(GO_MARK.len()).any(|part| part == GO_MARK))
}
