//! Logins to a job of Slurm's: its step daemon takes them in, and is not believed that it did.

use std::time::Duration;

use nix::sys::signal::Signal;
use pam_job_adopt::protocol::{Allowlist, Containment, Plan};

use crate::support::{
    ALICE, BOB, Flags, LOOK, Node, Outcome, Step, eventually, on_node, plan, probes, run_while_held,
};

/// A session with these arguments against a daemon with these faults: where it ended up, with the
/// refusal passed over.
fn session_against(node: &Node, arguments: &str, faults: &[&str]) -> (Step, Outcome) {
    let step = node.step(ALICE, faults);
    node.session_reporting(arguments);
    let outcome = node.phases("sshd", ALICE, &["open_session"]);
    (step, outcome)
}

/// Refused with that code, where the login was before, and nobody in the step.
fn refused(code: &str, faults: &[&str]) {
    on_node(|node| {
        let (step, outcome) = session_against(node, "timeout=3", faults);
        assert!(outcome.took < Duration::from_secs(8), "{faults:?}: {outcome}");
        outcome.says(code).stands_in(&node.outside());
        step.empty();
    });
}

#[test]
fn a_login_joins_the_extern_step() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.sshd().ssh(ALICE, LOOK).ok().stands_in(&step.leaf());
        let entry = node.log.find("adopt", |entry| entry.field("decision") == Some("adopt"));
        let fields = ["code", "job", "source", "cgroup", "containment"].map(|key| entry.field(key));
        let leaf = step.leaf();
        let expected = ["JA00", "4242", "slurm", leaf.path(), "none"];
        assert_eq!(fields, expected.map(Some), "{}", entry.text);
    });
}

#[test]
fn the_first_login_of_a_step_without_any_cgroup_for_logins_joins() {
    on_node(|node| {
        let step = node.step(ALICE, &["no-user"]);
        node.arguments("");
        node.account(ALICE).ok();
        assert!(!step.cgroup().child("user").exists(), "something was made");
        node.sshd().ssh(ALICE, LOOK).ok().stands_in(&step.leaf());
    });
}

/// The order to add is the session's alone.
#[test]
fn neither_account_nor_an_observer_has_anybody_added() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.account(ALICE).ok();
        node.session_reporting("observe");
        node.session(ALICE).stands_in(&node.outside());
        let entry = node.log.find("observe", |entry| entry.field("would") == Some("adopt"));
        assert_eq!(entry.field("cgroup"), Some(step.leaf().path()), "{}", entry.text);
        step.assert_untouched();
    });
}

/// The helper is not believed whose job it is: the daemon is.
#[test]
fn the_job_of_another_user_is_refused() {
    on_node(|node| {
        let step = node.step(BOB, &[]);
        node.session(ALICE).fails().says("JA07");
        node.account(ALICE).fails().says("JA07");
        assert!(node.log.decision("JA07").text.contains("the job is uid 1002's"));
        step.assert_untouched();
    });
}

#[test]
fn a_step_that_is_starting_or_ending_takes_nobody() {
    for (state, code) in [("0", "JA02"), ("1", "JA02"), ("3", "JA03"), ("4", "JA03")] {
        on_node(|node| {
            let step = node.step(ALICE, &["state", state]);
            node.account(ALICE).fails().says(code);
            node.session(ALICE).fails().says(code);
            step.assert_untouched();
        });
    }
}

/// As with another ProctrackType than proctrack/cgroup.
#[test]
fn a_running_daemon_in_no_steps_cgroup_is_a_fault_of_the_node() {
    on_node(|node| {
        let step = node.step(ALICE, &["aside"]);
        node.account(ALICE).fails().says("JA09");
        node.session(ALICE).fails().says("JA09");
        assert!(node.log.decision("JA09").text.contains("ProctrackType=proctrack/cgroup"));
        step.assert_untouched();
    });
}

/// Slurm's daemon says that it added a process also where its own move failed.
#[test]
fn a_daemon_that_says_so_without_a_move_is_not_believed() {
    refused("JA07", &["lie"]);
    on_node(|node| {
        let (step, first) = session_against(node, "", &["lie-later"]);
        first.ok().stands_in(&step.leaf());
        let second = node.phases("sshd", ALICE, &["open_session"]);
        second.says("JA07").stands_in(&node.outside());
    });
}

#[test]
fn a_login_that_was_put_elsewhere_is_moved_back() {
    refused("JA07", &["elsewhere"]);
}

#[test]
fn a_login_that_was_moved_out_again_is_refused() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.answers(&Plan { probes: probes(), ..plan(Containment::None) });
        node.session_alone("");
        let held = ["-e", "inject=faccessat2:delay_enter=60000000:when=1"];
        let login = || node.session_under_strace("/tmp/strace", &held, ALICE);
        let harm = || {
            let [pid] = step.leaf().pids()[..] else { panic!("nobody was added") };
            node.outside().write("cgroup.procs", &pid.to_string());
        };
        run_while_held(node, login, harm).fails().says("JA07");
        step.empty();
    });
}

#[test]
fn a_daemon_that_refuses_or_hangs_up_is_no_adoption() {
    refused("JA07", &["refuse"]);
    refused("JA07", &["close-add"]);
}

#[test]
fn a_job_that_ends_on_the_way_is_over() {
    refused("JA03", &["exit-add"]);
    refused("JA03", &["exit-then"]);
    refused("JA03", &["then-state", "3"]);
    refused("JA03", &["refuse", "then-state", "3"]);
}

#[test]
fn a_job_that_is_another_users_after_the_move_is_left_again() {
    refused("JA07", &["then-uid", "1002"]);
}

#[test]
fn a_daemon_that_hangs_is_waited_for_within_the_budget() {
    for fault in ["hang", "hang-add", "hang-then"] {
        refused("JA08", &[fault]);
    }
}

#[test]
fn a_daemon_of_another_age_is_refused() {
    refused("JA09", &["version", "-1"]);
}

/// A daemon that is stopped is sent no order that it would carry out later.
#[test]
fn a_stopped_daemon_takes_nobody_in_when_it_goes_on() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.arguments("timeout=3");
        step.signal(Signal::SIGSTOP);
        let outcome = node.session(ALICE).fails().says("JA08");
        assert!(outcome.took < Duration::from_secs(8), "{outcome}");
        step.signal(Signal::SIGCONT);
        std::thread::sleep(Duration::from_millis(300));
        step.assert_untouched();
        node.arguments("");
        node.session(ALICE).ok();
    });
}

#[test]
fn a_suspended_job_takes_nobody() {
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

/// A login is added by number, which has to mean the login to the daemon as well.
#[test]
fn a_daemon_to_which_numbers_mean_other_processes_is_sent_none() {
    on_node(|node| {
        let step = node.step(ALICE, &["pids"]);
        node.account(ALICE).fails().says("JA09");
        node.session(ALICE).fails().says("JA09");
        step.assert_untouched();
    });
}

/// Nor is a login that has other numbers itself, be they the daemon's own.
#[test]
fn a_login_in_a_process_namespace_of_its_own_is_not_added() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.arguments("");
        let session = ["--pid", "--fork", "pamtester", "sshd", "alice", "open_session"];
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

/// Whom a knob lets in, it lets in outside the job.
#[test]
fn a_login_that_is_let_in_without_adoption_has_been_moved_back() {
    for fault in ["lie", "elsewhere", "refuse"] {
        on_node(|node| {
            let (step, outcome) = session_against(node, "action_adopt_failure=allow", &[fault]);
            outcome.ok().stands_in(&node.outside());
            let entry = node.log.decision("JA07");
            assert_eq!(entry.field("decision"), Some("opened"), "{}", entry.text);
            step.empty();
        });
    }
}

/// Inside the job, and without what should hold there, nobody is let in by any knob.
#[test]
fn a_login_that_cannot_be_moved_back_is_let_in_by_no_knob() {
    for faults in [["elsewhere"].as_slice(), &["then-state", "3"]] {
        on_node(|node| {
            let _step = node.step(ALICE, faults);
            node.session_alone("action_no_jobs=ignore action_adopt_failure=allow");
            let procs = format!("/sys/fs/cgroup{}/cgroup.procs", node.outside().path());
            let barred = ["-P", &procs, "-e", "inject=write:error=EPERM"];
            node.session_under_strace("/tmp/strace", &barred, ALICE).fails().says("JA07");
            let entry = node.log.line("and the way back failed");
            assert_eq!((entry.field("decision"), entry.severity()), (Some("refuse"), 1));
        });
    }
}

#[test]
fn no_containment_is_refused_where_devices_are_required() {
    on_node(|node| {
        let (step, outcome) = session_against(node, "require_devices", &[]);
        outcome.says("JA06").stands_in(&node.outside());
        step.assert_untouched();
    });
}

#[test]
fn a_login_ends_with_the_job_and_nothing_of_ours_keeps_its_cgroups() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.answers(&plan(Containment::Enforce(Allowlist::new())));
        let sshd = node.sshd();
        let mut login = sshd.stay(ALICE, "sleep 60");
        eventually("the login is in the job", || !step.leaf().pids_or_empty().is_empty());
        assert!(step.leaf().children().is_empty());
        assert!(step.finish(), "a cgroup is left");
        assert!(!login.wait().unwrap().success());
    });
}

#[test]
fn a_job_that_is_over_is_said_to_be_over() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.session(ALICE).ok();
        assert!(step.finish(), "a cgroup is left");
        node.account(ALICE).fails().says("JA03");
        node.session(ALICE).fails().says("JA03");
    });
}

/// Its socket stays where it was.
#[test]
fn a_job_whose_daemon_was_killed_is_over() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.session(ALICE).ok();
        step.signal(Signal::SIGKILL);
        eventually("the daemon is gone", || step.cgroup().child("slurm").is_empty());
        node.account(ALICE).fails().says("JA03");
        node.session(ALICE).fails().says("JA03");
    });
}

#[test]
fn many_logins_at_once_join() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        step.job.attach(Flags::Override, "Slurm_Cgroup_v2", &["195:1"]);
        node.answers(&plan(Containment::Both(Allowlist::new())));
        let script = "for n in $(seq 30); do pamtester sshd alice open_session & jobs=\"$jobs $!\"; \
                      done; for job in $jobs; do wait $job || exit 1; done";
        node.sh(script).ok();
        assert_eq!((step.leaf().filters().len(), step.leaf().our_filters().len()), (2, 1));
    });
}
