//! sshd's process stays as it was after a login to a Slurm job.

use nix::sys::signal::Signal;

use crate::support::{ALICE, CAROL, Outcome, Slurm, Tool, User, on_slurm};

/// Runs accounts and sessions in one process, which compares itself before and after each.
fn run_cycles(slurm: &Slurm<'_>, user: User, arguments: &str) -> Outcome {
    slurm.node.install(&Tool::Cycles.path(), "/usr/bin/cycles");
    // Debian 13's pam_unix sets SIGCHLD itself.
    slurm.node.write_stack(&format!(
        "account required pam_job_adopt.so {arguments}\nsession required pam_permit.so\n\
         session required pam_job_adopt.so {arguments}\n"
    ));
    slurm.node.run("cycles", &[user.name, "3"]).omits("CHANGED")
}

#[test]
fn login_changes_only_cgroups() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        let outcome = run_cycles(slurm, ALICE, "").exits(0).joins(&job);
        assert_eq!(outcome.stdout.matches("session 0").count(), 3, "{outcome}");
    });
}

#[test]
fn refusal_changes_no_cgroup() {
    on_slurm(|slurm| {
        run_cycles(slurm, CAROL, "")
            .exits(10)
            .says("[JA01]")
            .stays_outside();
        let job = slurm.alloc(ALICE, 1);
        slurm.constrain("ConstrainCores=yes\n");
        slurm.restart_slurmd();
        let open = slurm.alloc(ALICE, 1);
        slurm.constrain("ConstrainCores=yes\nConstrainDevices=yes\n");
        run_cycles(slurm, ALICE, "")
            .exits(10)
            .says("[JA06]")
            .stays_outside();
        open.cancel();
        job.signal_daemon(Signal::SIGSTOP);
        run_cycles(slurm, ALICE, "timeout=1")
            .exits(10)
            .says("[JA08]")
            .stays_outside();
        job.signal_daemon(Signal::SIGCONT);
    });
}
