//! Recognizes the sshd of a login.

use kernel::proc::{Proc, Process};
use std::fs;

/// Whether a process is root's sshd, of a login or not. It checks the executable, since a
/// process can choose its name, and the uid, since users may run an sshd as well.
#[must_use]
pub fn is_sshd_process(pid: i32) -> bool {
    has_sshd_executable(pid) && read_process(pid).is_some_and(|process| is_root(&process))
}

/// Whether a process is the sshd of a login: root's, or its child that has become the user.
pub(crate) fn is_connection(pid: i32) -> bool {
    has_sshd_executable(pid)
        && read_process(pid)
            .is_some_and(|process| is_root(&process) || is_sshd_process(process.parent))
}

fn has_sshd_executable(pid: i32) -> bool {
    fs::read_link(Proc::host().dir(pid).join("exe"))
        .is_ok_and(|path| is_sshd_path(&path.to_string_lossy()))
}

fn read_process(pid: i32) -> Option<Process> {
    Proc::host().read_process(pid).ok()
}

fn is_root(process: &Process) -> bool {
    let [real_uid, ..] = process.uids;
    real_uid == 0
}

/// Whether an executable is an sshd. The second name exists since OpenSSH 9.8, and the kernel
/// marks a replaced executable as deleted.
fn is_sshd_path(path: &str) -> bool {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    matches!(path.rsplit('/').next(), Some("sshd" | "sshd-session"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sshd_is_recognized_by_executable() {
        for path in [
            "/usr/sbin/sshd",
            "/usr/lib/openssh/sshd-session",
            "/usr/sbin/sshd (deleted)",
        ] {
            assert!(is_sshd_path(path), "{path}");
        }
        for path in ["/home/a/sshd2", "/usr/bin/ssh", "/sshd/x", ""] {
            assert!(!is_sshd_path(path), "{path}");
        }
    }
}
