//! The cost of a login: a fresh process for each, since sshd has one per connection, times one PAM
//! call.

use super::driver::{Cost, install, run};
use super::support::{ALICE, Cgroup, Node, on_node};
use super::{Goal, median, print_heading, print_row};

const ROUNDS: usize = 5;
const PER_ROUND: &str = "60";
/// Pauses between logins, in microseconds: none, and long enough for the kernel to wait for a grace
/// period at every move.
const PAUSES: [(&str, &str); 2] = [("back to back", "0"), ("50 ms apart", "50000")];

pub(super) fn measure() {
    on_node(|node| {
        let job = node
            .job(ALICE, "4242")
            .devices(&["/dev/nvidia0", "/dev/nvidia1"])
            .start();
        node.arguments("log_level=quiet");
        install(node);
        for (title, pause) in PAUSES {
            compare(node, &job.cgroup, title, pause);
        }
    });
}

fn compare(node: &Node, job: &Cgroup, title: &str, pause: &str) {
    // Rounds of each in turn, so that other load affects all of them.
    let cgroup = format!("/sys/fs/cgroup{}", job.path());
    let kinds = [
        ["permit", "session"],
        ["bare", &cgroup],
        ["sshd", "session"],
        ["sshd", "both"],
    ];
    let mut costs = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        for ([what, how], rounds) in kinds.iter().zip(&mut costs) {
            let measured = run(node, &[what, how, PER_ROUND, pause]);
            rounds.extend(measured.iter().map(|cost: &Cost| cost.calls));
        }
    }
    let [permit, bare, session, both] = costs.map(median);
    print_heading(
        &format!("session set-up, {title}"),
        "a bare fork + exec + move",
    );
    // With pauses all of them wait for one grace period of the kernel's, which is nearly all.
    let goal = |max, floor| {
        if pause == "0" {
            Goal::AtMost(max, floor)
        } else {
            Goal::None
        }
    };
    print_row("pam_permit", permit, "us", permit / bare, Goal::None);
    print_row("bare fork + exec + move", bare, "us", 1.0, Goal::None);
    print_row(
        "session",
        session,
        "us",
        session / bare,
        goal(1.4, "the helper is a process too"),
    );
    print_row(
        "account and session",
        both,
        "us",
        both / bare,
        goal(
            1.6,
            "both share one helper, account checks all but the move",
        ),
    );
}
