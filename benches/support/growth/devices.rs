//! What grows in devices: specifications of CDI, GPUs, MIG instances and rules.

use std::fs;

use serde_json::{Value, json};

use super::{Call, Field, Growth, LOGIN, on_field, on_field_with, probe};
use crate::support::ALICE;

/// First GPU instance of a GPU: a driver numbers them from 1.
const FIRST_INSTANCE: usize = 1;
const INSTANCES_OF_GPU: usize = 7;
const GPUS: usize = 16;

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
        let probes = [probe(LOGIN, Growth::Each(6.0, floor))];
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

fn uuid(gpu: usize) -> String {
    format!("GPU-edfee158-11c1-52b8-0517-92f30e7fac{gpu:02x}")
}

/// Adds GPUs of NVIDIA's, with their nodes, to the bus and the driver, each split into MIG instances.
fn add_gpus(field: &Field<'_>) {
    let node = field.node;
    node.add_nvidia_driver(510);
    let script = format!(
        "set -e
         mount -t tmpfs -o mode=0755 tmpfs /proc/driver
         mount -t tmpfs -o mode=0755 tmpfs /sys/bus/pci/devices
         mkdir -p /run/nvidia /dev/nvidia-caps
         for gpu in $(seq 0 {}); do
             [ -e /dev/nvidia$gpu ] || mknod -m 666 /dev/nvidia$gpu c 195 $gpu
         done",
        GPUS - 1
    );
    node.sh(&script).ok();
    for gpu in 0..GPUS {
        let address = format!("0000:{:02x}:00.0", 0x10 + gpu);
        let function = format!("/sys/bus/pci/devices/{address}");
        node.create_dir(&function, 0o755);
        node.sh(&format!("ln -s /run/nvidia {function}/driver"))
            .ok();
        node.write_root_file(
            &format!("/proc/driver/nvidia/gpus/{address}/information"),
            &format!("GPU UUID: \t {}\nDevice Minor: \t {gpu}\n", uuid(gpu)),
        );
        for instance in 0..INSTANCES_OF_GPU {
            let minor = 3 + (gpu * INSTANCES_OF_GPU + instance) * 2;
            let gi = FIRST_INSTANCE + instance;
            let folder = format!("/proc/driver/nvidia/capabilities/gpu{gpu}/mig/gi{gi}");
            for (path, minor) in [
                (format!("{folder}/access"), minor),
                (format!("{folder}/ci0/access"), minor + 1),
            ] {
                let text =
                    format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
                node.write_root_file(&path, &text);
            }
        }
    }
    let nodes = format!(
        "for minor in $(seq 3 {}); do mknod -m 444 /dev/nvidia-caps/nvidia-cap$minor c 235 $minor; done",
        2 + GPUS * INSTANCES_OF_GPU * 2
    );
    node.sh(&nodes).ok();
}

pub(super) fn gpus() {
    let floor = "the node of each is looked at in both phases";
    on_field(|field| {
        add_gpus(field);
        let name = |gpu| json!(uuid(gpu));
        record(field, "gpus", &(0..1).map(name).collect());
        let probes = [probe(LOGIN, Growth::Each(10.0, floor))];
        field.compare("GPUs of the job", [1, GPUS], &probes, || {
            record(field, "gpus", &(0..GPUS).map(name).collect());
        });
    });
}

pub(super) fn slices() {
    let floor = "two files of the driver and their two nodes for each";
    on_field(|field| {
        add_gpus(field);
        let name = |number: usize| {
            let gpu = uuid(number / INSTANCES_OF_GPU);
            json!(format!(
                "MIG-{gpu}/{}/0",
                FIRST_INSTANCE + number % INSTANCES_OF_GPU
            ))
        };
        record(field, "gpus", &(0..1).map(name).collect());
        let probes = [probe(LOGIN, Growth::Each(12.0, floor))];
        let count = GPUS * INSTANCES_OF_GPU;
        field.compare("MIG instances of the job", [1, count], &probes, || {
            record(field, "gpus", &(0..count).map(name).collect());
        });
    });
}

/// Loop devices, since the kernel has no other driver everywhere for so many numbers.
pub(super) fn rules() {
    const RULES: usize = 1_000;
    let floor = "the node of each is looked at";
    on_field_with(&[], |field| {
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
        let probes = [probe(LOGIN, Growth::Each(4.0, floor))];
        field.compare("device rules of the job", [1, RULES], &probes, || {
            record(field, "options", &options(RULES));
        });
    });
}
