//! What `/proc` tells about processes (proc(5)): the only place that reads it, in fixed lines and
//! in reads with an end.
//!
//! Names of processes and of cgroups stand in these files, and are whatever bytes their users like.
//! Bytes that are no UTF-8 are replaced, so that nobody hides behind such a name.

#![forbid(unsafe_code)]

use std::fs::{File, read_dir};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::errno::Errno;
use nix::unistd::{SysconfVar, sysconf};

/// Most bytes of a file about one process: 65,536 groups in `status`, or the longest path of a
/// cgroup in every hierarchy in `cgroup`.
const FILE_MAX: u64 = 1024 * 1024;
/// Most bytes of a table: all mounts, all sockets, all processes of a cgroup.
const TABLE_MAX: u64 = 64 * 1024 * 1024;

/// The mount of proc(5) through which processes are looked at.
#[derive(Clone, Debug)]
pub struct Proc {
    at: PathBuf,
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

/// What `stat` tells of a process, as far as it matters here (proc_pid_stat(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The number of its parent.
    pub parent: i32,
    /// Device number of its controlling terminal, 0 for none.
    pub terminal: u32,
    /// When it started, in ticks since boot: with the number, its identity.
    pub start: u64,
}

/// Reads a file about one process, up to a mebibyte.
/// Errors: as `open(2)` and `read(2)`: `ENOENT` or `ESRCH` for a process that is gone or hidden;
/// `EFBIG` for a longer file.
pub fn read(path: impl AsRef<Path>) -> io::Result<String> {
    read_at_most(path.as_ref(), FILE_MAX)
}

/// Reads a table of the kernel's, which may be much longer.
/// Errors: as [`read`], past 64 mebibytes.
pub fn read_table(path: impl AsRef<Path>) -> io::Result<String> {
    read_at_most(path.as_ref(), TABLE_MAX)
}

/// Reads a file of no more than so many bytes.
pub fn read_at_most(path: &Path, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Errno::EFBIG.into());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The value of the first line that begins with `name`, which includes what ends the name (`Uid:`).
/// A process's name stands in such files with its line ends escaped.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// The names of a directory that are numbers: processes, threads, descriptors.
/// Errors: as `opendir(3)`, and for each entry as `readdir(3)`.
pub fn numbers<T: FromStr>(dir: &Path) -> io::Result<impl Iterator<Item = io::Result<T>>> {
    let number = |entry: io::Result<std::fs::DirEntry>| match entry {
        Ok(entry) => entry.file_name().to_str()?.parse().ok().map(Ok),
        Err(error) => Some(Err(error)),
    };
    Ok(read_dir(dir)?.filter_map(number))
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

    /// Reads about the calling process, whatever its number is in this mount.
    pub fn own(&self) -> io::Result<Process> {
        let text = read(self.at.join("self/status"))?;
        let own = std::process::id().cast_signed();
        Process::parse(own, &text).ok_or_else(|| ErrorKind::InvalidData.into())
    }

    /// Reads when and from where a process was started.
    pub fn stat(&self, pid: i32) -> io::Result<Stat> {
        let text = read(self.dir(pid).join("stat"))?;
        Stat::parse(&text).ok_or_else(|| ErrorKind::InvalidData.into())
    }

    /// When a process started, in seconds since the epoch (proc_stat(5)); `None` for one that is
    /// gone.
    pub fn started(&self, pid: i32) -> Option<i64> {
        let start = i64::try_from(self.stat(pid).ok()?.start).ok()?;
        let booted = read_table(self.at.join("stat")).ok()?;
        let booted: i64 = field(&booted, "btime ")?.parse().ok()?;
        booted.checked_add(start.checked_div(sysconf(SysconfVar::CLK_TCK).ok()??)?)
    }

    /// The children of a process by the kernel's list, which not every kernel has, and which may
    /// miss one while another ends (proc_pid_task(5)).
    pub fn children(&self, pid: i32) -> Vec<Process> {
        let list = self.dir(pid).join("task").join(pid.to_string()).join("children");
        let text = read_table(list).unwrap_or_default();
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

impl Stat {
    /// The second field is the name, in brackets, and may have any sign in it.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            terminal: u32::from_ne_bytes(fields.get(4)?.parse::<i32>().ok()?.to_ne_bytes()),
            start: fields.get(19)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::clock;
    use crate::trust::tests::Scratch;

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
    fn a_name_is_no_field() {
        let tail = "S 3 7 7 34817 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 123 0";
        let expected = Stat { parent: 3, terminal: 34817, start: 123 };
        for name in ["imp", "a) b", ") S 1 2 3", "a) b) (c", ""] {
            assert_eq!(Stat::parse(&format!("7 ({name}) {tail}")), Some(expected), "{name}");
        }
        assert_eq!((Stat::parse("7 (a) S 1"), Stat::parse("")), (None, None));
    }

    #[test]
    fn this_process_is_there_and_started_a_moment_ago() {
        let (proc, own) = (Proc::here(), std::process::id().cast_signed());
        let process = proc.process(own).unwrap();
        assert!(!process.ended && process.namespaces > 0);
        assert_eq!(proc.own().unwrap(), process);
        assert_eq!(process.parent, nix::unistd::getppid().as_raw());
        assert_eq!(proc.stat(own).unwrap().parent, process.parent);
        let started = proc.started(own).unwrap();
        assert!((0..3600).contains(&(clock::now() - started)), "{started}");
        assert!(proc.process(-1).is_err() && proc.stat(-1).is_err());
        assert_eq!(proc.started(-1), None);
        let pids = numbers::<i32>(Path::new("/proc")).unwrap();
        assert!(pids.flatten().any(|pid| pid == own));
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
