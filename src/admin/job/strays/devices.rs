//! Finds the devices that a process has open.

use helper::jobs::sources::processes;
use helper::node::{DeviceNode, Tree};
use helper::printable;
use kernel::proc::Proc;
use kernel::sys::file::read_file_status;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, major, minor};
use protocol::{DeviceRule, DeviceType};
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

/// Finds the devices that a process has open and that a closed slice would refuse; `None` if its descriptors cannot be
/// listed. The device numbers decide. A device is named by its path if that leads to the same numbers here, and else
/// by its type and numbers.
pub(super) fn find_refused_devices(pid: i32, allowed: &[DeviceRule]) -> Option<Vec<String>> {
    let dir = Proc::host().dir(pid).join("fd");
    let tree = Tree::host();
    let mut names = BTreeSet::new();
    for link in processes::list_numbers::<u32>(&dir)
        .ok()?
        .flatten()
        .map(|fd| dir.join(fd.to_string()))
    {
        let Some(node) = read_device(&link) else {
            continue;
        };
        // A rule without a minor number is for all of them. Accesses do not matter here.
        let allows = |rule: &DeviceRule| {
            (rule.kind(), rule.major()) == (node.kind, node.major)
                && rule.minor().is_none_or(|minor| minor == node.minor)
        };
        if allowed.iter().any(allows) {
            continue;
        }
        let path = fs::read_link(&link)
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let leads_to_device = tree.read_node(&path) == Ok(node);
        names.insert(if leads_to_device {
            printable(&path)
        } else {
            format!("{}:{}:{}", node.kind.letter(), node.major, node.minor)
        });
    }
    Some(names.into_iter().collect())
}

/// Reads the device of a process's descriptor; `None` if it is no device, or has been closed. It opens no
/// device, and queries no file system, which might hang.
fn read_device(link: &Path) -> Option<DeviceNode> {
    let file = open(link, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    let status = read_file_status(file.as_fd()).ok()?;
    let kind = match SFlag::from_bits_truncate(status.mode) & SFlag::S_IFMT {
        SFlag::S_IFCHR => DeviceType::Char,
        SFlag::S_IFBLK => DeviceType::Block,
        _ => return None,
    };
    let number = |value: u64| u32::try_from(value).ok();
    Some(DeviceNode {
        kind,
        major: number(major(status.device))?,
        minor: number(minor(status.device))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_of_open_descriptor_is_found() {
        let file = std::fs::File::open("/dev/zero").unwrap();
        let pid = nix::unistd::getpid().as_raw();
        let zero = "/dev/zero".to_owned();
        assert!(find_refused_devices(pid, &[]).unwrap().contains(&zero));
        let rule: DeviceRule = "c:1:-1:r".parse().unwrap();
        assert!(!find_refused_devices(pid, &[rule]).unwrap().contains(&zero));
        drop(file);
    }
}
