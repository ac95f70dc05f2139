//! A node that answers questions about its connections, and the hosts that ask: network namespaces
//! with a link between them.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::{Cgroup, HELPER, Node, Outcome, ROOT, Tool, User, eventually, timeout_factor};

/// Addresses of the node, and of the host that may ask.
pub(crate) const NODE: [&str; 2] = ["10.77.0.11", "fd77::11"];
pub(crate) const HOST: [&str; 2] = ["10.77.0.12", "fd77::12"];
/// Another address of the host.
pub(crate) const OTHER: &str = "10.77.9.12";
/// Number of questions on an emulated processor, of which one must be answered in time.
const ASK_TRIES: usize = 5;
/// The port that clients on the node connect to, as if sshd listened there.
pub(crate) const SSH: u16 = 2222;

/// Creates the host as a network namespace, with a link to it.
const LINK: &str = "
set -e
ip netns add host
ip link add eth0 type veth peer name eth0 netns host
ip address add 10.77.0.11/24 dev eth0
ip address add fd77::11/64 dev eth0 nodad
ip link set eth0 up
ip route add 10.77.9.0/24 dev eth0
ip -n host address add 10.77.0.12/24 dev eth0
ip -n host address add 10.77.9.12/24 dev eth0
ip -n host address add fd77::12/64 dev eth0 nodad
ip -n host link set lo up
ip -n host link set eth0 up
";

/// A node and a host beside it, with a listener at [`SSH`].
#[derive(Debug)]
pub(crate) struct Origin<'a> {
    node: &'a Node,
    _sshd: Listener,
}

/// A listener that ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    child: Child,
    life: Option<ChildStdin>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        drop(self.life.take());
        let _ = self.child.wait();
    }
}

/// A client on the node with a connection to the host.
#[derive(Debug)]
pub(crate) struct Client {
    child: Child,
    /// The local port of the connection.
    pub(crate) port: u16,
}

impl Client {
    /// Ends the client and its connection.
    pub(crate) fn end(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        // The child is a shell, which exits at the end of its input.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Node {
    /// Runs a program for each connection to `port` at `address`. The address `::` accepts IPv4 as
    /// well.
    pub(crate) fn serve(&self, address: &str, port: u16, program: &[&str]) -> Listener {
        self.serve_as(ROOT, address, port, program)
    }

    /// Runs a program for each connection to `port` at `address`, with a listener of that user.
    pub(crate) fn serve_as(
        &self,
        user: User,
        address: &str,
        port: u16,
        program: &[&str],
    ) -> Listener {
        self.install(&Tool::Listen.path(), "/usr/bin/listen");
        let id = user.uid.to_string();
        let mut command = self.daemon(&self.outside(), "setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
        Origin::listen(&mut command, address, port, program)
    }
}

impl<'a> Origin<'a> {
    pub(crate) fn on(node: &'a Node) -> Self {
        node.sh(LINK).ok();
        node.install(&Tool::Listen.path(), "/usr/bin/listen");
        let sshd = Self::listen(&mut on_host(node), "::", SSH, &["sleep", "infinity"]);
        Self { node, _sshd: sshd }
    }

    fn listen(command: &mut Command, address: &str, port: u16, serve: &[&str]) -> Listener {
        command
            .args(["listen", address, &port.to_string()])
            .args(serve);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let life = child.stdin.take();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n", "nothing listens at {address} {port}");
        Listener { child, life }
    }

    /// Starts the service at that address. It runs for each connection as the helper's account.
    pub(crate) fn service(&self, address: &str) -> Listener {
        let id = HELPER.uid.to_string();
        let account = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"];
        self.service_as(address, &account)
    }

    /// Starts the service at that address through another command.
    pub(crate) fn service_as(&self, address: &str, by: &[&str]) -> Listener {
        let serve = [by, &["job-adopt", "callerid"]].concat();
        let mut command = self.node.daemon(&self.node.outside(), "env");
        Self::listen(&mut command, address, 113, &serve)
    }

    /// Starts a client of that user in that cgroup, connected to an address of the host.
    pub(crate) fn client(&self, owner: User, cgroup: &Cgroup, to: &str) -> Client {
        let before = self.ports(to);
        let id = owner.uid.to_string();
        let mut command = self.node.daemon(cgroup, "setpriv");
        command.args([
            "--reuid",
            &id,
            "--regid",
            &id,
            "--clear-groups",
            "bash",
            "-c",
        ]);
        command.args([&format!("exec 3<>/dev/tcp/{to}/{SSH} && read"), "client"]);
        let child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut port = None;
        eventually("the client is connected", || {
            port = self
                .ports(to)
                .into_iter()
                .find(|candidate| !before.contains(candidate));
            port.is_some()
        });
        Client {
            child,
            port: port.unwrap(),
        }
    }

    /// Lists the local ports of the node's connections to that address of the host.
    fn ports(&self, to: &str) -> Vec<u16> {
        let filter = format!("dst [{to}]:{SSH}");
        let outcome = self
            .node
            .run("ss", &["-Htn", "state", "established", &filter])
            .ok();
        let local = |line: &str| {
            let end = line.split_whitespace().nth(2).unwrap().to_owned();
            end.rsplit(':').next().unwrap().parse().unwrap()
        };
        outcome.stdout.lines().map(local).collect()
    }

    /// Connects from the host to that address of the node, writes these bytes, with the escapes of
    /// printf(1), and returns the answer.
    ///
    /// On an emulated processor the service's own time, two seconds, can end first: then it asks again.
    pub(crate) fn ask(&self, address: &str, bytes: &str) -> Outcome {
        let is_late =
            |answer: &str| answer.is_empty() || answer.ends_with(" : ERROR : UNKNOWN-ERROR\r\n");
        let mut outcome = self.ask_from("", address, bytes);
        for _ in 1..ASK_TRIES {
            if timeout_factor() == 1 || !is_late(&outcome.stdout) {
                break;
            }
            outcome = self.ask_from("", address, bytes);
        }
        outcome
    }

    /// Does what [`Origin::ask`] does, from one of the host's addresses, chosen by a route.
    pub(crate) fn ask_from(&self, route: &str, address: &str, bytes: &str) -> Outcome {
        let script = format!(
            "{route}
            exec 3<>/dev/tcp/{address}/113 || exit 9
            printf '{bytes}' >&3
            cat <&3"
        );
        let limit = (20 * timeout_factor()).to_string();
        Outcome::run(on_host(self.node).args(["timeout", &limit, "bash", "-c", &script]))
    }
}

/// Prepares a command of the host. It shares the node's files and cgroup.
fn on_host(node: &Node) -> Command {
    let mut command = node.daemon(&node.outside(), "nsenter");
    command.arg("--net=/run/netns/host");
    command
}
