//! The variables that a login gets of its job's environment, by `env` of the configuration.
//!
//! Launchers and frameworks take a Slurm variable as the sign of a whole allocation. So a login gets
//! either the job's id or the set of a shell of `salloc`. All required variables of that set must be known;
//! of the optional ones (`OPTIONAL_VARIABLES`, `SLURM_SUBMIT_DIR` and lists of GPUs) a login gets those that
//! the record has. A login never gets a variable of a step (`SLURM_PROCID`, `SLURM_STEP_ID`,
//! `SLURM_NTASKS` ...), which would make programs believe that `srun` has started them as a rank.
//!
//! A registered job has the variables of its record. For a Flux job, the full set is the id alone: the
//! other variables of the job's shell (`FLUX_URI`, `FLUX_KVS_NAMESPACE`) are for processes that Flux started.
//!
//! Under `env = gpus` and `env = full`, the GPUs that a login can open are named besides.
//!
//! Which names are permitted at all is in `protocol/environment/kind.rs`. What another module has set wins over all of
//! these (`module/variables.rs`).

use crate::config::JobEnvironment;
use crate::jobs::Job;
use crate::jobs::records::{NamedGpu, PrologEnvironment, Record, UnusableVariable, id_variable};
use crate::node::topology;
use crate::node::{DeviceError, Tree, nvidia};
use protocol::{
    Containment, InvalidText, PROBES_MAX, Probe, Scheduler, SourceName, Variable, Variables,
    parse_decimal,
};
use thiserror::Error;

/// Variables of the prolog that a login gets unchanged, if the record has them.
const OPTIONAL_VARIABLES: [&str; 4] = [
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_USER",
];
/// Lists of GPUs, as the libraries of their vendors read them.
const GPU_LIST_VARIABLES: [&str; 4] = [
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
];

/// The list that NVIDIA's libraries read.
const CUDA_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// The variables of one login, and warnings for the log about those that it lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LoginVariables {
    pub(super) variables: Variables,
    pub(super) warnings: Vec<String>,
}

impl LoginVariables {
    /// The variables of a login that gets the job's id alone, in the variable of its scheduler.
    fn of_id(job: &Job, scheduler: Scheduler) -> Self {
        let environment = job.record.as_ref().and_then(|record| record.env.as_ref());
        Self::of_result(id_variable(environment, &job.id, scheduler))
    }

    /// The variables of a login to a registered job. Its record has been checked, so this cannot fail.
    fn of_record(job: &Job, scheduler: Scheduler) -> Self {
        match job.record.as_ref().and_then(|record| record.env.as_ref()) {
            Some(environment) => Self::of_result(environment.login_variables(&job.id, scheduler)),
            None => Self::of_id(job, scheduler),
        }
    }

    /// Turns an error into a warning: a login does without variables rather than being refused.
    fn of_result(result: Result<Variables, UnusableVariable>) -> Self {
        match result {
            Ok(variables) => Self {
                variables,
                warnings: Vec::new(),
            },
            Err(error) => Self {
                variables: Variables::default(),
                warnings: vec![format!("env: {error}")],
            },
        }
    }

    /// Gives each probe the variable that names its GPU, and returns the probes: the privileged half makes lists of
    /// those GPUs that the login can open. For each list either the prolog's is removed from these variables, or the
    /// names from the probes. The prolog's stays if it tells more: if the login opens other GPUs than the job's too, or
    /// if no probe has a name for this list.
    pub(super) fn name_gpus(
        &mut self,
        probes: Vec<Probe>,
        gpus: &[NamedGpu],
        job: &Job,
        containment: &Containment,
    ) -> Vec<Probe> {
        let mut named = name_probes(probes, gpus);
        let numbering = GpuNumbering::of_login(job, containment);
        for list in GPU_LIST_VARIABLES {
            let adds_to_list = |probe: &Probe| {
                probe
                    .variable
                    .as_ref()
                    .is_some_and(|gpu| gpu.name() == list)
            };
            // Only one list may stay: the prolog's, or the one of the probes.
            if numbering == GpuNumbering::FromZero && named.iter().any(adds_to_list) {
                self.variables.remove(list);
            } else if self.variables.has(list) {
                for probe in named.iter_mut().filter(|probe| adds_to_list(probe)) {
                    probe.variable = None;
                }
            }
        }
        named
    }
}

/// Why a login does not get the set of a shell in the allocation.
#[derive(Debug, Error)]
enum VariableError {
    #[error("the job has no record")]
    NoRecord,
    #[error("the job's record has no environment")]
    NoEnvironment,
    #[error("the job's record has no {0}")]
    Missing(&'static str),
    #[error("how many tasks each node has cannot be told exactly")]
    UncertainTasks,
    #[error("{0} mixes numbers and names")]
    MixedList(&'static str),
    #[error("{0} {1}")]
    InvalidValue(String, InvalidText),
    #[error("{0}: {1}")]
    Surplus(String, InvalidText),
}

/// Collects the variables for a login to `job` under `containment`. If the full set is impossible or
/// an optional variable is invalid, a warning gives the reason.
pub(super) fn login_variables(
    job: &Job,
    env: JobEnvironment,
    containment: &Containment,
) -> LoginVariables {
    if env == JobEnvironment::None {
        return LoginVariables::default();
    }
    let scheduler = match job.placement.source() {
        SourceName::Registry => job
            .record
            .as_ref()
            .map_or(Scheduler::Other, Record::scheduler),
        SourceName::Flux => Scheduler::Flux,
        SourceName::Slurm => Scheduler::Slurm,
    };
    match (scheduler, env) {
        (Scheduler::Slurm, JobEnvironment::Full) => allocation_variables(job, containment)
            .unwrap_or_else(|why| LoginVariables {
                warnings: vec![format!("env: only SLURM_JOB_ID is set: {why}")],
                ..LoginVariables::of_id(job, scheduler)
            }),
        (Scheduler::Slurm | Scheduler::Flux, _) => LoginVariables::of_id(job, scheduler),
        // All others are schedulers of registered jobs.
        (_, JobEnvironment::Full) => LoginVariables::of_record(job, scheduler),
        _ => LoginVariables::of_id(job, scheduler),
    }
}

/// Lists the GPUs of the node, without the variable where it would name no single GPU. No NVIDIA GPU
/// is named on a node with MIG instances, since only a UUID names an instance, and no file contains it.
///
/// # Errors
///
/// The GPUs of the node cannot be listed.
pub fn list_nameable_gpus(tree: &Tree) -> Result<Vec<NamedGpu>, DeviceError> {
    let has_instances = nvidia::has_instances(tree)?;
    let mut named = Vec::new();
    for gpu in topology::list_gpus(tree)? {
        let visible_devices = gpu
            .visible_devices
            .filter(|(name, _)| !has_instances || *name != CUDA_VARIABLE)
            .map(|(name, uuid)| (name.to_owned(), uuid));
        named.push(NamedGpu {
            own_node: gpu.own_node,
            visible_devices,
        });
    }
    Ok(named)
}

/// Adds to each probe the variable that names its GPU to programs; if there are no probes of the
/// scheduler, makes one for each of these GPUs. NVIDIA's GPUs are all named by UUID or all by number: by number if
/// the UUID of one of them is not known.
fn name_probes(mut probes: Vec<Probe>, gpus: &[NamedGpu]) -> Vec<Probe> {
    if probes.is_empty() {
        probes.extend(gpus.iter().filter_map(own_probe).take(PROBES_MAX));
    }
    let uses_numbers = gpus
        .iter()
        .filter_map(|gpu| gpu.visible_devices.as_ref())
        .any(|(name, uuid)| name == CUDA_VARIABLE && uuid.is_none());
    for probe in &mut probes {
        let gpu = gpus.iter().find(|gpu| gpu.own_node.rule == probe.device);
        probe.variable = gpu.and_then(|gpu| gpu_variable(gpu, uses_numbers));
    }
    probes
}

/// Makes the probe of a GPU by its own node; `None` if the node's path is too long for a probe or outside of `/dev`.
fn own_probe(gpu: &NamedGpu) -> Option<Probe> {
    format!("{} {}", gpu.own_node.rule, gpu.own_node.node)
        .parse()
        .ok()
}

/// Names one GPU to programs: by its UUID, or by the number 0 as if it were the only one that they see; numbers are
/// counted up when lists are made of several GPUs. `None` if no variable names the GPU.
fn gpu_variable(gpu: &NamedGpu, uses_numbers: bool) -> Option<Variable> {
    let (name, uuid) = gpu.visible_devices.as_ref()?;
    let uuid = if uses_numbers { None } else { uuid.as_deref() };
    Variable::from_pair(name, uuid.unwrap_or("0")).ok()
}

/// Collects the set of a shell in the allocation.
///
/// # Errors
///
/// [`VariableError`] if a required variable is missing or invalid, if the tasks of each node are not certain, and for a
/// list of both numbers and names of GPUs.
fn allocation_variables(
    job: &Job,
    containment: &Containment,
) -> Result<LoginVariables, VariableError> {
    let record = job.record.as_ref().ok_or(VariableError::NoRecord)?;
    let env = record.env.as_ref().ok_or(VariableError::NoEnvironment)?;
    let nodes = require_variable(env, "SLURM_JOB_NUM_NODES")?;
    let list = require_variable(env, "SLURM_JOB_NODELIST")?;
    let cpus = require_variable(env, "SLURM_JOB_CPUS_PER_NODE")?;
    let tasks = tasks_per_node(env.get("SLURM_JOB_NTASKS"), nodes, cpus)
        .ok_or(VariableError::UncertainTasks)?;
    let id = job.id.as_str();
    let uid = record.uid.to_string();
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
    let numbering = GpuNumbering::of_login(job, containment);
    let mut lists = Vec::new();
    for name in GPU_LIST_VARIABLES {
        if let Some(value) = env.get(name) {
            lists.push((name, number_gpus(name, value, numbering)?));
        }
    }
    for (name, value) in &lists {
        add_variable(&mut variables, name, value)?;
    }
    // Each name in the login with the one in the prolog.
    let unchanged = OPTIONAL_VARIABLES.map(|name| (name, name));
    let mut warnings = Vec::new();
    for (name, from) in unchanged
        .into_iter()
        .chain([("SLURM_SUBMIT_DIR", "SLURM_JOB_WORK_DIR")])
    {
        let Some(value) = env.get(from) else { continue };
        if let Err(why) = add_variable(&mut variables, name, value) {
            warnings.push(format!("env: {why}"));
        }
    }
    Ok(LoginVariables {
        variables,
        warnings,
    })
}

/// Returns a variable of the prolog that the set needs.
fn require_variable<'a>(
    env: &'a PrologEnvironment,
    name: &'static str,
) -> Result<&'a str, VariableError> {
    env.get(name).ok_or(VariableError::Missing(name))
}

/// Adds a variable after checking its value.
///
/// # Errors
///
/// [`VariableError::InvalidValue`]; [`VariableError::Surplus`] for a name that is there already or more bytes than a
/// login may get.
fn add_variable(variables: &mut Variables, name: &str, value: &str) -> Result<(), VariableError> {
    let variable = Variable::from_pair(name, value)
        .map_err(|error| VariableError::InvalidValue(name.to_owned(), error))?;
    variables
        .push(variable)
        .map_err(|error| VariableError::Surplus(name.to_owned(), error))
}

/// How libraries number the GPUs that a login sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GpuNumbering {
    /// The login sees only the job's GPUs, which count from 0.
    FromZero,
    /// The login sees all GPUs, which have their numbers on the node.
    OfNode,
}

impl GpuNumbering {
    /// Decides by the containment: under the scheduler's filter or a list of the job's own devices a login sees only
    /// the job's GPUs, else all of the node's.
    fn of_login(job: &Job, containment: &Containment) -> Self {
        match containment {
            Containment::None => Self::OfNode,
            Containment::Inherit | Containment::InheritAndEnforce(_) => Self::FromZero,
            Containment::Enforce(_) if job.has_device_list() => Self::FromZero,
            // The site's own list for all jobs contains all GPUs.
            Containment::Enforce(_) => Self::OfNode,
        }
    }
}

/// Rewrites a list of GPUs for a login. Names stay. Numbers among all GPUs of the node become numbers
/// among those that the login sees, if it sees the job's alone: as many as they were, from 0 on.
///
/// # Errors
///
/// [`VariableError::MixedList`] for a list of both numbers and names.
fn number_gpus(
    name: &'static str,
    value: &str,
    numbering: GpuNumbering,
) -> Result<String, VariableError> {
    let count = value.split(',').count();
    let numbers = value
        .split(',')
        .filter(|entry| parse_decimal(entry).is_some())
        .count();
    if numbers == 0 {
        return Ok(value.to_owned());
    }
    if numbers < count {
        return Err(VariableError::MixedList(name));
    }
    match numbering {
        GpuNumbering::OfNode => Ok(value.to_owned()),
        GpuNumbering::FromZero => {
            let from_zero: Vec<String> = (0..count).map(|number| number.to_string()).collect();
            Ok(from_zero.join(","))
        }
    }
}

/// Computes the number of tasks of each node, in Slurm's form (`2(x3),1`); `None` unless it is certain.
///
/// Slurm distributes tasks over the nodes in turn, up to the processors of each. So one node has all
/// tasks; nodes with equally many processors have equally many tasks if the numbers divide; and with
/// as many tasks as processors each processor has one. A job without a number of tasks gets as many
/// as fit on its processors, which is certain if each node has only one processor.
fn tasks_per_node(tasks: Option<&str>, nodes: &str, cpus: &str) -> Option<String> {
    let node_count = parse_decimal(nodes)?;
    let mut groups = Vec::new();
    for text in cpus.split(',') {
        groups.push(parse_cpu_group(text)?);
    }
    let mut listed_nodes: u32 = 0;
    let mut cpu_count: u32 = 0;
    for (group_cpus, times) in &groups {
        listed_nodes = listed_nodes.checked_add(*times)?;
        cpu_count = cpu_count.checked_add(group_cpus.checked_mul(*times)?)?;
    }
    if node_count == 0 || listed_nodes != node_count {
        return None;
    }
    let Some(tasks) = tasks else {
        return groups
            .iter()
            .all(|(group_cpus, _)| *group_cpus == 1)
            .then(|| cpus.to_owned());
    };
    let task_count = parse_decimal(tasks)?;
    if task_count == 0 {
        return None;
    }
    if node_count == 1 {
        return Some(task_count.to_string());
    }
    if groups.len() == 1 && task_count % node_count == 0 {
        return Some(format!("{}(x{node_count})", task_count / node_count));
    }
    (task_count == cpu_count).then(|| cpus.to_owned())
}

/// Parses `16(x2)` or `16`: the processors of a node, and the number of such nodes in a row. `None` for another text.
fn parse_cpu_group(text: &str) -> Option<(u32, u32)> {
    let Some(group) = text.strip_suffix(')') else {
        return Some((parse_decimal(text)?, 1));
    };
    let (cpus, times) = group.split_once("(x")?;
    Some((parse_decimal(cpus)?, parse_decimal(times)?))
}

#[cfg(test)]
mod tests;
