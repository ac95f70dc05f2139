//! Runs of `logins.c`: PAM calls in separate processes, since sshd has one per connection.

use std::process::Command;

use super::support::{Node, Outcome};

const LOGINS: &str = include_str!("logins.c");
const PERMIT: &str = "session required pam_permit.so\naccount required pam_permit.so\n";

/// The cost of one login; durations in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// The PAM calls alone.
    pub(super) calls: f64,
    /// With `pam_start`, which loads the modules and their libraries.
    pub(super) whole: f64,
    /// Page faults of the PAM calls, and of the processes that they waited for.
    pub(super) faults: f64,
}

/// Installs the driver and the service `permit`, which does nothing.
pub(super) fn install(node: &Node) {
    node.write("/etc/pam.d/permit", PERMIT);
    compile(node, "logins", LOGINS, "-lpam");
}

/// Compiles a program of one file into the node's `/usr/bin`.
pub(super) fn compile(node: &Node, name: &str, source: &str, library: &str) {
    let file = format!("/tmp/{name}.c");
    node.write(&file, source);
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
    cc.arg(node.path(&format!("/usr/bin/{name}")))
        .arg(node.path(&file));
    Outcome::run(cc.arg(library)).ok();
}

/// Runs the driver, and returns the cost of each login.
pub(super) fn run(node: &Node, arguments: &[&str]) -> Vec<Cost> {
    let outcome = node.run("logins", arguments).ok();
    let numbers = |line: &str| -> Vec<f64> {
        line.split_ascii_whitespace()
            .map(|number| number.parse().unwrap())
            .collect()
    };
    let cost = |n: Vec<f64>| Cost {
        calls: n[0],
        whole: n[1],
        faults: n[2],
    };
    outcome.stdout.lines().map(numbers).map(cost).collect()
}
