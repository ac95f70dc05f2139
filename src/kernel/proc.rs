//! Reads processes from `/proc` (proc(5)). It parses fixed lines only, and each read has a limit.
//!
//! These files contain names of processes and of cgroups, in which users may have any bytes. Bytes that are
//! not UTF-8 are replaced, so that such a name hides no process.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::sys::file;

/// Maximum bytes of a file: all mounts, all sockets, or the longest path of a cgroup in every hierarchy.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A mount of proc(5).
#[derive(Clone, Debug)]
pub struct Proc {
    /// Mount point.
    pub at: PathBuf,
}

/// The lines of a process's `status` that matter here (proc_pid_status(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process number.
    pub pid: i32,
    /// Process number of the parent.
    pub parent: i32,
    /// Real, effective, saved and file system uid.
    pub uids: [u32; 4],
    /// The process has ended, and its parent has not reaped it yet.
    pub ended: bool,
    /// Number of pid namespaces in which the process has a number, from the mount's own downwards; 0 if the
    /// kernel has no pid namespaces.
    pub namespaces: usize,
}

/// Reads a file of up to 64 MiB.
///
/// # Errors
///
/// As `open(2)` and `read(2)`: `ENOENT` or `ESRCH` for a process that is gone or hidden; `EFBIG` for a
/// longer file.
pub fn read(path: impl AsRef<Path>) -> io::Result<String> {
    read_at_most(path.as_ref(), FILE_BYTES_MAX)
}

/// Reads a file of at most `bytes_max` bytes.
///
/// # Errors
///
/// As `open(2)` and `read(2)`; `EFBIG` for a longer file.
pub fn read_at_most(path: &Path, bytes_max: u64) -> io::Result<String> {
    let bytes = file::read_to_end(File::open(path)?.into(), bytes_max)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Finds the value of the first line that begins with `name`, which includes the colon (`Uid:`); `None` without such
/// a line. A process's own name cannot forge a line: the kernel escapes line ends in it.
pub fn find_field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

/// Reads a file that is one record, such as `status` and `cgroup` of a process.
///
/// # Errors
///
/// As [`read`].
pub fn read_record(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = file::read_record(File::open(path)?.into(), FILE_BYTES_MAX)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads the login uid (`loginuid`) or the session id (`sessionid`) that the kernel's audit keeps for a process, which
/// is a pid or `self` (proc(5)). `None` if no login has set it, the kernel has no audit, or the process is gone.
pub fn read_audit_number(process: impl Display, file: &str) -> Option<u32> {
    let text = read_record(format!("/proc/{process}/{file}")).ok()?;
    text.trim_end()
        .parse()
        .ok()
        .filter(|&number| number != u32::MAX)
}

/// Counts the threads of this process.
///
/// # Errors
///
/// As [`read_record`]; [`ErrorKind::InvalidData`] for lines that are not as documented.
pub fn count_threads() -> io::Result<u32> {
    let status = read_record("/proc/self/status")?;
    let threads = find_field(&status, "Threads:").and_then(|number| number.parse().ok());
    threads.ok_or_else(|| ErrorKind::InvalidData.into())
}

impl Proc {
    /// The mount at `/proc`.
    pub fn host() -> Self {
        Self::with_root("/proc".into())
    }

    /// The mount, or its imitation in a test, at a directory.
    pub fn with_root(at: PathBuf) -> Self {
        Self { at }
    }

    /// The directory of a process, which may not exist.
    pub fn dir(&self, pid: i32) -> PathBuf {
        self.at.join(pid.to_string())
    }

    /// Reads the status of a process.
    ///
    /// # Errors
    ///
    /// As [`read`]; [`ErrorKind::InvalidData`] for lines that are not as documented.
    pub fn read_process(&self, pid: i32) -> io::Result<Process> {
        let text = read_record(self.dir(pid).join("status"))?;
        Process::parse(pid, &text).ok_or_else(|| ErrorKind::InvalidData.into())
    }

    /// Reads the effective uid of a process by the owner of its directory, which costs a fifth of reading
    /// `status`. For that directory alone the kernel ignores whether the process is dumpable
    /// (`task_dump_owner` in `fs/proc/base.c`).
    ///
    /// # Errors
    ///
    /// As `stat(2)`: `ENOENT` for a process that is gone or hidden.
    pub fn effective_uid(&self, pid: i32) -> io::Result<u32> {
        std::fs::metadata(self.dir(pid)).map(|status| status.uid())
    }

    /// Reads the status of the calling process, whatever its number is in this mount.
    ///
    /// # Errors
    ///
    /// As [`Proc::read_process`].
    pub fn read_current(&self) -> io::Result<Process> {
        let text = read_record(self.at.join("self/status"))?;
        let current = nix::unistd::getpid().as_raw();
        Process::parse(current, &text).ok_or_else(|| ErrorKind::InvalidData.into())
    }

    /// Reads the children in the kernel's list of a process; empty without children, for a process that is gone, and
    /// on a kernel without this list (`CONFIG_PROC_CHILDREN`). The list may miss a child while another ends
    /// (proc_pid_task(5)).
    pub fn children(&self, pid: i32) -> Vec<Process> {
        let list = self
            .dir(pid)
            .join("task")
            .join(pid.to_string())
            .join("children");
        let text = read(list).unwrap_or_default();
        let mut children = Vec::new();
        // A child that has ended is left out, and so is another process that has its number by now.
        for child in text
            .split_ascii_whitespace()
            .filter_map(|number| number.parse().ok())
        {
            children.extend(
                self.read_process(child)
                    .ok()
                    .filter(|child| child.parent == pid),
            );
        }
        children
    }
}

impl Process {
    /// Parses the text of a process's `status`; `None` if the line `Uid:`, `State:` or `PPid:` is missing or not as
    /// documented.
    fn parse(pid: i32, text: &str) -> Option<Self> {
        let mut numbers = find_field(text, "Uid:")?
            .split_ascii_whitespace()
            .map(str::parse);
        let mut uids = [0_u32; 4];
        for uid in &mut uids {
            *uid = numbers.next()?.ok()?;
        }
        let ended = matches!(find_field(text, "State:")?.as_bytes().first()?, b'Z' | b'X');
        let namespaces =
            find_field(text, "NSpid:").map_or(0, |all| all.split_ascii_whitespace().count());
        let parent = find_field(text, "PPid:")?.parse().ok()?;
        Some(Self {
            pid,
            parent,
            uids,
            ended,
            namespaces,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn status_file_is_parsed_and_malformed_one_refused() {
        let text = |state: &str, more: &str| {
            format!(
                "Name:\tx\\nUid:\t0 0 0 0\nState:\t{state}\nPid:\t7\nPPid:\t3\nUid:\t992\t0\t0\t1\n\
                 Gid:\t0\t0\t0\t0\n{more}"
            )
        };
        let uids = [992, 0, 0, 1];
        let running = Process {
            pid: 7,
            parent: 3,
            uids,
            ended: false,
            namespaces: 0,
        };
        assert_eq!(Process::parse(7, &text("S (sleeping)", "")), Some(running));
        let ended = Process {
            ended: true,
            namespaces: 2,
            ..running
        };
        assert_eq!(
            Process::parse(7, &text("Z (zombie)", "NSpid:\t7\t1\n")),
            Some(ended)
        );
        for bad in [
            "",
            "State:\tS\nPPid:\t1\n",
            "State:\tS\nPPid:\t1\nUid:\t1 2 3\n",
        ] {
            assert_eq!(Process::parse(7, bad), None, "{bad:?}");
        }
    }

    #[test]
    fn own_process_is_found() {
        let proc = Proc::host();
        let own = nix::unistd::getpid().as_raw();
        let process = proc.read_process(own).unwrap();
        assert!(!process.ended && process.namespaces > 0);
        assert_eq!(proc.read_current().unwrap(), process);
        assert_eq!(process.parent, nix::unistd::getppid().as_raw());
        assert!(proc.read_process(-1).is_err());
    }

    #[test]
    fn non_utf8_name_hides_no_other_field() {
        let scratch = Scratch::new();
        let path = scratch.path().join("stat");
        std::fs::write(&path, b"7 (a\xff\xc3) S 3").unwrap();
        assert_eq!(read(&path).unwrap(), "7 (a\u{fffd}\u{fffd}) S 3");
        assert!(read(scratch.path().join("gone")).is_err());
    }

    #[test]
    fn longer_file_is_refused() {
        let scratch = Scratch::new();
        let path = scratch.file("file", "12345");
        assert_eq!(read_at_most(&path, 5).unwrap(), "12345");
        let error = read_at_most(&path, 4).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
        assert!(read_at_most(Path::new("/dev/zero"), FILE_BYTES_MAX).is_err());
    }
}
