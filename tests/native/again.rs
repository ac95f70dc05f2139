//! `register --again`: the devices of a registered job, resolved anew.

use serde_json::{Value, json};

use crate::support::{ALICE, BOB, DENIED, Job, Node, OPENS, Outcome, on_node};

const LOOK: &str = "probe /dev/nvidia0 /dev/nvidia1 /dev/nvidia2 /dev/null";
/// Answers of a job that has `/dev/nvidia1`.
const SECOND: [(&str, &str); 4] = [
    ("/dev/nvidia0", DENIED),
    ("/dev/nvidia1", OPENS),
    ("/dev/nvidia2", DENIED),
    ("/dev/null", "ok"),
];
/// Answers of a job that has `/dev/nvidia2`.
const THIRD: [(&str, &str); 4] = [
    ("/dev/nvidia0", DENIED),
    ("/dev/nvidia1", DENIED),
    ("/dev/nvidia2", OPENS),
    ("/dev/null", "ok"),
];

/// Lets `site.org/gpu=mine` mean this device.
fn specify(node: &Node, device: &str) {
    node.add_nvidia_driver(510);
    let spec = json!({
        "cdiVersion": "0.5.0", "kind": "site.org/gpu",
        "devices": [{ "name": "mine", "containerEdits": { "deviceNodes": [{ "path": device }] } }],
    });
    node.write_root_file("/etc/cdi/site.json", &spec.to_string());
}

/// Registers a job of `site.org/gpu=mine`.
fn register<'a>(node: &'a Node, id: &str) -> Job<'a> {
    let job = node.job(ALICE, id).with("options", json!({}));
    job.with("cdi", json!(["site.org/gpu=mine"])).register()
}

fn register_again(node: &Node, arguments: &[&str]) -> Outcome {
    node.job_adopt(&[&["register", "--again"], arguments].concat())
}

/// Returns the job's record without its numbers, and these.
fn record(job: &Job<'_>) -> (Value, Value) {
    let mut record: Value = serde_json::from_str(&job.node().read(&job.record_path())).unwrap();
    let numbers = record["resolved"].take();
    (record, numbers)
}

/// Returns the only filter of the job's cgroup.
fn filter(job: &Job<'_>) -> u32 {
    let filters = job.cgroup.filters();
    assert!(filters.len() == 1 && filters[0].is_ours(), "{filters:?}");
    filters[0].id
}

#[test]
fn changed_specification_changes_job_when_it_is_registered_again() {
    on_node(|node| {
        specify(node, "/dev/nvidia1");
        let job = register(node, "4242");
        let (named, numbers) = record(&job);
        let (marks, old_filter) = (job.marks(), filter(&job));
        let sshd = node.sshd();
        sshd.ssh(ALICE, LOOK).ok().devices(&SECOND);

        specify(node, "/dev/nvidia2");
        node.probe_in(&job.cgroup).devices(&SECOND[..2]);
        sshd.ssh(ALICE, LOOK).ok().devices(&SECOND);
        assert_eq!(record(&job), (named.clone(), numbers.clone()));

        let again = register_again(node, &["4242"]).ok();
        assert_eq!(again.stdout, "job 4242: 9 devices\n");
        node.probe_in(&job.cgroup).devices(&THIRD[..3]);
        sshd.ssh(ALICE, LOOK).ok().devices(&THIRD);
        assert_ne!(filter(&job), old_filter);
        assert_eq!(job.marks(), marks);
        let (named_again, numbers_again) = record(&job);
        assert_eq!(named_again, named);
        assert_ne!(numbers_again, numbers);

        // Once more changes nothing.
        let new_filter = filter(&job);
        register_again(node, &["--all"])
            .ok()
            .says("job 4242: 9 devices");
        assert_eq!(
            (filter(&job), record(&job)),
            (new_filter, (named, numbers_again))
        );
    });
}

#[test]
fn name_that_does_not_resolve_any_more_leaves_filter_and_record() {
    on_node(|node| {
        specify(node, "/dev/nvidia1");
        let job = register(node, "4242");
        let before = (record(&job), filter(&job), job.marks());
        node.write("/etc/cdi/site.json", "{");
        register_again(node, &["4242"])
            .exits(3)
            .says("job-adopt: register job 4242: site.org/gpu=mine: ")
            .says("/etc/cdi/site.json");
        assert_eq!((record(&job), filter(&job), job.marks()), before);
        node.sshd().ssh(ALICE, LOOK).ok().devices(&SECOND);
    });
}

/// The filter is swapped first: whoever logs in meanwhile gets no device that the job lost.
#[test]
fn record_that_cannot_be_written_is_reported_behind_the_swapped_filter() {
    on_node(|node| {
        specify(node, "/dev/nvidia1");
        let job = register(node, "4242");
        let before = (record(&job), job.marks());
        specify(node, "/dev/nvidia2");
        node.sh(
            "cd /run/job-adopt/jobs && mount --bind 1001 1001 && mount -o remount,bind,ro 1001",
        )
        .ok();
        register_again(node, &["4242"])
            .exits(3)
            .says("register job 4242: ")
            .says("its filter has the new list of devices, and its record the old one: run this again");
        node.probe_in(&job.cgroup).devices(&THIRD[..3]);
        assert_eq!((record(&job), job.marks()), before);
        node.sh("umount /run/job-adopt/jobs/1001").ok();
        register_again(node, &["4242"]).ok();
        node.sshd().ssh(ALICE, LOOK).ok().devices(&THIRD);
    });
}

#[test]
fn all_jobs_but_the_faulty_one_are_registered_again() {
    on_node(|node| {
        specify(node, "/dev/nvidia1");
        let first = register(node, "1");
        let gone = node.job(BOB, "2").with("cdi", json!(["site.org/gpu=mine"]));
        let gone = gone.register();
        gone.finish();
        let free = node.job(BOB, "3");
        let _free = free
            .with("options", json!({ "DevicePolicy": "auto" }))
            .register();
        let ending = register(node, "4");
        node.sh("cd /run/job-adopt/jobs/1001 && mv 4.json .4.ending")
            .ok();
        let last = register(node, "5");
        node.write("/run/job-adopt/jobs/1002/6.json", "{");
        specify(node, "/dev/nvidia2");
        let ending_filter = filter(&ending);
        let all = register_again(node, &["--all"]).exits(3);
        let all = all.says("register job 6: ");
        assert_eq!(
            all.stdout,
            "job 1: 9 devices\njob 2: has ended\njob 3: asks for no list of devices\njob 5: 9 devices\n"
        );
        for job in [&first, &last] {
            node.probe_in(&job.cgroup).devices(&THIRD[..3]);
        }
        assert_eq!(filter(&ending), ending_filter);
        register_again(node, &["4"])
            .exits(3)
            .says("register job 4: it is ending");
        register_again(node, &["2"])
            .exits(3)
            .says("register job 2: it has ended");
        register_again(node, &["7"])
            .exits(3)
            .says("register job 7: it is not registered");
        // A job without an epilog is no failure of all.
        node.sh("rm /run/job-adopt/jobs/1002/6.json").ok();
        register_again(node, &["--all"]).ok();
        node.sh("job-adopt register --again --all >/dev/full")
            .exits(3);
    });
}

/// An older build wrote no numbers, and a login looked names up.
#[test]
fn record_of_older_build_is_valid_after_it_is_registered_again() {
    on_node(|node| {
        specify(node, "/dev/nvidia1");
        let job = register(node, "4242");
        let (mut named, _) = record(&job);
        named.as_object_mut().unwrap().remove("resolved");
        node.write(&job.record_path(), &named.to_string());
        node.account(ALICE).fails().says("[JA09]");
        node.log
            .line("its record has no device numbers: run job-adopt register --again 4242");
        register_again(node, &["4242"]).ok();
        node.sshd().ssh(ALICE, LOOK).ok().devices(&SECOND);
        // One that asks for no list has none to lose.
        named["options"] = json!({ "DevicePolicy": "auto" });
        named.as_object_mut().unwrap().remove("cdi");
        node.write(&job.record_path(), &named.to_string());
        node.session(ALICE).ok();
    });
}

/// The kernel gives the majors of drivers that load anew in another order after a boot.
#[test]
fn numbers_of_another_boot_or_driver_refuse_until_job_is_registered_again() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        let job = node
            .job(ALICE, "4242")
            .devices(&["/dev/nvidia-uvm"])
            .register();
        let look = "probe /dev/nvidia-uvm";
        let sshd = node.sshd();
        sshd.ssh(ALICE, look)
            .ok()
            .devices(&[("/dev/nvidia-uvm", OPENS)]);
        node.add_nvidia_driver(511);
        sshd.ssh(ALICE, look).fails().says("[JA09]");
        let driver = "job 4242: its device major c:510 was that of nvidia-uvm and is no driver's now: \
                      run job-adopt register --again 4242";
        node.log.line(driver);
        node.job_adopt(&["list", "--json"]).says(driver);
        register_again(node, &["4242"]).ok();
        sshd.ssh(ALICE, look)
            .ok()
            .devices(&[("/dev/nvidia-uvm", OPENS)]);
        // A user's open of its device may load another driver, which gets numbers of its own.
        let drivers = node.read("/proc/devices");
        let with_other = drivers.replacen(" nvidia-uvm\n", " nvidia-uvm\n511 other\n", 1);
        assert_ne!(with_other, drivers);
        node.write("/proc/devices", &with_other);
        sshd.ssh(ALICE, look)
            .ok()
            .devices(&[("/dev/nvidia-uvm", OPENS)]);
        node.write("/proc/devices", &drivers);

        let record = node.read(&job.record_path());
        let boot = node.read("/proc/sys/kernel/random/boot_id");
        let other = record.replace(boot.trim_end(), "6fae3fb0-4ba1-4be2-9d33-2a3d2c0ff1a1");
        assert_ne!(other, record);
        node.write(&job.record_path(), &other);
        sshd.ssh(ALICE, look).fails().says("[JA09]");
        node.log.line(
            "its devices were resolved before the node's last boot: run job-adopt register --again 4242",
        );
        register_again(node, &["4242"]).ok();
        assert_eq!(node.read(&job.record_path()), record);
    });
}

#[test]
fn job_whose_cgroup_lost_its_stamp_is_not_registered_again() {
    on_node(|node| {
        specify(node, "/dev/nvidia1");
        let job = register(node, "4242");
        let before = (record(&job), filter(&job));
        specify(node, "/dev/nvidia2");
        // A scheduler has given it to another job.
        job.stamp(&format!("{}:77", BOB.uid));
        register_again(node, &["4242"])
            .exits(3)
            .says("register job 4242: it has ended");
        let all = register_again(node, &["--all"]).ok();
        assert_eq!(all.stdout, "job 4242: has ended\n");
        job.unstamp();
        for arguments in [&["4242"], &["--all"]] {
            register_again(node, arguments)
                .exits(3)
                .says("has no stamp of this job; if it runs, register it with all its options");
        }
        assert_eq!((record(&job), filter(&job)), before);
    });
}

#[test]
fn only_root_registers_again_and_with_no_other_option() {
    on_node(|node| {
        specify(node, "/dev/nvidia1");
        let job = register(node, "4242");
        let before = (record(&job), filter(&job));
        specify(node, "/dev/nvidia2");
        node.sh(
            "exec setpriv --reuid 1001 --regid 1001 --clear-groups job-adopt register --again 4242",
        )
        .exits(3)
        .says("root");
        for wrong in [
            &["--again"][..],
            &["--all"],
            &["--again", "4242", "--all"],
            &["--again", "4242", "--device", "/dev/nvidia0"],
            &["--again", "4242", "--memory", "1G"],
            &["--again", "4242", "--id", "4242"],
            &["--again", "a/b"],
        ] {
            node.job_adopt(&[&["register"], wrong].concat()).exits(2);
        }
        assert_eq!((record(&job), filter(&job)), before);
    });
}

/// Numbers that nobody resolved here would open any device.
#[test]
fn numbers_in_what_register_is_given_are_refused() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let record = node.read(&job.record_path());
        assert!(record.contains("\"resolved\""), "{record}");
        node.sh(&format!("rm {}", job.record_path())).ok();
        job.unstamp();
        node.register(&record)
            .exits(2)
            .says("key resolved is what register itself writes; leave it out");
        assert!(!node.exists(&job.record_path()));
        assert_eq!(
            (job.marks(), job.cgroup.filters().len()),
            (String::new(), 0)
        );
    });
}

#[test]
fn record_that_does_not_fit_with_its_numbers_is_refused_before_the_stamp() {
    const RECORD_BYTES_MAX: usize = 64 * 1024;
    /// Maximum bytes of a text in a record.
    const TEXT_BYTES_MAX: usize = 4096;
    /// Bytes of a record's other keys; the numbers of the standard devices take more.
    const OTHER_BYTES: usize = 220;
    on_node(|node| {
        let mut left = RECORD_BYTES_MAX - OTHER_BYTES;
        let mut allow = Vec::new();
        while left > 100 {
            let entry = json!([
                format!("/dev/{:0>1$}", 0, left.min(TEXT_BYTES_MAX) - 20),
                "rw"
            ]);
            left -= entry.to_string().len() + 1;
            allow.push(entry);
        }
        let options = json!({ "DevicePolicy": "closed", "DeviceAllow": allow });
        let (job, outcome) = node
            .job(ALICE, "4242")
            .with("options", options)
            .try_register();
        outcome.exits(2).says("65536 fit");
        assert!(!node.exists(&job.record_path()));
        assert_eq!(
            (job.marks(), job.cgroup.filters().len()),
            (String::new(), 0)
        );

        let majors: String = (0..1025).map(|major| format!("{major} same\n")).collect();
        node.write("/run/devices", &format!("Block devices:\n{majors}"));
        node.sh("mount --bind /run/devices /proc/devices").ok();
        let (crowded, refused) = node
            .job(ALICE, "77")
            .devices(&["block-same"])
            .try_register();
        refused
            .exits(2)
            .says("register job 77: the job's devices resolve to more than 1024 entries");
        assert!(!node.exists(&crowded.record_path()));
        assert_eq!(
            (crowded.marks(), crowded.cgroup.filters().len()),
            (String::new(), 0)
        );
    });
}

#[test]
fn check_and_devices_name_jobs_whose_names_mean_other_devices_today() {
    on_node(|node| {
        specify(node, "/dev/nvidia1");
        let _job = register(node, "4242");
        let keeps = "keeps the devices of its start";
        let command = "run: job-adopt register --again 4242";
        node.job_adopt(&["check"]).omits(keeps).omits(command);
        node.job_adopt(&["devices", "--job", "4242"])
            .ok()
            .omits("register --again");
        specify(node, "/dev/nvidia2");
        let changed = "its names mean c:195:2:rw in place of c:195:1:rw today";
        node.job_adopt(&["check"])
            .says(&format!("job 4242 of alice {keeps}: {changed}"))
            .says(command);
        let shown = node.job_adopt(&["devices", "--job", "4242"]).ok();
        let lists = shown
            .stderr
            .lines()
            .find(|line| line.contains("job 4242 has "));
        let (recorded, today) = lists.unwrap().split_once("; its names come to ").unwrap();
        assert!(
            recorded.contains(" c:195:1:rw") && today.contains(" c:195:2:rw"),
            "{shown}"
        );
        assert!(
            shown.stderr.contains("run job-adopt register --again 4242"),
            "{shown}"
        );
        register_again(node, &["4242"]).ok();
        node.job_adopt(&["check"]).omits(keeps).omits(command);
    });
}

#[test]
fn check_names_jobs_whose_numbers_refuse_logins() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        let devices = node.job(ALICE, "4242").devices(&["/dev/nvidia-uvm"]);
        let _job = devices.register();
        node.add_nvidia_driver(511);
        let refused =
            "makes logins of alice to job 4242 fail (JA09): job 4242: its device major c:510";
        let command = "run: job-adopt register --again 4242";
        node.job_adopt(&["check"])
            .exits(1)
            .says(refused)
            .says(command);
        node.job_adopt(&["devices", "--job", "4242"])
            .ok()
            .says("logins are refused (JA09): job 4242: its device major c:510");
        register_again(node, &["4242"]).ok();
        node.job_adopt(&["check"]).omits(refused).omits(command);
    });
}

/// Slurm may call a node otherwise than its host, and the lines of the other node would count.
#[test]
fn name_of_node_selects_lines_of_gres_conf_and_is_kept() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.write_root_file("/etc/slurm/slurm.conf", "ClusterName=site\n");
        let lines =
            "NodeName=gpu017 Name=gpu File=/dev/nvidia0\nNodeName=n7 Name=gpu File=/dev/nvidia1\n";
        node.write_root_file("/etc/slurm/gres.conf", lines);
        let by_slurm = [
            "register", "--id", "7", "--user", "alice", "--via", "slurm", "--gres", "gpu:0",
        ];
        node.job_adopt(&by_slurm).exits(2).says(
            "register job 7: gres of a Slurm job needs what Slurm calls this node: give --node",
        );
        let path = "/run/job-adopt/jobs/1001/7.json";
        assert!(!node.exists(path));
        node.job_adopt(&[&by_slurm[..], &["--node", "n7"]].concat())
            .ok();
        let rules = || {
            let record: Value = serde_json::from_str(&node.read(path)).unwrap();
            assert_eq!(record["resolved"]["node_name"], "n7", "{record}");
            record["resolved"]["rules"].to_string()
        };
        assert!(rules().contains("c:195:1:rw") && !rules().contains("c:195:0:rw"));
        // The name counts again, also where the lines of the host's name would be found.
        let kept = rules();
        register_again(node, &["7"]).ok();
        assert_eq!(rules(), kept);
        node.write("/etc/slurm/gres.conf", &lines.replace("nvidia1", "nvidia2"));
        register_again(node, &["--all"]).ok();
        assert!(rules().contains("c:195:2:rw"));
        node.job_adopt(&["check"]).omits("register --again");

        // A record on standard input has no other options, and the configuration may have the name.
        let record = json!({
            "version": 1, "id": "7", "uid": ALICE.uid, "via": "slurm", "gres": { "gpu": [0] },
        });
        node.register(&record.to_string())
            .exits(2)
            .says("give --node");
        node.write("/tmp/record", &record.to_string());
        node.sh("exec job-adopt register --node n7 </tmp/record")
            .ok();
        node.configure("nodename = n7\n");
        node.register(&record.to_string()).ok();
        assert!(rules().contains("c:195:2:rw"));
    });
}
