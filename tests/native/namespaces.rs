//! Private mounts and processes of a job: its logins share them, but only those that root made.

use std::process::Child;

use protocol::{Containment, Plan};

use crate::support::{
    ALICE, Cgroup, Node, Outcome, Step, Tool, eventually, on_flux, on_node, plan,
};

/// Prints the namespaces of a login and some of its files.
const LOOK: &str =
    "cat /proc/self/cgroup; cat /tmp/whose; echo \"at $(pwd)\"; readlink /proc/self/ns/mnt";

/// Returns the commands that make a mount namespace at this path, with `unshare` and these options, and run a script in
/// it. Linux 6.18 numbers namespaces by processor, and refuses to bind one whose number is below
/// that of the caller's own; so they try each processor.
fn script_of_namespace(path: &str, options: &str, script: &str) -> String {
    format!(
        "(: >{path}
         for cpu in $(seq 0 $(nproc --all)); do
             taskset -c $cpu unshare {options} --mount --propagation private \
                 sh -ec '{script}; exec sleep 600' & pid=$!
             until grep -q sleep /proc/$pid/comm; do kill -0 $pid || break; sleep 0.01; done
             ! mount --bind /proc/$pid/ns/mnt {path} || done=1
             kill -9 $pid; [ -z \"$done\" ] || exit 0
         done; exit 1)"
    )
}

/// Makes a mount namespace at /run/ns/NAME, as [`script_of_namespace`] does.
fn make_namespace(node: &Node, name: &str, options: &str, script: &str) -> String {
    let path = format!("/run/ns/{name}");
    let make = script_of_namespace(&path, options, script);
    node.sh(&format!(
        "[ -d /run/ns ] || {{ mkdir -m 755 /run/ns; mount --bind /run/ns /run/ns; \
         mount --make-private /run/ns; echo node >/tmp/whose; }}
         {make}"
    ))
    .ok();
    path
}

/// Makes a mount namespace in a scheduler's way, with a private /tmp.
pub(crate) fn make_private_namespace(node: &Node) -> String {
    make_namespace(
        node,
        "mnt",
        "",
        "mount -t tmpfs tmpfs /tmp; echo job >/tmp/whose",
    )
}

/// Makes a mount namespace like [`make_private_namespace`], and runs that script in it.
fn make_changed_namespace(node: &Node, script: &str) -> String {
    let script = format!("mount -t tmpfs tmpfs /tmp; echo job >/tmp/whose; {script}");
    make_namespace(node, "odd", "", &script)
}

/// The auth lines of a stack that joins private files.
pub(crate) const AUTH_LINES: &str = "auth required pam_job_adopt.so\nauth required pam_permit.so\n\
    auth required pam_job_adopt.so\n";

/// Installs a stack whose logins join private files.
fn write_joining_stack(node: &Node) {
    node.write_stack(&format!(
        "{}account required pam_job_adopt.so\naccount required pam_unix.so\n\
         session required pam_permit.so\nsession required pam_job_adopt.so\n",
        AUTH_LINES.replace("pam_permit", "pam_unix")
    ));
}

/// Installs a program that runs a login in sshd's order, and one for that login to run.
fn install_login(node: &Node) {
    node.install(&Tool::SshdLogin.path(), "/usr/bin/sshd-login");
    node.write(
        "/usr/bin/in-session",
        &format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{LOOK}\nenv\n"),
    );
    node.set_mode("/usr/bin/in-session", 0o755);
}

const LOGIN: &str = "exec sshd-login alice /usr/bin/in-session";

/// Runs a login that prints its state, admitted or refused by our line.
fn print_session(node: &Node, arguments: &str) -> Outcome {
    install_login(node);
    node.write_stack(&format!(
        "{AUTH_LINES}account required pam_permit.so\nsession required pam_permit.so\n\
         session [default=ignore] pam_job_adopt.so timeout=3 {arguments}\n"
    ));
    let outside = node.sh("readlink /proc/self/ns/mnt").ok().stdout;
    let outcome = node.sh(&format!("cd /srv && {LOGIN}"));
    outcome.says(&format!("monitor in {outside}"))
}

/// Asserts that the session was admitted, with the job's /tmp.
#[track_caller]
fn assert_inside(outcome: Outcome, leaf: &Cgroup) -> Outcome {
    outcome
        .says("session succeeds")
        .says("job\n")
        .says("at /srv")
        .joins_cgroup(leaf)
}

/// Asserts that the session left no trace: the process is in the node's namespace, directory and
/// cgroup.
#[track_caller]
fn assert_undone(node: &Node, outcome: Outcome, code: &str) {
    let own = node.sh("readlink /proc/self/ns/mnt").ok().stdout;
    outcome
        .says(code)
        .says("node\n")
        .says("at /srv")
        .says(own.trim())
        .joins_cgroup(&node.outside());
}

/// Asserts that a step with these faults is refused for this reason, because of the namespace that
/// it passes.
fn assert_refused(faults: &[&str], make: impl FnOnce(&Node), why: &str) {
    on_node(|node| {
        make_private_namespace(node);
        make(node);
        let step = node.step(ALICE, faults);
        assert_undone(node, print_session(node, ""), "[JA0");
        node.log.line(why);
        step.assert_empty();
        // A site that does not want the namespaces admits all the same.
        print_session(node, "join_container=false")
            .says("node\n")
            .joins_cgroup(&step.leaf());
    });
}

const FULL: &str = "11520"; // of Slurm 26.05
pub(crate) const OLD: &str = "9984"; // of Slurm 24.11

fn start_step(node: &Node, version: &str, faults: &[&str]) -> Step {
    node.step(ALICE, &[&["version", version], faults].concat())
}

#[test]
fn login_has_files_of_its_job() {
    for version in [OLD, FULL] {
        on_node(|node| {
            let path = make_private_namespace(node);
            let step = start_step(node, version, &["ns", &path]);
            assert_inside(print_session(node, ""), &step.leaf());
            assert_inside(print_session(node, "join_container=true"), &step.leaf());
            let outside = print_session(node, "join_container=false");
            outside
                .says("session succeeds")
                .says("node\n")
                .joins_cgroup(&step.leaf());
        });
    }
}

#[test]
fn ssh_sftp_and_scp_enter_namespace_and_sshd_stays_outside() {
    on_node(|node| {
        let path = make_private_namespace(node);
        let step = start_step(node, OLD, &["ns", &path]);
        write_joining_stack(node);
        let sshd = node.sshd();
        let own = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap();
        let before = own(sshd.pid());
        for outcome in [
            sshd.ssh(ALICE, LOOK),
            sshd.ssh_tty(ALICE, LOOK),
            sshd.ssh_password(ALICE, LOOK),
        ] {
            outcome
                .ok()
                .says("job")
                .says("at /home/alice")
                .joins_cgroup(&step.leaf());
        }
        sshd.sftp(
            ALICE,
            "get /tmp/whose /root/got\nput /etc/hosts /home/alice/put\n",
        )
        .ok();
        assert_eq!(node.read("/root/got"), "job\n");
        assert!(node.exists("/home/alice/put"));
        node.sh(&format!("nsenter --mount={path} chmod 1777 /tmp"))
            .ok();
        sshd.scp(&[], "/etc/hosts", "alice@127.0.0.1:/tmp/copied")
            .ok();
        assert!(
            !node.exists("/tmp/copied"),
            "scp wrote into the node's /tmp"
        );
        node.sh(&format!("nsenter --mount={path} cat /tmp/copied"))
            .ok()
            .says("localhost");
        assert_eq!(own(sshd.pid()), before);
    });
}

/// Directory of IMEX channels, empty on the node.
const CHANNELS: &str = "/dev/nvidia-caps-imex-channels";

/// Prints the channels that a login has, and whether it can open the first one.
const LIST_CHANNELS: &str = "cat /proc/self/cgroup; readlink /proc/self/ns/mnt; \
     echo \"channels: $(ls /dev/nvidia-caps-imex-channels)\"; \
     ! : </dev/nvidia-caps-imex-channels/channel1 || echo it opens";

/// Slurm's switch/nvidia_imex mounts a job's channel for each of its steps but the extern step, and hands
/// over no descriptor of that namespace.
#[test]
fn login_has_imex_channels_of_its_job() {
    for version in [OLD, FULL] {
        on_node(|node| {
            node.sh(&format!("mkdir {CHANNELS}")).ok();
            let step = start_step(node, version, &["channels", CHANNELS]);
            write_joining_stack(node);
            let sshd = node.sshd();
            let own = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap();
            let before = own(sshd.pid());
            let login = sshd
                .ssh(ALICE, LIST_CHANNELS)
                .ok()
                .joins_cgroup(&step.leaf());
            login.says("channels: channel1\n").says("it opens");
            assert_eq!(own(sshd.pid()), before);
            print_session(node, "").ok();
            assert!(
                !node.exists(&format!("{CHANNELS}/channel1")),
                "the node has the channel"
            );
        });
    }
}

#[test]
fn mounts_of_steps_without_imex_channels_change_nothing() {
    on_node(|node| {
        make_private_namespace(node);
        let own = node.sh("readlink /proc/self/ns/mnt").ok().stdout;
        let step = start_step(node, FULL, &["channels", "/srv"]);
        // Without the directory, and with it.
        for _ in 0..2 {
            print_session(node, "")
                .says("session succeeds")
                .says(own.trim())
                .joins_cgroup(&step.leaf());
            node.sh(&format!("mkdir --parents {CHANNELS}")).ok();
        }
    });
}

/// A daemon of Slurm runs as root.
#[test]
fn imex_channels_of_users_process_are_not_taken() {
    on_node(|node| {
        make_private_namespace(node);
        let own = node
            .sh(&format!("mkdir {CHANNELS}; readlink /proc/self/ns/mnt"))
            .ok()
            .stdout;
        let user = ALICE.uid.to_string();
        let step = start_step(node, FULL, &["channels", CHANNELS, "step-user", &user]);
        print_session(node, "")
            .says("session succeeds")
            .says(own.trim())
            .joins_cgroup(&step.leaf());
    });
}

#[test]
fn imex_channels_beside_other_system_files_are_refused() {
    on_node(|node| {
        make_private_namespace(node);
        node.sh(&format!("mkdir {CHANNELS} /usr/lib/site")).ok();
        let step = start_step(
            node,
            FULL,
            &["channels", CHANNELS, "mounts", "/usr/lib/site"],
        );
        assert_undone(node, print_session(node, ""), "[JA07]");
        node.log.line("/usr/lib/site is not the node's there");
        step.assert_empty();
        print_session(node, "join_container=false")
            .says("node\n")
            .joins_cgroup(&step.leaf());
    });
}

#[test]
fn job_without_namespaces_changes_nothing() {
    for version in [OLD, FULL] {
        on_node(|node| {
            make_private_namespace(node);
            let step = start_step(node, version, &[]);
            print_session(node, "")
                .says("session succeeds")
                .says("node\n")
                .joins_cgroup(&step.leaf());
        });
    }
}

#[test]
fn namespaces_of_sshd_itself_change_nothing() {
    on_node(|node| {
        make_private_namespace(node);
        let step = start_step(
            node,
            FULL,
            &["ns", "/proc/self/ns/mnt", "ns2", "/proc/self/ns/pid"],
        );
        print_session(node, "")
            .says("session succeeds")
            .says("node\n")
            .says("at /srv")
            .joins_cgroup(&step.leaf());
    });
}

/// The login has the PIDs of the job's namespace, and sshd keeps its own.
#[test]
fn login_is_in_pid_namespace_of_its_job() {
    on_node(|node| {
        let script = "mount -t proc proc /proc; mount -t tmpfs tmpfs /tmp; echo job >/tmp/whose";
        let mut first = node.command("unshare");
        let names = [
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--propagation",
            "private",
        ];
        let hold = format!("{script}; exec sleep 600");
        let mut first = first
            .args(names)
            .args(["sh", "-ec", &hold])
            .spawn()
            .unwrap();
        node.sh("echo node >/tmp/whose").ok();
        let find = || node.run("pgrep", &["-x", "sleep"]).stdout.trim().to_owned();
        eventually("the job is there", || !find().is_empty());
        let name = |kind: &str| format!("/proc/{}/ns/{kind}", find());
        let processes = name("pid");
        let mounts = name("mnt");
        let step = start_step(node, FULL, &["ns", &processes, "ns2", &mounts]);
        write_joining_stack(node);
        let sshd = node.sshd();
        let outcome = sshd.ssh(ALICE, &format!("{LOOK}; cat /proc/1/comm")).ok();
        outcome.says("job").says("sleep").joins_cgroup(&step.leaf());
        let _ = first.kill();
        let _ = first.wait();
    });
}

#[test]
fn descriptor_of_no_namespace_refuses_login() {
    assert_refused(&["ns", "/etc/passwd"], |_| (), "is no namespace of mounts");
    assert_refused(&["ns", "/dev/null"], |_| (), "is no namespace of mounts");
    assert_refused(
        &["version", FULL, "ns", "/proc/self/ns/net"],
        |_| (),
        "is no namespace of mounts",
    );
    // Slurm 24.11 passes a mount namespace in this way.
    assert_refused(
        &["ns", "/proc/self/ns/pid"],
        |_| (),
        "is no namespace of mounts",
    );
    assert_refused(
        &["version", FULL, "kind", "131072", "ns", "/proc/self/ns/pid"],
        |_| (),
        "is no namespace of mounts",
    );
}

/// A user who is root in the namespace could have mounted files over those of the node.
#[test]
fn namespace_that_user_could_change_refuses_login() {
    let make = |node: &Node| {
        let script = "mount -t tmpfs tmpfs /tmp; echo job >/tmp/whose";
        make_namespace(node, "users", "--user --map-root-user", script);
    };
    assert_refused(
        &["ns", "/run/ns/users"],
        make,
        "is a user namespace or in one",
    );
    // Slurm's namespace/linux passes such a namespace with CLONE_NEWUSER.
    let own = ["version", FULL, "ns", "/proc/self/ns/user"];
    assert_refused(&own, |_| (), "is a user namespace or in one");
}

/// sshd would read the accounts of such a container, and load its modules.
#[test]
fn namespace_with_other_system_files_refuses_login() {
    for (top, script) in [
        (
            "/etc",
            "mount -t overlay -o lowerdir=/srv:/etc overlay /etc",
        ),
        (
            "/usr",
            "mount -t overlay -o lowerdir=/srv:/usr overlay /usr",
        ),
        ("/run", "mount -t tmpfs tmpfs /run"),
        ("/etc/security", "mount -t tmpfs tmpfs /etc/security"),
        (
            "/etc/group",
            "sed s/alice/root/ /etc/group >/srv/g; mount --bind /srv/g /etc/group",
        ),
        ("/srv", "mount -t tmpfs tmpfs /srv"),
    ] {
        let make = |node: &Node| drop(make_changed_namespace(node, script));
        assert_refused(
            &["ns", "/run/ns/odd"],
            make,
            &format!("{top} is not the node's there"),
        );
    }
    let make = |node: &Node| {
        let script = "mkdir /tmp/r; mount -t tmpfs tmpfs /tmp/r; cd /tmp/r; mkdir mnt srv usr; \
                      mount --rbind /usr usr; \
                      for name in bin lib lib64 sbin; do ln -s usr/$name; done; pivot_root . mnt";
        make_changed_namespace(node, script);
    };
    assert_refused(&["ns", "/run/ns/odd"], make, "/ is not the node's there");
}

#[test]
fn namespace_without_working_directory_of_sshd_refuses_login() {
    let make = |node: &Node| {
        node.create_dir("/srv/a", 0o755);
        make_changed_namespace(node, "mount -t tmpfs tmpfs /srv");
    };
    on_node(|node| {
        make_private_namespace(node);
        make(node);
        let step = start_step(node, OLD, &["ns", "/run/ns/odd"]);
        print_session(node, "private_dirs=/tmp,/srv")
            .says("session succeeds")
            .says("job\n")
            .joins_cgroup(&step.leaf());
        let login = node.sh(&format!("cd /srv/a && {LOGIN}"));
        login
            .says("[JA07]")
            .says("node\n")
            .says("at /srv/a")
            .joins_cgroup(&node.outside());
        node.log.line("No such file or directory");
        step.assert_empty();
    });
}

/// A namespace that was joined before another one fails is left again.
#[test]
fn first_namespace_is_left_when_second_fails() {
    assert_refused(
        &["version", FULL, "ns", "/run/ns/mnt", "ns2", "/run/ns/odd"],
        |node| drop(make_changed_namespace(node, "mount -t tmpfs tmpfs /etc")),
        "is not the node's there",
    );
}

#[test]
fn daemon_that_passes_wrong_descriptors_refuses_login() {
    let of = |faults: &[&str], why| {
        assert_refused(&[&["ns", "/run/ns/mnt"], faults].concat(), |_| (), why)
    };
    of(&["no-ns"], "no meaning");
    of(&["twice"], "no meaning");
    of(&["hang-ns"], "did not answer in time");
    of(&["count", "-1"], "cannot hand over");
    of(&["version", FULL, "count", "9"], "cannot hand over");
    of(&["version", FULL, "count", "2"], "did not answer in time");
}

/// Threads share root and working directory. The thread is there before our line joins, and after it has looked.
#[test]
fn multithreaded_process_joins_no_namespace() {
    on_node(|node| {
        let path = make_private_namespace(node);
        let step = start_step(node, OLD, &["ns", &path]);
        assert_inside(print_session(node, ""), &step.leaf());
        let shared = node.sh(
            "cd /srv && exec strace -qq -o /dev/null -e inject=setns:error=EINVAL \
             sshd-login alice /usr/bin/in-session",
        );
        assert_undone(node, shared, "[JA07]");
        step.assert_empty();
        assert!(!node.log.to_string().contains("leave the job's namespaces"));
        node.install(&Tool::PamThreads.path(), "/usr/lib/pam_threads.so");
        for group in ["auth", "session"] {
            let session = if group == "session" {
                "session optional /usr/lib/pam_threads.so\n"
            } else {
                ""
            };
            let auth = if group == "auth" {
                "auth optional /usr/lib/pam_threads.so\n"
            } else {
                ""
            };
            node.write_stack(&format!(
                "auth required pam_job_adopt.so\n{auth}auth required pam_permit.so\nauth required pam_job_adopt.so\n\
                 account required pam_permit.so\n{session}session [default=ignore] pam_job_adopt.so\n"
            ));
            node.log.clear();
            assert_undone(node, node.sh(&format!("cd /srv && {LOGIN}")), "[JA07]");
            node.log
                .line("has 2 threads, and no process with threads can join them");
            assert!(!node.log.to_string().contains("leave the job's namespaces"));
            step.assert_empty();
        }
        write_joining_stack(node);
        node.sh("echo 'session optional /usr/lib/pam_threads.so' >/tmp/line; sed -i '/^session required pam_permit/r /tmp/line' /etc/pam.d/sshd").ok();
        node.sshd()
            .ssh(ALICE, LOOK)
            .fails()
            .omits("Connection reset");
    });
}

#[test]
fn login_that_joins_namespaces_late_is_refused_outside() {
    on_node(|node| {
        let path = make_private_namespace(node);
        let step = start_step(node, OLD, &["ns", &path]);
        assert_inside(print_session(node, ""), &step.leaf());
        let late = node.sh(
            "cd /srv && strace -qq -o /dev/null -e inject=setns:delay_exit=4000000:when=1 \
             sshd-login alice /usr/bin/in-session",
        );
        assert_undone(node, late, "[JA08]");
        node.log.line("was used up during joining");
        step.assert_empty();
    });
}

/// The private directories here stand for whatever a namespace has of its own.
#[test]
fn choice_directory_and_log_are_those_of_the_node() {
    on_node(|node| {
        let path = make_changed_namespace(
            node,
            "mkdir -p /run/job-adopt/use; mount -t tmpfs tmpfs /run/job-adopt/use",
        );
        let step = start_step(node, OLD, &["ns", &path]);
        node.log.clear();
        assert_inside(
            print_session(node, "private_dirs=/tmp,/run/job-adopt/use"),
            &step.leaf(),
        );
        node.log.line("decision=adopt");
        assert!(node.exists("/run/job-adopt/use/1001"));
        node.sh(&format!(
            "nsenter --mount={path} ls /run/job-adopt/use/1001"
        ))
        .fails();
    });
}

#[test]
fn login_has_display_of_its_job() {
    on_node(|node| {
        let faults = ["display", "10", "keys", "/tmp/.Xauthority-x"];
        let _step = start_step(node, OLD, &faults);
        let given = print_session(node, "");
        given
            .says("DISPLAY=localhost:10.0\n")
            .says("XAUTHORITY=/tmp/.Xauthority-x\n");
        node.log.line("env=\"DISPLAY XAUTHORITY\"");
        print_session(node, "disable_x11=0").says("DISPLAY=");
        print_session(node, "disable_x11=1")
            .says("session succeeds")
            .omits("DISPLAY=")
            .omits("XAUTH");
    });
    on_node(|node| {
        let _step = start_step(node, OLD, &[]);
        print_session(node, "")
            .says("session succeeds")
            .omits("DISPLAY=")
            .omits("XAUTH");
    });
}

#[test]
fn malformed_display_is_left_out() {
    for keys in ["relative", "/a b", "/$(x)", ""] {
        on_node(|node| {
            let _step = start_step(node, OLD, &["display", "-1", "keys", keys]);
            print_session(node, "")
                .says("session succeeds")
                .omits("DISPLAY=")
                .omits("XAUTH");
        });
    }
}

/// Registers job 4242 of alice.
pub(crate) fn register(node: &Node, cgroup: &Cgroup, options: &[&str]) -> Outcome {
    let job = [
        "register", "--id", "4242", "--uid", "1001", "--policy", "closed", "--cgroup",
    ];
    node.job_adopt(&[&job[..], &[cgroup.path()], options].concat())
}

/// Registers job 4242 of alice with that namespace.
fn register_with(node: &Node, cgroup: &Cgroup, namespaces: &str) -> Outcome {
    register(node, cgroup, &["--namespaces", namespaces])
}

/// Any scheduler's prolog can name a namespace.
#[test]
fn registered_job_has_namespace_that_root_named() {
    on_node(|node| {
        let path = make_private_namespace(node);
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let job = &job.cgroup;
        register_with(node, job, &path).ok();
        node.arguments("");
        assert!(
            node.read("/run/job-adopt/jobs/1001/4242.json")
                .contains(&path)
        );
        assert_inside(print_session(node, ""), job);
        print_session(node, "join_container=false")
            .says("session succeeds")
            .says("node\n")
            .joins_cgroup(job);
        node.sh(&format!("umount {path}")).ok();
        assert_undone(node, print_session(node, ""), "[JA07]");
        node.log.line("is no namespace of mounts");
        // A job that is registered without a namespace has none.
        register(node, job, &[]).ok();
        print_session(node, "")
            .says("session succeeds")
            .says("node\n")
            .joins_cgroup(job);
    });
}

/// A module before ours may give the login mounts of its own, into which the kernel copies no file of a namespace.
#[test]
fn namespace_is_found_in_mounts_of_node() {
    on_node(|node| {
        let path = make_private_namespace(node);
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let job = &job.cgroup;
        install_login(node);
        node.sh("mkdir -p /var/tmp /var/inst; chmod 0 /var/inst")
            .ok();
        node.write(
            "/etc/security/namespace.conf",
            "/var/tmp /var/inst/ user root\n",
        );
        node.write_stack(&format!(
            "{AUTH_LINES}account required pam_permit.so\nsession required pam_namespace.so\n\
             session [default=ignore] pam_job_adopt.so\n"
        ));
        let login = || node.sh(&format!("cd /srv && {LOGIN}"));
        register_with(node, job, &path).ok();
        assert_inside(login(), job);
        register(node, job, &[]).ok();
        let (holder, root_pid) = register_held_namespace(node, job);
        assert_inside(login(), job);
        end(node, holder, &root_pid);
    });
}

/// A pod with the host's processes has files of its own, and the first process has the host's, perhaps with a namespace
/// of another job at the same path.
#[test]
fn namespace_of_pod_is_not_looked_for_on_its_host() {
    on_node(|node| {
        let path = make_private_namespace(node);
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let job = &job.cgroup;
        register_with(node, job, &path).ok();
        install_login(node);
        node.write_stack(&format!(
            "{AUTH_LINES}account required pam_permit.so\nsession required pam_permit.so\n\
             session [default=ignore] pam_job_adopt.so timeout=3\n"
        ));
        let pin = script_of_namespace(
            &path,
            "",
            "mount -t tmpfs tmpfs /tmp; echo job of the pod >/tmp/whose",
        );
        node.write(
            "/run/pod",
            &format!(
                "set -e; mount -t tmpfs -o mode=755 tmpfs /run/ns\n\
                 if [ $1 = pinned ]; then {pin}; fi\ncd /srv; {LOGIN}\n"
            ),
        );
        let login = |state: &str| {
            node.sh(&format!(
                "unshare --mount --propagation private sh /run/pod {state}"
            ))
        };
        login("pinned")
            .says("session succeeds")
            .says("job of the pod\n")
            .joins_cgroup(job);
        // Our line refuses, and the stack goes on without it.
        login("unpinned")
            .says("[JA07]")
            .says("node\n")
            .omits("job of");
    });
}

/// Starts a process of the job with mounts of its own, on this processor; returns its number in the node.
fn hold_namespace(node: &Node, job: &Cgroup, cpu: usize, program: &str) -> (Child, String) {
    let script = format!(
        "mount -t tmpfs tmpfs /tmp; echo job >/tmp/whose; touch /run/ready; exec {program}"
    );
    node.sh("rm -f /run/ready").ok();
    let options = [
        "-c",
        &cpu.to_string(),
        "unshare",
        "--mount",
        "--propagation",
        "private",
    ];
    let mut held = node.daemon(job, "taskset");
    let held = held
        .args(options)
        .args(["sh", "-ec", &script])
        .spawn()
        .unwrap();
    eventually("the process has its own", || node.exists("/run/ready"));
    let find = || node.sh("pgrep -x -f 'sleep 600'").stdout.trim().to_owned();
    eventually("it holds them", || !find().is_empty());
    (held, find())
}

fn end(node: &Node, mut held: Child, pid: &str) {
    node.run("kill", &["-9", pid]).ok();
    let _ = held.wait();
}

/// Registers job 4242 of alice with the namespace of a root process in it; returns the process and its number.
fn register_held_namespace(node: &Node, job: &Cgroup) -> (Child, String) {
    // As `make_namespace` says, not every processor will do.
    let cpus = std::thread::available_parallelism().unwrap().get();
    (0..cpus)
        .find_map(|cpu| {
            let (holder, root_pid) = hold_namespace(node, job, cpu, "sleep 600");
            let outcome = register_with(node, job, &root_pid);
            if outcome.stderr.contains("Invalid argument") {
                assert!(
                    outcome
                        .stderr
                        .contains("has a lower number than the node's own"),
                    "{outcome}"
                );
                end(node, holder, &root_pid);
                return None;
            }
            outcome.ok();
            Some((holder, root_pid))
        })
        .unwrap()
}

#[test]
fn namespace_of_process_is_pinned_until_the_job_is_unregistered() {
    on_node(|node| {
        node.sh("echo node >/tmp/whose").ok();
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let job = &job.cgroup;
        let pinned = || node.sh("grep -c ' /run/job-adopt/namespaces/' /proc/self/mountinfo");
        // A process of the user may be in a namespace that a setuid program made for them.
        let user = "setpriv --reuid 1001 --regid 1001 --clear-groups sleep 600";
        let (held, pid) = hold_namespace(node, job, 0, user);
        register_with(node, job, &pid).fails().says("is not root's");
        end(node, held, &pid);
        let (holder, root_pid) = register_held_namespace(node, job);
        assert_inside(print_session(node, ""), job);
        register_with(node, job, &root_pid).ok();
        pinned().says("1\n");
        // The namespace stays pinned when the process leaves the job or ends.
        node.sh(&format!(
            "echo {root_pid} >/sys/fs/cgroup{}/cgroup.procs",
            node.outside().path()
        ))
        .ok();
        assert_inside(print_session(node, ""), job);
        register_with(node, job, &root_pid)
            .fails()
            .says("that process is not in the job");
        end(node, holder, &root_pid);
        assert_inside(print_session(node, ""), job);
        node.unregister("4242").ok();
        pinned().says("0\n");
        assert_eq!(node.sh("ls /run/job-adopt/namespaces").stdout, "");
    });
}

#[test]
fn namespace_of_job_never_unregistered_is_unpinned() {
    on_node(|node| {
        let path = make_private_namespace(node);
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        node.sh(
            "mkdir -p /run/job-adopt/namespaces; cd /run/job-adopt/namespaces
             mount --bind . .; mount --make-private .; cd .; : >old; : >4242",
        )
        .ok();
        node.sh(&format!(
            "mount --bind {path} /run/job-adopt/namespaces/old"
        ))
        .ok();
        register_with(node, &job.cgroup, &path).ok();
        assert_eq!(node.sh("ls /run/job-adopt/namespaces").stdout, "4242\n");
        node.sh("grep ' /run/job-adopt/namespaces/old' /proc/self/mountinfo")
            .fails();
    });
}

/// A scheduler may keep the cgroup for its next job, whose stamp would come first.
#[test]
fn cgroup_of_unregistered_job_has_no_namespace() {
    on_node(|node| {
        let path = make_private_namespace(node);
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let marks = format!(
            "getfattr -m trusted.job_adopt /sys/fs/cgroup{}",
            job.cgroup.path()
        );
        register_with(node, &job.cgroup, &path).ok();
        node.sh(&marks).ok().says("trusted.job_adopt_namespace");
        node.unregister("4242").ok();
        node.sh(&marks).ok().omits("trusted.job_adopt_namespace");
    });
}

#[test]
fn number_of_process_from_before_an_upgrade_refuses_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let mark = "import os, sys; os.setxattr(sys.argv[1], 'trusted.job_adopt_namespace', b'1')";
        let path = format!("/sys/fs/cgroup{}", job.cgroup.path());
        node.run("python3", &["-c", mark, &path]).ok();
        print_session(node, "")
            .says("[JA07]")
            .joins_cgroup(&node.outside());
    });
}

/// The job's namespace lacks every mount that the node makes while the job runs.
#[test]
fn later_mounts_of_node_refuse_no_login() {
    on_node(|node| {
        let path = make_private_namespace(node);
        let step = start_step(node, OLD, &["ns", &path]);
        node.sh("mkdir /mnt/later; mount -t tmpfs tmpfs /mnt/later; mkdir /mnt/later/below")
            .ok();
        node.sh("mount -t tmpfs tmpfs /mnt/later/below; mkdir -p /run/user/1001")
            .ok();
        node.sh("mount -t tmpfs tmpfs /run/user/1001").ok();
        assert_inside(print_session(node, ""), &step.leaf());
        node.sh("mount -t tmpfs tmpfs /etc/security").ok();
        assert_undone(node, print_session(node, ""), "[JA07]");
        node.log.line("/etc/security is not the node's there");
    });
}

/// The user owns the job's /tmp, and puts a link to a file of root there.
const LINKS: &str = "chown 1001 /tmp; chmod 700 /tmp; ln -s /root/victim /tmp/written";

/// Installs a stack with a module that writes to /tmp in each of its calls, and these session lines of others
/// before and after ours. `once` is the argument of its auth line.
fn install_writing_stack(node: &Node, once: &str, before: &str, after: &str) {
    node.install(&Tool::PamWrites.path(), "/usr/lib/pam_writes.so");
    node.sh("echo root >/root/victim").ok();
    let ours = "required pam_job_adopt.so";
    let writes = "/usr/lib/pam_writes.so";
    node.write_stack(&format!(
        "auth {ours}\nauth requisite {writes} {once}\n\
         auth [success=1 default=ignore] pam_unix.so\nauth requisite pam_deny.so\n\
         auth required pam_permit.so\nauth required {writes}\nauth {ours}\n\
         account {ours}\naccount required pam_unix.so\naccount optional {writes}\n\
         session optional {writes}\n{before}session required pam_permit.so\n\
         session {ours}\n{after}session optional {writes}\n"
    ));
}

/// Makes a step with a private /tmp in which the user has put a link.
fn start_step_with_link(node: &Node) -> (Step, String) {
    let path = make_changed_namespace(node, LINKS);
    (start_step(node, OLD, &["ns", &path]), path)
}

/// Asserts that the module wrote to the node's /tmp alone, and each of these calls so often. Then empties that.
#[track_caller]
fn assert_written_outside(node: &Node, calls: &[(&str, usize)]) {
    let count = |call: &str| {
        let text = node.sh("cat /tmp/written").stdout;
        text.lines().filter(|line| *line == call).count()
    };
    for (call, number) in calls {
        // sshd closes the session after its client has gone.
        eventually(&format!("{number} {call}"), || count(call) == *number);
    }
    assert_eq!(node.read("/root/victim"), "root\n");
    node.sh("rm /tmp/written").ok();
}

/// Returns the namespaces of sshd's processes for alice: of the monitors, and of those that are the user's.
fn sshd_namespaces(node: &Node) -> [Vec<String>; 2] {
    let mut found = [Vec::new(), Vec::new()];
    for pid in node.processes() {
        let title = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let title = String::from_utf8_lossy(&title).into_owned();
        let namespace = std::fs::read_link(format!("/proc/{pid}/ns/mnt"));
        if let (true, Ok(namespace)) = (
            title.starts_with("sshd") && title.contains(": alice"),
            namespace,
        ) {
            let is_user = !title.contains("[priv]");
            found[usize::from(is_user)].push(namespace.display().to_string());
        }
    }
    found
}

#[test]
fn no_module_works_in_private_files_of_the_user() {
    on_node(|node| {
        let (step, _) = start_step_with_link(node);
        install_writing_stack(node, "", "", "");
        let sshd = node.sshd_with("PasswordAuthentication yes\n");
        let ends = [
            ("open", 2),
            ("close", 2),
            ("setcred", 4),
            ("delete", 2),
            ("account", 1),
        ];
        let by_password = [&ends[..], &[("authenticate", 2)]].concat();
        let inside = |outcome: Outcome| drop(outcome.ok().says("job").joins_cgroup(&step.leaf()));
        inside(sshd.ssh(ALICE, LOOK));
        assert_written_outside(node, &ends);
        inside(sshd.ssh_tty(ALICE, LOOK));
        assert_written_outside(node, &ends);
        inside(sshd.ssh_by("password", &ALICE.password(), ALICE, LOOK));
        assert_written_outside(node, &by_password);
        inside(sshd.ssh_password(ALICE, LOOK));
        assert_written_outside(node, &by_password);
        sshd.sftp(ALICE, "get /tmp/whose /root/got\n").ok();
        assert_eq!(node.read("/root/got"), "job\n");
        assert_written_outside(node, &ends);
        sshd.scp(&[], "alice@127.0.0.1:/tmp/whose", "/root/got")
            .ok();
        assert_written_outside(node, &ends);
    });
}

/// A user causes such an error by too many logins, where pam_limits has maxlogins.
#[test]
fn monitor_stays_outside_when_another_session_line_fails() {
    on_node(|node| {
        let (_step, _) = start_step_with_link(node);
        let outside = node
            .sh("readlink /proc/self/ns/mnt")
            .stdout
            .trim()
            .to_owned();
        let sshd = node.sshd();
        let fails = "session required pam_deny.so\n";
        for (before, after) in [(fails, ""), ("", fails)] {
            install_writing_stack(node, "", before, after);
            sshd.ssh(ALICE, "true").fails();
            eventually("that sshd has ended", || {
                sshd_namespaces(node).concat().is_empty()
            });
            let mut client = sshd.client("ssh", &["-o", "BatchMode=yes", "-N", "alice@127.0.0.1"]);
            let mut client = client.spawn().unwrap();
            eventually("the user's process of sshd is there", || {
                let [_, users] = sshd_namespaces(node);
                users.iter().any(|namespace| *namespace != outside)
            });
            let [monitors, _] = sshd_namespaces(node);
            assert_eq!(monitors, [outside.as_str()]);
            node.kill_program("ssh");
            client.wait().unwrap();
            eventually("sshd has ended", || {
                sshd_namespaces(node).concat().is_empty()
            });
            assert_eq!(node.read("/root/victim"), "root\n");
        }
    });
}

#[test]
fn monitor_of_a_login_without_command_stays_outside() {
    on_node(|node| {
        let (_step, path) = start_step_with_link(node);
        let outside = node
            .sh("readlink /proc/self/ns/mnt")
            .stdout
            .trim()
            .to_owned();
        let inside = node
            .sh(&format!(
                "nsenter --mount={path} readlink /proc/self/ns/mnt"
            ))
            .stdout;
        install_writing_stack(node, "", "", "");
        let sshd = node.sshd();
        let mut client = sshd.client("ssh", &["-o", "BatchMode=yes", "-N", "alice@127.0.0.1"]);
        let mut client = client.spawn().unwrap();
        let expected = [vec![outside], vec![inside.trim().to_owned()]];
        eventually("the login has joined", || sshd_namespaces(node) == expected);
        node.kill_program("ssh");
        client.wait().unwrap();
        assert_written_outside(node, &[("close", 2), ("setcred", 4), ("delete", 2)]);
    });
}

/// libpam takes the answers of the failed attempt for credentials too (pam_setcred(3)), and stops at pam_deny.
#[test]
fn key_after_a_wrong_password_is_refused() {
    on_node(|node| {
        let (step, _) = start_step_with_link(node);
        install_writing_stack(node, "", "", "");
        let sshd = node.sshd_with("PasswordAuthentication yes\n");
        let wrong = |methods| sshd.ssh_by(methods, "wrong", ALICE, LOOK);
        let refused = wrong("password,publickey")
            .fails()
            .says("[JA07]")
            .omits("job\n");
        refused
            .says("Try again. If it persists, report:")
            .omits("Not your fault");
        node.log
            .line("not both auth lines of pam_job_adopt.so ran before");
        step.assert_empty();
        // That attempt was made in another process.
        wrong("keyboard-interactive,publickey")
            .ok()
            .says("job")
            .joins_cgroup(&step.leaf());
        assert_eq!(node.read("/root/victim"), "root\n");
    });
}

/// A module may answer otherwise in the second process, for example if the user's limits stop it there.
#[test]
fn login_whose_last_auth_line_does_not_run_starts_no_program() {
    on_node(|node| {
        let (_step, _) = start_step_with_link(node);
        install_writing_stack(node, "once", "", "");
        let sshd = node.sshd();
        for outcome in [
            sshd.ssh(ALICE, "touch /home/alice/ran"),
            sshd.ssh_tty(ALICE, "touch /home/alice/ran"),
            sshd.sftp(ALICE, "put /etc/hosts /home/alice/ran\n"),
        ] {
            outcome.fails();
        }
        assert!(!node.exists("/home/alice/ran"));
        assert_eq!(node.read("/root/victim"), "root\n");
    });
}

#[test]
fn credentials_are_not_set_again_in_private_files() {
    on_node(|node| {
        let (_step, _) = start_step_with_link(node);
        install_login(node);
        install_writing_stack(node, "", "", "");
        node.sh(&format!("{LOGIN} again")).exits(137);
        node.log
            .line("credentials are set again after both auth lines");
        assert_eq!(node.read("/root/victim"), "root\n");
    });
}

/// The first of these calls enters, and each later one would leave.
#[test]
fn monitor_that_cannot_leave_is_ended() {
    on_node(|node| {
        let (_step, _) = start_step_with_link(node);
        install_login(node);
        install_writing_stack(node, "", "", "");
        let strace = "exec strace -qq -o /dev/null -e inject=setns:error=EPERM:when=";
        let login = "sshd-login alice /usr/bin/in-session";
        node.sh(&format!("{strace}2 {login}")).ok().says("job\n");
        node.log.clear();
        node.sh(&format!("{strace}2+ {login}"))
            .exits(137)
            .omits("session");
        node.log.line("leave the job's namespaces");
        assert_eq!(node.read("/root/victim"), "root\n");
    });
}

#[test]
fn stack_without_auth_lines_refuses_private_files_alone() {
    on_node(|node| {
        let path = make_private_namespace(node);
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let sshd = node.sshd();
        let write =
            "write \"auth required pam_job_adopt.so\" as the first and as the last auth line";
        let both = "auth required pam_job_adopt.so\n";
        let others = "account required pam_job_adopt.so\naccount required pam_unix.so\n\
                      session required pam_permit.so\nsession required pam_job_adopt.so\n";
        register_with(node, &job.cgroup, &path).ok();
        for auth in [
            "auth required pam_unix.so\n".to_owned(),
            format!("{both}auth required pam_unix.so\n"),
            format!("{both}{both}auth required pam_unix.so\n"),
            format!("{both}auth sufficient pam_unix.so\n{both}"),
            format!("{both}auth required pam_unix.so\n{both}{both}"),
        ] {
            node.write_stack(&format!("{auth}{others}"));
            node.log.clear();
            sshd.ssh(ALICE, LOOK).fails().says("[JA09]");
            node.log.line(&write.replace('"', "\\\""));
        }
        write_joining_stack(node);
        sshd.ssh(ALICE, LOOK)
            .ok()
            .says("job")
            .joins_cgroup(&job.cgroup);
        // pamtester opens a session, but none of its processes becomes the user.
        node.run("pamtester", &["sshd", "alice", "setcred", "open_session"])
            .fails()
            .says("[JA07]");
        // A job without private files needs no such line.
        node.unregister("4242").ok();
        register(node, &job.cgroup, &[]).ok();
        node.write_stack(&format!("auth required pam_unix.so\n{others}"));
        sshd.ssh(ALICE, LOOK)
            .ok()
            .says("node")
            .joins_cgroup(&job.cgroup);
    });
}

#[test]
fn namespace_not_owned_by_root_is_not_registered() {
    on_node(|node| {
        let path = make_private_namespace(node);
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
            register_with(node, job, name).fails().says(why);
            assert!(!node.exists("/run/job-adopt/jobs/1001/4242.json"), "{name}");
        }
        register_with(node, job, &path).ok();
        // The module does not trust it later either.
        node.sh("chmod 777 /run/ns").ok();
        assert_undone(node, print_session(node, ""), "[JA07]");
    });
}

/// Registers a job whose scheduler places the logins, with that namespace.
fn register_via(node: &Node, scheduler: &str, id: &str, uid: &str, options: &[&str]) -> Outcome {
    let job = ["register", "--id", id, "--uid", uid, "--via", scheduler];
    node.job_adopt(&[&job[..], &["--policy", "auto"], options].concat())
}

/// The helper only names the record; the module finds its namespace by the login's user.
#[test]
fn job_of_scheduler_has_namespace_of_its_record() {
    on_node(|node| {
        let path = make_private_namespace(node);
        let step = node.step(ALICE, &[]);
        let with_record = |id: &str| Plan {
            namespaces: Some(id.parse().unwrap()),
            ..plan(Containment::None)
        };
        let namespaces = ["--namespaces", &path];
        register_via(node, "slurm", "4242", "1001", &namespaces).ok();
        node.answers(&with_record("4242"));
        assert_inside(print_session(node, ""), &step.leaf());
        print_session(node, "join_container=false")
            .says("session succeeds")
            .says("node\n");
        // Another user's is not taken, whatever the helper says.
        register_via(node, "slurm", "77", "1002", &namespaces).ok();
        node.answers(&with_record("77"));
        assert_undone(node, print_session(node, ""), "[JA07]");
        let pins = || {
            node.sh("cd /run/job-adopt/namespaces/.via && ls -d */*")
                .stdout
        };
        assert_eq!(pins(), "1001/4242\n1002/77\n");
        // The same job again, without one.
        register_via(node, "slurm", "77", "1002", &[]).ok();
        assert_eq!(pins(), "1001/4242\n");
        node.unregister("4242").ok();
        assert_eq!(pins(), "");
        node.answers(&with_record("4242"));
        assert_undone(node, print_session(node, ""), "[JA07]");
    });
}

#[test]
fn job_of_flux_has_namespace_of_its_record() {
    on_flux(|node| {
        let path = make_private_namespace(node);
        let job = node.start_flux_job(ALICE, "fxyzzy", &["--rule", "c:1:*:rwm"]);
        let file = format!("{}/imp-shell-0-fxyzzy.service", node.transient());
        node.write(&file, "[Service]\nType=notify\n");
        register_via(node, "flux", "fxyzzy", "1001", &["--namespaces", &path]).ok();
        assert_inside(print_session(node, ""), &job.leaf());
        register_via(node, "flux", "fxyzzy", "1001", &[]).ok();
        print_session(node, "")
            .says("session succeeds")
            .says("node\n")
            .joins_cgroup(&job.leaf());
    });
}

#[test]
fn job_of_scheduler_with_bad_namespace_is_not_registered() {
    on_node(|node| {
        make_private_namespace(node);
        for (name, code, why) in [
            ("/run/ns/nowhere", 3, "No such file"),
            ("/etc/passwd", 3, "is no namespace of mounts"),
            ("1", 2, "the number of a process, for records with cgroup"),
        ] {
            register_via(node, "slurm", "4242", "1001", &["--namespaces", name])
                .exits(code)
                .says(why);
            assert!(!node.exists("/run/job-adopt/jobs/1001/4242.json"), "{name}");
            assert!(
                !node.exists("/run/job-adopt/namespaces/.via/1001/4242"),
                "{name}"
            );
        }
    });
}

/// The directory of the pins.
const PINS: &str = "/run/job-adopt/namespaces";

/// Lists the pins for owners, one a line.
fn list_owner_pins(node: &Node) -> String {
    node.sh(&format!("cd {PINS}/.via && ls -d */* 2>/dev/null || :"))
        .stdout
}

/// Registers a job of alice that Slurm places, with this namespace.
fn register_via_slurm(node: &Node, id: &str, path: &str, options: &[&str]) -> Outcome {
    let options = [&["--namespaces", path], options].concat();
    register_via(node, "slurm", id, "1001", &options)
}

#[test]
fn pin_for_owner_goes_when_its_record_names_a_cgroup() {
    on_node(|node| {
        let path = make_private_namespace(node);
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        register_via_slurm(node, "4242", &path, &[]).ok();
        // The target of a record that can be read does not change.
        node.write("/run/job-adopt/jobs/1001/4242.json", "{");
        register_via_slurm(node, "77", &path, &[]).ok();
        assert_eq!(list_owner_pins(node), "1001/4242\n1001/77\n");
        register_with(node, &job.cgroup, &path).ok();
        assert_eq!(list_owner_pins(node), "1001/77\n");
    });
}

/// Whoever opens a pin holds the job's mounts after its end.
#[test]
fn only_root_opens_pins() {
    on_node(|node| {
        let path = make_private_namespace(node);
        node.sh(&format!("mkdir -m 755 -p {PINS}/.via/1001")).ok();
        register_via_slurm(node, "4242", &path, &[]).ok();
        let pin = format!("{PINS}/.via/1001/4242");
        assert!(node.exists(&pin));
        for uid in ["1001", "1002"] {
            let script =
                format!("exec setpriv --reuid {uid} --regid {uid} --clear-groups sh -c ': <{pin}'");
            node.sh(&script).fails().says("denied");
        }
        assert_eq!(node.sh(&format!("stat -c %a {PINS}")).stdout, "700\n");
    });
}

#[test]
fn pins_of_other_registries_stay() {
    on_node(|node| {
        let path = make_private_namespace(node);
        let conf = "/etc/security/other.conf";
        node.write(conf, "registry = /run/other\n");
        register_via_slurm(node, "4242", &path, &[]).ok();
        // An earlier version noted no registry.
        node.write(&format!("{PINS}/old"), "");
        // That registry does not exist.
        node.job_adopt(&["unregister", "8", "--conf", conf]).ok();
        assert_eq!(list_owner_pins(node), "1001/4242\n");
        register_via_slurm(node, "8", &path, &["--conf", conf]).ok();
        assert_eq!(list_owner_pins(node), "1001/4242\n1001/8\n");
        assert!(node.exists(&format!("{PINS}/old")));
        // A job that runs keeps its pin.
        register_via_slurm(node, "4242", &path, &["--conf", conf])
            .fails()
            .says("registry /run/job-adopt/jobs has a job of this id");
        assert!(!node.exists("/run/other/1001/4242.json"));
        register_via_slurm(node, "77", &path, &[]).ok();
        assert_eq!(list_owner_pins(node), "1001/4242\n1001/77\n1001/8\n");
        assert!(!node.exists(&format!("{PINS}/old")));
        node.unregister("4242").ok();
        assert_eq!(list_owner_pins(node), "1001/77\n1001/8\n");
        // The other registry is gone, and its job with it.
        node.sh("rm -r /run/other").ok();
        register_via_slurm(node, "8", &path, &[]).ok();
        node.unregister("8").ok();
        node.unregister("77").ok();
        assert_eq!(node.sh(&format!("ls -A {PINS}/.via")).stdout, "");
    });
}

/// A pin of an earlier version has no note, and one of a command that was killed may have a half-made one.
#[test]
fn pin_without_note_is_the_default_registrys() {
    on_node(|node| {
        let path = make_private_namespace(node);
        let conf = "/etc/security/other.conf";
        node.write(conf, "registry = /run/other\n");
        register_via_slurm(node, "4242", &path, &[]).ok();
        node.sh(&format!(
            "cd {PINS}/.via/1001 && mv .registry-4242 .new-registry-4242"
        ))
        .ok();
        register_via_slurm(node, "4242", &path, &["--conf", conf])
            .fails()
            .says("registry /run/job-adopt/jobs has a job of this id");
        register_via_slurm(node, "4242", &path, &[]).ok();
        node.sh(&format!("readlink {PINS}/.via/1001/.registry-4242"))
            .says("/run/job-adopt/jobs");
        node.sh(&format!("ln -s / {PINS}/.via/1001/.new-registry-4242"))
            .ok();
        node.unregister("4242").ok();
        assert_eq!(node.sh(&format!("ls -A {PINS}/.via")).stdout, "");
    });
}

/// Until then each prolog and epilog would look through the directories of all users that ever had a job.
#[test]
fn directory_of_owner_goes_with_the_last_pin() {
    on_node(|node| {
        let path = make_private_namespace(node);
        for id in ["4242", "77"] {
            register_via_slurm(node, id, &path, &[]).ok();
        }
        node.unregister("4242").ok();
        assert_eq!(list_owner_pins(node), "1001/77\n");
        node.unregister("77").ok();
        assert_eq!(node.sh(&format!("ls -A {PINS}/.via")).stdout, "");
        node.write(&format!("{PINS}/.via/1001"), "");
        register_via(node, "slurm", "4242", "1002", &[])
            .fails()
            .says("Not a directory");
    });
}

#[test]
fn registered_again_the_same_namespace_keeps_its_pin() {
    on_node(|node| {
        let path = make_private_namespace(node);
        register_via_slurm(node, "4242", &path, &[]).ok();
        // A new mount would not be read-only.
        let pin = format!("{PINS}/.via/1001/4242");
        node.sh(&format!("mount -o remount,bind,ro {pin}")).ok();
        register_via_slurm(node, "4242", &path, &[]).ok();
        node.sh(&format!("grep -c ' {pin} ro' /proc/self/mountinfo"))
            .says("1\n");
    });
}

/// The kernel binds no namespace to a file in itself.
#[test]
fn failed_registration_keeps_the_earlier_pin() {
    on_node(|node| {
        node.sh("echo node >/tmp/whose").ok();
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let job = &job.cgroup;
        let (holder, root_pid) = register_held_namespace(node, job);
        node.arguments("");
        let mut outside = node.daemon(job, "sleep").arg("700").spawn().unwrap();
        let find = || node.sh("pgrep -x -f 'sleep 700'").stdout.trim().to_owned();
        eventually("the other process runs", || !find().is_empty());
        register_with(node, job, &find())
            .fails()
            .says("pin namespace of process");
        assert_inside(print_session(node, ""), job);
        end(node, holder, &root_pid);
        assert_inside(print_session(node, ""), job);
        let _ = outside.kill();
        let _ = outside.wait();
    });
}
