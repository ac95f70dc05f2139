use super::*;
use crate::clock::manual::ManualClock;
use crate::devices::Resolver;
use crate::devices::gres::Dialect;
use crate::jobs::records::Note;
use crate::jobs::sources::slurm::tests::Daemons;
use crate::login::device_numbers::tests::register_text;
use crate::testing::Scratch;
use protocol::{ChoiceRule, Containment, Placement, Plan, Refusal, SeveralJobsPolicy};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

mod flux;
mod refusals;
mod slurm;

/// A node with a registry, a cgroup tree and a list of drivers, and a request of uid 5 to it.
struct NodeBench {
    clock: &'static ManualClock,
    daemons: Daemons,
    scratch: Rc<Scratch>,
    request: Request,
}

impl NodeBench {
    fn new() -> Self {
        let scratch = Rc::new(Scratch::new());
        scratch.dir("jobs");
        scratch.dir("cg");
        let drivers = "Character devices:\n10 misc\n195 nvidia\n510 nvidia-uvm\n";
        scratch.file("proc/devices", drivers);
        scratch.file("proc/sys/kernel/random/boot_id", "b1\n");
        scratch.file("etc/pam.d/sshd", "session required pam_job_adopt.so\n");
        let request = Request {
            phase: Phase::Session,
            user: "alice".into(),
            uid: 5,
            service: "sshd".into(),
            node: "gpu017".into(),
            rhost: String::new(),
            ssh_connection: String::new(),
            conf: scratch
                .path()
                .join("job_adopt.conf")
                .to_str()
                .unwrap()
                .into(),
            several: SeveralJobsPolicy::Newest,
            budget_ms: 5000,
            wait_ms: 0,
            unit: String::new(),
        };
        let clock = ManualClock::new();
        let bench = Self {
            clock,
            daemons: Daemons::new(clock),
            scratch,
            request,
        };
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
        self.register(id, &text);
    }

    /// Writes a record as `register` does, with the devices that it resolves now.
    fn register(&self, id: &str, text: &str) -> PathBuf {
        let config = self.config();
        let settings = Node::device_settings(&self.request.node, &config);
        let resolver = Resolver::new(self.node().tree(), settings);
        let text = register_text(text, &config, &resolver);
        self.scratch.file(&format!("jobs/5/{id}.json"), &text)
    }

    fn config(&self) -> Config {
        Config::read(Path::new(&self.request.conf), &self.scratch.trust()).unwrap()
    }

    /// Configures Slurm with four GPUs, which it constrains.
    fn configure_slurm(&self) {
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
        self.scratch
            .dir("spool")
            .join(format!("gpu017_{id}.4294967292"))
    }

    fn node(&self) -> Node {
        let path = self.scratch.path();
        let node = Node::with_root(path, self.scratch.trust(), &path.join("cg"));
        node.with_clock(self.clock.clock())
    }

    fn ask(&self) -> Reply {
        self.node().answer(&self.request).reply
    }

    /// Reads Slurm's devices as `check` does, without a job.
    fn read_slurm_devices(&self) -> Result<Vec<String>, String> {
        let node = self.node();
        node.read_slurm_devices(&self.request.node, &self.config(), Dialect::default())
            .map_err(|error| error.to_string())
    }

    #[track_caller]
    fn plan(&self) -> Plan {
        match self.ask() {
            Reply {
                verdict: Verdict::Admit(plan),
                ..
            } => plan,
            reply => panic!("{reply:?}"),
        }
    }

    #[track_caller]
    fn refusal(&self) -> Refusal {
        match self.ask() {
            Reply {
                verdict: Verdict::Refuse(refusal),
                ..
            } => refusal,
            reply => panic!("{reply:?}"),
        }
    }
}

const STRICT: &str =
    r#","options":{"DevicePolicy":"strict","DeviceAllow":[["char-misc","rw"],["/dev/x","r"]]}"#;

#[test]
fn only_job_is_joined() {
    let bench = NodeBench::new();
    bench.job("7", &format!(r#"{STRICT},"ends":99,"leaf":"logins""#));
    let plan = bench.plan();
    assert_eq!((plan.job.as_str(), plan.rule), ("7", ChoiceRule::OnlyJob));
    let path = "/7".parse().unwrap();
    let leaf = Some("logins".parse().unwrap());
    assert_eq!(plan.placement, Placement::Cgroup { path, leaf });
    assert_eq!(plan.ends, Some(99));
    let Containment::Enforce(list) = plan.containment else {
        panic!()
    };
    assert_eq!(list.rules(), ["c:10:-1:rw".parse().unwrap()]);
}

#[test]
fn newest_of_several_jobs_is_joined_unless_a_choice_is_needed() {
    let mut bench = NodeBench::new();
    bench.job("7", &format!(r#"{STRICT},"started":10"#));
    bench.job("8", &format!(r#"{STRICT},"started":20"#));
    bench.job("9", STRICT);
    let plan = bench.plan();
    assert_eq!((plan.job.as_str(), plan.rule), ("8", ChoiceRule::Newest));
    bench.request.several = SeveralJobsPolicy::Deny;
    let refusal = bench.refusal();
    assert_eq!(refusal.reason, Reason::ChoiceNeeded);
    assert_eq!(refusal.jobs.len(), 3);
    bench.configure("hint = qstat\n");
    assert_eq!(bench.ask().hint, "");
}

#[test]
fn record_decides_containment() {
    let bench = NodeBench::new();
    bench.job("7", r#","options":{"DevicePolicy":"auto"}"#);
    assert_eq!(bench.plan().containment, Containment::None);
    bench.job("7", r#","options":{"DeviceAllow":[]}"#);
    assert!(matches!(bench.plan().containment, Containment::Enforce(_)));
    // What the site gives every job is taken when the job is registered.
    let list = || bench.plan().containment.list().unwrap().rules().to_owned();
    let nvidia = "c:195:-1:r".parse().unwrap();
    bench.configure("always_allowed = char-nvidia r\n");
    assert!(!list().contains(&nvidia));
    bench.job("7", r#","options":{"DeviceAllow":[]}"#);
    assert!(list().contains(&nvidia));
    bench.job("7", "");
    assert_eq!(bench.refusal().reason, Reason::Configuration);
}

#[test]
fn numbers_that_do_not_hold_any_more_refuse() {
    let bench = NodeBench::new();
    let file = |name: &str, text: &str| bench.scratch.file(name, text);
    let boot = "proc/sys/kernel/random/boot_id";
    let refusal = || {
        let reply = bench.ask();
        assert_eq!(bench.refusal().reason, Reason::Configuration);
        reply.detail
    };
    bench.job("7", STRICT);
    bench.plan();
    file(boot, "b2\n");
    assert_eq!(
        refusal(),
        "job 7: its devices were resolved before the node's last boot: run job-adopt register --again 7"
    );
    file(boot, "b1\n");
    bench.plan();
    file("proc/devices", "Character devices:\n10 other\n");
    let changed = "job 7: its device major c:10 was that of misc and is that of other now";
    assert!(refusal().starts_with(changed), "{}", refusal());
    file("proc/devices", "Character devices:\n195 nvidia\n");
    assert!(
        refusal().contains("and is no driver's now"),
        "{}",
        refusal()
    );
    // Of another major nothing was noted.
    file("proc/devices", "Character devices:\n10 misc\n195 other\n");
    bench.plan();
    let unresolved = format!(r#"{{"version":1,"id":"7","uid":5,"cgroup":"/7"{STRICT}}}"#);
    file("jobs/5/7.json", &unresolved);
    assert_eq!(
        refusal(),
        "job 7: its record has no device numbers: run job-adopt register --again 7"
    );
    // A record that asks for no list needs none.
    file(
        "jobs/5/7.json",
        r#"{"version":1,"id":"7","uid":5,"cgroup":"/7","options":{"DevicePolicy":"auto"}}"#,
    );
    file(boot, "b2\n");
    assert_eq!(bench.plan().containment, Containment::None);
}

/// What a name means is the matter of the prolog: what becomes of it later changes no running job.
#[test]
fn login_to_registered_job_resolves_no_name() {
    let bench = NodeBench::new();
    // No file of this node gives these names a meaning, and one that might is broken.
    bench.scratch.file("etc/cdi/x.json", "{");
    bench.scratch.dir("cg/7");
    bench.scratch.file(
        "jobs/5/7.json",
        r#"{"version":1,"id":"7","uid":5,"cgroup":"/7","cdi":["v.com/x=0"],"gpus":[3],"device_dir":"/run/gone",
            "gres":{"gpu":[9]},"options":{"DeviceAllow":[["/dev/gone","rw"]]},
            "resolved":{"boot_id":"b1","rules":["c:195:0:rw"],"drivers":{"c:195":["nvidia"]},"gpus":[]}}"#,
    );
    let Containment::Enforce(list) = bench.plan().containment else {
        panic!("{:?}", bench.ask());
    };
    assert_eq!(list.rules(), ["c:195:0:rw".parse().unwrap()]);
    assert!(
        bench.ask().warnings.is_empty(),
        "{:?}",
        bench.ask().warnings
    );
}

#[test]
fn broken_record_beside_a_good_one_is_a_warning() {
    let bench = NodeBench::new();
    bench.job("7", STRICT);
    bench.scratch.file("jobs/5/8.json", "{");
    bench.job("9", r#","started":99"#);
    let reply = bench.ask();
    assert!(matches!(&reply.verdict, Verdict::Admit(plan) if plan.job.as_str() == "7"));
    assert_eq!(reply.warnings.len(), 2, "{:?}", reply.warnings);
}

#[test]
fn job_without_cgroup_is_not_running() {
    let bench = NodeBench::new();
    bench.job("7", STRICT);
    std::fs::remove_dir(bench.scratch.path().join("cg/7")).unwrap();
    let reply = bench.ask();
    assert!(reply.detail.contains("/7 is not there"), "{}", reply.detail);
    assert_eq!(bench.refusal().reason, Reason::NoJob);
}

#[test]
fn records_of_other_users_are_not_read() {
    let bench = NodeBench::new();
    bench.job("7", STRICT);
    bench.scratch.file("jobs/6/8.json", "{");
    bench.scratch.mode("jobs/6", 0o777);
    assert_eq!(bench.plan().rule, ChoiceRule::OnlyJob);
    let other = NodeBench::new();
    other.scratch.file("jobs/6/7.json", "{}");
    assert_eq!(other.refusal().reason, Reason::NoJob);
}

#[test]
fn evidence_lists_the_facts_in_order() {
    let mut bench = NodeBench::new();
    bench.request.phase = Phase::Account;
    bench.job("7", STRICT);
    bench.job("8", &format!(r#"{STRICT},"started":3"#));
    bench.scratch.file("jobs/5/9.json", "{\n");
    let evidence = bench.node().answer(&bench.request).evidence;
    let words: Vec<_> = evidence.lines().map(|(word, _)| word).collect();
    let expected = [
        "config",
        "job",
        "job",
        "fault",
        "absent",
        "absent",
        "caller",
        "chosen",
        "rule",
        "containment",
        "devices",
        "env",
        "stack",
    ];
    assert_eq!(words, expected);
    assert!(
        evidence.to_string().contains("rule: newest (8)\n"),
        "{evidence}"
    );
}
