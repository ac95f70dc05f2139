//! The drop-ins of `job-adopt enable`, and jobs in the slices that they close.

use crate::support::{ALICE, BOB, CAROL, Flags, Mount, Node, OPS, Outcome, on_node, on_node_with};

fn register_job(node: &Node, cgroup: &str) -> Outcome {
    let job = [
        "register",
        "--id",
        "4242",
        "--user",
        "alice",
        "--device",
        "/dev/nvidia0",
    ];
    node.job_adopt(&[&job[..], &["--cgroup", cgroup]].concat())
}

/// Cgroups directly in the slice and deeper. The filter is on the slice, as with systemd.
#[test]
fn job_in_closed_slice_is_not_registered() {
    for below in [
        &[][..],
        &["site-job-4242.scope"],
        &["user@1001.service", "job.scope"],
    ] {
        on_node_with(Mount::Namespace, |node| {
            let hers = node
                .cgroup()
                .child("user.slice")
                .create()
                .child("user-1001.slice");
            hers.create();
            let cgroup = below.iter().fold(hers.clone(), |cgroup, name| {
                let child = cgroup.child(name);
                child.create();
                child
            });
            let job = node
                .job(ALICE, "4242")
                .unstamped()
                .unrecorded()
                .in_cgroup(cgroup)
                .start();
            register_job(node, job.cgroup.path()).ok();
            node.unregister("4242").ok();
            hers.attach(Flags::Multi, "sd_devices", &["195:0"]);
            let refused = register_job(node, job.cgroup.path());
            refused
                .exits(3)
                .says("/user.slice/user-1001.slice")
                .says("systemd refuses devices");
            assert!(!node.job_adopt(&["list"]).ok().stdout.contains("4242"));
            let stamp = format!(
                "getfattr -n trusted.job_adopt /sys/fs/cgroup{}",
                job.cgroup.path()
            );
            node.sh(&stamp).fails().says("No such attribute");
        });
    }
}

const CLOSE: [&str; 3] = ["enable", "--only", "slices,bus"];

#[test]
fn drop_ins_are_shown_and_written_once() {
    on_node(|node| {
        node.configure("always_allowed = /dev/loop0 r\nexempt_uids = 1002\nexempt_groups = ops\n");
        let shown = node.job_adopt(&[&CLOSE[..], &["--dry-run"]].concat()).ok();
        shown
            .says("slices: create /etc/systemd/system/user-.slice.d/job-adopt.conf\n")
            .says("\n  + DevicePolicy=closed\n")
            .says("\n  + DeviceAllow=/dev/loop0 r\n")
            .says("slices: create /etc/systemd/system/user-1002.slice.d/job-adopt.conf\n")
            .says("bus: create /etc/dbus-1/system.d/job-adopt.conf\n")
            .says("(--dry-run)");
        node.sh("! test -e /etc/systemd/system/user-.slice.d").ok();
        let made = node.job_adopt(&CLOSE).ok();
        made.says("slices: create /etc/systemd/system/user-.slice.d/job-adopt.conf\n");
        node.sh(
            "grep 'opsuser: in the group ops' /etc/systemd/system/user-*.slice.d/job-adopt.conf",
        )
        .ok();
        let again = node.job_adopt(&CLOSE).ok();
        assert_eq!(again.stdout, "unchanged: the node is as asked\n");
        node.job_adopt(&["disable", "--only", "slices,bus"])
            .ok()
            .says("slices: remove /etc/systemd/system/user-1002.slice.d/job-adopt.conf\n");
        node.sh("! ls -d /etc/systemd/system/user-*.slice.d /etc/dbus-1/system.d/job-adopt.conf")
            .ok();
    });
}

/// Another file may exempt other users, or leave the node out by `enforce`.
#[test]
fn slices_close_by_the_configuration_of_the_lines() {
    on_node(|node| {
        node.configure("exempt_uids = 1002\n");
        node.write("/etc/site.conf", "exempt_uids = 1003\n");
        node.create_dir("/etc/dbus-1/system.d", 0o755);
        let exempt = "/etc/systemd/system/user-1003.slice.d/job-adopt.conf";
        let enable = ["enable", "--arguments", "conf=/etc/site.conf"];
        node.job_adopt(&enable).ok();
        assert!(node.exists(exempt));
        assert!(!node.exists("/etc/systemd/system/user-1002.slice.d"));
        // So it is if the lines are there already, and left out.
        node.job_adopt(&["disable", "--only", "slices,bus"]).ok();
        node.job_adopt(&CLOSE).ok();
        assert!(node.exists(exempt));
        let default_conf = "--conf=/etc/security/job_adopt.conf";
        for words in [&CLOSE[..], &["enable"]] {
            node.job_adopt(&[words, &[default_conf]].concat())
                .exits(3)
                .says("enable by /etc/security/job_adopt.conf: logins use /etc/site.conf: leave --conf out, or");
        }
        let conf = "--conf=/etc/site.conf";
        let again = node.job_adopt(&[&CLOSE[..], &[conf]].concat()).ok();
        assert_eq!(again.stdout, "unchanged: the node is as asked\n");
        // Without lines there is no other one.
        node.job_adopt(&["disable"]).ok();
        node.job_adopt(&[&CLOSE[..], &[conf]].concat()).ok();
        assert!(node.exists(exempt));
    });
}

/// An image has a configuration of its own.
#[test]
fn image_is_enabled_and_disabled_without_the_node() {
    on_node(|node| {
        node.create_dir("/run/image", 0o755);
        let image = |command: &'static str| [command, "--root", "/run/image"];
        node.sh(&format!(
            "mkdir -p /run/image/etc/security /run/image$(dirname {0}) /run/image/usr/lib/systemd/system
             cp -r /etc/pam.d /run/image/etc/
             cp {0} $(dirname {0})/pam_permit.so /run/image$(dirname {0})/
             touch '/run/image/usr/lib/systemd/system/run-job\\x2dadopt-use.mount'
             echo 'exempt_uids = 1003' >/run/image/etc/security/job_adopt.conf
             printf 'account required pam_permit.so\\nsession required pam_permit.so\\n' >/run/image/etc/pam.d/sshd
             cp -r /run/image /run/before",
            node.module()
        ))
        .ok();
        node.job_adopt(&image("enable"))
            .ok()
            .says("pam: change /etc/pam.d/sshd")
            .says("mount: create /etc/systemd/system/local-fs.target.wants/run-job");
        node.sh("grep pam_job_adopt /run/image/etc/pam.d/sshd
                 ls /run/image/etc/systemd/system/user-1003.slice.d/job-adopt.conf
                 readlink /run/image/etc/systemd/system/local-fs.target.wants/*
                 ! ls /etc/systemd/system/user-.slice.d")
            .ok();
        node.job_adopt(&image("enable")).ok().says("unchanged");
        node.job_adopt(&image("disable")).ok();
        node.sh("find /run/image/etc /run/before/etc -type d -empty -delete
                 diff -r /run/image/etc /run/before/etc")
            .ok();
    });
}

/// A closed slice stays closed.
#[test]
fn unresolvable_name_writes_nothing() {
    on_node(|node| {
        node.job_adopt(&CLOSE).ok();
        let before = node
            .sh("cat /etc/systemd/system/user-.slice.d/job-adopt.conf")
            .ok()
            .stdout;
        for text in [
            "always_allowed = /dev/none",
            "exempt_groups = no-such-group",
            "nonsense",
        ] {
            node.configure(text);
            node.job_adopt(&CLOSE).exits(3);
        }
        node.configure("always_allowed = /dev/null, /dev/none");
        node.job_adopt(&CLOSE).exits(3).says("/dev/none");
        let after = node
            .sh("cat /etc/systemd/system/user-.slice.d/job-adopt.conf")
            .ok()
            .stdout;
        assert_eq!(before, after);
    });
}

/// They name operators once, in whichever line lets them in; bob is in the group `bob` as his primary one.
#[test]
fn slices_of_those_whom_the_lines_exempt_stay_open() {
    on_node(|node| {
        let other = "session required pam_job_adopt.so service=sshd-ops exempt_groups=bob\n";
        node.write("/etc/pam.d/sshd-ops", other);
        let drop_in = |uid: u32| format!("/etc/systemd/system/user-{uid}.slice.d/job-adopt.conf");
        let arguments = "exempt_groups=ops exempt_uids=0,1003";
        node.job_adopt(&["enable", "--arguments", arguments]).ok();
        for uid in [BOB.uid, CAROL.uid, OPS.uid] {
            assert!(node.exists(&drop_in(uid)), "{uid}");
        }
        assert!(!node.exists(&drop_in(ALICE.uid)));
        // By themselves, slices close by the lines that are there.
        let again = node.job_adopt(&CLOSE).ok();
        assert_eq!(again.stdout, "unchanged: the node is as asked\n");
        // A planned line takes the place of the one that is there.
        node.job_adopt(&["enable", "--arguments", "exempt_uids=0"])
            .ok();
        let left = [BOB, CAROL, OPS].map(|user| node.exists(&drop_in(user.uid)));
        assert_eq!(left, [true, false, false]);
    });
}

/// bob is in the group `bob` as his primary one, which lists no member.
#[test]
fn groups_of_the_file_have_the_members_that_a_login_counts() {
    on_node(|node| {
        node.configure("exempt_groups = bob\n");
        node.job_adopt(&CLOSE).ok();
        assert!(node.exists("/etc/systemd/system/user-1002.slice.d/job-adopt.conf"));
    });
}
