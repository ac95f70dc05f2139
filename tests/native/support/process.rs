//! Single processes of a node.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Cgroup, Node, ROOT, Tool, User, eventually};

/// Starts `count` idle processes of a user in a cgroup. The caller must kill them before it waits for the first one,
/// which this returns.
pub(crate) fn start_crowd(node: &Node, cgroup: &Cgroup, user: User, count: usize) -> Child {
    node.install(&Tool::Crowd.path(), "/usr/bin/crowd");
    let mut command = node.daemon(cgroup, "crowd");
    command.args([count.to_string(), user.uid.to_string()]);
    let mut crowd = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(crowd.stdout.take().unwrap())
        .read_line(&mut ready)
        .unwrap();
    assert_eq!(ready, "ready\n");
    crowd
}

/// A process of a user, and the nsenter(1) that waits for it.
#[derive(Debug)]
pub(crate) struct Process {
    enters: Child,
    host_pid: i32,
}

impl Process {
    /// Starts a shell script as that user, outside of jobs.
    pub(crate) fn new(node: &Node, user: User, script: &str) -> Self {
        Self::start_in(node, &node.outside(), user, script)
    }

    /// Starts a shell script as that user in a cgroup.
    pub(crate) fn start_in(node: &Node, cgroup: &Cgroup, user: User, script: &str) -> Self {
        let id = user.uid.to_string();
        let mut command = node.daemon(cgroup, "setpriv");
        command.args([
            "--reuid",
            &id,
            "--regid",
            &id,
            "--clear-groups",
            "sh",
            "-c",
            script,
        ]);
        let enters = command.stdout(Stdio::null()).spawn().unwrap();
        let children = format!("/proc/{0}/task/{0}/children", enters.id());
        let child = || {
            fs::read_to_string(&children)
                .unwrap_or_default()
                .trim()
                .parse()
                .ok()
        };
        eventually("it is there", || child().is_some());
        let process = Self {
            enters,
            host_pid: child().unwrap(),
        };
        // Waits for the shell itself, not for the program that starts it. A script of root may
        // become another user at once.
        let started = format!("\nUid:\t{id}\t");
        eventually("it is the user's", || {
            let status = process.status();
            let is_users = status.contains(&started) && !status.starts_with("Name:\tsetpriv\n");
            user == ROOT || is_users
        });
        process
    }

    /// Starts a process as in a rootless container: with the uid 100004, which has no account, in a user
    /// namespace of that user. It runs a shell script first, and then sleeps.
    pub(crate) fn start_container(node: &Node, user: User, script: &str) -> Self {
        let script = format!(
            "{script}; exec unshare --user sh -c 'until setpriv --reuid 5 --clear-groups true; \
             do sleep 0.05; done; exec setpriv --reuid 5 unshare --user sleep infinity' 2>/dev/null"
        );
        let process = Self::new(node, user, &script);
        let proc = |file: &str| format!("/proc/{}/{file}", process.host_pid);
        let own = fs::read_link("/proc/self/ns/user").unwrap();
        let namespace = || fs::read_link(proc("ns/user")).ok();
        eventually("it has a namespace", || {
            namespace().is_some_and(|other| other != own)
        });
        for map in ["gid_map", "uid_map"] {
            fs::write(proc(map), format!("0 {} 1\n1 100000 1000", user.uid)).unwrap();
        }
        eventually("it has another uid", || {
            let name = fs::read_to_string(proc("comm"));
            name.is_ok_and(|name| name == "sleep\n") && process.uids().starts_with("100004\t")
        });
        process
    }

    /// Returns its number in this process's PID namespace.
    pub(crate) fn host_pid(&self) -> i32 {
        self.host_pid
    }

    /// Returns its number on the node.
    pub(crate) fn pid(&self) -> i32 {
        let status = self.status();
        let numbers = status
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:"))
            .unwrap();
        numbers.split_whitespace().last().unwrap().parse().unwrap()
    }

    /// Returns its uids, separated by tabs.
    pub(crate) fn uids(&self) -> String {
        let status = self.status();
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:\t"));
        uids.unwrap_or_default().to_owned()
    }

    fn status(&self) -> String {
        fs::read_to_string(format!("/proc/{}/status", self.host_pid)).unwrap_or_default()
    }

    pub(crate) fn runs(&self) -> bool {
        !matches!(self.status(), text if text.is_empty() || text.contains("\nState:\tZ"))
    }

    /// Kills the process.
    pub(crate) fn end(&self) {
        kill(Pid::from_raw(self.host_pid), Signal::SIGKILL).unwrap();
        eventually("it has ended", || !self.runs());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.enters.kill();
        let _ = self.enters.wait();
    }
}
