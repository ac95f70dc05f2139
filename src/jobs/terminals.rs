//! Writes messages to the terminals of logins.
//!
//! Users can neither delay a message nor redirect it. A terminal is opened without following links and
//! without becoming the controlling one; it must have the kernel's device number and belong to the user;
//! a write to a full one fails at once.

use facts::process::Process;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, major, minor};
use nix::unistd::write;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

/// Majors of pseudo-terminals (Documentation/admin-guide/devices.txt).
const PTS_MAJORS: std::ops::RangeInclusive<u64> = 136..=143;

/// Opens the controlling terminals of these processes that belong to `uid` and take messages. Only
/// sessions whose leader is among `processes` count: a terminal usually passes to another session only
/// after its leader has ended.
pub(crate) fn open_terminals(uid: u32, processes: &[Process]) -> Vec<OwnedFd> {
    let pids: BTreeSet<i32> = processes.iter().map(|process| process.pid).collect();
    let terminals: BTreeSet<u32> = processes
        .iter()
        .filter(|process| pids.contains(&process.session))
        .map(|process| process.terminal)
        .collect();
    terminals
        .into_iter()
        .filter_map(|terminal| open_terminal(terminal, uid))
        .collect()
}

/// Writes a line to these terminals; returns how many took it. It skips a terminal that would block, and
/// one whose user takes no messages by now.
pub(crate) fn write_to_terminals(uid: u32, terminals: &[OwnedFd], line: &str) -> usize {
    let text = format!("\r\n*** {line} ***\r\n");
    let mut count = 0;
    for terminal in terminals {
        let is_open = fstat(terminal).is_ok_and(|stat| takes_messages(&stat, uid));
        if is_open && write(terminal, text.as_bytes()).is_ok() {
            count += 1;
        }
    }
    count
}

/// Opens a terminal; `None` if it is no pseudo-terminal of the user, or if the user takes no messages
/// there (mesg(1)).
fn open_terminal(tty_nr: u32, uid: u32) -> Option<OwnedFd> {
    let path = terminal_path(tty_nr)?;
    let flags = OFlag::O_WRONLY
        | OFlag::O_NOCTTY
        | OFlag::O_NONBLOCK
        | OFlag::O_NOFOLLOW
        | OFlag::O_CLOEXEC;
    let file = open(path.as_str(), flags, Mode::empty()).ok()?;
    let stat = fstat(&file).ok()?;
    // In another instance of devpts the terminal of the same number belongs to another user.
    let is_users = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFCHR.bits()
        && stat.st_rdev == decode_tty_nr(tty_nr)
        && takes_messages(&stat, uid);
    is_users.then_some(file)
}

/// Whether a terminal belongs to the user and takes messages (mesg(1)).
fn takes_messages(stat: &FileStat, uid: u32) -> bool {
    stat.st_uid == uid && stat.st_mode & Mode::S_IWGRP.bits() != 0
}

/// The path `/dev/pts/N`; `None` for anything but a pseudo-terminal.
fn terminal_path(tty_nr: u32) -> Option<String> {
    let device = decode_tty_nr(tty_nr);
    let first = *PTS_MAJORS.start();
    PTS_MAJORS
        .contains(&major(device))
        .then(|| format!("/dev/pts/{}", (major(device) - first) * 256 + minor(device)))
}

/// Decodes `tty_nr` of `/proc/PID/stat` to a device number. It has the kernel's own packing: the minor in
/// the bits 0 to 7 and 20 to 31, the major in between (`new_encode_dev()` of linux/kdev_t.h).
fn decode_tty_nr(tty_nr: u32) -> u64 {
    let tty_nr = u64::from(tty_nr);
    let minor = (tty_nr & 0xff) | ((tty_nr >> 12) & 0xf_ff00);
    nix::sys::stat::makedev((tty_nr >> 8) & 0xfff, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pseudo_terminals_have_a_path() {
        assert_eq!(terminal_path(136 << 8).as_deref(), Some("/dev/pts/0"));
        assert_eq!(terminal_path((136 << 8) | 7).as_deref(), Some("/dev/pts/7"));
        assert_eq!(
            terminal_path((136 << 8) | (1 << 20) | 2).as_deref(),
            Some("/dev/pts/258")
        );
        assert_eq!(
            terminal_path((137 << 8) | 2).as_deref(),
            Some("/dev/pts/258")
        );
        for other in [0, 4 << 8, (5 << 8) | 1, 144 << 8] {
            assert_eq!(terminal_path(other), None, "{other}");
        }
    }

    #[test]
    fn console_gets_no_message() {
        let process = Process {
            pid: 7,
            session: 7,
            terminal: 4 << 8,
            ..Process::default()
        };
        assert!(open_terminals(u32::MAX, &[process, Process::default()]).is_empty());
    }

    #[test]
    fn terminal_of_other_user_gets_no_message() {
        let file = std::fs::File::options()
            .write(true)
            .open("/dev/null")
            .unwrap();
        assert_eq!(write_to_terminals(u32::MAX, &[file.into()], "x"), 0);
    }
}
