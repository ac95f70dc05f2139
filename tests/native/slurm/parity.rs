//! A login to a Slurm job has what a task of `srun` has ([`crate::parity`]).

use crate::parity::{FAVOURED, assert_same, become_usual, end_server, install_attributes};
use crate::support::{ALICE, on_slurm};

#[test]
fn login_to_slurm_job_has_what_its_task_has() {
    become_usual();
    on_slurm(|slurm| {
        install_attributes(slurm.node);
        let job = slurm.alloc_as(ALICE, 1, &["--cpus-per-task=2"], slurm.node.name());
        let words = format!("attributes job_{} SLURM_JOB_ID", job.id);
        let task = job.step_with(&["--cpus-per-task=2"], &words).ok();
        task.clone().says(&format!("job id: {}\n", job.id));
        for script in [":", FAVOURED] {
            let sshd = slurm.node.sshd_after(script, "");
            assert_same(&sshd.ssh(ALICE, &words).ok(), &task, &[]);
            end_server(slurm.node);
        }
        job.cancel();
    });
}
