//! How long daemons are waited for, and how often they are called.

use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use nix::sys::socket::{bind, listen, socket};

use super::daemons::ClientCount;
use super::*;

const HALF_SECOND: Duration = Duration::from_millis(500);

#[test]
fn late_daemon_of_possible_newest_job_is_awaited() {
    let bench = SlurmBench::new("/s");
    let late = QUERY_TIMEOUT + HALF_SECOND;
    bench.daemon(1, DaemonBehavior::Answers(5, RUNNING));
    bench.daemon(2, DaemonBehavior::IsLate(late));
    bench.cgroup_v1(5, 2);
    let report = bench.report();
    assert_eq!((ids(&report), report.silent.len()), (vec!["1", "2"], 0));
    assert_eq!(bench.clock.elapsed(), late);
}

/// Else whoever stops the daemon of an idle allocation delays all logins to the deadline.
#[test]
fn hung_daemon_of_job_without_known_owner_delays_login_with_own_job_by_a_second() {
    let bench = SlurmBench::new("/s");
    bench.daemon(1, DaemonBehavior::Answers(5, RUNNING));
    bench.daemon(2, DaemonBehavior::Hangs);
    let report = bench.report();
    assert_eq!(bench.clock.elapsed(), QUERY_TIMEOUT);
    assert_eq!((ids(&report), report.silent.len()), (vec!["1"], 1));
}

/// Its own job is late as well: with its answer, whatever comes first in the list, the login goes on at once.
#[test]
fn first_answer_of_own_job_ends_wait_for_job_without_known_owner() {
    for (own, unknown) in [(1, 2), (2, 1)] {
        let bench = SlurmBench::new("/s");
        let late = QUERY_TIMEOUT + HALF_SECOND;
        bench.daemon(own, DaemonBehavior::IsLate(late));
        bench.daemon(unknown, DaemonBehavior::Hangs);
        let report = bench.report();
        assert_eq!(bench.clock.elapsed(), late);
        assert_eq!((report.jobs.len(), report.silent.len()), (1, 1));
    }
}

/// No login can join a job that starts or ends.
#[test]
fn job_that_takes_no_logins_ends_no_wait_for_job_without_known_owner() {
    for state in [daemons::STARTING, daemons::ENDING] {
        let bench = SlurmBench::new("/s");
        bench.daemon(1, DaemonBehavior::Answers(5, state));
        bench.daemon(2, DaemonBehavior::IsLate(2 * QUERY_TIMEOUT));
        assert_eq!(ids(&bench.report()), ["2"]);
    }
}

#[test]
fn hung_daemon_of_possible_own_job_is_awaited_to_deadline() {
    let bench = SlurmBench::new("/s");
    bench.daemon(1, DaemonBehavior::Hangs);
    bench.daemon(2, DaemonBehavior::Answers(5, RUNNING));
    bench.cgroup_v1(5, 1);
    let deadline = bench.deadline_after(QUERY_TIMEOUT + HALF_SECOND);
    let report = bench.source(None).jobs(5, deadline).unwrap();
    assert_eq!(bench.clock.now(), deadline.instant());
    assert_eq!((ids(&report), report.foreign.len()), (vec!["2"], 0));
    let silent = report.silent.first().unwrap();
    assert!(silent.ends_with("did not answer in time"), "{report:?}");
}

#[test]
fn hung_daemon_of_another_users_job_delays_no_login_to_the_deadline() {
    let bench = SlurmBench::new("/s");
    bench.daemon(1, DaemonBehavior::Hangs);
    bench.daemon(2, DaemonBehavior::Answers(5, RUNNING));
    bench.cgroup_v1(6, 1);
    for (uid, jobs) in [(5, vec!["2"]), (4, vec![])] {
        let began = bench.clock.elapsed();
        let report = bench
            .source(None)
            .jobs(uid, bench.deadline_after(LONG))
            .unwrap();
        assert_eq!(bench.clock.elapsed() - began, QUERY_TIMEOUT);
        assert_eq!((ids(&report), report.silent.len()), (jobs, 0));
        assert!(
            report.foreign.first().unwrap().ends_with("another user's"),
            "{report:?}"
        );
    }
}

#[test]
fn daemon_that_hangs_up_is_queried_again() {
    let bench = SlurmBench::new("/s");
    bench.daemon(1, DaemonBehavior::HangsUpOnce);
    let report = bench.report();
    assert_eq!((ids(&report), report.silent.len()), (vec!["1"], 0));
}

#[test]
fn hung_daemon_is_awaited_without_other_jobs() {
    let bench = SlurmBench::new("/s");
    bench.daemon(1, DaemonBehavior::Hangs);
    bench.daemon(2, DaemonBehavior::Answers(6, RUNNING));
    assert!(ids(&bench.report()).is_empty());
    assert_eq!(bench.clock.elapsed(), LONG);
}

#[test]
fn daemon_with_full_backlog_is_retried() {
    let bench = SlurmBench::new("/s");
    let path = bench.path("s", "n1", 3);
    let socket = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .unwrap();
    bind(socket.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&socket, Backlog::new(0).unwrap()).unwrap();
    let filling = UnixStream::connect(&path).unwrap();
    bench.daemons.running(&bench.path("s", "n1", 4), 5);
    let daemons = bench.daemons.clone();
    let accepting = Duration::from_millis(100);
    bench.clock.run_at(accepting, move || {
        let listener = UnixListener::from(socket);
        drop((filling, listener.accept().unwrap()));
        daemons.add_listener(listener, DaemonBehavior::Answers(5, RUNNING));
    });
    assert_eq!(ids(&bench.report()), ["3", "4"]);
    assert!(bench.clock.elapsed() >= accepting, "{:?}", bench.clock);
}

#[test]
fn hundreds_of_daemons_are_queried_few_at_a_time() {
    let bench = SlurmBench::new("/s");
    let count = Rc::<ClientCount>::default();
    for job in 1..=300 {
        bench.daemon(job, DaemonBehavior::Counts(Rc::clone(&count)));
    }
    assert_eq!(bench.report().jobs.len(), 300);
    assert_eq!(count.max.get(), 64);
    assert!(bench.clock.elapsed() < HALF_SECOND, "{:?}", bench.clock);
}

#[test]
fn daemons_beyond_deadline_are_reported() {
    let bench = SlurmBench::new("/s");
    for job in 1..=100 {
        bench.daemon(job, DaemonBehavior::Hangs);
    }
    let deadline = bench.deadline_after(Duration::from_millis(300));
    let report = bench.source(None).jobs(5, deadline).unwrap();
    assert_eq!(bench.clock.now(), deadline.instant());
    assert_eq!(report.silent.len(), 65);
    assert_eq!(
        report.silent.last().unwrap(),
        "36 more daemons could not be asked in time"
    );
}

/// What a command of root waits for: 100 daemons of one user that hang hold it up for a second in all, beside others,
/// and put nobody else in doubt. A second question of the same call does not wait again.
#[test]
fn hundred_hung_daemons_of_another_user_cost_one_second_once() {
    let bench = SlurmBench::new("/s");
    for job in 1..=100 {
        bench.daemon(job, DaemonBehavior::Hangs);
    }
    for job in 101..=150 {
        bench.daemon(job, DaemonBehavior::Answers(7, RUNNING));
    }
    let process = std::process::id();
    // This process stands for all daemons. Each job has its own line.
    let mut lines = String::new();
    for job in 1..=100 {
        let path = format!("/slurm_n1/uid_6/job_{job}/step_extern");
        lines += &format!("{job}:freezer:{path}\n");
        bench.scratch.dir(&format!("sys/fs/cgroup/freezer{path}"));
    }
    bench
        .scratch
        .file(&format!("proc/{process}/cgroup"), &lines);
    let mut asked = AskedDaemons::default();
    for waits in [QUERY_TIMEOUT, Duration::ZERO] {
        for uid in [5, 6, 5] {
            let began = bench.clock.elapsed();
            let sought = BTreeSet::from([uid]);
            let deadline = bench.deadline_after(LONG);
            let found = bench
                .source(None)
                .jobs_of_users(Sought::Users(&sought), &mut asked, deadline)
                .unwrap();
            assert_eq!((found.jobs.len(), found.doubts.len()), (50, 100));
            let own = found
                .doubts
                .iter()
                .filter(|doubt| doubt.owners.include(uid));
            assert_eq!(own.count(), if uid == 5 { 0 } else { 100 }, "{uid}");
            let waits = if began.is_zero() {
                waits
            } else {
                Duration::ZERO
            };
            assert_eq!(bench.clock.elapsed() - began, waits, "{uid}");
        }
    }
}

/// The job may be the user's own: a node that is busy for more than a second does not fail the epilog.
#[test]
fn late_daemon_of_possible_own_job_is_awaited_by_root() {
    let bench = SlurmBench::new("/s");
    let late = 3 * QUERY_TIMEOUT;
    bench.daemon(1, DaemonBehavior::IsLate(late));
    let found = bench.all_jobs(Sought::Users(&BTreeSet::from([5])));
    assert_eq!((found.jobs.len(), found.doubts.len()), (1, 0));
    assert_eq!(bench.clock.elapsed(), late);
    bench.all_jobs(Sought::All);
    assert_eq!(bench.clock.elapsed(), late + QUERY_TIMEOUT);
}

/// Nobody has a process with its number, as nobody ever connected: the title of the daemon shows whose job it is.
#[test]
fn daemon_with_full_queue_of_another_users_job_delays_no_login_to_the_deadline() {
    let bench = SlurmBench::new("/s");
    let path = bench.path("s", "n1", 3);
    let listener = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .unwrap();
    bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let _filling = UnixStream::connect(&path).unwrap();
    bench.daemon(4, DaemonBehavior::Answers(5, RUNNING));
    bench
        .scratch
        .file("proc/70/cmdline", "slurmstepd: [3.extern]\0");
    let cgroup = "/slurm_n1/uid_6/job_3/step_extern";
    let line = format!("2:freezer:{cgroup}\n0::/\n");
    bench.scratch.file("proc/70/cgroup", &line);
    bench.scratch.dir(&format!("sys/fs/cgroup/freezer{cgroup}"));
    let report = bench.report();
    assert_eq!(bench.clock.elapsed(), QUERY_TIMEOUT);
    assert_eq!((ids(&report), report.silent.len()), (vec!["4"], 0));
    assert_eq!(report.foreign.len(), 1);
}

/// Its state changes, and then its user has a job.
#[test]
fn starting_job_is_asked_about_again() {
    let bench = SlurmBench::new("/s");
    bench.daemon(1, DaemonBehavior::Answers(5, daemons::STARTING));
    let mut asked = AskedDaemons::default();
    let mut count = |running| {
        if running {
            std::fs::remove_file(bench.path("s", "n1", 1)).unwrap();
            bench.daemon(1, DaemonBehavior::Answers(5, RUNNING));
        }
        let source = bench.source(None);
        let found = source.jobs_of_users(Sought::All, &mut asked, bench.deadline_after(LONG));
        found.unwrap().jobs.len()
    };
    assert_eq!((count(false), count(true), count(false)), (0, 1, 1));
}
