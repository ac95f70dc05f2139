//! Sockets and directories that another account could have made: the module trusts none of them.

use std::os::unix::fs::{chown, symlink};
use std::os::unix::net::UnixListener;

use protocol::{Containment, Placement};

use crate::support::{ALICE, BOB, LOOK, Node, SLURM, SPOOL, on_node, plan};

const SOCKET: &str = "/var/spool/slurmd/gpu017_4242.4294967292";

/// Asserts that both phases refuse for the node's configuration, and that the log has this reason.
#[track_caller]
fn assert_distrusted(node: &Node, why: &str) {
    for refused in [node.account(ALICE), node.session(ALICE)] {
        refused.fails().says("JA09");
    }
    node.log.line(why);
}

#[test]
fn daemon_of_another_user_refuses_login() {
    on_node(|node| {
        let _step = node.step(ALICE, &["user", "1001"]);
        assert_distrusted(node, "who listens there is uid 1001, not root");
    });
}

#[test]
fn socket_of_user_refuses_login() {
    on_node(|node| {
        node.create_dir(SPOOL, 0o755);
        node.answers(&plan(Containment::None));
        let _listener = UnixListener::bind(node.path(SOCKET)).unwrap();
        chown(node.path(SOCKET), Some(ALICE.uid), Some(ALICE.uid)).unwrap();
        assert_distrusted(node, "is no socket of root's");
    });
}

/// A daemon creates its socket, and opens it to all users a moment later.
#[test]
fn socket_without_permission_is_retried() {
    on_node(|node| {
        node.create_dir(SPOOL, 0o755);
        node.configure(&format!("slurm_spool = {SPOOL}\n"));
        node.create_dir("/etc/slurm", 0o755);
        node.write("/etc/slurm/slurm.conf", "ClusterName=site\n");
        let _step = node.step_alone(ALICE, &[]);
        node.set_mode(SOCKET, 0o755);
        assert_distrusted(node, "connect: Permission denied");
        let early = || {
            node.set_mode(SOCKET, 0o755);
            std::thread::scope(|scope| {
                let login = scope.spawn(|| node.account(ALICE));
                std::thread::sleep(std::time::Duration::from_millis(100));
                node.set_mode(SOCKET, 0o777);
                login.join().unwrap()
            })
        };
        // On a busy machine the moment of 0.2 s may be over by then.
        assert!((0..5).any(|_| early().code == 0), "{}", node.log);
    });
}

#[test]
fn regular_file_in_place_of_socket_refuses_login() {
    on_node(|node| {
        let _step = node.step(ALICE, &[]);
        node.sh(&format!("mv {SOCKET} {SPOOL}/real")).ok();
        symlink("real", node.path(SOCKET)).unwrap();
        assert_distrusted(node, "is no socket of root's");
        node.sh(&format!("rm {SOCKET} && touch {SOCKET}")).ok();
        assert_distrusted(node, "is no socket of root's");
    });
}

#[test]
fn directory_of_another_user_refuses_login() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        chown(node.path(SPOOL), Some(BOB.uid), None).unwrap();
        assert_distrusted(node, "owned by uid 1002");
        step.assert_untouched();
    });
}

#[test]
fn directory_writable_by_others_refuses_login() {
    for mode in [0o775, 0o757, 0o1777] {
        on_node(|node| {
            let step = node.step(ALICE, &[]);
            node.set_mode(SPOOL, mode);
            assert_distrusted(node, "writable by others");
            step.assert_untouched();
        });
    }
}

/// The helper must name the directory by its real path.
#[test]
fn spool_path_with_symlink_refuses_login() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        symlink(SPOOL, node.path("/var/spool/link")).unwrap();
        let mut plan = plan(Containment::None);
        plan.placement = Placement::Extern {
            spool: "/var/spool/link".parse().unwrap(),
            node: "gpu017".parse().unwrap(),
        };
        node.answers(&plan);
        assert_distrusted(node, "a symbolic link, which is not followed");
        step.assert_untouched();
    });
}

#[test]
fn missing_directory_refuses_login() {
    on_node(|node| {
        node.answers(&plan(Containment::None));
        assert_distrusted(node, "Slurm's spool directory");
    });
}

/// The account that Slurm runs as may own the daemon's directory.
#[test]
fn directory_of_slurm_account_is_trusted() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        chown(node.path(SPOOL), Some(SLURM.uid), None).unwrap();
        node.account(ALICE).ok();
        node.sshd().ssh(ALICE, LOOK).ok().joins_cgroup(&step.leaf());
        // No other account may.
        chown(node.path(SPOOL), Some(BOB.uid), None).unwrap();
        assert_distrusted(node, "owned by uid 1002");
    });
}

/// An id that Slurm cannot have given names no socket.
#[test]
fn non_numeric_id_refuses_login() {
    on_node(|node| {
        let _step = node.step(ALICE, &[]);
        let mut plan = plan(Containment::None);
        plan.job = "x4242".parse().unwrap();
        node.answers(&plan);
        assert_distrusted(node, "x4242 is no number of a job of Slurm's");
    });
}
