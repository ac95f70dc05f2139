//! What grows in devices: specifications of CDI, GPUs, MIG instances and rules.

use std::fs;

use serde_json::{Value, json};

use super::{Call, Field, Growth, LOGIN, on_field, on_field_with, probe};
use crate::support::{ALICE, Mount, Node};

const GPUS: u32 = 16;

/// Writes specifications of claims, as their drivers leave them behind.
fn write_claims(field: &Field<'_>, numbers: std::ops::Range<usize>) {
    field.node.create_dir("/run/cdi", 0o755);
    for number in numbers {
        let text = format!(
            "---\ncdiVersion: 0.5.0\nkind: k8s.gpu.nvidia.com/claim\ndevices:\n- name: claim-{number}\n  \
             containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia2\n"
        );
        let path = format!("/run/cdi/k8s.gpu.nvidia.com-claim_{number}.yaml");
        fs::write(field.node.path(&path), text).unwrap();
    }
}

/// A job whose devices are named without CDI needs none of its files.
pub(super) fn specifications() {
    const FILES: usize = 10_000;
    on_field(|field| {
        let floor = "no device of the job is named by CDI";
        let calls = [LOGIN, Call::Registration];
        let probes = calls.map(|call| probe(call, Growth::Flat(floor)));
        field.compare("CDI files, job without CDI", [1, FILES], &probes, || {
            write_claims(field, 0..FILES);
        });
    });
}

/// Beyond 1,024 files a login by CDI is refused (JA10) before one is opened: `tests/native/cost.rs`.
pub(super) fn specifications_of_job() {
    const FILES: usize = 1_000;
    on_field(|field| {
        field.node.add_nvidia_driver(510);
        let device = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: \"1\"\n  \
                      containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia1\n";
        field.node.write_root_file("/etc/cdi/nvidia.yaml", device);
        record(field, "cdi", &json!(["nvidia.com/gpu=1"]));
        let floor = "any file may replace a device: each is opened, read and closed, not parsed";
        let probes = [probe(LOGIN, Growth::Each(4.5, floor))];
        field.compare("CDI files, job with CDI", [1, FILES], &probes, || {
            write_claims(field, 0..FILES);
        });
    });
}

/// Replaces the devices in the record of alice's job.
fn record(field: &Field<'_>, key: &str, devices: &Value) {
    let record = json!({
        "version": 1, "id": field.job.id, "uid": ALICE.uid, "cgroup": field.job.cgroup.path(),
        "options": { "DevicePolicy": "closed" }, key: devices,
    });
    field.job.record(&record.to_string());
}

pub(super) fn gpus() {
    let floor = "its files and its node, and its node once more at the end";
    on_field(|field| {
        field.node.add_mig_gpus(GPUS);
        let names = |count| (0..count).map(|gpu| json!(Node::mig_parent(gpu))).collect();
        record(field, "gpus", &names(1));
        let probes = [probe(LOGIN, Growth::Each(6.0, floor))];
        field.compare("GPUs of the job", [1, GPUS as usize], &probes, || {
            record(field, "gpus", &names(GPUS));
        });
    });
}

pub(super) fn slices() {
    let floor = "two files of the driver and two nodes for each";
    on_field(|field| {
        let node = field.node;
        node.add_mig_gpus(GPUS);
        let instances = node.mig_instances(GPUS);
        record(field, "gpus", &json!(instances[..1]));
        let probes = [probe(LOGIN, Growth::Each(18.0, floor))];
        let range = [1, instances.len()];
        field.compare("MIG instances of the job", range, &probes, || {
            record(field, "gpus", &json!(instances));
        });
    });
}

/// Loop devices, since the kernel has no other driver everywhere for so many numbers.
pub(super) fn rules() {
    const RULES: usize = 1_000;
    let floor = "the node of each is looked at";
    on_field_with(Mount::Unified, &[], |field| {
        let script = format!(
            "for minor in $(seq 0 {}); do
                 [ -e /dev/loop$minor ] || mknod -m 666 /dev/loop$minor b 7 $minor
             done",
            RULES * 2
        );
        field.node.sh(&script).ok();
        let options = |count: usize| {
            let rules: Vec<Value> = (0..count)
                .map(|rule| json!([format!("/dev/loop{}", rule * 2), "rw"]))
                .collect();
            json!({ "DevicePolicy": "closed", "DeviceAllow": rules })
        };
        record(field, "options", &options(1));
        let probes = [probe(LOGIN, Growth::Each(1.5, floor))];
        field.compare("device rules of the job", [1, RULES], &probes, || {
            record(field, "options", &options(RULES));
        });
    });
}
