//! The devices that a process has open (proc(5): `/proc/PID/fd`, `/proc/PID/fdinfo`).

use super::super::Error;
use crate::bpf::interpret::Request;
use crate::legible::legible;
use crate::plan::{Access, DeviceType};
use crate::proc::{self, Proc};
use crate::sys;
use crate::sys::process::share_descriptors;
use nix::errno::Errno;
use nix::sys::statfs::statfs;
use nix::sys::statvfs::FsFlags;
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most descriptors of one process that are looked at.
const MOST: usize = 65_536;
/// Most tables of descriptors that the threads of one process have.
const MOST_TABLES: usize = 64;

/// The devices of one process.
#[derive(Debug, Default)]
pub(super) struct Holder {
    /// What the process calls itself; it may choose any name.
    pub(super) command: String,
    /// Each device once for each way in which it is open.
    pub(super) open: Vec<Request>,
    /// How many descriptors were looked at.
    count: usize,
}

/// What a process has open; nothing where it is gone. A device that it mapped and closed is not
/// seen. Of the descriptors that may be looked at in all, `rest` are left, and less afterwards.
///
/// # Errors
/// [`Error::Failed`] where not all can be seen.
pub(super) fn of_process(pid: i32, rest: &mut usize) -> Result<Holder, Error> {
    let mut holder = Holder::default();
    let filled = holder.fill(pid, MOST.min(*rest));
    *rest = rest.saturating_sub(holder.count);
    filled.map(|()| holder)
}

/// One thread for each table of descriptors. Mostly all threads have one in common; but each can
/// make one of its own (`unshare(2)`), and the first thread, whose table `/proc/PID/fd` shows, can
/// have ended before the others.
fn tables(pid: i32) -> Result<Vec<i32>, Error> {
    let dir = Proc::here().dir(pid).join("task");
    let failed = |error: io::Error| Error::failed("list", dir.display(), error);
    let mut tables = Vec::new();
    let Some(threads) = unless_gone(proc::numbers(&dir)).map_err(failed)? else {
        return Ok(tables);
    };
    for thread in threads {
        let Some(thread) = unless_gone(thread).map_err(failed)? else { break };
        // Where it cannot be told they are looked at one by one.
        let same = |other: &i32| share_descriptors(*other, thread).unwrap_or(false);
        if tables.iter().any(same) {
            continue;
        }
        if tables.len() >= MOST_TABLES {
            let cause = "its threads have more tables of descriptors than are looked at";
            return Err(Error::failed("list", dir.display(), cause));
        }
        tables.push(thread);
    }
    Ok(tables)
}

impl Holder {
    fn fill(&mut self, pid: i32, most: usize) -> Result<(), Error> {
        let dir = Proc::here().dir(pid);
        let command = proc::read(dir.join("comm")).unwrap_or_default();
        self.command = legible(command.trim_end_matches('\n'));
        for thread in tables(pid)? {
            self.look(&dir.join("task").join(thread.to_string()), most)?;
        }
        Ok(())
    }

    /// Adds what a thread has open.
    fn look(&mut self, thread: &Path, most: usize) -> Result<(), Error> {
        let dir = thread.join("fd");
        let failed = |error: io::Error| Error::failed("list", dir.display(), error);
        let Some(descriptors) = unless_gone(proc::numbers(&dir)).map_err(failed)? else {
            return Ok(());
        };
        for descriptor in descriptors {
            let Some(descriptor) = unless_gone(descriptor).map_err(failed)? else { break };
            if self.count >= most {
                return Err(Error::failed(
                    "list",
                    dir.display(),
                    "there are more than are looked at",
                ));
            }
            self.count += 1;
            if let Some(request) = of_descriptor(thread, descriptor)? {
                if !self.open.contains(&request) {
                    self.open.push(request);
                }
            }
        }
        Ok(())
    }
}

/// What the kernel asked when the descriptor was opened; `None` for what is no device, or was only
/// looked up (`O_PATH`).
fn of_descriptor(thread: &Path, number: u32) -> Result<Option<Request>, Error> {
    let path = thread.join("fd").join(number.to_string());
    let failed = |error: io::Error| Error::failed("read", path.display(), error);
    let c_path =
        CString::new(path.as_os_str().as_bytes()).map_err(|_| failed(Errno::EINVAL.into()))?;
    let device = match unless_gone(sys::file::device_at(&c_path)) {
        Ok(device) => device.flatten(),
        // As of a user's own file system, which even root may not look into. No device works there.
        Err(_) if is_nodev(&c_path) => None,
        Err(error) => return Err(failed(error)),
    };
    // Of a device alone: what else is open can tell any length of text about itself (a line for
    // each watch of epoll(7) and inotify(7)), and as often as it is open.
    let Some((format, major, minor)) = device else { return Ok(None) };
    let info = thread.join("fdinfo").join(number.to_string());
    let info = unless_gone(proc::read(info)).map_err(failed)?;
    let flags = info.as_deref().and_then(|info| proc::field(info, "flags:"));
    let kind = if format == libc::S_IFBLK { DeviceType::Block } else { DeviceType::Char };
    let request = |access| Request { kind, major, minor, access };
    Ok(flags.and_then(opened_for).map(request))
}

/// By the flags of open(2), in octal; `None` for `O_PATH`. Mode 3 is checked as both.
fn opened_for(flags: &str) -> Option<Access> {
    let flags = libc::c_int::from_str_radix(flags, 8).ok()?;
    match flags & libc::O_ACCMODE {
        _ if flags & libc::O_PATH != 0 => None,
        libc::O_RDONLY => Some(Access::READ),
        libc::O_WRONLY => Some(Access::WRITE),
        _ => Some(Access::RW),
    }
}

/// Whether devices do not work on the mount that a path leads to. A file system that root may not
/// look into is not asked for this.
fn is_nodev(path: &CStr) -> bool {
    statfs(path).is_ok_and(|found| found.flags().contains(FsFlags::ST_NODEV))
}

/// `None` where the process or the descriptor is gone.
fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::OpenOptionsExt;

    fn own() -> Vec<Request> {
        of_process(nix::unistd::getpid().as_raw(), &mut MOST.clone()).unwrap().open
    }

    fn full(access: Access) -> Request {
        Request { kind: DeviceType::Char, major: 1, minor: 7, access }
    }

    #[test]
    fn an_open_device_is_seen_as_it_was_opened() {
        let open =
            |read, write| fs::OpenOptions::new().read(read).write(write).open("/dev/full").unwrap();
        for (read, write, access) in
            [(true, false, Access::READ), (false, true, Access::WRITE), (true, true, Access::RW)]
        {
            let (_one, _other) = (open(read, write), open(read, write));
            assert_eq!(own().iter().filter(|&&one| one == full(access)).count(), 1, "{access}");
        }
        // Nothing else of this process has it open.
        assert!(!own().iter().any(|one| (one.major, one.minor) == (1, 7)));
        let _looked_up =
            fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open("/dev/full").unwrap();
        assert!(!own().iter().any(|one| (one.major, one.minor) == (1, 7)));
    }

    #[test]
    fn a_process_that_is_gone_has_nothing_open() {
        let gone = of_process(i32::MAX, &mut MOST.clone()).unwrap();
        assert!(gone.open.is_empty() && gone.command.is_empty());
    }

    #[test]
    fn too_many_descriptors_are_an_error() {
        let mut rest = 1;
        let Err(error) = of_process(nix::unistd::getpid().as_raw(), &mut rest) else { panic!() };
        assert_eq!(rest, 0);
        assert!(
            error.text().unwrap().ends_with("/fd: there are more than are looked at"),
            "{error:?}"
        );
    }

    #[test]
    fn flags_are_octal() {
        for (flags, access) in [
            ("0100000", Some(Access::READ)),
            ("0100001", Some(Access::WRITE)),
            ("02100002", Some(Access::RW)),
            ("03", Some(Access::RW)),
            ("9", None),
            ("", None),
        ] {
            assert_eq!(opened_for(flags), access, "{flags}");
        }
    }

    #[test]
    fn a_mount_without_devices_is_known_by_its_flags() {
        assert!(!is_nodev(c"/dev/null"));
        assert!(!is_nodev(c"/dev/none"));
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        for line in mounts.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let hidden = mounts.matches(&format!(" {} ", fields[1])).count() > 1;
            if !hidden && fields[3].split(',').any(|option| option == "nodev") {
                let path = CString::new(fields[1]).unwrap();
                assert!(is_nodev(&path), "{line}");
            }
        }
    }
}
