//! A login is over when its time is, whatever does not answer.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::support::{ALICE, Fake, Job, Node, Tool, eventually, on_node, retry_until_in_time};

/// Of a budget of 3 s, with what the refusal itself takes.
const LIMIT: Duration = Duration::from_millis(4900);
/// Lines that one login may add to its decision.
const DETAILS: usize = 16;

/// A job that asks for that many devices which are not there, each of which is to be named.
fn talkative(node: &Node, devices: usize) -> Job<'_> {
    let devices: Vec<String> = (0..devices).map(|number| format!("/dev/nosuch{number}")).collect();
    let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
    node.job(ALICE, "4242").devices(&devices).start()
}

#[test]
fn a_log_that_nobody_reads_holds_nobody_up() {
    on_node(|node| {
        let _job = talkative(node, 256);
        node.arguments("timeout=3");
        let _unread = UnixDatagram::bind(node.path("/dev/log.unread")).unwrap();
        node.sh("chmod 666 /dev/log.unread; mv /dev/log.unread /dev/log").ok();
        for phase in [Node::account, Node::session] {
            retry_until_in_time(LIMIT, || phase(node, ALICE)).ok();
        }
    });
}

#[test]
fn the_decision_comes_first_and_details_are_few() {
    on_node(|node| {
        let _job = talkative(node, 40);
        for phase in [Node::account, Node::session] {
            node.log.clear();
            phase(node, ALICE).ok();
            node.log.line(&format!("and {} more", 40 - DETAILS));
            let lines = node.log.entries();
            let about = |text: &str| lines.iter().position(|entry| entry.text.contains(text));
            assert!(about("decision=") < about("/dev/nosuch"), "{}", node.log);
            let details = lines.iter().filter(|entry| entry.text.contains("/dev/nosuch")).count();
            assert_eq!(details, DETAILS, "{}", node.log);
        }
    });
}

#[test]
fn a_helper_that_has_stopped_is_given_up() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.arguments("timeout=3");
        let stop = u64::try_from(nix::libc::SIGSTOP).unwrap();
        Fake::new().verb("deaf", 0).verb("raise", stop).install(node);
        let before = node.processes().len();
        for phase in [Node::account, Node::session] {
            retry_until_in_time(LIMIT, || phase(node, ALICE)).fails();
        }
        node.account(ALICE).fails().says("[JA08]");
        eventually("nothing is left", || node.processes().len() == before);
    });
}

/// A look at the device puts the helper into a sleep that no signal ends.
#[test]
fn a_helper_that_cannot_be_killed_is_given_up() {
    on_node(|node| {
        node.install(&Tool::StuckFs.path(), "/usr/bin/stuckfs");
        node.folder("/dev/stuck", 0o755);
        let _job = node.job(ALICE, "4242").devices(&["/dev/stuck/gpu"]).start();
        node.arguments("timeout=3");
        let before = node.processes().len();
        let mut stuckfs =
            node.daemon(&node.outside(), "stuckfs").arg("/dev/stuck").spawn().unwrap();
        eventually("it is mounted", || node.read("/proc/1/mounts").contains(" /dev/stuck fuse "));
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| send.send(retry_until_in_time(LIMIT, || node.account(ALICE))));
            let outcome = receive.recv_timeout(Duration::from_secs(60));
            // Its end lets go of whoever waits for it.
            node.sh("umount --force --lazy /dev/stuck").ok();
            let outcome = outcome.expect("the login waits for the helper's end");
            outcome.fails().says("[JA08]");
        });
        eventually("nothing is left", || {
            stuckfs.try_wait().unwrap().is_some() && node.processes().len() == before
        });
    });
}
