//! Finds out which of the node's GPUs a login can open, without opening any ([`kernel::device`]).

use kernel::OperationError;
use kernel::device::{is_device, require_access};
use kernel::sys::file::open_beneath;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::AccessFlags;
use protocol::{Probe, Variable};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The result of probing devices.
#[derive(Debug, Default)]
pub(super) struct ProbeResult {
    /// The number of devices that can be opened; `None` without probes, and after an error.
    pub(super) openable: Option<u32>,
    /// The variables that name these devices to programs.
    pub(super) variables: Vec<Variable>,
    /// The error that prevented the probes.
    pub(super) error: Option<OperationError>,
}

impl ProbeResult {
    /// Probes which of the devices this process can open. An error at one of them gives no number and no variable, and
    /// neither do no probes: nothing was asked.
    pub(super) fn from_probes(probes: &[Probe]) -> Self {
        if probes.is_empty() {
            return Self::default();
        }
        match filter_openable(probes) {
            Ok(openable) => Self {
                openable: u32::try_from(openable.len()).ok(),
                variables: openable
                    .iter()
                    .filter_map(|probe| probe.variable.clone())
                    .collect(),
                error: None,
            },
            Err(error) => Self {
                error: Some(error),
                ..Self::default()
            },
        }
    }
}

/// Returns the probes whose device the calling process can open now. A device without a node cannot be opened.
///
/// # Errors
///
/// The node of a probe is another device, the path has a link or leaves the file system of `/dev`, or a system call
/// failed for another reason than a denial.
fn filter_openable(probes: &[Probe]) -> Result<Vec<&Probe>, OperationError> {
    let mut openable = Vec::new();
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let dev = open("/dev", flags, Mode::empty())
        .map_err(|errno| OperationError::new("find", "/dev", errno))?;
    for probe in probes {
        if can_open(&dev, probe)? {
            openable.push(probe);
        }
    }
    Ok(openable)
}

/// Returns whether the calling process can open a device for reading and writing.
fn can_open(dev: &OwnedFd, probe: &Probe) -> Result<bool, OperationError> {
    let path = probe.path.as_str();
    // O_PATH finds the node without calling its driver.
    let below = Path::new(path.trim_start_matches("/dev/"));
    let node = match open_beneath(dev, below, OFlag::O_PATH) {
        Ok(node) => node,
        Err(Errno::ENOENT) => return Ok(false),
        Err(errno) => return Err(OperationError::new("find", path, errno)),
    };
    require_device(&node, probe)?;
    match require_access(&node, AccessFlags::R_OK | AccessFlags::W_OK) {
        Ok(()) => Ok(true),
        Err(Errno::EPERM | Errno::EACCES) => Ok(false),
        Err(errno) => Err(OperationError::new("probe", path, errno)),
    }
}

/// Requires that a node is the device of a probe.
fn require_device(node: &OwnedFd, probe: &Probe) -> Result<(), OperationError> {
    let path = probe.path.as_str();
    let device = probe.device;
    let is_same = match device.minor() {
        Some(minor) => is_device(node, device.kind(), (device.major(), minor))
            .map_err(|errno| OperationError::new("stat", path, errno))?,
        // No probe is of all minors.
        None => false,
    };
    if is_same {
        return Ok(());
    }
    let why = format!("is another device than {device}");
    Err(OperationError::new("probe", path, io::Error::other(why)))
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
    fn openable_devices_are_counted_without_missing_ones() {
        let result = ProbeResult::from_probes(&probes(&[MISSING, NULL, "c:1:7:rw /dev/full"]));
        assert_eq!((result.openable, result.variables.len()), (Some(2), 0));
        assert_eq!(ProbeResult::from_probes(&[]).openable, None);
    }

    #[test]
    fn openable_devices_are_listed_in_their_variables() {
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
        let texts = lists.each_ref().map(String::as_str);
        let result = ProbeResult::from_probes(&probes(&texts));
        let mut variables = Variables::default();
        variables.add_gpus(&[], &result.variables);
        let values: Vec<_> = variables.iter().map(ToString::to_string).collect();
        assert_eq!(
            values,
            [
                "CUDA_VISIBLE_DEVICES=GPU-a,GPU-c",
                "ROCR_VISIBLE_DEVICES=0,1,2"
            ]
        );
        assert_eq!(result.openable, Some(5));
    }

    #[test]
    fn other_device_at_the_path_is_an_error() {
        for text in [
            "c:1:5:rw /dev/null",
            "c:2:3:rw /dev/null",
            "b:1:3:rw /dev/null",
        ] {
            let error = filter_openable(&probes(&[NULL, text]))
                .unwrap_err()
                .to_string();
            let device = text.split(' ').next().unwrap();
            assert_eq!(
                error,
                format!("probe /dev/null: is another device than {device}")
            );
        }
    }
}
