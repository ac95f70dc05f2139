//! Unsafe blocks of the command alone, each with its argument for safety. What sshd's module calls
//! stands in [`kernel::sys`].

#![allow(unsafe_code)]

pub(super) mod pam;
pub(super) mod process;

use kernel::sys::bpf::{INFO_LEN, Info, read_info, read_u32};
use kernel::sys::checked;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Removes an extended attribute of an open file.
/// Errors: `ENODATA` when there is none.
pub(crate) fn remove_xattr(fd: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: the name is NUL-terminated.
    checked(unsafe { libc::fremovexattr(fd.as_raw_fd(), name.as_ptr()) }.into()).map(drop)
}

/// Reads the instructions of a program as the verifier left them; `None` where the kernel does not
/// show them.
/// Errors: `EPERM` without `CAP_BPF`, `EFBIG` past `most` bytes.
pub(crate) fn xlated(program: BorrowedFd<'_>, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut info = Info([0; INFO_LEN]);
    // SAFETY: it asks for nothing that would have to be pointed to.
    unsafe { read_info(program, &mut info) }?;
    let length = read_u32(&info.0, 20);
    if length as usize > most {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let mut insns = vec![0_u8; length as usize];
    // A program never changes its length.
    let mut info = Info([0; INFO_LEN]);
    let address = insns.as_mut_ptr() as u64;
    for (offset, bytes) in [(20, &length.to_ne_bytes()[..]), (32, &address.to_ne_bytes()[..])] {
        let field = info.0.get_mut(offset..offset + bytes.len());
        field.into_iter().for_each(|field| field.copy_from_slice(bytes));
    }
    // SAFETY: it points to `insns`, which is ours alone, and as long as it says.
    unsafe { read_info(program, &mut info) }?;
    // Where the kernel hides them they have a length and no address.
    let shown = info.0.get(32..40).is_some_and(|address| address.iter().any(|&byte| byte != 0));
    Ok((shown && read_u32(&info.0, 20) == length && length > 0).then_some(insns))
}
