//! What a login is given of its job's environment: `env` of the configuration.
//!
//! Launchers and frameworks take a variable of Slurm's for the sign of a whole allocation, so there
//! is the id alone or the set that a shell of `salloc` has, never a part of it; and no variable of a
//! step (`SLURM_PROCID`, `SLURM_STEP_ID`, `SLURM_NTASKS` ...), which would tell them that they are a
//! rank that `srun` has started.
//!
//! Of a job of Flux's it is the id alone in either case: what else a job's shell sets
//! (`FLUX_URI`, `FLUX_KVS_NAMESPACE`) is for the processes that Flux started.

use super::JobEnvironment;
use super::plan::has_list;
use crate::devices::topology::{self, GpuNodes};
use crate::devices::{DeviceError, Tree, nvidia};
use crate::records::Environment;
use crate::sources::Job;
use protocol::{Containment, MAX_PROBES, Probe, SourceName, Variable, Variables, decimal};

/// Variables of the prolog's that stand for themselves in a login, where they are known.
const OPTIONAL: [&str; 4] =
    ["SLURM_CLUSTER_NAME", "SLURM_JOB_ACCOUNT", "SLURM_JOB_PARTITION", "SLURM_JOB_USER"];
/// Lists of GPUs, as the libraries of their vendors read them.
const GPUS: [&str; 4] =
    ["CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"];

/// Which of them is NVIDIA's.
const CUDA: &str = "CUDA_VISIBLE_DEVICES";

/// The variables for a login to `job` under `containment`. What there is not is named in `warnings`.
pub(super) fn variables(
    job: &Job,
    env: JobEnvironment,
    containment: &Containment,
    warnings: &mut Vec<String>,
) -> Variables {
    match (env, job.placement.source()) {
        (JobEnvironment::None, _) | (_, SourceName::Registry) => return Variables::default(),
        (_, SourceName::Flux) => return only("FLUX_JOB_ID", job),
        (_, SourceName::Slurm) => {}
    }
    if env == JobEnvironment::Full {
        match full(job, containment, warnings) {
            Ok(variables) => return variables,
            Err(why) => warnings.push(format!("env: only SLURM_JOB_ID is set: {why}")),
        }
    }
    only("SLURM_JOB_ID", job)
}

/// Has each GPU tried, under the variable that names it for programs; without `probes` of the
/// scheduler's, every GPU of the node. Of NVIDIA's all have a UUID or all are numbers, and none is
/// named on a node with MIG instances: of these only a UUID that no file tells will do.
/// Fails: the GPUs of the node cannot be told.
pub(super) fn name_gpus(tree: &Tree, probes: &mut Vec<Probe>) -> Result<(), DeviceError> {
    let mut gpus = topology::list_gpus(tree)?;
    if nvidia::has_instances(tree)? {
        let is_cuda = |gpu: &GpuNodes| matches!(gpu.visible_devices, Some((of, _)) if of == CUDA);
        gpus.iter_mut().filter(|gpu| is_cuda(gpu)).for_each(|gpu| gpu.visible_devices = None);
    }
    if probes.is_empty() {
        let probe =
            |gpu: &GpuNodes| format!("{} {}", gpu.own_node.rule, gpu.own_node.node).parse().ok();
        probes.extend(gpus.iter().filter_map(probe).take(MAX_PROBES));
    }
    let mut names = gpus.iter().filter_map(|gpu| gpu.visible_devices.as_ref());
    let numbers = names.any(|(of, uuid)| *of == CUDA && uuid.is_none());
    for probe in probes.iter_mut() {
        let gpu = gpus.iter().find(|gpu| gpu.own_node.rule == probe.device);
        probe.variable = gpu.and_then(|gpu| gpu.visible_devices.as_ref()).and_then(|(of, uuid)| {
            let uuid = uuid.as_deref().filter(|_| !numbers);
            Variable::new(of, uuid.unwrap_or("0")).ok()
        });
    }
    Ok(())
}

fn only(name: &str, job: &Job) -> Variables {
    let mut variables = Variables::default();
    // A job's id is a value, and the first variable of a login is not one too many.
    let _ = add(&mut variables, name, job.id.as_str());
    variables
}

/// The set of a shell in the allocation, or why it would not be whole.
fn full(
    job: &Job,
    containment: &Containment,
    warnings: &mut Vec<String>,
) -> Result<Variables, String> {
    let record = job.record.as_ref().ok_or("the job has no record")?;
    let env = record.env.as_ref().ok_or("the job's record has no environment")?;
    let known = |name: &str| env.get(name).ok_or(format!("the job's record has no {name}"));
    let (nodes, list) = (known("SLURM_JOB_NUM_NODES")?, known("SLURM_JOB_NODELIST")?);
    let cpus = known("SLURM_JOB_CPUS_PER_NODE")?;
    let tasks = tasks_per_node(env.get("SLURM_JOB_NTASKS"), nodes, cpus)
        .ok_or("how many tasks each node has cannot be told exactly")?;
    let (id, uid) = (job.id.as_str(), record.uid.to_string());
    let mut variables = Variables::default();
    for (name, value) in [
        ("SLURM_JOB_ID", id),
        ("SLURM_JOBID", id),
        ("SLURM_JOB_UID", &uid),
        ("SLURM_JOB_NODELIST", list),
        ("SLURM_NODELIST", list),
        ("SLURM_JOB_NUM_NODES", nodes),
        ("SLURM_NNODES", nodes),
        ("SLURM_JOB_CPUS_PER_NODE", cpus),
        ("SLURM_TASKS_PER_NODE", &tasks),
    ] {
        add(&mut variables, name, value)?;
    }
    for (name, value) in gpus(env, hides(job, containment))? {
        add(&mut variables, name, &value)?;
    }
    let optional = OPTIONAL.map(|name| (name, name)).into_iter();
    for (name, from) in optional.chain([("SLURM_SUBMIT_DIR", "SLURM_JOB_WORK_DIR")]) {
        let added = env.get(from).map(|value| add(&mut variables, name, value));
        if let Some(Err(why)) = added {
            warnings.push(format!("env: {why}"));
        }
    }
    Ok(variables)
}

fn add(variables: &mut Variables, name: &str, value: &str) -> Result<(), String> {
    let variable = Variable::new(name, value).map_err(|error| format!("{name} {error}"))?;
    variables.push(variable).map_err(|error| format!("{name}: {error}"))
}

/// Whether a login sees the job's GPUs alone, so that a library counts them from 0.
fn hides(job: &Job, containment: &Containment) -> bool {
    match containment {
        Containment::None => false,
        Containment::Inherit | Containment::Both(_) => true,
        // A list of the site's for all jobs has all GPUs.
        Containment::Enforce(_) => has_list(job),
    }
}

/// The lists of GPUs as a login needs them. A name stays. A number among all GPUs of the node becomes
/// the number among those that the login sees.
fn gpus(env: &Environment, hidden: bool) -> Result<Vec<(&'static str, String)>, String> {
    let list = |name: &'static str| env.get(name).map(|value| (name, value));
    let seen = |(name, value): (&'static str, &str)| {
        let count = value.split(',').count();
        let numbers = value.split(',').filter(|entry| decimal(entry).is_some()).count();
        match numbers {
            0 => Ok((name, value.to_owned())),
            _ if numbers < count => Err(format!("{name} mixes numbers and names")),
            _ if hidden => {
                let numbers: Vec<_> = (0..count).map(|number| number.to_string()).collect();
                Ok((name, numbers.join(",")))
            }
            _ => Ok((name, value.to_owned())),
        }
    };
    GPUS.into_iter().filter_map(list).map(seen).collect()
}

/// How many tasks each node has, in Slurm's form (`2(x3),1`), where the numbers leave no choice.
/// Slurm deals tasks out to the nodes in turn, as far as each has processors: on one node all are
/// there; among nodes of equally many processors they are dealt evenly where they can be; and where
/// there are as many tasks as processors each has one. A job that does not say how many tasks it has
/// is given as many as its processors have room for, which is certain where a node has only one.
fn tasks_per_node(tasks: Option<&str>, nodes: &str, cpus: &str) -> Option<String> {
    let nodes = decimal(nodes)?;
    let groups = cpus.split(',').map(group).collect::<Option<Vec<_>>>()?;
    let counted = groups.iter().try_fold(0_u32, |sum, (_, times)| sum.checked_add(*times))?;
    let total = groups.iter().try_fold(0_u32, |sum, (each, times)| {
        each.checked_mul(*times).and_then(|some| sum.checked_add(some))
    })?;
    if nodes == 0 || counted != nodes {
        return None;
    }
    let Some(tasks) = tasks else {
        return groups.iter().all(|(each, _)| *each == 1).then(|| cpus.to_owned());
    };
    match (decimal(tasks)?, groups.as_slice()) {
        (0, _) => None,
        (tasks, _) if nodes == 1 => Some(tasks.to_string()),
        (tasks, [_]) if tasks % nodes == 0 => Some(format!("{}(x{nodes})", tasks / nodes)),
        (tasks, _) if tasks == total => Some(cpus.to_owned()),
        _ => None,
    }
}

/// `16(x2)` or `16`: processors of a node, and how many nodes in a row have so many.
fn group(text: &str) -> Option<(u32, u32)> {
    match text.strip_suffix(')').map(|text| text.split_once("(x")) {
        None => Some((decimal(text)?, 1)),
        Some(Some((each, times))) => Some((decimal(each)?, decimal(times)?)),
        Some(None) => None,
    }
}

#[cfg(test)]
mod tests;
