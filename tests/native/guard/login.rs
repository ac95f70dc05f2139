//! A login's part in it: the second chance.

use super::{ALICE, BOB, guard, is_free, is_guarded, look, on_systemd, slice};
use crate::support::{DENIED, Flags, LOOK, OPENS};

#[test]
fn a_login_opens_its_jobs_gpu_all_the_same() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        guard(node, ALICE).ok();
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let login = node.sshd().ssh(ALICE, LOOK).ok().stands_in(&job.cgroup);
        login.devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)]);
        is_guarded(node, &hers);
        // There is nothing to say where everything is as it should be.
        assert_eq!(node.log.line("decision=adopt").field("guard"), None);
    });
}

#[test]
fn a_login_attaches_what_is_missing() {
    on_systemd(|node| {
        let (hers, his) = (slice(node, ALICE), slice(node, BOB));
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        node.account(ALICE).ok();
        assert_eq!(hers.guards(), [], "the account phase changes nothing");
        let login = node.sshd().ssh(ALICE, LOOK).ok().stands_in(&job.cgroup);
        login.devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)]);
        is_guarded(node, &hers);
        is_free(node, &his);
        assert_eq!(node.log.line("decision=adopt").field("guard"), Some("attached"));
        // By the list that `job-adopt guard` has.
        let first = hers.filters();
        guard(node, ALICE).ok().says("is guarded\n");
        node.session(ALICE).ok();
        assert_eq!(hers.filters(), first);
    });
}

#[test]
fn a_login_puts_an_old_list_right() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        let _job = node.job(ALICE, "4242").start();
        node.configure("guarded = /dev/nvidia1\n");
        guard(node, ALICE).ok();
        node.configure("");
        node.session(ALICE).ok();
        is_guarded(node, &hers);
        assert_eq!(hers.filters().len(), 1);
    });
}

#[test]
fn observing_only_looks() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        let _job = node.job(ALICE, "4242").start();
        node.arguments("observe");
        node.session(ALICE);
        assert_eq!(
            node.log.find("session", |line| line.field("phase") == Some("session")).field("guard"),
            Some("missing")
        );
        is_free(node, &hers);
        guard(node, ALICE).ok();
        node.log.clear();
        node.session(ALICE);
        assert_eq!(
            node.log.find("session", |line| line.field("phase") == Some("session")).field("guard"),
            None
        );
    });
}

#[test]
fn without_a_slice_a_login_goes_on() {
    on_systemd(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        node.sshd().ssh(ALICE, LOOK).ok().stands_in(&job.cgroup);
        assert_eq!(node.cgroup().child("user.slice").children().len(), 0);
        // Nor is there one where systemd is not.
        node.cgroup().child("user.slice").remove();
        node.session(ALICE).ok();
    });
}

#[test]
fn a_login_of_somebody_exempt_attaches_nothing() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        let _job = node.job(ALICE, "4242").start();
        for text in [
            "exempt_uids = 1001\n",
            "exempt_groups = alice\n",
            "flux_user = alice\n",
            "guarded = none\n",
        ] {
            node.configure(text);
            node.session(ALICE).ok();
            assert_eq!(hers.guards(), [], "{text}");
        }
        node.configure("");
        node.session(ALICE).ok();
        is_guarded(node, &hers);
    });
}

/// A login that cannot be guarded would leave a way around its job.
#[test]
fn a_login_is_refused_where_no_guard_can_be_added() {
    for flags in [Flags::None, Flags::Override] {
        on_systemd(|node| {
            let hers = slice(node, ALICE);
            let job = node.job(ALICE, "4242").start();
            hers.attach(flags, "foreign", &["10:200"]);
            node.session(ALICE).failed();
            let line = node.log.decision("JA06");
            assert!(line.text.contains("guard: confine /user.slice/user-1001.slice"), "{line:?}");
            assert_eq!(job.cgroup.pids().len(), 1, "{flags:?}");
            assert_eq!(hers.filters().len(), 1);
        });
    }
}

#[test]
fn what_cannot_be_told_refuses() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        let _job = node.job(ALICE, "4242").start();
        let many: String = (0..130).map(|minor| format!("/dev/char/240:{minor},")).collect();
        node.configure(&format!("guarded = {}\n", many.trim_end_matches(',')));
        node.session(ALICE).failed();
        let line = node.log.decision("JA09");
        assert!(line.text.contains("more than 128 entries"), "{line:?}");
        guard(node, ALICE).exits(3).says("more than 128 entries");
        is_free(node, &hers);
    });
}

/// Processes that were in the slice before the guard keep what they have open, and get nothing new.
#[test]
fn a_guard_is_for_whatever_is_opened_from_then_on() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        look(node, &hers).devices(&[("/dev/nvidia0", OPENS)]);
        let script = "exec 3</dev/null; job-adopt guard --uid 1001 >/dev/null; probe /dev/nvidia0 /dev/null; cat <&3";
        let inside = node.daemon(&hers, "sh").args(["-c", script]).output().unwrap();
        let said = String::from_utf8(inside.stdout).unwrap();
        assert_eq!(said, "/dev/nvidia0 EPERM\n/dev/null ok\n");
    });
}
