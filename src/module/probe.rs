//! Which of the node's GPUs a login can open: the kernel is asked, and nothing is opened.
//!
//! Whether a device may be opened is the question that `access(2)` asks as well
//! (`devcgroup_inode_permission` in `include/linux/device_cgroup.h`, by way of
//! `inode_permission`), of the filters of cgroup v2 and of the controller of v1 alike. Root is not
//! kept out by a file's mode, so that in sshd only those say no.

use kernel::Failed;
use kernel::sys::file::open_beneath;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat, major, minor};
use nix::unistd::{AccessFlags, faccessat};
use protocol::{DeviceType, Probe, Variable};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// What came of trying devices.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// How many can be opened; `None` where none was tried, or it cannot be told.
    pub(super) open: Option<u32>,
    /// Their names for programs.
    pub(super) gpus: Vec<Variable>,
    /// Why it cannot be told.
    pub(super) trouble: Option<Failed>,
}

impl Tried {
    /// Tries these devices.
    pub(super) fn of(probes: &[Probe]) -> Self {
        match open_ones(probes) {
            _ if probes.is_empty() => Self::default(),
            Ok(open) => Self {
                open: u32::try_from(open.len()).ok(),
                gpus: open.into_iter().filter_map(|probe| probe.variable.clone()).collect(),
                trouble: None,
            },
            Err(trouble) => Self { trouble: Some(trouble), ..Self::default() },
        }
    }
}

/// Those of these devices that the calling process can open, as it is now. One that has no node
/// cannot be opened.
/// Errors: a node that is another device, is reached through a link or lies on another file system
/// than `/dev`; whatever else keeps the question from being asked.
fn open_ones(probes: &[Probe]) -> Result<Vec<&Probe>, Failed> {
    let mut found = Vec::new();
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let dev =
        open("/dev", flags, Mode::empty()).map_err(|errno| Failed::new("find", "/dev", errno))?;
    for probe in probes {
        if can_open(&dev, probe)? {
            found.push(probe);
        }
    }
    Ok(found)
}

fn can_open(dev: &OwnedFd, probe: &Probe) -> Result<bool, Failed> {
    let path = probe.path.as_str();
    // O_PATH finds the node without calling its driver.
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
    use protocol::Variables;

    fn probes(texts: &[&str]) -> Vec<Probe> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    const NULL: &str = "c:1:3:rw /dev/null";
    const MISSING: &str = "c:195:7:rw /dev/job-adopt-none";

    #[test]
    fn what_can_be_opened_is_counted_and_what_is_not_there_is_not() {
        let tried = Tried::of(&probes(&[MISSING, NULL, "c:1:7:rw /dev/full"]));
        assert_eq!((tried.open, tried.gpus.len()), (Some(2), 0));
        assert_eq!(Tried::of(&[]).open, None);
    }

    #[test]
    fn what_can_be_opened_is_listed_under_its_names() {
        let null = |variable| format!("{NULL} {variable}");
        let lists = [
            null("CUDA_VISIBLE_DEVICES=GPU-a"),
            format!("{MISSING} CUDA_VISIBLE_DEVICES=GPU-b"),
            null("ROCR_VISIBLE_DEVICES=0"),
            format!("{MISSING} ROCR_VISIBLE_DEVICES=0"),
            null("CUDA_VISIBLE_DEVICES=GPU-c"),
            null("ROCR_VISIBLE_DEVICES=0"),
            null("ROCR_VISIBLE_DEVICES=0"),
        ];
        let tried = Tried::of(&probes(&lists.each_ref().map(String::as_str)));
        let mut variables = Variables::default();
        tried.gpus.iter().for_each(|gpu| variables.append_gpu(gpu));
        let lists: Vec<_> = variables.iter().map(ToString::to_string).collect();
        assert_eq!(lists, ["CUDA_VISIBLE_DEVICES=GPU-a,GPU-c", "ROCR_VISIBLE_DEVICES=0,1,2"]);
        assert_eq!(tried.open, Some(5));
    }

    #[test]
    fn another_device_at_that_path_is_an_error() {
        for text in ["c:1:5:rw /dev/null", "c:2:3:rw /dev/null", "b:1:3:rw /dev/null"] {
            let error = open_ones(&probes(&[NULL, text])).unwrap_err().to_string();
            let device = text.split(' ').next().unwrap();
            assert_eq!(error, format!("probe /dev/null: is another device than {device}"));
        }
    }
}
