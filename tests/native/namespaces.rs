//! A job's own mounts and processes: a login has them, and nobody's but those that root made.

use crate::support::{ALICE, Cgroup, Node, Outcome, Step, eventually, on_node};

/// Prints where a login is, and what it has there.
const LOOK: &str =
    "cat /proc/self/cgroup; cat /tmp/whose; echo \"at $(pwd)\"; readlink /proc/self/ns/mnt";

/// Makes a namespace of mounts at /run/ns/NAME, by `unshare` with these options, and runs a script in it.
/// Linux 6.18 numbers namespaces by processor, and binds none to a file whose number is less than that of
/// the node's own: one of the processors will do.
fn made(node: &Node, name: &str, options: &str, script: &str) -> String {
    let path = format!("/run/ns/{name}");
    node.sh(&format!(
        "[ -d /run/ns ] || {{ mkdir -m 755 /run/ns; mount --bind /run/ns /run/ns; \
         mount --make-private /run/ns; echo node >/tmp/whose; }}; : >{path}
         for cpu in $(seq 0 $(nproc --all)); do
             taskset -c $cpu unshare {options} --mount --propagation private \
                 sh -ec '{script}; exec sleep 600' & pid=$!
             until grep -q sleep /proc/$pid/comm; do kill -0 $pid || break; sleep 0.01; done
             ! mount --bind /proc/$pid/ns/mnt {path} || done=1
             kill -9 $pid; [ -z \"$done\" ] || exit 0
         done; exit 1"
    ))
    .ok();
    path
}

/// A namespace of mounts as a scheduler makes it, with a /tmp of its own.
fn private(node: &Node) -> String {
    made(node, "mnt", "", "mount -t tmpfs tmpfs /tmp; echo job >/tmp/whose")
}

/// One with what that script does in it besides.
fn odd(node: &Node, script: &str) -> String {
    let script = format!("mount -t tmpfs tmpfs /tmp; echo job >/tmp/whose; {script}");
    made(node, "odd", "", &script)
}

/// A session that prints what it finds behind our line, refused or not.
fn session(node: &Node, arguments: &str) -> Outcome {
    node.write("/usr/bin/in-session", &format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{LOOK}\nenv\n"));
    node.mode("/usr/bin/in-session", 0o755);
    node.stack(&format!(
        "account required pam_permit.so\nsession required pam_permit.so\n\
         session [default=ignore] pam_job_adopt.so timeout=3 {arguments}\n\
         session optional pam_exec.so stdout /usr/bin/in-session\n"
    ));
    node.sh("cd /srv && exec pamtester sshd alice open_session")
}

/// Asserts that a session was let in, with the job's /tmp.
#[track_caller]
fn inside(outcome: Outcome, leaf: &Cgroup) -> Outcome {
    outcome.says("successfully opened").says("job\n").says("at /srv").stands_in(leaf)
}

/// Asserts that a session is as if there had been none: in the node's namespace, directory and cgroup.
#[track_caller]
fn undone(node: &Node, outcome: Outcome, code: &str) {
    let own = node.sh("readlink /proc/self/ns/mnt").ok().stdout;
    outcome.says(code).says("node\n").says("at /srv").says(own.trim()).stands_in(&node.outside());
}

/// A step with these faults; what it hands over must be refused for this reason.
fn refused(faults: &[&str], make: impl FnOnce(&Node), why: &str) {
    on_node(|node| {
        private(node);
        make(node);
        let step = node.step(ALICE, faults);
        undone(node, session(node, ""), "[JA0");
        node.log.line(why);
        step.empty();
        // Who does not want them is not refused for them.
        session(node, "join_container=false").says("node\n").stands_in(&step.leaf());
    });
}

const FULL: &str = "11520"; // of Slurm 26.05
const OLD: &str = "9984"; // of Slurm 24.11

fn step(node: &Node, version: &str, faults: &[&str]) -> Step {
    node.step(ALICE, &[&["version", version], faults].concat())
}

#[test]
fn a_login_has_the_files_of_its_job() {
    for version in [OLD, FULL] {
        on_node(|node| {
            let path = private(node);
            let step = step(node, version, &["ns", &path]);
            inside(session(node, ""), &step.leaf());
            inside(session(node, "join_container=true"), &step.leaf());
            let outside = session(node, "join_container=false");
            outside.says("successfully opened").says("node\n").stands_in(&step.leaf());
        });
    }
}

#[test]
fn ssh_sftp_and_scp_have_them_and_sshd_itself_stays_outside() {
    on_node(|node| {
        let path = private(node);
        let step = step(node, OLD, &["ns", &path]);
        let sshd = node.sshd();
        let own = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap();
        let before = own(sshd.pid());
        for outcome in
            [sshd.ssh(ALICE, LOOK), sshd.ssh_tty(ALICE, LOOK), sshd.ssh_password(ALICE, LOOK)]
        {
            outcome.ok().says("job").says("at /home/alice").stands_in(&step.leaf());
        }
        sshd.sftp(ALICE, "get /tmp/whose /root/got\nput /etc/hosts /home/alice/put\n").ok();
        assert_eq!(node.read("/root/got"), "job\n");
        assert!(node.exists("/home/alice/put"));
        node.sh(&format!("nsenter --mount={path} chmod 1777 /tmp")).ok();
        sshd.scp(&[], "/etc/hosts", "alice@127.0.0.1:/tmp/copied").ok();
        assert!(!node.exists("/tmp/copied"), "scp wrote into the node's /tmp");
        node.sh(&format!("nsenter --mount={path} cat /tmp/copied")).ok().says("localhost");
        assert_eq!(own(sshd.pid()), before);
    });
}

#[test]
fn a_job_without_namespaces_is_as_before() {
    for version in [OLD, FULL] {
        on_node(|node| {
            private(node);
            let step = step(node, version, &[]);
            session(node, "").says("successfully").says("node\n").stands_in(&step.leaf());
        });
    }
}

#[test]
fn ones_that_are_sshds_own_change_nothing() {
    on_node(|node| {
        private(node);
        let step = step(node, FULL, &["ns", "/proc/self/ns/mnt", "ns2", "/proc/self/ns/pid"]);
        session(node, "")
            .says("successfully")
            .says("node\n")
            .says("at /srv")
            .stands_in(&step.leaf());
    });
}

/// Its numbers are those of the job's processes, and sshd itself keeps its own.
#[test]
fn a_login_is_among_the_processes_of_its_job() {
    on_node(|node| {
        let script = "mount -t proc proc /proc; mount -t tmpfs tmpfs /tmp; echo job >/tmp/whose";
        let mut first = node.command("unshare");
        let names = ["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"];
        let hold = format!("{script}; exec sleep 600");
        let mut first = first.args(names).args(["sh", "-ec", &hold]).spawn().unwrap();
        node.sh("echo node >/tmp/whose").ok();
        let find = || node.run("pgrep", &["-x", "sleep"]).stdout.trim().to_owned();
        eventually("the job is there", || !find().is_empty());
        let name = |kind: &str| format!("/proc/{}/ns/{kind}", find());
        let (processes, mounts) = (name("pid"), name("mnt"));
        let step = step(node, FULL, &["ns", &processes, "ns2", &mounts]);
        let sshd = node.sshd();
        let outcome = sshd.ssh(ALICE, &format!("{LOOK}; cat /proc/1/comm")).ok();
        outcome.says("job").says("sleep").stands_in(&step.leaf());
        let _ = first.kill();
        let _ = first.wait();
    });
}

#[test]
fn what_is_no_namespace_is_refused() {
    refused(&["ns", "/etc/passwd"], |_| (), "is no namespace of mounts");
    refused(&["ns", "/dev/null"], |_| (), "is no namespace of mounts");
    refused(&["version", FULL, "ns", "/proc/self/ns/net"], |_| (), "is no namespace of mounts");
    // As Slurm 24.11 hands over that of mounts alone.
    refused(&["ns", "/proc/self/ns/pid"], |_| (), "is no namespace of mounts");
    refused(
        &["version", FULL, "kind", "131072", "ns", "/proc/self/ns/pid"],
        |_| (),
        "is no namespace of mounts",
    );
}

/// Who is root there could have mounted files of their own over the node's.
#[test]
fn what_a_user_could_have_mounted_is_refused() {
    let make = |node: &Node| {
        let script = "mount -t tmpfs tmpfs /tmp; echo job >/tmp/whose";
        made(node, "users", "--user --map-root-user", script);
    };
    refused(&["ns", "/run/ns/users"], make, "is a user namespace or in one");
    // As Slurm's namespace/linux hands it over with CLONE_NEWUSER.
    let own = ["version", FULL, "ns", "/proc/self/ns/user"];
    refused(&own, |_| (), "is a user namespace or in one");
}

/// As in a container: sshd would read that one's accounts, and load its modules.
#[test]
fn one_with_other_files_than_the_nodes_is_refused() {
    for (top, script) in [
        ("/etc", "mount -t overlay -o lowerdir=/srv:/etc overlay /etc"),
        ("/lib", "mount -t overlay -o lowerdir=/srv:/usr overlay /usr"),
        ("/run", "mount -t tmpfs tmpfs /run"),
    ] {
        let make = |node: &Node| drop(odd(node, script));
        refused(&["ns", "/run/ns/odd"], make, &format!("{top} is not the node's there"));
    }
    let make = |node: &Node| {
        let script = "mkdir /tmp/r; mount -t tmpfs tmpfs /tmp/r; cd /tmp/r; mkdir mnt srv usr; \
                      mount --rbind /usr usr; \
                      for name in bin lib lib64 sbin; do ln -s usr/$name; done; pivot_root . mnt";
        odd(node, script);
    };
    refused(&["ns", "/run/ns/odd"], make, "/ is not the node's there");
}

#[test]
fn one_without_sshds_working_directory_is_refused() {
    let make = |node: &Node| {
        node.folder("/srv/a", 0o755);
        odd(node, "mount -t tmpfs tmpfs /srv");
    };
    on_node(|node| {
        private(node);
        make(node);
        let step = step(node, OLD, &["ns", "/run/ns/odd"]);
        session(node, "").says("successfully").says("job\n").stands_in(&step.leaf());
        let login = node.sh("cd /srv/a && exec pamtester sshd alice open_session");
        login.says("[JA07]").says("node\n").says("at /srv/a").stands_in(&node.outside());
        node.log.line("No such file or directory");
        step.empty();
    });
}

/// What was joined before another one fails is left again.
#[test]
fn the_first_is_left_where_the_second_fails() {
    refused(
        &["version", FULL, "ns", "/run/ns/mnt", "ns2", "/run/ns/odd"],
        |node| drop(odd(node, "mount -t tmpfs tmpfs /etc")),
        "is not the node's there",
    );
}

#[test]
fn a_daemon_that_hands_over_something_else_is_refused() {
    let of =
        |faults: &[&str], why| refused(&[&["ns", "/run/ns/mnt"], faults].concat(), |_| (), why);
    of(&["no-ns"], "no meaning");
    of(&["twice"], "no meaning");
    of(&["hang-ns"], "did not answer in time");
    of(&["count", "-1"], "cannot hand over");
    of(&["version", FULL, "count", "9"], "cannot hand over");
    of(&["version", FULL, "count", "2"], "did not answer in time");
}

/// Threads share root and working directory.
#[test]
fn a_process_with_threads_joins_nothing() {
    on_node(|node| {
        let path = private(node);
        let step = step(node, OLD, &["ns", &path]);
        inside(session(node, ""), &step.leaf());
        let shared = node.sh(
            "cd /srv && strace -qq -o /dev/null -e inject=setns:error=EINVAL pamtester sshd alice open_session",
        );
        undone(node, shared, "[JA07]");
        step.empty();
    });
}

#[test]
fn a_display_of_the_job_is_the_logins() {
    on_node(|node| {
        let faults = ["display", "10", "keys", "/tmp/.Xauthority-x"];
        let _step = step(node, OLD, &faults);
        let given = session(node, "");
        given.says("DISPLAY=localhost:10.0\n").says("XAUTHORITY=/tmp/.Xauthority-x\n");
        node.log.line("env=\"DISPLAY XAUTHORITY\"");
        session(node, "disable_x11=0").says("DISPLAY=");
        session(node, "disable_x11=1").says("successfully").omits("DISPLAY=").omits("XAUTH");
    });
    on_node(|node| {
        let _step = step(node, OLD, &[]);
        session(node, "").says("successfully").omits("DISPLAY=").omits("XAUTH");
    });
}

#[test]
fn what_is_no_display_is_left_out() {
    for keys in ["relative", "/a b", "/$(x)", ""] {
        on_node(|node| {
            let _step = step(node, OLD, &["display", "-1", "keys", keys]);
            session(node, "").says("successfully").omits("DISPLAY=").omits("XAUTH");
        });
    }
}

/// Registers job 4242 of alice's with that namespace.
fn register(node: &Node, cgroup: &Cgroup, namespaces: &str) -> Outcome {
    node.job_adopt(&[
        "register",
        "--id",
        "4242",
        "--uid",
        "1001",
        "--cgroup",
        cgroup.path(),
        "--policy",
        "closed",
        "--namespaces",
        namespaces,
    ])
}

/// What any scheduler's prolog can do.
#[test]
fn a_registered_job_has_the_namespace_that_root_named() {
    on_node(|node| {
        let path = private(node);
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let job = &job.cgroup;
        register(node, job, &path).ok();
        node.arguments("");
        assert!(node.read("/run/job-adopt/jobs/1001/4242.json").contains(&path));
        inside(session(node, ""), job);
        session(node, "join_container=false").says("successfully").says("node\n").stands_in(job);
        node.sh(&format!("umount {path}")).ok();
        undone(node, session(node, ""), "[JA07]");
        node.log.line("is no namespace of mounts");
        // A job that is registered without one has none.
        node.job_adopt(&[
            "register",
            "--id",
            "4242",
            "--uid",
            "1001",
            "--cgroup",
            job.path(),
            "--policy",
            "closed",
        ])
        .ok();
        session(node, "").says("successfully").says("node\n").stands_in(job);
    });
}

#[test]
fn a_registered_job_has_that_of_its_process_while_it_is_the_jobs() {
    on_node(|node| {
        private(node);
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let job = &job.cgroup;
        let mut held = node.daemon(job, "unshare");
        let script =
            "mount -t tmpfs tmpfs /tmp; echo job >/tmp/whose; touch /run/ready; exec sleep 600";
        let mut held = held
            .args(["--mount", "--propagation", "private", "sh", "-ec", script])
            .spawn()
            .unwrap();
        eventually("the process has its own", || node.exists("/run/ready"));
        let pid = node.sh("pgrep -x -f 'sleep 600'").stdout.trim().to_owned();
        register(node, job, &pid).ok();
        inside(session(node, ""), job);
        node.sh(&format!("echo {pid} >/sys/fs/cgroup{}/cgroup.procs", node.outside().path())).ok();
        undone(node, session(node, ""), "[JA07]");
        node.log.line("that process is not in the job");
        register(node, job, &pid).fails().says("that process is not in the job");
        let _ = held.kill();
        let _ = held.wait();
        undone(node, session(node, ""), "[JA07]");
    });
}

#[test]
fn what_is_not_roots_is_not_registered() {
    on_node(|node| {
        let path = private(node);
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let job = &job.cgroup;
        node.sh("mkdir -m 777 /run/open; : >/run/open/ns; mount --bind /run/ns/mnt /run/open/ns")
            .ok();
        node.sh("ln -s /run/ns/mnt /run/ns/link").ok();
        for (name, why) in [
            ("/run/open/ns", "writable by others"),
            ("/run/ns/link", "symbolic link"),
            ("/run/ns/nowhere", "No such file"),
            ("/etc/passwd", "is no namespace of mounts"),
            ("/proc/self/ns/mnt", ""),
            ("/", ""),
            ("999999999", "No such file"),
        ] {
            register(node, job, name).fails().says(why);
            assert!(!node.exists("/run/job-adopt/jobs/1001/4242.json"), "{name}");
        }
        register(node, job, &path).ok();
        // Nor believed later.
        node.sh("chmod 777 /run/ns").ok();
        undone(node, session(node, ""), "[JA07]");
    });
}
