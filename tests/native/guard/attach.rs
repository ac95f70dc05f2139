//! How it is attached, replaced and taken off.

use super::{ALICE, BOB, guard, is_free, is_guarded, look, names, on_systemd, slice};
use crate::support::{DENIED, Flags, OPENS};

#[test]
fn nothing_in_a_users_slice_opens_a_guarded_device() {
    on_systemd(|node| {
        let (hers, his) = (slice(node, ALICE), slice(node, BOB));
        let manager = hers.child("user@1001.service");
        manager.create().child("app.slice").create();
        is_free(node, &hers);
        guard(node, ALICE).ok().says("/user.slice/user-1001.slice: is guarded now");
        is_guarded(node, &hers);
        is_guarded(node, &manager.child("app.slice"));
        is_free(node, &his);
        let line = node.log.line("action=guard");
        assert_eq!(line.field("uid"), Some("1001"));
        assert_eq!(line.field("cgroup"), Some("/user.slice/user-1001.slice"));
    });
}

#[test]
fn a_hundred_calls_leave_one_program() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        guard(node, ALICE).ok();
        let first = hers.filters();
        assert_eq!(first.len(), 1, "{first:?}");
        assert!(first[0].is_guard() && first[0].flags == Flags::Multi, "{first:?}");
        node.sh("for n in $(seq 100); do job-adopt guard --uid 1001 || exit; done").ok();
        assert_eq!(hers.filters(), first);
        guard(node, ALICE).ok().says("is guarded\n");
    });
}

#[test]
fn calls_at_once_leave_one_program() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        let all = "for n in $(seq 24); do job-adopt guard --all & pids=\"$pids $!\"; done
                   for pid in $pids; do wait $pid || exit; done";
        node.sh(all).ok();
        assert_eq!(hers.filters().len(), 1, "{:?}", hers.filters());
        is_guarded(node, &hers);
    });
}

#[test]
fn another_list_takes_the_place_of_the_first() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        guard(node, ALICE).ok();
        let before = hers.filters();
        node.configure("guarded = /dev/nvidia1, /dev/none\n");
        guard(node, ALICE).ok().says("warning: guarded: /dev/none rw is left out");
        let after = hers.filters();
        assert_eq!(after.len(), 1, "{after:?}");
        assert_ne!(before[0].name, after[0].name);
        let found = node.probe_in(&hers);
        found.devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)]);
        // A driver that is loaded later has numbers that no list had.
        node.configure("");
        node.load_drivers(511);
        guard(node, ALICE).ok();
        look(node, &hers).devices(&[("/dev/nvidia-uvm", DENIED), ("/dev/nvidia0", DENIED)]);
        assert_eq!(hers.filters().len(), 1);
    });
}

#[test]
fn it_can_be_taken_off_even_by_a_broken_configuration() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        guard(node, ALICE).ok();
        node.configure("no_such_key = 1\n");
        let remove = ["guard", "--remove", "--user", "alice"];
        node.job_adopt(&remove).ok().says("is not guarded any more");
        is_free(node, &hers);
        node.job_adopt(&remove).ok();
        let line = node.log.line("action=unguard");
        assert_eq!(line.field("uid"), Some("1001"));
    });
}

#[test]
fn all_means_the_slices_that_are_there() {
    on_systemd(|node| {
        node.job_adopt(&["guard", "--all"]).ok().says("no user has a slice here");
        let (hers, his) = (slice(node, ALICE), slice(node, BOB));
        let users = node.cgroup().child("user.slice");
        let roots = users.child("user-0.slice").create().clone();
        let odd = users.child("user-01.slice").create().clone();
        node.job_adopt(&["guard", "--all"]).ok();
        is_guarded(node, &hers);
        is_guarded(node, &his);
        for other in [roots, odd, users] {
            is_free(node, &other);
        }
    });
}

#[test]
fn a_slice_that_is_not_there_is_nothing_to_guard() {
    on_systemd(|node| {
        guard(node, ALICE).ok().says("does not exist (nobody is logged in): nothing to guard");
        let mistyped = node.job_adopt(&["guard", "--uid", "10011"]);
        mistyped.ok().says("does not exist (no user has that number): nothing to guard");
        assert_eq!(node.cgroup().child("user.slice").children().len(), 0);
    });
}

#[test]
fn a_service_can_be_guarded_too() {
    on_systemd(|node| {
        let cron = node.cgroup().child("system.slice").create().child("cron.service");
        let service = ["guard", "--service", "cron.service"];
        node.job_adopt(&service).exits(1).says("does not exist (it is not running, or in another");
        cron.create();
        node.job_adopt(&service).ok();
        is_guarded(node, &cron);
        for name in ["cron", "../cron.service", ".service", "a/b.service", "x.slice"] {
            node.job_adopt(&["guard", "--service", name]).exits(2);
        }
        node.job_adopt(&["guard", "--remove", "--service", "cron.service"]).ok();
        is_free(node, &cron);
    });
}

/// systemd's own, of `DeviceAllow=` of the unit, goes on beside it.
#[test]
fn filters_of_others_stay_in_force() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        hers.attach(Flags::Multi, "sd_devices", &["10:200"]);
        guard(node, ALICE).ok();
        assert_eq!((hers.filters().len(), hers.guards().len()), (2, 1));
        let found = look(node, &hers);
        found.devices(&[("/dev/net_tun", DENIED), ("/dev/nvidia0", DENIED), ("/dev/null", "ok")]);
        node.job_adopt(&["guard", "--remove", "--all"]).ok();
        assert_eq!(names(&hers.filters()), ["sd_devices"]);
    });
}

/// Attaching below an overridable filter would switch it off; its program is pinned first.
#[test]
fn an_override_filter_above_is_pinned() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        node.cgroup().child("user.slice").attach(Flags::Override, "foreign", &["10:200"]);
        guard(node, ALICE).ok();
        assert_eq!((hers.filters().len(), hers.guards().len()), (2, 1));
        guard(node, ALICE).ok();
        assert_eq!(hers.filters().len(), 2);
        let found = look(node, &hers);
        found.devices(&[("/dev/net_tun", DENIED), ("/dev/nvidia0", DENIED), ("/dev/null", "ok")]);
        node.job_adopt(&["guard", "--remove", "--all"]).ok();
        assert_eq!(hers.filters(), [], "the pin stayed");
        look(node, &hers).devices(&[("/dev/net_tun", DENIED), ("/dev/nvidia0", OPENS)]);
    });
}

#[test]
fn where_no_filter_can_be_added_it_says_so() {
    for flags in [Flags::None, Flags::Override] {
        on_systemd(|node| {
            let (hers, his) = (slice(node, ALICE), slice(node, BOB));
            hers.attach(flags, "foreign", &["10:200"]);
            guard(node, ALICE).exits(1).says("lets no other be added");
            assert_eq!(names(&hers.filters()), ["foreign"], "{flags:?}");
            // Nobody else's is left out for it.
            node.job_adopt(&["guard", "--all"]).exits(1);
            is_guarded(node, &his);
        });
    }
}

#[test]
fn inspection_names_it() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        guard(node, ALICE).ok();
        let found = node.job_adopt(&["devices", "--cgroup", hers.path()]).ok();
        let line = found.stdout.lines().find(|line| line.contains("jg_")).unwrap().to_owned();
        assert!(line.contains(" guard ") && line.contains(hers.path()), "{line}");
    });
}

#[test]
fn what_cannot_be_told_guards_nothing() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        node.configure("guarded = nonsense\n");
        guard(node, ALICE).exits(3).says("guarded");
        is_free(node, &hers);
        node.configure("");
        node.sh("setpriv --reuid 1001 job-adopt guard --uid 1001").exits(3).says("root");
        for wrong in [&["guard"][..], &["guard", "--uid", "x"], &["guard", "--all", "--uid", "5"]] {
            node.job_adopt(wrong).exits(2);
        }
        is_free(node, &hers);
    });
}

/// Users own the inside of their service manager's cgroup, and how deep it is.
#[test]
fn no_depth_of_a_slice_keeps_it_from_being_guarded() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        let script = format!(
            "cd /sys/fs/cgroup{} && for n in $(seq 300); do mkdir \u{1b}c && cd \u{1b}c || exit; done",
            hers.path()
        );
        node.sh(&script).ok();
        let all = node.sh("ulimit -n 256; job-adopt guard --all").ok();
        let all = all.says("warning: ").says("is guarded now");
        assert!(!all.output().contains('\u{1b}'), "{all}");
        is_guarded(node, &hers);
    });
}
