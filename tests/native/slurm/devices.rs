//! Slurm's device constraints hold for a login, and a login is refused if that cannot be proved.

use serde_json::json;

use super::environment::install_hooks;
use crate::support::{ALICE, LOOK, SlurmJob, on_slurm};

/// Returns the record that a prolog makes for a job which Slurm places.
fn job_record(job: &SlurmJob<'_>, options: serde_json::Value) -> String {
    json!({
        "version": 1, "id": job.id, "uid": job.owner.uid, "via": "slurm",
        "started": 1_795_201_200, "options": options,
    })
    .to_string()
}

#[test]
fn allowlist_on_cgroup_v1_refuses_login() {
    on_slurm(|slurm| {
        let node = slurm.node;
        let job = slurm.alloc(ALICE, 1);
        node.reporting("");
        let refused = || {
            node.log.clear();
            node.session_reporting("");
            node.session(ALICE).stays_outside();
            node.log.line("cgroup v1");
            node.reporting("");
            node.pam(ALICE).fails().says("[JA06]");
        };
        node.configure("slurm_devices = closed\n");
        refused();
        node.configure("");
        node.create_dir("/run/job-adopt/jobs/1001", 0o755);
        let path = format!("/run/job-adopt/jobs/1001/{}.json", job.id);
        let closed = json!({ "DevicePolicy": "closed", "DeviceAllow": [["/dev/nvidia0", "rw"]] });
        node.write(&path, &node.resolve_record(&job_record(&job, closed)));
        refused();
        node.write(&path, &job_record(&job, json!({ "DevicePolicy": "auto" })));
        node.pam(ALICE).ok().joins(&job);
    });
}

/// Slurm's own filter holds, whatever later releases add to the file.
#[test]
fn key_that_is_not_known_refuses_no_login() {
    on_slurm(|slurm| {
        let node = slurm.node;
        let job = slurm.alloc(ALICE, 1);
        let sshd = node.sshd();
        let gpus = sshd.ssh(ALICE, LOOK).ok().gpus();
        assert_eq!(gpus.len(), 1);
        node.sh("sed -i '/Name=gpu/s/$/ NewKey=1/' /etc/slurm/gres.conf && grep NewKey /etc/slurm/gres.conf")
            .ok();
        node.log.clear();
        assert_eq!(sshd.ssh(ALICE, LOOK).ok().gpus(), gpus);
        node.log.line("unknown key NewKey; Name=gpu is left out");
        node.sh("sed -i '1i NewKey=1 Name=gpu' /etc/slurm/gres.conf")
            .ok();
        assert_eq!(sshd.ssh(ALICE, LOOK).ok().gpus(), gpus);
        node.sh("sed -i '1d; s/ NewKey=1//' /etc/slurm/gres.conf")
            .ok();
        job.cancel();
        slurm.assert_nothing_left();
    });
}

#[test]
fn site_without_device_constraint_admits_without_containment() {
    on_slurm(|slurm| {
        let node = slurm.node;
        slurm.constrain("ConstrainCores=yes\n");
        slurm.restart_slurmd();
        let job = slurm.alloc(ALICE, 1);
        let sshd = node.sshd();
        let login = sshd.ssh(ALICE, LOOK).ok();
        assert_eq!(login.gpus().len(), 4, "{login}");
        node.log.line("containment=none");
        node.arguments("require_devices");
        node.pam(ALICE).fails().says("[JA06]");
        job.cancel();
        slurm.assert_nothing_left();
    });
}

/// Slurm was configured to constrain devices after the job had started, so its steps are not
/// constrained.
#[test]
fn job_without_required_constraint_refuses_login() {
    on_slurm(|slurm| {
        let node = slurm.node;
        slurm.constrain("ConstrainCores=yes\n");
        slurm.restart_slurmd();
        let job = slurm.alloc(ALICE, 1);
        slurm.constrain("ConstrainCores=yes\nConstrainDevices=yes\n");
        node.session_reporting("");
        node.session(ALICE).stays_outside();
        node.reporting("");
        node.pam(ALICE).fails().says("[JA06]");
        job.cancel();
        slurm.restart_slurmd();
        let next = slurm.alloc(ALICE, 1);
        node.pam(ALICE).ok().joins(&next);
    });
}

/// If a node has several GPU types, Slurm's own filter shows what an index means.
#[test]
fn index_in_list_of_prolog_is_gpu_that_slurm_allocated() {
    on_slurm(|slurm| {
        let node = slurm.node;
        install_hooks(slurm);
        node.sh("sed -i 's/^DEVICES=slurm$/DEVICES=lists/' /etc/slurm/prolog.sh")
            .ok();
        let lines = "Name=gpu Type=a File=/dev/nvidia0\nName=gpu Type=b File=/dev/nvidia1\n\
                     Name=gpu Type=a File=/dev/nvidia[2-3]\n";
        node.add_nvidia_driver(510);
        slurm.retype("gpu:b:1,gpu:a:3", lines);
        for (kind, gpu) in [
            ("b", "/dev/nvidia1"),
            ("a", "/dev/nvidia0"),
            ("a", "/dev/nvidia2"),
        ] {
            let job = slurm.alloc_as(ALICE, 0, &[&format!("--gres=gpu:{kind}:1")], node.name());
            let record = node.read(&format!(
                "/run/job-adopt/jobs/{}/{}.json",
                ALICE.uid, job.id
            ));
            let record: serde_json::Value = serde_json::from_str(&record).unwrap();
            let index = format!("gpu:{}", record["gres"]["gpu"][0]);
            assert_eq!(job.gpus(), [gpu], "{record}");
            node.run("job-adopt", &["devices", "--gres", &index])
                .ok()
                .says(gpu);
        }
    });
}

/// An older build noted neither numbers nor what Slurm calls the node, which the job's daemon says.
#[test]
fn record_of_older_build_is_registered_again_by_the_name_that_slurm_has() {
    on_slurm(|slurm| {
        let node = slurm.node;
        node.add_nvidia_driver(510);
        let job = slurm.alloc(ALICE, 1);
        let record = |id: &str| {
            format!(
                r#"{{"version":1,"id":"{id}","uid":{},"via":"slurm","options":{{"DevicePolicy":"closed"}},"gres":{{"gpu":[0]}}}}"#,
                ALICE.uid
            )
        };
        let path = |id: &str| format!("/run/job-adopt/jobs/{}/{id}.json", ALICE.uid);
        let ended = "999999";
        for id in [&*job.id, ended] {
            node.write_root_file(&path(id), &record(id));
        }
        node.pam(ALICE).fails().says("[JA09]");
        let again = node.job_adopt(&["register", "--again", "--all"]).ok();
        let expected = format!("job {}: 12 devices, from its next login on", job.id);
        let again = again.says(&expected);
        again.says(&format!("job {ended}: has ended"));
        let written = node.read(&path(&job.id));
        assert!(
            written.contains(&format!(r#""node_name":"{}""#, node.name())),
            "{written}"
        );
        // The numbers are fine now; on cgroup v1 no list holds.
        node.pam(ALICE).fails().says("[JA06]");
        job.cancel();
        slurm.assert_nothing_left();
    });
}

#[test]
fn require_devices_accepts_constraint_of_slurm() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        slurm.node.reporting("require_devices");
        slurm.node.pam(ALICE).ok().joins(&job);
        let none = slurm.alloc(ALICE, 0);
        slurm.node.pam(ALICE).ok().joins(&none);
        assert_eq!(slurm.node.sshd().ssh(ALICE, LOOK).ok().gpus().len(), 0);
    });
}

/// `job-adopt devices` asks the kernel in the cgroup of the step, whatever the version.
#[test]
fn reported_devices_are_those_of_the_step() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        let step = format!("{}/step_extern", job.path());
        let outcome = slurm
            .node
            .job_adopt(&["devices", "--json", "--cgroup", &step])
            .ok();
        let value: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(value["cgroup"], step, "{outcome}");
        let gpu = |device: &&serde_json::Value| {
            device["major"] == 195
                && device["minor"] != 255
                && device["allowed"].as_array().unwrap().contains(&"rw".into())
        };
        let opened: Vec<_> = value["devices"]
            .as_array()
            .unwrap()
            .iter()
            .filter(gpu)
            .collect();
        let names: Vec<&str> = opened
            .iter()
            .map(|device| device["node"].as_str().unwrap())
            .collect();
        assert_eq!(names, job.gpus());
        let table = slurm.node.job_adopt(&["devices", "--cgroup", &step]).ok();
        assert!(table.stdout.starts_with("NODE "), "{table}");
    });
}
