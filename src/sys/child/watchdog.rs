//! The watchdog: a process that stays where sshd was while sshd moves.

use super::{Child, RawFdGuard, clone_with, close_from, raise};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// What a watchdog guards: see [`spawn_watchdog`].
#[derive(Debug)]
pub struct WatchdogSpec<'a> {
    /// A `SOCK_SEQPACKET` socket on which the parent tells the path, below `root`, of a leaf that
    /// it has made. Its end is the parent's end.
    pub progress: BorrowedFd<'a>,
    /// `cgroup.procs` of the cgroup that the parent came from, open for writing.
    pub origin: BorrowedFd<'a>,
    /// Directory of the cgroup v2 mount.
    pub root: BorrowedFd<'a>,
    /// Milliseconds after which a silent parent is taken for frozen.
    pub patience_ms: i32,
}

/// How often a parent that stays silent is moved back before the watchdog gives up.
const RELEASES: u32 = 8;

/// Starts a process that stays where the parent is now and looks after the move: a parent that is
/// silent for too long has been frozen with the job and is moved back; of a parent that dies, the
/// leaf that it made is removed, unless others use it by then.
///
/// # Errors
/// `EAGAIN` or `ENOMEM` of `clone(2)`.
pub fn spawn_watchdog(spec: &WatchdogSpec<'_>) -> io::Result<Child> {
    let raised: Vec<RawFdGuard> = [spec.progress, spec.origin, spec.root]
        .into_iter()
        .map(raise)
        .collect::<io::Result<_>>()?;
    let [progress, origin, root] = raised.as_slice() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let fds = [progress.0, origin.0, root.0];
    let mut digits = [0_u8; 12];
    let parent = decimal(nix::unistd::getpid().as_raw(), &mut digits);
    clone_with(|| {
        // SAFETY: we are the only thread of a fresh process and call nothing but the kernel.
        unsafe { watch(fds, parent, spec.patience_ms) };
        0
    })
}

/// # Safety
/// Only in a process that [`clone_with`] has just made.
unsafe fn watch(fds: [RawFd; 3], parent: &[u8], patience_ms: libc::c_int) {
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    // SAFETY: system calls on our own descriptors and stack; nothing allocates.
    unsafe {
        // Only our three descriptors stay open: the parent's own end of the progress pipe among
        // them would hide its death from us.
        if libc::dup2(fds[0], 0) == -1 || libc::dup2(fds[1], 1) == -1 || libc::dup2(fds[2], 2) == -1
        {
            return;
        }
        close_from(3);
        let mut leaf = [0_u8; libc::PATH_MAX as usize];
        let mut released = 0;
        loop {
            let mut poll = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
            match libc::poll(&raw mut poll, 1, patience_ms) {
                0 if released == RELEASES => return,
                0 => {
                    libc::write(1, parent.as_ptr().cast(), parent.len());
                    released += 1;
                    continue;
                }
                -1 => continue,
                _ => {}
            }
            // One byte less than there is room for: the path stays NUL-terminated.
            let length = libc::read(0, leaf.as_mut_ptr().cast(), leaf.len() - 1);
            if length == 0 {
                if leaf[0] != 0 {
                    libc::unlinkat(2, leaf.as_ptr().cast(), libc::AT_REMOVEDIR);
                }
                return;
            }
        }
    }
}

/// `number` in decimal digits at the end of `buffer`, without allocating.
fn decimal(number: i32, buffer: &mut [u8; 12]) -> &[u8] {
    let mut rest = number.unsigned_abs();
    let mut start = buffer.len();
    for (index, digit) in buffer.iter_mut().enumerate().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        start = index;
        if rest == 0 {
            break;
        }
    }
    buffer.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_digits() {
        for number in [0, 7, 10, 4_194_304, i32::MAX] {
            assert_eq!(decimal(number, &mut [0; 12]), number.to_string().as_bytes());
        }
    }
}
