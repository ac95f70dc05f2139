//! A device program in the kernel.

use super::name;
use super::{Error, Insn, Result};
use crate::sys::bpf as kernel;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How often a load is tried again that a pending signal cut short.
const LOAD_TRIES: usize = 8;
/// Size of the verifier's log that is asked for after a refusal.
const LOG_SIZE: usize = 64 * 1024;
/// How much of its end is kept for our log.
const LOG_KEPT: usize = 400;

/// A program, kept alive by its descriptor.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    info: kernel::ProgInfo,
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Program {
    /// Loads instructions of ours under this name.
    /// Errors: [`Error::Verifier`] with the end of the verifier's log; `EPERM` without `CAP_BPF`
    /// and `CAP_NET_ADMIN`.
    pub fn load(name: &str, insns: &[Insn]) -> Result<Self> {
        let bytes = to_bytes(insns);
        let mut tries = 0;
        let fd = loop {
            match kernel::prog_load(&bytes, name, None) {
                Ok(fd) => break fd,
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && tries < LOAD_TRIES => {
                    tries += 1;
                }
                Err(error) => return Err(refused(&bytes, name, error)),
            }
        };
        Self::of(fd, name)
    }

    /// The program with this id; `None` when it is gone.
    /// Errors: `EPERM` without `CAP_SYS_ADMIN`.
    pub fn by_id(id: u32) -> Result<Option<Self>> {
        match kernel::prog_fd_by_id(id) {
            Ok(fd) => Self::of(fd, &id.to_string()).map(Some),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(Error::system("open program", id.to_string(), error)),
        }
    }

    fn of(fd: OwnedFd, object: &str) -> Result<Self> {
        let info = kernel::prog_info(fd.as_fd())
            .map_err(|error| Error::system("read program", object, error))?;
        Ok(Self { fd, info })
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.info.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// The kernel's digest of what was loaded; comparable within one boot only.
    pub fn tag(&self) -> [u8; 8] {
        self.info.tag
    }

    /// Whether it is one of ours, by the form of its name.
    pub fn is_ours(&self) -> bool {
        name::is_ours(&self.info.name)
    }

    /// Whether both do the same: a scheduler that attaches anew at every step loads the same
    /// program again under another id. By the kernel's digest of what was loaded, since the
    /// instructions cannot be compared where constants are blinded (`net.core.bpf_jit_harden`);
    /// the digest leaves maps out, so that programs with maps are the same by id only.
    pub fn same_as(&self, other: &Self) -> bool {
        let without_maps = self.info.maps == 0 && other.info.maps == 0;
        self.info.id == other.info.id || (without_maps && self.info.tag == other.info.tag)
    }
}

fn refused(bytes: &[u8], name: &str, error: std::io::Error) -> Error {
    if error.raw_os_error() == Some(libc::EPERM) {
        return Error::system("load device filter", name, error);
    }
    let mut log = vec![0; LOG_SIZE];
    let _ = kernel::prog_load(bytes, name, Some(&mut log));
    let text: Vec<u8> = log.into_iter().take_while(|&byte| byte != 0).collect();
    let tail = text.get(text.len().saturating_sub(LOG_KEPT)..).unwrap_or_default();
    Error::Verifier { source: error, log: String::from_utf8_lossy(tail).trim().to_owned() }
}

fn to_bytes(insns: &[Insn]) -> Vec<u8> {
    insns.iter().flat_map(|insn| insn.to_bytes()).collect()
}
