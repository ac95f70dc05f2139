//! Logins to Slurm jobs.

use super::*;

#[test]
fn slurm_job_inherits_the_filter_and_its_gpus_are_probed() {
    let mut bench = NodeBench::new();
    bench.configure_slurm();
    bench.daemons.running(&bench.socket(7), 5);
    bench.daemons.running(&bench.socket(8), 6);
    let plan = bench.plan();
    assert_eq!((plan.job.as_str(), plan.rule), ("7", ChoiceRule::OnlyJob));
    let spool = bench
        .scratch
        .path()
        .join("spool")
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(
        plan.placement,
        Placement::Extern {
            spool,
            node: "gpu017".parse().unwrap()
        }
    );
    assert_eq!(plan.containment, Containment::Inherit);
    let probes: Vec<_> = plan.probes.iter().map(ToString::to_string).collect();
    assert_eq!(probes.first().unwrap(), "c:195:0:rw /dev/nvidia0");
    assert_eq!((probes.len(), plan.gpus), (4, 0));
    assert_eq!(bench.ask().hint, "squeue --me");
    bench.configure("hint = qstat\n");
    assert_eq!(bench.ask().hint, "qstat");
    bench.daemons.running(&bench.socket(9), 5);
    bench.request.several = SeveralJobsPolicy::Deny;
    assert_eq!(bench.refusal().jobs.len(), 2);
    let id = bench.refusal().jobs.first().unwrap().clone();
    assert_eq!(
        bench.ask().hint,
        format!("srun --jobid={id} --overlap job-adopt use {id}")
    );
}

#[test]
fn no_filter_is_inherited_unless_slurm_constrains_devices() {
    let bench = NodeBench::new();
    bench.configure_slurm();
    bench.daemons.running(&bench.socket(7), 5);
    bench
        .scratch
        .file("etc/slurm/gres.conf", "Name=gpu Count=4\n");
    assert_eq!(bench.plan().containment, Containment::None);
    bench.configure_slurm();
    bench
        .scratch
        .file("etc/slurm/cgroup.conf", "ConstrainDevices=no\n");
    let plan = bench.plan();
    assert_eq!((plan.containment, plan.probes), (Containment::None, vec![]));
    bench.configure("slurm_devices = closed\n");
    assert!(matches!(bench.plan().containment, Containment::Enforce(_)));
}

#[test]
fn closed_devices_are_the_list_of_all_slurm_devices() {
    let bench = NodeBench::new();
    bench.configure_slurm();
    bench.scratch.file("dev/null", "c 1:3");
    bench.daemons.running(&bench.socket(7), 5);
    bench.configure("slurm_devices = closed\nalways_allowed = char-misc r\n");
    let plan = bench.plan();
    let Containment::InheritAndEnforce(list) = plan.containment else {
        panic!("{:?}", plan.containment)
    };
    for rule in [
        "c:1:3:rwm",
        "c:10:-1:r",
        "c:195:0:rw",
        "c:195:3:rw",
        "c:195:255:rw",
    ] {
        assert!(
            list.rules().contains(&rule.parse().unwrap()),
            "{rule} {list:?}"
        );
    }
    assert_eq!((plan.probes.len(), plan.gpus), (4, 0));
    std::fs::remove_file(bench.scratch.path().join("dev/nvidia3")).unwrap();
    let warnings = bench.ask().warnings;
    assert!(
        warnings.iter().any(|text| text.contains("/dev/nvidia3")),
        "{warnings:?}"
    );
}

/// The user has a running job, and it is not the user's fault that no login can join it.
#[test]
fn job_without_its_extern_daemon_is_no_fault_of_the_user() {
    let bench = NodeBench::new();
    bench.configure_slurm();
    drop(std::os::unix::net::UnixListener::bind(bench.socket(7)).unwrap());
    assert_eq!(bench.refusal().reason, Reason::NoJob);
    bench
        .daemons
        .running(&bench.socket(7).with_extension("0"), 5);
    let refusal = bench.refusal();
    assert_eq!(refusal.reason, Reason::AdoptionFailed);
    assert_eq!(refusal.jobs, ["7".parse().unwrap()]);
    bench.daemons.running(&bench.socket(8), 5);
    assert_eq!(bench.plan().job.as_str(), "8");
}

/// Slurm's own filter keeps the devices from other jobs, whatever its file has that is not known here. The daemons of the
/// bench are of Slurm 22.05.
#[test]
fn unknown_key_in_gres_conf_refuses_no_login_that_slurm_confines() {
    let gres = "Name=nic File=/dev/nvidia3\nName=gpu File=/dev/nvidia[0-2] UUID=GPU-1\n";
    let bench = NodeBench::new();
    bench.configure_slurm();
    bench.scratch.file("etc/slurm/gres.conf", gres);
    bench.daemons.running(&bench.socket(7), 5);
    let plan = bench.plan();
    assert_eq!(
        (plan.containment, plan.probes),
        (Containment::Inherit, vec![])
    );
    let warnings = bench.ask().warnings;
    let [warning] = warnings.as_slice() else {
        panic!("{warnings:?}")
    };
    let expected = "gres.conf:2: unknown key UUID; Name=gpu is left out";
    assert!(warning.ends_with(expected), "{warning}");
    bench.configure("slurm_devices = closed\n");
    let Containment::InheritAndEnforce(list) = bench.plan().containment else {
        panic!("{:?}", bench.plan().containment)
    };
    let has_gpu = |minor| {
        let rule = format!("c:195:{minor}:rw").parse().unwrap();
        list.rules().contains(&rule)
    };
    assert_eq!([0, 1, 2, 3].map(has_gpu), [false, false, false, true]);
    // Without Slurm's filter the list is all that confines the login.
    bench
        .scratch
        .file("etc/slurm/cgroup.conf", "ConstrainDevices=no\n");
    assert_eq!(bench.refusal().reason, Reason::Configuration);
}

/// `register` pins for the owner only the namespaces of records with `via`: the module would refuse a login whose plan names
/// another one.
#[test]
fn namespace_of_cgroup_record_is_a_warning_if_slurm_places_the_job() {
    let bench = NodeBench::new();
    bench.configure_slurm();
    bench.daemons.running(&bench.socket(7), 5);
    bench.job(
        "7",
        r#","options":{"DevicePolicy":"auto"},"namespaces":"/run/ns/7""#,
    );
    let Reply { warnings, .. } = bench.ask();
    let plan = bench.plan();
    assert!(matches!(plan.placement, Placement::Extern { .. }));
    assert_eq!(plan.namespaces, None);
    let expected = "job 7: slurm places the login, and the mounts of /run/ns/7 count for the cgroup of the record alone: \
                    register it with via";
    assert!(warnings.iter().any(|text| text == expected), "{warnings:?}");
    // The cgroup of the record is gone.
    std::fs::remove_dir(bench.scratch.path().join("cg/7")).unwrap();
    assert_eq!(bench.plan().namespaces, None);
}

#[test]
fn record_adds_its_devices_to_a_slurm_job() {
    let bench = NodeBench::new();
    bench.configure_slurm();
    bench.daemons.running(&bench.socket(7), 5);
    let record = |more: &str| {
        let text = format!(r#"{{"version":1,"id":"7","uid":5,"via":"slurm"{more}}}"#);
        bench.register("7", &text);
    };
    record(r#","gres":{"gpu":[2]},"ends":99,"namespaces":"/run/ns/7""#);
    let plan = bench.plan();
    assert_eq!(plan.namespaces, Some("7".parse().unwrap()));
    let Containment::InheritAndEnforce(list) = plan.containment else {
        panic!("{:?}", plan.containment)
    };
    assert!(list.rules().contains(&"c:195:2:rw".parse().unwrap()));
    assert!(!list.rules().contains(&"c:195:1:rw".parse().unwrap()));
    assert_eq!(
        (plan.gpus, plan.ends, plan.rule),
        (1, Some(99), ChoiceRule::OnlyJob)
    );
    // A record without a list of devices adds none, and removes none of the site.
    record(r#","options":{"DevicePolicy":"auto"}"#);
    assert_eq!(bench.plan().containment, Containment::Inherit);
    bench.configure("slurm_devices = closed\n");
    let other_plan = bench.plan();
    assert!(
        matches!(other_plan.containment, Containment::InheritAndEnforce(_)),
        "{:?}",
        other_plan.containment
    );
    assert_eq!(other_plan.gpus, 0);
    // A cgroup in a record does not replace Slurm's placement.
    bench.job("7", r#","gres":{"gpu":[2]}"#);
    assert!(matches!(bench.plan().placement, Placement::Extern { .. }));
    std::fs::remove_dir(bench.scratch.path().join("cg/7")).unwrap();
    assert!(matches!(
        bench.plan().containment,
        Containment::InheritAndEnforce(_)
    ));
}

#[test]
fn slurms_own_list_of_devices_joins_that_of_the_site() {
    let bench = NodeBench::new();
    bench.configure_slurm();
    bench.daemons.running(&bench.socket(7), 5);
    bench.scratch.file("dev/sda1", "b 8:1");
    bench.scratch.file("dev/fuse", "c 10:229");
    let named = "ConstrainDevices=yes\nAllowedDevicesFile=\"allowed.conf\"\n";
    bench.scratch.file("etc/slurm/cgroup.conf", named);
    let list = "/dev/sda*  \n# a comment\n\n/run/x\n/dev/**\n/dev/gone\n/dev/fuse\t\n";
    bench.scratch.file("etc/slurm/allowed.conf", list);
    let record = |policy: &str| {
        let text = format!(
            r#"{{"version":1,"id":"7","uid":5,"via":"slurm","options":{{"DevicePolicy":"{policy}"}},"gpus":[]}}"#
        );
        bench.register("7", &text);
    };
    let rules = || {
        let Containment::InheritAndEnforce(allowed) = bench.plan().containment else {
            panic!("no list")
        };
        allowed
            .rules()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let own = ["b:8:1:rw", "c:10:229:rw"].map(str::to_owned);
    record("closed");
    // Slurm ignores such a list since 22.05: one that is left over opens nothing.
    assert!(!own.iter().any(|rule| rules().contains(rule)));
    bench.configure("slurm_allowed_devices = yes\n");
    record("closed");
    assert!(
        own.iter().all(|rule| rules().contains(rule)),
        "{:?}",
        rules()
    );
    record("strict");
    assert!(!own.iter().any(|rule| rules().contains(rule)));
    // Without a record a login resolves them.
    std::fs::remove_file(bench.scratch.path().join("jobs/5/7.json")).unwrap();
    bench.configure("slurm_devices = closed\nslurm_allowed_devices = yes\n");
    assert!(own.iter().all(|rule| rules().contains(rule)));
    let reply = bench.ask();
    for text in [
        "/run/x is not below /dev",
        "** does not stand for directories",
    ] {
        assert!(
            reply.warnings.iter().any(|warning| warning.contains(text)),
            "{:?}",
            reply.warnings
        );
    }
    let dropped = bench.plan().dropped;
    assert!(
        dropped
            .iter()
            .any(|text| text.starts_with("/dev/gone rw: "))
    );
    // Entries that are too many are left out as a whole, and those behind them join.
    for minor in 0..1_200 {
        bench
            .scratch
            .file(&format!("dev/many{minor}"), &format!("c 202:{minor}"));
    }
    bench
        .scratch
        .file("etc/slurm/allowed.conf", "/dev/many*\n/dev/fuse\n");
    assert!(!rules().iter().any(|rule| rule.starts_with("c:202:")));
    assert!(rules().contains(&own[1]));
    assert!(
        bench
            .plan()
            .dropped
            .iter()
            .any(|text| text.starts_with("/dev/many* rw: "))
    );
    bench.scratch.file("etc/slurm/allowed.conf", list);
    // A list that others can write allows nothing, and refuses nobody.
    bench.scratch.mode("etc/slurm/allowed.conf", 0o666);
    assert!(!own.iter().any(|rule| rules().contains(rule)));
    std::fs::remove_file(bench.scratch.path().join("etc/slurm/allowed.conf")).unwrap();
    assert!(!own.iter().any(|rule| rules().contains(rule)));
    let warnings = bench.ask().warnings;
    assert!(
        warnings
            .iter()
            .any(|text| text.starts_with("AllowedDevicesFile: ")),
        "{warnings:?}"
    );
    bench
        .scratch
        .file("etc/slurm/cgroup.conf", "ConstrainDevices=yes\n");
    bench.scratch.file("etc/slurm/allowed.conf", list);
    assert!(!own.iter().any(|rule| rules().contains(rule)));
}

#[test]
fn configuration_decides_the_variables_of_a_slurm_login() {
    let bench = NodeBench::new();
    bench.configure_slurm();
    bench.daemons.running(&bench.socket(7), 5);
    let variables = || {
        let shown: Vec<_> = bench.plan().env.iter().map(ToString::to_string).collect();
        shown.join(" ")
    };
    assert_eq!(variables(), "SLURM_JOB_ID=7");
    bench.configure("env = none\n");
    assert_eq!(variables(), "");
    bench.configure("env = full\n");
    assert_eq!(variables(), "SLURM_JOB_ID=7");
    let why = "env: only SLURM_JOB_ID is set: the job has no record";
    assert!(bench.ask().warnings.iter().any(|text| text == why));
    let env = r#""SLURM_JOB_NODELIST":"n1","SLURM_JOB_NUM_NODES":"1","SLURM_JOB_NTASKS":"2",
                 "SLURM_JOB_CPUS_PER_NODE":"4","CUDA_VISIBLE_DEVICES":"2""#;
    let record = format!(
        r#"{{"version":1,"id":"7","uid":5,"via":"slurm","gres":{{"gpu":[2]}},"env":{{{env}}}}}"#
    );
    bench.register("7", &record);
    let full = variables();
    for pair in [
        "SLURM_JOB_ID=7",
        "SLURM_TASKS_PER_NODE=2",
        "CUDA_VISIBLE_DEVICES=0",
    ] {
        assert!(
            full.split(' ').any(|variable| variable == pair),
            "{pair}: {full}"
        );
    }
}

#[test]
fn slurm_job_with_unusable_record_is_not_joined() {
    let bench = NodeBench::new();
    bench.configure_slurm();
    bench.daemons.running(&bench.socket(7), 5);
    for text in ["{", r#"{"version":1,"id":"7","uid":5,"via":"slurm"}"#] {
        bench.register("7", text);
        assert_eq!(bench.refusal().reason, Reason::Configuration, "{text}");
    }
    bench.daemons.running(&bench.socket(8), 5);
    assert_eq!(bench.plan().job.as_str(), "8");
    bench.scratch.mode("jobs/5", 0o777);
    assert_eq!(bench.refusal().reason, Reason::Configuration);
}

#[test]
fn slurm_job_that_takes_no_logins_has_the_command_for_a_shell() {
    let bench = NodeBench::new();
    bench.configure_slurm();
    bench.daemons.running(&bench.socket(7), 5);
    let text = r#"{"version":1,"id":"7","uid":5,"via":"slurm","cdi":[],"logins":false}"#;
    bench.register("7", text);
    bench.configure("hint = qstat\n");
    assert_eq!(bench.refusal().reason, Reason::LoginsClosed);
    assert_eq!(bench.ask().hint, "srun --jobid=7 --overlap --pty bash");
}

#[test]
fn record_without_its_slurm_job_is_not_running() {
    let bench = NodeBench::new();
    bench.configure_slurm();
    bench.scratch.dir("spool");
    let text = r#"{"version":1,"id":"7","uid":5,"via":"slurm","cdi":[]}"#;
    bench.register("7", text);
    assert_eq!(bench.refusal().reason, Reason::NoJob);
    assert!(
        bench
            .ask()
            .detail
            .contains("7.json: not running, slurm has no such job")
    );
}

#[test]
fn unreadable_files_of_slurm_refuse_and_are_named() {
    let bench = NodeBench::new();
    bench.configure_slurm();
    bench.daemons.running(&bench.socket(7), 5);
    for name in ["cgroup.conf", "gres.conf"] {
        bench.scratch.mode(&format!("etc/slurm/{name}"), 0o666);
        assert_eq!(bench.refusal().reason, Reason::Configuration);
        assert!(bench.ask().detail.contains(name), "{}", bench.ask().detail);
        // check names it without a job.
        let error = bench.read_slurm_devices().unwrap_err();
        assert!(error.contains(name), "{error}");
        bench.scratch.mode(&format!("etc/slurm/{name}"), 0o644);
        assert_eq!(bench.read_slurm_devices().unwrap(), [""; 0]);
    }
    std::fs::remove_file(bench.scratch.path().join("etc/slurm/slurm.conf")).unwrap();
    bench.configure("slurm_spool = /spool\n");
    assert_eq!(bench.refusal().reason, Reason::Configuration);
    assert!(bench.ask().detail.contains("slurm.conf is not found"));
}

#[test]
fn starting_and_ending_jobs_have_their_own_codes() {
    let bench = NodeBench::new();
    bench.configure_slurm();
    bench.daemons.ending(&bench.socket(7), 5);
    let refusal = bench.refusal();
    assert_eq!(
        (refusal.reason, refusal.jobs),
        (Reason::Ended, vec!["7".parse().unwrap()])
    );
    assert_eq!(refusal.ended, None, "it is still ending");
    bench.daemons.starting(&bench.socket(8), 5);
    let other_refusal = bench.refusal();
    assert_eq!(
        (other_refusal.reason, other_refusal.jobs),
        (Reason::Starting, vec!["8".parse().unwrap()])
    );
    bench.daemons.hung(&bench.socket(9));
    assert_eq!(bench.refusal().reason, Reason::Timeout);
    bench.scratch.file("spool/gpu017_10.4294967292", "");
    assert_eq!(bench.refusal().reason, Reason::Configuration);
    bench.daemons.running(&bench.socket(11), 5);
    let reply = bench.ask();
    let Verdict::Admit(plan) = &reply.verdict else {
        panic!("{reply:?}")
    };
    assert_eq!((plan.job.as_str(), plan.rule), ("11", ChoiceRule::Answered));
    assert_eq!(reply.warnings.len(), 2, "{:?}", reply.warnings);
}

#[test]
fn late_daemon_leaves_only_and_newest_unknown_unless_its_job_is_another_users() {
    let mut bench = NodeBench::new();
    bench.configure_slurm();
    bench.request.budget_ms = 3000;
    bench.daemons.hung(&bench.socket(7));
    bench.daemons.running(&bench.socket(8), 5);
    let rule = |node: &NodeBench| (node.plan().rule, node.ask().warnings.len());
    assert_eq!(rule(&bench), (ChoiceRule::Answered, 1));
    let file = format!("proc/{}/cgroup", std::process::id());
    let owned_by = |uid: u32| format!("2:freezer:/slurm/uid_{uid}/job_7/step_extern\n");
    for uid in [5, 6] {
        let job = format!("sys/fs/cgroup/freezer/slurm/uid_{uid}/job_7");
        bench.scratch.dir(&job);
    }
    bench.scratch.file(&file, &owned_by(6));
    assert_eq!(rule(&bench), (ChoiceRule::OnlyJob, 1));
    bench.daemons.running(&bench.socket(9), 5);
    assert_eq!(rule(&bench), (ChoiceRule::Newest, 1));
    bench.scratch.file(&file, &owned_by(5));
    assert_eq!(rule(&bench), (ChoiceRule::Answered, 1));
}

#[test]
fn starting_job_is_awaited() {
    let mut bench = NodeBench::new();
    bench.configure_slurm();
    bench.daemons.starting(&bench.socket(7), 5);
    bench.daemons.hung(&bench.socket(9));
    bench.request.wait_ms = 3000;
    let daemons = bench.daemons.clone();
    let running = bench.socket(8);
    bench.clock.run_at(Duration::from_millis(300), move || {
        daemons.running(&running, 5)
    });
    assert_eq!(bench.plan().job.as_str(), "8");
}

#[test]
fn spool_directory_writable_by_others_is_a_fault() {
    let bench = NodeBench::new();
    bench.configure_slurm();
    bench.daemons.running(&bench.socket(7), 5);
    bench.scratch.mode("spool", 0o777);
    assert_eq!(bench.refusal().reason, Reason::Configuration);
    bench.job("3", STRICT);
    assert_eq!(
        bench.plan().job.as_str(),
        "3",
        "a source hides nothing of another's"
    );
}

#[test]
fn node_without_spool_directory_and_registry_has_no_scheduler() {
    let bench = NodeBench::new();
    bench.configure_slurm();
    std::fs::remove_dir_all(bench.scratch.path().join("jobs")).unwrap();
    assert_eq!(bench.refusal().reason, Reason::NoScheduler);
    assert!(
        bench.ask().detail.contains("/spool does not exist"),
        "{}",
        bench.ask().detail
    );
}

/// A user whose job cannot be found is not told that there is none. Without slurmd there is no such job.
#[test]
fn slurmd_without_slurm_conf_is_not_the_users_fault() {
    let bench = NodeBench::new();
    assert_eq!(bench.refusal().reason, Reason::NoJob);
    for sign in ["run/slurmd.pid", "run/slurm/cgroup"] {
        let file = bench.scratch.file(sign, "");
        assert_eq!(bench.refusal().reason, Reason::NoScheduler, "{sign}");
        let detail = bench.ask().detail;
        assert!(detail.contains("slurm: no slurm.conf in "), "{detail}");
        let shown = if sign.ends_with("pid") {
            sign
        } else {
            "run/slurm"
        };
        let end = format!("slurmd runs here: there is /{shown}");
        assert!(detail.ends_with(&end), "{detail}");
        bench.configure("sources = registry, flux\n");
        assert_eq!(bench.refusal().reason, Reason::NoJob, "{sign}");
        bench.configure("");
        bench.job("3", STRICT);
        assert_eq!(bench.plan().job.as_str(), "3", "{sign}");
        std::fs::remove_file(bench.scratch.path().join("jobs/5/3.json")).unwrap();
        std::fs::remove_file(file).unwrap();
    }
    // The daemon of a login node has its configuration there.
    bench.scratch.file("run/slurm/conf/slurm.conf", "");
    assert_eq!(bench.refusal().reason, Reason::NoJob);
    bench.scratch.file("run/slurmd.pid", "");
    bench.configure_slurm();
    bench.scratch.dir("spool");
    assert_eq!(bench.refusal().reason, Reason::NoJob, "Slurm has no job");
}
