//! A login gets exactly the device that a record names, in whatever form. The kernel enforces it on
//! stand-ins, over a real ssh connection.

use serde_json::json;

use crate::support::{ALICE, DENIED, Node, OPENS, on_node};

/// A specification without numbers, as NVIDIA's tool writes it.
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

/// Probes the devices of these tests.
const LOOK: &str = "probe /dev/nvidia0 /dev/nvidia1 /dev/nvidia2 /dev/nvidiactl /dev/nvidia-uvm \
    /dev/nvidia-uvm-tools /dev/dri/renderD128 /dev/dri/renderD129 /dev/kfd /dev/null /dev/fuse";

/// Answers for NVIDIA's second GPU and the devices that computing needs.
const SECOND: [(&str, &str); 7] = [
    ("/dev/nvidia0", DENIED),
    ("/dev/nvidia1", OPENS),
    ("/dev/nvidia2", DENIED),
    ("/dev/nvidiactl", OPENS),
    ("/dev/nvidia-uvm", OPENS),
    ("/dev/dri/renderD128", DENIED),
    ("/dev/null", "ok"),
];

/// Asserts the answers in a login to a job that is registered with this key and no other about devices.
fn assert_login_devices(
    node: &Node,
    key: &str,
    value: serde_json::Value,
    expected: &[(&str, &str)],
) {
    let job = node
        .job(ALICE, "4242")
        .with("options", json!({}))
        .with(key, value);
    let _job = job.register();
    node.sshd().ssh(ALICE, LOOK).ok().devices(expected);
}

/// Asserts that a job with that key is not registered because of this name, for this cause, and that its cgroup stays as
/// it was.
#[track_caller]
fn assert_register_fails(
    node: &Node,
    key: &str,
    value: serde_json::Value,
    name: &str,
    cause: &str,
) {
    let (job, outcome) = node
        .job(ALICE, "9")
        .with("options", json!({}))
        .with(key, value)
        .try_register();
    outcome
        .exits(3)
        .says(&format!("job-adopt: register job 9: {name}: "))
        .says(cause);
    assert!(!node.exists(&job.record_path()), "the record was written");
    assert!(job.cgroup.filters().is_empty(), "the job was confined");
    assert_eq!(job.marks(), "", "the job was stamped");
}

#[test]
fn cdi_name_opens_its_device() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.write_root_file("/etc/cdi/nvidia.yaml", NVIDIA);
        assert_login_devices(node, "cdi", json!(["nvidia.com/gpu=1"]), &SECOND);
        assert!(!node.exists("/run/hook-ran"), "a hook was run");
    });
}

#[test]
fn directory_opens_its_devices() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.write_root_file("/etc/cdi/nvidia.yaml", NVIDIA);
        node.write_root_file(
            "/run/site/4242/GPU-edfee158-11c1-52b8-0517-92f30e7fac88",
            "",
        );
        assert_login_devices(node, "device_dir", json!("/run/site/4242"), &SECOND);
    });
}

/// Entries are what the device plugin mounts: `/dev/null` over each file, and no other device.
#[test]
fn written_directory_opens_same_gpu_and_other_device_refuses() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.add_nvidia_gpus();
        node.create_dir("/run/site", 0o755);
        let uuid = Node::uuid(1);
        let write = [
            "devices",
            "--write-dir",
            "/run/site/4242",
            "--gpu",
            "nvidia:1",
        ];
        node.job_adopt(&write).ok();
        let entry = format!("/run/site/4242/{uuid}");
        assert!(node.exists(&entry));
        node.job_adopt(&write).exits(3).says("not empty");
        let devices = [("/dev/nvidia1", OPENS), ("/dev/nvidia0", DENIED)];
        let dir = json!("/run/site/4242");
        assert_login_devices(node, "device_dir", dir.clone(), &devices);
        node.sh(&format!("mount --bind /dev/null {entry}")).ok();
        assert_login_devices(node, "device_dir", dir.clone(), &devices);
        node.sh(&format!("umount {entry}; mount --bind /dev/zero {entry}"))
            .ok();
        assert_register_fails(node, "device_dir", dir, "/run/site/4242", "nor /dev/null");
        let job = node.job(ALICE, "77").with("gpus", json!(["nvidia:1"]));
        let _job = job.start();
        let write_job = ["devices", "--job", "77", "--write-dir", "/run/site/77"];
        node.job_adopt(&write_job).ok();
        assert!(node.exists(&format!("/run/site/77/{uuid}")));
    });
}

#[test]
fn cdi_name_in_directory_opens_its_device() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.write_root_file("/run/cdi/nvidia.yaml", NVIDIA);
        node.write_root_file("/run/site/4242/cdi/nvidia.com/gpu/1", "");
        assert_login_devices(node, "device_dir", json!("/run/site/4242"), &SECOND);
    });
}

#[test]
fn empty_directory_opens_no_gpu() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.create_dir("/run/site/4242", 0o755);
        let none = [
            ("/dev/nvidia0", DENIED),
            ("/dev/nvidiactl", DENIED),
            ("/dev/null", "ok"),
        ];
        assert_login_devices(node, "device_dir", json!("/run/site/4242"), &none);
    });
}

#[test]
fn unknown_entry_refuses_whole_directory() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.write_root_file("/etc/cdi/nvidia.yaml", NVIDIA);
        node.write_root_file(
            "/run/site/4242/GPU-edfee158-11c1-52b8-0517-92f30e7fac88",
            "",
        );
        node.write_root_file("/run/site/4242/nvidia1", "");
        assert_register_fails(
            node,
            "device_dir",
            json!("/run/site/4242"),
            "/run/site/4242",
            "nvidia1",
        );
    });
}

/// Both an index, counted on the bus, and an address name the card with renderD129.
#[test]
fn index_and_pci_address_open_same_gpu() {
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
            assert_login_devices(node, "gpus", json!([name]), &first);
        });
    }
}

/// KFD lists the card at the higher address first, so that a plain number would mean two cards.
#[test]
fn number_opens_gpu_of_whoever_counts_and_refuses_without_a_word() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.add_amd_gpus();
        node.write_kfd_nodes([(0x83, 128), (0x03, 129)]);
        let devices = [
            ("/dev/dri/renderD129", DENIED),
            ("/dev/dri/renderD128", OPENS),
        ];
        assert_login_devices(node, "gpus", json!(["rocm:0"]), &devices);
        let meanings = "0000:03:00.0 by address, 0000:83:00.0 as rocm:0";
        assert_register_fails(node, "gpus", json!([0]), "GPU 0", meanings);
    });
}

#[test]
fn site_name_opens_all_of_its_devices_or_none() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.configure(
            "[devices]\naccel0 = /dev/nvidia0, /dev/nvidia1 r\npart = /dev/nvidia0, /dev/gone\n",
        );
        let allow = |name: &str| json!({ "DeviceAllow": [[name, "rw"]] });
        let own = [("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)];
        assert_login_devices(node, "options", allow("@accel0"), &own);
        let none = [("/dev/nvidia0", DENIED), ("/dev/nvidia1", DENIED)];
        let _part = node
            .job(ALICE, "4242")
            .with("options", allow("@part"))
            .start();
        node.sshd().ssh(ALICE, LOOK).ok().devices(&none);
        let job = node.job(ALICE, "77").unstamped().unrecorded().start();
        for name in ["@part", "@hcp"] {
            let register = [
                "register", "--id", "77", "--user", "alice", "--device", name,
            ];
            let line = [&register[..], &["--cgroup", job.cgroup.path()]].concat();
            node.job_adopt(&line).exits(2).says(name);
            assert!(!node.exists(&job.record_path()), "the record was written");
        }
    });
}

#[test]
fn missing_index_fails_registration() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.add_amd_gpus();
        assert_register_fails(node, "gpus", json!([0, 2]), "GPU 2", "GPU 2");
    });
}

#[test]
fn slurm_index_opens_its_device() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        let lines = "NodeName=gpu018 Name=gpu File=/dev/nvidia3\n\
                     NodeName=gpu[017,019] Name=gpu Type=h100 File=/dev/nvidia[2,1]\n";
        node.write_root_file("/etc/slurm/slurm.conf", "ClusterName=site\n");
        node.write_root_file("/etc/slurm/gres.conf", lines);
        assert_login_devices(node, "gres", json!({ "gpu": [1] }), &SECOND);
    });
}

#[test]
fn configured_nodename_selects_lines_of_gres_conf() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        let lines = "NodeName=gpu017 Name=gpu File=/dev/nvidia3\n\
                     NodeName=rack1-n7 Name=gpu File=/dev/nvidia1\n";
        node.write_root_file("/etc/slurm/slurm.conf", "ClusterName=site\n");
        node.write_root_file("/etc/slurm/gres.conf", lines);
        node.configure("nodename = rack1-n7\n");
        node.job_adopt(&["devices", "--gres", "gpu:0"])
            .ok()
            .says("/dev/nvidia1");
        assert_login_devices(node, "gres", json!({ "gpu": [0] }), &SECOND);
    });
}

/// The reloaded driver has another major, and the specification still has the old one.
#[test]
fn stale_specification_refuses_and_opens_no_device_of_other_driver() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        let numbered = NVIDIA.replace(
            "  - path: /dev/nvidia-uvm\n",
            "  - path: /dev/nvidia-uvm\n    major: 511\n    permissions: rwm\n    type: c\n",
        );
        assert!(numbered.contains("511"));
        node.write_root_file("/etc/cdi/nvidia.yaml", &numbered);
        assert_register_fails(
            node,
            "cdi",
            json!(["nvidia.com/gpu=1"]),
            "nvidia.com/gpu=1",
            "511",
        );
    });
}

#[test]
fn device_node_of_another_driver_fails_registration() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.sh("rm /dev/nvidia1; mknod -m 666 /dev/nvidia1 c 10 229")
            .ok();
        node.write_root_file("/etc/cdi/nvidia.yaml", NVIDIA);
        assert_register_fails(
            node,
            "cdi",
            json!(["nvidia.com/gpu=1"]),
            "nvidia.com/gpu=1",
            "/dev/nvidia1",
        );
    });
}

#[test]
fn specification_writable_by_others_fails_registration() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.write_root_file("/etc/cdi/nvidia.yaml", NVIDIA);
        node.set_mode("/etc/cdi/nvidia.yaml", 0o666);
        assert_register_fails(
            node,
            "cdi",
            json!(["nvidia.com/gpu=1"]),
            "nvidia.com/gpu=1",
            "nvidia.yaml",
        );
    });
}

#[test]
fn broken_specification_hides_no_other_kind() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.write_root_file("/etc/cdi/nvidia.yaml", NVIDIA);
        let broken = r#"{"cdiVersion":"0.5.0","kind":"site.org/fpga"}"#;
        node.write_root_file("/etc/cdi/beside.json", broken);
        node.write_root_file("/run/cdi/broken.json", broken);
        assert_login_devices(node, "cdi", json!(["nvidia.com/gpu=1"]), &SECOND);
    });
    // A broken file of the same kind might replace the definition.
    on_node(|node| {
        node.write_root_file(
            "/etc/cdi/broken.json",
            r#"{"cdiVersion":"0.5.0","kind":"site.org/fpga"}"#,
        );
        assert_register_fails(
            node,
            "cdi",
            json!(["site.org/fpga=0"]),
            "site.org/fpga=0",
            "broken.json",
        );
    });
}

/// Drivers that write a file for each claim do that. Root finds what logins find.
#[test]
fn specification_readable_only_by_root_is_logged_and_hides_only_its_kind() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.write_root_file("/etc/cdi/nvidia.yaml", NVIDIA);
        node.write_root_file("/run/cdi/site.org-fpga_7.json", "{}");
        node.set_mode("/run/cdi/site.org-fpga_7.json", 0o600);
        assert_login_devices(node, "cdi", json!(["nvidia.com/gpu=1"]), &SECOND);
        let fpga = node.job_adopt(&["devices", "site.org/fpga=0"]);
        fpga.exits(1)
            .says("/run/cdi/site.org-fpga_7.json")
            .says("may not read it: chmod 644");
        node.set_mode("/etc/cdi/nvidia.yaml", 0o600);
        let cause =
            "/etc/cdi/nvidia.yaml: job-adopt, as whom logins look, may not read it: chmod 644";
        node.job_adopt(&["devices", "nvidia.com/gpu=1"])
            .exits(1)
            .says(cause);
        let job = node.job(ALICE, "4243").unstamped().unrecorded().start();
        let register = [
            "register",
            "--id",
            "4243",
            "--user",
            "alice",
            "--cdi",
            "nvidia.com/gpu=1",
        ];
        let register = [&register[..], &["--cgroup", job.cgroup.path()]].concat();
        node.job_adopt(&register).exits(3).says(cause);
        assert_register_fails(
            node,
            "cdi",
            json!(["nvidia.com/gpu=1"]),
            "nvidia.com/gpu=1",
            cause,
        );
    });
}

/// Otherwise a mistake in the newer file would revive the older definition.
#[test]
fn broken_specification_revives_no_older_definition() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.write_root_file("/etc/cdi/nvidia.yaml", NVIDIA);
        node.write_root_file(
            "/run/cdi/nvidia.yaml",
            &NVIDIA.replace("deviceNodes", "devicenodes"),
        );
        let cause = "/run/cdi/nvidia.yaml";
        assert_register_fails(
            node,
            "cdi",
            json!(["nvidia.com/gpu=1"]),
            "nvidia.com/gpu=1",
            cause,
        );
    });
}

/// The job itself is confined from its start, not from the first login on.
#[test]
fn register_confines_job_to_named_devices() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.write_root_file("/etc/cdi/nvidia.yaml", NVIDIA);
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let register = [
            "register",
            "--id",
            "4242",
            "--user",
            "alice",
            "--cdi",
            "nvidia.com/gpu=1",
        ];
        node.job_adopt(&[&register[..], &["--cgroup", job.cgroup.path()]].concat())
            .ok();
        let devices = [("/dev/nvidia0", DENIED), ("/dev/nvidia1", OPENS)];
        node.probe_in(&job.cgroup).devices(&devices);
        node.sshd().ssh(ALICE, LOOK).ok().devices(&SECOND);
    });
}

/// Otherwise the job would run with every device of the node until an admin reads the log.
#[test]
fn register_and_run_refuse_unknown_device_name() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let register = ["register", "--id", "4242", "--user", "alice", "--gpu", "99"];
        let refused = node.job_adopt(&[&register[..], &["--cgroup", job.cgroup.path()]].concat());
        refused.exits(3).says("register job 4242: GPU 99: ");
        assert!(!node.exists(&job.record_path()), "the record was written");
        let run = [
            "run", "--user", "alice", "--policy", "strict", "--gpu", "99", "--",
        ];
        let run_refused = node.job_adopt(&[&run[..], &["touch", "/tmp/ran"]].concat());
        run_refused.exits(125).says("GPU 99: ");
        assert!(!node.exists("/tmp/ran"), "the command was run");
    });
}

/// After a boot `nvidia-uvm` is loaded by the first program that computes, and none of a job can: the first job would never
/// have CUDA.
#[test]
fn driver_that_is_not_loaded_yet_fails_registration_with_its_command() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.add_nvidia_gpus();
        node.write_root_file("/etc/cdi/nvidia.yaml", NVIDIA);
        node.write_root_file("/etc/slurm/slurm.conf", "ClusterName=site\n");
        let gres = "Name=gpu File=/dev/nvidia[0-3]\n";
        node.write_root_file("/etc/slurm/gres.conf", gres);
        let drivers = node.read("/run/devices");
        node.write("/run/devices", &drivers.replace("510 nvidia-uvm\n", ""));
        node.sh("rm /dev/nvidia-uvm /dev/nvidia-uvm-tools").ok();
        let command = "run nvidia-modprobe -u -c 0 (or modprobe nvidia-uvm)";
        let uuid = Node::uuid(1);
        for (key, value, name) in [
            (
                "gpus",
                json!(["nvidia:1"]),
                "/dev/nvidia-uvm and /dev/nvidia-uvm-tools",
            ),
            (
                "gpus",
                json!([uuid]),
                "/dev/nvidia-uvm and /dev/nvidia-uvm-tools",
            ),
            (
                "gres",
                json!({ "gpu": [1] }),
                "/dev/nvidia-uvm and /dev/nvidia-uvm-tools",
            ),
            ("cdi", json!(["nvidia.com/gpu=1"]), "nvidia.com/gpu=1"),
        ] {
            assert_register_fails(node, key, value, name, command);
        }
        node.job_adopt(&["devices", "--gpu", "nvidia:1"])
            .exits(1)
            .says(command);
        node.add_nvidia_driver(510);
        assert_login_devices(node, "gpus", json!(["nvidia:1"]), &SECOND);
    });
}

#[test]
fn configured_pattern_and_preset_open_devices() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.configure("always_allowed = @hpc, /dev/dri/renderD*\n");
        let open = [
            ("/dev/fuse", "ok"),
            ("/dev/dri/renderD128", OPENS),
            ("/dev/nvidia0", DENIED),
        ];
        assert_login_devices(node, "cdi", json!([]), &open);
    });
}

/// Root decides which devices a job has: no code even reads the user's variables.
#[test]
fn variable_of_user_opens_no_device() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.write_root_file("/etc/cdi/nvidia.yaml", NVIDIA);
        node.write_root_file(
            "/home/alice/.pam_environment",
            "NVIDIA_VISIBLE_DEVICES DEFAULT=all\n",
        );
        let _job = node
            .job(ALICE, "4242")
            .with("cdi", json!(["nvidia.com/gpu=1"]))
            .start();
        let look = format!("export NVIDIA_VISIBLE_DEVICES=all CUDA_VISIBLE_DEVICES=0; {LOOK}");
        node.sshd().ssh(ALICE, &look).ok().devices(&SECOND);
    });
}
