//! `bpf(2)`: the six commands that a device filter needs.
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

/// A child may replace what this attachment enforces.
pub const BPF_F_ALLOW_OVERRIDE: u32 = 1;
/// Programs of children are added to this attachment.
pub const BPF_F_ALLOW_MULTI: u32 = 2;
/// Replace the named program of the same cgroup; only with [`BPF_F_ALLOW_MULTI`].
pub const BPF_F_REPLACE: u32 = 4;
/// Ask for what runs at a cgroup, ancestors included.
pub const BPF_F_QUERY_EFFECTIVE: u32 = 1;

/// Length of a program name with its NUL, `BPF_OBJ_NAME_LEN`.
const NAME_LEN: usize = 16;
/// Length of `struct bpf_prog_info` up to and including `name`.
pub const INFO_LEN: usize = 80;
/// Most programs that one cgroup takes, `BPF_CGROUP_MAX_PROGS`, times a deep hierarchy.
const IDS_MAX: usize = 64 * 32;

/// `union bpf_attr`.
#[repr(C, align(8))]
struct Attr([u8; 128]);

impl Attr {
    fn new() -> Self {
        Self([0; 128])
    }

    fn bytes(mut self, offset: usize, bytes: &[u8]) -> Self {
        if let Some(field) = self.0.get_mut(offset..offset + bytes.len()) {
            field.copy_from_slice(bytes);
        }
        self
    }

    fn u32(self, offset: usize, value: u32) -> Self {
        self.bytes(offset, &value.to_ne_bytes())
    }

    fn fd(self, offset: usize, fd: BorrowedFd<'_>) -> Self {
        self.bytes(offset, &fd.as_raw_fd().to_ne_bytes())
    }

    fn pointer<T>(self, offset: usize, pointer: *const T) -> Self {
        self.bytes(offset, &(pointer as u64).to_ne_bytes())
    }

    /// # Safety
    /// Every pointer in the attribute must be valid for what `command` does with it.
    unsafe fn call(&mut self, command: libc::c_int) -> libc::c_long {
        // SAFETY: the attribute is 128 bytes, aligned, initialised and ours alone; the caller
        // answers for the pointers in it.
        unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), self.0.len()) }
    }

    /// # Safety
    /// As [`Attr::call`], for a command that returns a new descriptor.
    unsafe fn call_for_fd(&mut self, command: libc::c_int) -> io::Result<OwnedFd> {
        // SAFETY: passed on to the caller.
        let result = unsafe { self.call(command) };
        // SAFETY: such a command, says the caller.
        unsafe { fd_from_syscall(result) }
    }
}

/// The field at this offset; 0 where the kernel knows no such field.
pub fn read_u32(bytes: &[u8], offset: usize) -> u32 {
    let mut field = [0; 4];
    if let Some(found) = bytes.get(offset..offset + 4) {
        field.copy_from_slice(found);
    }
    u32::from_ne_bytes(field)
}

/// Loads a device program of eight-byte instructions.
/// Errors: `EAGAIN` when a signal is pending, `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`,
/// `EINVAL` or `EACCES` when the verifier refuses.
pub fn prog_load(insns: &[u8], name: &str) -> io::Result<OwnedFd> {
    let count = u32::try_from(insns.len() / 8).map_err(|_| io::ErrorKind::InvalidInput)?;
    let kept = name.as_bytes().get(..name.len().min(NAME_LEN - 1)).unwrap_or_default();
    let mut attr = Attr::new()
        .u32(0, BPF_PROG_TYPE_CGROUP_DEVICE)
        .u32(4, count)
        .pointer(8, insns.as_ptr())
        .pointer(16, c"MIT".as_ptr())
        .bytes(48, kept);
    // SAFETY: instructions and licence are read only and outlive the call.
    unsafe { attr.call_for_fd(BPF_PROG_LOAD) }
}

/// Attaches a device program to a cgroup directory; with `replace`, in place of that one.
/// Errors: `EPERM` where an ancestor or the cgroup itself forbids it, `EINVAL` for a program that
/// is attached there already, `E2BIG` past 64 programs, `ENOENT` when `replace` is not attached.
pub fn prog_attach(
    cgroup: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
    flags: u32,
    replace: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut attr =
        Attr::new().fd(0, cgroup).fd(4, program).u32(8, BPF_CGROUP_DEVICE).u32(12, flags);
    if let Some(old) = replace {
        attr = attr.u32(12, flags | BPF_F_REPLACE).fd(16, old);
    }
    // SAFETY: the command takes no pointers.
    checked(unsafe { attr.call(BPF_PROG_ATTACH) }).map(drop)
}

/// Takes a device program off a cgroup directory.
/// Errors: `ENOENT` when it is not attached there.
pub fn prog_detach(cgroup: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = Attr::new().fd(0, cgroup).fd(4, program).u32(8, BPF_CGROUP_DEVICE);
    // SAFETY: the command takes no pointers.
    checked(unsafe { attr.call(BPF_PROG_DETACH) }).map(drop)
}

/// The device programs of a cgroup directory: their ids, and the flags they are attached with.
/// With [`BPF_F_QUERY_EFFECTIVE`] the ids that run there; the flags are then 0.
/// Errors: `EPERM` without `CAP_NET_ADMIN`, `EBADF` for a directory outside cgroup v2.
pub fn prog_query(cgroup: BorrowedFd<'_>, query_flags: u32) -> io::Result<(Vec<u32>, u32)> {
    let mut room = 64;
    loop {
        let mut ids = vec![0_u32; room];
        let mut attr = Attr::new()
            .fd(0, cgroup)
            .u32(4, BPF_CGROUP_DEVICE)
            .u32(8, query_flags)
            .pointer(16, ids.as_mut_ptr())
            .u32(24, u32::try_from(room).unwrap_or(0));
        // SAFETY: the ids are exclusively borrowed and as many as the attribute says; the
        // attribute has room for the kernel's write at offset 56.
        let result = checked(unsafe { attr.call(BPF_PROG_QUERY) });
        let count = read_u32(&attr.0, 24) as usize;
        match result {
            Ok(_) => {
                ids.truncate(count);
                return Ok((ids, read_u32(&attr.0, 12)));
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && room < IDS_MAX => {
                room = count.max(room * 2).min(IDS_MAX);
            }
            Err(error) => return Err(error),
        }
    }
}

/// A descriptor of the program with this id.
/// Errors: `ENOENT` when it is gone, `EPERM` without `CAP_SYS_ADMIN`.
pub fn prog_fd_by_id(id: u32) -> io::Result<OwnedFd> {
    let mut attr = Attr::new().u32(0, id);
    // SAFETY: the command takes no pointers.
    unsafe { attr.call_for_fd(BPF_PROG_GET_FD_BY_ID) }
}

/// What the kernel tells about a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgInfo {
    /// Id of the program, unique until reboot.
    pub id: u32,
    /// The kernel's digest of the instructions; comparable within one boot only.
    pub tag: [u8; 8],
    /// Name given at load time.
    pub name: String,
    /// Number of maps that the instructions refer to; the tag says nothing about which.
    pub maps: u32,
}

/// Reads a program back.
/// Errors: `EPERM` without `CAP_BPF`.
pub fn prog_info(program: BorrowedFd<'_>) -> io::Result<ProgInfo> {
    let mut info = Info([0; INFO_LEN]);
    // SAFETY: it asks for nothing that would have to be pointed to.
    unsafe { read_info(program, &mut info) }?;
    let Info(info) = info;
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

/// The beginning of `struct bpf_prog_info`.
#[repr(C, align(8))]
pub struct Info(pub [u8; INFO_LEN]);

/// Fills it in.
///
/// # Safety
/// What it points to is exclusively borrowed, and as long as it says.
pub unsafe fn read_info(program: BorrowedFd<'_>, info: &mut Info) -> io::Result<()> {
    let mut attr = Attr::new().fd(0, program).u32(4, INFO_LEN as u32).pointer(8, info);
    // SAFETY: `info` is exclusively borrowed, aligned, and as long as the attribute says; the caller
    // answers for what it points to.
    checked(unsafe { attr.call(BPF_OBJ_GET_INFO_BY_FD) }).map(drop)
}
