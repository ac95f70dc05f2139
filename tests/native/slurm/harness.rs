//! Slurm itself on a node, with which the other tests compare logins.

use crate::support::{ALICE, BOB, on_slurm};

#[test]
fn each_way_to_start_job_gives_own_gpus() {
    on_slurm(|slurm| {
        let batch = slurm.batch(ALICE, 1);
        let idle = slurm.alloc(ALICE, 2);
        let steps = slurm.srun(BOB, 1);
        let mut gpus = [batch.gpus(), idle.gpus(), steps.gpus()].concat();
        gpus.sort_unstable();
        assert_eq!(
            gpus,
            [
                "/dev/nvidia0",
                "/dev/nvidia1",
                "/dev/nvidia2",
                "/dev/nvidia3"
            ]
        );
        for job in [&batch, &idle, &steps] {
            job.cancel();
        }
        slurm.assert_nothing_left();
    });
}
