//! Many logins at once, in the way a launcher starts its ranks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{
    ALICE, AttachedFilter, BOB, Job, LOOK, Sshd, eventually, on_node, on_node_alone, wait_within,
};

const LOGINS: usize = 256;
/// Enough rounds for more than a thousand logins.
const ROUNDS: usize = 4;

/// State that every round must leave unchanged.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    filters: Vec<AttachedFilter>,
    children: usize,
    /// Open descriptors of the server's listener.
    descriptors: usize,
    /// Processes of the whole node.
    processes: Vec<i32>,
    /// Everything below `/run/job-adopt`, with the records.
    files: String,
    locks: usize,
}

impl Left {
    fn read(job: &Job<'_>, sshd: &Sshd<'_>) -> Self {
        let node = sshd.node();
        let mut processes = node.processes();
        processes.sort_unstable();
        Self {
            filters: job.cgroup.filters(),
            children: job.cgroup.children().len(),
            descriptors: fs::read_dir(format!("/proc/{}/fd", sshd.pid()))
                .unwrap()
                .count(),
            processes,
            files: node
                .sh("find /run/job-adopt -printf '%p %m %U\\n' | sort")
                .ok()
                .stdout,
            locks: count_locks(&node.path("/run/job-adopt/lock")),
        }
    }
}

/// Counts the locks of any kind that are held on a file or waited for.
fn count_locks(file: &Path) -> usize {
    let inode = fs::metadata(file).unwrap().ino();
    let held = fs::read_to_string("/proc/locks").unwrap();
    held.lines()
        .filter(|line| line.contains(&format!(":{inode} ")))
        .count()
}

#[test]
fn concurrent_logins_are_all_adopted_and_leave_one_filter() {
    on_node_alone(|node| {
        node.arguments("log_level=quiet");
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let sshd = node.sshd();
        sshd.ssh(ALICE, LOOK).ok().joins_cgroup(&job.cgroup);
        let servers = |of: &Job<'_>| of.cgroup.pids().len();
        eventually("the login is over", || servers(&job) == 1);
        let first = Left::read(&job, &sshd);
        assert_eq!(
            (first.filters.len(), first.children, first.locks),
            (1, 0, 0),
            "{first:?}"
        );
        for round in 0..ROUNDS {
            let burst = sshd.burst(ALICE, LOGINS, &[], || {
                assert!(servers(&job) > LOGINS, "{}", servers(&job));
                assert_eq!(job.cgroup.filters(), first.filters);
            });
            assert!(
                burst.complaints.is_empty(),
                "round {round}: {:?}",
                burst.complaints
            );
            assert_eq!(
                burst.cgroups,
                vec![job.cgroup.path(); LOGINS],
                "round {round}"
            );
            // A server still works for a moment after its client has gone.
            wait_within(Duration::from_secs(60), "the logins are over", || {
                servers(&job) == 1
            });
            let mut left = Left::read(&job, &sshd);
            let deadline = Instant::now() + Duration::from_secs(60);
            while left != first && Instant::now() < deadline {
                sleep(Duration::from_millis(20));
                left = Left::read(&job, &sshd);
            }
            assert_eq!(left, first, "round {round}");
        }
    });
}

/// Lists the calls of the process that takes the lock, while it holds it.
fn calls_under_lock(log: &str) -> Vec<&str> {
    const LOCK: &str = "/run/job-adopt/lock>";
    let mut lines = log
        .lines()
        .skip_while(|line| !(line.contains("F_OFD_SETLK") && line.contains(LOCK)));
    let taken = lines
        .next()
        .unwrap_or_else(|| panic!("no lock is taken:\n{log}"));
    let (pid, _) = taken.split_once(' ').unwrap();
    let own = lines.filter_map(|line| line.strip_prefix(pid)?.strip_prefix(' '));
    let own = own.map(str::trim_start);
    let held = own.take_while(|call| !(call.starts_with("close(") && call.contains(LOCK)));
    // The second half of a call that another process's call interrupted in the log.
    held.filter(|call| !call.starts_with("<... ")).collect()
}

#[test]
fn lock_is_held_only_by_first_login_and_only_for_filters() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        node.pam_under_strace(&["-y"], ALICE).ok();
        let log = node.read("/tmp/strace");
        let held = calls_under_lock(&log);
        assert!(
            held.iter().any(|line| line.contains("BPF_PROG_ATTACH")),
            "{held:#?}"
        );
        for call in &held {
            // Queries of the levels' filters, and memory for the answers.
            let known = [
                "bpf(",
                "openat(",
                "openat2(",
                "fstat(",
                "newfstatat(",
                "statx(",
                "close(",
                "brk(",
                "mmap(",
                "munmap(",
            ];
            assert!(
                known.iter().any(|known| call.starts_with(known)),
                "{call}\n{held:#?}"
            );
        }
        node.pam_under_strace(&["-y"], ALICE).ok();
        let second = node.read("/tmp/strace");
        assert!(second.contains("BPF_PROG_QUERY"), "{second}");
        assert!(!second.contains("job-adopt/lock"), "{second}");
        assert_eq!(job.cgroup.filters().len(), 1);
    });
}

#[test]
fn logins_of_two_users_share_no_lock() {
    on_node(|node| {
        node.reporting("");
        let hers = node.job(ALICE, "1").devices(&["/dev/nvidia0"]).start();
        let his = node.job(BOB, "2").devices(&["/dev/nvidia1"]).start();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| node.pam(ALICE).ok().joins_cgroup(&hers.cgroup));
                scope.spawn(|| node.pam(BOB).ok().joins_cgroup(&his.cgroup));
            }
        });
        assert_eq!(
            (hers.cgroup.filters().len(), his.cgroup.filters().len()),
            (1, 1)
        );
    });
}
