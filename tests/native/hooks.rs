//! Prolog and epilog for Slurm, run as slurmd runs them: as root, with nothing in the environment but
//! what Slurm puts there (measured on 22.05; 24.11 adds times and the newer name of the list of nodes).

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Node, Outcome, on_node};

const RECORD: &str = "/run/job-adopt/jobs/1001/77.json";
const NOTE: &str = "/run/job-adopt/jobs/1001/77.ended";

/// What every prolog has of a job of alice's.
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

/// A node whose Slurm has four GPUs.
fn on_slurms_node(body: impl FnOnce(&Node)) {
    on_node(|node| {
        node.load_drivers(510);
        node.place("/etc/slurm/slurm.conf", "ClusterName=site\n");
        node.place("/etc/slurm/gres.conf", "Name=gpu File=/dev/nvidia[0-3]\n");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/slurm");
        for name in ["prolog.sh", "epilog.sh"] {
            node.install(&folder.join(name), &format!("/etc/slurm/{name}"));
        }
        body(node);
    });
}

/// Runs a script with the variables of a job, and these.
fn run(node: &Node, name: &str, more: &[&str]) -> Outcome {
    let script = format!("/etc/slurm/{name}");
    let arguments: Vec<&str> =
        ["-i"].into_iter().chain(JOB).chain(more.iter().copied()).chain([&*script]).collect();
    node.run("env", &arguments)
}

fn record(node: &Node) -> Value {
    serde_json::from_str(&node.read(RECORD)).unwrap()
}

fn leave_devices_to_slurm(node: &Node) {
    let script = node.read("/etc/slurm/prolog.sh");
    let other = script.replace("\nDEVICES=lists\n", "\nDEVICES=slurm\n");
    assert_ne!(script, other);
    node.write("/etc/slurm/prolog.sh", &other);
}

#[test]
fn the_record_lists_the_gpus_that_slurm_names() {
    on_slurms_node(|node| {
        run(node, "prolog.sh", &["SLURM_JOB_GPUS=2,3", "CUDA_VISIBLE_DEVICES=2,3"]).ok();
        let record = record(node);
        assert_eq!((&record["via"], &record["gres"]), (&json!("slurm"), &json!({ "gpu": [2, 3] })));
        assert_eq!(record["options"]["DevicePolicy"], "closed");
        assert_eq!(record["env"]["CUDA_VISIBLE_DEVICES"], "2,3");
        assert_eq!(record["env"]["SLURM_JOB_NODELIST"], "gpu017");
        assert_eq!(record["env"]["SLURM_JOB_WORK_DIR"], "/home/alice");
    });
}

#[test]
fn a_job_without_gpus_gets_a_list_without_gpus() {
    on_slurms_node(|node| {
        run(node, "prolog.sh", &[]).ok();
        let record = record(node);
        assert_eq!(record["options"], json!({ "DevicePolicy": "closed" }));
        assert!(record.get("gres").is_none() && record.get("gpus").is_none(), "{record}");
    });
}

#[test]
fn run_twice_it_says_the_same_and_the_epilog_takes_it_away_and_leaves_a_note() {
    on_slurms_node(|node| {
        let times = ["SLURM_JOB_START_TIME=1795200000", "SLURM_JOB_END_TIME=1795203600"];
        let gpus = ["SLURM_JOB_GPUS=0"];
        let more = [&gpus[..], &times[..]].concat();
        run(node, "prolog.sh", &more).ok();
        let first = record(node);
        assert_eq!((&first["started"], &first["ends"]), (&json!(1795200000), &json!(1795203600)));
        run(node, "prolog.sh", &more).ok();
        assert_eq!(record(node), first);
        run(node, "epilog.sh", &more).ok();
        assert!(!node.exists(RECORD) && node.exists(NOTE));
        run(node, "epilog.sh", &more).ok();
        // Requeued under its id.
        run(node, "prolog.sh", &gpus).ok();
        assert!(node.exists(RECORD) && !node.exists(NOTE));
    });
}

/// An unregister that was killed before its end must not keep a requeued job from starting.
#[test]
fn a_job_comes_back_whose_end_was_cut_short() {
    on_slurms_node(|node| {
        run(node, "prolog.sh", &[]).ok();
        node.sh(&format!("mv {RECORD} /run/job-adopt/jobs/1001/.77.ending")).ok();
        run(node, "prolog.sh", &[]).ok();
        assert!(node.exists(RECORD) && !node.exists("/run/job-adopt/jobs/1001/.77.ending"));
    });
}

#[test]
fn a_list_that_cannot_be_made_fails_the_prolog() {
    on_slurms_node(|node| {
        run(node, "prolog.sh", &["SLURM_JOB_GPUS=7"]).failed();
        assert!(!node.exists(RECORD));
    });
}

#[test]
fn devices_left_to_slurm_make_no_list_and_fail_no_job() {
    on_slurms_node(|node| {
        leave_devices_to_slurm(node);
        run(node, "prolog.sh", &["SLURM_JOB_GPUS=7"]).ok();
        let record = record(node);
        assert_eq!(record["options"], json!({ "DevicePolicy": "auto" }));
        assert!(record.get("gres").is_none(), "{record}");
        node.sh("rm -r /run/job-adopt/jobs; mkdir -m 777 /run/job-adopt/jobs").ok();
        run(node, "prolog.sh", &[]).ok().says("has no record");
    });
}

#[test]
fn no_working_directory_and_no_job_of_roots_fails_a_prolog() {
    on_slurms_node(|node| {
        for odd in ["/home/a b", "/home/$(id)", "/home/a\nb", "/home/\u{e4}", "", "/home/*"] {
            run(node, "prolog.sh", &[&format!("SLURM_JOB_WORK_DIR={odd}")]).ok();
            assert!(record(node)["env"].get("SLURM_JOB_WORK_DIR").is_none(), "{odd:?}");
        }
        let record = node.read(RECORD);
        run(node, "prolog.sh", &["SLURM_JOB_UID=0", "SLURM_JOB_GPUS=0"]).ok();
        assert_eq!(node.read(RECORD), record);
    });
}
