//! A login is in its job in every hierarchy, or where it was in every hierarchy.

use std::time::Duration;

use protocol::{Allowlist, Containment, Placement, Reply, Verdict};

use crate::helper::admitting_reply;
use crate::support::{ALICE, Fake, Outcome, SPOOL, Slurm, SlurmJob, eventually, on_slurm};

/// Traces what is sent; the order to add a process begins like [`ORDER`].
const SENT: [&str; 2] = ["-e", "trace=sendto"];
const ORDER: &str = r#", "\26\0\0\0"#;

/// Installs a helper that admits to this job, whose devices Slurm constrains.
fn install_admitting_helper(job: &SlurmJob<'_>, slurm: &Slurm<'_>) {
    install_helper_with(job, slurm, Containment::Inherit);
}

fn install_helper_with(job: &SlurmJob<'_>, slurm: &Slurm<'_>, containment: Containment) {
    let reply = helper_reply(job, slurm, containment);
    Fake::new().answers(&reply).install(slurm.node);
}

fn helper_reply(job: &SlurmJob<'_>, slurm: &Slurm<'_>, containment: Containment) -> Reply {
    let mut reply = admitting_reply(&job.id, &slurm.node.outside());
    if let Verdict::Admit(plan) = &mut reply.verdict {
        plan.placement = Placement::Extern {
            spool: SPOOL.parse().unwrap(),
            node: slurm.node.name().parse().unwrap(),
        };
        plan.containment = containment;
        plan.probes = (0..4)
            .map(|minor| {
                format!("c:195:{minor}:rw /dev/nvidia{minor}")
                    .parse()
                    .unwrap()
            })
            .collect();
    }
    reply
}

/// Returns the printed lines of `/proc/self/cgroup`.
fn printed_cgroups(outcome: &Outcome) -> Vec<String> {
    let is_line = |line: &&str| line.split(':').count() >= 3 && line.contains(":/");
    let mut lines: Vec<_> = outcome
        .stdout
        .lines()
        .filter(is_line)
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines.dedup();
    lines
}

/// Asserts that the session was refused with that code, and that the process is in the cgroups of
/// all other processes of the node.
#[track_caller]
fn assert_moved_back(slurm: &Slurm<'_>, outcome: &Outcome, code: &str) {
    slurm.node.log.decision(code);
    let outside = slurm.node.sh("cat /proc/self/cgroup").ok();
    assert_eq!(
        printed_cgroups(outcome),
        printed_cgroups(&outside),
        "{outcome}"
    );
}

#[test]
fn only_gpus_of_job_are_counted() {
    on_slurm(|slurm| {
        for gpus in [1, 3, 0] {
            let job = slurm.alloc(ALICE, gpus);
            install_admitting_helper(&job, slurm);
            slurm.node.log.clear();
            slurm.node.session_reporting("");
            slurm.node.session(ALICE).ok().joins(&job);
            let decision = slurm.node.log.decision("JA00");
            assert_eq!(
                decision.field("devices"),
                Some(&*gpus.to_string()),
                "{}",
                decision.text
            );
            assert_eq!(
                decision.field("containment"),
                Some("inherit"),
                "{}",
                decision.text
            );
            job.cancel();
        }
        slurm.assert_nothing_left();
    });
}

/// Queries of the kernel open no device.
#[test]
fn counting_gpus_opens_no_device() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        install_admitting_helper(&job, slurm);
        slurm.node.session_reporting("");
        let calls = ["-e", "trace=open,openat,openat2,faccessat,faccessat2"];
        slurm
            .node
            .session_under_strace("/tmp/strace", &calls, ALICE)
            .ok()
            .joins(&job);
        let trace = slurm.node.read("/tmp/strace");
        let touched: Vec<_> = trace
            .lines()
            .filter(|line| line.contains("nvidia"))
            .collect();
        // Once for each device, and after the move.
        assert_eq!(touched.len(), 4, "{trace}");
        assert!(
            touched.iter().all(|line| line.contains("O_PATH")),
            "{touched:?}"
        );
    });
}

/// The proof after the move fails.
#[test]
fn login_that_fails_after_move_returns_in_every_hierarchy() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        install_admitting_helper(&job, slurm);
        slurm.node.session_reporting("");
        let inject = ["-e", "inject=/^faccessat2?$:error=EIO"];
        let outcome = slurm
            .node
            .session_under_strace("/tmp/strace", &inject, ALICE);
        assert!(slurm.node.read("/tmp/strace").contains("INJECTED"));
        assert_moved_back(slurm, &outcome, "JA06");
    });
}

/// Slurm accounts for processor time in a hierarchy that its daemon has not joined, and that the
/// login does not see. The login leaves all others, and the log reports that it is not where it
/// was.
#[test]
fn login_stuck_in_one_hierarchy_is_reported() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        install_admitting_helper(&job, slurm);
        slurm.node.session_reporting("");
        let session = "umount -l /sys/fs/cgroup/cpuacct && exec strace -f -qq -o /tmp/strace \
             -e 'inject=/^faccessat2?$:error=EIO' pamtester sshd alice open_session";
        let outcome = slurm.node.run("unshare", &["--mount", "sh", "-c", session]);
        slurm.node.log.line("the way back failed");
        slurm.node.log.decision("JA07");
        for hierarchy in ["freezer", "cpuset", "devices"] {
            assert_eq!(outcome.path_in(hierarchy), "/", "{outcome}");
        }
        assert!(!outcome.path_in("memory").contains("/job_"), "{outcome}");
    });
}

/// If one hierarchy prevents the way back, the login leaves all others.
#[test]
fn login_stuck_in_one_hierarchy_leaves_all_others() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        let mut reply = helper_reply(&job, slurm, Containment::Inherit);
        if let Verdict::Admit(plan) = &mut reply.verdict {
            plan.probes = vec!["c:195:9:rw /dev/nvidia0".parse().unwrap()];
        }
        Fake::new().answers(&reply).install(slurm.node);
        slurm.node.session_reporting("action_adopt_failure=allow");
        let procs = "/sys/fs/cgroup/freezer/cgroup.procs";
        let barred = ["-P", procs, "-e", "inject=write:error=EPERM"];
        let outcome = slurm
            .node
            .session_under_strace("/tmp/strace", &barred, ALICE);
        let entry = slurm.node.log.line("the way back failed");
        assert_eq!(
            (entry.field("decision"), entry.severity()),
            (Some("refuse"), 1)
        );
        assert!(
            outcome.path_in("freezer").starts_with(&job.path()),
            "{outcome}"
        );
        for hierarchy in ["devices", "memory", "cpuset"] {
            assert!(!outcome.path_in(hierarchy).contains("/job_"), "{outcome}");
        }
    });
}

/// Slurm itself moves the process in only some hierarchies. Slurm 22.05 reports it; for memory, 24.11 does not.
#[test]
fn partial_move_of_slurm_is_undone_in_every_hierarchy() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        install_admitting_helper(&job, slurm);
        for hierarchy in ["memory", "devices"] {
            let outcome = run_with_failing_move(slurm, &job, hierarchy, "error=EIO");
            let step = format!(
                "the login should be in {hierarchy}:{}/step_extern",
                job.path()
            );
            let entry = slurm.node.log.line("decision=refuse");
            let reason = entry.field("error").unwrap_or_default();
            let reasons = ["would not take the login into the job", &step];
            assert!(
                reasons.iter().any(|known| reason.contains(known)),
                "{reason}"
            );
            assert_moved_back(slurm, &outcome, "JA07");
        }
        slurm.node.session(ALICE).ok().joins(&job);
    });
}

/// Slurm reports success.
#[test]
fn falsely_reported_move_is_noticed_in_every_hierarchy() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        install_admitting_helper(&job, slurm);
        for hierarchy in ["freezer", "cpuset", "memory", "devices"] {
            let outcome = run_with_failing_move(slurm, &job, hierarchy, "retval=4");
            let error = format!(
                "the login should be in {hierarchy}:{}/step_extern",
                job.path()
            );
            slurm.node.log.line(&error);
            assert_moved_back(slurm, &outcome, "JA07");
        }
        slurm.node.session(ALICE).ok().joins(&job);
    });
}

/// Runs a session in which the step daemon's writes to its cgroups in that hierarchy have this
/// result and no effect.
fn run_with_failing_move(
    slurm: &Slurm<'_>,
    job: &SlurmJob<'_>,
    hierarchy: &str,
    result: &str,
) -> Outcome {
    let step = job.dir(hierarchy).join("step_extern");
    let procs = ["cgroup.procs", "task_0/cgroup.procs"].map(|file| step.join(file));
    let [procs, below] = procs.each_ref().map(|path| path.display());
    let script = format!(
        "strace -f -qq -o /tmp/stepd -P {procs} -P {below} -e inject=write:{result} -p $0 & \
         while grep -L 'TracerPid:.*[1-9]' /proc/$0/task/*/status | grep -q .; do sleep 0.05; done; \
         pamtester sshd alice open_session; kill %1; wait; \
         grep -q INJECTED /tmp/stepd || echo nothing was injected"
    );
    let title = format!("^slurmstepd: .{}.extern", job.id);
    let daemon = slurm.node.run("pgrep", &["--full", &title]).ok();
    slurm.node.log.clear();
    slurm.node.session_reporting("");
    let outcome = slurm
        .node
        .run("bash", &["-c", &script, daemon.stdout.trim()]);
    assert!(
        !outcome.stdout.contains("nothing was injected"),
        "{outcome}"
    );
    outcome
}

#[test]
fn suspended_job_refuses_login_until_resumed() {
    on_slurm(|slurm| {
        let job = slurm.batch(ALICE, 1);
        install_admitting_helper(&job, slurm);
        slurm.node.session_reporting("timeout=10");
        slurm.node.run("scontrol", &["suspend", &job.id]).ok();
        // Slurm first asks the tasks to stop, and freezes the steps two seconds later.
        let freezer = job.dir("freezer").join("step_extern/freezer.state");
        let state = || std::fs::read_to_string(&freezer).unwrap();
        eventually("Slurm has frozen it", || state().trim_end() == "FROZEN");
        let outcome = slurm.node.session(ALICE);
        assert!(outcome.took < Duration::from_secs(8), "{outcome}");
        assert_moved_back(slurm, &outcome, "JA04");
        slurm.node.run("scontrol", &["resume", &job.id]).ok();
        eventually("Slurm has thawed it", || state().trim_end() == "THAWED");
        slurm.node.session(ALICE).ok().joins(&job);
        job.cancel();
        slurm.assert_nothing_left();
    });
}

#[test]
fn node_without_cgroup_v2_admits_to_slurm_job() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        install_admitting_helper(&job, slurm);
        slurm.node.session_reporting("");
        let session = "umount -l /sys/fs/cgroup/unified && exec pamtester sshd alice open_session";
        let alone = || slurm.node.run("unshare", &["--mount", "sh", "-c", session]);
        alone().ok().joins(&job);
        Fake::new()
            .answers(&admitting_reply("1", &slurm.node.outside()))
            .install(slurm.node);
        slurm.node.log.clear();
        let outcome = alone();
        slurm.node.log.line("no cgroup v2 hierarchy is mounted");
        assert_moved_back(slurm, &outcome, "JA07");
    });
}

/// The job uses a hierarchy that the login does not see, so the login could not go back.
#[test]
fn hidden_hierarchy_refuses_login_before_move() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        install_admitting_helper(&job, slurm);
        slurm.node.session_reporting("");
        let session = "umount -l /sys/fs/cgroup/devices && exec strace -f -qq -o /tmp/strace \
                       -e trace=sendto pamtester sshd alice open_session";
        let outcome = slurm.node.run("unshare", &["--mount", "sh", "-c", session]);
        slurm.node.log.line("not mounted here");
        assert_moved_back(slurm, &outcome, "JA07");
        assert!(
            !slurm.node.read("/tmp/strace").contains(ORDER),
            "it was moved"
        );
    });
}

#[test]
fn missing_containment_refuses_before_move_where_devices_are_required() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        install_helper_with(&job, slurm, Containment::None);
        slurm.node.arguments("require_devices");
        slurm.node.account(ALICE).fails().says("JA06");
        slurm.node.session_reporting("require_devices");
        let outcome = slurm.node.session_under_strace("/tmp/strace", &SENT, ALICE);
        assert_moved_back(slurm, &outcome, "JA06");
        assert!(
            !slurm.node.read("/tmp/strace").contains(ORDER),
            "it was moved"
        );
    });
}

#[test]
fn unenforceable_list_refuses_before_move() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        slurm.node.session_reporting("");
        for requested in [Containment::Enforce, Containment::InheritAndEnforce] {
            install_helper_with(&job, slurm, requested(Allowlist::default()));
            slurm.node.log.clear();
            let outcome = slurm.node.session_under_strace("/tmp/strace", &SENT, ALICE);
            slurm
                .node
                .log
                .line("a list of devices cannot be enforced on cgroup v1");
            assert_moved_back(slurm, &outcome, "JA06");
            assert!(
                !slurm.node.read("/tmp/strace").contains(ORDER),
                "it was moved"
            );
        }
        install_admitting_helper(&job, slurm);
        slurm
            .node
            .session_under_strace("/tmp/strace", &SENT, ALICE)
            .ok()
            .joins(&job);
        assert!(
            slurm.node.read("/tmp/strace").contains(ORDER),
            "nobody moved it"
        );
    });
}
