//! Several slurmd on one host, each with its own jobs.

use crate::support::{ALICE, BOB, LOOK, on_slurm};

#[test]
fn login_joins_job_of_any_slurmd() {
    on_slurm(|slurm| {
        let [one, other] = slurm.split();
        let hers = slurm.alloc_as(ALICE, 1, &[], &one);
        let his = slurm.alloc_as(BOB, 1, &[], &other);
        let sshd = slurm.node.sshd();
        for job in [&hers, &his] {
            let login = sshd.ssh(job.owner, LOOK).ok().joins(job);
            // Slurm's filter knows the GPUs of its own node only, and allows one of its two.
            assert_eq!(login.gpus(), job.gpus());
            assert_eq!(login.gpus().len(), 3, "{login}");
        }
        hers.cancel();
        sshd.ssh(ALICE, LOOK).fails().says("[JA01]");
        his.cancel();
        slurm.assert_nothing_left();
    });
}

/// Without a name the jobs of all slurmd count, with a name only those of that slurmd.
#[test]
fn nodename_limits_logins_to_that_slurmd() {
    on_slurm(|slurm| {
        let node = slurm.node;
        let [one, other] = slurm.split();
        let older = slurm.alloc_as(ALICE, 1, &[], &one);
        let newer = slurm.alloc_as(ALICE, 1, &[], &other);
        let his = slurm.alloc_as(BOB, 1, &[], &other);
        node.reporting("");
        node.pam(ALICE).ok().joins(&newer);
        node.reporting(&format!("nodename={other}"));
        node.pam(ALICE).ok().joins(&newer);
        node.reporting(&format!("nodename={one}"));
        node.pam(ALICE).ok().joins(&older);
        node.account(BOB).fails().says("[JA01]");
        node.session(BOB).fails();
        for job in [older, newer, his] {
            job.cancel();
        }
        slurm.assert_nothing_left();
    });
}

/// A job of two parts is one job on each node, each with its own number.
#[test]
fn each_part_of_heterogeneous_job_is_a_job() {
    on_slurm(|slurm| {
        let node = slurm.node;
        let nodes = slurm.split();
        let parts = slurm.alloc_on_both(ALICE, &nodes);
        for (name, part) in nodes.iter().zip(&parts) {
            node.reporting(&format!("nodename={name}"));
            node.pam(ALICE).ok().joins(part);
        }
        node.arguments("action_unknown=deny");
        node.account(ALICE)
            .fails()
            .says("[JA05]")
            .says(&parts[0].id)
            .says(&parts[1].id);
        // The owner learns the numbers in this way.
        let known = slurm
            .node
            .sh("squeue --array --noheader --format='%i %A'")
            .ok();
        let [one, other] = &parts;
        known
            .says(&format!("{0}+0 {0}", one.id))
            .says(&format!("{}+1 {}", one.id, other.id));
        parts[0].cancel();
        parts[1].await_end();
        slurm.assert_nothing_left();
    });
}
