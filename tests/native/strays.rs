//! What is left of users who have no job: shown, ended, and nobody else's.

use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::{ALICE, BOB, Cgroup, HELPER, Node, OPS, SPOOL, User, eventually, on_node};

/// A process of a user's outside of jobs, and nsenter(1), which waits for it.
struct Stray(Child, String);

impl Stray {
    fn new(node: &Node, user: User, script: &str) -> Self {
        Self::start_in(node, &node.outside(), user, script)
    }

    fn start_in(node: &Node, cgroup: &Cgroup, user: User, script: &str) -> Self {
        let id = user.uid.to_string();
        let mut command = node.daemon(cgroup, "setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "sh", "-c", script]);
        let enters = command.stdout(Stdio::null()).spawn().unwrap();
        let children = format!("/proc/{0}/task/{0}/children", enters.id());
        let child = || std::fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
        eventually("it is there", || !child().is_empty());
        let stray = Self(enters, format!("/proc/{}/status", child()));
        eventually("it is the user's", || stray.status().contains(&format!("\nUid:\t{id}\t")));
        stray
    }

    fn status(&self) -> String {
        std::fs::read_to_string(&self.1).unwrap_or_default()
    }

    fn runs(&self) -> bool {
        !matches!(self.status(), text if text.is_empty() || text.contains("\nState:\tZ"))
    }
}

impl Drop for Stray {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const STAYS: &str = "exec sleep infinity";

fn listed(node: &Node, arguments: &[&str], status: i32) -> Vec<Value> {
    let outcome = node.job_adopt(&[&["strays", "--json"], arguments].concat()).exits(status);
    let list: Value = serde_json::from_str(&outcome.stdout).unwrap();
    list["strays"].as_array().unwrap().clone()
}

#[test]
fn a_name_of_the_users_own_does_not_reach_the_terminal() {
    on_node(|node| {
        let cgroup = node.outside().child("\u{1b}[1m");
        let _one = Stray::start_in(node, cgroup.create(), ALICE, STAYS);
        let outcome = node.job_adopt(&["strays"]).exits(1).says("/?[1m");
        assert!(!outcome.output().contains('\u{1b}'), "{outcome}");
    });
}

#[test]
fn each_is_shown_with_its_cgroup_and_its_devices() {
    on_node(|node| {
        node.job_adopt(&["strays"]).ok();
        let cron = node.outside().child("cron.service");
        let _one = Stray::start_in(node, cron.create(), ALICE, "exec sleep infinity </dev/loop0");
        let strays = listed(node, &[], 1);
        assert_eq!(strays.len(), 1, "{strays:?}");
        let one = &strays[0];
        assert_eq!((one["user"].as_str(), one["uid"].as_u64()), (Some("alice"), Some(1001)));
        assert_eq!(one["cgroup"].as_str(), Some(cron.path()));
        assert_eq!(one["origin"].as_str(), Some("cron"));
        assert_eq!(one["devices"], serde_json::json!(["/dev/loop0"]));
        assert_eq!(one["command"].as_str(), Some("sleep"));
        node.job_adopt(&["strays"]).exits(1).says("alice").says("/dev/loop0").says("cron");
        assert!(listed(node, &["--user", "bob"], 0).is_empty());
        node.configure("always_allowed = /dev/loop0\n");
        assert_eq!(listed(node, &["--user", "1001"], 1)[0]["devices"], serde_json::json!([]));
        let _bob = Stray::new(node, BOB, STAYS);
        assert_eq!(listed(node, &["--user", "alice"], 1).len(), 1);
        assert_eq!(listed(node, &[], 1).len(), 2);
    });
}

/// One that ignores SIGTERM, one that is stopped, and one whose every process has another follow it.
#[test]
fn they_are_ended_with_what_they_start() {
    on_node(|node| {
        let deaf = Stray::new(node, ALICE, "trap '' TERM; while :; do sleep 1; done");
        let stopped = Stray::new(node, ALICE, "kill -STOP $$; sleep infinity");
        node.write("/usr/bin/chain", "#!/bin/sh\ntrap '' TERM\nsleep 0.02\nsetsid -f \"$0\"\n");
        node.mode("/usr/bin/chain", 0o755);
        let _chain = Stray::new(node, ALICE, "setsid -f chain; exec sleep infinity");
        let theirs = Stray::new(node, BOB, STAYS);
        node.job_adopt(&["strays", "--kill", "--user", "alice"]).ok();
        eventually("they have ended", || !deaf.runs() && !stopped.runs());
        assert!(theirs.runs(), "bob's was ended");
        let strays = listed(node, &[], 1);
        assert!(strays.iter().all(|one| one["uid"] == BOB.uid), "{strays:?}");
        let ended = node.job_adopt(&["strays", "--kill", "--json"]).ok();
        assert!(ended.stdout.contains(r#"{"ended":1,"schema":1,"strays":[]}"#), "{ended}");
        eventually("bob's has ended", || !theirs.runs());
    });
}

#[test]
fn nobody_else_has_any() {
    on_node(|node| {
        node.configure("exempt_uids = 1002\n");
        node.arguments("exempt_groups=ops");
        let job = node.job(ALICE, "4242").start();
        let spared = [
            Stray::new(node, ALICE, STAYS),
            Stray::new(node, BOB, STAYS),
            Stray::new(node, OPS, STAYS),
            Stray::new(node, HELPER, STAYS),
            Stray::new(node, User { name: "nobody", uid: 65_534 }, STAYS),
            Stray::new(node, User { name: "none", uid: 70_000 }, STAYS),
        ];
        node.job_adopt(&["strays", "--kill"]).ok();
        assert!(spared.iter().all(Stray::runs));
        job.record("{");
        node.job_adopt(&["strays", "--kill"]).ok();
        assert!(spared[0].runs(), "a broken record may stand for a job");
        node.sh(&format!("rm {}", job.record_path())).ok();
        node.job_adopt(&["strays", "--kill"]).ok();
        eventually("alice's has ended", || !spared[0].runs());
        assert!(spared[1..].iter().all(Stray::runs));
        assert!(job.cgroup.pids().is_empty(), "the job is none any more");
    });
}

/// An admin who is not exempt, by sudo(8) for example.
#[test]
fn the_command_does_not_end_who_called_it() {
    on_node(|node| {
        node.sh("install -m 4755 /bin/dash /usr/bin/become").ok();
        let script = "become -p -c 'job-adopt strays --kill'; echo $? >/tmp/status; sleep 60";
        let caller = Stray::new(node, ALICE, script);
        eventually("it has run", || node.exists("/tmp/status"));
        assert!(caller.runs());
        assert_eq!(node.read("/tmp/status"), "0\n");
    });
}

#[test]
fn an_epilog_ends_them_with_the_last_job() {
    on_node(|node| {
        let _one = node.job(ALICE, "1").start();
        let two = node.job(ALICE, "2").start();
        let stray = Stray::new(node, ALICE, STAYS);
        let theirs = Stray::new(node, BOB, STAYS);
        node.job_adopt(&["unregister", "--strays", "1"]).ok();
        assert!(stray.runs() && two.cgroup.pids().len() == 1, "she has another job");
        node.job_adopt(&["unregister", "2"]).ok();
        assert!(stray.runs(), "nobody asked for that");
        two.record(
            &serde_json::json!({
                "version": 1, "id": "2", "uid": 1001, "cgroup": two.cgroup.path(), "cdi": [],
            })
            .to_string(),
        );
        node.job_adopt(&["unregister", "--strays", "2"]).ok();
        eventually("it has ended", || !stray.runs());
        assert!(theirs.runs());
        node.job_adopt(&["unregister", "--strays", "2"]).ok().says("no job 2");
    });
}

#[test]
fn where_logins_join_no_jobs_nobody_is_outside() {
    on_node(|node| {
        let stray = Stray::new(node, ALICE, STAYS);
        let refuses = |why: &str| {
            node.job_adopt(&["strays", "--kill"]).exits(3).says(why);
            let _job = node.job(ALICE, "1").start();
            node.job_adopt(&["unregister", "--strays", "1"]).ok().says("strays are not ended");
            assert!(stray.runs(), "{why}");
        };
        node.arguments("observe");
        refuses("no session line");
        // Who has no job may log in, and stay.
        node.arguments("action_no_jobs=ignore");
        refuses("no session line");
        node.arguments("");
        node.write("/run/job-adopt/off", "");
        refuses("/run/job-adopt/off");
        node.sh("rm /run/job-adopt/off").ok();
        node.configure("enforce = if-exists:/etc/compute-node\n");
        refuses("enforce");
    });
}

/// Who is exempt cannot be told: nobody is ended.
#[test]
fn a_group_that_cannot_be_looked_up_exempts_everybody() {
    on_node(|node| {
        let stray = Stray::new(node, OPS, STAYS);
        node.arguments("exempt_groups=ops");
        node.sh("mv /etc/group /etc/group.away").ok();
        node.job_adopt(&["strays", "--kill"]).exits(3).says("look up group ops");
        assert!(stray.runs());
    });
}

/// Whose job such a step is of, cannot be told.
#[test]
fn a_job_of_slurm_without_an_extern_step_may_be_anybodys() {
    on_node(|node| {
        let stray = Stray::new(node, ALICE, STAYS);
        node.folder(SPOOL, 0o755);
        node.configure(&format!("slurm_spool = {SPOOL}\n"));
        let socket = format!("{SPOOL}/{}_77.0", node.name());
        node.write(&socket, "");
        node.job_adopt(&["strays", "--kill"]).exits(3).says("jobs without an extern step");
        assert!(stray.runs());
        node.sh(&format!("rm {socket}")).ok();
        node.job_adopt(&["strays", "--kill"]).ok();
        eventually("it has ended", || !stray.runs());
    });
}
