//! Commands that users start from a login: those of Slurm, and Open MPI's launcher.

use crate::support::{ALICE, Outcome, SlurmJob, Sshd, is_installed, on_slurm, skip};

use super::environment::install_hooks;

#[test]
fn slurm_commands_in_login_find_job() {
    on_slurm(|slurm| {
        let _older = slurm.alloc(ALICE, 0);
        let job = slurm.alloc(ALICE, 1);
        let sshd = slurm.node.sshd();
        let step = "srun --overlap sh -c 'hostname; echo $SLURM_JOB_ID'";
        let output = sshd.ssh(ALICE, step).ok().stdout;
        assert_eq!(output, format!("{}\n{}\n", slurm.node.name(), job.id));
        sshd.ssh(ALICE, "squeue --me --noheader --format=%i")
            .ok()
            .says(&job.id);
        job.cancel();
    });
}

fn run_mpirun(sshd: &Sshd<'_>, processes: &str) -> Outcome {
    sshd.ssh(
        ALICE,
        &format!("mpirun {processes} sh -c 'cat /proc/self/cgroup; echo started'"),
    )
}

/// Asserts that `count` processes started, all of them in the job.
#[track_caller]
fn assert_started(launched: Outcome, count: usize, job: &SlurmJob<'_>) {
    let launched = launched.ok().joins(job);
    assert_eq!(
        launched.stdout.matches("started").count(),
        count,
        "{launched}"
    );
    let inside = format!("devices:{}/step_extern", job.path());
    assert_eq!(
        launched.stdout.matches(&inside).count(),
        count,
        "{launched}"
    );
}

/// Open MPI takes an incomplete set of variables for a broken allocation.
#[test]
fn open_mpi_starts_with_all_variables_with_id_and_with_none() {
    if !is_installed("mpirun") {
        return skip("needs openmpi-bin");
    }
    on_slurm(|slurm| {
        install_hooks(slurm);
        // Open MPI needs an interface besides the one without a route.
        slurm.node.sh(INTERFACE).ok();
        let job = slurm.alloc_as(ALICE, 1, &["--ntasks=2"], slurm.node.name());
        let sshd = slurm.node.sshd();
        for env in ["none", "id", "full"] {
            slurm.node.configure(&format!("env = {env}\n"));
            assert_started(run_mpirun(&sshd, "-n 2"), 2, &job);
        }
        // The complete set has the number of the job's tasks.
        assert_started(run_mpirun(&sshd, ""), 2, &job);
        run_mpirun(&sshd, "-n 3").fails().says("not enough slots");
        job.cancel();
    });
}

const INTERFACE: &str = "\
    set -e
    ip link add out type veth peer name back
    ip address add 10.99.1.1/24 dev out
    ip link set out up
    ip link set back up";
