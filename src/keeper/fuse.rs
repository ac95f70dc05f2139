//! Finds out whether a user serves a file system (FUSE).
//!
//! Whoever waits for such a file system waits for the user, and can do so in many functions of the kernel: at a page, at
//! a lock that another thread holds. The end of the server ends the wait. So a process of that user which does not die
//! shows no fault of the node.

use kernel::proc::{Proc, Process, find_field, read_at_most};
use kernel::sys::file::read_file_status;
use kernel::sys::nsfs::namespace_owner;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

/// The device by which a server talks to the kernel.
const DEVICE: &str = "/dev/fuse";
/// Its numbers (`FUSE_MINOR` of linux/miscdevice.h).
const DEVICE_NUMBERS: (u32, u32) = (10, 229);
/// A directory for each file system, which belongs to the user who has mounted it (fusectl).
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
const ROOT_UID: u32 = 0;
/// Maximum bytes of a small file.
const FILE_BYTES_MAX: u64 = 4096;

/// The users, other than root, to whom a process belongs: by its uids, and by its user namespace.
fn users_of_process(process: &Process) -> BTreeSet<u32> {
    let mut uids = BTreeSet::from(process.uids);
    uids.extend(namespace_owner(process.pid).ok().flatten());
    uids.remove(&ROOT_UID);
    uids
}

/// Finds those of these processes that may wait for a file system that their own user serves. Those whose users are not
/// known by `end` are among them: how much there is to look at is a user's choice.
pub(crate) fn find_waiting(pids: &[i32], end: Instant) -> BTreeSet<i32> {
    let proc = Proc::host();
    let read_users = |pid| Some((pid, users_of_process(&proc.read_process(pid).ok()?)));
    let users: BTreeMap<i32, BTreeSet<u32>> = pids.iter().copied().filter_map(read_users).collect();
    let serving = find_serving(&users.values().flatten().copied().collect(), end);
    users
        .into_iter()
        .filter(|(_, users)| !users.is_disjoint(&serving))
        .map(|(pid, _)| pid)
        .collect()
}

/// Finds those of these users who have a file system at which a request waits, or a process that serves one. Each user
/// has an equal share of the time until `end`, and is among them if it does not suffice: how many files there are to look
/// at is that user's choice, and costs no other user.
fn find_serving(users: &BTreeSet<u32>, end: Instant) -> BTreeSet<u32> {
    let mut serving = find_awaited(Path::new(CONNECTIONS), users);
    let rest: Vec<u32> = users.difference(&serving).copied().collect();
    if rest.is_empty() {
        return serving;
    }
    let Some(processes) = list_processes_of(users, end) else {
        return users.clone();
    };
    serving.extend(find_servers(&rest, &processes, end));
    serving
}

/// Finds those of these users who have a process that serves a file system, among the `processes` of each, or whose share
/// of the time until `end` does not suffice.
fn find_servers(users: &[u32], processes: &BTreeMap<u32, Vec<i32>>, end: Instant) -> BTreeSet<u32> {
    let inode = fs::metadata(DEVICE).map(|metadata| metadata.ino()).ok();
    let mut serving = BTreeSet::new();
    let mut shares = u32::try_from(users.len()).unwrap_or(u32::MAX);
    for uid in users {
        let now = Instant::now();
        let own_end = now + end.saturating_duration_since(now) / shares;
        shares -= 1;
        let mut pids = processes.get(uid).into_iter().flatten();
        let has_server = pids.any(|pid| has_device(&Proc::host().dir(*pid), inode, own_end));
        if has_server || Instant::now() >= own_end {
            serving.insert(*uid);
        }
    }
    serving
}

/// Lists the processes of each of these users; `None` if that takes longer than until `end`.
fn list_processes_of(users: &BTreeSet<u32>, end: Instant) -> Option<BTreeMap<u32, Vec<i32>>> {
    let proc = Proc::host();
    let mut processes: BTreeMap<u32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir(&proc.at).into_iter().flatten().flatten() {
        if Instant::now() >= end {
            return None;
        }
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(process) = proc.read_process(pid) else {
            continue;
        };
        for uid in users_of_process(&process).intersection(users) {
            processes.entry(*uid).or_default().push(pid);
        }
    }
    Some(processes)
}

/// Finds those of these users who have mounted a file system at which a request waits. A connection stays after its
/// server, without any, until the file system is unmounted.
fn find_awaited(connections: &Path, users: &BTreeSet<u32>) -> BTreeSet<u32> {
    let mounts = fs::read_dir(connections).into_iter().flatten().flatten();
    mounts
        .filter(|entry| {
            let waiting = read_at_most(&entry.path().join("waiting"), FILE_BYTES_MAX);
            waiting.is_ok_and(|count| count.trim_end() != "0")
        })
        .filter_map(|entry| Some(entry.metadata().ok()?.uid()))
        .filter(|uid| users.contains(uid))
        .collect()
}

/// Whether the process with this directory has the device open, as far as is seen until `end`. `inode` is that of the
/// node's own file.
fn has_device(process: &Path, inode: Option<u64>, end: Instant) -> bool {
    let descriptors = fs::read_dir(process.join("fd"));
    let descriptors = descriptors.into_iter().flatten().flatten();
    let mut in_time = descriptors.take_while(|_| Instant::now() < end);
    in_time.any(|entry| {
        let link = entry.path();
        // Only what may be the device is looked at closer, and no file of a server that is down.
        may_be_device(process, &link, inode) && is_device(&link)
    })
}

/// Whether a descriptor may be the device: by its name, or by its inode (Linux 5.14 and later), since the user may have
/// mounted the file elsewhere. Any other file is left alone: it may be on a file server that does not answer.
fn may_be_device(process: &Path, link: &Path, inode: Option<u64>) -> bool {
    let path = fs::read_link(link).unwrap_or_default();
    if path == Path::new(DEVICE) {
        return true;
    }
    let Some(number) = link.file_name() else {
        return false;
    };
    let info = read_at_most(&process.join("fdinfo").join(number), FILE_BYTES_MAX);
    let info = info.unwrap_or_default();
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
    use crate::testing::make_file_with_locks;
    use std::time::Duration;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn only_open_device_makes_a_server() {
        let own = Proc::host().read_current().unwrap();
        let dir = Proc::host().dir(own.pid);
        let inode = fs::metadata(DEVICE).map(|metadata| metadata.ino()).ok();
        assert!(!has_device(&dir, inode, soon()));
        let Ok(device) = fs::File::open(DEVICE) else {
            println!("the device cannot be opened here: skipped");
            return;
        };
        assert!(has_device(&dir, inode, soon()));
        drop(device);
    }

    /// A look at such a file may wait for its server.
    #[test]
    fn file_of_similar_name_is_left_alone() {
        let path = std::env::temp_dir().join(format!("fuse-data-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file).to_string();
        let process = Path::new("/proc/self");
        let may_be = may_be_device(process, &process.join("fd").join(descriptor), None);
        fs::remove_file(&path).unwrap();
        assert!(!may_be);
    }

    #[test]
    fn only_awaited_file_system_counts() {
        let connections = std::env::temp_dir().join(format!("connections-{}", std::process::id()));
        let waiting = connections.join("42").join("waiting");
        fs::create_dir_all(waiting.parent().unwrap()).unwrap();
        let uid = fs::metadata(&connections).unwrap().uid();
        let find = |count, user| {
            fs::write(&waiting, count).unwrap();
            find_awaited(&connections, &BTreeSet::from([user]))
        };
        let found = [find("0\n", uid), find("2\n", uid), find("2\n", uid + 1)];
        fs::remove_dir_all(&connections).unwrap();
        let own = BTreeSet::from([uid]);
        assert_eq!(found, [BTreeSet::new(), own, BTreeSet::new()]);
    }

    #[test]
    fn search_ends_in_time() {
        // No process is this user's.
        let users = BTreeSet::from([u32::MAX - 7]);
        assert_eq!(find_serving(&users, Instant::now()), users);
        assert_eq!(find_serving(&users, soon()), BTreeSet::new());
    }

    #[test]
    fn files_of_one_user_take_no_time_of_another() {
        let file = make_file_with_locks(2000);
        let _copies: Vec<_> = (0..900).map(|_| file.try_clone().unwrap()).collect();
        let own = nix::unistd::getpid().as_raw();
        let busy = 5;
        // No process is this user's.
        let other = u32::MAX - 7;
        let processes = BTreeMap::from([(busy, vec![own])]);
        let end = Instant::now() + Duration::from_secs(1);
        let serving = find_servers(&[busy, other], &processes, end);
        assert_eq!(serving, BTreeSet::from([busy]));
    }

    #[test]
    fn root_serves_nobody() {
        assert_eq!(find_serving(&BTreeSet::new(), soon()), BTreeSet::new());
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
