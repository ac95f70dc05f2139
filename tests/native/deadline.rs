//! A login ends at its deadline, whatever does not answer.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use protocol::Verdict;

use crate::helper::admitting_reply;
use crate::support::{ALICE, Fake, Job, Node, Tool, eventually, on_node, retry_until_in_time};

/// A budget of 3 s, and the time of the login itself.
const LIMIT: Duration = Duration::from_millis(4900);
/// A budget of 1 s, which is waited out, and the time of the refusal itself.
const REFUSAL_LIMIT: Duration = Duration::from_millis(2900);
/// Detail lines that one login may log beside its decision.
const DETAILS: usize = 16;

/// Starts a job for which the helper's reply has that many missing devices, as for a scheduler's own list. The log names
/// each of them.
fn start_job_with_missing_devices(node: &Node, devices: usize) -> Job<'_> {
    let job = node.job(ALICE, "4242").start();
    let mut reply = admitting_reply("4242", &job.cgroup);
    if let Verdict::Admit(plan) = &mut reply.verdict {
        let missing = (0..devices).map(|number| format!("/dev/nosuch{number} rw: no such device"));
        plan.dropped = missing.collect();
    }
    Fake::new().answers(&reply).install(node);
    job
}

#[test]
fn unread_log_delays_no_login() {
    on_node(|node| {
        let _job = start_job_with_missing_devices(node, 256);
        node.arguments("timeout=3");
        let _unread = UnixDatagram::bind(node.path("/dev/log.unread")).unwrap();
        node.sh("chmod 666 /dev/log.unread; mv /dev/log.unread /dev/log")
            .ok();
        for phase in [Node::account, Node::session] {
            retry_until_in_time(LIMIT, || phase(node, ALICE)).ok();
        }
    });
}

#[test]
fn decision_is_logged_first_with_few_details() {
    on_node(|node| {
        let _job = start_job_with_missing_devices(node, 40);
        for phase in [Node::account, Node::session] {
            node.log.clear();
            phase(node, ALICE).ok();
            node.log.line(&format!("and {} more", 40 - DETAILS));
            let lines = node.log.entries();
            let about = |text: &str| lines.iter().position(|entry| entry.text.contains(text));
            assert!(about("decision=") < about("/dev/nosuch"), "{}", node.log);
            let details = lines
                .iter()
                .filter(|entry| entry.text.contains("/dev/nosuch"))
                .count();
            assert_eq!(details, DETAILS, "{}", node.log);
        }
    });
}

#[test]
fn stopped_helper_refuses_login_in_time() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.arguments("timeout=1");
        let stop = u64::try_from(nix::libc::SIGSTOP).unwrap();
        Fake::new()
            .verb("deaf", 0)
            .verb("raise", stop)
            .install(node);
        let before = node.processes().len();
        for phase in [Node::account, Node::session] {
            retry_until_in_time(REFUSAL_LIMIT, || phase(node, ALICE)).fails();
        }
        node.account(ALICE).fails().says("[JA08]");
        eventually("nothing is left", || node.processes().len() == before);
    });
}

/// The helper's look for its configuration sleeps in a way that no signal ends.
#[test]
fn unkillable_helper_refuses_login_in_time() {
    on_node(|node| {
        node.install(&Tool::StuckFs.path(), "/usr/bin/stuckfs");
        node.create_dir("/dev/stuck", 0o755);
        let _job = node.job(ALICE, "4242").start();
        node.arguments("timeout=1 conf=/dev/stuck/conf");
        let before = node.processes().len();
        let mut stuckfs = node
            .daemon(&node.outside(), "stuckfs")
            .arg("/dev/stuck")
            .spawn()
            .unwrap();
        eventually("it is mounted", || {
            node.read("/proc/1/mounts").contains(" /dev/stuck fuse ")
        });
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| send.send(retry_until_in_time(REFUSAL_LIMIT, || node.account(ALICE))));
            let outcome = receive.recv_timeout(Duration::from_secs(60));
            // The end of the file system frees everything that waits for it.
            node.sh("umount --force --lazy /dev/stuck").ok();
            let outcome = outcome.expect("the login waits for the helper's end");
            outcome.fails().says("[JA08]");
        });
        eventually("nothing is left", || {
            stuckfs.try_wait().unwrap().is_some() && node.processes().len() == before
        });
    });
}
