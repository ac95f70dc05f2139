//! Opens and reads files that an administrator names, which may be anything.

use kernel::sys::file::read_regular;
use nix::fcntl::OFlag;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file of any type for reading, without waiting for the other end of a FIFO.
pub(super) fn open_file(path: &Path) -> io::Result<(File, Metadata)> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    let status = file.metadata()?;
    Ok((file, status))
}

/// Reads an open file of at most that many bytes, if it is a regular one.
pub(super) fn read_if_regular(
    file: File,
    status: &Metadata,
    bytes_max: u64,
) -> io::Result<Vec<u8>> {
    if !status.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    read_regular(file.into(), status.len(), bytes_max)
}
