//! What a login costs: a fresh process each, as sshd has one per connection, times one PAM call.

use std::process::Command;

use super::support::{ALICE, Cgroup, Node, Outcome, on_node};
use super::{heading, median, row};

const LOGINS: &str = include_str!("logins.c");
const ROUNDS: usize = 5;
const PER_ROUND: &str = "60";
/// Pauses between logins, in microseconds: back to back, and far enough apart for the kernel to
/// wait for a grace period at every move.
const PAUSES: [(&str, &str); 2] = [("back to back", "0"), ("50 ms apart", "50000")];

pub(super) fn measure() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0", "/dev/nvidia1"]).start();
        node.arguments("log_level=quiet");
        node.write(
            "/etc/pam.d/permit",
            "session required pam_permit.so\naccount required pam_permit.so\n",
        );
        install_driver(node);
        for (title, pause) in PAUSES {
            compare(node, &job.cgroup, title, pause);
        }
    });
}

fn compare(node: &Node, job: &Cgroup, title: &str, pause: &str) {
    // Rounds of each in turn, so that what else the machine does meets all of them.
    let mut costs = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        costs[0].extend(run(node, &["permit", "session", PER_ROUND, pause]));
        costs[1].extend(run(
            node,
            &["bare", &format!("/sys/fs/cgroup{}", job.path()), PER_ROUND, pause],
        ));
        costs[2].extend(run(node, &["sshd", "session", PER_ROUND, pause]));
        costs[3].extend(run(node, &["sshd", "both", PER_ROUND, pause]));
    }
    let [permit, bare, session, both] = costs.map(median);
    heading(&format!("session set-up, {title}"), "a bare fork + exec + move");
    let micro = |cost: f64| format!("{cost:.0} us");
    row("pam_permit", &micro(permit), permit / bare, "");
    row("bare fork + exec + move", &micro(bare), 1.0, "");
    row("session", &micro(session), session / bare, "goal: at most 1.3");
    row("account and session", &micro(both), both / bare, "");
}

fn install_driver(node: &Node) {
    node.write("/tmp/logins.c", LOGINS);
    let source = node.path("/tmp/logins.c");
    let program = node.path("/usr/bin/logins");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(program);
    Outcome::of(cc.arg(source).arg("-lpam")).ok();
}

/// Microseconds of each login.
fn run(node: &Node, arguments: &[&str]) -> Vec<f64> {
    let outcome = node.run("logins", arguments).ok();
    outcome.stdout.lines().map(|line| line.parse().unwrap()).collect()
}
