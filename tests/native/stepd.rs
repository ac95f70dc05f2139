//! Logins to a Slurm job: its step daemon moves them, and each move is verified.

use std::time::Duration;

use nix::sys::signal::Signal;
use protocol::{Allowlist, Containment, Plan};

use crate::support::{
    ALICE, BOB, Flags, LOOK, Node, Outcome, Step, eventually, on_node, plan, probes, run_while_held,
};

/// Runs a session with these arguments against a daemon with these faults. The stack ignores a
/// refusal, so that the output shows where the session is.
fn run_session_against(node: &Node, arguments: &str, faults: &[&str]) -> (Step, Outcome) {
    let step = node.step(ALICE, faults);
    node.session_reporting(arguments);
    let outcome = node.phases("sshd", ALICE, &["open_session"]);
    (step, outcome)
}

/// Asserts that the session is refused with that code, is where it was before, and that no login is
/// in the step.
fn assert_refused(code: &str, faults: &[&str]) {
    on_node(|node| {
        let (step, outcome) = run_session_against(node, "timeout=3", faults);
        assert!(
            outcome.took < Duration::from_secs(8),
            "{faults:?}: {outcome}"
        );
        outcome.says(code).joins_cgroup(&node.outside());
        step.assert_empty();
    });
}

#[test]
fn login_joins_extern_step() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.sshd().ssh(ALICE, LOOK).ok().joins_cgroup(&step.leaf());
        let entry = node
            .log
            .find("adopt", |entry| entry.field("decision") == Some("adopt"));
        let fields = ["code", "job", "source", "cgroup", "containment"].map(|key| entry.field(key));
        let leaf = step.leaf();
        let expected = ["JA00", "4242", "slurm", leaf.path(), "none"];
        assert_eq!(fields, expected.map(Some), "{}", entry.text);
    });
}

#[test]
fn first_login_joins_step_without_login_cgroup() {
    on_node(|node| {
        let step = node.step(ALICE, &["no-user"]);
        node.arguments("");
        node.account(ALICE).ok();
        assert!(!step.cgroup().child("user").exists(), "something was made");
        node.sshd().ssh(ALICE, LOOK).ok().joins_cgroup(&step.leaf());
    });
}

/// Only the session sends the order to add.
#[test]
fn account_and_observe_send_no_order() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.account(ALICE).ok();
        node.session_reporting("observe");
        node.session(ALICE).joins_cgroup(&node.outside());
        let entry = node
            .log
            .find("observe", |entry| entry.field("would") == Some("adopt"));
        assert_eq!(
            entry.field("cgroup"),
            Some(step.leaf().path()),
            "{}",
            entry.text
        );
        step.assert_untouched();
    });
}

/// The daemon tells who owns the job; the helper's answer does not count.
#[test]
fn job_of_another_user_refuses_login() {
    on_node(|node| {
        let step = node.step(BOB, &[]);
        node.session(ALICE).fails().says("JA07");
        node.account(ALICE).fails().says("JA07");
        assert!(
            node.log
                .decision("JA07")
                .text
                .contains("the job is uid 1002's")
        );
        step.assert_untouched();
    });
}

#[test]
fn starting_or_ending_step_refuses_login() {
    for (state, code) in [("0", "JA02"), ("1", "JA02"), ("3", "JA03"), ("4", "JA03")] {
        on_node(|node| {
            let step = node.step(ALICE, &["state", state]);
            node.account(ALICE).fails().says(code);
            node.session(ALICE).fails().says(code);
            step.assert_untouched();
        });
    }
}

/// Any ProctrackType but proctrack/cgroup has this effect.
#[test]
fn daemon_outside_step_cgroup_is_fault_of_node() {
    on_node(|node| {
        let step = node.step(ALICE, &["aside"]);
        node.account(ALICE).fails().says("JA09");
        node.session(ALICE).fails().says("JA09");
        assert!(
            node.log
                .decision("JA09")
                .text
                .contains("ProctrackType=proctrack/cgroup")
        );
        step.assert_untouched();
    });
}

/// Slurm's daemon reports success even if its own move failed.
#[test]
fn daemon_reporting_success_without_move_refuses_login() {
    assert_refused("JA07", &["lie"]);
    on_node(|node| {
        let (step, first) = run_session_against(node, "", &["lie-later"]);
        first.ok().joins_cgroup(&step.leaf());
        let second = node.phases("sshd", ALICE, &["open_session"]);
        second.says("JA07").joins_cgroup(&node.outside());
    });
}

#[test]
fn login_moved_elsewhere_is_moved_back() {
    assert_refused("JA07", &["elsewhere"]);
}

#[test]
fn login_moved_out_again_is_refused() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.answers(&Plan {
            probes: probes(),
            ..plan(Containment::None)
        });
        node.session_alone("");
        let held = ["-e", "inject=faccessat2:delay_enter=60000000:when=1"];
        let login = || node.session_under_strace("/tmp/strace", &held, ALICE);
        let harm = || {
            let [pid] = step.leaf().pids()[..] else {
                panic!("nobody was added")
            };
            node.outside().write("cgroup.procs", &pid.to_string());
        };
        run_while_held(node, login, harm).fails().says("JA07");
        step.assert_empty();
    });
}

#[test]
fn daemon_that_refuses_or_hangs_up_refuses_login() {
    assert_refused("JA07", &["refuse"]);
    assert_refused("JA07", &["close-add"]);
}

#[test]
fn job_that_ends_during_login_is_over() {
    assert_refused("JA03", &["exit-add"]);
    assert_refused("JA03", &["exit-then"]);
    assert_refused("JA03", &["then-state", "3"]);
    assert_refused("JA03", &["refuse", "then-state", "3"]);
}

#[test]
fn job_of_another_user_after_move_is_left() {
    assert_refused("JA07", &["then-uid", "1002"]);
}

#[test]
fn hanging_daemon_refuses_login_within_budget() {
    for fault in ["hang", "hang-add", "hang-then"] {
        assert_refused("JA08", &[fault]);
    }
}

#[test]
fn daemon_of_unknown_protocol_version_refuses_login() {
    assert_refused("JA09", &["version", "-1"]);
}

/// Whichever call fails, a slow daemon has done its part when the module moves a refused login back.
#[test]
fn failing_call_leaves_no_refused_login_to_slow_daemon() {
    on_node(|node| {
        let step = node.step(ALICE, &["slow-add", "100"]);
        // Behind our line: prints where the login is after the daemon has served all clients.
        let report =
            "while [ $(ls /proc/$(pgrep --exact extern)/task | wc -l) != 1 ]; do sleep 0.01; done
            cat /proc/$PPID/cgroup\n";
        node.write("/tmp/report", report);
        node.write_stack(
            "session required pam_permit.so\nsession required pam_job_adopt.so timeout=20\n\
             session optional pam_exec.so stdout /bin/sh /tmp/report\n",
        );
        let mut refused = Vec::new();
        for call in ["setsockopt", "sendto", "recvfrom"] {
            for number in 1.. {
                let inject = format!("inject={call}:error=ENOMEM:when={number}");
                let outcome = node.session_under_strace("/tmp/strace", &["-e", &inject], ALICE);
                if !node.read("/tmp/strace").contains("INJECTED") {
                    break;
                }
                // libpam fails after an admission if it cannot write its own audit record.
                let is_refused = outcome.stderr.contains("JA07");
                refused.extend(is_refused.then(|| format!("{call} {number}")));
                outcome.joins_cgroup(&if is_refused {
                    node.outside()
                } else {
                    step.leaf()
                });
            }
        }
        assert!(refused.len() > 8, "{refused:?}");
        step.assert_empty();
    });
}

/// A stopped daemon gets no order that it would carry out later.
#[test]
fn stopped_daemon_moves_no_refused_login_later() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.arguments("timeout=3");
        step.signal(Signal::SIGSTOP);
        let outcome = node.session(ALICE).fails().says("JA08");
        assert!(outcome.took < Duration::from_secs(8), "{outcome}");
        step.signal(Signal::SIGCONT);
        node.arguments("");
        // The daemon accepts its clients in the order in which they came.
        node.account(ALICE).ok();
        eventually("no client is left", || !step.has_clients());
        step.assert_untouched();
        node.session(ALICE).ok();
    });
}

/// Runs as many sessions at once.
fn run_sessions(node: &Node, count: usize) -> Vec<Outcome> {
    std::thread::scope(|scope| {
        let start = |_| scope.spawn(|| node.session(ALICE));
        let logins: Vec<_> = (0..count).map(start).collect();
        logins
            .into_iter()
            .map(|login| login.join().unwrap())
            .collect()
    })
}

/// Together they take three times as long as each may wait for a daemon that adds nobody.
#[test]
fn burst_of_logins_waits_in_queue_of_daemon() {
    on_node(|node| {
        let step = node.step(ALICE, &["queue", "500"]);
        node.arguments("timeout=3");
        for outcome in run_sessions(node, 18) {
            outcome.ok();
        }
        step.assert_empty();
    });
}

#[test]
fn daemon_that_hangs_during_burst_refuses_the_rest_in_time() {
    on_node(|node| {
        let step = node.step(ALICE, &["queue", "500", "hang-after", "8"]);
        node.arguments("timeout=3");
        let outcomes = run_sessions(node, 12);
        let refused: Vec<_> = outcomes
            .iter()
            .filter(|outcome| outcome.code != 0)
            .collect();
        assert_eq!(refused.len(), 4, "{outcomes:?}");
        for outcome in refused {
            assert!(outcome.stderr.contains("[JA08]"), "{outcome}");
            // The last was added after four seconds.
            assert!(outcome.took < Duration::from_secs(4 + 3 + 4), "{outcome}");
        }
        step.assert_empty();
    });
}

#[test]
fn suspended_job_refuses_login() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        let user = step.cgroup().child("user");
        user.freeze(true);
        node.account(ALICE).fails().says("JA04");
        node.session(ALICE).fails().says("JA04");
        step.assert_untouched();
        user.freeze(false);
        node.session(ALICE).ok();
    });
}

/// The module passes a PID, which must name the login in the daemon's PID namespace as well.
#[test]
fn daemon_in_other_pid_namespace_gets_no_order() {
    on_node(|node| {
        let step = node.step(ALICE, &["pids"]);
        node.account(ALICE).fails().says("JA09");
        node.session(ALICE).fails().says("JA09");
        step.assert_untouched();
    });
}

/// A login in another PID namespace is not added, even if it is the daemon's.
#[test]
fn login_in_other_pid_namespace_is_not_added() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.arguments("");
        let session = [
            "--pid",
            "--fork",
            "pamtester",
            "sshd",
            "alice",
            "open_session",
        ];
        node.run("unshare", &session).fails().says("JA09");
        node.log.line("in another process namespace than this");
        step.assert_untouched();
    });
    on_node(|node| {
        let step = node.step(ALICE, &["pids"]);
        node.arguments("");
        let session = "exec nsenter --pid=/proc/$(pgrep --newest --exact extern)/ns/pid \
                       pamtester sshd alice open_session";
        node.sh(session).fails().says("JA09");
        node.log.line("in another process namespace than this");
        step.assert_untouched();
    });
}

/// A login that an argument admits is admitted outside of the job.
#[test]
fn login_admitted_without_adoption_is_outside() {
    for fault in ["lie", "elsewhere", "refuse"] {
        on_node(|node| {
            let (step, outcome) = run_session_against(node, "action_adopt_failure=allow", &[fault]);
            outcome.ok().joins_cgroup(&node.outside());
            let entry = node.log.decision("JA07");
            assert_eq!(entry.field("decision"), Some("opened"), "{}", entry.text);
            step.assert_empty();
        });
    }
}

/// No argument admits a login that is inside the job without the required filters.
#[test]
fn login_stuck_in_job_is_admitted_by_no_argument() {
    let actions = "action_no_jobs=ignore action_adopt_failure=allow";
    for (faults, arguments) in [
        (["elsewhere"].as_slice(), actions),
        (&["then-state", "3"], actions),
        (&["elsewhere"], "exempt_uids=1001 exempt_join"),
    ] {
        on_node(|node| {
            let _step = node.step(ALICE, faults);
            node.session_alone(arguments);
            let procs = format!("/sys/fs/cgroup{}/cgroup.procs", node.outside().path());
            let barred = ["-P", &procs, "-e", "inject=write:error=EPERM"];
            node.session_under_strace("/tmp/strace", &barred, ALICE)
                .fails()
                .says("JA07");
            let entry = node.log.line("and the way back failed");
            assert_eq!(
                (entry.field("decision"), entry.severity()),
                (Some("refuse"), 1)
            );
        });
    }
}

#[test]
fn missing_containment_refuses_where_devices_are_required() {
    on_node(|node| {
        let (step, outcome) = run_session_against(node, "require_devices", &[]);
        outcome.says("JA06").joins_cgroup(&node.outside());
        step.assert_untouched();
    });
}

#[test]
fn login_ends_with_job_and_leaves_its_cgroups_removable() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.answers(&plan(Containment::Enforce(Allowlist::new())));
        let sshd = node.sshd();
        let mut login = sshd.stay(ALICE, "sleep 60");
        eventually("the login is in the job", || {
            !step.leaf().pids_or_empty().is_empty()
        });
        assert!(step.leaf().children().is_empty());
        assert!(step.finish(), "a cgroup is left");
        assert!(!login.wait().unwrap().success());
    });
}

#[test]
fn ended_job_refuses_login_as_over() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.session(ALICE).ok();
        assert!(step.finish(), "a cgroup is left");
        node.account(ALICE).fails().says("JA03");
        node.session(ALICE).fails().says("JA03");
    });
}

/// The socket of a killed daemon stays.
#[test]
fn job_with_killed_daemon_is_over() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.session(ALICE).ok();
        step.signal(Signal::SIGKILL);
        eventually("the daemon is gone", || {
            step.cgroup().child("slurm").is_empty()
        });
        node.account(ALICE).fails().says("JA03");
        node.session(ALICE).fails().says("JA03");
    });
}

#[test]
fn concurrent_logins_join_step() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        step.job
            .attach(Flags::Override, "Slurm_Cgroup_v2", &["195:1"]);
        node.answers(&plan(Containment::InheritAndEnforce(Allowlist::new())));
        let script = "for n in $(seq 30); do pamtester sshd alice open_session & jobs=\"$jobs $!\"; \
                      done; for job in $jobs; do wait $job || exit 1; done";
        node.sh(script).ok();
        assert_eq!(
            (step.leaf().filters().len(), step.leaf().our_filters().len()),
            (2, 1)
        );
    });
}
