//! The variables of its job's that a login of Slurm's or Flux's may be given without an argument of the PAM
//! line that names them. `env` of the configuration decides which of them the helper asks for.

use crate::plan::{Placement, Plan, Variable};

/// They describe an allocation: ids, counts, lists of nodes and of GPUs, names, a directory. None
/// has a program loaded or run, or names a file that one reads; launchers and libraries read them
/// to know how many processes to start and which of the GPUs, that the filter lets through anyway,
/// to use. What a subverted helper could do with them stands in docs/threats.md.
const OF_SLURM: [&str; 18] = [
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
    "SLURM_CLUSTER_NAME",
    "SLURM_JOBID",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_UID",
    "SLURM_JOB_USER",
    "SLURM_NNODES",
    "SLURM_NODELIST",
    "SLURM_SUBMIT_DIR",
    "SLURM_TASKS_PER_NODE",
    "ZE_AFFINITY_MASK",
];
/// Of a job of Flux's there is the id alone.
const OF_FLUX: [&str; 1] = ["FLUX_JOB_ID"];
/// Those of them that say which job it is: no other than the one that the login joins.
const IDS: [&str; 3] = ["FLUX_JOB_ID", "SLURM_JOBID", "SLURM_JOB_ID"];

/// Those that scripts count with: in an arithmetic expression a shell takes a name in a value for a
/// variable of its own, which may be assigned to (`PATH=1`).
const NUMBERS: [&str; 5] = [
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_UID",
    "SLURM_NNODES",
    "SLURM_TASKS_PER_NODE",
];

/// Whether a variable is one of these, in a job of its scheduler's, with a value that no shell reads as
/// anything but itself, and no program as an option.
pub(super) fn is_of_job(variable: &Variable, plan: &Plan) -> bool {
    let (name, value) = (variable.name().as_str(), variable.value());
    let of_scheduler = match plan.placement {
        Placement::Extern { .. } => OF_SLURM.contains(&name),
        Placement::Unit { .. } => OF_FLUX.contains(&name),
        Placement::Cgroup { .. } => false,
    };
    let right = !IDS.contains(&name) || value == plan.job.as_str();
    let counts = |byte: u8| byte.is_ascii_digit() || b"(x),".contains(&byte);
    let counted = !NUMBERS.contains(&name) || value.bytes().all(counts);
    of_scheduler && right && counted && variable.is_plain()
}
