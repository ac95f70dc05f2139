//! The script for nodes with a real driver finds right and wrong logins, on stand-ins.

use std::path::Path;

use crate::support::{Artifact, Node, Outcome, Tool, artifact_path, on_node};

/// Runs the script on a node with the NVIDIA driver's files and four stand-in GPUs.
fn run_script(node: &Node, before: &str) -> Outcome {
    node.add_nvidia_driver(238);
    node.add_nvidia_gpus();
    node.create_dir("/srv/gpu", 0o755);
    for (file, name) in [
        (artifact_path(Artifact::Module), "pam_job_adopt.so"),
        (artifact_path(Artifact::Helper), "helper"),
        (artifact_path(Artifact::Program), "job-adopt"),
        (Tool::SshdLogin.path(), "sshd-login"),
        (Tool::Cuda.path(), "cuda"),
    ] {
        node.install(&file, &format!("/srv/gpu/{name}"));
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/run");
    node.install(&script, "/srv/gpu/run");
    let cgroup = node.cgroup().path().trim_start_matches('/');
    node.sh(&format!(
        "{before}\nJOB_ADOPT_GPU_CGROUP={cgroup}/gpu /srv/gpu/run /srv/gpu"
    ))
}

#[test]
fn script_for_real_gpus_passes_on_stand_ins() {
    on_node(|node| {
        run_script(node, "")
            .ok()
            .says("ok: opened \"\"\n")
            .says("ok: opened \"/dev/nvidia0\"")
            .says("ok: opened \"/dev/nvidia0 /dev/nvidia1 /dev/nvidia2 /dev/nvidia3\"")
            .says("gpu: 0 failed");
        assert!(!node.exists("/mnt/jobs"), "mounts of its own");
    });
}

#[test]
fn script_for_real_gpus_fails_if_a_login_opens_another_gpu() {
    on_node(|node| {
        // The kernel's numbers contradict the driver's: the login opens what is not its job's.
        run_script(node, "rm /dev/nvidia1 && mknod -m 666 /dev/nvidia1 c 195 0")
            .exits(1)
            .says("FAILED opened");
    });
}
