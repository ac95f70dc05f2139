//! sshd's process is a guest's house: a login to a job of Slurm's leaves it as it was.

use nix::sys::signal::Signal;

use crate::support::{ALICE, CAROL, Outcome, Slurm, Tool, User, on_slurm};

/// Accounts and sessions in one process, which compares itself before and after each.
fn cycles(slurm: &Slurm<'_>, user: User) -> Outcome {
    slurm.node.install(&Tool::Cycles.path(), "/usr/bin/cycles");
    slurm.node.run("cycles", &[user.name, "3"]).omits("CHANGED")
}

#[test]
fn nothing_but_its_cgroups_changes() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        let outcome = cycles(slurm, ALICE).exits(0).joins(&job);
        assert_eq!(outcome.stdout.matches("session 0").count(), 3, "{outcome}");
    });
}

#[test]
fn a_refusal_does_not_change_even_those() {
    on_slurm(|slurm| {
        cycles(slurm, CAROL).exits(10).says("[JA01]").stays_outside();
        let job = slurm.alloc(ALICE, 1);
        slurm.constrain("ConstrainCores=yes\n");
        slurm.restart_slurmd();
        let open = slurm.alloc(ALICE, 1);
        slurm.constrain("ConstrainCores=yes\nConstrainDevices=yes\n");
        cycles(slurm, ALICE).exits(10).says("[JA06]").stays_outside();
        open.cancel();
        job.signal_daemon(Signal::SIGSTOP);
        slurm.node.session_alone("timeout=1");
        cycles(slurm, ALICE).exits(10).stays_outside();
        job.signal_daemon(Signal::SIGCONT);
    });
}
