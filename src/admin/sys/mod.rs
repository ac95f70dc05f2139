//! The unsafe blocks that only the command needs, each with its argument for safety. Blocks that the
//! module shares are in [`kernel::sys`].

#![allow(unsafe_code)]

pub(super) mod pam;
pub(super) mod process;
pub(super) mod terminal;

use kernel::sys::bpf::{ProgInfo, fill_info, read_info};
use kernel::sys::checked;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Removes an extended attribute of an open file.
///
/// # Errors
///
/// `ENODATA` if there is none, and the other errors of `fremovexattr(2)`.
pub(crate) fn remove_xattr(fd: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: the name is NUL-terminated.
    checked(unsafe { libc::fremovexattr(fd.as_raw_fd(), name.as_ptr()) }.into()).map(drop)
}

/// Reads the instructions of a program as the verifier left them; `None` if the kernel hides them. To a process without
/// `CAP_BPF` it gives their length as 0 (`bpf_prog_get_info_by_fd` in `kernel/bpf/syscall.c`).
///
/// # Errors
///
/// `EFBIG` for more than `max` bytes, and the errors of `bpf(2)`.
pub(crate) fn read_instructions(
    program: BorrowedFd<'_>,
    max: usize,
) -> io::Result<Option<Vec<u8>>> {
    let length = read_info(program)?.xlated_bytes;
    if length as usize > max {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let mut insns = vec![0_u8; length as usize];
    // A program never changes its length.
    let mut info = ProgInfo::of_xlated_insns(insns.as_mut_ptr(), length);
    // SAFETY: it points to `insns`, which no other code uses, and gives its length.
    unsafe { fill_info(program, &mut info) }?;
    // Hidden instructions have a length but no address.
    let is_shown = info.xlated_insns != 0;
    Ok((is_shown && info.xlated_bytes == length && length > 0).then_some(insns))
}
