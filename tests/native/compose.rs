//! Our filters beside those of other owners: the result is never wider than what was in force.

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::json;

use crate::support::{
    ALICE, AttachedFilter, Cgroup, DENIED, Flags, Job, Node, OPENS, Outcome, on_node,
};

/// Levels at which a filter of another owner may sit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Site,
    Parent,
    Job,
}

impl Level {
    const ALL: [Self; 3] = [Self::Site, Self::Parent, Self::Job];

    fn cgroup(self, node: &Node) -> Cgroup {
        let jobs = node.cgroup().child("jobs");
        match self {
            Self::Site => node.cgroup().clone(),
            Self::Parent => jobs,
            Self::Job => jobs.child("job-4242"),
        }
    }
}

/// Starts a job that may open GPU 0 and 2, below a foreign filter that denies GPU 2.
fn start_job_below_filter(node: &Node, flags: Flags, level: Level) -> Job<'_> {
    let job = node
        .job(ALICE, "4242")
        .devices(&["/dev/nvidia0", "/dev/nvidia2"])
        .start();
    level.cgroup(node).attach(flags, "foreign", &["195:2"]);
    job
}

/// Runs `body` with such a job for each of these levels. The end of a job removes its filters.
fn for_each_level(node: &Node, flags: Flags, levels: &[Level], body: impl Fn(Level, &Job<'_>)) {
    for level in levels {
        let job = start_job_below_filter(node, flags, *level);
        body(*level, &job);
        drop(job);
        if *level != Level::Job {
            let cgroup = level.cgroup(node);
            cgroup
                .filters()
                .iter()
                .for_each(|filter| cgroup.detach(filter));
        }
    }
}

/// Asserts that only devices on both lists open.
fn assert_both_lists_hold(outcome: Outcome) -> Outcome {
    outcome.devices(&[
        ("/dev/nvidia0", OPENS),
        ("/dev/nvidia1", DENIED),
        ("/dev/nvidia2", DENIED),
        ("/dev/nvidia3", DENIED),
    ])
}

fn filter_names(filters: &[AttachedFilter]) -> Vec<&str> {
    filters.iter().map(|filter| filter.name.as_str()).collect()
}

#[test]
fn our_filter_is_attached_where_there_is_no_other() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        node.pam(ALICE).ok();
        let ours = job.cgroup.filters();
        assert_eq!(ours.len(), 1, "{ours:?}");
        assert!(
            ours[0].is_ours() && ours[0].flags == Flags::Multi,
            "{ours:?}"
        );
        // Our filter confines the job itself too, not only its logins.
        node.probe_in(&job.cgroup)
            .devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)]);
    });
}

#[test]
fn our_filter_joins_multi_filters_at_any_level() {
    on_node(|node| {
        for_each_level(node, Flags::Multi, &Level::ALL, |level, job| {
            assert_both_lists_hold(node.look(ALICE).ok().joins_cgroup(&job.cgroup));
            assert_eq!(job.cgroup.our_filters().len(), 1, "{level:?}");
            let effective = job.cgroup.effective();
            assert!(
                filter_names(&effective).contains(&"foreign"),
                "{level:?}: {effective:?}"
            );
        });
    });
}

/// A filter attached beside an overridable one would disable it, so the login pins its program
/// first.
#[test]
fn override_filter_above_is_pinned() {
    on_node(|node| {
        for_each_level(
            node,
            Flags::Override,
            &[Level::Site, Level::Parent],
            |level, job| {
                assert_both_lists_hold(node.look(ALICE).ok().joins_cgroup(&job.cgroup));
                let here = job.cgroup.filters();
                assert!(
                    here.iter().all(|filter| filter.flags == Flags::Multi),
                    "{level:?}: {here:?}"
                );
                assert_eq!(
                    (here.len(), job.cgroup.our_filters().len()),
                    (2, 1),
                    "{level:?}: {here:?}"
                );
                assert!(
                    filter_names(&here).contains(&"foreign"),
                    "{level:?}: {here:?}"
                );
            },
        );
    });
}

#[test]
fn override_filter_on_job_puts_logins_into_leaf() {
    on_node(|node| {
        let job = start_job_below_filter(node, Flags::Override, Level::Job);
        let leaf = job.cgroup.child("job-adopt");
        assert_both_lists_hold(node.look(ALICE).ok().joins_cgroup(&leaf));
        assert_eq!(
            filter_names(&job.cgroup.filters()),
            ["foreign"],
            "the scheduler's own was touched"
        );
        assert_eq!((leaf.filters().len(), leaf.our_filters().len()), (2, 1));
    });
}

#[test]
fn pinned_filter_outlives_its_original() {
    on_node(|node| {
        for_each_level(node, Flags::Override, &Level::ALL, |level, job| {
            node.pam(ALICE).ok();
            let leaf = if level == Level::Job {
                job.cgroup.child("job-adopt")
            } else {
                job.cgroup.clone()
            };
            let original = level.cgroup(node);
            original.detach(&original.filters()[0]);
            assert_both_lists_hold(node.probe_in(&leaf));
            assert_both_lists_hold(node.look(ALICE).ok().joins_cgroup(&leaf));
        });
    });
}

/// Nothing can be attached below such a filter, so no login can be confined.
#[test]
fn exclusive_filter_at_or_above_job_refuses_login() {
    on_node(|node| {
        for_each_level(node, Flags::None, &Level::ALL, |level, job| {
            node.log.clear();
            node.session(ALICE).fails();
            node.log.decision("JA06");
            assert_eq!(job.cgroup.pids().len(), 1, "{level:?}");
            assert!(job.cgroup.our_filters().is_empty() && job.cgroup.children().is_empty());
        });
    });
}

/// A level in between that allows more proves nothing about the level above it.
#[test]
fn nearest_filter_decides_how_ours_is_attached() {
    on_node(|node| {
        let job = start_job_below_filter(node, Flags::Override, Level::Site);
        Level::Parent
            .cgroup(node)
            .attach(Flags::Multi, "between", &["195:0"]);
        let outcome = node.look(ALICE).ok().joins_cgroup(&job.cgroup);
        outcome.devices(&[("/dev/nvidia0", DENIED), ("/dev/nvidia1", DENIED)]);
        assert_eq!(job.cgroup.our_filters().len(), 1);
    });
}

#[test]
fn job_without_containment_keeps_existing_filters() {
    on_node(|node| {
        let auto = json!({ "DevicePolicy": "auto" });
        let job = node.job(ALICE, "4242").with("options", auto).start();
        for flags in Flags::ALL {
            for level in Level::ALL {
                let cgroup = level.cgroup(node);
                cgroup.attach(flags, "foreign", &["195:2"]);
                let before = cgroup.filters();
                let outcome = node.look(ALICE).ok();
                outcome.devices(&[("/dev/nvidia1", OPENS), ("/dev/nvidia2", DENIED)]);
                assert!(job.cgroup.our_filters().is_empty(), "{flags:?} {level:?}");
                assert_eq!(cgroup.filters(), before, "{flags:?} {level:?}");
                cgroup.detach(&before[0]);
            }
        }
    });
}

/// The record asks for no containment, and the scheduler has one.
#[test]
fn filter_of_scheduler_is_reported_as_inherited() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let options = [
            "--id", "4242", "--user", "alice", "--policy", "auto", "--cgroup",
        ];
        let register = [&["register"], &options[..], &[job.cgroup.path()]].concat();
        let assert_reported = |containment: &str| {
            node.log.clear();
            node.job_adopt(&register).ok();
            node.log.line(&format!(" containment={containment}"));
            let listed = node.job_adopt(&["list", "--json"]).ok();
            listed.says(&format!("\"containment\":\"{containment}\""));
            let resolved = job
                .resolved()
                .ok()
                .says(&format!("\ncontainment: {containment}\n"));
            resolved.says(&format!("\nin force: {containment}\n"));
        };
        assert_reported("none");
        for flags in Flags::ALL {
            job.cgroup.attach(flags, "foreign", &["195:2"]);
            assert_reported("inherit");
            job.cgroup.detach(&job.cgroup.filters()[0]);
        }
        // A filter above the job is not the job's.
        Level::Parent
            .cgroup(node)
            .attach(Flags::Multi, "above", &["195:2"]);
        assert_reported("none");
    });
}

#[test]
fn hundred_logins_leave_as_many_filters_as_one() {
    for flags in [None, Some(Flags::Multi), Some(Flags::Override)] {
        on_node(|node| {
            let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
            if let Some(flags) = flags {
                Level::Parent
                    .cgroup(node)
                    .attach(flags, "foreign", &["195:2"]);
            }
            node.pam(ALICE).ok();
            let first = job.cgroup.filters();
            let loops = "for n in $(seq 100); do pamtester sshd alice acct_mgmt open_session close_session >/dev/null || exit 1; done";
            node.sh(loops).ok();
            assert_eq!(job.cgroup.filters(), first, "{flags:?}");
            assert!(job.cgroup.children().is_empty(), "{flags:?}");
        });
    }
}

/// The list has the maximum length, and no two of its entries can be merged.
#[test]
fn list_of_maximum_length_is_loaded() {
    on_node(|node| {
        let folder = "/dev/many";
        let mode = Mode::from_bits_truncate(0o666);
        node.create_dir(folder, 0o755);
        for number in (0..=2000).step_by(2) {
            let path = node.path(&format!("{folder}/{number}"));
            mknod(&path, SFlag::S_IFCHR, mode, makedev(300, number)).unwrap();
        }
        let names: Vec<String> = (0..1000).map(|n| format!("{folder}/{}", 2 * n)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let job = node.job(ALICE, "4242").devices(&names).start();
        node.pam(ALICE).ok();
        assert_eq!(job.cgroup.our_filters().len(), 1);
        let last = format!("{folder}/1998");
        let other = format!("{folder}/2000");
        let seen = Outcome::run(node.daemon(&job.cgroup, "probe").args([&last, &other])).ok();
        seen.devices(&[(&last, OPENS), (&other, DENIED)]);
    });
}

#[test]
fn changed_list_replaces_our_filter() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        node.pam(ALICE).ok();
        let before = job.cgroup.filters();
        let record = node
            .read(&job.record_path())
            .replace("/dev/nvidia0", "/dev/nvidia1");
        job.record(&record);
        let outcome = node.look(ALICE).ok();
        outcome.devices(&[("/dev/nvidia0", DENIED), ("/dev/nvidia1", OPENS)]);
        let after = job.cgroup.filters();
        assert_eq!(after.len(), 1, "{after:?}");
        assert_ne!(before[0].name, after[0].name);
    });
}

/// A scheduler can still confine its own steps below our filter.
#[test]
fn later_filter_of_scheduler_below_ours_is_attached() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let step = job.cgroup.child("step");
        step.create();
        node.pam(ALICE).ok();
        for flags in Flags::ALL {
            step.attach(flags, "step", &["195:0"]);
            node.probe_in(&step)
                .devices(&[("/dev/nvidia0", DENIED), ("/dev/nvidia1", DENIED)]);
            step.detach(&step.filters()[0]);
        }
    });
}

/// A login that fails leaves the filter in place: another login may rely on it.
#[test]
fn failed_login_leaves_filter_in_force() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        node.pam(ALICE).ok();
        let filters = job.cgroup.filters();
        let record = node.read(&job.record_path());
        let broken = [
            record.replace("[\"/dev/nvidia0\",\"rw\"]", "\"/dev/nvidia0\""),
            record.replace("closed", "open"),
            "{".to_owned(),
        ];
        for text in broken {
            assert_ne!(text, record);
            job.record(&text);
            node.pam(ALICE).fails();
            assert_eq!(job.cgroup.filters(), filters);
        }
        job.record(&record);
        job.stamp("1002:4242");
        node.pam(ALICE).fails();
        assert_eq!(job.cgroup.filters(), filters);
        node.probe_in(&job.cgroup)
            .devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)]);
    });
}
