//! The devices that a process has open (proc(5): `/proc/PID/fd`, `/proc/PID/fdinfo`).

use super::super::Error;
use crate::bpf::interpret::Request;
use crate::legible::legible;
use crate::plan::{Access, DeviceType};
use crate::sys;
use nix::errno::Errno;
use std::ffi::CString;
use std::fs;
use std::io;

/// Most descriptors of one process that are looked at.
const MOST: usize = 65_536;

/// The devices of one process.
#[derive(Debug, Default)]
pub(super) struct Holder {
    /// What the process calls itself; it may choose any name.
    pub(super) command: String,
    /// Each device once for each way in which it is open.
    pub(super) open: Vec<Request>,
}

/// What a process has open; nothing where it is gone. A device that it mapped and closed is not
/// seen, nor is what a thread with a table of descriptors of its own has.
///
/// # Errors
/// [`Error::Failed`] where not all can be seen.
pub(super) fn of_process(pid: i32) -> Result<Holder, Error> {
    bounded(pid, MOST)
}

fn bounded(pid: i32, most: usize) -> Result<Holder, Error> {
    let mut holder = Holder::default();
    let dir = format!("/proc/{pid}/fd");
    let failed = |error: io::Error| Error::failed("list", &dir, error);
    let Some(entries) = unless_gone(fs::read_dir(&dir)).map_err(failed)? else {
        return Ok(holder);
    };
    let command = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    holder.command = legible(String::from_utf8_lossy(&command).trim_end_matches('\n'));
    for (count, entry) in entries.enumerate() {
        if count >= most {
            return Err(Error::failed("list", dir, "there are more than are looked at"));
        }
        let Some(entry) = unless_gone(entry).map_err(failed)? else { break };
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(request) = of_descriptor(pid, number)? {
            if !holder.open.contains(&request) {
                holder.open.push(request);
            }
        }
    }
    Ok(holder)
}

/// What the kernel asked when the descriptor was opened; `None` for what is no device, or was only
/// looked up (`O_PATH`).
fn of_descriptor(pid: i32, number: u32) -> Result<Option<Request>, Error> {
    let path = format!("/proc/{pid}/fd/{number}");
    let failed = |error: io::Error| Error::failed("read", &path, error);
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}"));
    let Some(info) = unless_gone(info).map_err(failed)? else { return Ok(None) };
    let Some(access) = field(&info, "flags:").and_then(opened_for) else { return Ok(None) };
    let c_path = CString::new(path.as_str()).map_err(|_| failed(Errno::EINVAL.into()))?;
    let device = match unless_gone(sys::file::device_at(&c_path)) {
        Ok(device) => device.flatten(),
        // As of a user's own file system, which even root may not look into. No device works there.
        Err(_) if field(&info, "mnt_id:").is_some_and(|mount| is_nodev(pid, mount)) => None,
        Err(error) => return Err(failed(error)),
    };
    Ok(device.map(|(format, major, minor)| {
        let kind = if format == libc::S_IFBLK { DeviceType::Block } else { DeviceType::Char };
        Request { kind, major, minor, access }
    }))
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
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

/// Whether devices do not work on this mount of a process.
fn is_nodev(pid: i32, mount: &str) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    text.lines().any(|line| has_nodev(line, mount))
}

/// A line of mountinfo: id, parent, device, root, mount point, options (proc(5)).
fn has_nodev(line: &str, mount: &str) -> bool {
    let mut fields = line.split(' ');
    let found = fields.next() == Some(mount);
    let options = fields.nth(4).unwrap_or_default();
    found && options.split(',').any(|option| option == "nodev")
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
    use std::os::unix::fs::OpenOptionsExt;

    fn own() -> Vec<Request> {
        of_process(nix::unistd::getpid().as_raw()).unwrap().open
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
        let gone = of_process(i32::MAX).unwrap();
        assert!(gone.open.is_empty() && gone.command.is_empty());
    }

    #[test]
    fn too_many_descriptors_are_an_error() {
        let Err(error) = bounded(nix::unistd::getpid().as_raw(), 1) else { panic!() };
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
    fn a_mount_without_devices_is_known_by_its_options() {
        let line = "24 1 0:5 / /home/a/nodev rw,nosuid,nodev shared:1 - fuse.sshfs nodev rw";
        assert!(has_nodev(line, "24"));
        assert!(!has_nodev(line, "2"));
        assert!(!has_nodev(&line.replace("rw,nosuid,nodev", "rw"), "24"));
    }
}
