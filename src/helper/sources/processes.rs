//! What the helper and the command read about processes besides: when and from where they started.

use std::fs::read_dir;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::str::FromStr;

use nix::unistd::{SysconfVar, sysconf};

use kernel::proc::{Proc, field, read};

/// What `stat` tells of a process, as far as it matters here (proc_pid_stat(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The number of its parent.
    pub parent: i32,
    /// Device number of its controlling terminal, 0 for none.
    pub terminal: u32,
    /// When it started, in ticks since boot: with the number, its identity.
    pub start: u64,
    /// What it calls itself.
    pub name: String,
}

/// The names of a directory that are numbers: processes, threads, descriptors.
/// Fails: as `opendir(3)`, and for each entry as `readdir(3)`.
pub fn numbers<T: FromStr>(dir: &Path) -> io::Result<impl Iterator<Item = io::Result<T>>> {
    let number = |entry: io::Result<std::fs::DirEntry>| match entry {
        Ok(entry) => entry.file_name().to_str()?.parse().ok().map(Ok),
        Err(error) => Some(Err(error)),
    };
    Ok(read_dir(dir)?.filter_map(number))
}

/// Reads when and from where a process was started.
pub fn stat(proc: &Proc, pid: i32) -> io::Result<Stat> {
    let text = read(proc.dir(pid).join("stat"))?;
    Stat::parse(&text).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// When a process started, in seconds since the epoch (proc_stat(5)); `None` for one that is
/// gone.
pub fn started(proc: &Proc, pid: i32) -> Option<i64> {
    let start = i64::try_from(stat(proc, pid).ok()?.start).ok()?;
    let booted = read(proc.at.join("stat")).ok()?;
    let booted: i64 = field(&booted, "btime ")?.parse().ok()?;
    booted.checked_add(start.checked_div(sysconf(SysconfVar::CLK_TCK).ok()??)?)
}

impl Stat {
    /// The second field is the name, in brackets, and may have any sign in it.
    fn parse(text: &str) -> Option<Self> {
        let (name, rest) = text.rsplit_once(')')?;
        let (_, name) = name.split_once('(')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
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
    fn a_name_is_no_field() {
        let tail = "S 3 7 7 34817 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 123 0";
        for name in ["imp", "a) b", ") S 1 2 3", "a) b) (c", ""] {
            let expected = Stat { parent: 3, terminal: 34817, start: 123, name: name.to_owned() };
            assert_eq!(Stat::parse(&format!("7 ({name}) {tail}")), Some(expected), "{name}");
        }
        assert_eq!((Stat::parse("7 (a) S 1"), Stat::parse("")), (None, None));
    }

    #[test]
    fn this_process_started_a_moment_ago() {
        let (proc, own) = (Proc::here(), nix::unistd::getpid().as_raw());
        assert_eq!(stat(&proc, own).unwrap().parent, nix::unistd::getppid().as_raw());
        let started = super::started(&proc, own).unwrap();
        assert!((0..3600).contains(&(clock::now() - started)), "{started}");
        assert!(stat(&proc, -1).is_err());
        assert_eq!(super::started(&proc, -1), None);
        let pids = numbers::<i32>(Path::new("/proc")).unwrap();
        assert!(pids.flatten().any(|pid| pid == own));
    }
}
