//! The guard of users' slices: what of a user's is in no job opens no guarded device.

mod attach;
mod login;
mod spared;

use crate::support::{
    ALICE, Attached, BOB, Cgroup, DENIED, Mount, Node, OPENS, Outcome, User, on_node_with,
};

/// Runs `body` on a node whose `/user.slice` is its own, with NVIDIA's and AMD's drivers.
fn on_systemd(body: impl FnOnce(&Node)) {
    on_node_with(Mount::Namespace, |node| {
        node.load_drivers(510);
        node.sh("mknod -m 666 /dev/kfd c 238 0; mknod -m 666 /dev/dri/card0 c 226 0
             mknod -m 666 /dev/net_tun c 10 200; mkdir /dev/accel
             mknod -m 666 /dev/accel/accel0 c 261 0; mkdir /dev/nvidia-caps
             mknod -m 666 /dev/nvidia-caps/nvidia-cap1 c 235 1")
            .ok();
        node.cgroup().child("user.slice").create();
        body(node);
    });
}

/// The slice that systemd makes for a user's first session.
fn slice(node: &Node, user: User) -> Cgroup {
    let slice = node.cgroup().child("user.slice").child(&format!("user-{}.slice", user.uid));
    if !slice.exists() {
        slice.create();
    }
    slice
}

/// `job-adopt guard` of a user's slice.
fn guard(node: &Node, user: User) -> Outcome {
    node.job_adopt(&["guard", "--uid", &user.uid.to_string()])
}

const GUARDED: [&str; 8] = [
    "/dev/nvidia0",
    "/dev/nvidia3",
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-caps/nvidia-cap1",
    "/dev/dri/renderD128",
    "/dev/kfd",
    "/dev/accel/accel0",
];
const OTHERS: [&str; 6] =
    ["/dev/null", "/dev/full", "/dev/net_tun", "/dev/dri/card0", "/dev/fuse", "/dev/loop0"];

/// What a process in that cgroup can open of all of them.
fn look(node: &Node, cgroup: &Cgroup) -> Outcome {
    Outcome::of(node.daemon(cgroup, "probe").args(GUARDED).args(OTHERS)).ok()
}

/// Asserts that nothing guarded opens in that cgroup, and everything else as outside of it.
#[track_caller]
fn is_guarded(node: &Node, cgroup: &Cgroup) {
    let (inside, outside) = (look(node, cgroup), look(node, &node.outside()));
    for device in GUARDED {
        assert_eq!(outside.device(device), OPENS, "{outside}");
        assert_eq!(inside.device(device), DENIED, "{inside}");
    }
    for device in OTHERS {
        assert_eq!(inside.device(device), outside.device(device), "{device}: {inside}");
    }
}

/// Asserts that everything opens in that cgroup as outside of it, and no guard is there.
#[track_caller]
fn is_free(node: &Node, cgroup: &Cgroup) {
    assert_eq!(cgroup.guards(), []);
    assert_eq!(look(node, cgroup).stdout, look(node, &node.outside()).stdout);
}

fn names(filters: &[Attached]) -> Vec<&str> {
    filters.iter().map(|filter| filter.name.as_str()).collect()
}
