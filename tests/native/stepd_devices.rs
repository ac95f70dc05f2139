//! Devices of logins to a job of Slurm's: its filter holds and stays, and ours comes on top.

use pam_job_adopt::protocol::{Allowlist, Containment, Plan};

use crate::support::{
    ALICE, AttachedFilter, DENIED, Flags, LOOK, Node, OPENS, Outcome, Step, on_node, plan, probes,
    run_while_held,
};

/// Holds a login up when it has been moved, and its filters are in place.
const AT_PROBES: [&str; 2] = ["-e", "inject=faccessat2:delay_enter=60000000:when=1"];
/// Name of Slurm's own programs.
const SLURM: &str = "Slurm_Cgroup_v2";

/// GPUs 0 and 1, and what every login needs.
fn list() -> Allowlist {
    let rules = ["c:1:-1:rwm", "c:5:-1:rwm", "c:136:-1:rwm", "c:195:0:rw", "c:195:1:rw"];
    let mut list = Allowlist::new();
    rules.into_iter().for_each(|rule| list.push(rule.parse().unwrap()).unwrap());
    list
}

/// A job whose filter denies GPUs 1 and 3, and a helper that asks for this.
fn constrained(node: &Node, containment: Containment) -> Step {
    let step = node.step(ALICE, &[]);
    step.job.attach(Flags::Override, SLURM, &["195:1", "195:3"]);
    node.answers(&plan(containment));
    step
}

fn names(filters: &[AttachedFilter]) -> Vec<&str> {
    filters.iter().map(|filter| filter.name.as_str()).collect()
}

/// What Slurm's filter allows.
fn slurms(outcome: Outcome) -> Outcome {
    outcome.devices(&[
        ("/dev/nvidia0", OPENS),
        ("/dev/nvidia1", DENIED),
        ("/dev/nvidia2", OPENS),
        ("/dev/nvidia3", DENIED),
    ])
}

/// What Slurm's filter and the list allow.
fn both(outcome: Outcome) -> Outcome {
    outcome.devices(&[
        ("/dev/nvidia0", OPENS),
        ("/dev/nvidia1", DENIED),
        ("/dev/nvidia2", DENIED),
        ("/dev/nvidia3", DENIED),
    ])
}

#[test]
fn slurms_filter_is_pinned_where_logins_are_and_nowhere_else() {
    for containment in [Containment::Inherit, Containment::None] {
        on_node(|node| {
            let step = constrained(node, containment.clone());
            let before = step.job.filters();
            slurms(node.sshd().ssh(ALICE, LOOK).ok().stands_in(&step.leaf()));
            let pins = step.leaf().filters();
            assert_eq!(names(&pins), [SLURM], "{pins:?}");
            assert!(pins[0].flags == Flags::Multi, "{pins:?}");
            assert_eq!(step.job.filters(), before, "Slurm's own was touched");
            for between in [step.cgroup(), step.cgroup().child("user")] {
                assert!(between.filters().is_empty(), "{}", between.path());
            }
        });
    }
}

/// With accounting by cgroups the daemon moves what it adds through `task_special` to another leaf,
/// also whatever has outlived its login: the filters hold on that way too.
#[test]
fn where_slurm_moves_logins_on_the_filters_are_above_both_leaves() {
    on_node(|node| {
        let step = node.step(ALICE, &["accounted"]);
        step.job.attach(Flags::Override, SLURM, &["195:1", "195:3"]);
        node.answers(&plan(Containment::Both(list())));
        let user = step.cgroup().child("user");
        for _ in 0..2 {
            both(node.sshd().ssh(ALICE, LOOK).ok().stands_in(&user.child("task_3")));
            assert_eq!(user.filters().len(), 2, "{:?}", user.filters());
            assert!(user.filters().iter().all(|filter| filter.flags == Flags::Multi));
            assert!(user.child("task_3").filters().is_empty() && !step.leaf().exists());
        }
        assert!(step.finish(), "something was left");
    });
}

#[test]
fn a_job_without_the_filter_that_it_should_have_takes_nobody() {
    for containment in [Containment::Inherit, Containment::Both(list())] {
        on_node(|node| {
            let step = node.step(ALICE, &[]);
            node.answers(&plan(containment.clone()));
            node.account(ALICE).fails().says("JA06");
            node.session(ALICE).fails().says("JA06");
            step.assert_untouched();
        });
    }
}

#[test]
fn a_filter_that_root_removes_before_a_login_refuses_it() {
    on_node(|node| {
        let step = constrained(node, Containment::Inherit);
        step.job.detach(&step.job.filters()[0]);
        node.session(ALICE).fails().says("JA06");
        step.assert_untouched();
    });
}

#[test]
fn a_login_gains_nothing_when_root_removes_the_filter_after_it() {
    for containment in [Containment::Inherit, Containment::Both(list())] {
        on_node(|node| {
            let step = constrained(node, containment.clone());
            node.session(ALICE).ok();
            step.job.detach(&step.job.filters()[0]);
            let holds = if containment.list().is_some() { both } else { slurms };
            holds(node.probe_in(&step.leaf()));
            // The pin is Slurm's filter still, for the next login as well.
            holds(node.sshd().ssh(ALICE, LOOK).ok().stands_in(&step.leaf()));
        });
    }
}

/// What has to hold is looked at once more when all else is done: here it is taken away meanwhile.
#[test]
fn a_filter_that_goes_during_a_login_refuses_it() {
    for containment in [Containment::Inherit, Containment::Both(list())] {
        on_node(|node| {
            let step = constrained(node, containment.clone());
            node.session(ALICE).ok();
            // Of Slurm's filter the pin is all that is left.
            step.job.detach(&step.job.filters()[0]);
            let harm = || {
                let pins = step.leaf().filters();
                step.leaf().detach(pins.iter().find(|filter| filter.name == SLURM).unwrap());
            };
            node.answers(&Plan { probes: probes(), ..plan(containment.clone()) });
            let login = || node.session_under_strace("/tmp/strace", &AT_PROBES, ALICE);
            run_while_held(node, login, harm).fails().says("JA06");
            step.empty();
        });
    }
}

/// Nobody asked for containment, but the site wants some, and there was one when it was looked for.
#[test]
fn a_filter_that_goes_before_the_move_leaves_nothing_to_rely_on() {
    on_node(|node| {
        let step = constrained(node, Containment::None);
        node.session_alone("require_devices");
        // The second question to the daemon is the order to move.
        let delay = ["-e", "inject=sendto:delay_enter=60000000:when=2"];
        let login = || node.session_under_strace("/tmp/strace", &delay, ALICE);
        let harm = || step.job.detach(&step.job.filters()[0]);
        run_while_held(node, login, harm).fails().says("JA06");
        step.empty();
    });
}

#[test]
fn a_list_holds_besides_and_a_device_that_slurm_denies_stays_denied() {
    for containment in [Containment::Both(list()), Containment::Enforce(list())] {
        on_node(|node| {
            let step = constrained(node, containment.clone());
            both(node.sshd().ssh(ALICE, LOOK).ok().stands_in(&step.leaf()));
            assert_eq!((step.leaf().filters().len(), step.leaf().our_filters().len()), (2, 1));
            assert_eq!(names(&step.job.filters()), [SLURM]);
            let entry = node.log.find("adopt", |entry| entry.field("decision") == Some("adopt"));
            assert_eq!(entry.field("containment"), Some(containment.as_str()), "{}", entry.text);
        });
    }
}

#[test]
fn a_list_alone_goes_to_the_leaf_and_never_to_slurms_own_cgroup() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.answers(&plan(Containment::Enforce(list())));
        let outcome = node.sshd().ssh(ALICE, LOOK).ok().stands_in(&step.leaf());
        outcome.devices(&[("/dev/nvidia1", OPENS), ("/dev/nvidia2", DENIED)]);
        assert_eq!(step.leaf().our_filters().len(), 1);
        for above in [step.job.clone(), step.cgroup(), step.cgroup().child("user")] {
            assert!(above.filters().is_empty(), "{}", above.path());
        }
    });
}

/// The scheduler's own is the job's, or below it.
#[test]
fn a_filter_above_the_job_does_not_stand_for_slurms() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.cgroup().child("jobs").attach(Flags::Override, SLURM, &["195:1", "195:3"]);
        for containment in [Containment::Inherit, Containment::Both(list())] {
            node.answers(&plan(containment));
            node.account(ALICE).fails().says("JA06");
            node.session(ALICE).fails().says("JA06");
        }
        step.assert_untouched();
    });
}

/// Nor together with one of ours.
#[test]
fn a_filter_above_the_job_and_one_of_ours_do_not_stand_for_slurms() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.cgroup().child("jobs").attach(Flags::Multi, SLURM, &["195:1", "195:3"]);
        node.answers(&plan(Containment::Enforce(list())));
        node.session(ALICE).ok();
        node.answers(&plan(Containment::Inherit));
        node.session(ALICE).fails().says("JA06");
        step.empty();
    });
}

#[test]
fn a_filter_right_above_the_logins_is_pinned_before_there_is_any() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        step.cgroup().child("user").attach(Flags::Override, SLURM, &["195:1", "195:3"]);
        node.answers(&plan(Containment::Inherit));
        node.account(ALICE).ok();
        slurms(node.sshd().ssh(ALICE, LOOK).ok().stands_in(&step.leaf()));
        assert_eq!(names(&step.leaf().filters()), [SLURM]);
    });
}

/// What a login left under another configuration is no filter of Slurm's.
#[test]
fn a_filter_of_ours_does_not_stand_for_slurms() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.answers(&plan(Containment::Enforce(list())));
        node.session(ALICE).ok();
        for containment in [Containment::Inherit, Containment::Both(list())] {
            node.answers(&plan(containment));
            node.session(ALICE).fails().says("JA06");
        }
        step.empty();
    });
}

/// Slurm loads and attaches its program anew at every step's start.
#[test]
fn a_step_that_starts_after_a_login_still_gets_slurms_filter() {
    on_node(|node| {
        let step = constrained(node, Containment::Inherit);
        node.session(ALICE).ok();
        step.job.attach(Flags::Override, SLURM, &["195:1", "195:3"]);
        let other = step.job.child("step_0");
        other.create().attach(Flags::Override, SLURM, &["195:1", "195:3"]);
        slurms(node.probe_in(&other));
        node.session(ALICE).ok();
        assert_eq!(names(&step.leaf().filters()), [SLURM]);
    });
}

#[test]
fn a_job_whose_filter_changes_gets_another_pin() {
    on_node(|node| {
        let step = constrained(node, Containment::Inherit);
        node.session(ALICE).ok();
        step.job.attach(Flags::Override, SLURM, &["195:0"]);
        let outcome = node.sshd().ssh(ALICE, LOOK).ok();
        outcome.devices(&[("/dev/nvidia0", DENIED), ("/dev/nvidia1", OPENS)]);
        assert_eq!(names(&step.leaf().filters()), [SLURM]);
    });
}

#[test]
fn a_hundred_logins_leave_one_pin() {
    on_node(|node| {
        let step = constrained(node, Containment::Inherit);
        node.session(ALICE).ok();
        let first = step.leaf().filters();
        let script =
            "for n in $(seq 99); do pamtester sshd alice open_session >/dev/null || exit 1; done";
        node.sh(script).ok();
        assert_eq!(step.leaf().filters(), first);
        assert_eq!((first.len(), step.leaf().children().len()), (1, 0));
        step.empty();
        assert!(step.finish(), "a cgroup is left");
    });
}

/// Only where another filter has taken its place can it fail to run: a login is not let in then.
#[test]
fn a_filter_that_takes_no_other_beside_it_is_inherited_or_refused() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        step.job.attach(Flags::None, SLURM, &["195:1", "195:3"]);
        node.answers(&plan(Containment::Inherit));
        slurms(node.sshd().ssh(ALICE, LOOK).ok().stands_in(&step.leaf()));
        node.answers(&plan(Containment::Both(list())));
        node.session(ALICE).fails().says("JA06");
    });
}

#[test]
fn the_gpus_that_open_are_counted() {
    on_node(|node| {
        let step = constrained(node, Containment::Inherit);
        let mut plan = plan(Containment::Inherit);
        plan.probes = probes();
        node.answers(&plan);
        node.session(ALICE).ok().says("Joined job 4242 on gpu017: GPUs 2.");
        let entry = node.log.find("adopt", |entry| entry.field("decision") == Some("adopt"));
        assert_eq!(entry.field("devices"), Some("2"), "{}", entry.text);
        step.empty();
    });
}

/// Before Linux 5.6, and under filters of system calls that do not know `openat2`.
#[test]
fn they_are_counted_where_the_kernel_lacks_the_newer_call() {
    on_node(|node| {
        let _step = constrained(node, Containment::Inherit);
        let mut plan = plan(Containment::Inherit);
        plan.probes = probes();
        node.answers(&plan);
        node.session_alone("");
        for error in ["ENOSYS", "EPERM"] {
            let lacking = ["-e", &format!("inject=openat2:error={error}")];
            let outcome = node.session_under_strace("/tmp/strace", &lacking, ALICE);
            outcome.ok().says("Joined job 4242 on gpu017: GPUs 2.");
            assert!(node.read("/tmp/strace").contains("INJECTED"));
        }
    });
}
