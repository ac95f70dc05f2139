//! Loads and opens device programs, reads the programs of a cgroup, and names our own programs.

use super::error::Result;
use super::generate::Insn;
use crate::OperationError;
use crate::cgroup::Dir;
use crate::sys::bpf as kernel;
use nix::errno::Errno;
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Tries to load a program again after a pending signal has interrupted the load.
const LOAD_TRIES: usize = 8;

/// A loaded program. Its descriptor keeps it alive.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    /// Attributes of the program.
    pub info: kernel::ProgInfo,
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Program {
    /// Loads instructions under this name.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`; `EINVAL` or `EACCES` if the verifier refuses the
    /// program.
    pub fn load(name: &str, insns: &[Insn]) -> Result<Self> {
        let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.to_bytes()).collect();
        let mut tries = 0;
        let fd = loop {
            match kernel::prog_load(&bytes, name) {
                Ok(fd) => break fd,
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && tries < LOAD_TRIES => {
                    tries += 1;
                }
                Err(error) => {
                    return Err(OperationError::new("load device filter", name, error).into());
                }
            }
        };
        Self::from_fd(fd, name)
    }

    /// Opens the program with this id; `None` if it is gone.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN`.
    pub fn open_by_id(id: u32) -> Result<Option<Self>> {
        match kernel::prog_fd_by_id(id) {
            Ok(fd) => Self::from_fd(fd, &id.to_string()).map(Some),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(OperationError::new("open program", id.to_string(), error).into()),
        }
    }

    /// Reads the attributes of an open program. `object` is for messages.
    fn from_fd(fd: OwnedFd, object: &str) -> Result<Self> {
        let info = kernel::read_info(fd.as_fd())
            .map_err(|error| OperationError::new("read program", object, error))?;
        Ok(Self { fd, info })
    }

    /// The id, which is unique until reboot.
    pub fn id(&self) -> u32 {
        self.info.id
    }

    /// The name that was given at load time, at most 15 bytes.
    pub fn name(&self) -> Cow<'_, str> {
        self.info.name()
    }

    /// Tells whether the program's name has the form of our names.
    pub fn is_ours(&self) -> bool {
        is_ours(&self.name())
    }

    /// Tells whether both programs have the same instructions. A scheduler that attaches anew at every step
    /// loads the same program again under another id.
    ///
    /// The kernel's digest of the loaded instructions is compared. The instructions themselves differ at every
    /// reading if constants are blinded (`net.core.bpf_jit_harden`). The digest does not cover maps, so
    /// programs with maps are the same only if their ids are.
    pub fn is_same_program(&self, other: &Self) -> bool {
        let without_maps = self.info.map_count == 0 && other.info.map_count == 0;
        self.info.id == other.info.id || (without_maps && self.info.tag == other.info.tag)
    }
}

/// Tries to read the programs of a cgroup while others replace them.
const READ_TRIES: usize = 64;

/// The mode in which the programs of a cgroup are attached. A cgroup has one mode (`linux/bpf.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// The cgroup has no program.
    Nothing,
    /// Flags 0: no program can be attached to a child.
    Exclusive,
    /// `BPF_F_ALLOW_OVERRIDE`: a child's program replaces the cgroup's.
    Override,
    /// `BPF_F_ALLOW_MULTI`: a child's programs run besides the cgroup's.
    Multi,
}

/// The programs that are attached to one cgroup.
#[derive(Debug)]
pub struct CgroupPrograms {
    /// Mode in which they are attached.
    pub mode: AttachMode,
    /// The programs, in the kernel's order.
    pub programs: Vec<Program>,
}

impl CgroupPrograms {
    /// Reads one cgroup's own programs.
    ///
    /// # Errors
    ///
    /// As `bpf(2)`; `EAGAIN` for a cgroup whose programs are replaced faster than they are read.
    pub fn read(dir: &Dir) -> Result<Self> {
        for _ in 0..READ_TRIES {
            let (ids, flags) = kernel::prog_query(dir.as_fd(), 0)
                .map_err(|error| dir.failed("query filters of", "", error))?;
            // `None` if one has vanished since: it was replaced, and a list without it would be wrong.
            let programs: Option<Vec<Program>> = ids
                .into_iter()
                .map(Program::open_by_id)
                .collect::<Result<_>>()?;
            if let Some(programs) = programs {
                return Ok(Self::new(programs, flags));
            }
        }
        Err(dir.failed("query filters of", "", Errno::EAGAIN).into())
    }

    /// Derives the mode from the flags with which the kernel says that the programs are attached. Without programs
    /// the flags mean nothing.
    fn new(programs: Vec<Program>, flags: u32) -> Self {
        let mode = if programs.is_empty() {
            AttachMode::Nothing
        } else if flags == kernel::BPF_F_ALLOW_OVERRIDE {
            AttachMode::Override
        } else if flags & kernel::BPF_F_ALLOW_MULTI != 0 {
            AttachMode::Multi
        } else {
            AttachMode::Exclusive
        };
        Self { mode, programs }
    }

    /// The ids of the programs, in the kernel's order.
    pub fn ids(&self) -> Vec<u32> {
        self.programs.iter().map(Program::id).collect()
    }
}

/// Detaches a program from a cgroup.
///
/// # Errors
///
/// `ENOENT` if it is not attached there; else as `bpf(2)`.
pub fn detach(dir: &Dir, program: &Program) -> Result<()> {
    kernel::prog_detach(dir.as_fd(), program.as_fd())
        .map_err(|error| dir.failed("detach filter from", "", error).into())
}

/// Queries the ids of the programs that run at a cgroup, the ancestors' included.
///
/// # Errors
///
/// As `bpf(2)`.
pub fn query_effective(dir: &Dir) -> Result<Vec<u32>> {
    let result = kernel::prog_query(dir.as_fd(), kernel::BPF_F_QUERY_EFFECTIVE);
    Ok(result
        .map_err(|error| dir.failed("query filters in force at", "", error))?
        .0)
}

/// Prefix of our programs' names.
const NAME_PREFIX: &str = "ja_";

/// Tells whether a name has the form that `program_name` gives.
pub fn is_ours(name: &str) -> bool {
    name.strip_prefix(NAME_PREFIX).is_some_and(|digits| {
        digits.len() == 12 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// Bits of the hash in a name, without the upper 16: a name has 15 bytes (`BPF_OBJ_NAME_LEN` less NUL).
const NAME_HASH_MASK: u64 = (1 << 48) - 1;

/// Makes the name for a program: `ja_` and 12 hexadecimal digits, the same for the same instructions.
///
/// By this name a login finds the filter that an earlier login has attached. The hash is not cryptographic
/// and may differ between builds, which costs one replacement. Only root can load a program or write the
/// records that lists come from. The instructions cannot be compared instead: if constants are blinded
/// (`net.core.bpf_jit_harden`), they differ at every reading.
pub(super) fn program_name(program: &[Insn]) -> String {
    let mut hasher = DefaultHasher::new();
    program.hash(&mut hasher);
    format!("{NAME_PREFIX}{:012x}", hasher.finish() & NAME_HASH_MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_fits_and_depends_on_instructions() {
        let refuse = [Insn::mov64_imm(0, 0), Insn::exit()];
        let allow = [Insn::mov64_imm(0, 1), Insn::exit()];
        let name = program_name(&refuse);
        assert_eq!(name.len(), 15);
        let digits = name.strip_prefix("ja_").unwrap();
        assert!(
            digits
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
            "{name}"
        );
        assert_eq!(name, program_name(&refuse));
        assert_ne!(name, program_name(&allow));
        assert!(is_ours(&name));
        for other in [
            "sd_devices",
            "ja_",
            "ja_00000000000g",
            "ja_0123456789ab0",
            "xja_0123456789a",
        ] {
            assert!(!is_ours(other), "{other}");
        }
    }
}
