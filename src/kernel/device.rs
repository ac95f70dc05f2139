//! Asks which accesses to a device the calling process has, without opening the device.
//!
//! `access(2)` asks the filters of cgroup v2 and the devices controller of v1 in the same way as
//! `open(2)` (`devcgroup_inode_permission` in `include/linux/device_cgroup.h`, through
//! `inode_permission`), and calls no driver. A file's mode does not stop root, so for root only these can
//! deny, and then with `EPERM`; a security module denies with `EACCES`.

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::stat::{SFlag, fstat, major, minor};
use nix::unistd::{AccessFlags, faccessat};
use protocol::DeviceType;
use std::os::fd::{AsFd, AsRawFd};

/// Tells whether an open file is the node of a device, whose `numbers` are its major and minor.
///
/// # Errors
///
/// The errors of `fstat(2)`.
pub fn is_device(node: impl AsFd, kind: DeviceType, numbers: (u32, u32)) -> nix::Result<bool> {
    let stat = fstat(node)?;
    let format = match kind {
        DeviceType::Char => SFlag::S_IFCHR,
        DeviceType::Block => SFlag::S_IFBLK,
    };
    let is_same_kind = stat.st_mode & SFlag::S_IFMT.bits() == format.bits();
    let device = (major(stat.st_rdev), minor(stat.st_rdev));
    Ok(is_same_kind && device == (u64::from(numbers.0), u64::from(numbers.1)))
}

/// Requires that the calling process has all these accesses at once to a node that was opened with `O_PATH`.
///
/// # Errors
///
/// `EPERM` if a filter denies it, `EACCES` if something else does.
pub fn require_access(node: impl AsFd, access: AccessFlags) -> nix::Result<()> {
    // Use the descriptor's own path: AT_EMPTY_PATH would need faccessat2(2), Linux 5.8.
    let by_fd = format!("/proc/self/fd/{}", node.as_fd().as_raw_fd());
    faccessat(AT_FDCWD, by_fd.as_str(), access, AtFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn node_is_the_device_with_its_type_and_numbers() {
        let null = File::open("/dev/null").unwrap();
        let is = |kind, numbers| is_device(&null, kind, numbers).unwrap();
        assert!(is(DeviceType::Char, (1, 3)));
        for (kind, numbers) in [
            (DeviceType::Block, (1, 3)),
            (DeviceType::Char, (1, 5)),
            (DeviceType::Char, (2, 3)),
        ] {
            assert!(!is(kind, numbers), "{numbers:?}");
        }
        assert!(!is_device(File::open("/").unwrap(), DeviceType::Char, (0, 0)).unwrap());
    }

    #[test]
    fn access_to_node_is_required() {
        let null = File::open("/dev/null").unwrap();
        require_access(&null, AccessFlags::R_OK | AccessFlags::W_OK).unwrap();
    }
}
