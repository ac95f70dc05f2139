//! Recognizes the sshd of a login.

use kernel::proc::{Proc, Process};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The mode bits set-user-ID and set-group-ID.
const SET_ID_BITS: u32 = 0o6000;

/// Whether a process is root's sshd, of a login or not. It checks the executable, since a
/// process can choose its name, and the uid, since users may run an sshd as well.
#[must_use]
pub fn is_sshd_process(pid: i32) -> bool {
    is_sshd_of_root(&Proc::host(), pid)
}

/// Whether a process is the sshd of a login: root's, or its child that has become the user.
pub(crate) fn is_connection(pid: i32) -> bool {
    let proc = Proc::host();
    is_sshd_of_root(&proc, pid)
        || (has_sshd_executable(&proc, pid)
            && proc
                .read_process(pid)
                .is_ok_and(|process| is_sshd_of_root(&proc, process.parent)))
}

fn is_sshd_of_root(proc: &Proc, pid: i32) -> bool {
    has_sshd_executable(proc, pid)
        && proc
            .read_process(pid)
            .is_ok_and(|process| is_root(&process))
        && has_no_set_id_bits(proc, pid)
}

fn has_sshd_executable(proc: &Proc, pid: i32) -> bool {
    fs::read_link(proc.dir(pid).join("exe")).is_ok_and(|path| is_sshd_path(&path.to_string_lossy()))
}

fn is_root(process: &Process) -> bool {
    let [real_uid, ..] = process.uids;
    real_uid == 0
}

/// Whether the program of a process of root is no set-ID program. Through a hard link named sshd, users could start such
/// a one, as root. That of a user is not asked: its file system may never answer.
fn has_no_set_id_bits(proc: &Proc, pid: i32) -> bool {
    fs::metadata(proc.dir(pid).join("exe")).is_ok_and(|meta| meta.mode() & SET_ID_BITS == 0)
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
    use crate::testing::Scratch;
    use std::os::unix::fs::symlink;

    /// Without `fs.protected_hardlinks`, each user may link sudo or su to a file of this name.
    #[test]
    fn set_id_program_named_sshd_is_none() {
        let scratch = Scratch::new();
        for (pid, uid, mode, is_sshd) in [
            (11, 0, 0o755, true),
            (12, 0, 0o4755, false),
            (13, 0, 0o2755, false),
            (14, 1001, 0o755, false),
        ] {
            let status = format!("State:\tS (sleeping)\nPPid:\t1\nUid:\t{uid}\t0\t0\t0\n");
            scratch.file(&format!("{pid}/status"), &status);
            let program = scratch.file(&format!("{pid}/sshd"), "");
            scratch.mode(&format!("{pid}/sshd"), mode);
            symlink(program, scratch.path().join(format!("{pid}/exe"))).unwrap();
            let proc = Proc::with_root(scratch.path().to_owned());
            assert_eq!(is_sshd_of_root(&proc, pid), is_sshd, "{pid}");
        }
    }

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
