//! What `/proc` tells about the processes of a cgroup (proc(5)).

use crate::cgroup::Dir;
use crate::keeper::subtree::{self, Found};
use crate::proc::{self, Proc};
use crate::source::processes;
use nix::unistd::Uid;
use std::collections::BTreeSet;
use std::fs;

/// A process, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Process {
    pub(in super::super) pid: i32,
    pub(in super::super) parent: i32,
    /// When it started, in ticks since boot: with the number, its identity.
    pub(in super::super) start: u64,
    /// Device number of its controlling terminal, 0 for none.
    pub(in super::super) terminal: u32,
    /// Whether it is the sshd of a login, run by root: the part of it that no user controls.
    ///
    /// The server that listens for all logins is none, wherever it was started, and is never
    /// ended: no other sshd started it, and it has a socket that listens, which it closes in each
    /// of its children. One that systemd starts for a single connection listens on nothing.
    pub(in super::super) is_sshd: bool,
    /// Its audit session, where it has one.
    pub(in super::super) session: Option<u32>,
    /// Its parent's audit session, read for sshd's only.
    pub(in super::super) parent_session: Option<u32>,
}

/// What no other process has: the number, and when it started.
pub(in super::super) type Identity = (i32, u64);

impl Process {
    pub(super) fn identity(&self) -> Identity {
        (self.pid, self.start)
    }
}

/// Not set, in `/proc/PID/sessionid`.
const NO_SESSION: u32 = u32::MAX;

/// The processes in a cgroup and below it, but for this one.
pub(in super::super) fn table(dir: &Dir) -> Found<Process> {
    let own = nix::unistd::getpid().as_raw();
    let Found { all: pids, cut } = subtree::processes(dir);
    Found { all: pids.into_iter().filter(|&pid| pid != own).filter_map(read).collect(), cut }
}

/// Reads one process; `None` where it is gone.
pub(in super::super) fn read(pid: i32) -> Option<Process> {
    let processes::Stat { parent, terminal, start } = Proc::here().stat(pid).ok()?;
    let mut process = Process { pid, parent, terminal, start, ..Process::default() };
    process.session = session(pid);
    process.is_sshd = runs_sshd(pid) && (runs_sshd(process.parent) || !listens(pid));
    if process.is_sshd {
        process.parent_session = session(process.parent);
    }
    Some(process)
}

/// When the process of that number started; `None` where there is none.
pub(super) fn started(pid: i32) -> Option<u64> {
    Proc::here().stat(pid).ok().map(|stat| stat.start)
}

fn session(pid: i32) -> Option<u32> {
    let text = proc::read(Proc::here().dir(pid).join("sessionid")).ok()?;
    text.trim().parse().ok().filter(|&session| session != NO_SESSION)
}

/// Whether a process is an sshd, of a login or not: by the executable, which it cannot choose,
/// unlike its name; and root's, since a user may run an sshd as well.
pub(in super::super) fn runs_sshd(pid: i32) -> bool {
    let Ok(path) = fs::read_link(Proc::here().dir(pid).join("exe")) else { return false };
    is_sshd_path(&path.to_string_lossy()) && real_uid(pid).is_some_and(Uid::is_root)
}

/// Whether a process has a TCP socket that listens.
fn listens(pid: i32) -> bool {
    let dir = Proc::here().dir(pid);
    let listening: BTreeSet<String> = ["net/tcp", "net/tcp6"]
        .iter()
        .filter_map(|table| proc::read_table(dir.join(table)).ok())
        .flat_map(|table| table.lines().filter_map(listening_socket).collect::<Vec<_>>())
        .collect();
    let dir = dir.join("fd");
    let Ok(descriptors) = processes::numbers::<u32>(&dir) else { return false };
    let mut targets = descriptors
        .flatten()
        .filter_map(|descriptor| fs::read_link(dir.join(descriptor.to_string())).ok());
    targets.any(|target| listening.contains(&*target.to_string_lossy()))
}

/// A line of `/proc/net/tcp` as a descriptor's link names the socket; `None` unless it listens
/// (state 0A, Documentation/networking/proc_net_tcp.rst).
fn listening_socket(line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    (*fields.get(3)? == "0A").then_some(format!("socket:[{}]", fields.get(9)?))
}

/// The second name since OpenSSH 9.8. An executable that was replaced is marked as deleted.
fn is_sshd_path(path: &str) -> bool {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    matches!(path.rsplit('/').next(), Some("sshd" | "sshd-session"))
}

/// Whom a process belongs to; `None` where it is gone.
pub(in super::super) fn real_uid(pid: i32) -> Option<Uid> {
    let [uid, ..] = Proc::here().process(pid).ok()?.uids;
    Some(Uid::from_raw(uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    /// Else it would outlive the job, and could be anybody's in a cgroup that becomes one.
    #[test]
    fn a_name_that_is_no_text_hides_no_process() {
        let id = std::process::id().to_string();
        let name = [b"\xff\xc3", id.as_bytes()].concat();
        let path = std::env::temp_dir().join(OsStr::from_bytes(&name));
        std::os::unix::fs::symlink("/bin/sleep", &path).unwrap();
        let mut child = std::process::Command::new(&path).arg("60").spawn().unwrap();
        fs::remove_file(&path).unwrap();
        let pid = child.id().cast_signed();
        // The kernel lets go of us a moment before it has given the process its name.
        let named = || fs::read(format!("/proc/{pid}/comm")).unwrap();
        let comm = (0..1000).map(|_| named()).find(|comm| comm.starts_with(b"\xff"));
        let comm = comm.unwrap_or_default();
        let found = (read(pid).map(|process| process.parent), real_uid(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(comm.starts_with(b"\xff\xc3"), "{comm:?}");
        let own = (nix::unistd::getpid().as_raw(), nix::unistd::getuid());
        assert_eq!(found, (Some(own.0), Some(own.1)));
    }

    #[test]
    fn this_process_is_there_and_is_no_sshd() {
        let own = nix::unistd::getpid().as_raw();
        let process = read(own).unwrap();
        assert_eq!(process.parent, nix::unistd::getppid().as_raw());
        assert!(!process.is_sshd);
        assert_eq!(read(-1), None);
    }

    #[test]
    fn a_server_is_known_by_its_socket() {
        let own = nix::unistd::getpid().as_raw();
        let line =
            "0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 77 1";
        assert_eq!(listening_socket(line).as_deref(), Some("socket:[77]"));
        assert_eq!(listening_socket(&line.replace("0A", "01")), None);
        let _server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listens(own));
        assert!(!listens(-1));
    }

    #[test]
    fn sshd_by_its_executable() {
        for path in ["/usr/sbin/sshd", "/usr/lib/openssh/sshd-session", "/usr/sbin/sshd (deleted)"]
        {
            assert!(is_sshd_path(path), "{path}");
        }
        for path in ["/home/a/sshd2", "/usr/bin/ssh", "/sshd/x", ""] {
            assert!(!is_sshd_path(path), "{path}");
        }
    }
}
