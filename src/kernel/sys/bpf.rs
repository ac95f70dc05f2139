//! Wraps the six commands of `bpf(2)` that a device filter needs.
//!
//! Every command passes 128 bytes of `union bpf_attr` in `linux/bpf.h`: its own member, then zeros. That
//! is more than any of the commands need, because kernels 6.17 to 7.1 write eight bytes at offset 56 on a
//! query, whatever size the caller gave.

use std::borrow::Cow;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

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
/// Programs that the buffer of the first query can hold.
const FIRST_IDS: usize = 64;
/// Maximum programs of a query: `BPF_CGROUP_MAX_PROGS` of one cgroup, times the levels of a deep hierarchy.
const IDS_MAX: usize = 64 * 32;

/// Bytes of `union bpf_attr` that the kernel gets.
const ATTR_BYTES: usize = 128;

/// `union bpf_attr`: the member of one command, then zeros.
#[repr(C, align(8))]
struct Attr<T> {
    member: T,
    _zeros: [u8; ATTR_BYTES],
}

/// The member for `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    kind: u32,
    insn_count: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; BPF_OBJ_NAME_LEN],
}

/// The member for `BPF_PROG_ATTACH` and `BPF_PROG_DETACH`.
#[repr(C)]
#[derive(Default)]
struct ProgAttach {
    cgroup: RawFd,
    program: RawFd,
    kind: u32,
    flags: u32,
    replace: RawFd,
}

/// The member for `BPF_PROG_QUERY`.
#[repr(C)]
#[derive(Default)]
struct ProgQuery {
    cgroup: RawFd,
    kind: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    _padding: u32,
}

/// The member for `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
#[derive(Default)]
struct ObjInfo {
    object: RawFd,
    info_bytes: u32,
    info: u64,
}

// The sizes and offsets of linux/bpf.h; no structure has padding that would stay uninitialised.
const _: () = {
    assert!(size_of::<ProgLoad>() == 64 && offset_of!(ProgLoad, name) == 48);
    assert!(size_of::<ProgAttach>() == 20 && offset_of!(ProgAttach, replace) == 16);
    assert!(size_of::<ProgQuery>() == 32 && offset_of!(ProgQuery, count) == 24);
    assert!(size_of::<ObjInfo>() == 16 && offset_of!(ObjInfo, info) == 8);
    assert!(size_of::<ProgInfo>() == 80 && offset_of!(ProgInfo, name) == 64);
    assert!(offset_of!(ProgInfo, xlated_insns) == 32 && offset_of!(ProgInfo, map_count) == 52);
};

impl<T> Attr<T> {
    /// Wraps the member of a command.
    fn new(member: T) -> Self {
        Self {
            member,
            _zeros: [0; ATTR_BYTES],
        }
    }

    /// Runs a command with this attribute.
    ///
    /// # Safety
    ///
    /// The member must be the one of `command`, and every pointer in it valid for what the command does
    /// with it.
    unsafe fn run(&mut self, command: libc::c_int) -> libc::c_long {
        // SAFETY: the attribute is longer than the bytes given, initialised and ours alone; the caller
        // answers for the pointers in it.
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(self), ATTR_BYTES) }
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

/// Loads a device program of eight-byte instructions.
///
/// # Errors
///
/// `EAGAIN` if a signal is pending; `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`; `EINVAL` or `EACCES` if
/// the verifier refuses the program.
pub fn prog_load(insns: &[u8], name: &str) -> io::Result<OwnedFd> {
    let insn_count = u32::try_from(insns.len() / 8).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut load = ProgLoad {
        kind: BPF_PROG_TYPE_CGROUP_DEVICE,
        insn_count,
        insns: insns.as_ptr() as u64,
        license: c"MIT".as_ptr() as u64,
        ..ProgLoad::default()
    };
    // The last byte of the name is its NUL.
    for (to, from) in load
        .name
        .iter_mut()
        .take(BPF_OBJ_NAME_LEN - 1)
        .zip(name.bytes())
    {
        *to = from;
    }
    let mut attr = Attr::new(load);
    // SAFETY: instructions and licence are read only and outlive the call.
    unsafe { attr.run_for_fd(BPF_PROG_LOAD) }
}

/// Attaches a device program to a cgroup directory; in place of the program `replace`, if one is given.
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
    let mut attr = Attr::new(ProgAttach {
        cgroup: cgroup.as_raw_fd(),
        program: program.as_raw_fd(),
        kind: BPF_CGROUP_DEVICE,
        flags,
        replace: 0,
    });
    if let Some(old) = replace {
        attr.member.flags |= BPF_F_REPLACE;
        attr.member.replace = old.as_raw_fd();
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
    let mut attr = Attr::new(ProgAttach {
        cgroup: cgroup.as_raw_fd(),
        program: program.as_raw_fd(),
        kind: BPF_CGROUP_DEVICE,
        ..ProgAttach::default()
    });
    // SAFETY: the command takes no pointers.
    checked(unsafe { attr.run(BPF_PROG_DETACH) }).map(drop)
}

/// Queries the ids of a cgroup directory's device programs and the flags with which they are attached. With
/// [`BPF_F_QUERY_EFFECTIVE`] it returns the ids of the programs that run there, and flags of 0.
///
/// # Errors
///
/// `EPERM` without `CAP_NET_ADMIN`; `EBADF` for a directory outside of cgroup v2.
pub fn prog_query(cgroup: BorrowedFd<'_>, query_flags: u32) -> io::Result<(Vec<u32>, u32)> {
    let mut capacity = FIRST_IDS;
    loop {
        let mut ids = vec![0_u32; capacity];
        let mut attr = Attr::new(ProgQuery {
            cgroup: cgroup.as_raw_fd(),
            kind: BPF_CGROUP_DEVICE,
            query_flags,
            ids: ids.as_mut_ptr() as u64,
            count: u32::try_from(capacity).unwrap_or(0),
            ..ProgQuery::default()
        });
        // SAFETY: the ids are exclusively borrowed and as many as the attribute states; the
        // attribute has space for the kernel's write at offset 56.
        let result = checked(unsafe { attr.run(BPF_PROG_QUERY) });
        let ProgQuery {
            attach_flags,
            count,
            ..
        } = attr.member;
        let count = count as usize;
        match result {
            Ok(_) => {
                ids.truncate(count);
                return Ok((ids, attach_flags));
            }
            // The buffer was too small, and `count` is the number of programs.
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
    let mut attr = Attr::new(id);
    // SAFETY: the command takes no pointers.
    unsafe { attr.run_for_fd(BPF_PROG_GET_FD_BY_ID) }
}

/// The beginning of `struct bpf_prog_info`: the attributes of a loaded program, and where the kernel
/// would write its instructions.
#[repr(C)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgInfo {
    kind: u32,
    /// Id of the program, unique until reboot.
    pub id: u32,
    /// The kernel's digest of the instructions; comparable within one boot only.
    pub tag: [u8; 8],
    jited_bytes: u32,
    xlated_bytes: u32,
    jited_insns: u64,
    xlated_insns: u64,
    load_time: u64,
    created_by_uid: u32,
    /// Number of maps that the instructions refer to; the tag does not cover which.
    pub map_count: u32,
    map_ids: u64,
    name: [u8; BPF_OBJ_NAME_LEN],
}

impl ProgInfo {
    /// The name that was given at load time, at most 15 bytes.
    pub fn name(&self) -> Cow<'_, str> {
        let name = self
            .name
            .split(|&byte| byte == 0)
            .next()
            .unwrap_or_default();
        String::from_utf8_lossy(name)
    }
}

/// Reads the attributes of a loaded program.
///
/// # Errors
///
/// `EPERM` without `CAP_BPF`.
pub fn read_info(program: BorrowedFd<'_>) -> io::Result<ProgInfo> {
    let mut info = ProgInfo::default();
    let mut attr = Attr::new(ObjInfo {
        object: program.as_raw_fd(),
        info_bytes: size_of::<ProgInfo>() as u32,
        info: std::ptr::from_mut(&mut info) as u64,
    });
    // SAFETY: `info` is exclusively borrowed, aligned, and as long as the attribute states. All its own pointers and
    // lengths are 0, so the kernel fills no other memory.
    checked(unsafe { attr.run(BPF_OBJ_GET_INFO_BY_FD) })?;
    Ok(info)
}
