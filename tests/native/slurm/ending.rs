//! Logins end with their job, and neither leaves anything.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::{
    ALICE, BOB, LOOK, Slurm, SlurmJob, Sshd, eventually, on_idle_slurm, on_slurm, wait_within,
};

/// Starts a login that stays, with a process that ignores all signals that it can.
fn start_login(sshd: &Sshd<'_>, job: &SlurmJob<'_>) -> std::process::Child {
    let login = sshd.stay(ALICE, "trap '' TERM HUP; setsid sleep 1000 & sleep 1000");
    let procs = job.dir("devices").join("step_extern/cgroup.procs");
    let inside = || {
        std::fs::read_to_string(&procs)
            .unwrap_or_default()
            .lines()
            .count()
    };
    // Two processes of sshd, the shell and its two children; Slurm adds one more.
    eventually("the login is in the job", || inside() >= 5);
    login
}

/// Waits for the end of the login, then asserts that nothing is left.
fn assert_over(slurm: &Slurm<'_>, mut login: std::process::Child) {
    eventually("the login ends", || login.try_wait().unwrap().is_some());
    slurm.assert_nothing_left();
    eventually("its processes are gone", || {
        slurm.running("sleep").is_empty()
    });
}

#[test]
fn login_ends_at_scancel() {
    on_slurm(|slurm| {
        let sshd = slurm.node.sshd();
        for start in [Slurm::batch, Slurm::alloc] {
            let job = start(slurm, ALICE, 1);
            let login = start_login(&sshd, &job);
            job.cancel();
            assert_over(slurm, login);
            sshd.ssh(ALICE, LOOK).fails().says("[JA01]");
        }
        let later = slurm.alloc(ALICE, 1);
        sshd.ssh(ALICE, LOOK).ok().joins(&later);
    });
}

#[test]
fn login_ends_with_script_after_restart_of_slurmd() {
    on_slurm(|slurm| {
        let sshd = slurm.node.sshd();
        let job = slurm.script(ALICE, 1, "until test -e end; do sleep 0.1; done");
        let login = start_login(&sshd, &job);
        slurm.restart_slurmd();
        slurm.node.write("/home/alice/end", "");
        job.await_end();
        assert_over(slurm, login);
    });
}

/// slurmctld checks the time limits every 30 s (`PERIODIC_TIMEOUT`).
#[test]
fn login_ends_at_time_limit_of_job() {
    on_idle_slurm(|slurm| {
        let sshd = slurm.node.sshd();
        let job = slurm.alloc(ALICE, 1);
        let login = start_login(&sshd, &job);
        let update = format!("JobId={}", job.id);
        slurm
            .node
            .run("scontrol", &["update", &update, "EndTime=now+1seconds"])
            .ok();
        let state = format!("scontrol show job {} | grep -o JobState=TIMEOUT", job.id);
        let is_up = || slurm.node.sh(&state).code == 0;
        wait_within(Duration::from_secs(60), "the job's time is up", is_up);
        assert_over(slurm, login);
        sshd.ssh(ALICE, LOOK).fails().says("[JA01]");
    });
}

/// A login to one job outlives the end of another, of the same or another user.
#[test]
fn login_outlives_end_of_another_job() {
    on_slurm(|slurm| {
        let sshd = slurm.node.sshd();
        let older = slurm.alloc(ALICE, 1);
        let his = slurm.alloc(BOB, 1);
        let mut login = start_login(&sshd, &older);
        let newer = slurm.alloc(ALICE, 1);
        newer.cancel();
        his.cancel();
        assert!(login.try_wait().unwrap().is_none(), "the login has ended");
        older.cancel();
        assert_over(slurm, login);
    });
}

/// After their logins have ended, the job has no further cgroup and no further process.
#[test]
fn ended_logins_leave_nothing_in_job() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        let sshd = slurm.node.sshd();
        let cgroups = || {
            let mut paths = slurm.job_cgroups();
            paths.sort();
            paths
        };
        sshd.ssh(ALICE, LOOK).ok().joins(&job);
        let before = cgroups();
        for _ in 0..5 {
            sshd.ssh(ALICE, LOOK).ok().joins(&job);
        }
        assert_eq!(cgroups(), before);
        job.cancel();
        slurm.assert_nothing_left();
    });
}

/// The kernel may have killed it for want of memory. Slurm itself starts no other one.
#[test]
fn job_whose_extern_daemon_was_killed_refuses_login_as_no_fault_of_the_user() {
    on_slurm(|slurm| {
        let node = slurm.node;
        let job = slurm.batch(ALICE, 1);
        node.reporting("");
        node.account(ALICE).ok();
        job.signal_daemon(Signal::SIGKILL);
        eventually("the login is refused", || node.account(ALICE).code != 0);
        let outcome = node.account(ALICE).fails();
        let outcome = outcome.says("[JA07]").says("report");
        outcome.says(&format!("could not join job {}", job.id));
        node.log
            .line("the daemon of the extern step was killed, and the job runs on at");
        node.account(BOB).fails().says("[JA01]");
        // Nobody else ends what the daemon has left.
        let step = job.dir("freezer").join("step_extern");
        let end = format!(
            "find {} -name cgroup.procs -exec cat {{}} + | xargs -r kill -KILL",
            step.display()
        );
        node.run("scancel", &[&job.id]).ok();
        eventually("Slurm has ended the job", || {
            slurm.running("slurmstepd").is_empty()
        });
        slurm.node.sh(&end);
        eventually("its cgroups are removed", || {
            job.remove_forgotten_cgroups();
            slurm.job_cgroups().is_empty()
        });
        eventually("the job is over", || {
            node.account(ALICE).stderr.contains("[JA01]")
                || node.account(ALICE).stdout.contains("[JA01]")
        });
        slurm.assert_nothing_left();
    });
}
