//! Programs of ours that root runs.

use super::Fault;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open as open_file};
use nix::sys::stat::{Mode, SFlag, fstat, stat};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Opens an executable and looks at what was opened: nobody but root may have put it there. `what` it
/// is stands in the message.
///
/// # Errors
/// [`Fault::Executable`].
pub(super) fn open(what: &'static str, path: &str) -> Result<OwnedFd, Fault> {
    let fault = |why: String| Fault::Executable { what, path: path.to_owned(), why };
    let failed = |errno: Errno| fault(io::Error::from(errno).to_string());
    for folder in Path::new(path).ancestors().skip(1) {
        let stat = stat(folder).map_err(failed)?;
        if stat.st_uid != 0 || stat.st_mode & 0o022 != 0 {
            return Err(fault(format!("{} is writable by others than root", folder.display())));
        }
    }
    let flags = OFlag::O_RDONLY
        | OFlag::O_CLOEXEC
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_NOCTTY;
    let file = open_file(path, flags, Mode::empty()).map_err(failed)?;
    let stat = fstat(&file).map_err(failed)?;
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    let why = match stat.st_mode {
        _ if kind != SFlag::S_IFREG => "is no regular file",
        _ if stat.st_uid != 0 => "does not belong to root",
        mode if mode & 0o022 != 0 => "is writable by others than root",
        mode if mode & 0o6000 != 0 => "is set-user-ID or set-group-ID",
        mode if mode & 0o111 == 0 => "is not executable",
        _ => return Ok(file),
    };
    Err(fault(why.to_owned()))
}
