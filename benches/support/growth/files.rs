//! What grows in files: jobs, users, records, PAM lines and `slurm.conf`.

use std::fmt::Write as _;
use std::fs;

use super::{CHECK, Call, Field, Growth, LIST, LOGIN, STRAYS, on_field, probe};
use crate::support::ALICE;

/// First uid of further users, of whom each has four jobs.
const FIRST_UID: usize = 70_000;
const OWN_FOLDER: &str = "each user's records have a folder of their own";
const EACH_FOLDER: &str =
    "the folder of each user: an id is unique on the node, and notes of all become old";

/// Registers jobs of other users with empty cgroups, as their prologs do.
pub(super) fn jobs() {
    const JOBS: usize = 1_000;
    let each = "record, state, members, usage and limits of each";
    let probes = [
        probe(LOGIN, Growth::Flat(OWN_FOLDER)),
        probe(Call::Registration, Growth::Each(2.5, EACH_FOLDER)),
        probe(LIST, Growth::Each(125.0, each)),
        probe(STRAYS, Growth::Each(10.0, "the record of each")),
        probe(
            CHECK,
            Growth::Each(30.0, "record and cgroup of each, several times"),
        ),
    ];
    on_field(|field| {
        field.compare("jobs of other users", [1, JOBS], &probes, || {
            let top = field.node.cgroup().child("jobs").path().to_owned();
            let script = format!(
                "for job in $(seq {JOBS}); do
                     mkdir /sys/fs/cgroup{top}/other-$job
                     job-adopt register --id other-$job --uid $(({FIRST_UID} + job / 4)) \
                         --policy closed --cgroup {top}/other-$job || exit
                 done"
            );
            field.node.sh(&script).ok();
        });
    });
}

/// Adds accounts behind those of the system and in front of the users' of the node.
pub(super) fn users() {
    const USERS: usize = 10_000;
    const LIBRARY: &str = "the C library reads /etc/passwd up to the name, as it does for sshd";
    let calls = [LOGIN, Call::Registration, LIST, STRAYS, CHECK];
    let probes = calls.map(|call| probe(call, Growth::Each(0.2, LIBRARY)));
    on_field(|field| {
        field.compare("users of the node", [4, USERS], &probes, || {
            let mut passwd = String::new();
            let mut group = String::new();
            let mut shadow = String::new();
            for number in 0..USERS {
                let uid = FIRST_UID + number;
                writeln!(
                    passwd,
                    "user{number}:x:{uid}:{uid}::/home/user{number}:/bin/bash"
                )
                .unwrap();
                writeln!(group, "user{number}:x:{uid}:").unwrap();
                writeln!(shadow, "user{number}:!:20000:0:99999:7:::").unwrap();
            }
            for (file, more) in [("passwd", passwd), ("group", group), ("shadow", shadow)] {
                let path = format!("/etc/{file}");
                let text = field.node.read(&path);
                let at = text.find("alice:").unwrap();
                let (system, people) = text.split_at(at);
                field.node.write(&path, &format!("{system}{more}{people}"));
            }
        });
    });
}

/// Writes records of a user without a cgroup, as jobs leave them that were not withdrawn.
fn write_records(field: &Field<'_>, uid: usize, ids: std::ops::Range<usize>) {
    let folder = format!("/run/job-adopt/jobs/{uid}");
    field.node.create_dir(&folder, 0o755);
    for id in ids {
        let record = format!(
            r#"{{"version": 1, "id": "old-{id}", "uid": {uid}, "cgroup": "/gone/{id}", "options": {{"DevicePolicy": "closed"}}}}"#
        );
        fs::write(field.node.path(&format!("{folder}/old-{id}.json")), record).unwrap();
    }
}

pub(super) fn records() {
    const RECORDS: usize = 10_000;
    let each = "the record of each, and whether its cgroup exists";
    let probes = [
        probe(LOGIN, Growth::Flat(OWN_FOLDER)),
        probe(Call::Registration, Growth::Each(2.5, EACH_FOLDER)),
        probe(LIST, Growth::Each(18.0, each)),
        probe(STRAYS, Growth::Each(10.0, each)),
        probe(CHECK, Growth::Each(35.0, "each is a finding")),
    ];
    on_field(|field| {
        field.compare("records of other users", [1, RECORDS], &probes, || {
            for number in 0..RECORDS / 4 {
                write_records(field, FIRST_UID + number, number * 4..number * 4 + 4);
            }
        });
    });
}

pub(super) fn own_records() {
    const RECORDS: usize = 1_000;
    let floor = "opens, checks, reads and closes each, and looks for its cgroup";
    on_field(|field| {
        let probes = [probe(LOGIN, Growth::Each(5.5, floor))];
        field.compare("records of the user", [1, RECORDS], &probes, || {
            write_records(field, ALICE.uid as usize, 0..RECORDS);
        });
    });
}

/// Lets `sshd`'s service include files of ten lines.
pub(super) fn pam_lines() {
    const LINES: usize = 200;
    const LINES_OF_FILE: usize = 10;
    let floor = "libpam and the helper open and read each of 20 files";
    on_field(|field| {
        let probes = [probe(LOGIN, Growth::Each(1.0, floor))];
        field.compare("PAM lines, with includes", [5, LINES], &probes, || {
            let mut stack = String::new();
            for file in 0..LINES / LINES_OF_FILE {
                let group = ["auth", "account", "session"][file % 3];
                let line = format!("{group} optional pam_permit.so\n");
                let path = format!("/etc/pam.d/growth-{file}");
                field.node.write(&path, &line.repeat(LINES_OF_FILE));
                writeln!(stack, "{group} include growth-{file}").unwrap();
            }
            let ours = field.node.read("/etc/pam.d/sshd");
            field.node.write_stack(&format!("{stack}{ours}"));
        });
    });
}

/// Describes the nodes of a cluster in lines of their own, on a node on which no job of Slurm's runs.
pub(super) fn slurm_conf() {
    const NODES: usize = 20_000;
    let floor = "the file is read once, and SlurmdSpoolDir may be its last line";
    on_field(|field| {
        let node = field.node;
        let start = "ClusterName=growth\nSlurmctldHost=head\nSlurmdSpoolDir=/var/spool/slurmd\n";
        node.create_dir("/var/spool/slurmd", 0o755);
        node.create_dir("/etc/slurm", 0o755);
        let write = |nodes: usize| {
            let mut conf = start.to_owned();
            for number in 0..nodes {
                writeln!(
                    conf,
                    "NodeName=node{number:05} NodeAddr=10.{}.{}.{} CPUs=128 RealMemory=512000 Gres=gpu:8 State=UNKNOWN",
                    number >> 16,
                    number >> 8 & 255,
                    number & 255
                )
                .unwrap();
            }
            node.write_root_file("/etc/slurm/slurm.conf", &conf);
        };
        write(1);
        let probes = [
            probe(LOGIN, Growth::Each(0.1, floor)),
            probe(
                Call::Registration,
                Growth::Flat("only a name of gres.conf needs it"),
            ),
            probe(LIST, Growth::Each(0.1, floor)),
            probe(CHECK, Growth::Each(0.1, floor)),
        ];
        field.compare("nodes in slurm.conf", [1, NODES], &probes, || write(NODES));
    });
}
