//! Reads the processes of the node: what identifies one, and whose login it belongs to.

use helper::jobs::sources::processes;
pub use keeper::sshd::is_sshd_process;
use kernel::proc::{self, Proc, read_audit_number};
use std::collections::BTreeSet;
use std::fs;

/// A process, with the facts that tell whether it belongs to a login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// The number of its parent.
    pub parent: i32,
    /// Session id: the process id of its session's leader.
    pub session: i32,
    /// The start time in ticks since boot; with the number it identifies the process.
    pub start: u64,
    /// Device number of its controlling terminal, 0 for none.
    pub terminal: u32,
    /// True for the sshd of one login that root runs, which no user controls.
    ///
    /// It is false for the server that listens for all logins, in any cgroup, so that no command kills that: no
    /// other sshd started it, and it has a listening socket, which it closes in each of its children. An sshd that
    /// systemd starts for a single connection has no listening socket.
    pub is_sshd: bool,
    /// The uid of the login that it comes from, which no user can remove; `None` if pam_loginuid(8) set none, and in
    /// the login of this command ([`read_login_uid`]).
    pub login: Option<u32>,
}

/// The number and the start time of a process, which identify it.
pub type Identity = (i32, u64);

impl Process {
    /// Returns what identifies the process.
    pub fn identity(&self) -> Identity {
        (self.pid, self.start)
    }
}

/// Reads one process; `None` if it has ended.
pub fn read_process(pid: i32) -> Option<Process> {
    let processes::Stat {
        parent,
        session,
        terminal,
        start,
        ..
    } = processes::read_stat(&Proc::host(), pid).ok()?;
    // The cheapest question comes first: most processes are no sshd.
    let is_sshd = is_sshd_process(pid) && (is_sshd_process(parent) || !has_listening_socket(pid));
    let login = read_login_uid(pid);
    Some(Process {
        pid,
        parent,
        session,
        start,
        terminal,
        is_sshd,
        login,
    })
}

/// Reads the start time of a process, in ticks since boot; `None` if it has ended.
pub fn read_start_ticks(pid: i32) -> Option<u64> {
    processes::read_stat(&Proc::host(), pid)
        .ok()
        .map(|stat| stat.start)
}

/// Reads the uid of the login that a process comes from. The login of this command counts as none:
/// then an admin has started the scheduler by hand.
pub fn read_login_uid(pid: i32) -> Option<u32> {
    let own_session = read_audit_number("self", "sessionid");
    let session = read_audit_number(pid, "sessionid")?;
    (Some(session) != own_session).then(|| read_audit_number(pid, "loginuid"))?
}

/// Whether a process has a listening TCP socket; `false` if its descriptors cannot be read.
fn has_listening_socket(pid: i32) -> bool {
    let dir = Proc::host().dir(pid);
    let listening: BTreeSet<String> = ["net/tcp", "net/tcp6"]
        .iter()
        .filter_map(|table| proc::read(dir.join(table)).ok())
        .flat_map(|table| {
            table
                .lines()
                .filter_map(listening_socket)
                .collect::<Vec<_>>()
        })
        .collect();
    let dir = dir.join("fd");
    let Ok(descriptors) = processes::list_numbers::<u32>(&dir) else {
        return false;
    };
    let mut targets = descriptors
        .flatten()
        .filter_map(|descriptor| fs::read_link(dir.join(descriptor.to_string())).ok());
    targets.any(|target| listening.contains(&*target.to_string_lossy()))
}

/// The socket of a line of `/proc/net/tcp`, in the form of a descriptor's link; `None` unless it
/// listens (state 0A, Documentation/networking/proc_net_tcp.rst).
fn listening_socket(line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    (*fields.get(3)? == "0A").then_some(format!("socket:[{}]", fields.get(9)?))
}

/// Whether all threads of a process have ended.
pub fn has_ended(process: &proc::Process) -> bool {
    process.ended
        && processes::list_numbers::<i32>(&Proc::host().dir(process.pid).join("task"))
            .is_ok_and(|threads| threads.count() < 2)
}

/// Lists this process and its ancestors, as far as they still run.
pub fn own_ancestry() -> Vec<i32> {
    let mut pids = Vec::new();
    let mut next = Some(nix::unistd::getpid().as_raw());
    while let Some(pid) = next.filter(|pid| *pid > 0 && !pids.contains(pid)) {
        pids.push(pid);
        next = read_process(pid).map(|Process { parent, .. }| parent);
    }
    pids
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    /// A hidden process would outlive the job.
    #[test]
    fn process_with_invalid_utf8_name_is_read() {
        let id = std::process::id().to_string();
        let name = [b"\xff\xc3", id.as_bytes()].concat();
        let path = std::env::temp_dir().join(OsStr::from_bytes(&name));
        std::os::unix::fs::symlink("/bin/sleep", &path).unwrap();
        let mut child = std::process::Command::new(&path).arg("60").spawn().unwrap();
        fs::remove_file(&path).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        // The kernel resumes this process a moment before it sets the name of the new one.
        let named = || fs::read(format!("/proc/{pid}/comm")).unwrap();
        let comm = (0..1000)
            .map(|_| named())
            .find(|comm| comm.starts_with(b"\xff"));
        let comm = comm.unwrap_or_default();
        let parent_and_uid = (
            read_process(pid).map(|process| process.parent),
            Proc::host()
                .read_process(pid)
                .map(|process| process.uids[0]),
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(comm.starts_with(b"\xff\xc3"), "{comm:?}");
        let own = nix::unistd::getpid().as_raw();
        assert_eq!(parent_and_uid.0, Some(own));
        assert_eq!(parent_and_uid.1.unwrap(), nix::unistd::getuid().as_raw());
    }

    #[test]
    fn own_process_is_read_and_is_no_sshd() {
        let own = nix::unistd::getpid().as_raw();
        let process = read_process(own).unwrap();
        assert_eq!(process.parent, nix::unistd::getppid().as_raw());
        assert!(!process.is_sshd);
        assert_eq!(read_process(-1), None);
    }

    #[test]
    fn listening_socket_is_found() {
        let own = nix::unistd::getpid().as_raw();
        let line =
            "0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 77 1";
        assert_eq!(listening_socket(line).as_deref(), Some("socket:[77]"));
        assert_eq!(listening_socket(&line.replace("0A", "01")), None);
        let _server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(has_listening_socket(own));
        assert!(!has_listening_socket(-1));
    }
}
