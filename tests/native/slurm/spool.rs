//! The directory of the step daemons' sockets, and foreign entries in it.

use crate::support::{ALICE, BOB, CAROL, FORGED, SLURM, SPOOL, Slurm, StandIn, User, on_slurm};

/// Asserts that a stand-in changes nothing: its owner joins their own job, and a user without a job
/// is refused with that code.
fn assert_ignored(
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

/// Starts a process of `owner` behind a socket that it could create there.
fn start_stand_in_of<'a>(slurm: &'a Slurm<'_>, owner: User) -> StandIn<'a> {
    let node = slurm.node;
    node.set_mode(SPOOL, 0o777);
    let planted = slurm.start_stand_in(owner.uid, &slurm.extern_socket(FORGED), owner, "2");
    node.set_mode(SPOOL, 0o755);
    planted
}

#[test]
fn socket_of_user_is_ignored() {
    on_slurm(|slurm| {
        assert_ignored(slurm, "[JA09]", start_stand_in_of);
        assert_ignored(slurm, "[JA09]", |slurm, owner| {
            let planted = start_stand_in_of(slurm, owner);
            slurm
                .node
                .sh(&format!("chown root {}", slurm.extern_socket(FORGED)))
                .ok();
            planted
        });
    });
}

#[test]
fn symbolic_link_and_stale_socket_are_ignored() {
    on_slurm(|slurm| {
        assert_ignored(slurm, "[JA09]", |slurm, owner| {
            let planted = slurm.start_stand_in(0, "/run/stepd.socket", owner, "2");
            let link = slurm.extern_socket(FORGED);
            slurm
                .node
                .sh(&format!("ln -sf /run/stepd.socket {link}"))
                .ok();
            planted
        });
        slurm
            .node
            .sh(&format!("rm {}", slurm.extern_socket(FORGED)))
            .ok();
        assert_ignored(slurm, "[JA01]", |slurm, owner| {
            let planted = slurm.start_stand_in(0, &slurm.extern_socket(FORGED), owner, "2");
            planted.kill();
            planted
        });
    });
}

/// Root's own stand-in reports success without a move, as Slurm does when its move failed.
#[test]
fn daemon_that_moves_nothing_refuses_login() {
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
fn starting_or_ending_daemon_refuses_for_now() {
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
fn directory_of_other_than_root_or_slurm_refuses() {
    on_slurm(|slurm| {
        let node = slurm.node;
        node.reporting("timeout=8");
        let job = slurm.alloc(ALICE, 1);
        let chown = |owner: &str| node.sh(&format!("chown {owner} {SPOOL}")).ok();
        chown(SLURM.name);
        node.pam(ALICE).ok().joins(&job);
        for (owner, mode) in [("bob", 0o755), ("root", 0o777), ("alice", 0o755)] {
            chown(owner);
            node.set_mode(SPOOL, mode);
            node.account(ALICE).fails().says("[JA09]");
            node.session(ALICE).fails();
        }
        chown("root");
        node.set_mode(SPOOL, 0o755);
        node.pam(ALICE).ok().joins(&job);
    });
}

/// The user has a job, and is not told to start one. The log and `check` name the file.
#[test]
fn missing_slurm_conf_is_not_the_users_fault() {
    const TRIED: &str = "/etc/slurm, /etc/slurm-llnl, /usr/local/etc, /run/slurm/conf";
    on_slurm(|slurm| {
        let node = slurm.node;
        node.reporting("");
        let job = slurm.alloc(ALICE, 1);
        node.sh("mv /etc/slurm/slurm.conf /run/slurm.conf").ok();
        let text = "With a job here, or on a login node, please report: ";
        node.account(ALICE).fails().says(text).says("[JA11]");
        let line = node.log.decision("JA11");
        let cause = line.field("error").unwrap_or_default();
        assert!(
            cause.contains(&format!("slurm: no slurm.conf in {TRIED}; "))
                && cause.ends_with("slurmd runs here: there is /run/slurmd.pid"),
            "{}",
            line.text
        );
        node.session(ALICE).fails();
        node.job_adopt(&["resolve", "--user", "alice"])
            .exits(1)
            .says("cause: ")
            .says("no slurm.conf in /etc/slurm")
            .says("JA11");
        node.job_adopt(&["check"])
            .says(&format!(
                "slurm.conf: is not found in {TRIED}, and slurmd runs"
            ))
            .says("find / -xdev -name 'slurm.conf*'");
        node.sh("mv /run/slurm.conf /etc/slurm/slurm.conf").ok();
        node.pam(ALICE).ok().joins(&job);
    });
}

/// The record restricts the devices of the job also without the cgroup that it names. While Slurm is not found, it may
/// have the job.
#[test]
fn check_removes_no_record_that_slurm_may_have_a_job_of() {
    on_slurm(|slurm| {
        let node = slurm.node;
        let job = slurm.alloc(ALICE, 1);
        node.create_dir("/run/job-adopt/jobs/1001", 0o755);
        for id in [&job.id, "99999"] {
            let record =
                format!(r#"{{"version":1,"id":"{id}","uid":1001,"cgroup":"/gone","cdi":[]}}"#);
            node.write(&format!("/run/job-adopt/jobs/1001/{id}.json"), &record);
        }
        node.job_adopt(&["check"])
            .says("run: job-adopt unregister 99999")
            .omits(&format!("unregister {}", job.id));
        // Its job runs on while slurmd is down for an upgrade.
        for daemon in ["slurmd", "slurmstepd"] {
            if daemon == "slurmstepd" {
                slurm.stop_slurmd();
            }
            node.sh("mv /etc/slurm/slurm.conf /run/slurm.conf").ok();
            for id in [&job.id, "99999"] {
                node.job_adopt(&["check"]).says(&format!(
                    "do: if the scheduler, which gave no full answer, has no job {id}: job-adopt unregister {id}"
                ));
            }
            node.sh("mv /run/slurm.conf /etc/slurm/slurm.conf").ok();
        }
        slurm.start_slurmd();
    });
}

/// With `enforce` of a file that is gone everybody gets in, which only a node without jobs may want.
#[test]
fn jobs_of_a_stopped_slurmd_make_a_missing_enforce_file_an_error() {
    on_slurm(|slurm| {
        let node = slurm.node;
        node.configure("enforce = if-exists:/no/such/path\n");
        slurm.alloc(ALICE, 1);
        slurm.stop_slurmd();
        node.job_adopt(&["check"])
            .says("so every user gets in, outside of jobs, and this node runs jobs");
        slurm.start_slurmd();
    });
}

#[test]
fn missing_directory_has_no_jobs_and_configured_one_counts() {
    on_slurm(|slurm| {
        let node = slurm.node;
        node.reporting("");
        let job = slurm.alloc(ALICE, 1);
        let _his = slurm.alloc(BOB, 1);
        node.configure("slurm_spool = /var/spool/nowhere\n");
        node.account(ALICE).fails().says("[JA11]");
        node.session(ALICE).fails();
        node.configure(&format!("slurm_spool = {SPOOL}\n"));
        node.pam(ALICE).ok().joins(&job);
        // Some sites have a symbolic link in place of a mount; root must own its target.
        node.sh(&format!(
            "ln -s {SPOOL} /var/spool/link; ln -s /run/alices /var/spool/other"
        ))
        .ok();
        node.configure("slurm_spool = /var/spool/link\n");
        node.pam(ALICE).ok().joins(&job);
        node.sh("mkdir /run/alices; chown alice /run/alices").ok();
        node.configure("slurm_spool = /var/spool/other\n");
        node.account(ALICE).fails().says("[JA09]");
    });
}
