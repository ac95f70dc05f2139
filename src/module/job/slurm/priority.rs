//! The priority of a Slurm job's tasks, which its logins share. Slurm lowers it by `PropagatePrioProcess`, and tasks
//! inherit the nice value of slurmd.

use kernel::cgroup::{self, Dir, Occupants, ignore_gone, list_own_processes};
use kernel::priority::TaskPriority;

/// Maximum steps of a job of which a task is looked at.
const STEPS_MAX: usize = 8;
/// The paths below a step of the first task on this node: on cgroup v2, and on v1, where a step without a plugin for
/// tasks has them itself.
const TASK_PATHS: [&[&str]; 3] = [&["user", "task_0"], &["task_0"], &[]];

/// Reads the worst priority of the first tasks of the steps in the cgroup `job`, of which the extern step is left out:
/// it has the logins. Slurm gives all tasks of a step the same one. Of the extern step's daemon only the nice value
/// counts, since Slurm protects the daemon alone from being killed.
///
/// # Errors
///
/// The job's cgroup cannot be listed.
pub(super) fn read_priority(job: &Dir, daemon: i32, user: u32) -> cgroup::Result<TaskPriority> {
    let user = Occupants::only(user);
    let mut worst = TaskPriority {
        oom_score: 0,
        ..TaskPriority::read(daemon).unwrap_or_default()
    };
    let steps = job.children()?;
    let steps = steps.iter().filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("step_") && name != "step_extern"
    });
    for name in steps.take(STEPS_MAX) {
        let Some(step) = ignore_gone(job.child(name))? else {
            continue;
        };
        for path in TASK_PATHS {
            let tasks = list_first_task(&step, path);
            if !tasks.is_empty() {
                worst = worst.worst(user.worst_priority(&tasks));
                break;
            }
        }
    }
    Ok(worst.worst(TaskPriority::default()))
}

/// Lists the processes in a cgroup below a step; none if it is missing.
fn list_first_task(step: &Dir, path: &[&str]) -> Vec<i32> {
    let mut dir = step.clone();
    for name in path {
        let Ok(child) = dir.child(name) else {
            return Vec::new();
        };
        dir = child;
    }
    list_own_processes(&dir).unwrap_or_default()
}
