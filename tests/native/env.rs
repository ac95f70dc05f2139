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
    let look = "env | grep -e _VISIBLE_DEVICES= -e ZE_AFFINITY_MASK= | sort";
    let output = node.sshd().ssh(ALICE, look).ok().stdout;
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
        for (gpus, expected) in [
            (json!([one]), vec![cuda(&[&one])]),
            (
                json!([other, one, "83:00.0"]),
                vec![cuda(&[&one, &other]), "ROCR_VISIBLE_DEVICES=0".into()],
            ),
            (
                json!(["83:00.0", "03:00.0"]),
                vec!["ROCR_VISIBLE_DEVICES=0,1".into()],
            ),
            (json!([]), vec![]),
        ] {
            let job = node
                .job(ALICE, "4242")
                .with("options", json!({}))
                .with("gpus", gpus.clone());
            let _job = job.start();
            assert_eq!(gpu_variables(node), expected, "{gpus}");
        }
        let _job = node
            .job(ALICE, "4242")
            .with("options", json!({ "DevicePolicy": "auto" }))
            .start();
        let all = [0, 1, 2, 3].map(Node::uuid);
        let all = cuda(&all.each_ref().map(String::as_str));
        assert_eq!(
            gpu_variables(node),
            [all, "ROCR_VISIBLE_DEVICES=0,1".into()]
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
        let gpus = json!([Node::uuid(1)]);
        let _job = node
            .job(ALICE, "4242")
            .with("options", json!({}))
            .with("gpus", gpus)
            .start();
        assert_eq!(gpu_variables(node).len(), 1);
        let instance = "/proc/driver/nvidia/capabilities/gpu2/mig/gi1/access";
        node.write_root_file(instance, "DeviceFileMinor: 282\n");
        assert!(gpu_variables(node).is_empty());
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
        // A job without a scheduler has no variables.
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
