//! Whose slice is not guarded.

use super::{ALICE, BOB, guard, is_free, is_guarded, look, on_systemd, slice};
use crate::support::{DENIED, LOOK, Node, OPENS, OPS, Outcome};

/// A slice that is not guarded, and not any more where it was.
fn is_spared(node: &Node, user: crate::support::User, why: &str) {
    let cgroup = slice(node, user);
    guard(node, user).ok().says("not guarded").says(why);
    is_free(node, &cgroup);
    node.configure("");
    guard(node, user).ok();
    is_guarded(node, &cgroup);
}

/// Nothing that is broken may keep root from logging in.
#[test]
fn root_is_never_guarded() {
    on_systemd(|node| {
        let cgroup = node.cgroup().child("user.slice").child("user-0.slice");
        cgroup.create();
        node.configure("nonsense\n");
        node.sh("rm /proc/devices 2>/dev/null; umount /proc/devices; job-adopt guard --uid 0")
            .ok()
            .says("root's slice is never guarded");
        node.job_adopt(&["guard", "--user", "root"]).ok();
        is_free(node, &cgroup);
    });
}

#[test]
fn exempt_users_are_not_guarded() {
    on_systemd(|node| {
        node.configure("exempt_uids = 7, 1001\n");
        guard(node, BOB).ok();
        is_guarded(node, &{
            slice(node, BOB);
            guard(node, BOB).ok();
            slice(node, BOB)
        });
        is_spared(node, ALICE, "exempt_uids");
        // And the guard goes when somebody becomes exempt.
        node.configure("exempt_uids = 1001\n");
        node.job_adopt(&["guard", "--all"]).ok().says("user-1001.slice: is not guarded any more");
        is_free(node, &slice(node, ALICE));
    });
}

#[test]
fn exempt_groups_are_not_guarded() {
    on_systemd(|node| {
        node.configure("exempt_groups = no-such-group, ops\n");
        slice(node, ALICE);
        guard(node, ALICE).ok();
        is_guarded(node, &slice(node, ALICE));
        is_spared(node, OPS, "group ops");
        // The primary group counts as well.
        node.configure("exempt_groups = alice\n");
        is_spared(node, ALICE, "group alice");
    });
}

#[test]
fn flux_is_not_guarded() {
    on_systemd(|node| {
        node.configure("flux_user = bob\n");
        slice(node, ALICE);
        guard(node, ALICE).ok();
        is_guarded(node, &slice(node, ALICE));
        is_spared(node, BOB, "flux_user");
    });
}

#[test]
fn nothing_is_guarded_where_the_site_says_so() {
    on_systemd(|node| {
        slice(node, ALICE);
        for text in ["guarded = none\n", "enforce = if-exists:/no/such/path\n"] {
            node.configure(text);
            is_spared(node, ALICE, "");
            node.job_adopt(&["guard", "--remove", "--all"]).ok();
        }
        node.write("/run/job-adopt/off", "");
        guard(node, ALICE).ok().says("not guarded: /run/job-adopt/off is there");
        is_free(node, &slice(node, ALICE));
    });
}

fn register(node: &Node, cgroup: &str) -> Outcome {
    let job = ["register", "--id", "4242", "--user", "alice", "--device", "/dev/nvidia0"];
    node.job_adopt(&[&job[..], &["--cgroup", cgroup]].concat())
}

/// Below the slice, deeper below it, and the slice itself.
#[test]
fn a_slice_with_a_job_is_not_guarded() {
    for below in [&["site-job-4242.scope"][..], &["user@1001.service", "job.scope"], &[]] {
        on_systemd(|node| {
            let hers = slice(node, ALICE);
            guard(node, ALICE).ok();
            let cgroup = below.iter().fold(hers.clone(), |cgroup, name| {
                let child = cgroup.child(name);
                child.create();
                child
            });
            let job = node.job(ALICE, "4242").unstamped().unrecorded().in_cgroup(cgroup).start();
            register(node, job.cgroup.path()).ok().says("warning: took the guard off");
            assert_eq!(hers.guards(), []);
            guard(node, ALICE).ok().says("not guarded: it holds the cgroup of job 4242");
            assert_eq!(hers.guards(), []);
            let gpus = [("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)];
            node.probe_in(&job.cgroup).devices(&gpus);
            let login = node.sshd().ssh(ALICE, LOOK).ok();
            login.stands_in(&job.cgroup).devices(&gpus);
            assert_eq!(hers.guards(), [], "the login attached it");
            node.job_adopt(&["unregister", "4242"]).ok();
            guard(node, ALICE).ok().says("is guarded now");
            // The job's own filter stays where it is, so that this tells them apart.
            look(node, &hers).devices(&[("/dev/nvidia0", DENIED), ("/dev/null", "ok")]);
        });
    }
}

/// A guard is no filter of the job's, wherever it stands.
#[test]
fn a_guard_is_no_containment_of_a_job() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        let cgroup = hers.child("job.scope");
        cgroup.create();
        let auto = serde_json::json!({ "DevicePolicy": "auto" });
        let job = node.job(ALICE, "4242").with("options", auto).unstamped();
        let job = job.in_cgroup(cgroup).start();
        guard(node, ALICE).ok();
        job.stamp("1001:4242");
        node.session_alone("require_devices");
        node.session(ALICE).failed();
        node.log.decision("JA06");
        // One that is in a job's way, however it got there, is taken off.
        guard(node, ALICE).ok().says("not guarded: it holds the cgroup of job 4242");
        is_free(node, &hers);
        // Nor is it one on the job itself.
        let service = node.cgroup().child("system.slice").create().child("a.service");
        service.create();
        node.job_adopt(&["guard", "--service", "a.service"]).ok();
        let auto = serde_json::json!({ "DevicePolicy": "auto" });
        let other = node.job(BOB, "4243").with("options", auto).in_cgroup(service).start();
        node.log.clear();
        node.session(BOB).failed();
        node.log.decision("JA06");
        assert_eq!(other.cgroup.guards().len(), 1);
    });
}

/// Whichever comes first, the job is not in a guarded slice afterwards.
#[test]
fn a_job_that_is_registered_meanwhile_is_not_guarded() {
    on_systemd(|node| {
        let hers = slice(node, ALICE);
        let cgroup = hers.child("job.scope");
        cgroup.create();
        let job = node.job(ALICE, "4242").unstamped().unrecorded().in_cgroup(cgroup).start();
        for round in 0..40 {
            let both = format!(
                "job-adopt guard --remove --all; job-adopt guard --all & guard=$!
                 job-adopt register --id 4242 --user alice --policy closed --cgroup {} 2>/dev/null &
                 wait $guard && wait $!",
                job.cgroup.path()
            );
            node.sh(&both).ok();
            assert_eq!(hers.guards(), [], "round {round}");
            node.job_adopt(&["unregister", "4242"]).ok();
        }
    });
}
