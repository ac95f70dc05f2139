//! Wraps the six commands of `bpf(2)` that a device filter needs.
//!
//! Every command passes the same zeroed 128-byte attribute, filled by the offsets of
//! `union bpf_attr` in `linux/bpf.h`. It is larger than any of the commands need, because kernels
//! 6.17 to 7.1 write eight bytes at offset 56 on a query, whatever size the caller gave.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::{checked, fd_from_syscall};

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_ATTACH: libc::c_int = 8;
const BPF_PROG_DETACH: libc::c_int = 9;
const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_PROG_QUERY: libc::c_int = 16;

const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;

/// A child's program replaces the programs that are attached with this flag.
pub const BPF_F_ALLOW_OVERRIDE: u32 = 1;
/// A child's programs run besides the programs that are attached with this flag.
pub const BPF_F_ALLOW_MULTI: u32 = 2;
/// Replaces a given program of the same cgroup; only with [`BPF_F_ALLOW_MULTI`].
pub const BPF_F_REPLACE: u32 = 4;
/// Queries the programs that run at a cgroup, the ancestors' included.
pub const BPF_F_QUERY_EFFECTIVE: u32 = 1;

/// Bytes of a program's name with its NUL.
const BPF_OBJ_NAME_LEN: usize = 16;
/// Bytes of `struct bpf_prog_info` up to and including `name`.
pub const INFO_BYTES: usize = 80;
/// Programs that the buffer of the first query can hold.
const FIRST_IDS: usize = 64;
/// Maximum programs of a query: `BPF_CGROUP_MAX_PROGS` of one cgroup, times the levels of a deep hierarchy.
const IDS_MAX: usize = 64 * 32;

/// `union bpf_attr`.
#[repr(C, align(8))]
struct Attr([u8; 128]);

impl Attr {
    fn new() -> Self {
        Self([0; 128])
    }

    fn with_bytes(mut self, offset: usize, bytes: &[u8]) -> Self {
        if let Some(field) = self.0.get_mut(offset..offset + bytes.len()) {
            field.copy_from_slice(bytes);
        }
        self
    }

    fn with_u32(self, offset: usize, value: u32) -> Self {
        self.with_bytes(offset, &value.to_ne_bytes())
    }

    fn with_fd(self, offset: usize, fd: BorrowedFd<'_>) -> Self {
        self.with_bytes(offset, &fd.as_raw_fd().to_ne_bytes())
    }

    fn with_pointer<T>(self, offset: usize, pointer: *const T) -> Self {
        self.with_bytes(offset, &(pointer as u64).to_ne_bytes())
    }

    /// Runs a command with this attribute.
    ///
    /// # Safety
    ///
    /// Every pointer in the attribute must be valid for what `command` does with it.
    unsafe fn run(&mut self, command: libc::c_int) -> libc::c_long {
        // SAFETY: the attribute is 128 bytes, aligned, initialised and ours alone; the caller
        // answers for the pointers in it.
        unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), self.0.len()) }
    }

    /// Runs a command that returns a new descriptor.
    ///
    /// # Errors
    ///
    /// The error of the command.
    ///
    /// # Safety
    ///
    /// As [`Attr::run`], for such a command.
    unsafe fn run_for_fd(&mut self, command: libc::c_int) -> io::Result<OwnedFd> {
        // SAFETY: the caller answers for the pointers.
        let result = unsafe { self.run(command) };
        // SAFETY: the caller answers for the command, which returns a new descriptor.
        unsafe { fd_from_syscall(result) }
    }
}

/// Reads the number at this offset; 0 past the end.
pub fn read_u32(bytes: &[u8], offset: usize) -> u32 {
    let mut number = [0; 4];
    if let Some(field) = bytes.get(offset..offset + 4) {
        number.copy_from_slice(field);
    }
    u32::from_ne_bytes(number)
}

/// Loads a device program of eight-byte instructions.
///
/// # Errors
///
/// `EAGAIN` if a signal is pending; `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`; `EINVAL` or `EACCES` if
/// the verifier refuses the program.
pub fn prog_load(insns: &[u8], name: &str) -> io::Result<OwnedFd> {
    let count = u32::try_from(insns.len() / 8).map_err(|_| io::ErrorKind::InvalidInput)?;
    let name = name.as_bytes().get(..name.len().min(BPF_OBJ_NAME_LEN - 1)).unwrap_or_default();
    let mut attr = Attr::new()
        .with_u32(0, BPF_PROG_TYPE_CGROUP_DEVICE)
        .with_u32(4, count)
        .with_pointer(8, insns.as_ptr())
        .with_pointer(16, c"MIT".as_ptr())
        .with_bytes(48, name);
    // SAFETY: instructions and licence are read only and outlive the call.
    unsafe { attr.run_for_fd(BPF_PROG_LOAD) }
}

/// Attaches a device program to a cgroup directory; it replaces the program `replace`.
///
/// # Errors
///
/// `EPERM` if an ancestor or the cgroup itself forbids it; `EINVAL` for a program that is attached there
/// already; `E2BIG` past 64 programs; `ENOENT` if `replace` is not attached.
pub fn prog_attach(
    cgroup: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
    flags: u32,
    replace: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut attr = Attr::new()
        .with_fd(0, cgroup)
        .with_fd(4, program)
        .with_u32(8, BPF_CGROUP_DEVICE)
        .with_u32(12, flags);
    if let Some(old) = replace {
        attr = attr.with_u32(12, flags | BPF_F_REPLACE).with_fd(16, old);
    }
    // SAFETY: the command takes no pointers.
    checked(unsafe { attr.run(BPF_PROG_ATTACH) }).map(drop)
}

/// Detaches a device program from a cgroup directory.
///
/// # Errors
///
/// `ENOENT` if the program is not attached there.
pub fn prog_detach(cgroup: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr =
        Attr::new().with_fd(0, cgroup).with_fd(4, program).with_u32(8, BPF_CGROUP_DEVICE);
    // SAFETY: the command takes no pointers.
    checked(unsafe { attr.run(BPF_PROG_DETACH) }).map(drop)
}

/// Returns the ids of a cgroup directory's device programs and the flags with which they are attached. With
/// [`BPF_F_QUERY_EFFECTIVE`] it returns the ids of the programs that run there, and flags of 0.
///
/// # Errors
///
/// `EPERM` without `CAP_NET_ADMIN`; `EBADF` for a directory outside of cgroup v2.
pub fn prog_query(cgroup: BorrowedFd<'_>, query_flags: u32) -> io::Result<(Vec<u32>, u32)> {
    let mut capacity = FIRST_IDS;
    loop {
        let mut ids = vec![0_u32; capacity];
        let mut attr = Attr::new()
            .with_fd(0, cgroup)
            .with_u32(4, BPF_CGROUP_DEVICE)
            .with_u32(8, query_flags)
            .with_pointer(16, ids.as_mut_ptr())
            .with_u32(24, u32::try_from(capacity).unwrap_or(0));
        // SAFETY: the ids are exclusively borrowed and as many as the attribute states; the
        // attribute has space for the kernel's write at offset 56.
        let result = checked(unsafe { attr.run(BPF_PROG_QUERY) });
        let count = read_u32(&attr.0, 24) as usize;
        match result {
            Ok(_) => {
                ids.truncate(count);
                return Ok((ids, read_u32(&attr.0, 12)));
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && capacity < IDS_MAX => {
                capacity = count.max(capacity * 2).min(IDS_MAX);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Opens a descriptor of the program with this id.
///
/// # Errors
///
/// `ENOENT` if the program is gone; `EPERM` without `CAP_SYS_ADMIN`.
pub fn prog_fd_by_id(id: u32) -> io::Result<OwnedFd> {
    let mut attr = Attr::new().with_u32(0, id);
    // SAFETY: the command takes no pointers.
    unsafe { attr.run_for_fd(BPF_PROG_GET_FD_BY_ID) }
}

/// The attributes of a loaded program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgInfo {
    /// Id of the program, unique until reboot.
    pub id: u32,
    /// The kernel's digest of the instructions; comparable within one boot only.
    pub tag: [u8; 8],
    /// Name that was given at load time.
    pub name: String,
    /// Number of maps that the instructions refer to; the tag does not cover which.
    pub maps: u32,
}

/// Reads the attributes of a loaded program.
///
/// # Errors
///
/// `EPERM` without `CAP_BPF`.
pub fn prog_info(program: BorrowedFd<'_>) -> io::Result<ProgInfo> {
    let mut info = RawProgInfo([0; INFO_BYTES]);
    // SAFETY: all its pointers and lengths are 0, so the kernel fills no other memory.
    unsafe { read_raw_info(program, &mut info) }?;
    let RawProgInfo(info) = info;
    let mut tag = [0; 8];
    tag.copy_from_slice(info.get(8..16).unwrap_or(&[0; 8]));
    let name = info.get(64..).unwrap_or_default();
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(ProgInfo {
        id: read_u32(&info, 4),
        tag,
        name: String::from_utf8_lossy(name).into_owned(),
        maps: read_u32(&info, 52),
    })
}

/// The bytes of the beginning of `struct bpf_prog_info`.
#[repr(C, align(8))]
pub struct RawProgInfo(pub [u8; INFO_BYTES]);

/// Fills in the attributes of a loaded program.
///
/// # Errors
///
/// `EPERM` without `CAP_BPF`.
///
/// # Safety
///
/// The memory that `info` points to is exclusively borrowed, and as long as `info` states.
pub unsafe fn read_raw_info(program: BorrowedFd<'_>, info: &mut RawProgInfo) -> io::Result<()> {
    let mut attr =
        Attr::new().with_fd(0, program).with_u32(4, INFO_BYTES as u32).with_pointer(8, info);
    // SAFETY: `info` is exclusively borrowed, aligned, and as long as the attribute states; the caller
    // answers for the memory that it points to.
    checked(unsafe { attr.run(BPF_OBJ_GET_INFO_BY_FD) }).map(drop)
}
