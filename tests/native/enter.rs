//! `job-adopt enter`: a user enters a container in their own job. Here unshare(1) makes it; booted nodes have podman,
//! bubblewrap and Charliecloud.

use crate::support::{ALICE, Job, Node, Outcome, eventually, on_node};

/// Namespaces of all kinds, as most containers have.
const ALL: &str = "unshare --user --map-root-user --mount --pid --fork --uts --ipc --net";
/// A user and a mount namespace, as Charliecloud makes them.
const TWO: &str = "unshare --user --map-root-user --mount";

/// Runs a script as alice in the job, beside a container that `command` makes. In the script, `$container` is the
/// process that runs that, and `enter` enters it.
fn run_beside(job: &Job<'_>, command: &str, script: &str) -> Outcome {
    let script = format!(
        "set -e
        dir=$(mktemp -d)
        mkfifo $dir/ready
        {command} sh -c \"echo ready >$dir/ready; exec sleep 600\" &
        container=$!
        trap 'kill -KILL $container $(cat /proc/$container/task/$container/children); rm -r $dir' EXIT
        read -r ready <$dir/ready
        enter() {{ job-adopt enter -- \"$@\"; }}
        {script}"
    );
    let id = ALICE.uid.to_string();
    let mut run = job.node().daemon(&job.cgroup, "setpriv");
    run.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    Outcome::run(run.args(["sh", "-c", &script]))
}

fn with_job(test: impl FnOnce(&Node, &Job<'_>)) {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        test(node, &job);
    });
}

#[test]
fn command_joins_namespaces_of_the_container_and_stays_in_cgroup_of_the_login() {
    let script = "
        inner=$(cat /proc/$container/task/$container/children)
        job-adopt enter -- sleep 600 &
        outer=$!
        until command=$(cat /proc/$outer/task/$outer/children) && grep -aq ^sleep /proc/${command% }/cmdline; do
            sleep 0.05
        done
        for kind in user mnt pid uts ipc net; do
            [ $(readlink /proc/${command% }/ns/$kind) = $(readlink /proc/${inner% }/ns/$kind) ]
            [ $(readlink /proc/${command% }/ns/$kind) != $(readlink /proc/self/ns/$kind) ]
        done
        [ $(readlink /proc/${command% }/ns/cgroup) = $(readlink /proc/self/ns/cgroup) ]
        cmp /proc/${command% }/cgroup /proc/self/cgroup
        kill -TERM $outer
        wait $outer || echo status $?";
    with_job(|_, job| {
        run_beside(job, ALL, script).exits(0).says("status 143");
    });
}

#[test]
fn command_may_do_no_more_than_the_container() {
    let script = "enter cat /proc/self/status
        enter setpriv --dump
        grep -E '^Cap(Prm|Eff):' /proc/$container/status >$dir/container
        enter grep -E '^Cap(Prm|Eff):' /proc/self/status | cmp - $dir/container
        job-adopt enter 4242 -- sh -c 'exit 7' || exit $?";
    with_job(|_, job| {
        let limits = "setpriv --bounding-set=-all,+chown --no-new-privs";
        run_beside(job, &format!("{TWO} {limits}"), script)
            .exits(7)
            .says("CapBnd:\t0000000000000001\n")
            .says("NoNewPrivs:\t1\n");
        run_beside(job, TWO, script)
            .exits(7)
            .says("NoNewPrivs:\t0\n")
            .omits("CapBnd:\t0000000000000001\n");
        // It has no capability as root, and all in its bounding set.
        let no_root = "setpriv --no-new-privs --securebits=+noroot,+noroot_locked";
        run_beside(job, &format!("{TWO} {no_root}"), script).exits(7);
    });
}

/// Both processes have the same uid, and the one inside has all capabilities of its user namespace.
#[test]
fn process_outside_cannot_be_read_from_the_container() {
    let script = "enter sh -c 'cat /proc/$$/environ >/dev/null && echo own'
        for file in environ maps fd/0 exe cwd; do
            enter sh -c \"test -L /proc/\\$PPID/$file && readlink /proc/\\$PPID/$file || head -c 1 /proc/\\$PPID/$file\" &&
                echo read $file
        done || true";
    with_job(|_, job| {
        let outcome = run_beside(job, TWO, script).exits(0);
        outcome.says("own").says("Permission denied").omits("read ");
    });
}

#[test]
fn nothing_of_the_login_goes_into_the_container() {
    let script = "exec 9</etc/passwd
        SECRET=of-the-login TERM=vt220 enter env
        enter ls /proc/self/fd";
    with_job(|_, job| {
        let command = format!("env INSIDE=yes {TWO}");
        let outcome = run_beside(job, &command, script).exits(0);
        outcome
            .says("INSIDE=yes")
            .says("0\n1\n2\n3\n")
            .omits("SECRET")
            .omits("TERM=")
            .omits("\n4\n")
            .omits("\n9\n");
    });
}

/// A program with the login's terminal as controlling one could type into the login's shell.
#[test]
fn terminal_and_session_of_the_container_are_not_those_of_the_login() {
    let script = "script -qec '
            stty rows 33 cols 77
            echo outside $(tty) $(cut -d\" \" -f6,7 /proc/self/stat)
            job-adopt enter -- sh -c \"echo inside \\$(tty) \\$(cut -d\\\" \\\" -f6,7 /proc/self/stat); stty size\"
        ' /dev/null";
    with_job(|_, job| {
        let outcome = run_beside(job, TWO, script).exits(0).says("33 77");
        let find = |name: &str| {
            let mut lines = outcome.stdout.lines();
            let (_, facts) = lines.find_map(|line| line.split_once(name)).unwrap();
            let facts: Vec<&str> = facts.split_whitespace().collect();
            assert_eq!(facts.len(), 3, "{outcome}");
            facts
        };
        let outside = find("outside");
        let inside = find("inside");
        for (outer, inner) in outside.iter().zip(&inside) {
            assert_ne!(outer, inner, "{outcome}");
        }
        assert!(inside[0].starts_with("/dev/pts/"), "{outcome}");
    });
}

#[test]
fn container_of_another_job_is_refused() {
    with_job(|node, job| {
        let other = node.job(ALICE, "4250").start();
        let hold = "echo $container >/tmp/container
            until [ -e /tmp/entered ]; do sleep 0.05; done";
        std::thread::scope(|scope| {
            let beside = scope.spawn(|| run_beside(&other, TWO, hold));
            eventually("the container runs", || {
                node.exists("/tmp/container") && !node.read("/tmp/container").is_empty()
            });
            let script = format!(
                "job-adopt enter --pid {} -- true",
                node.read("/tmp/container").trim()
            );
            let outcome = run_beside(job, TWO, &script);
            node.write("/tmp/entered", "");
            beside.join().unwrap().exits(0);
            outcome.exits(125).says("it is not in job 4242");
        });
    });
}
