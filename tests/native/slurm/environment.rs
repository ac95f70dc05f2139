//! Our prolog and epilog run by Slurm, and the variables that logins get from the job through them.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::{ALICE, Node, Outcome, Slurm, eventually, on_slurm};

/// Configures Slurm to run our scripts unchanged, with devices left to Slurm.
pub(super) fn install_hooks(slurm: &Slurm<'_>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/slurm");
    for name in ["prolog.sh", "epilog.sh"] {
        slurm
            .node
            .install(&folder.join(name), &format!("/etc/slurm/{name}"));
    }
    let hooks = "Prolog=/etc/slurm/prolog.sh\nEpilog=/etc/slurm/epilog.sh\n";
    let conf = slurm.node.read("/etc/slurm/slurm.conf");
    slurm
        .node
        .write("/etc/slurm/slurm.conf", &format!("{conf}{hooks}"));
    slurm.node.sh("scontrol reconfigure").ok();
    slurm.restart_slurmd();
}

/// Lists the variables of Slurm and of GPUs.
fn slurm_variables(login: &Outcome) -> BTreeSet<String> {
    let ours = |line: &&str| line.starts_with("SLURM") || line.contains("_VISIBLE_DEVICES=");
    login
        .stdout
        .lines()
        .filter(ours)
        .map(str::to_owned)
        .collect()
}

/// Slurm's own filter decides, and no prolog or daemon is asked.
#[test]
fn gpus_of_job_are_named_without_prolog() {
    on_slurm(|slurm| {
        slurm.node.add_nvidia_driver(510);
        slurm.node.add_nvidia_gpus();
        slurm.node.configure("env = gpus\n");
        let _other = slurm.alloc(ALICE, 1);
        let job = slurm.alloc(ALICE, 2);
        let uuids = format!("{},{}", Node::uuid(1), Node::uuid(2));
        let lists = ["CUDA", "NVIDIA"].map(|who| format!("{who}_VISIBLE_DEVICES={uuids}"));
        let id = format!("SLURM_JOB_ID={}", job.id);
        let sshd = slurm.node.sshd();
        let expected = lists.into_iter().chain([id]).collect();
        assert_eq!(slurm_variables(&sshd.ssh(ALICE, "env").ok()), expected);
    });
}

#[test]
fn login_has_id_or_all_variables_of_allocation_shell() {
    on_slurm(|slurm| {
        install_hooks(slurm);
        let other = slurm.alloc(ALICE, 1);
        let job = slurm.alloc(ALICE, 1);
        let sshd = slurm.node.sshd();
        let id = format!("SLURM_JOB_ID={}", job.id);
        let given = || slurm_variables(&sshd.ssh(ALICE, "env").ok());
        assert_eq!(given(), [id.clone()].into());
        slurm.node.configure("env = none\n");
        assert_eq!(given(), BTreeSet::new());
        slurm.node.configure("env = full\n");
        let full = given();
        let node = slurm.node.name();
        for pair in [
            id,
            format!("SLURM_JOB_NODELIST={node}"),
            "SLURM_NNODES=1".to_owned(),
            "SLURM_TASKS_PER_NODE=1".to_owned(),
            "SLURM_JOB_USER=alice".to_owned(),
            // The node's second GPU, and the only one that the login sees.
            "CUDA_VISIBLE_DEVICES=0".to_owned(),
        ] {
            assert!(full.contains(&pair), "{pair}: {full:?}");
        }
        for step in [
            "SLURM_PROCID",
            "SLURM_STEP",
            "SLURM_NTASKS",
            "SLURM_LOCALID",
        ] {
            assert!(
                !full.iter().any(|pair| pair.starts_with(step)),
                "{step}: {full:?}"
            );
        }
        job.cancel();
        other.cancel();
        let note = format!("/run/job-adopt/jobs/{}/{}.ended", ALICE.uid, job.id);
        eventually("the epilog has left its note", || slurm.node.exists(&note));
        sshd.ssh(ALICE, "true").fails().says("[JA03]");
    });
}
