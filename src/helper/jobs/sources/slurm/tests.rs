mod daemons;
mod waiting;

pub(crate) use daemons::Daemons;

use std::os::unix::net::UnixListener;

use super::*;
use crate::clock::manual::ManualClock;
use crate::devices::DeviceSettings;
use crate::node::Tree;
use crate::testing::Scratch;
use daemons::{DaemonBehavior, ENDING, RUNNING, STARTING};
use protocol::JobId;

/// Longest query of a test that says nothing else.
const LONG: Duration = Duration::from_secs(4);

/// A node with a `slurm.conf` and daemons.
struct SlurmBench {
    clock: &'static ManualClock,
    daemons: Daemons,
    scratch: Scratch,
    settings: DeviceSettings,
}

impl SlurmBench {
    fn new(spool: &str) -> Self {
        let scratch = Scratch::new();
        scratch.file("etc/slurm/slurm.conf", &format!("SlurmdSpoolDir={spool}\n"));
        let clock = ManualClock::new();
        let daemons = Daemons::new(clock);
        Self {
            clock,
            daemons,
            scratch,
            settings: DeviceSettings::default(),
        }
    }

    fn path(&self, dir: &str, node: &str, job: u32) -> PathBuf {
        self.scratch
            .dir(dir)
            .join(format!("{node}_{job}.4294967292"))
    }

    fn daemon(&self, job: u32, behavior: DaemonBehavior) {
        let path = self.path("s", "n1", job);
        self.daemons.add(&path, behavior);
    }

    /// Writes that the daemons' process, which is this one, is in that user's job.
    fn cgroup_v1(&self, uid: u32, job: u32) {
        let file = format!("proc/{}/cgroup", std::process::id());
        let path = format!("/slurm_n1/uid_{uid}/job_{job}/step_extern");
        self.scratch
            .file(&file, &format!("2:freezer:{path}\n0::/\n"));
        self.scratch.dir(&format!("sys/fs/cgroup/freezer{path}"));
    }

    fn source(&self, spool: Option<&str>) -> SlurmSource {
        let tree = Tree::with_root(self.scratch.path(), self.scratch.trust());
        let slurm_conf = SlurmConfSearch::new(tree, self.settings.slurm_conf.clone());
        SlurmSource::new(
            slurm_conf,
            self.settings.node_name.clone(),
            spool.map(PathBuf::from),
        )
    }

    fn deadline_after(&self, time: Duration) -> Deadline {
        self.clock.clock().deadline_after(time)
    }

    /// Asks for the jobs of these users, as a command of root does.
    fn all_jobs(&self, sought: Sought<'_>) -> JobsOfUsers {
        self.source(None)
            .jobs_of_users(
                sought,
                &mut AskedDaemons::default(),
                self.deadline_after(LONG),
            )
            .unwrap()
    }

    fn ask(&self) -> Result<SourceReport, SourceError> {
        self.source(None).jobs(5, self.deadline_after(LONG))
    }

    fn report(&self) -> SourceReport {
        self.ask().unwrap()
    }
}

fn ids(report: &SourceReport) -> Vec<&str> {
    report.jobs.iter().map(|job| job.id.as_str()).collect()
}

/// The kernel may have killed it for want of memory. A socket without a listener is otherwise that of a job that is
/// over.
#[test]
fn job_whose_extern_step_was_killed_is_reported_if_another_step_runs_or_starts() {
    let bench = SlurmBench::new("/s");
    let kill_daemon = |job| drop(UnixListener::bind(bench.path("s", "n1", job)).unwrap());
    let step = |job: u32, step: &str, behavior| {
        let path = bench.scratch.dir("s").join(format!("n1_{job}.{step}"));
        bench.daemons.add(&path, behavior);
    };
    (7..12).for_each(kill_daemon);
    step(7, "4294967291", DaemonBehavior::Answers(5, RUNNING));
    step(7, "0", DaemonBehavior::Answers(5, RUNNING));
    step(8, "0", DaemonBehavior::Answers(6, RUNNING));
    step(9, "0", DaemonBehavior::Answers(5, ENDING));
    step(10, "0", DaemonBehavior::Hangs);
    // Job 11 has no other step, and job 12 no dead socket.
    step(12, "0", DaemonBehavior::Answers(5, RUNNING));
    kill_daemon(13);
    step(13, "0", DaemonBehavior::Answers(5, STARTING));
    let report = bench.report();
    assert_eq!(ids(&report), [""; 0]);
    // Job 10 may run as well, and be this user's.
    assert_eq!(report.silent.len(), 1, "{report:?}");
    assert!(report.silent.first().unwrap().contains("n1_10.0: "));
    let mut jobs = report.daemonless;
    jobs.sort_by_key(|job| job.id.as_str().len());
    let [job, starting] = jobs.as_slice() else {
        panic!("{jobs:?}")
    };
    assert_eq!((job.id.as_str(), starting.id.as_str()), ("7", "13"));
    assert!(
        job.cause
            .contains("n1_7.4294967292: the daemon of the extern step was killed")
            && job.cause.contains("n1_7."),
        "{}",
        job.cause
    );
}

/// Else a command takes the job for one that is over, and ends the processes of its owner.
#[test]
fn silence_of_other_step_leaves_job_in_doubt_however_often_it_is_asked_about() {
    let bench = SlurmBench::new("/s");
    drop(UnixListener::bind(bench.path("s", "n1", 7)).unwrap());
    let step = bench.scratch.dir("s").join("n1_7.0");
    bench.daemons.add(&step, DaemonBehavior::Hangs);
    bench.cgroup_v1(5, 7);
    let mut asked = AskedDaemons::default();
    let mut ask = |time| {
        let deadline = bench.deadline_after(time);
        let source = bench.source(None);
        let found = source.jobs_of_users(Sought::All, &mut asked, deadline);
        let doubts = found.unwrap().doubts.into_iter();
        let doubts: Vec<_> = doubts.map(|doubt| (doubt.owners, doubt.job)).collect();
        (doubts, bench.clock.elapsed())
    };
    let job: Option<JobId> = Some("7".parse().unwrap());
    let own = vec![(PossibleOwners::Only([5].into()), job.clone())];
    assert_eq!(ask(LONG), (own.clone(), QUERY_TIMEOUT));
    assert_eq!(ask(LONG), (own, QUERY_TIMEOUT));
}

#[test]
fn other_step_that_there_was_no_time_to_ask_is_asked_later() {
    let bench = SlurmBench::new("/s");
    drop(UnixListener::bind(bench.path("s", "n1", 7)).unwrap());
    bench.daemon(8, DaemonBehavior::Hangs);
    let step = bench.scratch.dir("s").join("n1_7.0");
    bench.daemons.running(&step, 5);
    let mut asked = AskedDaemons::default();
    let mut ask = |time| {
        let deadline = bench.deadline_after(time);
        let source = bench.source(None);
        let found = source.jobs_of_users(Sought::All, &mut asked, deadline);
        let found = found.unwrap();
        (found.doubts.len(), found.without_logins.len())
    };
    // The daemon of job 8 uses up the time.
    assert_eq!(ask(QUERY_TIMEOUT / 2), (2, 0));
    assert_eq!(ask(LONG), (1, 1));
}

#[test]
fn only_the_users_jobs_are_found() {
    let bench = SlurmBench::new("/s");
    bench.daemon(7, DaemonBehavior::Answers(5, RUNNING));
    bench.daemon(8, DaemonBehavior::Answers(6, RUNNING));
    bench.daemon(9, DaemonBehavior::Answers(5, STARTING));
    bench.daemon(10, DaemonBehavior::Answers(5, ENDING));
    bench.daemon(11, DaemonBehavior::Answers(6, ENDING));
    bench.scratch.file("s/cred_state", "");
    bench.scratch.dir("s/job00007");
    let report = bench.report();
    let [job] = report.jobs.as_slice() else {
        panic!("{report:?}")
    };
    let spool = bench
        .scratch
        .path()
        .join("s")
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(
        job.placement,
        Placement::Extern {
            spool,
            node: "n1".parse().unwrap()
        }
    );
    let made = std::fs::metadata(bench.path("s", "n1", 7)).unwrap();
    assert_eq!(
        (job.id.as_str(), job.started),
        ("7", std::os::unix::fs::MetadataExt::ctime(&made))
    );
    let id = |text: &str| text.parse().unwrap();
    assert_eq!(
        (report.ending, report.starting),
        (vec![id("10")], vec![id("9")])
    );
    assert!(report.broken.is_empty() && report.silent.is_empty() && report.skipped.is_empty());
    assert_eq!(
        report.seen.last().unwrap(),
        "5 daemons answered, 0 sockets are stale"
    );
    let uids = bench.all_jobs(Sought::All);
    let uids: Vec<_> = uids
        .jobs
        .iter()
        .map(|(uid, theirs)| (*uid, theirs.id.as_str()))
        .collect();
    assert_eq!(uids, [(5, "7"), (6, "8")]);
}

#[test]
fn node_without_slurm_is_absent() {
    let scratch = Scratch::new();
    let source = |spool: Option<&str>| {
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let source = SlurmSource::new(
            SlurmConfSearch::new(tree, None),
            None,
            spool.map(PathBuf::from),
        );
        source.jobs(5, Deadline::after(QUERY_TIMEOUT))
    };
    let text = |result| match result {
        Err(SourceError::Absent(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(text(source(None)).contains("no slurm.conf in /etc/slurm, "));
    assert!(text(source(Some("/gone"))).contains("/gone does not exist"));
    scratch.file("etc/slurm/slurm.conf", "");
    assert!(text(source(None)).contains("/var/spool/slurmd does not exist"));
    scratch.file("etc/slurm/slurm.conf", "SlurmdSpoolDir=/spool/%n");
    scratch.dir("spool");
    assert!(text(source(None)).contains("no directory in"));
}

#[test]
fn missing_extern_step_and_wrong_node_name_are_reported() {
    let mut bench = SlurmBench::new("/s");
    bench.scratch.dir("s");
    assert!(
        bench.report().skipped.is_empty(),
        "a node without jobs is none"
    );
    bench.scratch.file("s/n1_7.4294967291", "");
    assert!(
        bench
            .report()
            .skipped
            .first()
            .unwrap()
            .contains("PrologFlags=Contain")
    );
    bench.daemon(8, DaemonBehavior::Answers(6, RUNNING));
    assert!(bench.report().skipped.is_empty(), "not where a job has one");
    bench.settings.node_name = Some("n2".into());
    let skipped = bench.report().skipped;
    assert_eq!(skipped.len(), 1, "{skipped:?}");
    assert!(
        skipped
            .first()
            .unwrap()
            .contains("no sockets of node n2, but of n1"),
        "{skipped:?}"
    );
}

#[test]
fn stale_sockets_are_skipped() {
    let bench = SlurmBench::new("/s");
    bench.daemon(7, DaemonBehavior::Answers(5, RUNNING));
    let path = bench.path("s", "n1", 8);
    drop(UnixListener::bind(&path).unwrap());
    let report = bench.report();
    assert_eq!(ids(&report), ["7"]);
    assert!(
        report.broken.is_empty() && report.silent.is_empty(),
        "{report:?}"
    );
    assert_eq!(
        report.seen.last().unwrap(),
        "1 daemons answered, 1 sockets are stale"
    );
}

#[test]
fn invalid_sockets_are_reported_and_hide_no_job() {
    let bench = SlurmBench::new("/s");
    bench.daemon(7, DaemonBehavior::Answers(5, RUNNING));
    bench.scratch.file("s/n1_8.4294967292", "");
    let link = bench.path("s", "n1", 9);
    std::os::unix::fs::symlink(bench.path("s", "n1", 7), link).unwrap();
    bench.daemon(10, DaemonBehavior::Babbles(12));
    bench.daemon(11, DaemonBehavior::HangsUp);
    bench.daemon(12, DaemonBehavior::Babbles(5));
    let report = bench.report();
    assert_eq!(ids(&report), ["7"]);
    let of = |texts: &[String]| -> Vec<String> {
        let job = |text: &String| text.split_once(".4294967292: ").unwrap().0.to_owned();
        texts
            .iter()
            .map(|text| job(text).rsplit_once('_').unwrap().1.to_owned())
            .collect()
    };
    assert_eq!(of(&report.broken), ["8", "9", "10"], "{:?}", report.broken);
    assert_eq!(of(&report.silent), ["11", "12"], "{:?}", report.silent);
}

#[test]
fn socket_of_unexpected_user_is_refused() {
    let bench = SlurmBench::new("/s");
    bench.daemon(7, DaemonBehavior::Answers(5, RUNNING));
    let me = nix::unistd::Uid::effective().as_raw();
    let path = bench.path("s", "n1", 7);
    let deadline = bench.deadline_after(QUERY_TIMEOUT);
    let terms = |owner| QueryTerms {
        owner,
        relevance: None,
        login: None,
        timeout: QUERY_TIMEOUT,
        concurrent_max: 1,
        deadline,
    };
    let answer = |owner| {
        let outcomes = query_sockets(&[&path], terms(owner));
        outcomes.into_iter().next().flatten().unwrap().answer
    };
    assert!(answer(me).is_ok());
    assert_eq!(answer(me + 1), Err(Error::WrongPeerUid(me)));
    if me != 0 {
        println!("not root: the half with chown is skipped");
        return;
    }
    std::os::unix::fs::chown(&path, Some(4001), None).unwrap();
    let report = bench.report();
    assert!(report.jobs.is_empty());
    assert!(
        report
            .broken
            .first()
            .unwrap()
            .ends_with("is no socket of root's"),
        "{report:?}"
    );
}

#[test]
fn writable_spool_directory_fails() {
    let bench = SlurmBench::new("/s");
    bench.daemon(7, DaemonBehavior::Answers(5, RUNNING));
    bench.scratch.mode("s", 0o777);
    let Err(SourceError::Failed(text)) = bench.ask() else {
        panic!()
    };
    assert!(
        text.contains("mode 0777") && text.contains("chmod 755"),
        "{text}"
    );
}

#[test]
fn symbolic_links_to_spool_directory_are_resolved() {
    let bench = SlurmBench::new("/var/spool/slurmd");
    bench.daemon(7, DaemonBehavior::Answers(5, RUNNING));
    bench.scratch.dir("var/spool");
    let link = bench.scratch.path().join("var/spool/slurmd");
    std::os::unix::fs::symlink("../../s", link).unwrap();
    let report = bench.report();
    let Placement::Extern { spool, .. } = &report.jobs.first().unwrap().placement else {
        panic!()
    };
    assert_eq!(Path::new(spool.as_str()), bench.scratch.path().join("s"));
}

#[test]
fn host_with_several_nodes_has_jobs_of_all() {
    let mut bench = SlurmBench::new("/spool/%n");
    for (node, job) in [("n1", 7), ("n2", 8), ("n2", 7), ("n3", 9)] {
        let path = bench.path(&format!("spool/{node}"), node, job);
        bench.daemons.running(&path, 5);
    }
    let foreign = bench.path("spool/n3", "n1", 10);
    bench.daemons.running(&foreign, 5);
    let report = bench.report();
    assert_eq!(ids(&report), ["7", "8", "9"]);
    assert!(
        report
            .skipped
            .first()
            .unwrap()
            .contains("several nodes of this host")
    );
    bench.scratch.mode("spool/n2", 0o777);
    let other_report = bench.report();
    assert_eq!(
        ids(&other_report),
        ["7", "9"],
        "one directory hides nothing of another's"
    );
    assert_eq!(other_report.broken.len(), 1);
    bench.settings.node_name = Some("n3".into());
    assert_eq!(ids(&bench.report()), ["9"]);
}

#[test]
fn node_name_selects_its_sockets_in_shared_directory() {
    let mut bench = SlurmBench::new("/s");
    for (node, job) in [("n1", 7), ("n2", 8)] {
        let path = bench.path("s", node, job);
        bench.daemons.running(&path, 5);
    }
    assert_eq!(ids(&bench.report()), ["7", "8"]);
    bench.settings.node_name = Some("n2".into());
    assert_eq!(ids(&bench.report()), ["8"]);
}
