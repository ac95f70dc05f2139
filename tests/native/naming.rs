//! However a record names a device, a login gets that one and no other: enforced by the kernel on
//! stand-in nodes, over a real ssh connection.

use serde_json::json;

use crate::support::{ALICE, DENIED, Node, OPENS, on_node};

/// As NVIDIA's tool writes it, without numbers.
const NVIDIA: &str = "\
---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidia-uvm
  - path: /dev/nvidia-uvm-tools
  - path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args:
    - touch
    - /run/hook-ran
    hookName: createContainer
    path: /usr/bin/touch
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: \"0\"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
  name: \"1\"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
  name: GPU-edfee158-11c1-52b8-0517-92f30e7fac88
kind: nvidia.com/gpu
";

/// Probes what the tests of this file are about.
const LOOK: &str = "probe /dev/nvidia0 /dev/nvidia1 /dev/nvidia2 /dev/nvidiactl /dev/nvidia-uvm \
    /dev/nvidia-uvm-tools /dev/dri/renderD128 /dev/dri/renderD129 /dev/kfd /dev/null /dev/fuse";

/// The second GPU of NVIDIA's, with what computing on it takes.
const SECOND: [(&str, &str); 7] = [
    ("/dev/nvidia0", DENIED),
    ("/dev/nvidia1", OPENS),
    ("/dev/nvidia2", DENIED),
    ("/dev/nvidiactl", OPENS),
    ("/dev/nvidia-uvm", OPENS),
    ("/dev/dri/renderD128", DENIED),
    ("/dev/null", "ok"),
];

/// A job whose record has this key and nothing else about devices.
fn login(node: &Node, key: &str, value: serde_json::Value, expected: &[(&str, &str)]) {
    let job = node.job(ALICE, "4242").with("options", json!({})).with(key, value);
    let _job = job.start();
    node.sshd().ssh(ALICE, LOOK).ok().devices(expected);
}

/// The login to a job with that key is refused, in these words, and the log gives the cause.
fn refused(node: &Node, key: &str, value: serde_json::Value, words: &str, cause: &str) {
    let job = node.job(ALICE, "4242").with("options", json!({})).with(key, value).start();
    node.sshd().ssh(ALICE, "true").fails().says(words).says("[JA10]");
    node.log.line(cause);
    assert_eq!(job.cgroup.pids().len(), 1, "something joined");
}

#[test]
fn by_a_cdi_name() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.place("/etc/cdi/nvidia.yaml", NVIDIA);
        login(node, "cdi", json!(["nvidia.com/gpu=1"]), &SECOND);
        assert!(!node.exists("/run/hook-ran"), "a hook was run");
    });
}

#[test]
fn by_a_directory_of_devices() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.place("/etc/cdi/nvidia.yaml", NVIDIA);
        node.place("/run/site/4242/GPU-edfee158-11c1-52b8-0517-92f30e7fac88", "");
        login(node, "device_dir", json!("/run/site/4242"), &SECOND);
    });
}

#[test]
fn by_an_entry_of_that_directory_which_is_a_cdi_name() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.place("/run/cdi/nvidia.yaml", NVIDIA);
        node.place("/run/site/4242/cdi/nvidia.com/gpu/1", "");
        login(node, "device_dir", json!("/run/site/4242"), &SECOND);
    });
}

#[test]
fn an_empty_directory_is_no_gpu() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.folder("/run/site/4242", 0o755);
        let none = [("/dev/nvidia0", DENIED), ("/dev/nvidiactl", DENIED), ("/dev/null", "ok")];
        login(node, "device_dir", json!("/run/site/4242"), &none);
    });
}

#[test]
fn one_unknown_entry_refuses_the_whole_directory() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.place("/etc/cdi/nvidia.yaml", NVIDIA);
        node.place("/run/site/4242/GPU-edfee158-11c1-52b8-0517-92f30e7fac88", "");
        node.place("/run/site/4242/nvidia1", "");
        refused(node, "device_dir", json!("/run/site/4242"), "/run/site/4242", "nvidia1");
    });
}

/// By number the bus counts, by address it is spelled out: both are the card with renderD129.
#[test]
fn by_number_and_by_pci_address() {
    for name in [json!(0), json!("0000:03:00.0")] {
        on_node(|node| {
            node.add_nvidia_driver(510);
            node.add_amd_gpus();
            let first = [
                ("/dev/dri/renderD129", OPENS),
                ("/dev/dri/renderD128", DENIED),
                ("/dev/kfd", OPENS),
                ("/dev/nvidia0", DENIED),
            ];
            login(node, "gpus", json!([name]), &first);
        });
    }
}

#[test]
fn a_number_that_does_not_exist_refuses() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.add_amd_gpus();
        refused(node, "gpus", json!([0, 2]), "GPU 2", "GPU 2");
    });
}

#[test]
fn by_slurms_index() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        let lines = "NodeName=gpu018 Name=gpu File=/dev/nvidia3\n\
                     NodeName=gpu[017,019] Name=gpu Type=h100 File=/dev/nvidia[2,1]\n";
        node.place("/etc/slurm/slurm.conf", "ClusterName=site\n");
        node.place("/etc/slurm/gres.conf", lines);
        login(node, "gres", json!({ "gpu": [1] }), &SECOND);
    });
}

/// For logins and for `register` alike: else a job would be confined to other GPUs than its logins.
#[test]
fn a_site_says_which_node_this_is_in_slurms_files() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        let lines = "NodeName=gpu017 Name=gpu File=/dev/nvidia3\n\
                     NodeName=rack1-n7 Name=gpu File=/dev/nvidia1\n";
        node.place("/etc/slurm/slurm.conf", "ClusterName=site\n");
        node.place("/etc/slurm/gres.conf", lines);
        node.configure("nodename = rack1-n7\n");
        node.job_adopt(&["devices", "--gres", "gpu:0"]).ok().says("/dev/nvidia1");
        login(node, "gres", json!({ "gpu": [0] }), &SECOND);
    });
}

/// The driver was loaded anew and got another major, and the specification still has the old one.
#[test]
fn a_stale_specification_refuses_and_opens_nothing_of_the_driver_that_took_the_number() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        let numbered = NVIDIA.replace(
            "  - path: /dev/nvidia-uvm\n",
            "  - path: /dev/nvidia-uvm\n    major: 511\n    permissions: rwm\n    type: c\n",
        );
        assert!(numbered.contains("511"));
        node.place("/etc/cdi/nvidia.yaml", &numbered);
        refused(node, "cdi", json!(["nvidia.com/gpu=1"]), "nvidia.com/gpu=1", "511");
    });
}

#[test]
fn a_node_of_another_driver_refuses() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.sh("rm /dev/nvidia1; mknod -m 666 /dev/nvidia1 c 10 229").ok();
        node.place("/etc/cdi/nvidia.yaml", NVIDIA);
        refused(node, "cdi", json!(["nvidia.com/gpu=1"]), "nvidia.com/gpu=1", "/dev/nvidia1");
    });
}

#[test]
fn a_specification_that_others_can_write_refuses() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.place("/etc/cdi/nvidia.yaml", NVIDIA);
        node.mode("/etc/cdi/nvidia.yaml", 0o666);
        refused(node, "cdi", json!(["nvidia.com/gpu=1"]), "nvidia.com/gpu=1", "nvidia.yaml");
    });
}

#[test]
fn a_broken_specification_does_not_hide_another_kind() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.place("/etc/cdi/nvidia.yaml", NVIDIA);
        let broken = r#"{"cdiVersion":"0.5.0","kind":"site.org/fpga"}"#;
        node.place("/etc/cdi/beside.json", broken);
        node.place("/run/cdi/broken.json", broken);
        login(node, "cdi", json!(["nvidia.com/gpu=1"]), &SECOND);
        // This one could have replaced the definition.
        node.log.line("broken.json");
    });
    on_node(|node| {
        node.place("/etc/cdi/broken.json", r#"{"cdiVersion":"0.5.0","kind":"site.org/fpga"}"#);
        refused(node, "cdi", json!(["site.org/fpga=0"]), "site.org/fpga=0", "broken.json");
    });
}

/// As drivers that write a file for each claim do. Root finds what logins find.
#[test]
fn a_specification_that_only_root_can_read_is_told_so_and_hides_its_own_kind_alone() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.place("/etc/cdi/nvidia.yaml", NVIDIA);
        node.place("/run/cdi/site.org-fpga_7.json", "{}");
        node.mode("/run/cdi/site.org-fpga_7.json", 0o600);
        login(node, "cdi", json!(["nvidia.com/gpu=1"]), &SECOND);
        let fpga = node.job_adopt(&["devices", "site.org/fpga=0"]);
        fpga.exits(1).says("/run/cdi/site.org-fpga_7.json").says("may not read it: chmod 644");
        node.mode("/etc/cdi/nvidia.yaml", 0o600);
        let cause =
            "/etc/cdi/nvidia.yaml: job-adopt, as whom logins look, may not read it: chmod 644";
        node.job_adopt(&["devices", "nvidia.com/gpu=1"]).exits(1).says(cause);
        let job = node.job(ALICE, "4243").unstamped().unrecorded().start();
        let register = ["register", "--id", "4243", "--user", "alice", "--cdi", "nvidia.com/gpu=1"];
        let register = [&register[..], &["--cgroup", job.cgroup.path()]].concat();
        node.job_adopt(&register).exits(3).says(cause);
        refused(node, "cdi", json!(["nvidia.com/gpu=1"]), "nvidia.com/gpu=1", cause);
    });
}

/// Otherwise a slip in the newer file would bring the older definition back to life.
#[test]
fn a_broken_specification_never_brings_an_older_definition_back() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.place("/etc/cdi/nvidia.yaml", NVIDIA);
        node.place("/run/cdi/nvidia.yaml", &NVIDIA.replace("deviceNodes", "devicenodes"));
        let cause = "/run/cdi/nvidia.yaml";
        refused(node, "cdi", json!(["nvidia.com/gpu=1"]), "nvidia.com/gpu=1", cause);
    });
}

/// The job itself is confined from the start, not from the first login on.
#[test]
fn register_confines_the_job_to_what_its_names_stand_for() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.place("/etc/cdi/nvidia.yaml", NVIDIA);
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let register = ["register", "--id", "4242", "--user", "alice", "--cdi", "nvidia.com/gpu=1"];
        node.job_adopt(&[&register[..], &["--cgroup", job.cgroup.path()]].concat()).ok();
        let devices = [("/dev/nvidia0", DENIED), ("/dev/nvidia1", OPENS)];
        node.probe_in(&job.cgroup).devices(&devices);
        node.sshd().ssh(ALICE, LOOK).ok().devices(&SECOND);
    });
}

/// Otherwise the job would run with every device of the node until somebody reads the log.
#[test]
fn register_and_run_refuse_a_name_that_stands_for_nothing() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let register = ["register", "--id", "4242", "--user", "alice", "--gpu", "99"];
        let refused = node.job_adopt(&[&register[..], &["--cgroup", job.cgroup.path()]].concat());
        refused.exits(3).says("register job 4242: GPU 99: ");
        assert!(!node.exists(&job.record_path()), "the record was written");
        let run = ["run", "--user", "alice", "--policy", "strict", "--gpu", "99", "--"];
        let refused = node.job_adopt(&[&run[..], &["touch", "/tmp/ran"]].concat());
        refused.exits(125).says("GPU 99: ");
        assert!(!node.exists("/tmp/ran"), "the command was run");
    });
}

#[test]
fn a_site_allows_by_pattern_and_by_preset() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.configure("always_allowed = @hpc, /dev/dri/renderD*\n");
        let open = [("/dev/fuse", "ok"), ("/dev/dri/renderD128", OPENS), ("/dev/nvidia0", DENIED)];
        login(node, "cdi", json!([]), &open);
    });
}

/// Which devices a job has is root's to say: nothing that a user sets is even read.
#[test]
fn no_variable_of_the_users_is_a_list_of_devices() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.place("/etc/cdi/nvidia.yaml", NVIDIA);
        node.place("/home/alice/.pam_environment", "NVIDIA_VISIBLE_DEVICES DEFAULT=all\n");
        let _job = node.job(ALICE, "4242").with("cdi", json!(["nvidia.com/gpu=1"])).start();
        let look = format!("export NVIDIA_VISIBLE_DEVICES=all CUDA_VISIBLE_DEVICES=0; {LOOK}");
        node.sshd().ssh(ALICE, &look).ok().devices(&SECOND);
    });
}
