//! Device programs in the kernel: one, the ones attached to a cgroup, and the names of ours.

use super::{Insn, Result};
use crate::Failed;
use crate::cgroup::Dir;
use crate::sys::bpf as kernel;
use nix::errno::Errno;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How often a load is tried again that a pending signal cut short.
const LOAD_TRIES: usize = 8;
/// A program, kept alive by its descriptor.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    /// What the kernel tells about it.
    pub info: kernel::ProgInfo,
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Program {
    /// Loads instructions of ours under this name.
    /// Errors: `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`; `EINVAL` or `EACCES` when the verifier
    /// refuses.
    pub fn load(name: &str, insns: &[Insn]) -> Result<Self> {
        let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.to_bytes()).collect();
        let mut tries = 0;
        let fd = loop {
            match kernel::prog_load(&bytes, name) {
                Ok(fd) => break fd,
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && tries < LOAD_TRIES => {
                    tries += 1;
                }
                Err(error) => return Err(Failed::new("load device filter", name, error).into()),
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
            Err(error) => Err(Failed::new("open program", id.to_string(), error).into()),
        }
    }

    fn of(fd: OwnedFd, object: &str) -> Result<Self> {
        let info = kernel::prog_info(fd.as_fd())
            .map_err(|error| Failed::new("read program", object, error))?;
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

    /// Whether it is one of ours, by the form of its name.
    pub fn is_ours(&self) -> bool {
        is_ours(&self.info.name)
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

/// How often a level is read anew whose programs vanish meanwhile.
const LEVEL_TRIES: usize = 64;

/// How the programs of one cgroup are attached; one cgroup has one way (`linux/bpf.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// No program here.
    Nothing,
    /// Flags 0: no child may attach anything.
    Exclusive,
    /// `BPF_F_ALLOW_OVERRIDE`: a child's program takes this one's place.
    Override,
    /// `BPF_F_ALLOW_MULTI`: a child's programs come on top.
    Multi,
}

/// The programs of one cgroup.
#[derive(Debug)]
pub struct Level {
    /// How they are attached.
    pub attached: Attached,
    /// The programs, in the kernel's order.
    pub programs: Vec<Program>,
}

impl Level {
    /// Reads one cgroup's own programs.
    /// Errors: as `bpf(2)`; `EAGAIN` for a cgroup whose programs are replaced faster than they are
    /// read.
    pub fn read(dir: &Dir) -> Result<Self> {
        for _ in 0..LEVEL_TRIES {
            let (ids, flags) = kernel::prog_query(dir.as_fd(), 0)
                .map_err(|error| dir.failed("query filters of", "", error))?;
            let programs: Option<Vec<Program>> =
                ids.into_iter().map(Program::by_id).collect::<Result<_>>()?;
            // One that vanished has been replaced: a level read without it would not be this one.
            if let Some(programs) = programs {
                return Ok(Self::of(programs, flags));
            }
        }
        Err(dir.failed("query filters of", "", Errno::EAGAIN).into())
    }

    fn of(programs: Vec<Program>, flags: u32) -> Self {
        let attached = match flags {
            _ if programs.is_empty() => Attached::Nothing,
            kernel::BPF_F_ALLOW_OVERRIDE => Attached::Override,
            flags if flags & kernel::BPF_F_ALLOW_MULTI != 0 => Attached::Multi,
            _ => Attached::Exclusive,
        };
        Self { attached, programs }
    }

    /// Ids of the programs.
    pub fn ids(&self) -> Vec<u32> {
        self.programs.iter().map(Program::id).collect()
    }
}

/// Ids of the programs that run at a cgroup, ancestors' included.
pub fn effective(dir: &Dir) -> Result<Vec<u32>> {
    let found = kernel::prog_query(dir.as_fd(), kernel::BPF_F_QUERY_EFFECTIVE);
    Ok(found.map_err(|error| dir.failed("query filters in force at", "", error))?.0)
}

/// What the names of our programs begin with.
const PREFIX: &str = "ja_";

/// Whether a name is of the form that `program_name` gives.
pub fn is_ours(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|digits| {
        digits.len() == 12 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// The upper 16 bits of the hash are left out: a name has 15 bytes (`BPF_OBJ_NAME_LEN` less NUL).
const LABEL_MASK: u64 = (1 << 48) - 1;

/// A name for a program: `ja_` and 12 hexadecimal digits, the same for the same instructions.
///
/// By this name a login finds the filter that an earlier one attached. The hash is not
/// cryptographic and may differ between builds, which costs one replacement; nobody but root can
/// load a program or write the records that lists come from. Reading the instructions back would
/// not do: where constants are blinded (`net.core.bpf_jit_harden`) they differ at every reading.
pub(super) fn program_name(program: &[Insn]) -> String {
    let mut hasher = DefaultHasher::new();
    program.hash(&mut hasher);
    format!("{PREFIX}{:012x}", hasher.finish() & LABEL_MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_fits_and_follows_the_instructions() {
        let refuse = [Insn::mov64_imm(0, 0), Insn::exit()];
        let allow = [Insn::mov64_imm(0, 1), Insn::exit()];
        let name = program_name(&refuse);
        assert_eq!(name.len(), 15);
        let digits = name.strip_prefix("ja_").unwrap();
        assert!(digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{name}");
        assert_eq!(name, program_name(&refuse));
        assert_ne!(name, program_name(&allow));
        assert!(is_ours(&name));
        for other in ["sd_devices", "ja_", "ja_00000000000g", "ja_0123456789ab0", "xja_0123456789a"]
        {
            assert!(!is_ours(other), "{other}");
        }
    }
}
