//! Recognizes sshd: its listeners, and the processes of logins.
//!
//! OpenSSH may run under any name: as a copy or link of an admin's choice, or as a fork such as HPN-SSH. So a process
//! counts by what it runs. A program of OpenSSH's own names is one. Of the others, a listener is known by the title that
//! OpenSSH gives itself from 8.2 on, and the process of a login by its title and by our module, which libpam loads there.
//! None is a program that another account than root can start as root, or write.

use kernel::proc::{self, Proc, Process};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The programs of OpenSSH: since 9.8 each connection runs some of its own.
pub const PROGRAMS: [&str; 3] = ["sshd", "sshd-session", "sshd-auth"];
/// The mode bits set-user-ID and set-group-ID.
const SET_ID_BITS: u32 = 0o6000;
/// The mode bits by which others than the owner may write.
const OTHERS_WRITE_BITS: u32 = 0o022;
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
    is_sshd_with_program_of(proc, pid, 0)
}

/// As [`is_sshd_of_root`]; `program_owner` must own the program: root, except in tests.
fn is_sshd_with_program_of(proc: &Proc, pid: i32, program_owner: u32) -> bool {
    if !proc
        .read_process(pid)
        .is_ok_and(|process| is_root(&process))
    {
        return false;
    }
    (has_sshd_name(proc, pid) || has_sshd_title(proc, pid))
        && has_trusted_program(proc, pid, program_owner)
}

/// Whether a process of root has the title of a listener, or that of a login and our module.
fn has_sshd_title(proc: &Proc, pid: i32) -> bool {
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

/// Whether the program of a process of root is its owner's alone to write, and no set-ID program. Users can start such a
/// one, as root, through a hard link named sshd or with a title of their choice. That of a user is not asked: its file
/// system may never answer.
fn has_trusted_program(proc: &Proc, pid: i32, owner: u32) -> bool {
    fs::metadata(proc.dir(pid).join("exe")).is_ok_and(|meta| {
        meta.uid() == owner && meta.mode() & (SET_ID_BITS | OTHERS_WRITE_BITS) == 0
    })
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
    use nix::unistd::getuid;
    use std::os::unix::fs::symlink;

    /// The files of the tests are this account's.
    fn is_sshd(proc: &Proc, pid: i32) -> bool {
        let owner = getuid().as_raw();
        assert!(!is_sshd_with_program_of(proc, pid, owner + 1), "{pid}");
        is_sshd_with_program_of(proc, pid, owner)
    }

    /// Without `fs.protected_hardlinks`, each user may link sudo or su to a file of this name.
    #[test]
    fn set_id_program_named_sshd_is_none() {
        let scratch = Scratch::new();
        for (pid, uid, mode, expected) in [
            (11, 0, 0o755, true),
            (12, 0, 0o4755, false),
            (13, 0, 0o2755, false),
            (14, 1001, 0o755, false),
            (15, 0, 0o775, false),
            (16, 0, 0o757, false),
        ] {
            let status = format!("State:\tS (sleeping)\nPPid:\t1\nUid:\t{uid}\t0\t0\t0\n");
            scratch.file(&format!("{pid}/status"), &status);
            let program = scratch.file(&format!("{pid}/sshd"), "");
            scratch.mode(&format!("{pid}/sshd"), mode);
            symlink(program, scratch.path().join(format!("{pid}/exe"))).unwrap();
            let proc = Proc::with_root(scratch.path().to_owned());
            assert_eq!(is_sshd(&proc, pid), expected, "{pid}");
        }
    }

    /// HPN-SSH, or a link of another name before OpenSSH 9.8.
    #[test]
    fn sshd_of_another_name_is_recognized_by_what_it_runs() {
        let scratch = Scratch::new();
        let module = "7f r-xp 0 08:01 7 /usr/lib/security/pam_job_adopt.so\n";
        let replaced = "7f r-xp 0 08:01 7 /usr/lib/security/pam_job_adopt.so (deleted)\n";
        let other = "7f r-xp 0 08:01 7 /usr/lib/security/pam_unix.so\n";
        let listener = "hpnsshd: /usr/sbin/hpnsshd -D [listener] 0 of 10-100 startups";
        // The title that a user gives to a set-ID program, so that root's `check` would run it with these options.
        let evil = "x: y -f /tmp/evil -oUsePAM=no [listener] 0";
        for (pid, uid, mode, title, maps, expected) in [
            (11, 0, 0o755, "hpnsshd: alice [priv]\0\0\0", module, true),
            (12, 0, 0o755, "hpcd: alice [priv]", replaced, true),
            (13, 0, 0o755, "hpnsshd: alice [priv]", other, false),
            (14, 1001, 0o755, "hpnsshd: alice [priv]", module, false),
            // Services of the scheduler may include our lines; their processes are the job.
            (15, 0, 0o755, "su\0-\0alice", module, false),
            (16, 0, 0o755, "sh\0-c\0a: b [priv]", module, false),
            (17, 0, 0o755, listener, other, true),
            (18, 1001, 0o755, listener, other, false),
            (19, 0, 0o755, "vim\0x: [listener]", other, false),
            (20, 0, 0o4755, evil, other, false),
            (21, 0, 0o2755, evil, other, false),
            (22, 0, 0o775, listener, other, false),
            (23, 0, 0o757, listener, other, false),
            (24, 0, 0o4755, "su: alice [priv]", module, false),
        ] {
            let status = format!("State:\tS (sleeping)\nPPid:\t1\nUid:\t{uid}\t0\t0\t0\n");
            scratch.file(&format!("{pid}/status"), &status);
            scratch.file(&format!("{pid}/cmdline"), title);
            scratch.file(&format!("{pid}/maps"), maps);
            let program = scratch.file(&format!("{pid}/hpnsshd"), "");
            scratch.mode(&format!("{pid}/hpnsshd"), mode);
            symlink(program, scratch.path().join(format!("{pid}/exe"))).unwrap();
            let proc = Proc::with_root(scratch.path().to_owned());
            assert_eq!(is_sshd(&proc, pid), expected, "{pid} {title}");
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
