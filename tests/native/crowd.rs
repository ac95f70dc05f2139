//! What a user makes in a job costs no other user's call. System calls are counted, since time depends on the
//! machine.

use std::fs;
use std::os::unix::fs::chown;

use crate::support::{ALICE, BOB, Cgroup, Deep, Node, Process, User, eventually, on_node};

/// Number of empty cgroups in alice's job. The variable sets another: `JOB_ADOPT_CROWD=400000`.
fn crowd_size() -> usize {
    std::env::var("JOB_ADOPT_CROWD").map_or(20_000, |text| text.parse().unwrap())
}

/// Gives a cgroup to alice, as a scheduler does that lets jobs make cgroups, and makes `count` empty ones in
/// it.
fn make_crowd(cgroup: &Cgroup, count: usize) {
    for file in ["", "cgroup.procs", "cgroup.subtree_control"] {
        chown(cgroup.dir().join(file), Some(ALICE.uid), None).unwrap();
    }
    for number in 0..count.div_ceil(1000) {
        let group = cgroup.child(&format!("group-{number}"));
        group.create();
        for member in 0..999.min(count - number * 1000) {
            fs::create_dir(group.dir().join(member.to_string())).unwrap();
        }
    }
}

/// Runs a command to a successful end; returns the number of its system calls.
fn count_calls(node: &Node, command: &str) -> usize {
    node.sh(&format!("strace -f -qq -o /tmp/calls {command}"))
        .ok();
    node.read("/tmp/calls").lines().count()
}

/// Counts the system calls of each call that concerns a job of bob.
fn count_calls_for_bob(node: &Node) -> Vec<(&'static str, usize)> {
    let job = node.job(BOB, "7").unstamped().unrecorded().start();
    let register = format!(
        "job-adopt register --id 7 --uid {} --policy closed --cgroup {}",
        BOB.uid,
        job.cgroup.path()
    );
    let mut counts = vec![("register", count_calls(node, &register))];
    counts.push(("register again", count_calls(node, &register)));
    node.session_under_strace("/tmp/calls", &[], BOB).ok();
    counts.push(("login", node.read("/tmp/calls").lines().count()));
    for (name, command) in [
        ("list", "job-adopt list --user bob"),
        ("strays", "job-adopt strays --user bob"),
        ("strays --kill", "job-adopt strays --kill --user bob"),
    ] {
        counts.push((name, count_calls(node, command)));
    }
    // The number of searches for what has not ended yet would depend on time.
    job.cgroup.kill();
    counts.push((
        "unregister --strays",
        count_calls(node, "job-adopt unregister --strays 7"),
    ));
    job.finish();
    counts
}

#[test]
fn cgroups_of_one_user_cost_no_call_of_another() {
    on_node(|node| {
        let crowded = node.job(ALICE, "4242").start();
        let _stray = Process::new(node, ALICE, "exec sleep infinity");
        let before = count_calls_for_bob(node);
        make_crowd(&crowded.cgroup, crowd_size());
        let after = count_calls_for_bob(node);
        for ((name, alone), (_, beside)) in before.into_iter().zip(after) {
            eprintln!("{name}: {alone} system calls, and {beside} beside the crowd");
            assert!(
                beside * 10 <= alone * 12,
                "{name}: {alone}, and {beside} beside the crowd"
            );
        }
    });
}

/// The processes of all users are judged, and the user of the crowd has one outside of it.
#[test]
fn cgroups_of_user_do_not_slow_search_for_all_strays() {
    on_node(|node| {
        let crowded = node.job(ALICE, "4242").start();
        let _stray = Process::new(node, ALICE, "exec sleep infinity");
        let before = count_calls(node, "job-adopt strays --kill");
        make_crowd(&crowded.cgroup, crowd_size());
        let after = count_calls(node, "job-adopt strays --kill");
        assert!(
            after * 10 <= before * 12,
            "{before}, and {after} beside the crowd"
        );
    });
}

/// Such calls concern the user of the crowd too, and still make less than one system call for each cgroup.
#[test]
fn cgroups_are_not_visited_to_list_or_end_their_own_job() {
    on_node(|node| {
        let crowded = node.job(ALICE, "4242").start();
        make_crowd(&crowded.cgroup, crowd_size());
        for command in ["job-adopt list", "job-adopt unregister 4242"] {
            let count = count_calls(node, command);
            assert!(count < crowd_size(), "{command}: {count}");
        }
    });
}

/// Before Linux 6.8 the kernel shows no path of more than 4,096 bytes, for example of a process of bob.
#[test]
fn process_of_hidden_path_brings_back_no_visit_of_all_cgroups() {
    on_node(|node| {
        let crowded = node.job(ALICE, "4242").start();
        make_crowd(&crowded.cgroup, crowd_size());
        let hidden = Process::new(node, BOB, "exec sleep infinity");
        hide_path(node, hidden.host_pid());
        for command in ["job-adopt list", "job-adopt unregister --strays 4242"] {
            let count = count_calls(node, command);
            eprintln!("{command}: {count} system calls");
            assert!(count < crowd_size() / 2, "{command}: {count}");
        }
    });
}

/// Lets the node's programs read no path of a process's cgroup, like a kernel before Linux 6.8.
fn hide_path(node: &Node, host_pid: i32) {
    let status = fs::read_to_string(format!("/proc/{host_pid}/status")).unwrap();
    let numbers = status
        .lines()
        .find(|line| line.starts_with("NSpid:"))
        .unwrap();
    let pid = numbers.split_whitespace().last().unwrap();
    node.write("/run/hidden", "none\n");
    node.sh(&format!("mount --bind /run/hidden /proc/{pid}/cgroup"))
        .ok();
}

/// Each prolog and epilog makes these calls. An id is unique on the node and notes of all users become old, so they
/// look into the folder of each user, but read no record of another one.
#[test]
fn records_of_other_users_are_not_read_to_register_or_unregister() {
    const USERS: usize = 250;
    const RECORDS_OF_USER: usize = 4;
    /// To list a folder and to look for an id in it.
    const CALLS_PER_USER_MAX: usize = 12;
    on_node(|node| {
        let job = node.job(BOB, "7").unstamped().unrecorded().start();
        let register = format!(
            "job-adopt register --id 7 --uid {} --policy closed --cgroup {}",
            BOB.uid,
            job.cgroup.path()
        );
        let count =
            || [&register, "job-adopt unregister 7"].map(|command| count_calls(node, command));
        let alone = count();
        for user in 0..USERS {
            let uid = 70_000 + user;
            for number in 0..RECORDS_OF_USER {
                let record = format!(
                    r#"{{"version":1,"id":"{uid}-{number}","uid":{uid},"cgroup":"/gone","cdi":[]}}"#
                );
                let path = format!("/run/job-adopt/jobs/{uid}/{uid}-{number}.json");
                node.write_root_file(&path, &record);
            }
        }
        let beside = count();
        eprintln!("{alone:?} system calls, and {beside:?} beside {USERS} users");
        for (few, many) in alone.into_iter().zip(beside) {
            assert!(
                many <= few + USERS * CALLS_PER_USER_MAX,
                "{few}, and {many}"
            );
        }
        assert!(!node.read("/tmp/calls").contains("70000-0.json"));
        job.finish();
    });
}

/// Others would wait for the lock: a prolog fails after ten seconds.
#[test]
fn registry_is_not_locked_while_cgroups_are_visited() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let register = format!(
            "job-adopt register --id 4242 --uid {} --policy closed --cgroup {}",
            ALICE.uid,
            job.cgroup.path()
        );
        let calls_under_lock = |command: &str| {
            let count = count_calls(node, command);
            let trace = node.read("/tmp/calls");
            let lock = trace.lines().position(|call| call.contains("F_OFD_SETLK"));
            count - lock.expect(&trace)
        };
        let before = calls_under_lock(&register);
        make_crowd(&job.cgroup, 2000);
        let after = calls_under_lock(&register);
        assert!(
            after * 10 <= before * 12,
            "{before}, and {after} in the crowd"
        );
    });
}

/// No walk visits so many cgroups: the process table shows what is in them.
#[test]
fn process_in_crowd_is_listed_and_its_login_ended() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        make_crowd(&job.cgroup, 1200);
        let member = job.cgroup.child("group-1").child("7");
        let sshd = node.sshd();
        let mut login = sshd.stay(ALICE, "exec sleep infinity");
        let leaf = job.cgroup.child("job-adopt");
        eventually("the login has joined", || {
            leaf.exists() && leaf.pids().into_iter().any(|pid| is_sleeper(pid, ALICE))
        });
        let sleeper = leaf
            .pids()
            .into_iter()
            .find(|pid| is_sleeper(*pid, ALICE))
            .unwrap();
        member.write("cgroup.procs", &sleeper.to_string());
        let processes = 1 + leaf.pids().len() + member.pids().len();
        let list = node.job_adopt(&["list", "--json"]).ok();
        let list: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
        assert_eq!(list["jobs"][0]["processes"], processes, "{list}");
        assert_eq!(list["jobs"][0]["logins"], 1, "{list}");
        node.unregister("4242").ok();
        assert!(member.pids().is_empty(), "the login is left");
        assert_eq!(job.cgroup.pids().len(), 1, "the scheduler's process is not");
        eventually("the login has ended", || {
            login.try_wait().unwrap().is_some()
        });
    });
}

#[test]
fn login_of_hidden_path_in_crowd_ends() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        make_crowd(&job.cgroup, 1200);
        let deep = Deep::create_below(job.cgroup.child("mine").create());
        let sshd = node.sshd();
        let mut login = sshd.stay(ALICE, "exec sleep infinity");
        let leaf = job.cgroup.child("job-adopt");
        let sleeper = || {
            leaf.pids_or_empty()
                .into_iter()
                .find(|pid| is_sleeper(*pid, ALICE))
        };
        eventually("the login has joined", || sleeper().is_some());
        let sleeper = sleeper().unwrap();
        deep.move_in(sleeper);
        hide_path(node, sleeper);
        node.unregister("4242").ok();
        assert!(!is_sleeper(sleeper, ALICE), "the login is left");
        eventually("the login has ended", || {
            login.try_wait().unwrap().is_some()
        });
    });
}

fn is_sleeper(pid: i32, user: User) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.starts_with("Name:\tsleep\n") && status.contains(&format!("\nUid:\t{}\t", user.uid))
}
