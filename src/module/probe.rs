//! Which of the node's GPUs a login can open: the kernel is asked, and nothing is opened.
//!
//! Whether a device may be opened is the question that `access(2)` asks as well
//! (`devcgroup_inode_permission` in `include/linux/device_cgroup.h`, by way of
//! `inode_permission`), of the filters of cgroup v2 and of the controller of v1 alike. Root is not
//! kept out by a file's mode, so that in sshd only those say no.

use crate::kernel::failed::Failed;
use crate::kernel::sys::file::open_beneath;
use crate::protocol::{DeviceType, Probe};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat, major, minor};
use nix::unistd::{AccessFlags, faccessat};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// What came of trying devices.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// How many can be opened; `None` where none was tried, or it cannot be told.
    pub(super) open: Option<u32>,
    /// Why it cannot be told.
    pub(super) trouble: Option<Failed>,
}

impl Tried {
    /// Tries these devices.
    pub(super) fn of(probes: &[Probe]) -> Self {
        match count_open(probes) {
            _ if probes.is_empty() => Self::default(),
            Ok(count) => Self { open: Some(count), trouble: None },
            Err(trouble) => Self { open: None, trouble: Some(trouble) },
        }
    }
}

/// How many of these devices the calling process can open, as it is now. One that has no node
/// counts as one that cannot be opened.
///
/// # Errors
/// A node that is another device, is reached through a link or lies on another file system than
/// `/dev`; whatever else keeps the question from being asked.
fn count_open(probes: &[Probe]) -> Result<u32, Failed> {
    let mut count = 0;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let dev =
        open("/dev", flags, Mode::empty()).map_err(|errno| Failed::new("find", "/dev", errno))?;
    for probe in probes {
        count += u32::from(can_open(&dev, probe)?);
    }
    Ok(count)
}

fn can_open(dev: &OwnedFd, probe: &Probe) -> Result<bool, Failed> {
    let path = probe.path.as_str();
    // A driver sees nothing of what is only found.
    let below = Path::new(path.trim_start_matches("/dev/"));
    let node = match open_beneath(dev, below, OFlag::O_PATH) {
        Ok(node) => node,
        Err(Errno::ENOENT) => return Ok(false),
        Err(errno) => return Err(Failed::new("find", path, errno)),
    };
    require_device(&node, probe)?;
    // By the descriptor's own path: AT_EMPTY_PATH would need faccessat2(2), Linux 5.8.
    let by_fd = format!("/proc/self/fd/{}", node.as_raw_fd());
    let both = AccessFlags::R_OK | AccessFlags::W_OK;
    match faccessat(dev, by_fd.as_str(), both, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::EPERM | Errno::EACCES) => Ok(false),
        Err(errno) => Err(Failed::new("probe", path, errno)),
    }
}

fn require_device(node: &OwnedFd, probe: &Probe) -> Result<(), Failed> {
    let path = probe.path.as_str();
    let stat = fstat(node).map_err(|errno| Failed::new("stat", path, errno))?;
    let kind = match probe.device.kind() {
        DeviceType::Char => SFlag::S_IFCHR,
        DeviceType::Block => SFlag::S_IFBLK,
    };
    let same_kind = stat.st_mode & SFlag::S_IFMT.bits() == kind.bits();
    let number = (u64::from(probe.device.major()), probe.device.minor().map(u64::from));
    if same_kind && (major(stat.st_rdev), Some(minor(stat.st_rdev))) == number {
        return Ok(());
    }
    let why = format!("is another device than {}", probe.device);
    Err(Failed::new("probe", path, io::Error::other(why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes(texts: &[&str]) -> Vec<Probe> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    const NULL: &str = "c:1:3:rw /dev/null";
    const MISSING: &str = "c:195:7:rw /dev/job-adopt-none";

    #[test]
    fn what_can_be_opened_is_counted_and_what_is_not_there_is_not() {
        assert_eq!(count_open(&probes(&[MISSING, NULL, "c:1:7:rw /dev/full"])).unwrap(), 2);
        assert_eq!(count_open(&[]).unwrap(), 0);
    }

    #[test]
    fn another_device_at_that_path_is_an_error() {
        for text in ["c:1:5:rw /dev/null", "c:2:3:rw /dev/null", "b:1:3:rw /dev/null"] {
            let error = count_open(&probes(&[NULL, text])).unwrap_err().to_string();
            let device = text.split(' ').next().unwrap();
            assert_eq!(error, format!("probe /dev/null: is another device than {device}"));
        }
    }
}
