//! Limits of a job's cgroup hold for its logins. Only a cgroup v2 with controllers can show that;
//! `make test-kernels` boots one, and other runs skip these tests.

use serde_json::json;

use crate::support::{
    ALICE, BOB, Cgroup, Flags, Job, Node, Outcome, Process, eventually, on_node, run_while_held,
};

/// Starts a job whose cgroup has these controllers, on a node that delegates them.
fn start_job_with_controllers(node: &Node) -> Job<'_> {
    start_job_with_devices(node, &[])
}

fn start_job_with_devices<'a>(node: &'a Node, devices: &[&str]) -> Job<'a> {
    for cgroup in [node.cgroup().clone(), node.cgroup().child("jobs")] {
        cgroup.write("cgroup.subtree_control", "+memory +pids");
    }
    node.job(ALICE, "4242").devices(devices).start()
}

/// Reads the number behind `word` in a file of words and numbers.
fn read_count(cgroup: &Cgroup, file: &str, word: &str) -> u64 {
    let text = cgroup.read(file);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {word} in {text}"))
        .parse()
        .unwrap()
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn process_limit_of_job_holds_for_login() {
    on_node(|node| {
        let job = start_job_with_controllers(node);
        node.run_in_session("(true) && echo forked", ALICE)
            .ok()
            .says("forked");
        let limit = job.cgroup.read("pids.current");
        job.cgroup.write("pids.max", &limit);
        // The session's own process joins beyond the limit, and cannot fork.
        let outcome = node.session(ALICE);
        outcome.omits("forked");
        eventually("the login was held", || {
            read_count(&job.cgroup, "pids.events", "max") > 0
        });
        node.log.decision("JA00");
        job.cgroup.write("pids.max", "max");
        node.session(ALICE).ok().says("forked");
    });
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn memory_limit_of_job_holds_for_login() {
    on_node(|node| {
        let job = start_job_with_controllers(node);
        // A single process allocates the memory: while a killed one is still ending, the kernel may
        // kill a second one for the allocation of another.
        let script = "dd if=/dev/zero of=/dev/null bs=64M count=1; echo ended with $?";
        node.run_in_session(script, ALICE).ok().says("ended with 0");
        job.cgroup.write("memory.max", "32M");
        assert_eq!(read_count(&job.cgroup, "memory.events", "oom_kill"), 0);
        node.session(ALICE).ok().says("ended with 137");
        assert!(read_count(&job.cgroup, "memory.events", "oom_kill") > 0);
        assert_eq!(job.cgroup.pids().len(), 1, "the job itself was ended");
    });
}

/// A job that enables controllers for its children has its logins in a leaf; the job's limit still
/// counts.
#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn login_in_leaf_is_held_to_limit_of_job() {
    on_node(|node| {
        let cgroup = node.cgroup().child("jobs").child("outer");
        for above in [node.cgroup().clone(), node.cgroup().child("jobs")] {
            above.write("cgroup.subtree_control", "+memory +pids");
        }
        let job = node
            .job(ALICE, "4242")
            .with("leaf", json!("logins"))
            .in_cgroup(cgroup)
            .start();
        let script = "cat /proc/self/cgroup; (true) && echo forked";
        let leaf = job.cgroup.child("logins");
        node.run_in_session(script, ALICE)
            .ok()
            .says("forked")
            .joins_cgroup(&leaf);
        job.cgroup
            .write("pids.max", &job.cgroup.read("pids.current"));
        node.session(ALICE).omits("forked");
        eventually("the login was held", || {
            read_count(&job.cgroup, "pids.events", "max") > 0
        });
    });
}

/// Starts a job with a step, with memory and pids enabled for its children. Returns the job, its step
/// and its future leaf.
fn start_job_with_step(node: &Node) -> (Job<'_>, Cgroup, Cgroup) {
    add_step(start_job_with_controllers(node))
}

fn add_step(job: Job<'_>) -> (Job<'_>, Cgroup, Cgroup) {
    let step = job.cgroup.child("step");
    step.create()
        .write("cgroup.procs", &job.cgroup.pids()[0].to_string());
    job.cgroup.write("cgroup.subtree_control", "+memory +pids");
    let leaf = job.cgroup.child("job-adopt");
    (job, step, leaf)
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn login_that_exceeds_its_share_of_memory_is_killed_alone() {
    on_node(|node| {
        let (job, step, leaf) = start_job_with_step(node);
        job.cgroup.write("memory.max", "512M");
        node.configure("login_memory = 25%\n");
        let script = "dd if=/dev/zero of=/dev/null bs=256M count=1; echo ended with $?";
        node.run_in_session(script, ALICE)
            .ok()
            .says("ended with 137");
        node.log.line("limits=memory.max=134217728");
        assert_eq!(leaf.read("memory.max").trim(), (128 << 20).to_string());
        assert!(read_count(&leaf, "memory.events", "oom_kill") > 0);
        assert_eq!(read_count(&step, "memory.events", "oom_kill"), 0);
        assert_eq!(step.pids().len(), 1, "the job's own process was ended");
        job.resolved()
            .says("login_memory: memory.max 134217728")
            .says("memory: 134217728; the job's processes: 536870912")
            .says("tasks: no limit, as the job's processes")
            .says("differs: memory\n");
    });
}

/// Once root raises the limit, the login goes on.
#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn login_above_its_share_of_memory_is_slowed_and_not_killed() {
    on_node(|node| {
        let (job, step, leaf) = start_job_with_step(node);
        job.cgroup.write("memory.max", "512M");
        node.configure("login_memory_high = 64M\n");
        let sshd = node.sshd();
        let script = "head -c 96M /dev/zero >/tmp/file; echo ended with $?; exec sleep infinity";
        let mut login = sshd.stay(ALICE, script);
        let is_slowed = || leaf.exists() && read_count(&leaf, "memory.events", "high") > 0;
        eventually("the login was slowed down", is_slowed);
        node.log.line("limits=memory.high=67108864");
        assert_eq!(leaf.read("memory.high").trim(), (64 << 20).to_string());
        job.resolved()
            .says("login_memory_high: memory.high 67108864");
        assert_eq!(read_count(&step, "memory.events", "high"), 0);
        assert_eq!(read_count(&leaf, "memory.events", "oom_kill"), 0);
        let size = || std::fs::metadata(node.path("/tmp/file")).map_or(0, |file| file.len());
        assert!(size() < 96 << 20, "it was not slowed down");
        leaf.write("memory.high", "max");
        eventually("the login goes on", || size() == 96 << 20);
        node.unregister("4242").ok();
        eventually("it has ended", || login.try_wait().unwrap().is_some());
    });
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn logins_have_a_weight_for_disks_and_their_bytes_are_counted() {
    on_node(|node| {
        node.sh(
            "set -e; modprobe loop; truncate -s 8M /root/disk; mknod -m 666 /dev/loop7 b 7 7; \
             losetup /dev/loop7 /root/disk",
        )
        .ok();
        let (job, step, leaf) = add_step(start_job_with_devices(node, &["/dev/loop7"]));
        node.configure("login_io_weight = 50\n");
        node.pam(ALICE).ok();
        let text = "login_io_weight: does not apply: the cgroup above has not enabled";
        job.resolved().says(text);
        for above in [node.cgroup(), &node.cgroup().child("jobs"), &job.cgroup] {
            above.write("cgroup.subtree_control", "+io");
        }
        let script = "[ $PAM_TYPE = open_session ] || exit 0; \
                      dd if=/dev/zero of=/dev/loop7 bs=1M count=3 oflag=direct && \
                      dd if=/dev/loop7 of=/dev/null bs=1M count=2 iflag=direct && echo copied";
        let outcome = node.run_in_session(script, ALICE);
        node.sh("losetup -d /dev/loop7").ok();
        outcome.ok().says("copied");
        if std::fs::exists(leaf.dir().join("io.weight")).unwrap() {
            let weight = |cgroup: &Cgroup| cgroup.read("io.weight");
            assert_eq!(
                [weight(&leaf), weight(&step)],
                ["default 50\n", "default 100\n"]
            );
            job.resolved().says("login_io_weight: io.weight 50");
        } else {
            job.resolved()
                .says("login_io_weight: does not apply: the kernel has no weights");
        }
        let list = node.job_adopt(&["list", "--json"]).ok();
        let list: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
        let usage = &list["jobs"][0]["login_usage"];
        assert_eq!(usage["io_written"], 3 << 20, "{usage}");
        assert_eq!(usage["io_read"], 2 << 20, "{usage}");
        assert!(usage["swap"].is_u64(), "{usage}");
        node.job_adopt(&["list"])
            .ok()
            .says("LOGIN-WRITE")
            .says(" 3M ");
        node.unregister("4242").ok();
        let line = node.log.line("action=unregister");
        assert_eq!(line.field("login_io_written"), Some("3145728"));
        assert_eq!(line.field("login_io_read"), Some("2097152"));
    });
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn fork_bomb_of_login_leaves_job_its_tasks() {
    on_node(|node| {
        let (job, step, leaf) = start_job_with_step(node);
        job.cgroup.write("pids.max", "60");
        node.configure("login_tasks = 20\n");
        // The shell ends at the first fork that fails.
        let script = "n=0; while [ $n -lt 80 ]; do sleep 600 >/dev/null 2>&1 & n=$((n + 1)); done";
        node.run_in_session(script, ALICE);
        node.log.line("limits=pids.max=20");
        assert!(read_count(&leaf, "pids.events", "max") > 0);
        let free = 60
            - job
                .cgroup
                .read("pids.current")
                .trim()
                .parse::<u64>()
                .unwrap();
        assert!(free >= 30, "{free} tasks are left to the job");
        let ten = "for n in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1 & done; wait";
        let mut command = node.daemon(&step, "sh");
        Outcome::run(command.args(["-c", ten])).ok();
    });
}

/// A scheduler may give the cgroup, with our leaf in it, to the next job.
#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn next_job_gets_no_limit_of_previous_user() {
    on_node(|node| {
        let (_job, step, leaf) = start_job_with_step(node);
        node.session_alone("");
        node.session(ALICE).ok();
        assert_eq!(leaf.read("pids.max").trim(), "max");
        node.configure("login_tasks = 20\n");
        let procs = format!("/sys/fs/cgroup{}/cgroup.procs", leaf.path());
        let held = ["-P", &procs, "-e", "inject=write:delay_enter=60000000"];
        let mut next = None;
        let login = || node.session_under_strace("/tmp/strace", &held, ALICE);
        run_while_held(node, login, || {
            next = Some(Process::start_in(node, &step, BOB, "exec sleep infinity"));
        })
        .fails();
        node.log.decision("JA07");
        assert_eq!(leaf.read("pids.max").trim(), "max");
    });
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn limit_of_logins_exceeds_neither_the_job_nor_a_lower_one() {
    on_node(|node| {
        let (job, _, leaf) = start_job_with_step(node);
        job.cgroup
            .write("memory.max", "512M")
            .write("pids.max", "60");
        node.configure("login_memory = 1T\nlogin_tasks = 4000\nlogin_cpu_weight = 50\n");
        node.pam(ALICE).ok();
        node.log.line("limits=\"memory.max=536870912 pids.max=60\"");
        assert_eq!(leaf.read("memory.max").trim(), "536870912");
        assert_eq!(leaf.read("pids.max").trim(), "60");
        let text = "login_cpu_weight: does not apply: ";
        job.resolved()
            .says(text)
            .says("the cgroup above has not enabled")
            .says("memory: 536870912, as the job's processes")
            .says("tasks: 60, as the job's processes")
            .omits("differs");
        for above in [node.cgroup(), &node.cgroup().child("jobs"), &job.cgroup] {
            above.write("cgroup.subtree_control", "+cpu");
        }
        leaf.write("pids.max", "40");
        node.pam(ALICE).ok();
        assert_eq!(leaf.read("cpu.weight").trim(), "50");
        assert_eq!(
            leaf.read("pids.max").trim(),
            "40",
            "a limit of somebody else was raised"
        );
    });
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn limit_that_cannot_be_set_refuses_login() {
    on_node(|node| {
        let (_job, _, leaf) = start_job_with_step(node);
        node.pam(ALICE).ok();
        node.configure("login_tasks = 20\n");
        let file = format!("{}/pids.max", leaf.dir().display());
        let options = ["-P", &file, "-e", "inject=write:error=EIO"];
        let outcome = node.session_under_strace("/tmp/strace", &options, ALICE);
        outcome.fails().says("[JA07]");
        node.log.line("pids.max: Input/output error");
        assert!(leaf.pids().is_empty());
        node.arguments("action_adopt_failure=allow");
        node.session_under_strace("/tmp/strace", &options, ALICE)
            .ok();
        node.log.line("decision=opened code=JA07");
    });
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn cgroup_of_scheduler_gets_no_limit_of_logins() {
    on_node(|node| {
        node.configure("login_memory = 64M\nlogin_tasks = 20\n");
        let job = start_job_with_controllers(node);
        node.pam(ALICE).ok();
        let limits = |cgroup: &Cgroup| [cgroup.read("memory.max"), cgroup.read("pids.max")];
        assert_eq!(limits(&job.cgroup), ["max\n", "max\n"]);
        drop(job);
        let (_job, step, leaf) = start_job_with_step(node);
        leaf.create();
        node.run_in_session("cat /proc/self/cgroup", ALICE)
            .ok()
            .joins_cgroup(&leaf);
        assert_eq!(
            [limits(&leaf), limits(&step)],
            [["max\n", "max\n"], ["max\n", "max\n"]]
        );
    });
}

/// Files in memory count for the cgroup of the process that wrote them.
#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn reported_memory_of_logins_is_that_of_their_leaf() {
    on_node(|node| {
        let (_job, _, leaf) = start_job_with_step(node);
        let sshd = node.sshd();
        let script = "head -c 40M /dev/zero >/tmp/file; exec sleep infinity";
        let mut login = sshd.stay(ALICE, script);
        let read = |file: &str| -> u64 { leaf.read(file).trim().parse().unwrap() };
        let runs = |pid: &i32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "sleep\n")
        };
        eventually("the file is written", || {
            leaf.exists() && leaf.pids().iter().any(runs)
        });
        // The login's sshd goes on using memory.
        let before = read("memory.peak");
        let list = node.job_adopt(&["list", "--json"]).ok();
        let peak = read("memory.peak");
        let list: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
        let usage = &list["jobs"][0]["login_usage"];
        let (memory, counted) = (usage["memory"].as_u64().unwrap(), read("memory.current"));
        assert!(counted > 40 << 20, "{counted}");
        assert!(memory.abs_diff(counted) < 4 << 20, "{memory} {counted}");
        let reported = usage["memory_peak"].as_u64().unwrap();
        assert!(
            (before..=peak).contains(&reported),
            "{before} {reported} {peak}"
        );
        // A second call would find no login, and an emulated processor may need more than ten seconds.
        node.unregister("4242").ok();
        let logged = node.log.line("action=unregister");
        let logged: u64 = logged.field("login_memory_peak").unwrap().parse().unwrap();
        assert!(
            (peak..peak + (4 << 20)).contains(&logged),
            "{peak} {logged}"
        );
        eventually("the login has ended", || {
            login.try_wait().unwrap().is_some()
        });
    });
}

/// The options that `run` and `register` refuse or take together.
const LIMITS: [&str; 10] = [
    "--cores",
    "1",
    "--memory-nodes",
    "0",
    "--memory",
    "256M",
    "--memory-high",
    "200M",
    "--swap",
    "0",
];

/// Enables cpuset and memory for the cgroups of `run`, as the admin of a node without systemd does.
fn enable_at_root() {
    std::fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset +memory").unwrap();
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn login_has_cores_and_memory_of_job_of_run() {
    on_node(|node| {
        enable_at_root();
        let id = node.cgroup().path().trim_start_matches('/').to_owned();
        let options = ["run", "--user", "alice", "--id", &id, "--policy", "closed"];
        let mut run = node
            .daemon(&node.outside(), "job-adopt")
            .args(options)
            .args(LIMITS)
            .args(["--", "sleep", "infinity"])
            .spawn()
            .unwrap();
        eventually("the job is there", || {
            node.exists(&format!("/run/job-adopt/jobs/1001/{id}.json"))
        });
        let script = "grep _allowed_list: /proc/self/status; \
                      cd /sys/fs/cgroup$(cut -d : -f 3 /proc/self/cgroup); \
                      grep . memory.max memory.high memory.swap.max; \
                      dd if=/dev/zero of=/dev/null bs=512M count=1; echo ended with $?";
        node.run_in_session(script, ALICE)
            .ok()
            .says("Cpus_allowed_list:\t1\n")
            .says("Mems_allowed_list:\t0\n")
            .says("memory.max:268435456\n")
            .says("memory.high:209715200\n")
            .says("memory.swap.max:0\n")
            .says("ended with 137");
        node.job_adopt(&["resolve", "--user", "alice"])
            .ok()
            .says("cores: 1, the job's")
            .says("memory: 268435456, as the job's processes");
        node.job_adopt(&["list", "--verbose"])
            .ok()
            .says("  CORES  MEM-NODES  MEM-MAX  MEM-HIGH  SWAP-MAX  TASKS-MAX  CGROUP")
            .says("  1      0          256M     200M      0M        -          /job-adopt.jobs/");
        node.unregister(&id).ok();
        eventually("the job has ended", || run.try_wait().unwrap().is_some());
        assert!(!Cgroup::new(format!("/job-adopt.jobs/{id}")).exists());
    });
}

/// From Linux 6.2 on a mask that was set stays with a process that moves to another cpuset. Perl binds the memory to
/// node 0, as `numactl --membind=0` does, since the machine has no numactl.
#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn job_of_pinned_caller_has_its_own_cores_and_memory_policy() {
    on_node(|node| {
        enable_at_root();
        let run = |limits: &[&str]| {
            let script =
                "grep Cpus_allowed_list: /proc/self/status; head -n 1 /proc/self/numa_maps";
            let number = if cfg!(target_arch = "x86_64") {
                238
            } else {
                237
            };
            let call = format!("syscall({number}, 2, $node, 64) == 0 or die $!");
            let bind = format!("my $node = pack('Q', 1); {call}; exec @ARGV");
            let words = ["-e", &bind, "taskset", "-c", "0", "job-adopt", "run"];
            let options = ["--user", "alice", "--policy", "closed"];
            let command = ["--", "sh", "-c", script];
            let mut perl = node.daemon(&node.outside(), "perl");
            let words = [&words[..], &options, limits, &command].concat();
            Outcome::run(perl.args(words)).ok()
        };
        run(&["--cores", "0-1"])
            .says("Cpus_allowed_list:\t0-1\n")
            .says(" default ");
        run(&["--cores", "1"]).says("Cpus_allowed_list:\t1\n");
        run(&["--memory-nodes", "0"]).says(" default ");
        run(&["--memory", "256M"]).says(" bind:0 ");
    });
}

/// Checks each limit alone and all together, in a cgroup that the kernel holds to other ones before.
#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn register_refuses_cgroup_that_is_not_held_to_the_limits() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let register = |limits: &[&str]| {
            let words = [
                "register", "--id", "4242", "--user", "alice", "--policy", "closed",
            ];
            let words = [&words[..], &["--cgroup", job.cgroup.path()], limits].concat();
            node.job_adopt(&words)
        };
        for above in [node.cgroup().clone(), node.cgroup().child("jobs")] {
            above.write("cgroup.subtree_control", "-cpuset");
        }
        register(&["--cores", "1"])
            .exits(3)
            .says("the controller cpuset is not enabled: echo +cpuset >/sys/fs/cgroup/");
        enable_at_root();
        for above in [node.cgroup().clone(), node.cgroup().child("jobs")] {
            above.write("cgroup.subtree_control", "+cpuset +memory");
        }
        register(&["--cores", "1"])
            .exits(3)
            .says("cpuset.cpus.effective is 0-1, not 1: set AllowedCPUs of its unit");
        register(&LIMITS).exits(3);
        node.cgroup().child("jobs").write("cpuset.cpus", "0");
        job.cgroup.write("cpuset.cpus", "1");
        register(&["--cores", "1"])
            .exits(3)
            .says(" above has 0 only");
        node.cgroup().child("jobs").write("cpuset.cpus", "0-1");
        register(&LIMITS[..6])
            .exits(3)
            .says("memory.max is max, not 268435456");
        node.account(ALICE).fails();
        job.cgroup
            .write("cpuset.mems", "0")
            .write("memory.max", "256M")
            .write("memory.high", "200M")
            .write("memory.swap.max", "0");
        register(&LIMITS).ok();
        node.account(ALICE).ok();
    });
}

/// A cgroup that gives controllers to its children takes no process, so the kernel is asked in one below that has
/// the same filters.
#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn devices_of_cgroup_that_takes_no_process_are_asked_below_it() {
    on_node(|node| {
        let job = start_job_with_controllers(node);
        let jobs = node.cgroup().child("jobs");
        jobs.attach(Flags::Multi, "foreign", &["195:2"]);
        let ask = || node.job_adopt(&["devices", "--cgroup", jobs.path()]);
        let table = ask().ok();
        let row = |path: &str| {
            let line = table
                .stdout
                .lines()
                .find(|line| line.starts_with(path))
                .unwrap();
            line.split_whitespace().nth(3).unwrap().to_owned()
        };
        assert_eq!(
            (row("/dev/nvidia1 "), row("/dev/nvidia2 ")),
            ("rwm".into(), "-".into())
        );
        // The job's own filter would refuse more.
        job.cgroup.attach(Flags::Multi, "foreign", &["195:1"]);
        ask()
            .exits(3)
            .says("it takes no process, and no cgroup below it that takes one has the same");
        assert_eq!(job.cgroup.pids().len(), 1);
    });
}

/// A process that moves in is not refused at the limit.
#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn devices_of_job_at_its_process_limit_are_told() {
    on_node(|node| {
        let job = start_job_with_controllers(node);
        job.cgroup
            .write("pids.max", &job.cgroup.read("pids.current"));
        node.job_adopt(&["devices", "--cgroup", job.cgroup.path()])
            .ok()
            .says("no filter");
    });
}
