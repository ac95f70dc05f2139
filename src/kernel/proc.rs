//! What `/proc` tells about processes (proc(5)): the only place that reads it, in fixed lines and
//! in reads with an end.
//!
//! Names of processes and of cgroups stand in these files, and are whatever bytes their users like.
//! Bytes that are no UTF-8 are replaced, so that nobody hides behind such a name.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::sys::file::read_to_end;

/// Most bytes of a file: all mounts, all sockets, or the longest path of a cgroup in every hierarchy.
const FILE_MAX: u64 = 64 * 1024 * 1024;

/// The mount of proc(5) through which processes are looked at.
#[derive(Clone, Debug)]
pub struct Proc {
    /// Where it is mounted.
    pub at: PathBuf,
}

/// What `status` tells of a process, as far as it matters here (proc_pid_status(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// That of its parent.
    pub parent: i32,
    /// Real, effective, saved and file system uid.
    pub uids: [u32; 4],
    /// Whether it is over, and only its parent has not heard of that.
    pub ended: bool,
    /// In how many pid namespaces it has a number, from that of the mount downwards; 0 where the
    /// kernel has none.
    pub namespaces: usize,
}

/// Reads a file, up to 64 mebibytes.
/// Errors: as `open(2)` and `read(2)`: `ENOENT` or `ESRCH` for a process that is gone or hidden;
/// `EFBIG` for a longer file.
pub fn read(path: impl AsRef<Path>) -> io::Result<String> {
    read_at_most(path.as_ref(), FILE_MAX)
}

/// Reads a file of no more than so many bytes.
pub fn read_at_most(path: &Path, most: u64) -> io::Result<String> {
    let bytes = read_to_end(File::open(path)?.into(), most)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The value of the first line that begins with `name`, which includes what ends the name (`Uid:`).
/// A process's name stands in such files with its line ends escaped.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

impl Proc {
    /// The node's own.
    pub fn here() -> Self {
        Self::at("/proc".into())
    }

    /// That which is mounted, or laid out, at a directory.
    pub fn at(at: PathBuf) -> Self {
        Self { at }
    }

    /// The directory of a process.
    pub fn dir(&self, pid: i32) -> PathBuf {
        self.at.join(pid.to_string())
    }

    /// Reads about a process.
    /// Errors: as [`read`]; [`ErrorKind::InvalidData`] for lines that are not as documented.
    pub fn process(&self, pid: i32) -> io::Result<Process> {
        let text = read(self.dir(pid).join("status"))?;
        Process::parse(pid, &text).ok_or_else(|| ErrorKind::InvalidData.into())
    }

    /// Returns the effective uid of a process by the owner of its directory, which costs a tenth of reading
    /// `status`. For that directory alone the kernel ignores whether the process is dumpable
    /// (`task_dump_owner` in `fs/proc/base.c`).
    ///
    /// # Errors
    ///
    /// As `stat(2)`: `ENOENT` for a process that is gone or hidden.
    pub fn effective_uid(&self, pid: i32) -> io::Result<u32> {
        std::fs::metadata(self.dir(pid)).map(|status| status.uid())
    }

    /// Reads about the calling process, whatever its number is in this mount.
    pub fn own(&self) -> io::Result<Process> {
        let text = read(self.at.join("self/status"))?;
        let own = nix::unistd::getpid().as_raw();
        Process::parse(own, &text).ok_or_else(|| ErrorKind::InvalidData.into())
    }

    /// The children of a process by the kernel's list, which not every kernel has, and which may
    /// miss one while another ends (proc_pid_task(5)).
    pub fn children(&self, pid: i32) -> Vec<Process> {
        let list = self.dir(pid).join("task").join(pid.to_string()).join("children");
        let text = read(list).unwrap_or_default();
        let pids = text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
        let read = pids.filter_map(|pid| self.process(pid).ok());
        read.filter(|process| process.parent == pid).collect()
    }
}

impl Process {
    fn parse(pid: i32, text: &str) -> Option<Self> {
        let mut numbers = field(text, "Uid:")?.split_ascii_whitespace().map(str::parse);
        let mut uids = [0_u32; 4];
        for uid in &mut uids {
            *uid = numbers.next()?.ok()?;
        }
        let ended = matches!(field(text, "State:")?.as_bytes().first()?, b'Z' | b'X');
        let namespaces =
            field(text, "NSpid:").map_or(0, |all| all.split_ascii_whitespace().count());
        Some(Self { pid, parent: field(text, "PPid:")?.parse().ok()?, uids, ended, namespaces })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn a_status_file() {
        let text = |state: &str, more: &str| {
            format!(
                "Name:\tx\\nUid:\t0 0 0 0\nState:\t{state}\nPid:\t7\nPPid:\t3\nUid:\t992\t0\t0\t1\n\
                 Gid:\t0\t0\t0\t0\n{more}"
            )
        };
        let one = Process { pid: 7, parent: 3, uids: [992, 0, 0, 1], ended: false, namespaces: 0 };
        assert_eq!(Process::parse(7, &text("S (sleeping)", "")), Some(one));
        let ended = Process { ended: true, namespaces: 2, ..one };
        assert_eq!(Process::parse(7, &text("Z (zombie)", "NSpid:\t7\t1\n")), Some(ended));
        for bad in ["", "State:\tS\nPPid:\t1\n", "State:\tS\nPPid:\t1\nUid:\t1 2 3\n"] {
            assert_eq!(Process::parse(7, bad), None, "{bad:?}");
        }
    }

    #[test]
    fn this_process_is_there() {
        let (proc, own) = (Proc::here(), nix::unistd::getpid().as_raw());
        let process = proc.process(own).unwrap();
        assert!(!process.ended && process.namespaces > 0);
        assert_eq!(proc.own().unwrap(), process);
        assert_eq!(process.parent, nix::unistd::getppid().as_raw());
        assert!(proc.process(-1).is_err());
    }

    #[test]
    fn a_name_that_is_no_text_hides_nothing() {
        let scratch = Scratch::new();
        let path = scratch.path().join("stat");
        std::fs::write(&path, b"7 (a\xff\xc3) S 3").unwrap();
        assert_eq!(read(&path).unwrap(), "7 (a\u{fffd}\u{fffd}) S 3");
        assert!(read(scratch.path().join("gone")).is_err());
    }

    #[test]
    fn a_read_has_an_end() {
        let scratch = Scratch::new();
        let path = scratch.file("file", "12345");
        assert_eq!(read_at_most(&path, 5).unwrap(), "12345");
        let error = read_at_most(&path, 4).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
        assert!(read_at_most(Path::new("/dev/zero"), FILE_MAX).is_err());
    }
}
