//! `job-adopt slices`, and jobs in the slices that its drop-ins close.

use crate::support::{ALICE, Flags, Mount, Node, Outcome, on_node, on_node_with};

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
                "getfattr -n trusted.job_adopt {}",
                job.cgroup.dir().display()
            );
            node.sh(&stamp).fails();
        });
    }
}

#[test]
fn drop_ins_are_shown_and_written_once() {
    on_node(|node| {
        node.configure("always_allowed = /dev/loop0 r\nexempt_uids = 1002\nexempt_groups = ops\n");
        let shown = node.job_adopt(&["slices"]).ok();
        shown
            .says("# /etc/systemd/system/user-.slice.d/job-adopt.conf\n")
            .says("\nDevicePolicy=closed\n")
            .says("\nDeviceAllow=/dev/loop0 r\n")
            .says("# /etc/systemd/system/user-1002.slice.d/job-adopt.conf\n")
            .says("opsuser: in the group ops");
        node.sh("! test -e /etc/systemd/system/user-.slice.d").ok();
        node.create_dir("/run/image", 0o755);
        let write = ["slices", "--write", "--root", "/run/image"];
        node.job_adopt(&write)
            .ok()
            .says("create ")
            .says("/etc/dbus-1/system.d/job-adopt.conf")
            .says("systemctl daemon-reload");
        node.sh("grep -x 'DeviceAllow=/dev/loop0 r' \
                 /run/image/etc/systemd/system/user-.slice.d/job-adopt.conf
                 ls /run/image/etc/systemd/system/user-0.slice.d/job-adopt.conf")
            .ok();
        assert_eq!(node.job_adopt(&write).ok().stdout, "");
    });
}

/// A closed slice stays closed.
#[test]
fn unresolvable_name_writes_nothing() {
    on_node(|node| {
        node.job_adopt(&["slices", "--write"]).ok();
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
            node.job_adopt(&["slices", "--write"]).exits(3);
        }
        node.configure("always_allowed = /dev/null, /dev/none");
        node.job_adopt(&["slices", "--write"])
            .exits(3)
            .says("/dev/none");
        let after = node
            .sh("cat /etc/systemd/system/user-.slice.d/job-adopt.conf")
            .ok()
            .stdout;
        assert_eq!(before, after);
    });
}
