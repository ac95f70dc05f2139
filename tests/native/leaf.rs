//! Choice of the cgroup that a job's logins join.

use crate::support::{ALICE, Cgroup, DENIED, OPENS, on_node};

#[test]
fn job_with_children_gets_leaf_beside_children() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        job.cgroup.child("step").create();
        let outcome = node.look(ALICE).ok();
        let outcome = outcome.joins_cgroup(&job.cgroup.child("job-adopt"));
        outcome.devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)]);
    });
}

#[test]
fn job_that_enables_controllers_gets_leaf() {
    on_node(|node| {
        let cgroup = node.cgroup().child("jobs").child("parent");
        cgroup.create();
        let inner = cgroup.child("inner");
        let job = node.job(ALICE, "4242").in_cgroup(inner).start();
        // The process of the job moves down, so that the job can enable controllers for its
        // children.
        job.cgroup.child("step").create().write("cgroup.procs", &job.cgroup.pids()[0].to_string());
        let available = job.cgroup.read("cgroup.controllers");
        if let Some(controller) = available.split_whitespace().next() {
            job.cgroup.write("cgroup.subtree_control", &format!("+{controller}"));
        }
        node.look(ALICE).ok().joins_cgroup(&job.cgroup.child("job-adopt"));
    });
}

#[test]
fn record_names_leaf() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").with("leaf", "logins".into()).start();
        node.look(ALICE).ok().joins_cgroup(&job.cgroup.child("logins"));
    });
}

#[test]
fn refused_login_leaves_no_leaf() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").with("leaf", "logins".into()).start();
        job.cgroup.freeze(true);
        node.pam(ALICE).fails();
        let left: Vec<Cgroup> = job.cgroup.children();
        assert!(left.is_empty(), "{left:?}");
        job.cgroup.freeze(false);
        node.pam(ALICE).ok();
        assert_eq!(job.cgroup.children().len(), 1);
    });
}
