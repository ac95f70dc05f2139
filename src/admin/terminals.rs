//! Writes messages to the terminals of logins.
//!
//! No user can hold a message up, or have it written elsewhere: a terminal is opened without links and
//! does not become this process's own, it must have the device number that the kernel names and belong
//! to the user, and a write to a full one fails at once.

use super::ending::Process;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, major, minor};
use nix::unistd::write;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

/// Majors of pseudo-terminals (Documentation/admin-guide/devices.txt).
const PTS_MAJORS: std::ops::RangeInclusive<u64> = 136..=143;

/// Opens the terminals of the sessions among `processes` that take messages for `uid`, by their numbers
/// in `/proc/PID/stat`. A session counts if its first process is among them too: as a rule a terminal
/// passes to another session only after that process has ended.
pub(super) fn open_terminals(uid: u32, processes: &[Process]) -> Vec<OwnedFd> {
    let pids: BTreeSet<i32> = processes.iter().map(|process| process.pid).collect();
    let own = processes.iter().filter(|process| pids.contains(&process.session));
    let terminals: BTreeSet<u32> = own.map(|process| process.terminal).collect();
    terminals.into_iter().filter_map(|terminal| open_terminal(terminal, uid)).collect()
}

/// Writes a line to these terminals; returns how many took it. It skips a terminal that would block, and
/// one whose user takes no messages by now.
pub(super) fn write_to_terminals(uid: u32, terminals: &[OwnedFd], line: &str) -> usize {
    let text = format!("\r\n*** {line} ***\r\n");
    let takes = |terminal: &&OwnedFd| fstat(terminal).is_ok_and(|stat| takes_messages(&stat, uid));
    let wrote = |terminal: &OwnedFd| write(terminal, text.as_bytes()).ok();
    terminals.iter().filter(takes).filter_map(wrote).count()
}

/// Opens a terminal; `None` if it is no pseudo-terminal of the user, or if the user takes no messages
/// there (mesg(1)).
fn open_terminal(terminal: u32, uid: u32) -> Option<OwnedFd> {
    let path = terminal_path(terminal)?;
    let flags = OFlag::O_WRONLY
        | OFlag::O_NOCTTY
        | OFlag::O_NONBLOCK
        | OFlag::O_NOFOLLOW
        | OFlag::O_CLOEXEC;
    let file = open(path.as_str(), flags, Mode::empty()).ok()?;
    let stat = fstat(&file).ok()?;
    // In another instance of devpts the terminal of the same number belongs to another user.
    let is_users = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFCHR.bits()
        && stat.st_rdev == terminal_device(terminal)
        && takes_messages(&stat, uid);
    is_users.then_some(file)
}

/// Returns whether a terminal belongs to the user and takes messages.
fn takes_messages(stat: &FileStat, uid: u32) -> bool {
    stat.st_uid == uid && stat.st_mode & Mode::S_IWGRP.bits() != 0
}

/// Returns `/dev/pts/N`; `None` for anything but a pseudo-terminal.
fn terminal_path(terminal: u32) -> Option<String> {
    let device = terminal_device(terminal);
    let first = *PTS_MAJORS.start();
    PTS_MAJORS
        .contains(&major(device))
        .then(|| format!("/dev/pts/{}", (major(device) - first) * 256 + minor(device)))
}

/// Decodes the terminal's number in `/proc/PID/stat`, which has the kernel's own packing: the minor in
/// the bits 0 to 7 and 20 to 31, the major in between (`new_encode_dev()` of linux/kdev_t.h).
fn terminal_device(terminal: u32) -> u64 {
    let terminal = u64::from(terminal);
    let minor = (terminal & 0xff) | ((terminal >> 12) & 0xf_ff00);
    nix::sys::stat::makedev((terminal >> 8) & 0xfff, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pseudo_terminals_have_a_path() {
        assert_eq!(terminal_path(136 << 8).as_deref(), Some("/dev/pts/0"));
        assert_eq!(terminal_path((136 << 8) | 7).as_deref(), Some("/dev/pts/7"));
        assert_eq!(terminal_path((136 << 8) | (1 << 20) | 2).as_deref(), Some("/dev/pts/258"));
        assert_eq!(terminal_path((137 << 8) | 2).as_deref(), Some("/dev/pts/258"));
        for other in [0, 4 << 8, (5 << 8) | 1, 144 << 8] {
            assert_eq!(terminal_path(other), None, "{other}");
        }
    }

    #[test]
    fn terminal_of_other_user_gets_no_message() {
        let process = Process { pid: 7, session: 7, terminal: 4 << 8, ..Process::default() };
        assert!(open_terminals(u32::MAX, &[process, Process::default()]).is_empty());
        let file = std::fs::File::options().write(true).open("/dev/null").unwrap();
        assert_eq!(write_to_terminals(u32::MAX, &[file.into()], "x"), 0);
    }
}
