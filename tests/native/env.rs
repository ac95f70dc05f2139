//! Variables of a login describe its job and come from a fixed table.

use protocol::{Containment, Plan, Reply, SessionLine, Variables, Verdict};
use serde_json::json;

use crate::helper::admitting_reply;
use crate::support::{ALICE, Fake, Node, Tool, on_node, plan};

const OWN: &str = "SLURM_JOB_ID=4242";
const GPUS: &str = "CUDA_VISIBLE_DEVICES=0,1";
const TELL: &str = "env; echo groups \" $(id -G) \"";

/// Returns a plan that sets these variables.
fn plan_with_variables() -> Plan {
    let mut env = Variables::default();
    [OWN, GPUS]
        .iter()
        .for_each(|text| env.push(text.parse().unwrap()).unwrap());
    Plan {
        env,
        ..plan(Containment::None)
    }
}

/// Returns the bytes of that plan.
fn reply_text() -> String {
    let reply = Reply {
        stack: SessionLine::Effective,
        auth_fault: String::new(),
        detail: String::new(),
        warnings: Vec::new(),
        hint: String::new(),
        message: String::new(),
        verdict: Verdict::Admit(plan_with_variables()),
    };
    String::from_utf8(reply.encode()).unwrap()
}

#[test]
fn variables_reach_login_and_not_sshd() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.answers(&plan_with_variables());
        let sshd = node.sshd();
        for outcome in [
            sshd.ssh(ALICE, TELL),
            sshd.ssh_tty(ALICE, TELL),
            sshd.ssh_password(ALICE, TELL),
        ] {
            outcome.ok().says(OWN).says(GPUS);
        }
        node.log.line("env=\"SLURM_JOB_ID CUDA_VISIBLE_DEVICES\"");
        node.install(&Tool::Cycles.path(), "/usr/bin/cycles");
        let outcome = node.run("cycles", &["alice", "2"]).exits(0);
        outcome.omits("CHANGED").joins_cgroup(&step.leaf());
    });
}

/// Lists the GPU variables of the login's processes, sorted.
fn gpu_variables(node: &Node) -> Vec<String> {
    login_variables(node, "-e _VISIBLE_DEVICES= -e ZE_AFFINITY_MASK=")
}

/// Lists the variables of the login's processes that match these patterns of grep, sorted.
fn login_variables(node: &Node, patterns: &str) -> Vec<String> {
    let look = format!("env | grep {patterns} | sort");
    let output = node.sshd().ssh(ALICE, &look).ok().stdout;
    output.lines().map(str::to_owned).collect()
}

/// NVIDIA GPUs are named by UUID, AMD GPUs by the number that a process there counts, whatever the
/// record has.
#[test]
fn variables_name_only_gpus_that_login_can_open() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.add_amd_gpus();
        node.add_nvidia_gpus();
        node.configure("env = gpus\n");
        let [one, other] = [1, 3].map(Node::uuid);
        let cuda = |list: &[&str]| format!("CUDA_VISIBLE_DEVICES={}", list.join(","));
        // NVIDIA's container tools are told of no GPU too: images ask for all of them.
        let nvidia = |list: &[&str]| format!("NVIDIA_VISIBLE_DEVICES={}", list.join(","));
        for (gpus, expected) in [
            (json!([one]), vec![cuda(&[&one]), nvidia(&[&one])]),
            (
                json!([other, one, "83:00.0"]),
                vec![
                    cuda(&[&one, &other]),
                    nvidia(&[&one, &other]),
                    "ROCR_VISIBLE_DEVICES=0".into(),
                ],
            ),
            (
                json!(["83:00.0", "03:00.0"]),
                vec![nvidia(&["void"]), "ROCR_VISIBLE_DEVICES=0,1".into()],
            ),
            (json!([]), vec![nvidia(&["void"])]),
        ] {
            let job = node
                .job(ALICE, "4242")
                .with("options", json!({}))
                .with("gpus", gpus.clone());
            let _job = job.start();
            for env in ["gpus", "full"] {
                node.configure(&format!("env = {env}\n"));
                assert_eq!(gpu_variables(node), expected, "{gpus}");
            }
        }
        let _job = node
            .job(ALICE, "4242")
            .with("options", json!({ "DevicePolicy": "auto" }))
            .start();
        let all = [0, 1, 2, 3].map(Node::uuid);
        let uuids = all.each_ref().map(String::as_str);
        assert_eq!(
            gpu_variables(node),
            [
                cuda(&uuids),
                nvidia(&uuids),
                "ROCR_VISIBLE_DEVICES=0,1".into()
            ]
        );
        node.configure("env = id\n");
        assert!(gpu_variables(node).is_empty());
    });
}

/// Only the UUID of a MIG instance identifies it, and no file contains that.
#[test]
fn mig_instances_leave_nvidia_gpus_unnamed() {
    on_node(|node| {
        node.add_nvidia_driver(510);
        node.add_nvidia_gpus();
        node.configure("env = gpus\n");
        let start = || {
            let job = node.job(ALICE, "4242").with("options", json!({}));
            job.with("gpus", json!([Node::uuid(1)])).start()
        };
        let job = start();
        assert_eq!(gpu_variables(node).len(), 2);
        drop(job);
        let instance = "/proc/driver/nvidia/capabilities/gpu2/mig/gi1/access";
        node.write_root_file(instance, "DeviceFileMinor: 282\n");
        let _job = start();
        assert!(gpu_variables(node).is_empty());
    });
}

/// The names are those that the job's own scheduler gives its jobs.
#[test]
fn registered_job_gives_its_logins_the_variables_of_its_scheduler() {
    on_node(|node| {
        let patterns = "-e ^JOB_ -e ^SGE_ -e ^TMPDIR= -e ^PE_ -e ^OAR_";
        let variables = json!({
            "JOB_ID": "4242", "SGE_TASK_ID": "3", "TMPDIR": "/tmp/4242.3.all.q",
            "PE_HOSTFILE": "/var/spool/node/pe_hostfile",
        });
        let job = node
            .job(ALICE, "4242.3")
            .with("scheduler", json!("gridengine"))
            .with("env", variables);
        let _job = job.start();
        let all = vec![
            "JOB_ID=4242".to_owned(),
            "PE_HOSTFILE=/var/spool/node/pe_hostfile".to_owned(),
            "SGE_TASK_ID=3".to_owned(),
            "TMPDIR=/tmp/4242.3.all.q".to_owned(),
        ];
        assert_eq!(login_variables(node, patterns), ["JOB_ID=4242"]);
        for (env, expected) in [
            ("none", vec![]),
            ("id", vec!["JOB_ID=4242".to_owned()]),
            ("gpus", vec!["JOB_ID=4242".to_owned()]),
            ("full", all),
        ] {
            node.configure(&format!("env = {env}\n"));
            assert_eq!(login_variables(node, patterns), expected, "{env}");
        }
        // Values are not for the log.
        node.log
            .line("env=\"JOB_ID PE_HOSTFILE SGE_TASK_ID TMPDIR\"");
        assert!(!node.log.to_string().contains("pe_hostfile"));
        // A site's own name for one of them, as job-adopt-record(5) has it.
        node.write(
            "/etc/security/pam_env.conf",
            "MY_HOSTS DEFAULT=${PE_HOSTFILE}\n",
        );
        let stack = node.read("/etc/pam.d/sshd");
        node.write_stack(&format!("{stack}\nsession required pam_env.so\n"));
        let hosts = login_variables(node, "^MY_HOSTS=");
        assert_eq!(hosts, ["MY_HOSTS=/var/spool/node/pe_hostfile"]);
    });
}

/// A record's variable that could decide what the login runs refuses it, whoever wrote the record.
#[test]
fn variable_that_decides_what_a_login_runs_refuses_record_and_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let good = node.read(&job.record_path());
        let cgroup = job.cgroup.path();
        let register = |variable: &str| {
            let words = ["register", "--id=4242", "--uid=1001", "--policy=closed"];
            let more = ["--cgroup", cgroup, "--env", variable];
            node.job_adopt(&[&words[..], &more].concat())
        };
        register("JOB_ADOPT_TASKS=2").ok();
        assert!(node.read(&job.record_path()).contains("JOB_ADOPT_TASKS"));
        for name in [
            "LD_PRELOAD",
            "PATH",
            "BASH_ENV",
            "ENV",
            "IFS",
            "PYTHONPATH",
            "PERL5LIB",
            "SHELL",
            "HOME",
            "SGE_ROOT",
        ] {
            register(&format!("{name}=/tmp"))
                .exits(2)
                .says(&format!("{name} is none of the variables"));
            let bad = format!("{{\"env\":{{\"{name}\":\"/tmp\"}},");
            job.record(&good.replacen('{', &bad, 1));
            node.sshd().ssh(ALICE, TELL).fails().says("[JA09]");
            node.log
                .line(&format!("env: {name} is none of the variables"));
        }
        job.record(&good);
        node.sshd()
            .ssh(ALICE, TELL)
            .ok()
            .says("JOB_ADOPT_JOB_ID=4242");
    });
}

/// Opens the session in a stack that ignores refusals, and prints PAM's environment.
fn run_ignored_session(node: &Node) -> crate::support::Outcome {
    node.write_stack(
        "session required pam_permit.so\nsession [default=ignore] pam_job_adopt.so\n\
         session optional pam_exec.so stdout /usr/bin/env\n",
    );
    node.phases("sshd", ALICE, &["open_session"])
}

#[test]
fn refused_login_leaves_no_variable() {
    on_node(|node| {
        let step = node.step(ALICE, &["lie"]);
        node.answers(&plan_with_variables());
        run_ignored_session(node).says("[JA07]").omits("SLURM_");
        drop(step);
        let _step = node.step_alone(ALICE, &[]);
        run_ignored_session(node).ok().says(OWN);
    });
}

#[test]
fn variables_of_another_module_are_kept() {
    on_node(|node| {
        let _step = node.step(ALICE, &[]);
        node.answers(&plan_with_variables());
        node.write("/etc/security/pam_env.conf", "SLURM_JOB_ID DEFAULT=roots\n");
        node.write_stack(
            "account required pam_job_adopt.so\nsession required pam_env.so\n\
             session required pam_job_adopt.so\n",
        );
        node.sshd()
            .ssh(ALICE, TELL)
            .ok()
            .says("SLURM_JOB_ID=roots")
            .says(GPUS);
        node.log.line("set by another module: SLURM_JOB_ID");
    });
}

/// Variables that a subverted helper might set.
#[test]
fn variable_outside_fixed_table_refuses() {
    on_node(|node| {
        let _step = node.step(ALICE, &[]);
        let sshd = node.sshd();
        let good = reply_text();
        Fake::new().says(good.clone()).install(node);
        sshd.ssh(ALICE, TELL).ok().says(GPUS);
        let refused = |bad: String| {
            assert_ne!(bad, good);
            Fake::new().says(bad).install(node);
            let outcome = sshd.ssh(ALICE, TELL).fails().says("[JA09]");
            assert!(!outcome.stdout.contains('='), "{outcome}");
        };
        for bad in [
            "LD_PRELOAD=/tmp/x.so",
            "PATH=/tmp",
            "BASH_ENV=/tmp/x",
            "SLURM_CONF=/tmp/x",
            "SLURM_JOBID=4243",
            "SLURM_SUBMIT_DIR=$(id)",
            "SLURM_NNODES=PATH=1",
            "SLURM_NODELIST=-oProxyCommand=/tmp/x",
        ] {
            refused(good.replace(GPUS, bad));
        }
        // Earlier versions could add groups.
        let group = "group.count\0i1\0group.0\0s5044\0env.count";
        refused(good.replace("env.count", group));
        // A registered job has no variables of Slurm.
        let job = node.job(ALICE, "777").start();
        let bytes = String::from_utf8(admitting_reply("777", &job.cgroup).encode()).unwrap();
        let one = "env.count\0i1\0env.0\0sSLURM_JOB_ID=777\0";
        refused(bytes.replace("env.count\0i0\0", one));
    });
}

/// Containers get a specification's other edits as well; logins do not.
#[test]
fn specification_gives_login_only_devices() {
    on_node(|node| {
        let spec = json!({
            "cdiVersion": "0.7.0", "kind": "site.org/thing",
            "containerEdits": {
                "env": ["THING=all", "LD_PRELOAD=/tmp/x.so"], "additionalGids": [0, 5044],
            },
            "devices": [{ "name": "one", "containerEdits": {
                "deviceNodes": [{ "path": "/dev/fuse" }], "env": ["THING=one"],
            } }],
        });
        node.create_dir("/etc/cdi", 0o755);
        node.write("/etc/cdi/site.json", &spec.to_string());
        let job = node
            .job(ALICE, "4242")
            .with("cdi", json!(["site.org/thing=one"]))
            .start();
        // A line that an update has left behind.
        let stack = node.read("/etc/pam.d/sshd");
        node.write_stack(&format!("auth optional pam_job_adopt.so\n{stack}"));
        let look = format!("{TELL}; cat /proc/self/cgroup; test -r /dev/fuse && echo thing opens");
        let outcome = node.sshd().ssh(ALICE, &look).ok().joins_cgroup(&job.cgroup);
        let outcome = outcome.omits("THING").omits("LD_PRELOAD");
        assert!(
            !outcome.stdout.contains(" 5044 ") && !outcome.stdout.contains(" 0 "),
            "{outcome}"
        );
    });
}
