//! A login has what a task of its job has: ten attributes of both are read back and are equal, whatever sshd was
//! started with. `tests/attributes` prints them; `slurm::parity` and nodes compare those of Slurm jobs.

use crate::flux::ONE_GPU;
use crate::support::{ALICE, Cgroup, Job, Node, Outcome, eventually, on_flux, on_node};

/// What `tests/attributes` prints, in this order.
const NAMES: [&str; 10] = [
    "cgroup",
    "devices",
    "cores",
    "memory nodes",
    "memory",
    "tasks",
    "oom score",
    "namespaces",
    "nice",
    "job id",
];
/// Pins this shell to a core and puts it before other processes, as the unit of an sshd can (`CPUAffinity=`, `Nice=`,
/// `IOSchedulingPriority=`, `OOMScoreAdjust=`). Not every machine's root may lower the last.
pub(crate) const FAVOURED: &str = "taskset -cp 0 $$ >/dev/null; renice -n -7 $$ >/dev/null; \
    ionice -c 2 -n 1 -p $$; (echo -500 >/proc/$$/oom_score_adj) 2>/dev/null || :";

/// Puts the program that prints attributes on a node.
pub(crate) fn install_attributes(node: &Node) {
    node.write("/usr/bin/attributes", include_str!("../attributes"));
    node.set_mode("/usr/bin/attributes", 0o755);
}

/// Returns the printed attributes with their names.
#[track_caller]
fn read_attributes(outcome: &Outcome) -> Vec<(&str, &str)> {
    let lines = outcome.stdout.lines();
    let attributes: Vec<_> = lines.filter_map(|line| line.split_once(':')).collect();
    let names: Vec<&str> = attributes.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, NAMES, "{outcome}");
    attributes
}

/// Asserts that login and task have the same attributes, but for those in `except`, and are in the job.
#[track_caller]
pub(crate) fn assert_same(login: &Outcome, task: &Outcome, except: &[&str]) {
    let of_login = read_attributes(login);
    let of_task = read_attributes(task);
    assert!(
        of_task[0].1.contains('/'),
        "the task is not in the job: {task}"
    );
    let pairs = of_login.iter().zip(&of_task);
    let different: Vec<&str> = pairs
        .filter(|(one, other)| one != other)
        .map(|((name, _), _)| *name)
        .collect();
    assert_eq!(different, except, "login: {login}\ntask: {task}");
}

/// Gives what this thread starts the usual nice value, however the tests were started. Only root can.
pub(crate) fn become_usual() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let thread = nix::unistd::gettid().to_string();
    let mut renice = std::process::Command::new("renice");
    Outcome::run(renice.args(["-n", "0", "-p", &thread])).ok();
}

/// Ends the node's sshd, so that another can start. Its file is gone when it no longer listens.
pub(crate) fn end_server(node: &Node) {
    node.sh("kill $(cat /run/sshd.pid)").ok();
    eventually("sshd has ended", || !node.exists("/run/sshd.pid"));
}

/// Runs a program as Alice in a cgroup of the node, as a scheduler runs a task.
fn run_task(node: &Node, cgroup: &Cgroup, words: &[&str]) -> Outcome {
    let id = ALICE.uid.to_string();
    let mut command = node.daemon(cgroup, "setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    Outcome::run(command.args(words)).ok()
}

/// Limits a job in each way that this machine's controllers of cgroup v2 can; returns whether it has its own cores.
fn limit_job(job: &Job<'_>) -> bool {
    let root = std::fs::read_to_string(Cgroup::new("").dir().join("cgroup.controllers"));
    let controllers = root.unwrap_or_default();
    let has = |name: &str| controllers.split_whitespace().any(|word| word == name);
    let limits = [
        ("cpuset", "cpuset.cpus", "0-1"),
        ("memory", "memory.max", "536870912"),
        ("memory", "memory.high", "500000000"),
        ("pids", "pids.max", "200"),
    ];
    for (controller, file, value) in limits {
        if !has(controller) {
            continue;
        }
        let dirs: Vec<_> = job
            .cgroup
            .dir()
            .ancestors()
            .skip(1)
            .map(std::path::Path::to_owned)
            .collect();
        for dir in dirs
            .iter()
            .rev()
            .filter(|dir| dir.join("cgroup.subtree_control").exists())
        {
            std::fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}")).unwrap();
        }
        job.cgroup.write(file, value);
    }
    has("cpuset")
}

/// The scheduler of such a job sets its variable for tasks, here the test does.
#[test]
fn login_to_registered_job_has_what_its_task_has() {
    become_usual();
    on_node(|node| {
        install_attributes(node);
        node.arguments("");
        for with_step in [false, true] {
            let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
            let has_cores = limit_job(&job);
            let mut place = job.cgroup.clone();
            if with_step {
                place = job.cgroup.child("step");
                place
                    .create()
                    .write("cgroup.procs", &job.cgroup.pids()[0].to_string());
            }
            for (script, is_pinned) in [(":", false), (FAVOURED, true)] {
                let sshd = node.sshd_after(script, "");
                let words = [
                    "env",
                    "JOB_ADOPT_JOB_ID=4242",
                    "attributes",
                    "job-4242",
                    "JOB_ADOPT_JOB_ID",
                ];
                let login = sshd.ssh(ALICE, &words[2..].join(" ")).ok();
                let task = run_task(node, &place, &words);
                login.clone().says("nvidia0+ nvidia1- ");
                // The mask of sshd is all that keeps logins from the cores of others.
                let except: &[&str] = if is_pinned && !has_cores {
                    &["cores"]
                } else {
                    &[]
                };
                assert_same(&login, &task, except);
                end_server(node);
            }
        }
    });
}

/// The job's shell gets its id from Flux.
#[test]
fn login_to_flux_job_has_what_its_task_has() {
    const ID: &str = "f2aBcD3e";
    become_usual();
    for (script, except) in [(":", &[][..]), (FAVOURED, &["cores"][..])] {
        on_flux(|node| {
            install_attributes(node);
            let unit = format!("imp-shell-0-{ID}.service");
            let body = format!(
                "until [ -e /tmp/go ]; do sleep 0.1; done; \
                 attributes {unit} FLUX_JOB_ID >/tmp/task; exec sleep infinity"
            );
            let id = format!("FLUX_JOB_ID={ID}");
            let command = ["env", &id, "sh", "-c", &body];
            let job = node.start_flux_job_with_command(ALICE, ID, &ONE_GPU, &command);
            eventually("the shell runs", || !job.shells().is_empty());
            // As a service manager of a user gives its units.
            for pid in job.unit.pids() {
                std::fs::write(format!("/proc/{pid}/oom_score_adj"), "200").unwrap();
            }
            node.write("/tmp/go", "");
            node.write(
                &format!("{}/{unit}", node.transient()),
                "[Service]\nType=notify\n",
            );
            let is_written = || {
                let text = std::fs::read_to_string(node.path("/tmp/task"));
                text.is_ok_and(|text| text.contains("job id:"))
            };
            eventually("the task has printed", is_written);
            let task = node.sh("cat /tmp/task").ok();
            let sshd = node.sshd_after(script, "");
            let login = sshd
                .ssh(ALICE, &format!("attributes {unit} FLUX_JOB_ID"))
                .ok();
            assert_same(&login, &task, except);
            node.job_adopt(&["resolve", "--user", ALICE.name])
                .ok()
                .says("the job's processes: 200\n");
        });
    }
}
