//! The priority of a Slurm job's tasks, which its logins share. Slurm lowers it by `PropagatePrioProcess`, and tasks
//! inherit the nice value of slurmd.

use kernel::cgroup::{self, Dir, Occupants, ignore_gone, list_own_processes};
use kernel::priority::TaskPriority;

/// Maximum steps of a job of which a task is looked at.
const STEPS_MAX: usize = 8;
/// Maximum tasks of a step that are looked at until one has a process.
const TASKS_MAX: usize = 128;
/// What precedes the number of a task, which Slurm counts over all nodes of the job: its first node alone has `task_0`.
const TASK_PREFIX: &str = "task_";

/// Reads the worst priority of the first running tasks of the steps in the cgroup `job`, of which the extern step is left out:
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
        worst = worst.worst(user.worst_priority(&list_first_task(&step)));
    }
    Ok(worst.worst(TaskPriority::default()))
}

/// Lists the processes of a step's first running task. The tasks are below `user` on cgroup v2, and in the step on v1,
/// where a step without a plugin for tasks has the processes itself.
fn list_first_task(step: &Dir) -> Vec<i32> {
    let user = step.child("user").ok();
    let mut parents = user.iter().chain([step]);
    parents
        .find_map(find_task)
        .unwrap_or_else(|| list_own_processes(step).unwrap_or_default())
}

/// Finds the first task in a cgroup that has processes; returns these.
fn find_task(parent: &Dir) -> Option<Vec<i32>> {
    let names = parent.children().ok()?;
    let tasks = names.iter().filter(|name| {
        let name = name
            .to_str()
            .and_then(|name| name.strip_prefix(TASK_PREFIX));
        name.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    });
    tasks
        .take(TASKS_MAX)
        .filter_map(|name| list_own_processes(&parent.child(name).ok()?).ok())
        .find(|processes| !processes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use nix::unistd::{getpid, getuid};
    use std::fs::File;
    use std::process::Command;

    /// Slurm counts tasks over the whole job, so that the job's second node has no `task_0`; and on any node it may end.
    #[test]
    fn tasks_of_any_number_count() {
        let mut task = Command::new("nice")
            .args(["-n", "19", "sleep", "60"])
            .spawn()
            .unwrap();
        let pid = i32::try_from(task.id()).unwrap();
        let is_nice = || TaskPriority::read(pid).is_ok_and(|priority| priority.nice == 19);
        while !is_nice() {
            std::thread::yield_now();
        }
        let pid = pid.to_string();
        let nices = [
            vec![("step_0/user/task_5", pid.as_str())],
            vec![("step_0/user/task_0", ""), ("step_0/user/task_5", &pid)],
            vec![("step_0/task_7", &pid)],
            vec![("step_batch/user", ""), ("step_batch", &pid)],
            vec![("step_extern/user/task_5", &pid)],
            vec![("step_0/user/task_5", "")],
        ]
        .map(|cgroups| {
            let scratch = Scratch::new();
            for (cgroup, processes) in cgroups {
                scratch.file(&format!("{cgroup}/cgroup.procs"), processes);
            }
            let job = Dir::new(File::open(scratch.path()).unwrap().into(), "/job_1");
            let daemon = getpid().as_raw();
            read_priority(&job, daemon, getuid().as_raw()).unwrap().nice
        });
        task.kill().unwrap();
        task.wait().unwrap();
        let own = TaskPriority::read(getpid().as_raw()).unwrap().nice.max(0);
        assert_eq!(nices, [19, 19, 19, 19, own, own]);
    }
}
