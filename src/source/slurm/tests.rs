mod daemons;

pub(crate) use daemons::Daemons;

use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::source::Passing;
use crate::trust::tests::Scratch;
use daemons::{ENDING, Manner, RUNNING, STARTING, serve};

/// A node with a `slurm.conf` and daemons.
struct Bench {
    // First, since the daemons end by a call to their sockets.
    daemons: Daemons,
    scratch: Scratch,
    settings: Settings,
}

impl Bench {
    fn new(spool: &str) -> Self {
        let scratch = Scratch::new();
        scratch.file("etc/slurm/slurm.conf", &format!("SlurmdSpoolDir={spool}\n"));
        Self { scratch, daemons: Daemons::default(), settings: Settings::default() }
    }

    fn path(&self, dir: &str, node: &str, job: u32) -> PathBuf {
        self.scratch.dir(dir).join(format!("{node}_{job}.4294967292"))
    }

    fn daemon(&mut self, job: u32, manner: Manner) {
        let path = self.path("s", "n1", job);
        self.daemons.add(&path, manner);
    }

    fn source(&self, spool: Option<&str>) -> SlurmSource {
        let tree = Tree::laid_out(self.scratch.path(), self.scratch.trust());
        SlurmSource::new(tree, self.settings.clone(), spool.map(PathBuf::from))
    }

    fn ask(&self) -> Result<Found, SourceError> {
        self.source(None).jobs(5, Instant::now() + Duration::from_secs(4))
    }

    fn found(&self) -> Found {
        self.ask().unwrap()
    }
}

fn ids(found: &Found) -> Vec<&str> {
    found.jobs.iter().map(|job| job.id.as_str()).collect()
}

#[test]
fn the_jobs_of_the_user_are_found_and_no_others() {
    let mut bench = Bench::new("/s");
    bench.daemon(7, Manner::Says(5, RUNNING));
    bench.daemon(8, Manner::Says(6, RUNNING));
    bench.daemon(9, Manner::Says(5, STARTING));
    bench.daemon(10, Manner::Says(5, ENDING));
    bench.daemon(11, Manner::Says(6, ENDING));
    bench.scratch.file("s/cred_state", "");
    bench.scratch.dir("s/job00007");
    let found = bench.found();
    let [job] = found.jobs.as_slice() else { panic!("{found:?}") };
    let spool = bench.scratch.path().join("s").to_str().unwrap().parse().unwrap();
    assert_eq!(job.placement, Placement::Extern { spool, node: "n1".parse().unwrap() });
    let made = std::fs::metadata(bench.path("s", "n1", 7)).unwrap();
    assert_eq!((job.id.as_str(), job.started), ("7", std::os::unix::fs::MetadataExt::ctime(&made)));
    let id = |text: &str| text.parse().unwrap();
    assert_eq!(found.passing, [Passing::Ending(id("10")), Passing::Starting(id("9"))]);
    assert!(found.broken.is_empty() && found.silent.is_empty() && found.skipped.is_empty());
    assert_eq!(found.seen.last().unwrap(), "5 daemons answered, 0 sockets are stale");
    let (everyones, _) = bench.source(None).everyones(Instant::now() + EACH).unwrap();
    let uids: Vec<_> = everyones.iter().map(|(uid, job)| (*uid, job.id.as_str())).collect();
    assert_eq!(uids, [(5, "7"), (6, "8")]);
}

#[test]
fn without_slurm_there_is_no_source() {
    let scratch = Scratch::new();
    let source = |spool: Option<&str>| {
        let tree = Tree::laid_out(scratch.path(), scratch.trust());
        let source = SlurmSource::new(tree, Settings::default(), spool.map(PathBuf::from));
        source.jobs(5, Instant::now() + EACH)
    };
    let text = |result| match result {
        Err(SourceError::Absent(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(text(source(None)).contains("no slurm.conf"));
    assert!(text(source(Some("/gone"))).contains("/gone does not exist"));
    scratch.file("etc/slurm/slurm.conf", "");
    assert!(text(source(None)).contains("/var/spool/slurmd does not exist"));
    scratch.file("etc/slurm/slurm.conf", "SlurmdSpoolDir=/spool/%n");
    scratch.dir("spool");
    assert!(text(source(None)).contains("no directory in"));
}

#[test]
fn why_no_job_can_be_found_is_told() {
    let mut bench = Bench::new("/s");
    bench.scratch.dir("s");
    assert!(bench.found().skipped.is_empty(), "a node without jobs is none");
    bench.scratch.file("s/n1_7.4294967291", "");
    assert!(bench.found().skipped.first().unwrap().contains("PrologFlags=Contain"));
    bench.daemon(8, Manner::Says(6, RUNNING));
    assert!(bench.found().skipped.is_empty(), "not where a job has one");
    bench.settings.node_name = Some("n2".into());
    let skipped = bench.found().skipped;
    assert_eq!(skipped.len(), 1, "{skipped:?}");
    assert!(skipped.first().unwrap().contains("no sockets of node n2, but of n1"), "{skipped:?}");
}

#[test]
fn stale_sockets_are_passed_over() {
    let mut bench = Bench::new("/s");
    bench.daemon(7, Manner::Says(5, RUNNING));
    let path = bench.path("s", "n1", 8);
    drop(UnixListener::bind(&path).unwrap());
    let found = bench.found();
    assert_eq!(ids(&found), ["7"]);
    assert!(found.broken.is_empty() && found.silent.is_empty(), "{found:?}");
    assert_eq!(found.seen.last().unwrap(), "1 daemons answered, 1 sockets are stale");
}

#[test]
fn what_is_in_the_place_of_a_socket_is_named_and_hides_nothing() {
    let mut bench = Bench::new("/s");
    bench.daemon(7, Manner::Says(5, RUNNING));
    bench.scratch.file("s/n1_8.4294967292", "");
    let link = bench.path("s", "n1", 9);
    std::os::unix::fs::symlink(bench.path("s", "n1", 7), link).unwrap();
    bench.daemon(10, Manner::Babbles(12));
    bench.daemon(11, Manner::HangsUp);
    bench.daemon(12, Manner::Babbles(5));
    let found = bench.found();
    assert_eq!(ids(&found), ["7"]);
    let of = |texts: &[String]| -> Vec<String> {
        let job = |text: &String| text.split_once(".4294967292: ").unwrap().0.to_owned();
        texts.iter().map(|text| job(text).rsplit_once('_').unwrap().1.to_owned()).collect()
    };
    assert_eq!(of(&found.broken), ["8", "9", "10"], "{:?}", found.broken);
    assert_eq!(of(&found.silent), ["11", "12"], "{:?}", found.silent);
}

#[test]
fn only_the_expected_user_is_believed() {
    let mut bench = Bench::new("/s");
    bench.daemon(7, Manner::Says(5, RUNNING));
    let me = nix::unistd::Uid::effective().as_raw();
    let path = bench.path("s", "n1", 7);
    let deadline = Instant::now() + EACH;
    let terms = |owner| Terms { owner, whose: None, each: EACH, deadline };
    assert!(matches!(ask(&[&path], terms(me)).as_slice(), [Some(Ok(_))]));
    assert_eq!(ask(&[&path], terms(me + 1)), [Some(Err(Error::Peer(me)))]);
    if me != 0 {
        println!("not root: the half with chown is skipped");
        return;
    }
    std::os::unix::fs::chown(&path, Some(4001), None).unwrap();
    let found = bench.found();
    assert!(found.jobs.is_empty());
    assert!(found.broken.first().unwrap().ends_with("is no socket of root's"), "{found:?}");
}

#[test]
fn a_spool_directory_that_others_can_write_is_not_believed() {
    let mut bench = Bench::new("/s");
    bench.daemon(7, Manner::Says(5, RUNNING));
    bench.scratch.mode("s", 0o777);
    let Err(SourceError::Failed(text)) = bench.ask() else { panic!() };
    assert!(text.contains("mode 0777") && text.contains("chmod 755"), "{text}");
}

#[test]
fn symbolic_links_to_the_directory_are_resolved() {
    let mut bench = Bench::new("/var/spool/slurmd");
    bench.daemon(7, Manner::Says(5, RUNNING));
    bench.scratch.dir("var/spool");
    let link = bench.scratch.path().join("var/spool/slurmd");
    std::os::unix::fs::symlink("../../s", link).unwrap();
    let found = bench.found();
    let Placement::Extern { spool, .. } = &found.jobs.first().unwrap().placement else { panic!() };
    assert_eq!(Path::new(spool.as_str()), bench.scratch.path().join("s"));
}

#[test]
fn a_host_may_be_several_nodes() {
    let mut bench = Bench::new("/spool/%n");
    for (node, job) in [("n1", 7), ("n2", 8), ("n2", 7), ("n3", 9)] {
        let path = bench.path(&format!("spool/{node}"), node, job);
        bench.daemons.running(&path, 5);
    }
    let foreign = bench.path("spool/n3", "n1", 10);
    bench.daemons.running(&foreign, 5);
    let found = bench.found();
    assert_eq!(ids(&found), ["7", "8", "9"]);
    assert!(found.skipped.first().unwrap().contains("several nodes of this host"));
    bench.scratch.mode("spool/n2", 0o777);
    let found = bench.found();
    assert_eq!(ids(&found), ["7", "9"], "one directory hides nothing of another's");
    assert_eq!(found.broken.len(), 1);
    bench.settings.node_name = Some("n3".into());
    assert_eq!(ids(&bench.found()), ["9"]);
}

#[test]
fn of_several_nodes_in_one_directory_a_name_picks_its_own() {
    let mut bench = Bench::new("/s");
    for (node, job) in [("n1", 7), ("n2", 8)] {
        let path = bench.path("s", node, job);
        bench.daemons.running(&path, 5);
    }
    assert_eq!(ids(&bench.found()), ["7", "8"]);
    bench.settings.node_name = Some("n2".into());
    assert_eq!(ids(&bench.found()), ["8"]);
}

#[test]
fn one_that_hangs_delays_the_others_by_its_own_time() {
    let mut bench = Bench::new("/s");
    bench.daemon(1, Manner::Hangs);
    bench.daemon(2, Manner::Says(5, RUNNING));
    let began = Instant::now();
    let found = bench.found();
    let took = began.elapsed();
    assert_eq!(ids(&found), ["2"]);
    assert!(found.silent.first().unwrap().ends_with("did not answer in time"), "{found:?}");
    assert!(took >= EACH && took < EACH + Duration::from_millis(500), "{took:?}");
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
