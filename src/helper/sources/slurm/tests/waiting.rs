//! How long daemons are waited for, and how often they are called.

use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::daemons::serve;
use super::*;

#[test]
fn late_daemon_that_may_be_of_the_users_newest_job_is_waited_for() {
    let mut bench = Bench::new("/s");
    bench.daemon(1, Manner::Says(5, RUNNING));
    bench.daemon(2, Manner::IsLate(EACH + Duration::from_millis(500)));
    let found = bench.found();
    assert_eq!((ids(&found), found.silent.len()), (vec!["1", "2"], 0));
}

#[test]
fn hung_daemon_that_may_be_of_the_users_job_is_waited_for_to_the_deadline() {
    let mut bench = Bench::new("/s");
    bench.daemon(1, Manner::Hangs);
    bench.daemon(2, Manner::Says(5, RUNNING));
    for owner in [None, Some(5)] {
        owner.into_iter().for_each(|uid| bench.cgroup_v1(uid, 1));
        let began = Instant::now();
        let deadline = began + EACH + Duration::from_millis(500);
        let found = bench.source(None).jobs(5, deadline).unwrap();
        assert!(Instant::now() >= deadline, "{:?}", began.elapsed());
        assert_eq!((ids(&found), found.foreign.len()), (vec!["2"], 0));
        assert!(found.silent.first().unwrap().ends_with("did not answer in time"), "{found:?}");
    }
}

#[test]
fn hung_daemon_of_another_users_job_delays_no_login_to_the_deadline() {
    let mut bench = Bench::new("/s");
    bench.daemon(1, Manner::Hangs);
    bench.daemon(2, Manner::Says(5, RUNNING));
    bench.cgroup_v1(6, 1);
    for (uid, jobs) in [(5, vec!["2"]), (4, vec![])] {
        let began = Instant::now();
        let found = bench.source(None).jobs(uid, began + Duration::from_secs(60)).unwrap();
        let took = began.elapsed();
        assert!(took >= EACH && took < Duration::from_secs(30), "{took:?}");
        assert_eq!((ids(&found), found.silent.len()), (jobs, 0));
        assert!(found.foreign.first().unwrap().ends_with("another user's"), "{found:?}");
    }
}

#[test]
fn one_that_hangs_up_is_called_once_more() {
    let mut bench = Bench::new("/s");
    bench.daemon(1, Manner::HangsUpOnce(Arc::default()));
    let found = bench.found();
    assert_eq!((ids(&found), found.silent.len()), (vec!["1"], 0));
}

#[test]
fn one_that_is_slow_is_waited_for_where_it_is_the_last_hope() {
    let mut bench = Bench::new("/s");
    bench.daemon(1, Manner::Hangs);
    bench.daemon(2, Manner::Says(6, RUNNING));
    let began = Instant::now();
    assert!(ids(&bench.found()).is_empty());
    let took = began.elapsed();
    assert!(took >= EACH + Duration::from_millis(500), "{took:?}");
}

#[test]
fn a_full_backlog_is_waited_for() {
    let mut bench = Bench::new("/s");
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
            serve(caller, &Manner::Says(5, RUNNING), &mut Vec::new());
        });
        let found = bench.found();
        assert_eq!(ids(&found), ["3", "4"]);
    });
}

#[test]
fn hundreds_are_asked_few_at_a_time() {
    let mut bench = Bench::new("/s");
    let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    for job in 1..=300 {
        bench.daemon(job, Manner::Counts(Arc::clone(&counts)));
    }
    let began = Instant::now();
    let found = bench.found();
    let took = began.elapsed();
    assert_eq!(found.jobs.len(), 300);
    let most = counts.1.load(Ordering::SeqCst);
    assert!((8..=64).contains(&most), "{most} at a time");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn more_than_can_be_asked_in_time_is_said() {
    let mut bench = Bench::new("/s");
    for job in 1..=100 {
        bench.daemon(job, Manner::Hangs);
    }
    let began = Instant::now();
    let deadline = began + Duration::from_millis(300);
    let found = bench.source(None).jobs(5, deadline).unwrap();
    assert!(began.elapsed() < Duration::from_millis(800), "{:?}", began.elapsed());
    assert_eq!(found.silent.len(), 65);
    assert_eq!(found.silent.last().unwrap(), "36 more daemons could not be asked in time");
}
