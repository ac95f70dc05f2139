//! How long daemons are waited for, and how often they are called.

use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::daemons::serve_caller;
use super::*;

#[test]
fn late_daemon_of_possible_newest_job_is_awaited() {
    let mut bench = SlurmBench::new("/s");
    bench.daemon(1, DaemonBehavior::Answers(5, RUNNING));
    bench.daemon(2, DaemonBehavior::IsLate(QUERY_TIMEOUT + Duration::from_millis(500)));
    let report = bench.report();
    assert_eq!((ids(&report), report.silent.len()), (vec!["1", "2"], 0));
}

#[test]
fn hung_daemon_of_possible_own_job_is_awaited_to_deadline() {
    let mut bench = SlurmBench::new("/s");
    bench.daemon(1, DaemonBehavior::Hangs);
    bench.daemon(2, DaemonBehavior::Answers(5, RUNNING));
    for owner in [None, Some(5)] {
        owner.into_iter().for_each(|uid| bench.cgroup_v1(uid, 1));
        let began = Instant::now();
        let deadline = began + QUERY_TIMEOUT + Duration::from_millis(500);
        let report = bench.source(None).jobs(5, deadline).unwrap();
        assert!(Instant::now() >= deadline, "{:?}", began.elapsed());
        assert_eq!((ids(&report), report.foreign.len()), (vec!["2"], 0));
        assert!(report.silent.first().unwrap().ends_with("did not answer in time"), "{report:?}");
    }
}

#[test]
fn hung_daemon_of_another_users_job_delays_no_login_to_the_deadline() {
    let mut bench = SlurmBench::new("/s");
    bench.daemon(1, DaemonBehavior::Hangs);
    bench.daemon(2, DaemonBehavior::Answers(5, RUNNING));
    bench.cgroup_v1(6, 1);
    for (uid, jobs) in [(5, vec!["2"]), (4, vec![])] {
        let began = Instant::now();
        let report = bench.source(None).jobs(uid, began + Duration::from_secs(60)).unwrap();
        let took = began.elapsed();
        assert!(took >= QUERY_TIMEOUT && took < Duration::from_secs(30), "{took:?}");
        assert_eq!((ids(&report), report.silent.len()), (jobs, 0));
        assert!(report.foreign.first().unwrap().ends_with("another user's"), "{report:?}");
    }
}

#[test]
fn daemon_that_hangs_up_is_queried_again() {
    let mut bench = SlurmBench::new("/s");
    bench.daemon(1, DaemonBehavior::HangsUpOnce(Arc::default()));
    let report = bench.report();
    assert_eq!((ids(&report), report.silent.len()), (vec!["1"], 0));
}

#[test]
fn hung_daemon_is_awaited_without_other_jobs() {
    let mut bench = SlurmBench::new("/s");
    bench.daemon(1, DaemonBehavior::Hangs);
    bench.daemon(2, DaemonBehavior::Answers(6, RUNNING));
    let began = Instant::now();
    assert!(ids(&bench.report()).is_empty());
    let took = began.elapsed();
    assert!(took >= QUERY_TIMEOUT + Duration::from_millis(500), "{took:?}");
}

#[test]
fn daemon_with_full_backlog_is_retried() {
    let mut bench = SlurmBench::new("/s");
    let path = bench.path("s", "n1", 3);
    let flags = nix::sys::socket::SockFlag::SOCK_CLOEXEC;
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Unix,
        nix::sys::socket::SockType::Stream,
        flags,
        None,
    )
    .unwrap();
    let address = nix::sys::socket::UnixAddr::new(&path).unwrap();
    nix::sys::socket::bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &address).unwrap();
    nix::sys::socket::listen(&socket, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let filling = UnixStream::connect(&path).unwrap();
    let listener = UnixListener::from(socket);
    bench.daemons.running(&bench.path("s", "n1", 4), 5);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            drop(filling);
            drop(listener.accept().unwrap());
            let (caller, _) = listener.accept().unwrap();
            serve_caller(caller, &DaemonBehavior::Answers(5, RUNNING), &mut Vec::new());
        });
        let report = bench.report();
        assert_eq!(ids(&report), ["3", "4"]);
    });
}

#[test]
fn hundreds_of_daemons_are_queried_few_at_a_time() {
    let mut bench = SlurmBench::new("/s");
    let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    for job in 1..=300 {
        bench.daemon(job, DaemonBehavior::Counts(Arc::clone(&counts)));
    }
    let began = Instant::now();
    let report = bench.report();
    let took = began.elapsed();
    assert_eq!(report.jobs.len(), 300);
    let max = counts.1.load(Ordering::SeqCst);
    assert!((8..=64).contains(&max), "{max} at a time");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn daemons_beyond_deadline_are_reported() {
    let mut bench = SlurmBench::new("/s");
    for job in 1..=100 {
        bench.daemon(job, DaemonBehavior::Hangs);
    }
    let began = Instant::now();
    let deadline = began + Duration::from_millis(300);
    let report = bench.source(None).jobs(5, deadline).unwrap();
    assert!(began.elapsed() < Duration::from_millis(800), "{:?}", began.elapsed());
    assert_eq!(report.silent.len(), 65);
    assert_eq!(report.silent.last().unwrap(), "36 more daemons could not be asked in time");
}
