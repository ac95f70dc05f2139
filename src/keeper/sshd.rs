//! Recognizes sshd: its listeners, and the processes of logins.
//!
//! OpenSSH may run under any name: as a copy or link of an admin's choice, or as a fork such as HPN-SSH. So a process
//! counts by what it runs. A program of OpenSSH's own names is one. Of the others, a listener is known by the title that
//! OpenSSH gives itself from 8.2 on, and the process of a login by its title and by our module, which libpam loads there.

use kernel::proc::{self, Proc, Process};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The programs of OpenSSH: since 9.8 each connection runs some of its own.
pub const PROGRAMS: [&str; 3] = ["sshd", "sshd-session", "sshd-auth"];
/// The mode bits set-user-ID and set-group-ID.
const SET_ID_BITS: u32 = 0o6000;
/// The end of the title of a login's process of root (`mm_answer_pwnamallow` in OpenSSH's monitor.c).
const LOGIN_TITLE_END: &str = " [priv]";
/// What precedes the count of logins in the title of a listener (`prepare_proctitle` in sshd.c).
const LISTENER_MARK: &str = " [listener]";
/// The end of the path of our module.
const MODULE_FILE: &str = "pam_job_adopt.so";
/// What the kernel adds to the path of a file that was replaced.
const DELETED_SUFFIX: &str = " (deleted)";

/// Whether a process is root's sshd, of a login or not. It checks the uid, since users may run an sshd as well, and what
/// the process runs, since a process can choose its name.
#[must_use]
pub fn is_sshd_process(pid: i32) -> bool {
    let proc = Proc::host();
    // The cheapest question comes first: most processes are users'.
    proc.effective_uid(pid).is_ok_and(|uid| uid == 0) && is_sshd_of_root(&proc, pid)
}

/// Whether a process is the sshd of a login: root's, or its child that has become the user.
pub(crate) fn is_connection(pid: i32) -> bool {
    let proc = Proc::host();
    if is_sshd_of_root(&proc, pid) {
        return true;
    }
    let Ok(Process { parent, .. }) = proc.read_process(pid) else {
        return false;
    };
    let program = read_program(&proc, pid);
    program.is_some() && program == read_program(&proc, parent) && is_sshd_of_root(&proc, parent)
}

/// Parses the title of a listener, `NAME: COMMAND [listener] ...`, into the name that the program was started by and its
/// command line; `None` for another title. Only that of a process of root can be trusted.
#[must_use]
pub fn parse_listener_title(title: &str) -> Option<(&str, &str)> {
    let (name, rest) = title.split_once(": ")?;
    let (command, _) = rest.split_once(LISTENER_MARK)?;
    is_program_name(name).then_some((name, command))
}

fn is_sshd_of_root(proc: &Proc, pid: i32) -> bool {
    if !proc
        .read_process(pid)
        .is_ok_and(|process| is_root(&process))
    {
        return false;
    }
    if has_sshd_name(proc, pid) {
        return has_no_set_id_bits(proc, pid);
    }
    let title = proc::read(proc.dir(pid).join("cmdline")).unwrap_or_default();
    let title = title.trim_end_matches('\0');
    parse_listener_title(title).is_some() || (is_login_title(title) && has_module(proc, pid))
}

/// Whether a title is the one of a login's process of root: `NAME: USER [priv]`.
fn is_login_title(title: &str) -> bool {
    title.ends_with(LOGIN_TITLE_END)
        && title
            .split_once(": ")
            .is_some_and(|(name, _)| is_program_name(name))
}

/// Whether a text can be the name of a program in a title. A command line has blanks, zero bytes or a path before a colon.
fn is_program_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'/')
}

/// Whether libpam has loaded our module into a process of root. The map of a user's process is not read: a fault on a page
/// of a file system that never answers holds it locked.
fn has_module(proc: &Proc, pid: i32) -> bool {
    let maps = proc::read(proc.dir(pid).join("maps")).unwrap_or_default();
    let mut paths = maps.lines().map(without_deleted);
    paths.any(|path| path.ends_with(MODULE_FILE))
}

/// Whether the executable of a process has a name of OpenSSH's.
fn has_sshd_name(proc: &Proc, pid: i32) -> bool {
    read_program(proc, pid).is_some_and(|path| is_sshd_path(&path.to_string_lossy()))
}

fn read_program(proc: &Proc, pid: i32) -> Option<PathBuf> {
    fs::read_link(proc.dir(pid).join("exe")).ok()
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

/// Whether an executable is an sshd by its name.
fn is_sshd_path(path: &str) -> bool {
    let name = without_deleted(path).rsplit('/').next();
    name.is_some_and(|name| PROGRAMS.contains(&name))
}

fn without_deleted(path: &str) -> &str {
    path.strip_suffix(DELETED_SUFFIX).unwrap_or(path)
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

    /// HPN-SSH, or a link of another name before OpenSSH 9.8.
    #[test]
    fn sshd_of_another_name_is_recognized_by_what_it_runs() {
        let scratch = Scratch::new();
        let module = "7f r-xp 0 08:01 7 /usr/lib/security/pam_job_adopt.so\n";
        let replaced = "7f r-xp 0 08:01 7 /usr/lib/security/pam_job_adopt.so (deleted)\n";
        let other = "7f r-xp 0 08:01 7 /usr/lib/security/pam_unix.so\n";
        for (pid, uid, title, maps, is_sshd) in [
            (11, 0, "hpnsshd: alice [priv]\0\0\0", module, true),
            (12, 0, "hpcd: alice [priv]", replaced, true),
            (13, 0, "hpnsshd: alice [priv]", other, false),
            (14, 1001, "hpnsshd: alice [priv]", module, false),
            // Services of the scheduler may include our lines; their processes are the job.
            (15, 0, "su\0-\0alice", module, false),
            (16, 0, "sh\0-c\0a: b [priv]", module, false),
            (
                17,
                0,
                "hpnsshd: /usr/sbin/hpnsshd -D [listener] 0 of 10-100 startups",
                other,
                true,
            ),
            (
                18,
                1001,
                "hpnsshd: /usr/sbin/hpnsshd -D [listener] 0 of 10-100 startups",
                other,
                false,
            ),
            (19, 0, "vim\0x: [listener]", other, false),
        ] {
            let status = format!("State:\tS (sleeping)\nPPid:\t1\nUid:\t{uid}\t0\t0\t0\n");
            scratch.file(&format!("{pid}/status"), &status);
            scratch.file(&format!("{pid}/cmdline"), title);
            scratch.file(&format!("{pid}/maps"), maps);
            symlink(
                "/usr/sbin/hpnsshd",
                scratch.path().join(format!("{pid}/exe")),
            )
            .unwrap();
            let proc = Proc::with_root(scratch.path().to_owned());
            assert_eq!(is_sshd_of_root(&proc, pid), is_sshd, "{pid} {title}");
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
