//! Finds the devices that a process has open.

use helper::jobs::sources::processes;
use helper::node::DeviceNode;
use helper::printable;
use kernel::proc::{Proc, find_field};
use kernel::sys::file::{open_beneath, read_file_status};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, major, minor};
use protocol::{DeviceRule, DeviceType};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Instant;

/// Finds the devices that a process has open and that a closed slice would refuse; `None` if its descriptors cannot be
/// listed. The device numbers decide. A device is named by its path if that is one of the node's own `/dev`, and else by
/// its type and numbers: the process may have chosen any other path, also one at which nobody ever answers. After the
/// deadline a device counts as open without a look at how.
pub(super) fn find_refused_devices(
    pid: i32,
    allowed: &[DeviceRule],
    deadline: Instant,
) -> Option<Vec<String>> {
    let dir = Proc::host().dir(pid);
    let links = dir.join("fd");
    let mut names = BTreeSet::new();
    for fd in processes::list_numbers::<u32>(&links).ok()?.flatten() {
        let Some(node) = read_device(&dir, fd) else {
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
        let path = fs::read_link(links.join(fd.to_string())).unwrap_or_default();
        let name = if is_path_of_device(&path, node) {
            printable(&path.to_string_lossy())
        } else {
            format!("{}:{}:{}", node.kind.letter(), node.major, node.minor)
        };
        // Asked last, and once for each device, since the answer may cost much.
        if !names.contains(&name) && (Instant::now() >= deadline || is_opened(&dir, fd)) {
            names.insert(name);
        }
    }
    Some(names.into_iter().collect())
}

/// The node's own device nodes.
const DEV: &str = "/dev";

/// Whether a path leads to this device below the node's own `/dev`, by no symbolic link and into no other mount, such as
/// one of a user in `/dev/shm`.
fn is_path_of_device(path: &Path, node: DeviceNode) -> bool {
    let Ok(below) = path.strip_prefix(DEV) else {
        return false;
    };
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let Ok(dev) = open(DEV, flags | OFlag::O_DIRECTORY, Mode::empty()) else {
        return false;
    };
    let file = open_beneath(dev, below, flags);
    file.is_ok_and(|file| read_node(file.as_fd()) == Some(node))
}

/// Whether a descriptor is open and no mere path (`O_PATH`), by which nothing was opened. The kernel makes the whole
/// text for each reader, with a line for each lock that the process holds on the file: ask only of devices.
fn is_opened(process: &Path, fd: u32) -> bool {
    // The flags are in the second line.
    let mut start = [0; 256];
    let path = process.join("fdinfo").join(fd.to_string());
    let Ok(length) = File::open(path).and_then(|mut file| file.read(&mut start)) else {
        return false;
    };
    let text = String::from_utf8_lossy(start.get(..length).unwrap_or_default());
    let flags = find_field(&text, "flags:").and_then(|flags| i32::from_str_radix(flags, 8).ok());
    flags.is_some_and(|flags| !OFlag::from_bits_truncate(flags).contains(OFlag::O_PATH))
}

/// Reads the device of a descriptor of the process with this directory; `None` if it is no device, or has been closed.
/// It opens no device, and queries no file system, which might hang.
fn read_device(process: &Path, fd: u32) -> Option<DeviceNode> {
    // A link of procfs leads to the open file itself, by no path.
    let link = process.join("fd").join(fd.to_string());
    let file = open(&link, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    read_node(file.as_fd())
}

/// Reads the numbers of a device node; `None` for another file.
fn read_node(file: BorrowedFd<'_>) -> Option<DeviceNode> {
    let status = read_file_status(file).ok()?;
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
    use crate::testing::make_file_with_locks;
    use std::time::Duration;

    fn find(allowed: &[DeviceRule]) -> Vec<String> {
        let deadline = Instant::now() + Duration::from_secs(60);
        find_refused_devices(nix::unistd::getpid().as_raw(), allowed, deadline).unwrap()
    }

    #[test]
    fn device_of_open_descriptor_is_found() {
        let file = std::fs::File::open("/dev/zero").unwrap();
        let zero = "/dev/zero".to_owned();
        assert!(find(&[]).contains(&zero));
        let rule: DeviceRule = "c:1:-1:r".parse().unwrap();
        assert!(!find(&[rule]).contains(&zero));
        drop(file);
    }

    /// The kernel prints each lock of a process for each descriptor of the file.
    #[test]
    fn locks_of_files_cost_nothing() {
        let file = make_file_with_locks(2000);
        let copies: Vec<_> = (0..200).map(|_| file.try_clone().unwrap()).collect();
        let time_search = || {
            let begin = Instant::now();
            find(&[]);
            begin.elapsed()
        };
        // The shortest of some: other programs may take the processors during one.
        let took = (0..3).map(|_| time_search()).min().unwrap();
        assert!(took < Duration::from_millis(500), "{took:?}");
        drop(copies);
    }

    /// A descriptor that was opened as a path opens no device, whatever it was given.
    #[test]
    fn path_descriptor_is_no_open_device() {
        // No other test of this process opens it.
        let find = || find(&[]);
        let path = open("/dev/full", OFlag::O_PATH, Mode::empty()).unwrap();
        assert!(!find().contains(&"/dev/full".to_owned()));
        drop(path);
        let opened = open("/dev/full", OFlag::O_WRONLY, Mode::empty()).unwrap();
        assert!(find().contains(&"/dev/full".to_owned()));
        drop(opened);
    }

    #[test]
    fn device_is_named_by_paths_of_node_alone() {
        let node = |path: &str| {
            let file = open(path, OFlag::O_PATH, Mode::empty()).unwrap();
            read_node(file.as_fd()).unwrap()
        };
        let zero = node("/dev/zero");
        assert!(is_path_of_device(Path::new("/dev/zero"), zero));
        for path in [
            "/dev/null",
            "/dev/../dev/zero",
            "/proc/self/root/dev/zero",
            "/dev/gone",
            "/dev",
            "dev/zero",
            "",
        ] {
            assert!(!is_path_of_device(Path::new(path), zero), "{path}");
        }
        // What is below another mount is not looked at: a user may have made it.
        assert!(!is_path_of_device(
            Path::new("/dev/pts/ptmx"),
            node("/dev/pts/ptmx")
        ));
    }
}
