use super::*;
use crate::plan::{Containment, Placement, Plan, Rule, Several};
use crate::registry::Note;
use crate::source::slurm::tests::Daemons;
use crate::trust::tests::Scratch;

/// A node with a registry, a cgroup tree and a driver list, and a request of uid 5 to it.
struct Bench {
    // First, since the daemons end by a call to their sockets.
    daemons: Daemons,
    scratch: Scratch,
    request: Request,
}

impl Bench {
    fn new() -> Self {
        let scratch = Scratch::new();
        scratch.dir("jobs");
        scratch.dir("cg");
        scratch.file("proc/devices", "Character devices:\n10 misc\n195 nvidia\n");
        scratch.file("etc/pam.d/sshd", "session required pam_job_adopt.so\n");
        let request = Request {
            phase: Phase::Session,
            user: "alice".into(),
            uid: 5,
            service: "sshd".into(),
            node: "gpu017".into(),
            rhost: String::new(),
            ssh_connection: String::new(),
            conf: scratch.path().join("job_adopt.conf").to_str().unwrap().into(),
            several: Several::Newest,
            budget_ms: 5000,
            wait_ms: 0,
        };
        let bench = Self { daemons: Daemons::default(), scratch, request };
        bench.configure("");
        bench
    }

    fn configure(&self, more: &str) {
        let registry = self.scratch.path().join("jobs");
        let text = format!("registry = {}\n{more}", registry.display());
        self.scratch.file("job_adopt.conf", &text);
    }

    fn job(&self, id: &str, more: &str) {
        self.scratch.dir(&format!("cg/{id}"));
        let text = format!(r#"{{"version":1,"id":"{id}","uid":5,"cgroup":"/{id}"{more}}}"#);
        self.scratch.file(&format!("jobs/5/{id}.json"), &text);
    }

    /// Slurm with four GPUs, of which its jobs are kept from those that are not theirs.
    fn slurm(&self) {
        let file = |name: &str, text: &str| {
            self.scratch.file(name, text);
        };
        file("etc/slurm/slurm.conf", "SlurmdSpoolDir=/spool\n");
        file("etc/slurm/cgroup.conf", "ConstrainDevices=yes\n");
        file("etc/slurm/gres.conf", "Name=gpu File=/dev/nvidia[0-3]\n");
        for minor in [0, 1, 2, 3] {
            file(&format!("dev/nvidia{minor}"), &format!("c 195:{minor}"));
        }
        file("dev/nvidiactl", "c 195:255");
    }

    fn socket(&self, id: u32) -> PathBuf {
        self.scratch.dir("spool").join(format!("gpu017_{id}.4294967292"))
    }

    fn node(&self) -> Node {
        let path = self.scratch.path();
        Node::laid_out(path, self.scratch.trust(), &path.join("cg"))
    }

    fn ask(&self) -> Reply {
        self.node().answer(&self.request, &mut Evidence::default())
    }

    #[track_caller]
    fn plan(&self) -> Plan {
        match self.ask() {
            Reply { verdict: Verdict::Admit(plan), .. } => plan,
            reply => panic!("{reply:?}"),
        }
    }

    #[track_caller]
    fn refusal(&self) -> Refusal {
        match self.ask() {
            Reply { verdict: Verdict::Refuse(refusal), .. } => refusal,
            reply => panic!("{reply:?}"),
        }
    }
}

const STRICT: &str =
    r#","options":{"DevicePolicy":"strict","DeviceAllow":[["char-misc","rw"],["/dev/x","r"]]}"#;

#[test]
fn the_only_job_is_joined() {
    let bench = Bench::new();
    bench.job("7", &format!(r#"{STRICT},"ends":99,"leaf":"logins""#));
    let plan = bench.plan();
    assert_eq!((plan.job.as_str(), plan.rule), ("7", Rule::OnlyJob));
    let (path, leaf) = ("/7".parse().unwrap(), Some("logins".parse().unwrap()));
    assert_eq!(plan.placement, Placement::Cgroup { path, leaf });
    assert_eq!(plan.ends, Some(99));
    let Containment::Enforce(list) = plan.containment else { panic!() };
    assert_eq!(list.rules(), ["c:10:-1:rw".parse().unwrap()]);
    assert_eq!(plan.dropped.len(), 1);
    assert!(plan.dropped.first().unwrap().starts_with("/dev/x r: "));
}

#[test]
fn the_newest_is_joined_or_a_choice_asked_for() {
    let mut bench = Bench::new();
    bench.job("7", &format!(r#"{STRICT},"started":10"#));
    bench.job("8", &format!(r#"{STRICT},"started":20"#));
    bench.job("9", STRICT);
    let plan = bench.plan();
    assert_eq!((plan.job.as_str(), plan.rule), ("8", Rule::Newest));
    bench.request.several = Several::Deny;
    let refusal = bench.refusal();
    assert_eq!(refusal.reason, Reason::ChoiceNeeded);
    assert_eq!(refusal.jobs.len(), 3);
}

#[test]
fn containment_is_as_the_record_says() {
    let bench = Bench::new();
    bench.job("7", r#","options":{"DevicePolicy":"auto"}"#);
    assert_eq!(bench.plan().containment, Containment::None);
    bench.job("7", r#","options":{"DeviceAllow":[]}"#);
    assert!(matches!(bench.plan().containment, Containment::Enforce(_)));
    bench.configure("always_allowed = char-nvidia r, /dev/gone\n");
    let plan = bench.plan();
    let Containment::Enforce(list) = plan.containment else { panic!() };
    assert!(list.rules().contains(&"c:195:-1:r".parse().unwrap()));
    assert!(plan.dropped.iter().any(|device| device.starts_with("/dev/gone rw: ")));
    assert!(bench.ask().warnings.iter().any(|text| text.starts_with("char-nvidia r opens")));
    bench.job("7", "");
    assert_eq!(bench.refusal().reason, Reason::Configuration);
}

#[test]
fn devices_of_a_later_version_refuse() {
    let bench = Bench::new();
    for (more, device) in [
        (r#","cdi":["nvidia.com/gpu=0","b"]"#, "nvidia.com/gpu=0"),
        (r#","gpus":[3]"#, "GPU 3"),
        (r#","gres":{"gpu":[1]}"#, "gpu:1"),
        (r#","device_dir":"/run/d""#, "/run/d"),
    ] {
        bench.job("7", more);
        let refusal = bench.refusal();
        assert_eq!((refusal.reason, refusal.device.as_str()), (Reason::DeviceUnknown, device));
        assert_eq!(refusal.jobs.len(), 1);
    }
    bench.job("7", r#","cdi":[],"gpus":[]"#);
    assert!(matches!(bench.plan().containment, Containment::Enforce(_)));
}

#[test]
fn too_many_devices_refuse() {
    let bench = Bench::new();
    let lines: String = (0..1025).map(|major| format!("{major} same\n")).collect();
    bench.scratch.file("proc/devices", &format!("Block devices:\n{lines}"));
    bench.job("7", r#","options":{"DevicePolicy":"strict","DeviceAllow":[["block-same","r"]]}"#);
    assert_eq!(bench.refusal().reason, Reason::Configuration);
    assert!(bench.ask().detail.contains("more than 1024 entries"));
}

#[test]
fn no_job_has_several_reasons() {
    let bench = Bench::new();
    assert_eq!(bench.refusal().reason, Reason::NoJob);
    bench.scratch.file("jobs/5/3.ended", &Note::new(clock::now() - 601).to_json());
    assert_eq!(bench.refusal().reason, Reason::NoJob);
    let ended = clock::now() - 30;
    bench.scratch.file("jobs/5/4.ended", &Note::new(ended).to_json());
    bench.scratch.file("jobs/5/5.ended", &Note::new(ended - 1).to_json());
    let refusal = bench.refusal();
    assert_eq!((refusal.reason, refusal.ended), (Reason::Ended, Some(ended)));
    assert_eq!(refusal.jobs, ["4".parse().unwrap()]);
    bench.scratch.file("jobs/5/6.json", "{");
    assert_eq!(bench.refusal().reason, Reason::Configuration);
    assert!(bench.ask().detail.contains("jobs/5/6.json: "));
    std::fs::remove_dir_all(bench.scratch.path().join("jobs")).unwrap();
    assert_eq!(bench.refusal().reason, Reason::NoScheduler);
}

#[test]
fn a_broken_record_is_a_warning_beside_a_good_one() {
    let bench = Bench::new();
    bench.job("7", STRICT);
    bench.scratch.file("jobs/5/8.json", "{");
    bench.job("9", r#","started":99"#);
    let reply = bench.ask();
    assert!(matches!(&reply.verdict, Verdict::Admit(plan) if plan.job.as_str() == "7"));
    assert_eq!(reply.warnings.len(), 2, "{:?}", reply.warnings);
}

#[test]
fn a_job_whose_cgroup_is_gone_is_not_running() {
    let bench = Bench::new();
    bench.job("7", STRICT);
    std::fs::remove_dir(bench.scratch.path().join("cg/7")).unwrap();
    let reply = bench.ask();
    assert!(reply.detail.contains("/7 is not there"), "{}", reply.detail);
    assert_eq!(bench.refusal().reason, Reason::NoJob);
}

#[test]
fn other_users_jobs_are_not_looked_at() {
    let bench = Bench::new();
    bench.job("7", STRICT);
    bench.scratch.file("jobs/6/8.json", "{");
    bench.scratch.mode("jobs/6", 0o777);
    assert_eq!(bench.plan().rule, Rule::OnlyJob);
    let other = Bench::new();
    other.scratch.file("jobs/6/7.json", "{}");
    assert_eq!(other.refusal().reason, Reason::NoJob);
}

#[test]
fn configuration_faults_refuse_and_are_named() {
    let bench = Bench::new();
    bench.job("7", STRICT);
    bench.configure("enforced = always\n");
    assert_eq!(bench.refusal().reason, Reason::Configuration);
    assert!(bench.ask().detail.ends_with("job_adopt.conf:2: unknown key enforced"));
    bench.configure("");
    bench.scratch.mode("job_adopt.conf", 0o666);
    assert_eq!(bench.refusal().reason, Reason::Configuration);
}

#[test]
fn where_it_is_not_enforced_nothing_is_judged() {
    let bench = Bench::new();
    let marker = bench.scratch.path().join("compute");
    bench.configure(&format!("enforce = if-exists:{}\n", marker.display()));
    assert_eq!(bench.ask().verdict, Verdict::NotEnforced);
    bench.scratch.file("compute", "");
    assert_eq!(bench.refusal().reason, Reason::NoJob);
}

#[test]
fn the_stack_is_judged_in_the_account_phase() {
    let mut bench = Bench::new();
    bench.job("7", STRICT);
    assert_eq!(bench.ask().stack, Stack::Unchecked);
    bench.request.phase = Phase::Account;
    assert_eq!(bench.ask().stack, Stack::Effective);
    bench.scratch.file("etc/pam.d/sshd", "session optional pam_job_adopt.so\n");
    let reply = bench.ask();
    assert_eq!(reply.stack, Stack::Missing);
    assert!(reply.warnings.first().unwrap().contains("etc/pam.d/sshd:1"), "{:?}", reply.warnings);
}

#[test]
fn refusals_carry_the_sites_words() {
    let bench = Bench::new();
    let path = bench.scratch.file("motd", "Ask hpc@x\n");
    bench.configure(&format!("message_file = {}\nhint = qstat -u $USER\n", path.display()));
    let reply = bench.ask();
    assert_eq!((reply.message.as_str(), reply.hint.as_str()), ("Ask hpc@x", "qstat -u $USER"));
    std::fs::remove_file(path).unwrap();
    let reply = bench.ask();
    assert_eq!((reply.message.as_str(), reply.warnings.len()), ("", 1));
    bench.job("7", STRICT);
    assert!(bench.ask().warnings.is_empty());
}

#[test]
fn no_job_is_asked_again_within_the_budget() {
    let mut bench = Bench::new();
    bench.request.wait_ms = 2000;
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sleep(Duration::from_millis(150));
            // As `register` does it: the record appears complete or not at all.
            bench.scratch.dir("cg/7");
            bench.scratch.dir("jobs/5");
            let text = format!(r#"{{"version":1,"id":"7","uid":5,"cgroup":"/7"{STRICT}}}"#);
            let hidden = bench.scratch.file("jobs/5/.7", &text);
            std::fs::rename(hidden, bench.scratch.path().join("jobs/5/7.json")).unwrap();
        });
        assert_eq!(bench.plan().job.as_str(), "7");
    });
    let took = began.elapsed();
    assert!(took > Duration::from_millis(140) && took < Duration::from_secs(2), "{took:?}");
    std::fs::remove_dir_all(bench.scratch.path().join("jobs/5")).unwrap();
    bench.request.budget_ms = 450;
    let began = Instant::now();
    assert_eq!(bench.refusal().reason, Reason::NoJob);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(200) && took < Duration::from_millis(450), "{took:?}");
}

#[test]
fn what_others_are_asked_leaves_time_for_the_answer() {
    let mut bench = Bench::new();
    let began = Instant::now();
    for (budget_ms, left) in [(5000, 4750), (250, 0), (10, 0)] {
        bench.request.budget_ms = budget_ms;
        assert_eq!(last(&bench.request, began), began + Duration::from_millis(left));
    }
}

#[test]
fn evidence_tells_what_was_seen() {
    let mut bench = Bench::new();
    bench.request.phase = Phase::Account;
    bench.job("7", STRICT);
    bench.job("8", &format!(r#"{STRICT},"started":3"#));
    bench.scratch.file("jobs/5/9.json", "{\n");
    let mut evidence = Evidence::default();
    let _ = bench.node().answer(&bench.request, &mut evidence);
    let words: Vec<_> = evidence.lines().map(|(word, _)| word).collect();
    let expected = [
        "config",
        "job",
        "job",
        "fault",
        "absent",
        "caller",
        "rule",
        "containment",
        "devices",
        "dropped",
        "stack",
    ];
    assert_eq!(words, expected);
    assert!(evidence.to_string().contains("rule: newest (8)\n"), "{evidence}");
}

/// Variables and groups are off until the site names them.
#[test]
fn a_specification_adds_to_a_login_only_what_the_site_names() {
    let bench = Bench::new();
    bench.scratch.file("proc/devices", "Character devices:\n195 nvidia\n");
    bench.scratch.file("dev/nvidia0", "c 195:0");
    bench.scratch.file(
        "etc/cdi/x.json",
        r#"{"cdiVersion":"0.7.0","kind":"x.org/gpu",
            "containerEdits":{"env":["A=1","B=2","C=\u0007"],"additionalGids":[44,45]},
            "devices":[{"name":"0","containerEdits":{"deviceNodes":[{"path":"/dev/nvidia0"}]}}]}"#,
    );
    bench.job("7", r#","cdi":["x.org/gpu=0"]"#);
    let given = || {
        let plan = bench.plan();
        let env: Vec<_> = plan.env.iter().map(ToString::to_string).collect();
        (env.join(" "), plan.groups.iter().map(|group| group.number()).collect::<Vec<_>>())
    };
    bench.configure("");
    assert_eq!(given(), (String::new(), vec![]));
    bench.configure("cdi_env = B, C, D\ncdi_gids = 45, 46\n");
    assert_eq!(given(), ("B=2".into(), vec![45]));
    let warnings = bench.ask().warnings;
    assert!(warnings.iter().any(|text| text.starts_with("variable C is left out")), "{warnings:?}");
}

/// Else a login would look at other lines of `gres.conf` than `register` did.
#[test]
fn the_hosts_own_name_is_not_cut_for_slurms_files() {
    for (node, host, name) in [
        ("n1", "n1.cluster", None),
        ("n1.cluster", "n1.cluster", None),
        ("n1", "n1", None),
        ("rack7", "n1.cluster", Some("rack7")),
        ("n1.other", "n1.cluster", Some("n1.other")),
    ] {
        assert_eq!(named(node, host).as_deref(), name, "{node} on {host}");
    }
}

#[test]
fn a_job_of_slurms_inherits_its_filter_and_its_gpus_are_tried() {
    let mut bench = Bench::new();
    bench.slurm();
    bench.daemons.running(&bench.socket(7), 5);
    bench.daemons.running(&bench.socket(8), 6);
    let plan = bench.plan();
    assert_eq!((plan.job.as_str(), plan.rule), ("7", Rule::OnlyJob));
    let spool = bench.scratch.path().join("spool").to_str().unwrap().parse().unwrap();
    assert_eq!(plan.placement, Placement::Extern { spool, node: "gpu017".parse().unwrap() });
    assert_eq!(plan.containment, Containment::Inherit);
    let probes: Vec<_> = plan.probes.iter().map(ToString::to_string).collect();
    assert_eq!(probes.first().unwrap(), "c:195:0:rw /dev/nvidia0");
    assert_eq!((probes.len(), plan.gpus), (4, 0));
    assert_eq!(bench.ask().hint, "squeue --me");
    bench.configure("hint = qstat\n");
    assert_eq!(bench.ask().hint, "qstat");
}

#[test]
fn where_slurm_constrains_nothing_nothing_is_inherited() {
    let mut bench = Bench::new();
    bench.slurm();
    bench.daemons.running(&bench.socket(7), 5);
    bench.scratch.file("etc/slurm/gres.conf", "Name=gpu Count=4\n");
    assert_eq!(bench.plan().containment, Containment::None);
    bench.slurm();
    bench.scratch.file("etc/slurm/cgroup.conf", "ConstrainDevices=no\n");
    let plan = bench.plan();
    assert_eq!((plan.containment, plan.probes), (Containment::None, vec![]));
    bench.configure("slurm_devices = closed\n");
    assert!(matches!(bench.plan().containment, Containment::Enforce(_)));
}

#[test]
fn closed_is_a_list_of_all_of_slurms_devices_besides() {
    let mut bench = Bench::new();
    bench.slurm();
    bench.scratch.file("dev/null", "c 1:3");
    bench.daemons.running(&bench.socket(7), 5);
    bench.configure("slurm_devices = closed\nalways_allowed = char-misc r\n");
    let plan = bench.plan();
    let Containment::Both(list) = plan.containment else { panic!("{:?}", plan.containment) };
    for rule in ["c:1:3:rwm", "c:10:-1:r", "c:195:0:rw", "c:195:3:rw", "c:195:255:rw"] {
        assert!(list.rules().contains(&rule.parse().unwrap()), "{rule} {list:?}");
    }
    assert_eq!((plan.probes.len(), plan.gpus), (4, 0));
    std::fs::remove_file(bench.scratch.path().join("dev/nvidia3")).unwrap();
    let warnings = bench.ask().warnings;
    assert!(warnings.iter().any(|text| text.contains("/dev/nvidia3")), "{warnings:?}");
}

#[test]
fn a_record_adds_its_devices_to_a_job_of_slurms() {
    let mut bench = Bench::new();
    bench.slurm();
    bench.daemons.running(&bench.socket(7), 5);
    let record = |more: &str| {
        let text = format!(r#"{{"version":1,"id":"7","uid":5,"via":"slurm"{more}}}"#);
        bench.scratch.file("jobs/5/7.json", &text);
    };
    record(r#","gres":{"gpu":[2]},"ends":99"#);
    let plan = bench.plan();
    let Containment::Both(list) = plan.containment else { panic!("{:?}", plan.containment) };
    assert!(list.rules().contains(&"c:195:2:rw".parse().unwrap()));
    assert!(!list.rules().contains(&"c:195:1:rw".parse().unwrap()));
    assert_eq!((plan.gpus, plan.ends, plan.rule), (1, Some(99), Rule::OnlyJob));
    // One that is kept for other things adds no list, and takes away none of the site's.
    record(r#","options":{"DevicePolicy":"auto"}"#);
    assert_eq!(bench.plan().containment, Containment::Inherit);
    bench.configure("slurm_devices = closed\n");
    let plan = bench.plan();
    assert!(matches!(plan.containment, Containment::Both(_)), "{:?}", plan.containment);
    assert_eq!(plan.gpus, 0);
    // A cgroup that a record names is not where Slurm put the job.
    bench.job("7", r#","gres":{"gpu":[2]}"#);
    assert!(matches!(bench.plan().placement, Placement::Extern { .. }));
    std::fs::remove_dir(bench.scratch.path().join("cg/7")).unwrap();
    assert!(matches!(bench.plan().containment, Containment::Both(_)));
}

#[test]
fn a_login_to_a_job_of_slurms_is_given_what_the_configuration_says_of_its_environment() {
    let mut bench = Bench::new();
    bench.slurm();
    bench.daemons.running(&bench.socket(7), 5);
    let given = || {
        let shown: Vec<_> = bench.plan().env.iter().map(ToString::to_string).collect();
        shown.join(" ")
    };
    assert_eq!(given(), "SLURM_JOB_ID=7");
    bench.configure("env = none\n");
    assert_eq!(given(), "");
    bench.configure("env = full\n");
    assert_eq!(given(), "SLURM_JOB_ID=7");
    let why = "env: only SLURM_JOB_ID is set: the job has no record";
    assert!(bench.ask().warnings.iter().any(|text| text == why));
    let env = r#""SLURM_JOB_NODELIST":"n1","SLURM_JOB_NUM_NODES":"1","SLURM_JOB_NTASKS":"2",
                 "SLURM_JOB_CPUS_PER_NODE":"4","CUDA_VISIBLE_DEVICES":"2""#;
    let record = format!(
        r#"{{"version":1,"id":"7","uid":5,"via":"slurm","gres":{{"gpu":[2]}},"env":{{{env}}}}}"#
    );
    bench.scratch.file("jobs/5/7.json", &record);
    let full = given();
    for pair in ["SLURM_JOB_ID=7", "SLURM_TASKS_PER_NODE=2", "CUDA_VISIBLE_DEVICES=0"] {
        assert!(full.split(' ').any(|given| given == pair), "{pair}: {full}");
    }
}

#[test]
fn a_job_of_slurms_is_not_joined_without_its_record() {
    let mut bench = Bench::new();
    bench.slurm();
    bench.daemons.running(&bench.socket(7), 5);
    for text in ["{", r#"{"version":1,"id":"7","uid":5,"via":"slurm"}"#] {
        bench.scratch.file("jobs/5/7.json", text);
        assert_eq!(bench.refusal().reason, Reason::Configuration, "{text}");
    }
    bench.daemons.running(&bench.socket(8), 5);
    assert_eq!(bench.plan().job.as_str(), "8");
    bench.scratch.mode("jobs/5", 0o777);
    assert_eq!(bench.refusal().reason, Reason::Configuration);
}

#[test]
fn a_record_without_slurms_job_is_not_running() {
    let bench = Bench::new();
    bench.slurm();
    bench.scratch.dir("spool");
    let text = r#"{"version":1,"id":"7","uid":5,"via":"slurm","cdi":[]}"#;
    bench.scratch.file("jobs/5/7.json", text);
    assert_eq!(bench.refusal().reason, Reason::NoJob);
    assert!(bench.ask().detail.contains("7.json: not running, slurm has no such job"));
}

#[test]
fn slurms_files_that_cannot_be_read_refuse_and_are_named() {
    let mut bench = Bench::new();
    bench.slurm();
    bench.daemons.running(&bench.socket(7), 5);
    for name in ["cgroup.conf", "gres.conf"] {
        bench.scratch.mode(&format!("etc/slurm/{name}"), 0o666);
        assert_eq!(bench.refusal().reason, Reason::Configuration);
        assert!(bench.ask().detail.contains(name), "{}", bench.ask().detail);
        bench.scratch.mode(&format!("etc/slurm/{name}"), 0o644);
    }
    std::fs::remove_file(bench.scratch.path().join("etc/slurm/slurm.conf")).unwrap();
    bench.configure("slurm_spool = /spool\n");
    assert_eq!(bench.refusal().reason, Reason::Configuration);
    assert!(bench.ask().detail.contains("slurm.conf is not found"));
}

#[test]
fn jobs_that_start_or_end_have_their_own_answers() {
    let mut bench = Bench::new();
    bench.slurm();
    bench.daemons.ending(&bench.socket(7), 5);
    let refusal = bench.refusal();
    assert_eq!((refusal.reason, refusal.jobs), (Reason::Ended, vec!["7".parse().unwrap()]));
    assert!((clock::now() - refusal.ended.unwrap()).abs() < 5);
    bench.daemons.starting(&bench.socket(8), 5);
    let refusal = bench.refusal();
    assert_eq!((refusal.reason, refusal.jobs), (Reason::Starting, vec!["8".parse().unwrap()]));
    bench.daemons.hung(&bench.socket(9));
    assert_eq!(bench.refusal().reason, Reason::Timeout);
    bench.scratch.file("spool/gpu017_10.4294967292", "");
    assert_eq!(bench.refusal().reason, Reason::Configuration);
    bench.daemons.running(&bench.socket(11), 5);
    let reply = bench.ask();
    assert!(matches!(&reply.verdict, Verdict::Admit(plan) if plan.job.as_str() == "11"));
    assert_eq!(reply.warnings.len(), 2, "{:?}", reply.warnings);
}

#[test]
fn a_job_that_starts_is_waited_for() {
    let mut bench = Bench::new();
    bench.slurm();
    bench.daemons.starting(&bench.socket(7), 5);
    bench.daemons.hung(&bench.socket(9));
    bench.request.wait_ms = 3000;
    let running = bench.socket(8);
    let mut later = Daemons::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sleep(Duration::from_millis(300));
            later.running(&running, 5);
        });
        assert_eq!(bench.plan().job.as_str(), "8");
    });
    drop(later);
}

#[test]
fn a_spool_directory_of_others_is_a_fault() {
    let mut bench = Bench::new();
    bench.slurm();
    bench.daemons.running(&bench.socket(7), 5);
    bench.scratch.mode("spool", 0o777);
    assert_eq!(bench.refusal().reason, Reason::Configuration);
    bench.job("3", STRICT);
    assert_eq!(bench.plan().job.as_str(), "3", "a source hides nothing of another's");
}

#[test]
fn a_node_without_spool_directory_and_registry_has_no_scheduler() {
    let bench = Bench::new();
    bench.slurm();
    std::fs::remove_dir_all(bench.scratch.path().join("jobs")).unwrap();
    assert_eq!(bench.refusal().reason, Reason::NoScheduler);
    assert!(bench.ask().detail.contains("/spool does not exist"), "{}", bench.ask().detail);
}
