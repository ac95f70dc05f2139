//! `job-adopt devices` reports what the kernel does.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::{ALICE, Cgroup, DENIED, Flags, Node, OPS, Outcome, User, eventually, on_node};

/// Returns the JSON output of `job-adopt devices`, and asserts this exit status.
fn devices_json(node: &Node, code: i32, arguments: &[&str]) -> Value {
    let outcome = node
        .job_adopt(&[&["devices", "--json"], arguments].concat())
        .exits(code);
    let value: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(value["schema"], 1, "{outcome}");
    value
}

fn cgroup_json(node: &Node, code: i32, cgroup: &Cgroup) -> Value {
    devices_json(node, code, &["--cgroup", cgroup.path()])
}

fn json_array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap()
}

fn device_json<'a>(value: &'a Value, path: &str) -> &'a Value {
    json_array(value, "devices")
        .iter()
        .find(|device| device["node"] == path)
        .unwrap()
}

/// Lists `owner attached in_force` of the filters with that name.
fn filter_summaries(value: &Value, name: &str) -> Vec<String> {
    let shown = |filter: &Value| {
        let text = |key: &str| filter[key].to_string().replace('"', "");
        [text("owner"), text("attached"), text("in_force")].join(" ")
    };
    json_array(value, "filters")
        .iter()
        .filter(|filter| filter["name"] == name)
        .map(shown)
        .collect()
}

/// Asserts that opening each device for reading and writing in `cgroup` fails exactly where `value`
/// reports it.
fn assert_kernel_agrees(node: &Node, cgroup: &Cgroup, value: &Value) {
    let paths: Vec<&str> = json_array(value, "devices")
        .iter()
        .map(|device| device["node"].as_str().unwrap())
        .collect();
    assert!(paths.len() > 12, "{paths:?}");
    let probe = Outcome::run(node.daemon(cgroup, "probe").args(&paths)).ok();
    for path in paths {
        let allowed = json_array(device_json(value, path), "allowed")
            .iter()
            .any(|access| access == "rw");
        assert_eq!(probe.device(path) != DENIED, allowed, "{path}: {value}");
    }
}

#[test]
fn reported_devices_are_those_that_open() {
    on_node(|node| {
        let devices = [
            "/dev/nvidia0",
            "/dev/nvidia1 r",
            "/dev/nvidia2",
            "block-loop rw",
        ];
        let job = node.job(ALICE, "4242").devices(&devices).start();
        let jobs = node.cgroup().child("jobs");
        jobs.attach(Flags::Multi, "foreign", &["195:2", "1:7"]);
        node.pam(ALICE).ok();
        let value = cgroup_json(node, 0, &job.cgroup);
        assert_kernel_agrees(node, &job.cgroup, &value);
        assert_eq!(
            filter_summaries(&value, "foreign"),
            ["unknown allow-multi true"]
        );
        assert_eq!(json_array(&value, "filters").len(), 2, "{value}");
        let allowed = |path: &str| device_json(&value, path)["allowed"].to_string();
        assert_eq!(allowed("/dev/nvidia0"), r#"["r","w","rw"]"#);
        assert_eq!(allowed("/dev/nvidia1"), r#"["r"]"#);
        assert_eq!(allowed("/dev/nvidia2"), "[]");
        assert_eq!(allowed("/dev/full"), "[]");
        assert_eq!(allowed("/dev/null"), r#"["r","w","rw","m"]"#);
        // The cgroup above has only the foreign filter.
        let above = cgroup_json(node, 0, &jobs);
        assert_kernel_agrees(node, &jobs, &above);
        assert_eq!(json_array(&above, "filters").len(), 1, "{above}");
    });
}

#[test]
fn pin_and_its_original_are_distinguished() {
    on_node(|node| {
        let job = node
            .job(ALICE, "4242")
            .devices(&["/dev/nvidia0", "/dev/nvidia2"])
            .start();
        let jobs = node.cgroup().child("jobs");
        jobs.attach(Flags::Override, "Slurm_Cgroup_v2", &["195:2"]);
        node.pam(ALICE).ok();
        let value = cgroup_json(node, 0, &job.cgroup);
        assert_eq!(
            filter_summaries(&value, "Slurm_Cgroup_v2"),
            ["pin allow-multi true", "slurm allow-override false"]
        );
        assert_kernel_agrees(node, &job.cgroup, &value);
        // The pin counts as one even without its original.
        jobs.detach(&jobs.filters()[0]);
        let alone = cgroup_json(node, 0, &job.cgroup);
        assert_eq!(
            filter_summaries(&alone, "Slurm_Cgroup_v2"),
            ["pin allow-multi true"]
        );
        let table = node
            .job_adopt(&["devices", "--cgroup", job.cgroup.path()])
            .exits(0);
        table
            .says("IN FORCE")
            .says("Slurm_Cgroup_v2")
            .says("ALLOWED");
    });
}

#[test]
fn same_list_at_two_levels_is_no_pin() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        for cgroup in [node.cgroup().child("jobs"), job.cgroup.clone()] {
            cgroup.attach(Flags::Multi, "sd_devices", &["195:2"]);
        }
        let value = cgroup_json(node, 0, &job.cgroup);
        assert_eq!(
            filter_summaries(&value, "sd_devices"),
            ["systemd allow-multi true"; 2]
        );
        assert_kernel_agrees(node, &job.cgroup, &value);
    });
}

#[test]
fn cgroup_without_filter_is_one_line() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let path = job.cgroup.path();
        let none = format!("{path}: no filter: everything is allowed\n");
        assert_eq!(
            node.job_adopt(&["devices", "--cgroup", path])
                .exits(0)
                .stdout,
            none
        );
    });
}

/// A program of any form is judged by what it does.
#[test]
fn program_with_calls_is_decided_by_kernel() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        job.cgroup.attach(Flags::Multi, "opaque", &["195:2"]);
        let value = cgroup_json(node, 0, &job.cgroup);
        assert_eq!(
            device_json(&value, "/dev/nvidia2")["allowed"].to_string(),
            "[]"
        );
        assert_kernel_agrees(node, &job.cgroup, &value);
    });
}

/// The filters of the caller's own cgroup are not those that are asked for.
#[test]
fn filter_of_caller_changes_no_answer() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let caller = node.cgroup().child("caller");
        caller.create().attach(Flags::Multi, "foreign", &["195:2"]);
        let arguments = ["devices", "--cgroup", job.cgroup.path()];
        let outcome = Outcome::run(node.daemon(&caller, "job-adopt").args(arguments));
        outcome.exits(0).says("no filter: everything is allowed");
    });
}

#[test]
fn frozen_cgroup_is_not_asked() {
    on_node(|node| {
        let jobs = node.cgroup().child("jobs");
        let job = node.job(ALICE, "4242").start();
        jobs.freeze(true);
        let outcome = node
            .job_adopt(&["devices", "--cgroup", job.cgroup.path()])
            .exits(3);
        outcome.says(&format!(
            "cgroup {} is frozen: ask again after it is thawed",
            jobs.path()
        ));
        assert_eq!(job.cgroup.pids().len(), 1);
        jobs.freeze(false);
    });
}

#[test]
fn threaded_cgroup_is_not_asked() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let threaded = job.cgroup.child("threaded");
        threaded.create().write("cgroup.type", "threaded");
        let outcome = node
            .job_adopt(&["devices", "--cgroup", threaded.path()])
            .exits(3);
        outcome.says("is threaded and takes threads only");
    });
}

/// Asks in the background, and stops the process that asks before it makes its first node; returns its
/// number. What the command writes is in `/tmp/out`.
fn ask_and_stop(node: &Node, cgroup: &Cgroup) -> Pid {
    let before = cgroup.pids();
    let path = cgroup.path();
    let command = format!("job-adopt devices --cgroup {path}; echo status $? >>/tmp/out");
    let inject = "-e trace=/^mknod -e inject=/^mknod:delay_enter=600000000";
    node.write("/tmp/ask", &command);
    node.sh(&format!(
        "setsid strace -f -o /tmp/trace {inject} sh /tmp/ask >/tmp/out 2>&1 &"
    ))
    .ok();
    let find_asking = || cgroup.pids().into_iter().find(|pid| !before.contains(pid));
    eventually("a process asks", || find_asking().is_some());
    let asking = find_asking().unwrap();
    // A tracer stops it at each system call, but for long at this one.
    let makes_node = || {
        let call = std::fs::read_to_string(format!("/proc/{asking}/syscall")).unwrap();
        call.split(' ').next() == Some(&libc::SYS_mknodat.to_string())
    };
    eventually("it makes a node", makes_node);
    // Without its tracer it obeys every signal at once.
    kill(Pid::from_raw(asking), Signal::SIGSTOP).unwrap();
    kill(related_process(asking, "TracerPid:"), Signal::SIGKILL).unwrap();
    eventually("it has stopped", || {
        status_of(asking, "State:").starts_with('T')
    });
    Pid::from_raw(asking)
}

/// Reads a line of `/proc/PID/status`.
fn status_of(pid: i32, key: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .unwrap();
    line.trim().to_owned()
}

fn related_process(pid: i32, key: &str) -> Pid {
    Pid::from_raw(status_of(pid, key).parse().unwrap())
}

fn await_command(node: &Node) -> String {
    eventually("the command has ended", || {
        node.read("/tmp/out").contains("status")
    });
    node.read("/tmp/out")
}

#[test]
fn asking_process_ends_with_the_command() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let asking = ask_and_stop(node, &job.cgroup);
        kill(related_process(asking.as_raw(), "PPid:"), Signal::SIGKILL).unwrap();
        let has_ended = || !job.cgroup.pids().contains(&asking.as_raw());
        eventually("the process that asks has ended", has_ended);
        assert_eq!(job.cgroup.pids().len(), 1);
    });
}

/// Whoever owns the job's cgroups may move what is in them.
#[test]
fn asking_process_that_is_moved_gives_no_answer() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let asking = ask_and_stop(node, &job.cgroup);
        job.cgroup
            .child("elsewhere")
            .create()
            .write("cgroup.procs", &asking.to_string());
        kill(asking, Signal::SIGCONT).unwrap();
        let out = await_command(node);
        assert!(
            out.contains("the process that asks was moved elsewhere"),
            "{out}"
        );
        assert!(out.contains("status 3"), "{out}");
    });
}

/// The end of the job kills the process that asks as well.
#[test]
fn asking_process_that_is_killed_gives_no_answer() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let asking = ask_and_stop(node, &job.cgroup);
        kill(asking, Signal::SIGKILL).unwrap();
        let out = await_command(node);
        assert!(
            out.contains("the process that asks was killed there"),
            "{out}"
        );
        assert!(out.contains("status 3"), "{out}");
    });
}

/// A cgroup that is frozen after the look holds the process, like one that is stopped.
#[test]
fn asking_process_that_hangs_is_killed_after_ten_seconds() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        ask_and_stop(node, &job.cgroup);
        let out = await_command(node);
        assert!(out.contains("no answer in 10 s"), "{out}");
        assert_eq!(job.cgroup.pids().len(), 1);
    });
}

#[test]
fn asking_opens_no_device_and_leaves_no_node() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        node.pam(ALICE).ok();
        let path = job.cgroup.path();
        let calls = "-e trace=open,openat,openat2,/^mknod,/^unlink";
        node.sh(&format!(
            "strace -f -o /tmp/trace {calls} job-adopt devices --cgroup {path}"
        ))
        .ok();
        let trace = node.read("/tmp/trace");
        let opened = |line: &&str| line.contains("nvidia0") && !line.contains("O_PATH");
        assert_eq!(trace.lines().find(opened), None);
        let count = |name: &str| {
            let lines = trace.lines().filter(|line| line.contains(name));
            lines
                .filter(|line| line.contains("/sys/fs/cgroup/node") && line.contains("= 0"))
                .count()
        };
        assert!(count("mknod") > 0, "{trace}");
        assert_eq!(count("mknod"), count("unlink"), "{trace}");
    });
}

#[test]
fn devices_of_job_are_those_of_its_leaf() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        job.cgroup.attach(Flags::Override, "foreign", &["195:2"]);
        let before = devices_json(node, 0, &["--job", "4242"]);
        assert_eq!(before["cgroup"], job.cgroup.path());
        node.pam(ALICE).ok();
        let leaf = job.cgroup.child("job-adopt");
        let value = devices_json(node, 0, &["--job", "4242"]);
        // A job without a child has its logins in its own cgroup.
        assert_eq!(value["cgroup"], leaf.path(), "{value}");
        assert_kernel_agrees(node, &leaf, &value);
        node.job_adopt(&["devices", "--job", "7"])
            .exits(3)
            .says("the registry has none");
    });
}

#[test]
fn names_resolve_without_root_and_below_another_root() {
    on_node(|node| {
        let value = devices_json(node, 0, &["/dev/nvidia0", "/dev/null r"]);
        assert_eq!(device_json(&value, "/dev/nvidia0")["major"], 195);
        assert_eq!(device_json(&value, "/dev/null")["driver"], "mem");
        let some = node
            .job_adopt(&["devices", "/dev/nvidia0", "/dev/none"])
            .exits(1);
        some.says("195:0")
            .says("refused: No such file or directory");
        node.sh("mkdir -p /tmp/laid/dev && echo c 195:7 >/tmp/laid/dev/nvidia9")
            .ok();
        node.sh("chown -R alice /tmp/laid").ok();
        let alice = "setpriv --reuid 1001 --regid 1001 --clear-groups job-adopt devices";
        node.sh(&format!("{alice} --root /tmp/laid /dev/nvidia9"))
            .ok()
            .says("195:7");
        node.sh(&format!("{alice} --root /tmp/laid /dev/null"))
            .exits(1)
            .says("refused: ");
        node.sh(&format!("{alice} --cgroup /a"))
            .exits(3)
            .says("must be run as root");
    });
}

/// The group of the node decides, whatever the filter lets through.
#[test]
fn node_whose_mode_keeps_the_user_out_is_named() {
    on_node(|node| {
        node.sh("chgrp ops /dev/nvidia0; chmod 0660 /dev/nvidia0")
            .ok();
        let _job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        node.pam(ALICE).ok();
        let mode = "/dev/nvidia0: mode 0660, for the group ops alone";
        let out = format!("{mode}, which keeps alice out, whatever");
        let devices = |arguments: &[&str]| node.job_adopt(&[&["devices"], arguments].concat()).ok();
        devices(&["--job", "4242"]).says(&out);
        devices(&["--job", "4242", "--user", OPS.name]).omits(mode);
        devices(&["/dev/nvidia0"]).says(&format!("{mode}, whatever"));
        devices(&["/dev/nvidia0", "--user", "1001"]).says(&out);
        devices(&["/dev/nvidia0", "--user", OPS.name]).omits(mode);
        node.job_adopt(&["devices", "/dev/nvidia0", "--user", "none-here"])
            .exits(3);
        let as_user = |user: User| {
            let id = user.uid;
            node.sh(&format!(
                "setpriv --reuid {id} --clear-groups job-adopt devices /dev/nvidia0"
            ))
        };
        as_user(ALICE).ok().says(&out);
        as_user(OPS).ok().omits(mode);
    });
}
