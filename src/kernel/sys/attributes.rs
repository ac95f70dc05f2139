//! Reads and sets what a process inherits from its parent besides descriptors: its cores, memory policy, scheduling,
//! I/O priority and timer slack. All calls but [`get_scheduling_of`] are about the calling thread.

use super::checked;
use std::fmt;
use std::io;

/// Bytes of a mask of cores, for 8,192 cores: more than any kernel is built for (`CONFIG_NR_CPUS`). The kernel cuts
/// a longer mask off, and reports no shorter one.
const CPU_MASK_BYTES: usize = 1024;

/// A set of cores.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CpuMask([u8; CPU_MASK_BYTES]);

impl CpuMask {
    /// Every core that a kernel can have.
    pub const ALL: Self = Self([0xFF; CPU_MASK_BYTES]);

    /// Tells whether a core, by its number, is in the set; `false` for a number past its end.
    fn has(&self, core: usize) -> bool {
        // The kernel has an array of longs, which is one of bytes on little-endian machines only.
        let byte = if cfg!(target_endian = "big") {
            (core / 8) ^ 7
        } else {
            core / 8
        };
        self.0
            .get(byte)
            .is_some_and(|bits| bits >> (core % 8) & 1 == 1)
    }
}

/// Writes the set as the kernel does (`Cpus_allowed_list`, `cpuset.cpus.effective`): `0-3,8`.
impl fmt::Display for CpuMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut core = 0;
        while core < CPU_MASK_BYTES * 8 {
            let first = core;
            while self.has(core) {
                core += 1;
            }
            match core - first {
                0 => {}
                1 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{}", core - 1)?,
            }
            if core > first {
                separator = ",";
            }
            core += 1;
        }
        Ok(())
    }
}

impl fmt::Debug for CpuMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuMask({self})")
    }
}

/// Reads the cores on which this thread may run.
///
/// # Errors
///
/// As `sched_getaffinity(2)`; `EINVAL` for a kernel with more cores than a [`CpuMask`] has.
pub fn get_cpus() -> io::Result<CpuMask> {
    let mut mask = CpuMask([0; CPU_MASK_BYTES]);
    // SAFETY: writes no more bytes than the length given, into memory that is ours.
    checked(unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            0,
            CPU_MASK_BYTES,
            mask.0.as_mut_ptr(),
        )
    })?;
    Ok(mask)
}

/// Sets the cores on which this thread may run. The kernel leaves out those that its cpuset does not have, now and
/// whenever the cpuset changes.
///
/// # Errors
///
/// As `sched_setaffinity(2)`: `EINVAL` if the cpuset has none of these cores.
pub fn set_cpus(mask: &CpuMask) -> io::Result<()> {
    // SAFETY: reads as many bytes as the length given, of memory that is ours.
    checked(unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            0,
            CPU_MASK_BYTES,
            mask.0.as_ptr(),
        )
    })
    .map(drop)
}

/// Longs of a mask of memory nodes, for 4,096 nodes: more than a kernel has (`MAX_NUMNODES`).
const NODE_MASK_LONGS: usize = 64;
/// Bits of such a mask, as the kernel's calls count them.
const NODE_MASK_BITS: libc::c_ulong = NODE_MASK_LONGS as libc::c_ulong * 64;

/// The memory nodes from which a thread takes memory (set_mempolicy(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPolicy {
    mode: libc::c_int,
    nodes: [libc::c_ulong; NODE_MASK_LONGS],
}

impl MemoryPolicy {
    /// `MPOL_DEFAULT`: the nearest node that the cpuset has.
    pub const DEFAULT: Self = Self {
        mode: 0,
        nodes: [0; NODE_MASK_LONGS],
    };
}

/// Reads the memory policy of this thread.
///
/// # Errors
///
/// As `get_mempolicy(2)`: `ENOSYS` for a kernel without NUMA, `EPERM` in some containers.
pub fn get_memory_policy() -> io::Result<MemoryPolicy> {
    let MemoryPolicy {
        mut mode,
        mut nodes,
    } = MemoryPolicy::DEFAULT;
    let mode_out = &raw mut mode;
    let nodes_out = nodes.as_mut_ptr();
    // SAFETY: writes a number and as many bits as the third argument says, into memory that is ours; the address is
    // not used without a flag.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            mode_out,
            nodes_out,
            NODE_MASK_BITS,
            0_usize,
            0_usize,
        )
    };
    checked(result).map(|_| MemoryPolicy { mode, nodes })
}

/// Sets the memory policy of this thread.
///
/// # Errors
///
/// As `set_mempolicy(2)`: `EINVAL` if the cpuset has none of the policy's nodes.
pub fn set_memory_policy(policy: &MemoryPolicy) -> io::Result<()> {
    let nodes = policy.nodes.as_ptr();
    let mode = policy.mode;
    // SAFETY: reads as many bits as the last argument says, of memory that is ours.
    checked(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, nodes, NODE_MASK_BITS) })
        .map(drop)
}

/// Gives this thread the default memory policy. One that cannot be read stays: containers usually deny that, and a
/// kernel without NUMA has none.
///
/// # Errors
///
/// As [`set_memory_policy`].
pub fn reset_memory_policy() -> io::Result<()> {
    match get_memory_policy() {
        Ok(policy) if policy != MemoryPolicy::DEFAULT => set_memory_policy(&MemoryPolicy::DEFAULT),
        _ => Ok(()),
    }
}

/// Reads scheduling class, nice value and real-time priority of this thread.
///
/// # Errors
///
/// As `sched_getattr(2)`.
pub fn get_scheduling() -> io::Result<libc::sched_attr> {
    get_scheduling_of(0)
}

/// Reads the scheduling of the thread with this number, as [`get_scheduling`] does; 0 is the calling one.
///
/// # Errors
///
/// As `sched_getattr(2)`: `ESRCH` for a thread that is gone.
pub fn get_scheduling_of(thread: i32) -> io::Result<libc::sched_attr> {
    // SAFETY: zeroed memory is a sched_attr.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let length = size_of_val(&attributes);
    let flags = 0_usize;
    // SAFETY: writes no more than the length given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            thread,
            &raw mut attributes,
            length,
            flags,
        )
    };
    checked(result).map(|_| attributes)
}

/// Sets scheduling class, nice value and real-time priority of this thread.
///
/// # Errors
///
/// As `sched_setattr(2)`: `EPERM` without the right to raise them.
pub fn set_scheduling(attributes: &libc::sched_attr) -> io::Result<()> {
    let flags = 0_usize;
    // SAFETY: reads a structure that contains its size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            0,
            std::ptr::from_ref(attributes),
            flags,
        )
    };
    checked(result).map(drop)
}

/// `IOPRIO_WHO_PROCESS` (`linux/ioprio.h`): with the number 0, the calling thread.
const IOPRIO_WHO_PROCESS: libc::c_int = 1;

/// Reads the I/O priority of this thread: its class in the bits from 13 on, its level in the lowest three.
///
/// # Errors
///
/// As `ioprio_get(2)`: `ENOSYS` for a kernel without block devices.
pub fn get_io_priority() -> io::Result<libc::c_int> {
    // SAFETY: takes numbers.
    let value = checked(unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) })?;
    libc::c_int::try_from(value).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Sets the I/O priority of this thread; 0 is the default, which follows the nice value.
///
/// # Errors
///
/// As `ioprio_set(2)`: `EPERM` without the right to raise it.
pub fn set_io_priority(value: libc::c_int) -> io::Result<()> {
    // SAFETY: takes numbers.
    checked(unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, value) }).map(drop)
}

/// Reads by how many nanoseconds the kernel may delay a timer of this thread.
///
/// # Errors
///
/// As `prctl(2)`.
pub fn get_timer_slack() -> io::Result<libc::c_ulong> {
    let unused: libc::c_ulong = 0;
    let option = libc::PR_GET_TIMERSLACK;
    // SAFETY: takes numbers. The C library's wrapper would cut the result to 32 bits.
    let value =
        checked(unsafe { libc::syscall(libc::SYS_prctl, option, unused, unused, unused, unused) })?;
    libc::c_ulong::try_from(value).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Sets the timer slack of this thread in nanoseconds, which are not 0: that would stand for the one that it had at
/// its start.
///
/// # Errors
///
/// As `prctl(2)`.
pub fn set_timer_slack(nanoseconds: libc::c_ulong) -> io::Result<()> {
    let unused: libc::c_ulong = 0;
    // SAFETY: takes numbers.
    let result =
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanoseconds, unused, unused, unused) };
    checked(result.into()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the mask of these cores.
    fn mask(cores: &[usize]) -> CpuMask {
        let mut longs = [0_u64; CPU_MASK_BYTES / 8];
        for core in cores {
            longs[core / 64] |= 1 << (core % 64);
        }
        let mut bytes = [0; CPU_MASK_BYTES];
        for (chunk, long) in bytes.chunks_mut(8).zip(longs) {
            chunk.copy_from_slice(&long.to_ne_bytes());
        }
        CpuMask(bytes)
    }

    #[test]
    fn mask_is_written_as_by_the_kernel() {
        for (cores, text) in [
            (&[][..], ""),
            (&[0], "0"),
            (&[8], "8"),
            (&[0, 1], "0-1"),
            (&[0, 2, 3, 4, 64], "0,2-4,64"),
            (&[7, 8, 63, 64, 65, 8191], "7-8,63-65,8191"),
        ] {
            assert_eq!(mask(cores).to_string(), text);
        }
        assert_eq!(CpuMask::ALL.to_string(), "0-8191");
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let list = crate::proc::find_field(&status, "Cpus_allowed_list:").unwrap();
        assert_eq!(get_cpus().unwrap().to_string(), list);
    }

    #[test]
    fn attributes_that_were_read_can_be_set_again() {
        let cpus = get_cpus().unwrap();
        set_cpus(&cpus).unwrap();
        assert_eq!(get_cpus().unwrap(), cpus);
        if let Ok(policy) = get_memory_policy() {
            set_memory_policy(&policy).unwrap();
            assert_eq!(get_memory_policy().unwrap(), policy);
        }
        let scheduling = get_scheduling().unwrap();
        set_scheduling(&scheduling).unwrap();
        assert_eq!(get_scheduling().unwrap(), scheduling);
        let io = get_io_priority().unwrap();
        set_io_priority(io).unwrap();
        assert_eq!(get_io_priority().unwrap(), io);
        let slack = get_timer_slack().unwrap();
        set_timer_slack(slack + 1).unwrap();
        assert_eq!(get_timer_slack().unwrap(), slack + 1);
        set_timer_slack(slack).unwrap();
    }

    #[test]
    fn memory_policy_of_a_node_is_read_with_its_node() {
        if get_memory_policy().is_err() {
            return;
        }
        let mut bound = MemoryPolicy {
            mode: libc::MPOL_BIND,
            ..MemoryPolicy::DEFAULT
        };
        bound.nodes[0] = 1;
        set_memory_policy(&bound).unwrap();
        assert_eq!(get_memory_policy().unwrap(), bound);
        reset_memory_policy().unwrap();
        assert_eq!(get_memory_policy().unwrap(), MemoryPolicy::DEFAULT);
    }
}
