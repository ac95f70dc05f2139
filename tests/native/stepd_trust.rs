//! Sockets and directories of others than Slurm's: nobody who could have made one is believed.

use std::os::unix::fs::{chown, symlink};
use std::os::unix::net::UnixListener;

use pam_job_adopt::protocol::{Containment, Placement};

use crate::support::{ALICE, BOB, LOOK, Node, SLURM, SPOOL, on_node, plan};

const SOCKET: &str = "/var/spool/slurmd/gpu017_4242.4294967292";

/// Both phases refuse for the node's configuration; the log says why.
#[track_caller]
fn distrusted(node: &Node, why: &str) {
    for refused in [node.account(ALICE), node.session(ALICE)] {
        refused.fails().says("JA09");
    }
    node.log.line(why);
}

#[test]
fn a_daemon_that_is_not_roots_is_not_asked() {
    on_node(|node| {
        let _step = node.step(ALICE, &["user", "1001"]);
        distrusted(node, "who listens there is uid 1001, not root");
    });
}

#[test]
fn a_socket_that_a_user_planted_is_not_called() {
    on_node(|node| {
        node.folder(SPOOL, 0o755);
        node.answers(&plan(Containment::None));
        let _listener = UnixListener::bind(node.path(SOCKET)).unwrap();
        chown(node.path(SOCKET), Some(ALICE.uid), Some(ALICE.uid)).unwrap();
        distrusted(node, "is no socket of root's");
    });
}

/// A daemon makes its socket, and lets everybody call it a moment later.
#[test]
fn one_that_may_not_be_called_yet_is_called_again() {
    on_node(|node| {
        node.folder(SPOOL, 0o755);
        node.configure(&format!("slurm_spool = {SPOOL}\n"));
        node.folder("/etc/slurm", 0o755);
        node.write("/etc/slurm/slurm.conf", "ClusterName=site\n");
        let _step = node.step_alone(ALICE, &[]);
        node.mode(SOCKET, 0o755);
        distrusted(node, "connect: Permission denied");
        let early = || {
            node.mode(SOCKET, 0o755);
            std::thread::scope(|scope| {
                let login = scope.spawn(|| node.account(ALICE));
                std::thread::sleep(std::time::Duration::from_millis(100));
                node.mode(SOCKET, 0o777);
                login.join().unwrap()
            })
        };
        // On a busy machine the moment, 0.2 s, may be over by then.
        assert!((0..5).any(|_| early().code == 0), "{}", node.log);
    });
}

#[test]
fn a_name_that_is_no_socket_is_not_called() {
    on_node(|node| {
        let _step = node.step(ALICE, &[]);
        node.sh(&format!("mv {SOCKET} {SPOOL}/real")).ok();
        symlink("real", node.path(SOCKET)).unwrap();
        distrusted(node, "is no socket of root's");
        node.sh(&format!("rm {SOCKET} && touch {SOCKET}")).ok();
        distrusted(node, "is no socket of root's");
    });
}

#[test]
fn a_directory_of_somebody_elses_is_not_looked_into() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        chown(node.path(SPOOL), Some(BOB.uid), None).unwrap();
        distrusted(node, "owned by uid 1002");
        step.assert_untouched();
    });
}

#[test]
fn a_directory_that_others_may_write_to_is_not_looked_into() {
    for mode in [0o775, 0o757, 0o1777] {
        on_node(|node| {
            let step = node.step(ALICE, &[]);
            node.mode(SPOOL, mode);
            distrusted(node, "writable by others");
            step.assert_untouched();
        });
    }
}

/// The helper has to name the directory by its real path.
#[test]
fn no_link_on_the_way_is_followed() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        symlink(SPOOL, node.path("/var/spool/link")).unwrap();
        let mut plan = plan(Containment::None);
        plan.placement = Placement::Extern {
            spool: "/var/spool/link".parse().unwrap(),
            node: "gpu017".parse().unwrap(),
        };
        node.answers(&plan);
        distrusted(node, "a symbolic link, which is not followed");
        step.assert_untouched();
    });
}

#[test]
fn a_directory_that_is_not_there_refuses() {
    on_node(|node| {
        node.answers(&plan(Containment::None));
        distrusted(node, "Slurm's spool directory");
    });
}

/// The daemon's directory may be that of the account which Slurm runs as.
#[test]
fn a_directory_of_slurms_own_account_is_as_good_as_roots() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        chown(node.path(SPOOL), Some(SLURM.uid), None).unwrap();
        node.account(ALICE).ok();
        node.sshd().ssh(ALICE, LOOK).ok().stands_in(&step.leaf());
        // Only that one account.
        chown(node.path(SPOOL), Some(BOB.uid), None).unwrap();
        distrusted(node, "owned by uid 1002");
    });
}

/// A job's id that is none of Slurm's names no socket.
#[test]
fn an_id_that_is_no_number_names_no_socket() {
    on_node(|node| {
        let _step = node.step(ALICE, &[]);
        let mut plan = plan(Containment::None);
        plan.job = "x4242".parse().unwrap();
        node.answers(&plan);
        distrusted(node, "x4242 is no number of a job of Slurm's");
    });
}
