//! The costs of one login, in counts that no other load changes: processes, system calls, opened
//! files and page faults. They show in review what a time would hide in its noise.
//!
//! A test fails if a count exceeds its budget, and if a budget is far above its count. A change
//! with a good reason for another count changes the budget and the reason beside it.

use protocol::{Phase, Request};
use serde_json::json;

use crate::support::{
    ALICE, Artifact, Cost, HELPER, Node, ROOT, Tool, artifact_path, finished_dir, on_node,
    on_slurm, skip, start_crowd, trace_login,
};

const HELPER_PATH: &str = "/usr/libexec/job-adopt/helper";
/// Size of the part of a file that one page fault maps, if the page cache has it.
const FAULT_AROUND_BYTES: u64 = 64 * 1024;
/// Number of logins of which one must stay within the budget: on a busy machine a login waits longer,
/// and waits again.
const TRIES: usize = 5;

/// The budget of one phase: the highest counts that pass.
#[derive(Debug)]
struct Budget {
    processes: usize,
    module: usize,
    start: usize,
    helper: usize,
    opened: usize,
}

/// Lists the counts that exceed their budget, with the calls, and the budgets that are more than a
/// quarter above their count.
fn find_violations(phase: &str, cost: &Cost, budget: &Budget) -> Vec<String> {
    let files: Vec<String> = cost
        .opened
        .iter()
        .map(|(path, times)| format!("{times} {path}"))
        .collect();
    let opened = cost.opened.values().sum();
    let counts = [
        (
            "processes",
            cost.processes.len(),
            budget.processes,
            &cost.start,
        ),
        (
            "system calls of the module",
            cost.module.len(),
            budget.module,
            &cost.module,
        ),
        (
            "system calls up to the exec",
            cost.start.len(),
            budget.start,
            &cost.start,
        ),
        (
            "system calls of the helper",
            cost.helper.len(),
            budget.helper,
            &cost.helper,
        ),
        ("opened files", opened, budget.opened, &files),
    ];
    let check = |(what, count, limit, trace): (&str, usize, usize, &Vec<String>)| {
        eprintln!("{phase}: {count} {what}, at most {limit}");
        if count > limit {
            Some(format!(
                "{phase}: {count} {what}, at most {limit}:\n{}",
                trace.join("\n")
            ))
        } else if limit > count + count / 4 {
            Some(format!(
                "{phase}: {count} {what}: lower the budget of {limit}"
            ))
        } else {
            None
        }
    };
    counts.into_iter().filter_map(check).collect()
}

/// Asserts that both phases of a login stay within their budgets.
#[track_caller]
fn assert_within_budget(node: &Node, budgets: &[Budget; 2]) {
    let lines = ["account", "session"].map(|group| (group, "required pam_job_adopt.so"));
    // The first login attaches filters and makes directories.
    trace_login(node, lines);
    let find_all = || {
        let costs = trace_login(node, lines);
        let phases = ["account", "session"].into_iter().zip(&costs).zip(budgets);
        let violations =
            phases.flat_map(|((phase, cost), budget)| find_violations(phase, cost, budget));
        violations.collect::<Vec<_>>()
    };
    let mut violations = find_all();
    for _ in 1..TRIES {
        if violations.is_empty() {
            break;
        }
        violations = find_all();
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// Skips what only finished files show: a debug build checks each descriptor before it closes it, and
/// loads libraries.
fn has_finished_files() -> bool {
    if finished_dir().is_none() {
        skip("needs optimised programs: make test-release");
    }
    finished_dir().is_some()
}

#[test]
fn login_to_registered_job_stays_within_budget() {
    if !has_finished_files() {
        return;
    }
    on_node(|node| {
        let _job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let account = Budget {
            // The helper alone: a process waits behind jobs until it is scheduled.
            processes: 1,
            // 27 for the accounts of user and helper, 36 to run the helper, 14 for the log; the rest
            // opens the cgroups from the root to the job, and reads the job's state, owner, processes (1 for the own number)
            // and filters.
            module: 124,
            // 10 for descriptors, directories and the key ring, 15 for limits (4 fewer for a caller
            // that may raise limits), 2 for the timer, 12 for identity, capabilities and the exec.
            start: 39,
            // 13 for the start of the C library, 10 for the configuration, 27 for the record, 10 to
            // find neither Flux nor Slurm, 8 for the boot's id and the drivers, 8 for two PAM service files, 4 for what
            // one of them includes, 2 for the path of our module, 6 for libpam. 16 for what the second one includes
            // as auth lines, since the first one has none.
            helper: 117,
            // Each directory of a checked path is opened: 4 for the configuration, 6 for the record. 2 tell whether its
            // numbers hold.
            opened: 39,
        };
        let session = Budget {
            // It uses the reply to `account`.
            processes: 0,
            // 8 for the user's account, 7 for the log, 6 for the login's numbers in audit, 14 for the
            // directory of choices, 8 for cores and priorities that sshd passes on (3 for the OOM score), 2 to find
            // no cpuset; 6 for nice value, OOM score and owner of the job's process, whose priority the login shares
            // (some 5 us, for at most 8 processes); the rest reads the job before and after the move, and opens the way
            // back.
            module: 135,
            start: 0,
            helper: 0,
            // The login's cgroup is read before and after the move, the job's processes after it; 2 for audit, 1 for
            // the OOM score, and 1 for that of the job's process.
            opened: 33,
        };
        assert_within_budget(node, &[account, session]);
    });
}

#[test]
fn login_to_slurm_job_stays_within_budget() {
    if !has_finished_files() {
        return;
    }
    on_slurm(|slurm| {
        let _job = slurm.alloc(ALICE, 1);
        let account = Budget {
            processes: 1,
            // In place of the job's marks and filters: the spool directory, the daemon's answer, its
            // process and cgroups, and four freezers. With Slurm 24.11 also the job's four levels below
            // the memory hierarchy.
            module: 139,
            start: 39,
            // In place of the record: three files of Slurm, the spool directory, four GPUs, and a
            // daemon whose answer may come in three parts.
            helper: 178,
            // Besides those above: 6 for Slurm's files, 5 for GPUs, 8 for the spool directory.
            opened: 60,
        };
        let session = Budget {
            processes: 0,
            // The daemon is asked again, adds the login and names its namespaces and display; four
            // GPUs are probed. Audit's numbers are 6 calls more. 8 for the cores and priorities that sshd passes on, 10
            // to read the job's cpuset, 2 to set the cores and read them back. 18 for the priority of the daemon, and to
            // find no task of another step in the job's cgroup.
            module: 195,
            start: 0,
            helper: 0,
            // The GPUs, each freezer once more, audit's two numbers, the OOM score and the cpuset; the list of
            // the job's steps, and the daemon's OOM score.
            opened: 47,
        };
        assert_within_budget(slurm.node, &[account, session]);
    });
}

/// The kernel writes the list of mounts while it is read, 4 KiB at a time.
#[test]
fn mounts_behind_those_of_cgroup_v1_are_not_read() {
    const MOUNTS: usize = 500;
    on_slurm(|slurm| {
        let node = slurm.node;
        let _job = slurm.alloc(ALICE, 1);
        node.arguments("");
        let count = || {
            node.pam_under_strace(&["-y", "-e", "trace=read"], ALICE)
                .ok();
            node.read("/tmp/strace").matches("/mountinfo>").count()
        };
        count();
        let few = count();
        node.sh(&format!(
            "for number in $(seq {MOUNTS}); do mkdir /mnt/$number; mount -t tmpfs tmpfs /mnt/$number || exit; done"
        ))
        .ok();
        let many = count();
        eprintln!("{few} reads of the list of mounts, {many} with {MOUNTS} more");
        assert!(few > 0 && many <= few, "{few} reads, and {many}");
    });
}

/// MPI logs in to each of its nodes while its job fills them, so a cost for each process would be paid by each login.
#[test]
fn login_to_job_of_3000_processes_makes_few_more_calls_than_one_of_10() {
    /// Number of the user's processes that each phase looks at, and the first parts of a list.
    const CALLS_MAX: usize = 64 + 4;
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let lines = ["account", "session"].map(|group| (group, "required pam_job_adopt.so"));
        let mut crowds = vec![start_crowd(node, &job.cgroup, ALICE, 9)];
        trace_login(node, lines);
        let small = trace_login(node, lines);
        crowds.push(start_crowd(node, &job.cgroup, ALICE, 2_990));
        let big = trace_login(node, lines);
        for ((phase, beside_10), beside_3000) in ["account", "session"].iter().zip(small).zip(big) {
            let bytes = [&beside_10, &beside_3000].map(|cost| cost.read_bytes);
            let calls = [&beside_10, &beside_3000].map(|cost| cost.module.len());
            let helper = [&beside_10, &beside_3000].map(|cost| cost.helper.len());
            let opened = [&beside_10, &beside_3000].map(|cost| cost.opened.values().sum::<usize>());
            eprintln!(
                "{phase} with 10 and 3,000 processes: {calls:?} system calls of the module, {helper:?} of the \
                 helper, {opened:?} opened files, {bytes:?} bytes"
            );
            assert!(
                calls[1] <= calls[0] + CALLS_MAX,
                "{:#?}",
                beside_3000.module
            );
            assert!(
                helper[1].abs_diff(helper[0]) <= 8,
                "{:#?}",
                beside_3000.helper
            );
            assert_eq!(opened[0], opened[1], "{:#?}", beside_3000.opened);
            assert!(bytes[1] <= bytes[0] + 1_024, "{:#?}", beside_3000.module);
        }
        job.finish();
        for mut crowd in crowds {
            crowd.wait().unwrap();
        }
    });
}

/// Each login to a job's own cgroup leaves a process of sshd there, which runs as root: whose it is only its `status`
/// tells, at five times the cost of its owner.
#[test]
fn login_reads_status_of_no_root_process_behind_those_of_enough_logins() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let lines = ["account", "session"].map(|group| (group, "required pam_job_adopt.so"));
        let opened = || trace_login(node, lines).map(|cost| cost.opened.values().sum::<usize>());
        let mut crowds = vec![start_crowd(node, &job.cgroup, ALICE, 9)];
        opened();
        let alone = opened();
        crowds.push(start_crowd(node, &job.cgroup, ROOT, 40));
        let beside_few = opened();
        crowds.push(start_crowd(node, &job.cgroup, ALICE, 70));
        let beside_many = opened();
        eprintln!(
            "opened files: {alone:?}; {beside_few:?} with 40 of root; {beside_many:?} with 70 more of the user"
        );
        for phase in 0..2 {
            assert!(beside_few[phase] >= alone[phase] + 40);
            assert_eq!(beside_many[phase], alone[phase]);
        }
        job.finish();
        for mut crowd in crowds {
            crowd.wait().unwrap();
        }
    });
}

/// Names of files that only a resolver of device names reads.
const NAMES_OF_DEVICES: [&str; 8] = [
    "/cdi",
    "gres.conf",
    "slurm.conf",
    "/kfd",
    "/sys/bus/pci",
    "/sys/class/",
    "/sys/dev",
    "/proc/driver/nvidia",
];

/// Traces `account` of a login to a job of these devices, and asserts that the helper looks at no file that gives a
/// device its name. Returns its calls.
#[track_caller]
fn trace_helper(node: &Node, id: &str, key: &str, value: serde_json::Value) -> Vec<String> {
    let lines = ["account", "session"].map(|group| (group, "required pam_job_adopt.so"));
    let job = node.job(ALICE, id).with(key, value).register();
    let [account, _] = trace_login(node, lines);
    let resolving = account
        .helper
        .iter()
        .find(|call| NAMES_OF_DEVICES.iter().any(|name| call.contains(name)));
    assert_eq!(resolving, None, "{key}");
    node.unregister(&job.id).ok();
    // A login reads the note of the job's end too.
    node.sh("rm /run/job-adopt/jobs/*/*.ended").ok();
    account.helper
}

/// Writes a specification of 1 MiB in which `nvidia.com/gpu=1` is this device.
fn write_long_specification(node: &Node, device: &str) {
    const DEVICES: usize = 1024;
    let mut text = "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n".to_owned();
    for number in 1..=DEVICES {
        let path = if number == 1 { device } else { "/dev/nvidia2" };
        text += &format!(
            "- name: \"{number}\"\n  containerEdits:\n    deviceNodes:\n    - path: {path}\n    env:\n    - \
             NVIDIA_TEXT={}\n",
            "x".repeat(900)
        );
    }
    assert!(text.len().abs_diff(1 << 20) < 32 * 1024, "{}", text.len());
    node.write_root_file("/etc/cdi/nvidia.yaml", &text);
}

/// What names cost is `register`'s to pay.
#[test]
fn login_costs_same_calls_however_devices_were_named() {
    const GPUS: u32 = 16;
    /// A record of 112 instances is longer: to read it, and for memory. A debug build also checks a descriptor.
    const CALLS_OF_LONG_RECORD_MAX: usize = 12;
    on_node(|node| {
        node.add_mig_gpus(GPUS);
        node.write_root_file("/etc/slurm/slurm.conf", "ClusterName=site\n");
        let gres = "Name=gpu File=/dev/nvidia[0-3]\n";
        node.write_root_file("/etc/slurm/gres.conf", gres);
        node.configure("sources = registry\nenv = gpus\n");
        write_long_specification(node, "/dev/nvidia1");
        let path = json!({ "DevicePolicy": "closed", "DeviceAllow": [["/dev/nvidia1", "rw"]] });
        let by_path = trace_helper(node, "1", "options", path);
        let by_specification = trace_helper(node, "2", "cdi", json!(["nvidia.com/gpu=1"]));
        let by_index = trace_helper(node, "3", "gres", json!({ "gpu": [1] }));
        let instances = node.mig_instances(GPUS);
        let by_instance = trace_helper(node, "4", "gpus", json!(instances));
        let counts = [&by_path, &by_specification, &by_index, &by_instance].map(Vec::len);
        eprintln!(
            "system calls of the helper by path, CDI, gres and 112 MIG instances: {counts:?}"
        );
        assert_eq!(counts[0], counts[1], "{by_path:#?}{by_specification:#?}");
        assert_eq!(counts[0], counts[2], "{by_path:#?}{by_index:#?}");
        assert!(
            counts[3] <= counts[0] + CALLS_OF_LONG_RECORD_MAX,
            "{by_path:#?}{by_instance:#?}"
        );
    });
}

/// Drivers write a specification for each claim and leave some behind: they cost no login anything. Beyond the limit of a
/// directory the one refusal of `register` comes before any file is opened.
#[test]
fn stale_specifications_cost_login_nothing_and_too_many_are_not_opened() {
    const STALE: usize = 10_000;
    /// To list the directory.
    const LISTING_CALLS_MAX: usize = 60;
    on_node(|node| {
        node.add_nvidia_driver(510);
        write_long_specification(node, "/dev/nvidia1");
        let gpu = || json!(["nvidia.com/gpu=1"]);
        let lines = ["account", "session"].map(|group| (group, "required pam_job_adopt.so"));
        let _job = node.job(ALICE, "4242").with("cdi", gpu()).register();
        let [alone, _] = trace_login(node, lines);
        node.create_dir("/run/cdi", 0o755);
        for number in 0..STALE {
            let stale = format!(
                "---\ncdiVersion: 0.5.0\nkind: k8s.gpu.nvidia.com/claim\ndevices:\n- name: claim-{number}\n  \
                 containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia2\n"
            );
            let path = format!("/run/cdi/k8s.gpu.nvidia.com-claim_{number}.yaml");
            node.write_root_file(&path, &stale);
        }
        let [beside, _] = trace_login(node, lines);
        assert_eq!(alone.helper.len(), beside.helper.len());
        let strace = "strace -f -o /tmp/strace -e trace=openat,openat2,getdents64";
        node.sh(&format!("{strace} job-adopt devices nvidia.com/gpu=1"))
            .fails()
            .says("/run/cdi: holds 10000 specifications, more than 1024: remove those");
        let trace = node.read("/tmp/strace");
        assert!(!trace.contains("claim_"), "files were opened");
        let listings = trace.matches("getdents64").count();
        assert!(listings <= LISTING_CALLS_MAX, "{listings}");
    });
}

/// Returns the lowest count of page faults in several runs of a program as that account.
fn count_faults(node: &Node, uid: u32, command: &str) -> usize {
    let script = format!("exec faults {uid} {command} >/dev/null");
    let faults = |_| {
        let outcome = node.sh(&script).ok();
        let count = outcome
            .stderr
            .lines()
            .find_map(|line| line.strip_prefix("faults "));
        count
            .and_then(|count| count.parse().ok())
            .unwrap_or_else(|| panic!("{outcome}"))
    };
    (0..TRIES).map(faults).min().unwrap()
}

#[test]
fn page_faults_of_login_stay_within_budget() {
    if !has_finished_files() {
        return;
    }
    on_node(|node| {
        let _job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        node.install(&Tool::Faults.path(), "/usr/bin/faults");
        let request = Request {
            phase: Phase::Account,
            user: ALICE.name.to_owned(),
            uid: ALICE.uid,
            service: "sshd".to_owned(),
            node: node.name().to_owned(),
            conf: Request::DEFAULT_CONF.to_owned(),
            budget_ms: 40_000,
            ..Request::default()
        };
        std::fs::write(node.path("/tmp/request"), request.encode()).unwrap();
        let helper = count_faults(node, HELPER.uid, &format!("{HELPER_PATH} </tmp/request"));
        let login = "/usr/bin/pamtester sshd alice acct_mgmt open_session close_session";
        let [ours, permit] = ["pam_job_adopt.so", "pam_permit.so"].map(|module| {
            node.write_stack(&format!(
                "account required {module}\nsession required {module}\n"
            ));
            count_faults(node, 0, login)
        });
        let windows = |files: &[Artifact]| {
            let bytes = files
                .iter()
                .map(|file| artifact_path(*file).metadata().unwrap().len());
            usize::try_from(bytes.sum::<u64>() / FAULT_AROUND_BYTES).unwrap()
        };
        // Beside the program's own parts: its stack, heap and relocated data.
        assert_faults("helper", helper, windows(&[Artifact::Helper]) + 38);
        // The module's data and heap as well.
        let both = windows(&[Artifact::Helper, Artifact::Module]);
        assert_faults("login", ours - permit, both + 75);
    });
}

/// Asserts a count of page faults, which differs by a few between kernels and compilers.
#[track_caller]
fn assert_faults(what: &str, count: usize, limit: usize) {
    eprintln!("{what}: {count} page faults, at most {limit}");
    assert!(
        count <= limit,
        "{what}: {count} page faults, at most {limit}"
    );
}
