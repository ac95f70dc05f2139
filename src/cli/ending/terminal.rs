//! The last words on the terminals of a job's logins.

use super::process::Process;
use crate::plan::JobId;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat, major, minor};
use nix::unistd::write;
use std::collections::BTreeSet;

/// Majors of pseudo-terminals (Documentation/admin-guide/devices.txt).
const PTS_MAJORS: std::ops::RangeInclusive<u64> = 136..=143;

/// Tells the controlling terminals of these processes, as far as they are the user's own; returns
/// how many were told. One that does not take the text at once is left alone.
pub(super) fn tell(job: &JobId, uid: u32, processes: &[Process]) -> usize {
    let terminals: BTreeSet<u32> = processes.iter().map(|process| process.terminal).collect();
    let text = format!("\r\n*** job {job} has ended; closing this login ***\r\n");
    terminals.into_iter().filter(|&terminal| tell_one(terminal, uid, &text)).count()
}

fn tell_one(terminal: u32, uid: u32, text: &str) -> bool {
    let Some(path) = path(terminal) else { return false };
    let flags = OFlag::O_WRONLY
        | OFlag::O_NOCTTY
        | OFlag::O_NONBLOCK
        | OFlag::O_NOFOLLOW
        | OFlag::O_CLOEXEC;
    let Ok(file) = open(path.as_str(), flags, Mode::empty()) else { return false };
    // A terminal of the same number in another instance of devpts is somebody else's.
    let ours = fstat(&file).is_ok_and(|stat| {
        stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFCHR.bits()
            && stat.st_rdev == device(terminal)
            && stat.st_uid == uid
    });
    ours && write(&file, text.as_bytes()).is_ok()
}

/// `/dev/pts/N`; `None` for anything but a pseudo-terminal.
fn path(terminal: u32) -> Option<String> {
    let device = device(terminal);
    let first = *PTS_MAJORS.start();
    PTS_MAJORS
        .contains(&major(device))
        .then(|| format!("/dev/pts/{}", (major(device) - first) * 256 + minor(device)))
}

/// The number in `/proc/PID/stat` has the kernel's own packing: minor in the bits 0 to 7 and 20 to
/// 31, major in between (`new_encode_dev()` of linux/kdev_t.h).
fn device(terminal: u32) -> u64 {
    let terminal = u64::from(terminal);
    let minor = (terminal & 0xff) | ((terminal >> 12) & 0xf_ff00);
    nix::sys::stat::makedev((terminal >> 8) & 0xfff, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pseudo_terminals_have_a_path() {
        assert_eq!(path(136 << 8).as_deref(), Some("/dev/pts/0"));
        assert_eq!(path((136 << 8) | 7).as_deref(), Some("/dev/pts/7"));
        assert_eq!(path((136 << 8) | (1 << 20) | 2).as_deref(), Some("/dev/pts/258"));
        assert_eq!(path((137 << 8) | 2).as_deref(), Some("/dev/pts/258"));
        for other in [0, 4 << 8, (5 << 8) | 1, 144 << 8] {
            assert_eq!(path(other), None, "{other}");
        }
    }

    #[test]
    fn a_terminal_of_somebody_else_is_left_alone() {
        let process = Process { terminal: 4 << 8, ..Process::default() };
        assert_eq!(tell(&"7".parse().unwrap(), u32::MAX, &[process, Process::default()]), 0);
    }
}
