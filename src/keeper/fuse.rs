//! Finds out whether a user serves a file system (FUSE).
//!
//! Whoever waits for such a file system waits for the user, and can do so in many functions of the kernel: at a page, at
//! a lock that another thread holds. The end of the server ends the wait. So a process of that user which does not die
//! shows no fault of the node.

use kernel::proc::{Proc, Process, find_field, read};
use kernel::sys::file::read_file_status;
use kernel::sys::nsfs::namespace_owner;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The device by which a server talks to the kernel.
const DEVICE: &str = "/dev/fuse";
/// Its numbers (`FUSE_MINOR` of linux/miscdevice.h).
const DEVICE_NUMBERS: (u32, u32) = (10, 229);
/// A directory for each file system, which belongs to the user who has mounted it (fusectl).
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
const ROOT_UID: u32 = 0;

/// The users, other than root, to whom a process belongs: by its uids, and by its user namespace.
pub(crate) fn users_of_process(process: &Process) -> BTreeSet<u32> {
    let mut uids = BTreeSet::from(process.uids);
    uids.extend(namespace_owner(process.pid).ok().flatten());
    uids.remove(&ROOT_UID);
    uids
}

/// Whether one of these users has mounted a file system, or has a process that serves one.
pub(crate) fn is_served_by(users: &BTreeSet<u32>) -> bool {
    if users.is_empty() {
        return false;
    }
    let mut mounts = fs::read_dir(CONNECTIONS).into_iter().flatten().flatten();
    let has_mount = mounts.any(|entry| {
        let owner = entry.metadata().map(|metadata| metadata.uid());
        owner.is_ok_and(|uid| users.contains(&uid))
    });
    has_mount || has_server(users)
}

/// Whether a process of one of these users has the device open.
fn has_server(users: &BTreeSet<u32>) -> bool {
    let inode = fs::metadata(DEVICE).map(|metadata| metadata.ino()).ok();
    let proc = Proc::host();
    fs::read_dir(&proc.at)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| proc.read_process(pid).ok())
        .filter(|process| !users_of_process(process).is_disjoint(users))
        .any(|process| has_device(&proc.dir(process.pid), inode))
}

/// Whether the process with this directory has the device open. `inode` is that of the node's own file.
fn has_device(process: &Path, inode: Option<u64>) -> bool {
    let mut descriptors = fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    descriptors.any(|entry| {
        let link = entry.path();
        // Only what may be the device is looked at closer, and no file of a server that is down.
        may_be_device(process, &link, inode) && is_device(&link)
    })
}

/// Whether a descriptor may be the device: by its name, or by its inode (Linux 5.14 and later), since the user may have
/// mounted the file elsewhere.
fn may_be_device(process: &Path, link: &Path, inode: Option<u64>) -> bool {
    let path = fs::read_link(link).unwrap_or_default();
    if path.to_string_lossy().contains("fuse") {
        return true;
    }
    let Some(number) = link.file_name() else {
        return false;
    };
    let info = read(process.join("fdinfo").join(number)).unwrap_or_default();
    let shown = find_field(&info, "ino:").and_then(|text| text.parse().ok());
    path.is_absolute() && shown.is_some() && shown == inode
}

/// Whether a descriptor is the device. It opens no device, and queries no file system.
fn is_device(link: &Path) -> bool {
    let Ok(file) = open(link, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()) else {
        return false;
    };
    let device = libc::makedev(DEVICE_NUMBERS.0, DEVICE_NUMBERS.1);
    read_file_status(file.as_fd()).is_ok_and(|status| status.device == device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_open_device_makes_a_server() {
        let own = Proc::host().read_current().unwrap();
        let dir = Proc::host().dir(own.pid);
        let inode = fs::metadata(DEVICE).map(|metadata| metadata.ino()).ok();
        assert!(!has_device(&dir, inode));
        let Ok(device) = fs::File::open(DEVICE) else {
            println!("the device cannot be opened here: skipped");
            return;
        };
        assert!(has_device(&dir, inode));
        drop(device);
    }

    #[test]
    fn root_serves_nobody() {
        assert!(!is_served_by(&BTreeSet::new()));
        let init = Process {
            pid: 1,
            parent: 0,
            uids: [0, 5, 0, 6],
            ended: false,
            namespaces: 1,
        };
        assert_eq!(users_of_process(&init), BTreeSet::from([5, 6]));
    }
}
