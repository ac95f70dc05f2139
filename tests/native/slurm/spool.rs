//! The directory of sockets, and what somebody else put there.

use crate::support::{ALICE, BOB, CAROL, FORGED, SLURM, SPOOL, Slurm, StandIn, User, on_slurm};

/// Asserts that a stand-in changes nothing: its owner joins their own job, and who has none is
/// refused with that code.
fn is_passed_over(
    slurm: &Slurm<'_>,
    code: &str,
    plant: impl for<'a> Fn(&'a Slurm<'_>, User) -> StandIn<'a>,
) {
    let node = slurm.node;
    node.reporting("timeout=8");
    let job = slurm.alloc(ALICE, 1);
    for owner in [ALICE, CAROL] {
        let _planted = plant(slurm, owner);
        if owner == ALICE {
            node.pam(owner).ok().joins(&job);
        } else {
            node.account(owner).fails().says(code);
            node.session(owner).fails();
        }
    }
    job.cancel();
}

/// A user's process behind a socket of theirs, which somebody let them make there.
fn of_a_user<'a>(slurm: &'a Slurm<'_>, owner: User) -> StandIn<'a> {
    let node = slurm.node;
    node.mode(SPOOL, 0o777);
    let planted = slurm.start_stand_in(owner.uid, &slurm.extern_socket(FORGED), owner, "2");
    node.mode(SPOOL, 0o755);
    planted
}

#[test]
fn a_socket_of_a_users_is_passed_over() {
    on_slurm(|slurm| {
        is_passed_over(slurm, "[JA09]", of_a_user);
        is_passed_over(slurm, "[JA09]", |slurm, owner| {
            let planted = of_a_user(slurm, owner);
            slurm.node.sh(&format!("chown root {}", slurm.extern_socket(FORGED))).ok();
            planted
        });
    });
}

#[test]
fn so_are_a_link_to_one_and_a_stale_one() {
    on_slurm(|slurm| {
        is_passed_over(slurm, "[JA09]", |slurm, owner| {
            let planted = slurm.start_stand_in(0, "/run/stepd.socket", owner, "2");
            let link = slurm.extern_socket(FORGED);
            slurm.node.sh(&format!("ln -sf /run/stepd.socket {link}")).ok();
            planted
        });
        slurm.node.sh(&format!("rm {}", slurm.extern_socket(FORGED))).ok();
        is_passed_over(slurm, "[JA01]", |slurm, owner| {
            let planted = slurm.start_stand_in(0, &slurm.extern_socket(FORGED), owner, "2");
            planted.kill();
            planted
        });
    });
}

/// Root's own stand-in says that it took the login, as Slurm does where its move failed.
#[test]
fn a_daemon_that_does_not_move_the_login_refuses_it() {
    on_slurm(|slurm| {
        let node = slurm.node;
        let _planted = slurm.start_stand_in(0, &slurm.extern_socket(FORGED), ALICE, "2");
        node.session_reporting("timeout=8");
        node.session(ALICE).stays_outside();
        node.session_alone("timeout=8");
        node.session(ALICE).fails();
    });
}

#[test]
fn one_that_is_starting_or_ending_refuses_for_now() {
    on_slurm(|slurm| {
        let node = slurm.node;
        node.arguments("timeout=8");
        for (state, code) in [("1", "[JA02]"), ("3", "[JA03]")] {
            let _planted = slurm.start_stand_in(0, &slurm.extern_socket(FORGED), ALICE, state);
            node.account(ALICE).fails().says(code);
            node.session(ALICE).fails();
        }
    });
}

#[test]
fn a_directory_of_somebody_elses_is_believed_of_nobody_but_root_and_slurm() {
    on_slurm(|slurm| {
        let node = slurm.node;
        node.reporting("timeout=8");
        let job = slurm.alloc(ALICE, 1);
        let chown = |owner: &str| node.sh(&format!("chown {owner} {SPOOL}")).ok();
        chown(SLURM.name);
        node.pam(ALICE).ok().joins(&job);
        for (owner, mode) in [("bob", 0o755), ("root", 0o777), ("alice", 0o755)] {
            chown(owner);
            node.mode(SPOOL, mode);
            node.account(ALICE).fails().says("[JA09]");
            node.session(ALICE).fails();
        }
        chown("root");
        node.mode(SPOOL, 0o755);
        node.pam(ALICE).ok().joins(&job);
    });
}

#[test]
fn one_that_is_missing_has_no_jobs_and_one_that_is_configured_counts() {
    on_slurm(|slurm| {
        let node = slurm.node;
        node.reporting("");
        let job = slurm.alloc(ALICE, 1);
        let _his = slurm.alloc(BOB, 1);
        node.configure("slurm_spool = /var/spool/nowhere\n");
        node.account(ALICE).fails().says("[JA01]");
        node.session(ALICE).fails();
        node.configure(&format!("slurm_spool = {SPOOL}\n"));
        node.pam(ALICE).ok().joins(&job);
        // A link is what some sites have instead of a mount; what it leads to has to be root's.
        node.sh(&format!("ln -s {SPOOL} /var/spool/link; ln -s /run/alices /var/spool/other")).ok();
        node.configure("slurm_spool = /var/spool/link\n");
        node.pam(ALICE).ok().joins(&job);
        node.sh("mkdir /run/alices; chown alice /run/alices").ok();
        node.configure("slurm_spool = /var/spool/other\n");
        node.account(ALICE).fails().says("[JA09]");
    });
}
