//! Prolog and epilog for Slurm, run in slurmd's way: as root, with only the variables that Slurm
//! sets (measured on 22.05; 24.11 adds times and the newer name of the node list).

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::support::{ALICE, Cgroup, Node, Outcome, Process, ROOT, eventually, on_node};

const RECORD: &str = "/run/job-adopt/jobs/1001/77.json";
const NOTE: &str = "/run/job-adopt/jobs/1001/77.ended";
/// Beginning of the path of slurmd's answer about the GPUs of a node, which the prolog keeps.
const GRES: &str = "/run/job-adopt/gres-";

/// Variables of every prolog of a job of alice.
const JOB: [&str; 8] = [
    "SLURM_JOB_ID=77",
    "SLURM_JOB_UID=1001",
    "SLURM_JOB_USER=alice",
    "SLURM_NODELIST=gpu017",
    "SLURM_JOB_NUM_NODES=1",
    "SLURM_JOB_CPUS_PER_NODE=4",
    "SLURM_JOB_NTASKS=2",
    "SLURM_JOB_WORK_DIR=/home/alice",
];

/// Runs `body` on a node whose Slurm has four GPUs.
fn on_slurm_node(body: impl FnOnce(&Node)) {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.write_root_file("/etc/slurm/slurm.conf", "ClusterName=site\n");
        node.write_root_file("/etc/slurm/cgroup.conf", "ConstrainDevices=yes\n");
        node.write_root_file("/etc/slurm/gres.conf", "Name=gpu File=/dev/nvidia[0-3]\n");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/slurm");
        for name in ["prolog.sh", "epilog.sh"] {
            node.install(&folder.join(name), &format!("/etc/slurm/{name}"));
        }
        body(node);
    });
}

/// Runs a script with the variables of a job, and these, of which the last one of a name counts.
fn run_hook(node: &Node, name: &str, more: &[&str]) -> Outcome {
    let script = format!("/etc/slurm/{name}");
    let node_name = format!("SLURMD_NODENAME={}", node.name());
    let arguments: Vec<&str> = ["-i", &node_name]
        .into_iter()
        .chain(JOB)
        .chain(more.iter().copied())
        .chain([&*script])
        .collect();
    node.run("env", &arguments)
}

/// Returns the path of the answer of the slurmd that has the host's name.
fn answer_path(node: &Node) -> String {
    format!("{GRES}{}.conf", node.name())
}

fn read_record(node: &Node) -> Value {
    serde_json::from_str(&node.read(RECORD)).unwrap()
}

/// Fills `/run` with `/run/full`.
fn fill_run(node: &Node) {
    let used = "$(df --output=used -k /run | tail -1)";
    node.sh(&format!("mount -o remount,size=$(({used} + 64))k /run"))
        .ok();
    node.sh("cat /dev/zero >/run/full").fails();
}

fn write_gpu_files(node: &Node) {
    let script = node.read("/etc/slurm/prolog.sh");
    let other = script.replace("\nDEVICES=slurm\n", "\nDEVICES=lists\n");
    assert_ne!(script, other);
    node.write("/etc/slurm/prolog.sh", &other);
}

/// Gives the node these resources in `slurm.conf`, and `gres.conf` these lines.
fn configure_slurm(node: &Node, gres: &str, lines: &str) {
    let name = node.name();
    node.write(
        "/etc/slurm/slurm.conf",
        &format!(
            "ClusterName=site\nSlurmctldHost={name}\nAuthType=auth/none\nGresTypes=gpu\n\
             SlurmdSpoolDir=/run/spool\nProctrackType=proctrack/linuxproc\n\
             NodeName={name} CPUs=2 Gres={gres}\nPartitionName=all Nodes=ALL\n"
        ),
    );
    node.write("/etc/slurm/gres.conf", lines);
    // Both versions of cgroups are mounted here, which Slurm's autodetection refuses.
    node.write(
        "/etc/slurm/cgroup.conf",
        "CgroupPlugin=cgroup/v1\nConstrainDevices=yes\n",
    );
}

/// Returns the device of a GPU in `gres.conf`, without those that all GPUs share.
fn gpu_device(node: &Node, index: u32) -> String {
    let output = node
        .run("job-adopt", &["devices", "--gres", &format!("gpu:{index}")])
        .ok()
        .stdout;
    let devices = output
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1));
    devices
        .filter(|path| path.ends_with(|last: char| last.is_ascii_digit()))
        .collect()
}

#[test]
fn record_lists_gpus_that_slurm_names() {
    on_slurm_node(|node| {
        write_gpu_files(node);
        run_hook(
            node,
            "prolog.sh",
            &["SLURM_JOB_GPUS=2,3", "CUDA_VISIBLE_DEVICES=2,3"],
        )
        .ok();
        let record = read_record(node);
        assert_eq!(
            (&record["via"], &record["gres"]),
            (&json!("slurm"), &json!({ "gpu": [2, 3] }))
        );
        assert_eq!(record["options"]["DevicePolicy"], "closed");
        assert_eq!(record["env"]["CUDA_VISIBLE_DEVICES"], "2,3");
        assert_eq!(record["env"]["SLURM_JOB_NODELIST"], "gpu017");
        assert_eq!(record["env"]["SLURM_JOB_WORK_DIR"], "/home/alice");
    });
}

/// Several slurmd of a host have names of their own, and each its own GPUs.
#[test]
fn gpus_are_those_of_the_node_that_slurmd_names() {
    on_slurm_node(|node| {
        write_gpu_files(node);
        let lines =
            "NodeName=n1 Name=gpu File=/dev/nvidia0\nNodeName=n2 Name=gpu File=/dev/nvidia[1-3]\n";
        node.write("/etc/slurm/gres.conf", lines);
        for (name, index, has_list) in [("n2", "2", true), ("n1", "2", false), ("", "0", false)] {
            let name = format!("SLURMD_NODENAME={name}");
            let gpus = format!("SLURM_JOB_GPUS={index}");
            run_hook(node, "prolog.sh", &[&name, &gpus]).ok();
            let record = read_record(node);
            assert_eq!(record.get("gres").is_some(), has_list, "{name}: {record}");
        }
    });
}

/// Several slurmd of a host share the prolog's folder, and each detects its own GPUs.
#[test]
fn answer_of_slurmd_serves_the_node_that_it_was_asked_for_alone() {
    on_slurm_node(|node| {
        write_gpu_files(node);
        let lines = "AutoDetect=nvml\nNodeName=n1 Name=gpu File=/dev/nvidia0\n\
                     NodeName=n2 Name=gpu File=/dev/nvidia3\n";
        configure_slurm(node, "gpu:1", lines);
        let host = node.name();
        node.sh(&format!(
            "sed -i 's/^NodeName={host} /NodeName=n[1-2] NodeHostname={host} Port=[7001-7002] /' /etc/slurm/slurm.conf \
             && grep n.1-2 /etc/slurm/slurm.conf"
        ))
        .ok();
        for (name, minor) in [("n1", 0), ("n2", 3), ("n1", 0)] {
            let variable = format!("SLURMD_NODENAME={name}");
            run_hook(node, "prolog.sh", &[&variable, "SLURM_JOB_GPUS=0"]).ok();
            let record = read_record(node);
            assert_eq!(record["gres"], json!({ "gpu": [0] }), "{name}: {record}");
            node.configure(&format!("nodename = {name}\n"));
            assert_eq!(gpu_device(node, 0), format!("/dev/nvidia{minor}"), "{name}");
        }
        run_hook(
            node,
            "prolog.sh",
            &["SLURMD_NODENAME=../n1", "SLURM_JOB_GPUS=0"],
        )
        .ok();
        assert!(read_record(node).get("gres").is_none());
        node.sh("ls /run/job-adopt")
            .ok()
            .says("gres-n1.conf")
            .says("gres-n2.conf");
    });
}

#[test]
fn job_without_gpus_gets_list_without_gpus() {
    on_slurm_node(|node| {
        write_gpu_files(node);
        run_hook(node, "prolog.sh", &[]).ok();
        let record = read_record(node);
        assert_eq!(record["options"], json!({ "DevicePolicy": "closed" }));
        assert_eq!(record["resolved"]["node_name"], node.name());
        assert!(
            record.get("gres").is_none() && record.get("gpus").is_none(),
            "{record}"
        );
    });
}

#[test]
fn second_prolog_keeps_record_and_epilog_leaves_note() {
    on_slurm_node(|node| {
        let times = [
            "SLURM_JOB_START_TIME=1795200000",
            "SLURM_JOB_END_TIME=1795203600",
        ];
        let gpus = ["SLURM_JOB_GPUS=0"];
        let more = [&gpus[..], &times[..]].concat();
        run_hook(node, "prolog.sh", &more).ok();
        let first = read_record(node);
        assert_eq!(
            (&first["started"], &first["ends"]),
            (&json!(1795200000), &json!(1795203600))
        );
        run_hook(node, "prolog.sh", &more).ok();
        assert_eq!(read_record(node), first);
        run_hook(node, "epilog.sh", &more).ok();
        assert!(!node.exists(RECORD) && node.exists(NOTE));
        run_hook(node, "epilog.sh", &more).ok();
        // Slurm requeues the job under the same id.
        run_hook(node, "prolog.sh", &gpus).ok();
        assert!(node.exists(RECORD) && !node.exists(NOTE));
    });
}

/// An unregister that was killed midway must not keep a requeued job from starting.
#[test]
fn requeued_job_starts_after_interrupted_unregister() {
    on_slurm_node(|node| {
        run_hook(node, "prolog.sh", &[]).ok();
        node.sh(&format!("mv {RECORD} /run/job-adopt/jobs/1001/.77.ending"))
            .ok();
        run_hook(node, "prolog.sh", &[]).ok();
        assert!(node.exists(RECORD) && !node.exists("/run/job-adopt/jobs/1001/.77.ending"));
    });
}

/// The missing list must not fail a job or drain a node.
#[test]
fn failing_list_leaves_devices_to_slurm_and_is_logged() {
    on_slurm_node(|node| {
        write_gpu_files(node);
        for (gres, lines) in [
            ("gpu:4", "Name=gpu File=/dev/nvidia[0-3]\n"),
            ("gpu:4", "AutoDetect=nvml\n"),
            ("gpu:4", "Name=gpu Fil=/dev/nvidia0\n"),
            ("gpu:9", ""),
        ] {
            configure_slurm(node, gres, lines);
            node.log.clear();
            run_hook(node, "prolog.sh", &["SLURM_JOB_GPUS=7"]).ok();
            let record = read_record(node);
            assert_eq!(
                record["options"],
                json!({ "DevicePolicy": "auto" }),
                "{lines}"
            );
            assert!(record.get("gres").is_none(), "{record}");
            node.log.line("job 77: devices left to Slurm: ");
            // Neither an empty answer is kept, nor the last one.
            assert_eq!(
                node.exists(&answer_path(node)),
                lines.contains("nvidia[0-3]"),
                "{lines}"
            );
        }
    });
}

/// Where Slurm has no filter, every device would open in logins to the job.
#[test]
fn failing_list_fails_job_that_slurm_does_not_confine() {
    on_slurm_node(|node| {
        write_gpu_files(node);
        let run = |gpu: u32, lines: &str| {
            node.write("/etc/slurm/cgroup.conf", lines);
            node.log.clear();
            let gpus = format!("SLURM_JOB_GPUS={gpu}");
            run_hook(node, "prolog.sh", &[&gpus])
        };
        for lines in [
            "",
            "#ConstrainDevices=yes\n",
            "constraindevices = no\n",
            "ConstrainDevices=yes\nConstrainDevices=no\n",
        ] {
            run(7, lines).exits(1).says("Slurm has no filter");
            assert!(!node.exists(RECORD), "{lines}");
            node.log
                .line("job 77: no list of devices, and Slurm has no filter ");
            run(3, lines).ok();
            assert_eq!(read_record(node)["gres"], json!({ "gpu": [3] }));
            node.sh(&format!("rm {RECORD}")).ok();
        }
        for lines in [
            "constraindevices = \"TRUE\"\n",
            "A=b\n ConstrainDevices=Yes # c\n",
            "ConstrainDevices=\\\nyes\n",
        ] {
            run(7, lines).ok();
            node.log.line("job 77: devices left to Slurm: ");
        }
        // A fault of our own file fails no job that Slurm confines.
        node.write_root_file("/etc/security/job_adopt.conf", "nonesuch = 1\n");
        run(3, "ConstrainDevices=yes\n").ok();
        run(3, "ConstrainDevices=no\n").exits(1);
        // The files of another Slurm say nothing.
        node.sh("mkdir /etc/slurm-other && cp /etc/slurm/*.conf /etc/slurm-other")
            .ok();
        node.write_root_file(
            "/etc/security/job_adopt.conf",
            "slurm_conf = /etc/slurm-other/slurm.conf\nnonesuch = 1\n",
        );
        run(3, "ConstrainDevices=yes\n").exits(1);
    });
}

/// Makes stand-ins for our command and those that load drivers, of which each call adds a line to `/run/calls`. NVIDIA's
/// own fails.
fn record_calls(node: &Node) {
    node.sh("rm -f /usr/bin/job-adopt /usr/sbin/modprobe").ok();
    for (path, status) in [
        ("/usr/bin/job-adopt", 0),
        ("/usr/bin/nvidia-modprobe", 1),
        ("/usr/sbin/modprobe", 0),
    ] {
        let name = path.rsplit('/').next().unwrap();
        let text = format!("#!/bin/sh\necho {name} \"$*\" >>/run/calls\nexit {status}\n");
        node.write(path, &text);
        node.set_mode(path, 0o755);
    }
}

/// The first job after a boot would else have no list. NVIDIA's tool may fail, or be missing.
#[test]
fn prologs_load_late_devices_before_they_register() {
    on_slurm_node(|node| {
        write_gpu_files(node);
        record_calls(node);
        let jobs = node.cgroup().child("jobs").path().to_owned();
        for (name, usual) in [
            ("prolog.sh", "JOB_TASKS"),
            ("oar.sh", "OAR_DEVICES"),
            ("lsf.sh", "/lsf-jobs"),
            ("openpbs.py", "/pbs-jobs"),
            ("gridengine.sh", "cgroup=/gridengine"),
        ] {
            let own = match name {
                "gridengine.sh" => format!("cgroup={jobs}/gridengine"),
                _ if usual.starts_with('/') => format!("{jobs}{usual}"),
                _ => usual.to_owned(),
            };
            install_example(node, name, usual, &own);
        }
        for (name, text) in [
            ("bjobs", "echo alice"),
            ("systemctl", ":"),
            ("systemd-run", ":"),
        ] {
            let path = format!("/usr/bin/{name}");
            node.sh(&format!("rm -f {path}")).ok();
            node.write(&path, &format!("#!/bin/sh\n{text}\n"));
            node.set_mode(&path, 0o755);
        }
        write_pbs_module(node, "1", "77");
        let slurm = |gpu: &str| {
            format!("env SLURM_JOB_ID=77 SLURM_JOB_UID=1001 {gpu} /etc/slurm/prolog.sh")
        };
        let hooks = [
            slurm("SLURM_JOB_GPUS=0"),
            slurm("CUDA_VISIBLE_DEVICES=GPU-x SLURM_JOB_GPUS=0"),
            "env JOB_ID=77 JOB_UID=1001 JOB_CGROUP=/j /tmp/prolog.sh".to_owned(),
            "/tmp/oar.sh init 77 alice /sys/fs/cgroup/j".to_owned(),
            "env LSB_JOBID=77 LSB_JOBINDEX=0 /tmp/lsf.sh begin".to_owned(),
            format!("python3 -I -c \"{OPENPBS_START}\""),
            "/tmp/gridengine.sh begin 77 undefined alice".to_owned(),
        ];
        for driver in ["nvidia", "none"] {
            for hook in &hooks {
                node.sh("rm -f /run/calls").ok();
                // The hook's own /proc, in which Grid Engine's finds its shepherd.
                let script = format!(
                    "mount -t tmpfs -o mode=0755 tmpfs /proc/driver && mkdir /proc/driver/{driver} && {hook}"
                );
                run_as_daemon(node, "shepherd", &script).ok();
                let calls = node.read("/run/calls");
                let calls: Vec<&str> = calls.lines().collect();
                let loads: &[&str] = match driver {
                    "nvidia" => &["nvidia-modprobe -u -c 0", "modprobe nvidia-uvm"],
                    _ => &[],
                };
                let (before, register) = calls.split_at(loads.len());
                assert_eq!(before, loads, "{hook}: {calls:?}");
                assert!(
                    register[0].starts_with("job-adopt register "),
                    "{hook}: {calls:?}"
                );
            }
        }
        node.sh(&format!(
            "find /sys/fs/cgroup{jobs} -mindepth 1 -depth -type d -exec rmdir {{}} +"
        ))
        .ok();
    });
}

/// A job without GPUs needs none of them, nor do logins that Slurm's own filter confines.
#[test]
fn prolog_of_slurm_loads_late_devices_for_lists_with_gpus_alone() {
    on_slurm_node(|node| {
        record_calls(node);
        node.sh("mount -t tmpfs -o mode=0755 tmpfs /proc/driver && mkdir /proc/driver/nvidia")
            .ok();
        let loads = |more: &[&str]| {
            node.sh("rm -f /run/calls").ok();
            run_hook(node, "prolog.sh", more).ok();
            node.read("/run/calls").contains("nvidia-modprobe")
        };
        assert!(!loads(&["SLURM_JOB_GPUS=0"]));
        write_gpu_files(node);
        assert!(!loads(&[]));
        assert!(loads(&["SLURM_JOB_GPUS=0"]));
    });
}

#[test]
fn full_file_system_fails_no_prolog_and_keeps_no_answer_of_slurmd() {
    on_slurm_node(|node| {
        write_gpu_files(node);
        configure_slurm(
            node,
            "gpu:2",
            "AutoDetect=nvml\nName=gpu File=/dev/nvidia[2-3]\n",
        );
        node.sh("mkdir -p /run/spool /run/job-adopt").ok();
        fill_run(node);
        run_hook(node, "prolog.sh", &["SLURM_JOB_GPUS=1"])
            .ok()
            .says("has no record");
        node.sh("ls /run/job-adopt/gres*").fails();
        node.sh("rm /run/full").ok();
        run_hook(node, "prolog.sh", &["SLURM_JOB_GPUS=1"]).ok();
        assert_eq!(read_record(node)["gres"], json!({ "gpu": [1] }));
        assert_eq!(gpu_device(node, 1), "/dev/nvidia3");
    });
}

/// `Gres=` decides the order of the types, not the order of the lines.
#[test]
fn index_among_several_types_follows_slurmd() {
    on_slurm_node(|node| {
        write_gpu_files(node);
        let lines = "Name=gpu Type=a File=/dev/nvidia0\nName=gpu Type=b File=/dev/nvidia1\n\
                     Name=gpu Type=a File=/dev/nvidia2\n";
        let gpus = || [0, 1, 2].map(|index| gpu_device(node, index));
        configure_slurm(node, "gpu:b:1,gpu:a:2", lines);
        run_hook(node, "prolog.sh", &["SLURM_JOB_GPUS=0,2"]).ok();
        assert_eq!(read_record(node)["gres"], json!({ "gpu": [0, 2] }));
        assert_eq!(gpus(), ["/dev/nvidia1", "/dev/nvidia0", "/dev/nvidia2"]);
        // The prolog asks slurmd again only for a reason.
        let written = answer_path(node);
        node.sh(&format!("echo '# mark' >>{written}")).ok();
        run_hook(node, "prolog.sh", &["SLURM_JOB_GPUS=0"]).ok();
        assert!(node.read(&written).ends_with("# mark\n"));
        configure_slurm(node, "gpu:a:2,gpu:b:1", lines);
        node.sh(&format!("touch -d yesterday {written}")).ok();
        run_hook(node, "prolog.sh", &["SLURM_JOB_GPUS=0"]).ok();
        assert_eq!(gpus(), ["/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia1"]);
        // Another driver may find other GPUs.
        node.sh(&format!("sed -i '1s/$/ 1.2/' {written}")).ok();
        node.run("job-adopt", &["devices", "--gres", "gpu:0"])
            .says("of another boot or driver");
        run_hook(node, "prolog.sh", &["SLURM_JOB_GPUS=0"]).ok();
        assert_eq!(gpu_device(node, 2), "/dev/nvidia1");
    });
}

/// Slurmd prints a list as it is written.
#[test]
fn list_with_blanks_is_kept_whole() {
    on_slurm_node(|node| {
        write_gpu_files(node);
        let lines = "Name=gpu Type=a File=\"/dev/nvidia0,  /dev/nvidia2,\"\n\
                     Name=gpu Type=b File=/dev/nvidia1,\n";
        configure_slurm(node, "gpu:b:1,gpu:a:2", lines);
        run_hook(node, "prolog.sh", &["SLURM_JOB_GPUS=0,2"]).ok();
        let gpus = [0, 1, 2].map(|index| gpu_device(node, index));
        assert_eq!(gpus, ["/dev/nvidia1", "/dev/nvidia0", "/dev/nvidia2"]);
    });
}

/// Slurm 26.05 writes the time in place of the program's name.
#[test]
fn index_follows_slurmd_that_prints_the_time() {
    on_slurm_node(|node| {
        write_gpu_files(node);
        let time = "#!/bin/sh\n/tmp/slurmd \"$@\" 2>&1 | sed 's/^slurmd[^:]*:/[2026-11-27T08:39:45.855]/'\n";
        node.write("/tmp/time", time);
        node.set_mode("/tmp/time", 0o755);
        node.sh("cp /usr/sbin/slurmd /tmp; mount --bind /tmp/time /usr/sbin/slurmd")
            .ok();
        configure_slurm(
            node,
            "gpu:2",
            "AutoDetect=nvml\nName=gpu File=/dev/nvidia[2-3]\n",
        );
        run_hook(node, "prolog.sh", &["SLURM_JOB_GPUS=1"]).ok();
        assert_eq!(gpu_device(node, 1), "/dev/nvidia3");
    });
}

#[test]
fn index_with_autodetection_follows_slurmd() {
    on_slurm_node(|node| {
        write_gpu_files(node);
        configure_slurm(
            node,
            "gpu:2",
            "AutoDetect=nvml\nName=gpu File=/dev/nvidia[2-3]\n",
        );
        run_hook(node, "prolog.sh", &["SLURM_JOB_GPUS=1"]).ok();
        assert_eq!(read_record(node)["gres"], json!({ "gpu": [1] }));
        assert_eq!(gpu_device(node, 1), "/dev/nvidia3");
    });
}

#[test]
fn devices_left_to_slurm_make_no_list_and_fail_no_job() {
    on_slurm_node(|node| {
        run_hook(node, "prolog.sh", &["SLURM_JOB_GPUS=7"]).ok();
        let record = read_record(node);
        assert_eq!(record["options"], json!({ "DevicePolicy": "auto" }));
        assert!(record.get("gres").is_none(), "{record}");
        node.sh("rm -r /run/job-adopt/jobs; mkdir -m 777 /run/job-adopt/jobs")
            .ok();
        run_hook(node, "prolog.sh", &[]).ok().says("has no record");
    });
}

#[test]
fn missing_directory_or_job_of_root_fails_no_prolog() {
    on_slurm_node(|node| {
        for odd in [
            "/home/a b",
            "/home/$(id)",
            "/home/a\nb",
            "/home/\u{e4}",
            "",
            "/home/*",
        ] {
            run_hook(node, "prolog.sh", &[&format!("SLURM_JOB_WORK_DIR={odd}")]).ok();
            assert!(
                read_record(node)["env"].get("SLURM_JOB_WORK_DIR").is_none(),
                "{odd:?}"
            );
        }
        let record = node.read(RECORD);
        run_hook(node, "prolog.sh", &["SLURM_JOB_UID=0", "SLURM_JOB_GPUS=0"]).ok();
        assert_eq!(node.read(RECORD), record);
    });
}

/// Installs an example on the node, with the scheduler's job folder `own` in place of `usual`.
fn install_example(node: &Node, name: &str, usual: &str, own: &str) {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/examples");
    let text = std::fs::read_to_string(examples.join(name)).unwrap();
    assert!(text.contains(usual), "{name}");
    node.write(&format!("/tmp/{name}"), &text.replace(usual, own));
    node.set_mode(&format!("/tmp/{name}"), 0o755);
}

/// These schedulers are not installed: the test runs our part of their hooks, on stand-ins for
/// theirs.
#[test]
fn lsf_example_registers_and_withdraws_job() {
    on_node(|node| {
        let jobs = format!("{}/lsf-jobs", node.cgroup().child("jobs").path());
        install_example(node, "lsf.sh", "/lsf-jobs", &jobs);
        node.sh("printf '#!/bin/sh\\necho alice\\n' >/usr/bin/bjobs; chmod 755 /usr/bin/bjobs")
            .ok();
        let begin = "export LSB_JOBID=77 LSB_JOBINDEX=0 LSB_HOSTS='n1 n1 n2' LSB_QUEUE='a$(id)' \
                     LSB_DJOB_NUMPROC=3 LSB_DJOB_HOSTFILE=/home/alice/.lsbatch/77.hosts \
                     LSB_MCPU_HOSTS='n1 -oProxyCommand=x'; \
                     /tmp/lsf.sh begin && cat /proc/self/cgroup";
        node.sh(begin).ok().says(&format!("{jobs}/77.0"));
        node.job_adopt(&["list"]).ok().says("77.0").says("alice");
        let record = node.read("/run/job-adopt/jobs/1001/77.0.json");
        let record: Value = serde_json::from_str(&record).unwrap();
        assert_eq!(record["scheduler"], "lsf");
        assert_eq!(
            record["env"],
            json!({
                "LSB_JOBID": "77", "LSB_JOBINDEX": "0", "LSB_HOSTS": "n1 n1 n2",
                "LSB_DJOB_NUMPROC": "3", "LSB_DJOB_HOSTFILE": "/home/alice/.lsbatch/77.hosts",
            })
        );
        node.sh("LSB_JOBID=77 /tmp/lsf.sh end").ok();
        node.job_adopt(&["list"]).ok().omits("77.0");
        assert!(
            !node
                .sh(&format!("ls -d /sys/fs/cgroup{jobs}/77.0"))
                .stdout
                .contains("77.0")
        );
        node.sh("LSB_JOBID='77;id' /tmp/lsf.sh begin").fails();
        let two = format!("{begin}; export LSB_JOBID=78; /tmp/lsf.sh begin");
        node.sh(&two).fails().says("77.0");
        node.job_adopt(&["list"]).ok().says("77.0").omits("78.0");
        node.sh("LSB_JOBID=77 /tmp/lsf.sh end").ok();
        run_as_daemon(node, "sbatchd", "LSB_JOBID=77 /tmp/lsf.sh begin").fails();
        run_as_daemon(node, "res", "LSB_JOBID=77 /tmp/lsf.sh begin").ok();
        node.sh("LSB_JOBID=77 /tmp/lsf.sh end").ok();
        // The process that starts the job cannot be moved.
        node.sh("sed -i 's/^    echo \"$PPID\"/    echo 0x/' /tmp/lsf.sh")
            .ok();
        node.sh("LSB_JOBID=77 /tmp/lsf.sh begin").fails();
        node.job_adopt(&["list"]).ok().omits("77.0");
        node.sh(&format!("rmdir /sys/fs/cgroup{jobs}")).ok();
    });
}

#[test]
fn prolog_example_passes_variables_on() {
    on_node(|node| {
        let job = node.job(ALICE, "77").unstamped().unrecorded().start();
        install_example(node, "prolog.sh", "JOB_ADOPT_TASKS", "JOB_ADOPT_TASKS");
        let begin = format!(
            "export JOB_ID=77 JOB_UID=1001 JOB_CGROUP={} JOB_NODEFILE=/run/nodes JOB_TASKS=2 \
             JOB_TMPDIR=; /tmp/prolog.sh",
            job.cgroup.path()
        );
        node.sh(&begin).ok();
        assert_eq!(
            read_record(node)["env"],
            json!({ "JOB_ADOPT_NODEFILE": "/run/nodes", "JOB_ADOPT_TASKS": "2" })
        );
        node.sh(&begin.replace("/run/nodes", "nodes"))
            .exits(2)
            .says("JOB_ADOPT_NODEFILE is no absolute path");
    });
}

/// Neither the user's other job nor the processes of LSF that run the script end with it.
#[test]
fn lsf_example_ends_rest_of_job() {
    on_node(|node| {
        let jobs = node.cgroup().child("jobs").child("lsf-jobs");
        install_example(node, "lsf.sh", "/lsf-jobs", jobs.path());
        node.sh("printf '#!/bin/sh\\necho alice\\n' >/usr/bin/bjobs; chmod 755 /usr/bin/bjobs")
            .ok();
        let _other = node.job(ALICE, "4242").start();
        let cgroup = jobs.child("77.0");
        let script = "export LSB_JOBID=77; /tmp/lsf.sh begin && setsid -f setpriv --reuid 1001 \
                      --regid 1001 --clear-groups sleep infinity </dev/null >/dev/null 2>&1 && \
                      sh -c '/tmp/lsf.sh end; echo status $?'; echo after";
        node.sh(script).ok().says("status 0").says("after");
        assert!(!cgroup.exists(), "its cgroup is left");
        assert_eq!(
            node.job_adopt(&["list"])
                .ok()
                .stdout
                .matches("alice")
                .count(),
            1
        );
        jobs.remove();
    });
}

/// Runs a command by a process with this name whose parent is init.
fn run_as_daemon(node: &Node, name: &str, command: &str) -> Outcome {
    let path = format!("/tmp/{name}");
    node.write(&path, &format!("#!/bin/sh\n{command}\nexit $?\n"));
    node.set_mode(&path, 0o755);
    let init = format!("{path}; exit $?");
    node.run(
        "unshare",
        &["--pid", "--fork", "--mount-proc", "sh", "-c", &init],
    )
}

/// `make test-nodes` runs OAR itself, on a node without a driver.
#[test]
fn oar_example_registers_gpu_by_address() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.add_nvidia_gpus();
        let job = node.cgroup().child("jobs").child("oar-u1001-j77.slice");
        job.create();
        install_example(node, "oar.sh", "--account oar", "--account bob");
        let init = format!("/tmp/oar.sh init 77 alice /sys/fs/cgroup{}", job.path());
        node.sh(&format!("{init} /dev/nvidia2 /dev/fuse")).ok();
        let record = read_record(node);
        assert_eq!(record["gpus"], json!(["0000:12:00.0"]));
        assert_eq!(record["options"]["DevicePolicy"], "closed");
        assert_eq!(
            record["options"]["DeviceAllow"],
            json!([["/dev/fuse", "rw"]])
        );
        assert_eq!(record["accounts"], json!(["bob"]));
        assert_eq!(record["scheduler"], "oar");
        assert_eq!(record["env"]["OAR_NODEFILE"], "/var/lib/oar/77");
        node.sh("/tmp/oar.sh clean 77").ok();
        assert!(!node.exists(RECORD));
        node.sh(&init).ok();
        assert_eq!(
            read_record(node)["options"],
            json!({ "DevicePolicy": "closed" })
        );
        node.sh("/tmp/oar.sh clean 77").ok();
        node.sh("sed -i s/=lists/=theirs/ /tmp/oar.sh").ok();
        node.sh(&init).fails().says("OAR_DEVICES");
    });
}

#[test]
fn openpbs_example_makes_cgroup_and_ends_remaining_processes() {
    on_node(|node| {
        let jobs = format!("{}/pbs-jobs", node.cgroup().child("jobs").path());
        install_example(node, "openpbs.py", "/pbs-jobs", &jobs);
        write_pbs_module(node, "int(os.environ['EVENT'])", "77[3].server");
        let hook = |event: i32| format!("EVENT={event} python3 -I -c \"{OPENPBS_START}\"");
        node.sh(&hook(1)).ok().says("accepted");
        node.job_adopt(&["list"])
            .ok()
            .says("77.3.server")
            .says("alice");
        let record = node.read("/run/job-adopt/jobs/1001/77.3.server.json");
        let record: Value = serde_json::from_str(&record).unwrap();
        assert_eq!(
            record["env"],
            json!({
                "PBS_JOBID": "77[3].server", "PBS_QUEUE": "workq", "PBS_ARRAY_INDEX": "3",
                "PBS_NODEFILE": "/var/spool/pbs/aux/77[3].server",
            })
        );
        let task = format!(
            "{} && cat /proc/self/cgroup; sleep 1000 >/dev/null 2>&1 & echo $! >/run/left",
            hook(2)
        );
        node.sh(&task)
            .ok()
            .says("accepted")
            .says(&format!("{jobs}/77.3.server"));
        node.sh("kill -0 $(cat /run/left)").ok();
        for (event, frozen) in [(-1, "1"), (-2, "0"), (-1, "1")] {
            node.sh(&hook(event)).ok().says("accepted");
            let state = node.read(&format!("/sys/fs/cgroup{jobs}/77.3.server/cgroup.freeze"));
            assert_eq!(state.trim(), frozen);
        }
        for event in [4, 5] {
            node.sh(&hook(event))
                .ok()
                .says("accepted")
                .omits("EVENT_ERROR");
        }
        node.sh("kill -0 $(cat /run/left)").fails();
        node.job_adopt(&["list"]).ok().omits("77.3.server");
        node.sh(&format!("ls -d /sys/fs/cgroup{jobs}/77.3.server"))
            .fails();
        let other = format!(
            "echo $$ >/sys/fs/cgroup{jobs}/78/cgroup.procs; {}; echo $$ >/sys/fs/cgroup{}/cgroup.procs",
            hook(2),
            node.cgroup().path()
        );
        node.sh(&hook(1)).ok().says("accepted");
        node.sh(&format!("mkdir /sys/fs/cgroup{jobs}/78")).ok();
        node.sh(&other)
            .ok()
            .says("requeued")
            .says("rejected")
            .says("is in another job");
        for (account, outcome) in [("0", "does not belong to alice"), ("1001", "accepted")] {
            let attach = format!(
                "setpriv --reuid {account} --clear-groups sleep 1000 & child=$!
                 while [ $(cat /proc/$child/comm) != sleep ]; do :; done
                 ATTACHED=$child {}; cat /proc/$child/cgroup; kill $child",
                hook(3)
            );
            let attached = node.sh(&attach).ok().says(outcome);
            let cgroup = format!("{jobs}/77.3.server\n");
            assert_eq!(attached.stdout.contains(&cgroup), account == "1001");
        }
        run_as_daemon(node, "pbs_mom", &hook(2))
            .ok()
            .says("rejected")
            .says("is pbs_mom");
        run_as_daemon(node, "starter", &hook(2))
            .ok()
            .says("accepted");
        node.sh(&hook(4)).ok().says("accepted");
        node.sh(&format!("rmdir /sys/fs/cgroup{jobs}/78")).ok();
        node.sh("sed -i 's/, .alice.$/, \"nobody-here\"/' /tmp/pbs.py")
            .ok();
        node.sh(&hook(1))
            .fails()
            .says("RuntimeError: job-adopt: ")
            .omits("accepted");
        // The failed start has removed the job's cgroup.
        node.sh(&format!("rmdir /sys/fs/cgroup{jobs}")).ok();
    });
}

/// The user names the process, may end it at once, and may start others until one has its number.
#[test]
fn openpbs_example_attaches_no_other_process_that_gets_the_number() {
    on_node(|node| {
        let jobs = format!("{}/pbs-jobs", node.cgroup().child("jobs").path());
        install_example(node, "openpbs.py", "/pbs-jobs", &jobs);
        write_pbs_module(node, "int(os.environ['EVENT'])", "77.server");
        node.sh(&format!("EVENT=1 python3 -I -c \"{OPENPBS_START}\""))
            .ok()
            .says("accepted");
        // Just before the hook writes the number, it passes to a process of bob.
        node.write(
            "/tmp/race.py",
            r#"import os, sys, time
sys.path.insert(0, "/tmp")

def swap(pid):
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write("%d" % (pid - 1))
    assert os.fork() or sleep(1002)
    assert os.path.exists("/proc/%d" % pid), "another process took the number"

def sleep(uid):
    os.setuid(uid)
    # Whoever reads the output of a failed script would wait for this process.
    os.closerange(0, 3)
    time.sleep(1000)

victim = os.fork() or sleep(1001)
while "\nUid:\t1001\t" not in open("/proc/%d/status" % victim).read():
    pass
os.environ["ATTACHED"] = "%d" % victim
text = open("/tmp/openpbs.py").read()
call = 'write("cgroup.procs", pid)'
assert text.count(call) == 1
exec(text.replace(call, "swap(pid); " + call))
print(open("/proc/%d/cgroup" % victim).read())
os.kill(victim, 9)
"#,
        );
        node.sh("EVENT=3 python3 -I /tmp/race.py")
            .ok()
            .says("rejected")
            .says("has ended")
            .omits(&format!("{jobs}/77.server"));
        node.sh(&format!("EVENT=4 python3 -I -c \"{OPENPBS_START}\""))
            .ok()
            .says("accepted");
        node.sh(&format!("rmdir /sys/fs/cgroup{jobs}")).ok();
    });
}

/// A starter that runs, with a child of alice in the cgroup of its slot, and a stand-in for the startd's
/// answer. The slot's watcher runs until it is dropped.
struct Slot<'a> {
    node: &'a Node,
    starter: Process,
    job: Cgroup,
}

impl<'a> Slot<'a> {
    fn new(node: &'a Node) -> Self {
        let jobs = node.cgroup().child("jobs");
        let job = jobs.child("htcondor").child("execute_slot1_1@n");
        jobs.child("htcondor").create();
        chown(job.create().dir(), Some(ALICE.uid), None).unwrap();
        install_example(node, "htcondor.sh", "patience=60", "patience=0");
        let answer = "#!/bin/sh\n[ ! -e /run/answer ] || cat /run/answer\n";
        for (name, text) in [
            ("condor_config_val", "#!/bin/sh\necho /etc/passwd\n"),
            ("condor_status", answer),
        ] {
            node.write(&format!("/usr/bin/{name}"), text);
            node.set_mode(&format!("/usr/bin/{name}"), 0o755);
        }
        let enter = format!("echo \\$\\$ >/sys/fs/cgroup{}/cgroup.procs", job.path());
        let become_alice = "exec setpriv --reuid 1001 --regid 1001 --clear-groups sleep infinity";
        let script = format!("sh -c \"{enter}; {become_alice}\" & wait");
        let starter = Process::start_in(node, jobs.child("leaf").create(), ROOT, &script);
        eventually("the job runs", || !job.pids().is_empty());
        Self { node, starter, job }
    }

    /// Has the startd name these jobs, each as JobId and RemoteOwner.
    fn answer(&self, job: &str) {
        let pid = self.starter.pid();
        let slots = format!("undefined slot1@n undefined undefined 8\n{pid} slot1_1@n {job} 2\n");
        self.node.write("/run/answer", &slots);
    }

    fn watch(&self) -> Child {
        let mut watcher = self.node.command("/tmp/htcondor.sh");
        watcher.args(["--watch", "slot1_1", &self.starter.pid().to_string()]);
        watcher.stderr(Stdio::null()).spawn().unwrap()
    }

    fn has_record(&self) -> bool {
        self.node
            .job_adopt(&["list"])
            .ok()
            .stdout
            .contains("12.0-slot1_1")
    }
}

#[test]
fn htcondor_watcher_registers_job_that_startd_names() {
    on_node(|node| {
        let slot = Slot::new(node);
        // Before the list of a job is made.
        node.write(
            "/usr/bin/nvidia-modprobe",
            "#!/bin/sh\njob-adopt list >/run/loaded\n",
        );
        node.set_mode("/usr/bin/nvidia-modprobe", 0o755);
        node.sh("mount -t tmpfs -o mode=0755 tmpfs /proc/driver && mkdir /proc/driver/nvidia")
            .ok();
        let mut watcher = slot.watch();
        // An empty answer is no answer.
        node.log.line("the startd names no job in this slot");
        assert!(!slot.has_record());
        slot.answer("12.0 alice@site");
        eventually("it is registered", || slot.has_record());
        assert!(!node.read("/run/loaded").contains("12.0-slot1_1"));
        node.look(ALICE).ok().joins_cgroup(&slot.job);
        // It withdraws no job on such an answer either.
        node.sh("rm /run/answer").ok();
        assert!(watcher.try_wait().unwrap().is_none() && slot.has_record());
        slot.job.kill();
        watcher.wait().unwrap();
        node.sh("/tmp/htcondor.sh --over slot1_1").ok();
        assert!(!slot.has_record());
    });
}

#[test]
fn htcondor_watcher_refuses_job_of_another_owner() {
    on_node(|node| {
        let slot = Slot::new(node);
        slot.answer("12.0 bob@site");
        assert!(!slot.watch().wait().unwrap().success());
        node.log.line("belongs to uid 1001, the job to bob@site");
        assert!(!slot.has_record());
    });
}

/// A process that waits for another one of its user ends with that one. A stand-in shows the order: its job has ended once
/// the strays have, but for what no signal ends.
#[test]
fn epilogs_drain_node_only_for_what_stays_after_the_end_of_strays() {
    let stand_in = "#!/bin/sh
        case $1 in strays) : >/run/strays-ended; exit 0 ;; esac
        test ! -e /run/strays-ended || test -e /run/stuck || exit 0
        echo 'job-adopt: empty /j: cannot be killed: 7 (cat)' >&2
        exit 4\n";
    let recorder = "#!/bin/sh\necho \"$*\" >>/run/drained\n";
    on_node(|node| {
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging");
        for (path, content) in [
            ("job-adopt", stand_in),
            ("scontrol", recorder),
            ("flux", recorder),
        ] {
            let path = format!("/usr/bin/{path}");
            node.sh(&format!("rm -f {path}")).ok();
            node.write(&path, content);
            node.set_mode(&path, 0o755);
        }
        for (hook, drain) in [
            ("slurm/epilog.sh", "State=DRAIN"),
            ("flux/housekeeping.sh", "resource drain"),
        ] {
            node.install(&packaging.join(hook), "/tmp/hook");
            let run = || {
                let variables = start(hook).1.join(" ");
                node.sh(&format!(
                    "rm -f /run/strays-ended; env {variables} /tmp/hook"
                ))
                .ok();
            };
            run();
            assert!(!node.exists("/run/drained"), "{hook}");
            node.sh(": >/run/stuck").ok();
            run();
            let drained = node.read("/run/drained");
            assert!(
                drained.contains(drain) && drained.contains("cannot be killed: 7 (cat)"),
                "{hook}: {drained}"
            );
            node.sh("rm /run/stuck /run/drained").ok();
        }
    });
}

/// Everything that a user can set for a job, in the form that a scheduler passes on. `/tmp/evil`
/// has a program for every name that a hook runs, and each leaves a mark.
const HOSTILE: [&str; 24] = [
    "PATH=/tmp/evil",
    "LD_PRELOAD=/tmp/evil/preload.so",
    "LD_LIBRARY_PATH=/tmp/evil",
    "LD_AUDIT=/tmp/evil/audit.so",
    "GCONV_PATH=/tmp/evil",
    "ENV=/tmp/evil/mark",
    "BASH_ENV=/tmp/evil/mark",
    "BASH_FUNC_test%%=() { /tmp/evil/mark; }",
    "BASH_FUNC_set%%=() { /tmp/evil/mark; }",
    "BASH_FUNC_job-adopt%%=() { /tmp/evil/mark; }",
    "SHELLOPTS=noexec",
    "BASHOPTS=extdebug",
    "IFS=/",
    "CDPATH=/tmp/evil",
    "PYTHONPATH=/tmp/evil",
    "PERL5OPT=-I/tmp/evil",
    "LSF_ENVDIR=/tmp/evil",
    "LSF_SERVERDIR=/tmp/evil",
    "SLURM_CONF=/tmp/evil/slurm.conf",
    "CONDOR_CONFIG=/tmp/evil/condor_config",
    "FLUX_URI=local:///tmp/evil/socket",
    "SYSTEMD_EDITOR=/tmp/evil/mark",
    "LSB_HOSTS=$(/tmp/evil/mark)",
    "LSB_QUEUE=`/tmp/evil/mark`; /tmp/evil/mark",
];

/// Returns the command that starts each hook, with the variables that it needs.
fn start(name: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match name {
        "slurm/prolog.sh" | "slurm/epilog.sh" => (
            &[],
            &["SLURM_JOB_ID=77", "SLURM_JOB_UID=1001", "SLURM_JOB_GPUS=0"],
        ),
        "flux/housekeeping.sh" => (&[], &["FLUX_JOB_ID=77", "FLUX_JOB_USERID=1001"]),
        "examples/prolog.sh" => (&[], &["JOB_ID=77", "JOB_UID=1001", "JOB_CGROUP=/jobs/77"]),
        "examples/epilog.sh" => (&[], &["JOB_ID=77"]),
        "examples/lsf.sh" => (&["begin"], &["LSB_JOBID=77", "LSB_JOBINDEX=0"]),
        "examples/gridengine.sh" => (&["over", "77"], &[]),
        "examples/oar.sh" => (&["clean", "77"], &[]),
        "examples/htcondor.sh" => (&["--over", "slot1_1"], &[]),
        "examples/openpbs.py" => (&[], &[]),
        other => panic!("{other}: how it is started is not known here"),
    }
}

/// A program that records the environment of its start.
const RECORDER: &str = "#!/bin/bash -p\n/usr/bin/cat /proc/$$/environ >>/run/seen\n\
                        [[ $0 != *bjobs ]] || echo alice\n";

fn lay_traps(node: &Node, shell: &str) {
    let programs = "job-adopt bjobs condor_status env sh bash cat mkdir readlink sed logger head \
                    hostname tr ls uname systemctl sleep rmdir mv python3 nvidia-modprobe modprobe";
    node.sh(&format!(
        "ln -sfn {shell} /usr/bin/sh && mkdir -m 755 /tmp/evil && cd /tmp/evil &&
         printf '#!/bin/bash -p\\n: >/run/mark\\n' >mark && chmod 755 mark &&
         for name in {programs}; do ln -s mark $name; done"
    ))
    .ok();
    for program in ["job-adopt", "bjobs", "condor_status"] {
        let path = format!("/usr/bin/{program}");
        node.sh(&format!("rm -f {path}")).ok();
        node.write(&path, RECORDER);
        node.set_mode(&path, 0o755);
    }
    write_pbs_module(node, "4", "77");
}

/// Writes a stand-in for the module that OpenPBS gives its hooks: an event of this type for a job with
/// this id. Types from 4 on are ends. ATTACHED in the environment is the process to attach.
fn write_pbs_module(node: &Node, event: &str, id: &str) {
    let text = format!(
        "import os
EXECJOB_BEGIN, EXECJOB_LAUNCH, EXECJOB_ATTACH, EVENT_ERROR = 1, 2, 3, 'EVENT_ERROR'
EXECJOB_POSTSUSPEND, EXECJOB_PRERESUME = -1, -2
def logmsg(level, text): print(level, text)
class event:
    type = {event}
    pid = int(os.environ.get('ATTACHED', '0'))
    def accept(self): print('accepted')
    def reject(self, text): print('rejected', text)
    class job:
        id, euser = '{id}', 'alice'
        class queue: name = 'workq'
        def in_ms_mom(): return True
        def rerun(): print('requeued')
pbs_conf = {{'PBS_HOME': '/var/spool/pbs'}}
"
    );
    node.write("/tmp/pbs.py", &text);
}

/// Runs the hook of OpenPBS with that module.
const OPENPBS_START: &str =
    "import sys; sys.path.insert(0, '/tmp'); exec(open('/tmp/openpbs.py').read())";

/// Lists the hooks, each named by its folder and file below `packaging`.
fn every_hook() -> Vec<String> {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging");
    let files = |folder: &'static str| {
        let files = std::fs::read_dir(packaging.join(folder)).unwrap();
        files.map(move |file| format!("{folder}/{}", file.unwrap().file_name().to_string_lossy()))
    };
    ["slurm", "flux", "examples"]
        .into_iter()
        .flat_map(files)
        .collect()
}

fn run_with_hostile_environment(shell: &str) {
    on_node(|node| {
        lay_traps(node, shell);
        let jobs = node.cgroup().child("jobs").path().to_owned();
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging");
        let hooks = every_hook();
        assert!(hooks.len() >= 9, "{hooks:?}");
        for hook in hooks {
            node.sh("rm -f /run/seen /run/mark").ok();
            let text = std::fs::read_to_string(packaging.join(&hook)).unwrap();
            // The root is the machine's, where a cgroup would be left behind.
            node.write(
                "/tmp/hook",
                &text.replace("/lsf-jobs", &format!("{jobs}/lsf-jobs")),
            );
            node.set_mode("/tmp/hook", 0o755);
            let (arguments, variables) = start(&hook);
            let python = OPENPBS_START.replace("openpbs.py", "hook");
            let program: &[&str] = if hook.ends_with(".py") {
                &["/usr/bin/python3", "-I", "-c", &python]
            } else {
                &["/tmp/hook"]
            };
            let parts = [&["-i"][..], &HOSTILE, variables, program, arguments];
            // How it ends is the business of other tests: here job-adopt does nothing.
            let outcome = node.run("env", &parts.concat());
            assert!(
                !node.exists("/run/mark"),
                "{hook}: ran a program of the user's: {outcome}"
            );
            assert!(node.exists("/run/seen"), "{hook}: ran nothing: {outcome}");
            let seen = node.read("/run/seen");
            for line in seen.split_terminator('\0') {
                let (name, value) = line.split_once('=').unwrap();
                let theirs = HOSTILE
                    .iter()
                    .any(|set| set.split('=').next() == Some(name));
                assert!(
                    !theirs || name == "PATH" || name == "LSF_ENVDIR",
                    "{hook}: {line}"
                );
                assert!(!value.contains("evil"), "{hook}: {line}");
            }
        }
    });
}

#[test]
fn hook_passes_no_hostile_variable_on() {
    run_with_hostile_environment("dash");
}

#[test]
fn hook_under_bash_obeys_no_hostile_variable() {
    run_with_hostile_environment("bash");
}
