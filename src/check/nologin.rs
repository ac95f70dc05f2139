//! Looks for the files by which pam_nologin(8) keeps everybody but root out.

use super::finding::{Check, Finding};
use super::site::Site;
use std::path::{Path, PathBuf};

/// The files that pam_nologin reads.
const FILES: [&str; 2] = ["/run/nologin", "/etc/nologin"];
const MODULE: &str = "pam_nologin.so";

/// The files that keep users out, if the service's stack has pam_nologin.
pub(super) fn find_nologin_files(site: &Site) -> Vec<PathBuf> {
    if !site.account.iter().any(|entry| entry.file() == MODULE) {
        return Vec::new();
    }
    let files = FILES.map(|file| site.at(file));
    files.into_iter().filter(|file| file.exists()).collect()
}

/// Notes a file that keeps users out: it may be there on purpose, and often is left behind.
pub(super) fn judge_nologin_file(file: &Path) -> Finding {
    let text = "is there, so pam_nologin refuses everybody but root, whatever their jobs are";
    let remedy = format!(
        "if no maintenance needs it, remove {}: systemd makes the one in /run and takes it away when the node has started",
        file.display()
    );
    Finding::note(Check::Nologin, file.display(), text, remedy)
}
