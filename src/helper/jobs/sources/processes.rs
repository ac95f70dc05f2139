//! Reads when and by which parent processes were started, for the helper and the command.

use std::fs::read_dir;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::str::FromStr;

use nix::unistd::{SysconfVar, sysconf};

use kernel::proc::{Proc, find_field, read};

/// The fields of a process's `stat` that matter here (proc_pid_stat(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process id of its parent.
    pub parent: i32,
    /// Session id: the process id of its session's leader.
    pub session: i32,
    /// Device number of its controlling terminal, 0 for none.
    pub terminal: u32,
    /// When it started, in ticks since boot: with the process id, its identity.
    pub start: u64,
    /// The name that it gave itself.
    pub name: String,
}

/// Lists the names of a directory that are numbers: processes, threads, descriptors. Other names are skipped.
///
/// # Errors
///
/// As `opendir(3)`, and for each entry as `readdir(3)`.
pub fn list_numbers<T: FromStr>(dir: &Path) -> io::Result<impl Iterator<Item = io::Result<T>>> {
    let parse_name = |entry: io::Result<std::fs::DirEntry>| match entry {
        Ok(entry) => entry.file_name().to_str()?.parse().ok().map(Ok),
        Err(error) => Some(Err(error)),
    };
    Ok(read_dir(dir)?.filter_map(parse_name))
}

/// Reads a process's `stat`.
///
/// # Errors
///
/// As `open(2)` and `read(2)`, and [`ErrorKind::InvalidData`] for a malformed text.
pub fn read_stat(proc: &Proc, pid: i32) -> io::Result<Stat> {
    let text = read(proc.dir(pid).join("stat"))?;
    Stat::parse(&text).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Finds when a process started, in seconds since the epoch (proc_stat(5)); `None` if it is gone or hidden.
pub fn start_time(proc: &Proc, pid: i32) -> Option<i64> {
    let ticks = i64::try_from(read_stat(proc, pid).ok()?.start).ok()?;
    let text = read(proc.at.join("stat")).ok()?;
    let booted: i64 = find_field(&text, "btime ")?.parse().ok()?;
    let ticks_per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    booted.checked_add(ticks.checked_div(ticks_per_second)?)
}

impl Stat {
    /// Parses a `stat` text; `None` if it is not as documented. The second field is the name, in parentheses; it may
    /// contain any character.
    fn parse(text: &str) -> Option<Self> {
        let (name, rest) = text.rsplit_once(')')?;
        let (_, name) = name.split_once('(')?;
        // The manual counts fields from 1; after the name comes the third, which is 0 here.
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            // The kernel prints this unsigned number as a signed one.
            terminal: u32::from_ne_bytes(fields.get(4)?.parse::<i32>().ok()?.to_ne_bytes()),
            start: fields.get(19)?.parse().ok()?,
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::sys::clock;

    #[test]
    fn name_with_parentheses_is_one_field() {
        let tail = "S 3 6 5 34817 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 123 0";
        for name in ["imp", "a) b", ") S 1 2 3", "a) b) (c", ""] {
            let expected = Stat {
                parent: 3,
                session: 5,
                terminal: 34817,
                start: 123,
                name: name.to_owned(),
            };
            assert_eq!(
                Stat::parse(&format!("7 ({name}) {tail}")),
                Some(expected),
                "{name}"
            );
        }
        assert_eq!((Stat::parse("7 (a) S 1"), Stat::parse("")), (None, None));
    }

    #[test]
    fn start_time_of_this_process_is_recent() {
        let proc = Proc::host();
        let current = nix::unistd::getpid().as_raw();
        assert_eq!(
            read_stat(&proc, current).unwrap().parent,
            nix::unistd::getppid().as_raw()
        );
        let started = super::start_time(&proc, current).unwrap();
        assert!((0..3600).contains(&(clock::now() - started)), "{started}");
        assert!(read_stat(&proc, -1).is_err());
        assert_eq!(super::start_time(&proc, -1), None);
        let pids = list_numbers::<i32>(Path::new("/proc")).unwrap();
        assert!(pids.flatten().any(|pid| pid == current));
    }
}
