//! Processes of users without a job: they are shown and ended, and no others.

use serde_json::Value;

use crate::support::{
    ALICE, BOB, HELPER, Node, OPS, Process, ROOT, SPOOL, User, eventually, on_node,
};

const STAYS: &str = "exec sleep infinity";

fn list_strays(node: &Node, arguments: &[&str], status: i32) -> Vec<Value> {
    let outcome = node
        .job_adopt(&[&["strays", "--json"], arguments].concat())
        .exits(status);
    let list: Value = serde_json::from_str(&outcome.stdout).unwrap();
    list["strays"].as_array().unwrap().clone()
}

#[test]
fn name_chosen_by_user_is_escaped_on_terminal() {
    on_node(|node| {
        let cgroup = node.outside().child("\u{1b}[1m");
        let _one = Process::start_in(node, cgroup.create(), ALICE, STAYS);
        let outcome = node.job_adopt(&["strays"]).exits(1).says("/?[1m");
        assert!(!outcome.output().contains('\u{1b}'), "{outcome}");
    });
}

#[test]
fn each_stray_is_listed_with_cgroup_and_devices() {
    on_node(|node| {
        node.job_adopt(&["strays"]).ok();
        let cron = node.outside().child("cron.service");
        let _one = Process::start_in(
            node,
            cron.create(),
            ALICE,
            "exec sleep infinity </dev/loop0",
        );
        let strays = list_strays(node, &[], 1);
        assert_eq!(strays.len(), 1, "{strays:?}");
        let one = &strays[0];
        assert_eq!(
            (one["user"].as_str(), one["uid"].as_u64()),
            (Some("alice"), Some(1001))
        );
        assert_eq!(one["cgroup"].as_str(), Some(cron.path()));
        assert_eq!(one["origin"].as_str(), Some("cron"));
        assert_eq!(one["devices"], serde_json::json!(["/dev/loop0"]));
        assert_eq!(one["command"].as_str(), Some("sleep"));
        node.job_adopt(&["strays"])
            .exits(1)
            .says("alice")
            .says("/dev/loop0")
            .says("cron");
        assert!(list_strays(node, &["--user", "bob"], 0).is_empty());
        node.configure("always_allowed = /dev/loop0\n");
        assert_eq!(
            list_strays(node, &["--user", "1001"], 1)[0]["devices"],
            serde_json::json!([])
        );
        let _bob = Process::new(node, BOB, STAYS);
        assert_eq!(list_strays(node, &["--user", "alice"], 1).len(), 1);
        assert_eq!(list_strays(node, &[], 1).len(), 2);
    });
}

/// No login joins the job of a record then, and nothing shows whether it runs.
#[test]
fn job_of_record_is_unknown_where_no_login_reads_records() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let outside = Process::new(node, ALICE, STAYS);
        node.job_adopt(&["list"]).ok().says("running");
        node.job_adopt(&["strays"]).ok();
        node.configure("sources = slurm\n");
        node.account(ALICE).fails();
        let why = "job 4242: no login reads its record, since registry is not among the sources";
        node.job_adopt(&["list"])
            .ok()
            .says("unknown")
            .says(why)
            .omits("running");
        assert_eq!(list_strays(node, &[], 3).len(), 1);
        node.job_adopt(&["strays"]).exits(3).says(why);
        node.job_adopt(&["strays", "--kill"]).exits(3).says(why);
        node.job_adopt(&["strays", "--kill", "--user", "alice"])
            .exits(3)
            .says(why);
        let _bob = Process::new(node, BOB, STAYS);
        assert_eq!(list_strays(node, &["--user", "bob"], 1).len(), 1);
        assert!(outside.runs(), "what may belong to a job was ended");
        assert!(!job.cgroup.pids().is_empty(), "the job was ended");
    });
}

/// The first ignores SIGTERM, the second is stopped, and each process of the third starts another.
#[test]
fn strays_are_ended_with_their_children() {
    on_node(|node| {
        let deaf = Process::new(node, ALICE, "trap '' TERM; while :; do sleep 1; done");
        let stopped = Process::new(node, ALICE, "kill -STOP $$; sleep infinity");
        node.write(
            "/usr/bin/chain",
            "#!/bin/sh\ntrap '' TERM\nsleep 0.02\nsetsid -f \"$0\"\n",
        );
        node.set_mode("/usr/bin/chain", 0o755);
        let _chain = Process::new(node, ALICE, "setsid -f chain; exec sleep infinity");
        let theirs = Process::new(node, BOB, STAYS);
        node.job_adopt(&["strays", "--kill", "--user", "alice"])
            .ok();
        eventually("they have ended", || !deaf.runs() && !stopped.runs());
        assert!(theirs.runs(), "bob's was ended");
        let strays = list_strays(node, &[], 1);
        assert!(strays.iter().all(|one| one["uid"] == BOB.uid), "{strays:?}");
        let ended = node.job_adopt(&["strays", "--kill", "--json"]).ok();
        assert!(
            ended
                .stdout
                .contains(r#"{"ended":1,"schema":1,"strays":[],"unowned":[]}"#),
            "{ended}"
        );
        eventually("bob's has ended", || !theirs.runs());
    });
}

#[test]
fn only_users_without_job_have_strays() {
    on_node(|node| {
        node.configure("exempt_uids = 1002\n");
        node.arguments("exempt_groups=ops");
        let job = node.job(ALICE, "4242").start();
        let spared = [
            Process::new(node, ALICE, STAYS),
            Process::new(node, BOB, STAYS),
            Process::new(node, OPS, STAYS),
            Process::new(node, HELPER, STAYS),
            Process::new(
                node,
                User {
                    name: "nobody",
                    uid: 65_534,
                },
                STAYS,
            ),
            Process::new(
                node,
                User {
                    name: "none",
                    uid: 70_000,
                },
                STAYS,
            ),
        ];
        node.job_adopt(&["strays", "--kill"]).ok();
        assert!(spared.iter().all(Process::runs));
        job.record("{");
        node.job_adopt(&["strays", "--kill"]).ok();
        assert!(spared[0].runs(), "a broken record may stand for a job");
        node.sh(&format!("rm {}", job.record_path())).ok();
        node.job_adopt(&["strays", "--kill"])
            .exits(3)
            .says("registered as job 4242");
        assert!(spared[0].runs(), "its record may be in another registry");
        job.unstamp();
        node.job_adopt(&["strays", "--kill"]).ok();
        eventually("alice's has ended", || !spared[0].runs());
        assert!(spared[1..].iter().all(Process::runs));
        assert!(job.cgroup.pids().is_empty(), "the job is none any more");
    });
}

/// Neither the uid inside nor the login uid tells, which the process has set to that of bob.
#[test]
fn container_process_is_stray_of_namespace_owner() {
    on_node(|node| {
        let _job = node.job(BOB, "7").start();
        let pretend = format!("echo {} >/proc/self/loginuid", BOB.uid);
        let theirs = Process::start_container(node, BOB, "true");
        for script in ["true", &pretend] {
            let container = Process::start_container(node, ALICE, script);
            let strays = list_strays(node, &["--user", "alice"], 1);
            assert_eq!(
                (strays.len(), strays[0]["uid"].as_u64()),
                (1, Some(1001)),
                "{strays:?}"
            );
            node.job_adopt(&["strays", "--kill", "--uid", "1001"]).ok();
            eventually("the container has ended", || !container.runs());
        }
        node.job_adopt(&["strays", "--kill"]).ok();
        assert!(theirs.runs(), "bob has a job");
        let exempt = Process::start_container(node, OPS, "true");
        node.arguments("exempt_groups=ops");
        node.job_adopt(&["strays", "--kill"]).ok();
        assert!(exempt.runs(), "the owner is exempt");
    });
}

/// A container of root's, with the user's own uid in it.
#[test]
fn uid_counts_in_namespace_of_root() {
    on_node(|node| {
        let script = "exec unshare --user sh -c 'until setpriv --reuid 1001 --clear-groups true; \
                      do sleep 0.05; done; exec setpriv --reuid 1001 sleep infinity' 2>/dev/null";
        let container = Process::new(node, ROOT, script);
        let proc = |file: &str| format!("/proc/{}/{file}", container.host_pid());
        let own = std::fs::read_link("/proc/self/ns/user").unwrap();
        eventually("it has a namespace", || {
            std::fs::read_link(proc("ns/user")).is_ok_and(|other| other != own)
        });
        for map in ["gid_map", "uid_map"] {
            std::fs::write(proc(map), "0 0 2000").unwrap();
        }
        eventually("it is the user's", || {
            container.uids().starts_with("1001\t")
        });
        node.job_adopt(&["strays", "--kill"]).ok();
        eventually("it has ended", || !container.runs());
    });
}

/// Root may have made such a container for any user: the kernel does not know for whom.
#[test]
fn process_of_uid_without_account_is_named_and_not_ended() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let none = User {
            name: "none",
            uid: 70_000,
        };
        let unowned = Process::start_in(node, node.outside().child("box").create(), none, STAYS);
        let _inside = Process::start_in(node, &job.cgroup, none, STAYS);
        let _system = Process::new(
            node,
            User {
                name: "nobody",
                uid: 65_534,
            },
            STAYS,
        );
        let listed = node.job_adopt(&["strays", "--kill"]).ok();
        let uid = format!("uid 70000, {}/box)", node.outside().path());
        listed
            .says(&format!("no account: {} (", unowned.pid()))
            .says(&uid);
        let list = node.job_adopt(&["strays", "--json"]).ok();
        let list: Value = serde_json::from_str(&list.stdout).unwrap();
        assert_eq!(list["unowned"].as_array().unwrap().len(), 1, "{list}");
        assert_eq!(list["unowned"][0]["uid"].as_u64(), Some(70_000), "{list}");
        node.job_adopt(&["strays", "--user", "alice"])
            .ok()
            .omits("70000");
        assert!(unowned.runs());
    });
}

/// The name of a user may be the uid of another.
#[test]
fn uid_option_takes_no_name() {
    on_node(|node| {
        let strays = [
            Process::new(node, ALICE, STAYS),
            Process::new(node, BOB, STAYS),
        ];
        let passwd = node.read("/etc/passwd");
        node.write(
            "/etc/passwd",
            &format!("{passwd}1001:x:1009:1009::/:/bin/sh\n"),
        );
        assert!(
            list_strays(node, &["--user", "1001"], 0).is_empty(),
            "a name"
        );
        assert_eq!(list_strays(node, &["--uid", "1001"], 1).len(), 1);
        node.job_adopt(&["strays", "--kill", "--uid", "1001"]).ok();
        eventually("alice's has ended", || !strays[0].runs());
        assert!(strays[1].runs());
        for wrong in ["alice", "-1", "4294967295", ""] {
            node.job_adopt(&["strays", "--uid", wrong]).exits(2);
        }
        node.job_adopt(&["strays", "--uid", "1001", "--user", "alice"])
            .exits(2);
    });
}

/// An admin who is not exempt, for example through sudo(8).
#[test]
fn caller_of_command_is_not_ended() {
    on_node(|node| {
        node.sh("install -m 4755 /bin/dash /usr/bin/become").ok();
        let script = "become -p -c 'job-adopt strays --kill'; echo $? >/tmp/new; mv /tmp/new /tmp/status; sleep 60";
        let caller = Process::new(node, ALICE, script);
        eventually("it has run", || node.exists("/tmp/status"));
        assert!(caller.runs());
        assert_eq!(node.read("/tmp/status"), "0\n");
    });
}

#[test]
fn epilog_ends_strays_with_last_job() {
    on_node(|node| {
        let _one = node.job(ALICE, "1").start();
        let two = node.job(ALICE, "2").start();
        let stray = Process::new(node, ALICE, STAYS);
        let theirs = Process::new(node, BOB, STAYS);
        node.job_adopt(&["unregister", "--strays", "1"]).ok();
        assert!(
            stray.runs() && two.cgroup.pids().len() == 1,
            "she has another job"
        );
        node.unregister("2").ok();
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
        node.job_adopt(&["unregister", "--strays", "2"])
            .ok()
            .says("no job 2");
    });
}

#[test]
fn node_without_adoption_has_no_strays() {
    on_node(|node| {
        let stray = Process::new(node, ALICE, STAYS);
        let refuses = |why: &str| {
            node.job_adopt(&["strays", "--kill"]).exits(3).says(why);
            let _job = node.job(ALICE, "1").start();
            node.job_adopt(&["unregister", "--strays", "1"])
                .ok()
                .says("strays are not ended");
            assert!(stray.runs(), "{why}");
        };
        node.arguments("observe");
        refuses("no session line");
        // A user without a job may log in and stay.
        node.arguments("action_no_jobs=Ignore");
        refuses("no session line");
        node.arguments("");
        node.write("/run/job-adopt/off", "");
        refuses("/run/job-adopt/off");
        node.sh("rm /run/job-adopt/off").ok();
        node.configure("enforce = if-exists:/etc/compute-node\n");
        refuses("enforce");
    });
}

/// The exempt users are unknown, so no process is ended.
#[test]
fn failing_group_lookup_exempts_every_user() {
    on_node(|node| {
        let stray = Process::new(node, OPS, STAYS);
        node.arguments("exempt_groups=ops");
        node.sh("mv /etc/group /etc/group.away").ok();
        node.job_adopt(&["strays", "--kill"])
            .exits(3)
            .says("look up group ops");
        assert!(stray.runs());
    });
}

/// The owner of such a step is unknown.
#[test]
fn slurm_job_without_extern_step_spares_every_user() {
    on_node(|node| {
        let stray = Process::new(node, ALICE, STAYS);
        node.create_dir(SPOOL, 0o755);
        node.configure(&format!("slurm_spool = {SPOOL}\n"));
        let socket = format!("{SPOOL}/{}_77.0", node.name());
        node.write(&socket, "");
        node.job_adopt(&["strays", "--kill"])
            .exits(3)
            .says("jobs without an extern step");
        assert!(stray.runs());
        node.sh(&format!("rm {socket}")).ok();
        node.job_adopt(&["strays", "--kill"]).ok();
        eventually("it has ended", || !stray.runs());
    });
}

#[test]
fn full_file_system_keeps_no_stray_alive() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        let stray = Process::new(node, ALICE, STAYS);
        let used = "$(df --output=used -k /run | tail -1)";
        node.sh(&format!("mount -o remount,size=$(({used} + 64))k /run"))
            .ok();
        node.sh("cat /dev/zero >/run/full").fails();
        node.job_adopt(&["unregister", "--strays", "4242"])
            .exits(3)
            .says("4242.ended");
        eventually("the stray has ended", || !stray.runs());
    });
}

/// The first call cannot tell whether the owner has a job.
#[test]
fn second_call_ends_strays_that_first_left() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        let stray = Process::new(node, ALICE, STAYS);
        node.create_dir(SPOOL, 0o755);
        node.configure(&format!("slurm_spool = {SPOOL}\n"));
        let socket = format!("{SPOOL}/{}_77.0", node.name());
        node.write(&socket, "");
        let unregister = ["unregister", "--strays", "4242"];
        node.job_adopt(&unregister)
            .exits(3)
            .says("jobs without an extern step");
        assert!(stray.runs());
        node.sh(&format!("rm {socket}")).ok();
        node.job_adopt(&unregister).ok().omits("no job");
        eventually("the stray has ended", || !stray.runs());
        node.job_adopt(&unregister).ok().says("no job 4242");
    });
}

/// Installs the server of a file system at /mnt/hangs that becomes alice's. It never answers; her own program that waits
/// for it writes /tmp/read.
fn install_hanging_server(node: &Node) {
    node.create_dir("/mnt/hangs", 0o755);
    // Answers the first request (FUSE_INIT of linux/fuse.h), and reads the second.
    node.write(
        "/usr/bin/hang",
        r#"#!/bin/bash
        exec 3<>/dev/fuse
        mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0,allow_other none /mnt/hangs
        dd bs=65536 count=1 <&3 >/tmp/init 2>/dev/null
        { printf '\x50\0\0\0\0\0\0\0'; dd if=/tmp/init bs=8 skip=1 count=1 2>/dev/null
          printf '\x07\0\0\0\x1f\0\0\0\0\0\2\0'; head -c 52 /dev/zero; } >/tmp/answer
        cat /tmp/answer >&3
        exec setpriv --reuid 1001 --regid 1001 --clear-groups \
            sh -c 'dd bs=65536 count=1 <&3 >/dev/null 2>&1; echo >/tmp/read; exec sleep infinity'
        "#,
    );
    node.set_mode("/usr/bin/hang", 0o755);
    node.create_dir("/tmp", 0o1777);
}

/// SIGKILL does not end a process that waits for a request which the file system has read.
#[test]
fn login_that_waits_for_file_system_of_stray_ends_after_stray() {
    on_node(|node| {
        install_hanging_server(node);
        let stray = Process::new(node, ROOT, "exec hang");
        eventually("the stray is the user's", || {
            stray.uids().starts_with("1001\t")
        });
        let job = node.job(ALICE, "4242").start();
        let sshd = node.sshd();
        let mut login = sshd.stay(ALICE, "exec ls /mnt/hangs/file");
        eventually("the login waits for it", || node.exists("/tmp/read"));
        let login_processes = job.cgroup.pids().len() - 1;
        node.job_adopt(&["unregister", "--strays", "--timeout", "1", "4242"])
            .ok();
        assert!(!stray.runs());
        // The second attempt finds at most the process that waited.
        let logged = node.log.line("action=unregister");
        assert_eq!(logged.field("logins").unwrap(), login_processes.to_string());
        eventually("the login has ended", || {
            login.try_wait().unwrap().is_some()
        });
        assert!(job.cgroup.pids().is_empty(), "something is left");
    });
}

/// The server runs in another job of hers, so that this end of a job does not end it.
#[test]
fn process_that_waits_for_file_system_of_its_own_user_is_no_fault_of_node() {
    on_node(|node| {
        install_hanging_server(node);
        let other = node.job(ALICE, "1").start();
        let server = Process::start_in(node, &other.cgroup, ROOT, "exec hang");
        eventually("the server is the user's", || {
            server.uids().starts_with("1001\t")
        });
        let job = node.job(ALICE, "4242").start();
        let sshd = node.sshd();
        let mut login = sshd.stay(ALICE, "exec ls /mnt/hangs/file");
        eventually("the login waits for it", || node.exists("/tmp/read"));
        let unregister = ["unregister", "--strays", "--timeout", "1", "4242"];
        node.job_adopt(&unregister)
            .exits(3)
            .says("are still there")
            .omits("cannot be killed");
        server.end();
        node.job_adopt(&unregister).ok();
        eventually("the login has ended", || {
            login.try_wait().unwrap().is_some()
        });
        eventually("only the payload is left", || job.cgroup.pids().len() == 1);
    });
}

/// Where the user has mounted the device for this process, the node has a file system of the user that never answers.
#[test]
fn path_of_device_that_user_chose_is_not_walked() {
    on_node(|node| {
        install_hanging_server(node);
        let script = "exec unshare --mount sh -c '
            mount -t tmpfs none /mnt/hangs && touch /mnt/hangs/gpu && mount --bind /dev/loop0 /mnt/hangs/gpu &&
            exec setpriv --reuid 1001 --regid 1001 --clear-groups \
                sh -c \"exec sleep infinity </mnt/hangs/gpu\"'";
        let stray = Process::new(node, ROOT, script);
        eventually("it is the user's", || {
            stray.uids().starts_with("1001\t")
                && std::fs::read_link(format!("/proc/{}/fd/0", stray.host_pid()))
                    .is_ok_and(|path| path.ends_with("hangs/gpu"))
        });
        let path = Process::new(
            node,
            BOB,
            "exec perl -e 'open($f, \"<\", \"/dev/null\"); sysopen($g, \"/dev/loop0\", 0x200000) or die; \
             open($t, \">/tmp/path\"); close($t); sleep 1000'",
        );
        eventually("bob has a path", || node.exists("/tmp/path"));
        let server = Process::new(node, ROOT, "exec hang");
        eventually("the server is the user's", || {
            server.uids().starts_with("1001\t")
        });
        let strays = list_strays(node, &[], 1);
        let devices = |pid: i32| {
            let found = strays.iter().find(|one| one["pid"] == pid);
            found.unwrap()["devices"].clone()
        };
        assert_eq!(devices(stray.pid()), serde_json::json!(["b:7:0"]));
        assert_eq!(devices(path.pid()), serde_json::json!([]), "a mere path");
        server.end();
    });
}

/// The registry of the configuration is another than the one of `register`, or something is mounted over it.
#[test]
fn job_whose_record_is_elsewhere_is_not_ended() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let task = Process::start_in(node, &job.cgroup, ALICE, STAYS);
        node.configure("registry = /run/records\n");
        node.run("mkdir", &["-p", "-m", "755", "/run/records"]).ok();
        node.job_adopt(&["strays", "--kill", "--user", "alice"])
            .exits(3)
            .says("registered as job 4242")
            .says("/run/records has no record of it");
        assert!(task.runs(), "a running job was ended");
    });
}
