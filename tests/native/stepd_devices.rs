//! Devices of logins to a Slurm job: its filter holds and stays, and ours is added.

use protocol::{Allowlist, Containment, Plan};

use crate::support::{
    ALICE, AttachedFilter, DENIED, Flags, LOOK, Node, OPENS, Outcome, Step, on_node, plan, probes,
    run_while_held,
};

/// Delays a login after its move, when its filters are attached.
const AT_PROBES: [&str; 2] = ["-e", "inject=faccessat2:delay_enter=60000000:when=1"];
/// Name of Slurm's own programs.
const SLURM: &str = "Slurm_Cgroup_v2";

/// Returns a list of GPUs 0 and 1 and the devices of every login.
fn two_gpu_list() -> Allowlist {
    let rules = [
        "c:1:-1:rwm",
        "c:5:-1:rwm",
        "c:136:-1:rwm",
        "c:195:0:rw",
        "c:195:1:rw",
    ];
    let mut list = Allowlist::new();
    rules
        .into_iter()
        .for_each(|rule| list.push(rule.parse().unwrap()).unwrap());
    list
}

/// Starts a job whose filter denies GPUs 1 and 3, and a helper that asks for this containment.
fn start_constrained_job(node: &Node, containment: Containment) -> Step {
    let step = node.step(ALICE, &[]);
    step.job.attach(Flags::Override, SLURM, &["195:1", "195:3"]);
    node.answers(&plan(containment));
    step
}

fn filter_names(filters: &[AttachedFilter]) -> Vec<&str> {
    filters.iter().map(|filter| filter.name.as_str()).collect()
}

/// Asserts the devices that Slurm's filter allows.
fn assert_slurm_devices(outcome: Outcome) -> Outcome {
    outcome.devices(&[
        ("/dev/nvidia0", OPENS),
        ("/dev/nvidia1", DENIED),
        ("/dev/nvidia2", OPENS),
        ("/dev/nvidia3", DENIED),
    ])
}

/// Asserts the devices that Slurm's filter and the list both allow.
fn assert_both_devices(outcome: Outcome) -> Outcome {
    outcome.devices(&[
        ("/dev/nvidia0", OPENS),
        ("/dev/nvidia1", DENIED),
        ("/dev/nvidia2", DENIED),
        ("/dev/nvidia3", DENIED),
    ])
}

#[test]
fn filter_of_slurm_is_pinned_only_at_leaf() {
    for containment in [Containment::Inherit, Containment::None] {
        on_node(|node| {
            let step = start_constrained_job(node, containment.clone());
            let before = step.job.filters();
            assert_slurm_devices(node.sshd().ssh(ALICE, LOOK).ok().joins_cgroup(&step.leaf()));
            let pins = step.leaf().filters();
            assert_eq!(filter_names(&pins), [SLURM], "{pins:?}");
            assert!(pins[0].flags == Flags::Multi, "{pins:?}");
            assert_eq!(step.job.filters(), before, "Slurm's own was touched");
            for between in [step.cgroup(), step.cgroup().child("user")] {
                assert!(between.filters().is_empty(), "{}", between.path());
            }
        });
    }
}

/// With accounting by cgroups the daemon moves each added process through `task_special` to another
/// leaf, also those that have outlived their login. The filters hold there too.
#[test]
fn filters_hold_in_leaf_to_which_slurm_moves_logins() {
    on_node(|node| {
        let step = node.step(ALICE, &["accounted"]);
        step.job.attach(Flags::Override, SLURM, &["195:1", "195:3"]);
        node.answers(&plan(Containment::InheritAndEnforce(two_gpu_list())));
        let user = step.cgroup().child("user");
        for _ in 0..2 {
            assert_both_devices(
                node.sshd()
                    .ssh(ALICE, LOOK)
                    .ok()
                    .joins_cgroup(&user.child("task_3")),
            );
            assert_eq!(user.filters().len(), 2, "{:?}", user.filters());
            assert!(
                user.filters()
                    .iter()
                    .all(|filter| filter.flags == Flags::Multi)
            );
            assert!(user.child("task_3").filters().is_empty() && !step.leaf().exists());
        }
        assert!(step.finish(), "something was left");
    });
}

#[test]
fn job_without_required_filter_refuses_login() {
    for containment in [
        Containment::Inherit,
        Containment::InheritAndEnforce(two_gpu_list()),
    ] {
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
fn filter_removed_before_login_refuses_login() {
    on_node(|node| {
        let step = start_constrained_job(node, Containment::Inherit);
        step.job.detach(&step.job.filters()[0]);
        node.session(ALICE).fails().says("JA06");
        step.assert_untouched();
    });
}

#[test]
fn filter_removed_after_login_opens_nothing() {
    for containment in [
        Containment::Inherit,
        Containment::InheritAndEnforce(two_gpu_list()),
    ] {
        on_node(|node| {
            let step = start_constrained_job(node, containment.clone());
            node.session(ALICE).ok();
            step.job.detach(&step.job.filters()[0]);
            let assert_devices = if containment.list().is_some() {
                assert_both_devices
            } else {
                assert_slurm_devices
            };
            assert_devices(node.probe_in(&step.leaf()));
            // The pin keeps Slurm's filter in force, for the next login as well.
            assert_devices(node.sshd().ssh(ALICE, LOOK).ok().joins_cgroup(&step.leaf()));
        });
    }
}

/// The module verifies the filters once more at the end; here one is removed in between.
#[test]
fn filter_removed_during_login_refuses_login() {
    for containment in [
        Containment::Inherit,
        Containment::InheritAndEnforce(two_gpu_list()),
    ] {
        on_node(|node| {
            let step = start_constrained_job(node, containment.clone());
            node.session(ALICE).ok();
            // Only the pin of Slurm's filter is left.
            step.job.detach(&step.job.filters()[0]);
            let harm = || {
                let pins = step.leaf().filters();
                step.leaf()
                    .detach(pins.iter().find(|filter| filter.name == SLURM).unwrap());
            };
            node.answers(&Plan {
                probes: probes(),
                ..plan(containment.clone())
            });
            let login = || node.session_under_strace("/tmp/strace", &AT_PROBES, ALICE);
            run_while_held(node, login, harm).fails().says("JA06");
            step.assert_empty();
        });
    }
}

/// The plan has no containment, but the site requires some, and a filter existed when the module
/// checked.
#[test]
fn filter_removed_before_move_refuses_required_devices() {
    on_node(|node| {
        let step = start_constrained_job(node, Containment::None);
        node.session_alone("require_devices");
        // The second message to the daemon is the order to move.
        let delay = ["-e", "inject=sendto:delay_enter=60000000:when=2"];
        let login = || node.session_under_strace("/tmp/strace", &delay, ALICE);
        let harm = || step.job.detach(&step.job.filters()[0]);
        run_while_held(node, login, harm).fails().says("JA06");
        step.assert_empty();
    });
}

#[test]
fn list_and_filter_of_slurm_hold_together() {
    for containment in [
        Containment::InheritAndEnforce(two_gpu_list()),
        Containment::Enforce(two_gpu_list()),
    ] {
        on_node(|node| {
            let step = start_constrained_job(node, containment.clone());
            assert_both_devices(node.sshd().ssh(ALICE, LOOK).ok().joins_cgroup(&step.leaf()));
            assert_eq!(
                (step.leaf().filters().len(), step.leaf().our_filters().len()),
                (2, 1)
            );
            assert_eq!(filter_names(&step.job.filters()), [SLURM]);
            let entry = node
                .log
                .find("adopt", |entry| entry.field("decision") == Some("adopt"));
            assert_eq!(
                entry.field("containment"),
                Some(containment.as_str()),
                "{}",
                entry.text
            );
        });
    }
}

#[test]
fn list_is_attached_to_leaf_and_never_to_cgroup_of_slurm() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.answers(&plan(Containment::Enforce(two_gpu_list())));
        let outcome = node.sshd().ssh(ALICE, LOOK).ok().joins_cgroup(&step.leaf());
        outcome.devices(&[("/dev/nvidia1", OPENS), ("/dev/nvidia2", DENIED)]);
        assert_eq!(step.leaf().our_filters().len(), 1);
        for above in [step.job.clone(), step.cgroup(), step.cgroup().child("user")] {
            assert!(above.filters().is_empty(), "{}", above.path());
        }
    });
}

/// The scheduler's own filter is on the job or below it.
#[test]
fn filter_above_job_does_not_count_as_filter_of_slurm() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.cgroup()
            .child("jobs")
            .attach(Flags::Override, SLURM, &["195:1", "195:3"]);
        for containment in [
            Containment::Inherit,
            Containment::InheritAndEnforce(two_gpu_list()),
        ] {
            node.answers(&plan(containment));
            node.account(ALICE).fails().says("JA06");
            node.session(ALICE).fails().says("JA06");
        }
        step.assert_untouched();
    });
}

/// Together with ours it does not count either.
#[test]
fn filter_above_job_with_ours_does_not_count_as_filter_of_slurm() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.cgroup()
            .child("jobs")
            .attach(Flags::Multi, SLURM, &["195:1", "195:3"]);
        node.answers(&plan(Containment::Enforce(two_gpu_list())));
        node.session(ALICE).ok();
        node.answers(&plan(Containment::Inherit));
        node.session(ALICE).fails().says("JA06");
        step.assert_empty();
    });
}

#[test]
fn filter_directly_above_leaf_is_pinned_before_first_login() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        step.cgroup()
            .child("user")
            .attach(Flags::Override, SLURM, &["195:1", "195:3"]);
        node.answers(&plan(Containment::Inherit));
        node.account(ALICE).ok();
        assert_slurm_devices(node.sshd().ssh(ALICE, LOOK).ok().joins_cgroup(&step.leaf()));
        assert_eq!(filter_names(&step.leaf().filters()), [SLURM]);
    });
}

/// A filter that a login under another configuration left is not Slurm's.
#[test]
fn our_filter_does_not_count_as_filter_of_slurm() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.answers(&plan(Containment::Enforce(two_gpu_list())));
        node.session(ALICE).ok();
        for containment in [
            Containment::Inherit,
            Containment::InheritAndEnforce(two_gpu_list()),
        ] {
            node.answers(&plan(containment));
            node.session(ALICE).fails().says("JA06");
        }
        step.assert_empty();
    });
}

/// Slurm loads and attaches its program again at the start of every step.
#[test]
fn step_started_after_login_gets_filter_of_slurm() {
    on_node(|node| {
        let step = start_constrained_job(node, Containment::Inherit);
        node.session(ALICE).ok();
        step.job.attach(Flags::Override, SLURM, &["195:1", "195:3"]);
        let other = step.job.child("step_0");
        other
            .create()
            .attach(Flags::Override, SLURM, &["195:1", "195:3"]);
        assert_slurm_devices(node.probe_in(&other));
        node.session(ALICE).ok();
        assert_eq!(filter_names(&step.leaf().filters()), [SLURM]);
    });
}

#[test]
fn changed_filter_of_job_gets_new_pin() {
    on_node(|node| {
        let step = start_constrained_job(node, Containment::Inherit);
        node.session(ALICE).ok();
        step.job.attach(Flags::Override, SLURM, &["195:0"]);
        let outcome = node.sshd().ssh(ALICE, LOOK).ok();
        outcome.devices(&[("/dev/nvidia0", DENIED), ("/dev/nvidia1", OPENS)]);
        assert_eq!(filter_names(&step.leaf().filters()), [SLURM]);
    });
}

#[test]
fn hundred_logins_leave_one_pin() {
    on_node(|node| {
        let step = start_constrained_job(node, Containment::Inherit);
        node.session(ALICE).ok();
        let first = step.leaf().filters();
        let script =
            "for n in $(seq 99); do pamtester sshd alice open_session >/dev/null || exit 1; done";
        node.sh(script).ok();
        assert_eq!(step.leaf().filters(), first);
        assert_eq!((first.len(), step.leaf().children().len()), (1, 0));
        step.assert_empty();
        assert!(step.finish(), "a cgroup is left");
    });
}

/// Our filter fails to load beside it only if another one has taken its place. Then the login is
/// refused.
#[test]
fn exclusive_filter_is_inherited_or_refuses_login() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        step.job.attach(Flags::None, SLURM, &["195:1", "195:3"]);
        node.answers(&plan(Containment::Inherit));
        assert_slurm_devices(node.sshd().ssh(ALICE, LOOK).ok().joins_cgroup(&step.leaf()));
        node.answers(&plan(Containment::InheritAndEnforce(two_gpu_list())));
        node.session(ALICE).fails().says("JA06");
    });
}

#[test]
fn gpus_that_open_are_counted() {
    on_node(|node| {
        let step = start_constrained_job(node, Containment::Inherit);
        let mut plan = plan(Containment::Inherit);
        plan.probes = probes();
        node.answers(&plan);
        node.session(ALICE)
            .ok()
            .says("Joined job 4242 on gpu017: 2 GPUs.");
        let entry = node
            .log
            .find("adopt", |entry| entry.field("decision") == Some("adopt"));
        assert_eq!(entry.field("devices"), Some("2"), "{}", entry.text);
        step.assert_empty();
    });
}

/// Kernels before 5.6 lack `openat2`, and so do seccomp filters that do not know it.
#[test]
fn gpus_are_counted_without_openat2() {
    on_node(|node| {
        let _step = start_constrained_job(node, Containment::Inherit);
        let mut plan = plan(Containment::Inherit);
        plan.probes = probes();
        node.answers(&plan);
        node.session_alone("");
        for error in ["ENOSYS", "EPERM"] {
            let lacking = ["-e", &format!("inject=openat2:error={error}")];
            let outcome = node.session_under_strace("/tmp/strace", &lacking, ALICE);
            outcome.ok().says("Joined job 4242 on gpu017: 2 GPUs.");
            assert!(node.read("/tmp/strace").contains("INJECTED"));
        }
    });
}
