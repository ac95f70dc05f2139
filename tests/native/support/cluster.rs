//! Several nodes on one network whose users can log in from one to another.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::chown;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::user::PEOPLE;
use super::{Mount, Node, Sshd, User, is_installed, skip, tool};

/// Numbers in the nodes' names, and last parts of their addresses.
const NUMBERS: [u8; 16] = [
    17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,
];
/// Options of every user's ssh client.
const SSH_CONFIG: &str = "\
BatchMode yes
StrictHostKeyChecking yes
GlobalKnownHostsFile /etc/ssh/ssh_known_hosts
KexAlgorithms curve25519-sha256
LogLevel ERROR
";
/// Prints one line about its own process: node, cgroup, and the stand-in GPUs that it can open.
const RANK: &str = r#"#!/bin/sh
opened=$(probe /dev/nvidia0 /dev/nvidia1 /dev/nvidia2 /dev/nvidia3 | sed -n 's/ ENXIO$//p')
echo "rank" $(hostname) $(sed -n 's/^0:://p' /proc/self/cgroup) $opened
"#;

/// Nodes that each have a name, addresses of both families, an `sshd` and jobs.
#[derive(Debug)]
pub(crate) struct Cluster<'a> {
    pub(crate) nodes: &'a [Node],
    /// The servers, in the order of the nodes.
    pub(crate) sshds: Vec<Sshd<'a>>,
}

/// Runs `body` on a fresh cluster of `size` nodes, at most sixteen. Prints "skipped" if this machine
/// cannot have one.
pub(crate) fn on_cluster(size: usize, body: impl FnOnce(&Cluster<'_>)) {
    /// A small machine has time for one cluster at once.
    static SEAT: Mutex<()> = Mutex::new(());
    if let Some(obstacle) = super::missing_requirement().or_else(missing_requirement) {
        return skip(obstacle);
    }
    let _seat = SEAT.lock().unwrap_or_else(PoisonError::into_inner);
    let _others = super::share_machine();
    let named = |number: &u8| Node::new_named(Mount::Unified, &format!("gpu0{number}"));
    let nodes: Vec<Node> = NUMBERS[..size].iter().map(named).collect();
    let switch = Switch::between(&nodes);
    nodes
        .iter()
        .zip(NUMBERS)
        .for_each(|(node, number)| configure_network(node, number));
    body(&Cluster {
        nodes: &nodes,
        sshds: nodes.iter().map(Node::sshd).collect(),
    });
    drop(switch);
    nodes.into_iter().for_each(Node::end);
}

fn missing_requirement() -> Option<&'static str> {
    let programs = ["mpirun", "mpiexec.hydra", "pdsh"];
    let missing = programs.into_iter().any(|program| !is_installed(program));
    missing.then_some("needs openmpi-bin, mpich and pdsh")
}

/// Gives the node its addresses, and its users a configuration for logins to other nodes.
fn configure_network(node: &Node, number: u8) {
    let addresses = format!(
        "set -e
         ip address add 10.77.0.{number}/24 dev eth0
         ip address add fd77::{number}/64 dev eth0 nodad
         ip link set eth0 up"
    );
    node.sh(&addresses).ok();
    let hosts: String = NUMBERS
        .iter()
        .map(|host| format!("10.77.0.{host} gpu0{host}\nfd77::{host} gpu0{host}-v6\n"))
        .collect();
    node.write("/etc/hosts", &format!("127.0.0.1 localhost\n{hosts}"));
    node.create_dir("/etc/ssh", 0o755);
    node.write("/etc/ssh/ssh_config", SSH_CONFIG);
    let key = fs::read_to_string(tool::key("host-key.pub")).unwrap();
    node.write("/etc/ssh/ssh_known_hosts", &format!("* {key}"));
    PEOPLE.iter().for_each(|user| install_user_key(node, *user));
    node.write("/usr/bin/rank", RANK);
    node.set_mode("/usr/bin/rank", 0o755);
}

/// Gives the user the key that every node accepts.
fn install_user_key(node: &Node, user: User) {
    let folder = format!("{}/.ssh", user.home());
    let key = format!("{folder}/id_ed25519");
    node.create_dir(&folder, 0o700);
    node.install(&tool::key("user-key"), &key);
    node.set_mode(&key, 0o600);
    for path in [folder, key] {
        chown(node.path(&path), Some(user.uid), Some(user.uid)).unwrap();
    }
}

/// The bridge between the nodes.
#[derive(Debug)]
struct Switch {
    process: Child,
}

impl Switch {
    fn between(nodes: &[Node]) -> Self {
        let process = Command::new("unshare")
            .args([
                "--net",
                "--fork",
                "--kill-child",
                "sh",
                "-c",
                include_str!("cluster.sh"),
            ])
            .arg("switch")
            .args(nodes.iter().map(|node| node.pid().to_string()))
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut switch = Self { process };
        let mut ready = String::new();
        let mut output = BufReader::new(switch.process.stdout.take().unwrap());
        output.read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n", "the nodes could not be joined");
        switch
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
