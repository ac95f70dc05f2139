//! Several nodes on one network, between which users log in as they like.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::chown;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::user::PEOPLE;
use super::{Mount, Node, Sshd, User, installed, skip, tool};

/// What the nodes are called; the number is also the last part of the address.
const NUMBERS: [u8; 4] = [17, 18, 19, 20];
/// What an ssh client of a user's does without being told.
const SSH_CONFIG: &str = "\
BatchMode yes
StrictHostKeyChecking yes
GlobalKnownHostsFile /etc/ssh/ssh_known_hosts
KexAlgorithms curve25519-sha256
ConnectTimeout 20
LogLevel ERROR
";
/// One line about the process it runs in: node, cgroup, and which of the stand-in GPUs open.
const RANK: &str = r#"#!/bin/sh
opened=$(probe /dev/nvidia0 /dev/nvidia1 /dev/nvidia2 /dev/nvidia3 | sed -n 's/ ENXIO$//p')
echo "rank" $(hostname) $(sed -n 's/^0:://p' /proc/self/cgroup) $opened
"#;

/// Nodes with a name, an address of either family, a `sshd` and jobs of their own.
#[derive(Debug)]
pub(crate) struct Cluster<'a> {
    pub(crate) nodes: &'a [Node],
    /// One for each node, in their order.
    pub(crate) sshds: Vec<Sshd<'a>>,
}

/// Runs `body` on a fresh cluster of that many nodes, four at most; says "skipped" where this
/// machine cannot have one.
pub(crate) fn on_cluster(size: usize, body: impl FnOnce(&Cluster<'_>)) {
    /// One at a time is all that a small machine has the time for.
    static SEAT: Mutex<()> = Mutex::new(());
    if let Some(obstacle) = super::obstacle().or_else(obstacle) {
        return skip(obstacle);
    }
    let _seat = SEAT.lock().unwrap_or_else(PoisonError::into_inner);
    let _others = super::beside_others();
    let named = |number: &u8| Node::named(Mount::Unified, &format!("gpu0{number}"));
    let nodes: Vec<Node> = NUMBERS[..size].iter().map(named).collect();
    let switch = Switch::between(&nodes);
    nodes.iter().zip(NUMBERS).for_each(|(node, number)| settle(node, number));
    body(&Cluster { nodes: &nodes, sshds: nodes.iter().map(Node::sshd).collect() });
    drop(switch);
    nodes.into_iter().for_each(Node::end);
}

fn obstacle() -> Option<&'static str> {
    let programs = ["mpirun", "mpiexec.hydra", "pdsh"];
    let missing = programs.into_iter().any(|program| !installed(program));
    missing.then_some("needs openmpi-bin, mpich and pdsh")
}

/// Gives the node its addresses, and its users what they need to log in elsewhere.
fn settle(node: &Node, number: u8) {
    let addresses = format!(
        "set -e
         ip address add 10.77.0.{number}/24 dev eth0
         ip address add fd77::{number}/64 dev eth0 nodad
         ip link set eth0 up"
    );
    node.sh(&addresses).ok();
    let hosts: String = NUMBERS
        .iter()
        .map(|number| format!("10.77.0.{number} gpu0{number}\nfd77::{number} gpu0{number}-v6\n"))
        .collect();
    node.write("/etc/hosts", &format!("127.0.0.1 localhost\n{hosts}"));
    node.folder("/etc/ssh", 0o755);
    node.write("/etc/ssh/ssh_config", SSH_CONFIG);
    let key = fs::read_to_string(tool::key("host-key.pub")).unwrap();
    node.write("/etc/ssh/ssh_known_hosts", &format!("* {key}"));
    PEOPLE.iter().for_each(|user| equip(node, *user));
    node.write("/usr/bin/rank", RANK);
    node.mode("/usr/bin/rank", 0o755);
}

/// Gives the user the key that every node lets in.
fn equip(node: &Node, user: User) {
    let folder = format!("{}/.ssh", user.home());
    let key = format!("{folder}/id_ed25519");
    node.folder(&folder, 0o700);
    node.install(&tool::key("user-key"), &key);
    node.mode(&key, 0o600);
    for path in [folder, key] {
        chown(node.path(&path), Some(user.uid), Some(user.uid)).unwrap();
    }
}

/// The bridge between nodes.
#[derive(Debug)]
struct Switch {
    process: Child,
}

impl Switch {
    fn between(nodes: &[Node]) -> Self {
        let process = Command::new("unshare")
            .args(["--net", "--fork", "--kill-child", "sh", "-c", include_str!("cluster.sh")])
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
