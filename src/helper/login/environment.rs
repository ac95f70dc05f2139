//! The variables that a login gets of its job's environment, by `env` of the configuration.
//!
//! Launchers and frameworks take a Slurm variable as the sign of a whole allocation. So a login gets
//! either the job's id, with the GPUs that it can open under `env = gpus`, or the set of a shell of
//! `salloc`. All required variables of that set must be known; of the optional ones
//! (`OPTIONAL_VARIABLES`, `SLURM_SUBMIT_DIR` and lists of GPUs) a login gets those that the record
//! has. A login never gets a variable of a step (`SLURM_PROCID`, `SLURM_STEP_ID`, `SLURM_NTASKS` ...),
//! which would make programs believe that `srun` has started them as a rank.
//!
//! For a Flux job, even the full set is the id alone: the other variables of the job's shell
//! (`FLUX_URI`, `FLUX_KVS_NAMESPACE`) are for processes that Flux started.

use super::plan::has_device_list;
use crate::config::JobEnvironment;
use crate::jobs::Job;
use crate::jobs::records::Environment;
use crate::node::topology::{self, GpuNodes};
use crate::node::{DeviceError, Tree, nvidia};
use protocol::{Containment, PROBES_MAX, Probe, SourceName, Variable, Variables, parse_decimal};

/// Variables of the prolog that a login gets unchanged, if the record has them.
const OPTIONAL_VARIABLES: [&str; 4] =
    ["SLURM_CLUSTER_NAME", "SLURM_JOB_ACCOUNT", "SLURM_JOB_PARTITION", "SLURM_JOB_USER"];
/// Lists of GPUs, as the libraries of their vendors read them.
const GPU_LIST_VARIABLES: [&str; 4] =
    ["CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"];

/// The list that NVIDIA's libraries read.
const CUDA_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// Returns the variables for a login to `job` under `containment`. If the full set is impossible or
/// an optional variable is invalid, a warning gives the reason.
pub(super) fn login_variables(
    job: &Job,
    env: JobEnvironment,
    containment: &Containment,
    warnings: &mut Vec<String>,
) -> Variables {
    match (env, job.placement.source()) {
        (JobEnvironment::None, _) | (_, SourceName::Registry) => return Variables::default(),
        (_, SourceName::Flux) => return id_variable("FLUX_JOB_ID", job),
        (_, SourceName::Slurm) => {}
    }
    if env == JobEnvironment::Full {
        match allocation_variables(job, containment, warnings) {
            Ok(variables) => return variables,
            Err(why) => warnings.push(format!("env: only SLURM_JOB_ID is set: {why}")),
        }
    }
    id_variable("SLURM_JOB_ID", job)
}

/// Adds to each probe the variable that names its GPU to programs; if there are no probes of the
/// scheduler, makes one for every GPU of the node. NVIDIA's GPUs are all named by UUID or all by
/// number. None is named on a node with MIG instances, since only a UUID names an instance, and no
/// file contains it.
///
/// # Errors
///
/// The GPUs of the node cannot be listed.
pub(super) fn name_gpus(tree: &Tree, probes: &mut Vec<Probe>) -> Result<(), DeviceError> {
    let mut gpus = topology::list_gpus(tree)?;
    if nvidia::has_instances(tree)? {
        let names_cuda = |(name, _): &(_, _)| *name == CUDA_VARIABLE;
        let is_cuda = |gpu: &GpuNodes| gpu.visible_devices.as_ref().is_some_and(names_cuda);
        gpus.iter_mut().filter(|gpu| is_cuda(gpu)).for_each(|gpu| gpu.visible_devices = None);
    }
    if probes.is_empty() {
        let probe =
            |gpu: &GpuNodes| format!("{} {}", gpu.own_node.rule, gpu.own_node.node).parse().ok();
        probes.extend(gpus.iter().filter_map(probe).take(PROBES_MAX));
    }
    let mut names = gpus.iter().filter_map(|gpu| gpu.visible_devices.as_ref());
    let uses_numbers = names.any(|(name, uuid)| *name == CUDA_VARIABLE && uuid.is_none());
    for probe in probes.iter_mut() {
        let gpu = gpus.iter().find(|gpu| gpu.own_node.rule == probe.device);
        let visible_devices = gpu.and_then(|gpu| gpu.visible_devices.as_ref());
        probe.variable = visible_devices.and_then(|(name, uuid)| {
            let uuid = uuid.as_deref().filter(|_| !uses_numbers);
            Variable::from_pair(name, uuid.unwrap_or("0")).ok()
        });
    }
    Ok(())
}

fn id_variable(name: &str, job: &Job) -> Variables {
    let mut variables = Variables::default();
    // This cannot fail: an id is a valid value, and the first variable is not one too many.
    let _ = add_variable(&mut variables, name, job.id.as_str());
    variables
}

/// Returns the set of a shell in the allocation.
///
/// # Errors
///
/// A text that names the required variable that is unknown or invalid.
fn allocation_variables(
    job: &Job,
    containment: &Containment,
    warnings: &mut Vec<String>,
) -> Result<Variables, String> {
    let record = job.record.as_ref().ok_or("the job has no record")?;
    let env = record.env.as_ref().ok_or("the job's record has no environment")?;
    let required = |name: &str| env.get(name).ok_or(format!("the job's record has no {name}"));
    let (nodes, list) = (required("SLURM_JOB_NUM_NODES")?, required("SLURM_JOB_NODELIST")?);
    let cpus = required("SLURM_JOB_CPUS_PER_NODE")?;
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
        add_variable(&mut variables, name, value)?;
    }
    let numbering = match sees_only_job_gpus(job, containment) {
        true => GpuNumbering::FromZero,
        false => GpuNumbering::OfNode,
    };
    for (name, value) in gpu_lists(env, numbering)? {
        add_variable(&mut variables, name, &value)?;
    }
    let optional = OPTIONAL_VARIABLES.map(|name| (name, name)).into_iter();
    for (name, from) in optional.chain([("SLURM_SUBMIT_DIR", "SLURM_JOB_WORK_DIR")]) {
        let added = env.get(from).map(|value| add_variable(&mut variables, name, value));
        if let Some(Err(why)) = added {
            warnings.push(format!("env: {why}"));
        }
    }
    Ok(variables)
}

fn add_variable(variables: &mut Variables, name: &str, value: &str) -> Result<(), String> {
    let variable = Variable::from_pair(name, value).map_err(|error| format!("{name} {error}"))?;
    variables.push(variable).map_err(|error| format!("{name}: {error}"))
}

/// Returns whether a login sees only the job's GPUs, so that a library counts them from 0.
fn sees_only_job_gpus(job: &Job, containment: &Containment) -> bool {
    match containment {
        Containment::None => false,
        Containment::Inherit | Containment::InheritAndEnforce(_) => true,
        // The site's own list for all jobs contains all GPUs.
        Containment::Enforce(_) => has_device_list(job),
    }
}

/// How libraries number the GPUs that a login sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GpuNumbering {
    /// The login sees only the job's GPUs, which count from 0.
    FromZero,
    /// The login sees all GPUs, which have their numbers on the node.
    OfNode,
}

/// Returns the lists of GPUs for a login. Names stay. Numbers among all GPUs of the node become
/// numbers among those that the login sees.
///
/// # Errors
///
/// A list has both numbers and names.
fn gpu_lists(
    env: &Environment,
    numbering: GpuNumbering,
) -> Result<Vec<(&'static str, String)>, String> {
    let list = |name: &'static str| env.get(name).map(|value| (name, value));
    let renumber = |(name, value): (&'static str, &str)| {
        let count = value.split(',').count();
        let numbers = value.split(',').filter(|entry| parse_decimal(entry).is_some()).count();
        match numbers {
            0 => Ok((name, value.to_owned())),
            _ if numbers < count => Err(format!("{name} mixes numbers and names")),
            _ if numbering == GpuNumbering::FromZero => {
                let numbers: Vec<_> = (0..count).map(|number| number.to_string()).collect();
                Ok((name, numbers.join(",")))
            }
            _ => Ok((name, value.to_owned())),
        }
    };
    GPU_LIST_VARIABLES.into_iter().filter_map(list).map(renumber).collect()
}

/// Returns the number of tasks of each node, in Slurm's form (`2(x3),1`), if it is certain.
///
/// Slurm distributes tasks over the nodes in turn, up to the processors of each. So one node has all
/// tasks; nodes with equally many processors have equally many tasks if the numbers divide; and with
/// as many tasks as processors each processor has one. A job without a number of tasks gets as many
/// as fit on its processors, which is certain if each node has only one processor.
fn tasks_per_node(tasks: Option<&str>, nodes: &str, cpus: &str) -> Option<String> {
    let nodes = parse_decimal(nodes)?;
    let groups = cpus.split(',').map(parse_cpu_group).collect::<Option<Vec<_>>>()?;
    let node_count = groups.iter().try_fold(0_u32, |sum, (_, times)| sum.checked_add(*times))?;
    let cpu_count = groups.iter().try_fold(0_u32, |sum, (cpus, times)| {
        cpus.checked_mul(*times).and_then(|product| sum.checked_add(product))
    })?;
    if nodes == 0 || node_count != nodes {
        return None;
    }
    let Some(tasks) = tasks else {
        return groups.iter().all(|(cpus, _)| *cpus == 1).then(|| cpus.to_owned());
    };
    match (parse_decimal(tasks)?, groups.as_slice()) {
        (0, _) => None,
        (tasks, _) if nodes == 1 => Some(tasks.to_string()),
        (tasks, [_]) if tasks % nodes == 0 => Some(format!("{}(x{nodes})", tasks / nodes)),
        (tasks, _) if tasks == cpu_count => Some(cpus.to_owned()),
        _ => None,
    }
}

/// Parses `16(x2)` or `16`: the processors of a node, and the number of such nodes in a row.
fn parse_cpu_group(text: &str) -> Option<(u32, u32)> {
    match text.strip_suffix(')').map(|text| text.split_once("(x")) {
        None => Some((parse_decimal(text)?, 1)),
        Some(Some((cpus, times))) => Some((parse_decimal(cpus)?, parse_decimal(times)?)),
        Some(None) => None,
    }
}

#[cfg(test)]
mod tests;
