//! Waves of logins by a real `sshd`, to registered jobs and Slurm jobs that start, end and freeze
//! meanwhile, while filters of others come and go. Every login is in the right place and opens no
//! device of another job, each refusal has a reason, and afterwards nothing is left.
//!
//! One test has a real Slurm, on cgroup v1 here, the other a stand-in for its step daemon on
//! cgroup v2. `LOGINS` sets the number of logins; `make soak` takes 10,000. The closing lines count the
//! results.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::support::{
    ALICE, BOB, CAROL, Cgroup, DENIED, Flags, HIERARCHIES, Job, Node, OPENS, OPS, SPOOL, Slurm,
    SlurmJob, Sshd, Step, Tool, User, eventually, on_node_alone, on_slurm_alone,
};

/// Number of logins at once.
const WAVE: usize = 64;
/// Number of logins without `make soak`.
const FEW: usize = 128;
/// Users who log in. The last one never has a job.
const USERS: [User; 4] = [ALICE, BOB, OPS, CAROL];
const GPUS: usize = 4;
/// How much private memory the server may gain.
const GROWTH_KB: u64 = 64;
/// Time for state that the kernel frees asynchronously.
const SOON: Duration = Duration::from_secs(30);

/// Runs one wave: starts the clients at once. Each prints when it began and ended, its status, and
/// what its login printed.
const CLIENTS: &str = r#"
rm -rf /root/wave; mkdir /root/wave
for user in "$@"; do
    n=$((n + 1))
    {
        began=$EPOCHREALTIME
        ssh -F /root/ssh_config -o BatchMode=yes "$user@127.0.0.1" \
            'cat /proc/self/cgroup; probe /dev/nvidia0 /dev/nvidia1 /dev/nvidia2 /dev/nvidia3'
        echo "over $? $began $EPOCHREALTIME"
    } >/root/wave/$n.new 2>&1 &
done
wait
"#;

type Span = (f64, f64);

fn seconds_now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs_f64()
}

fn overlap(one: Span, other: Span) -> bool {
    one.0 <= other.1 && other.0 <= one.1
}

/// A job in the past.
struct Past {
    owner: User,
    path: String,
    /// Number of hierarchies that contain its logins.
    hierarchies: usize,
    gpu: usize,
    /// From its first trace to its last, and from its completion to the start of its end.
    seen: Span,
    whole: Span,
    frozen: Vec<Span>,
    /// When foreign filters came and went, and when they were attached.
    foreign: Vec<Span>,
}

impl Past {
    fn is_slurms(&self) -> bool {
        self.path.contains("/job_")
    }
}

/// Everything that the driver has done.
#[derive(Default)]
struct History {
    over: Mutex<Vec<Past>>,
    /// When filters above all jobs came and went.
    above: Mutex<Vec<Span>>,
    /// Number of empty Slurm cgroups that the driver has removed.
    forgotten: AtomicUsize,
}

/// A login, as its client reports it.
struct LoginReport {
    user: User,
    span: Span,
    status: i32,
    text: String,
}

impl LoginReport {
    fn read(user: User, text: String) -> Self {
        let line = text.lines().find_map(|line| line.strip_prefix("over "));
        let words: Vec<&str> = line
            .unwrap_or_else(|| panic!("{text}"))
            .split(' ')
            .collect();
        let time = |at: usize| words[at].parse().unwrap();
        Self {
            user,
            span: (time(1), time(2)),
            status: words[0].parse().unwrap(),
            text,
        }
    }

    fn device(&self, gpu: usize) -> Option<&str> {
        let device = format!("/dev/nvidia{gpu} ");
        self.text
            .lines()
            .find_map(|line| line.trim_end().strip_prefix(&device))
    }

    fn code(&self) -> &str {
        self.text
            .split_once("[JA")
            .map_or("", |(_, rest)| rest.get(..2).unwrap_or_default())
    }
}

impl History {
    /// Returns the result of a login in one word. The error describes what is wrong with it.
    fn judge(&self, report: &LoginReport) -> Result<String, String> {
        let over = self.over.lock().unwrap();
        let lines = report
            .text
            .lines()
            .filter_map(|line| line.trim_end().splitn(3, ':').nth(2));
        let cgroups: Vec<&str> = lines.filter(|cgroup| cgroup.starts_with('/')).collect();
        if cgroups.is_empty() {
            return self.judge_refusal(&over, report);
        }
        let within = |job: &Past, cgroup: &str| {
            let rest = cgroup.strip_prefix(&job.path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let here = |job: &Past| cgroups.iter().filter(|cgroup| within(job, cgroup)).count();
        let mut jobs = over
            .iter()
            .filter(|job| here(job) > 0 && overlap(job.seen, report.span));
        let job = jobs.next().ok_or(format!("is in {cgroups:?}"))?;
        let whole = here(job) == job.hierarchies && jobs.all(|other| other.path == job.path);
        if job.owner != report.user || !whole {
            return Err(format!(
                "is in {cgroups:?}, {} being {}'s",
                job.path, job.owner.name
            ));
        }
        Self::judge_devices(job, report)
    }

    fn judge_devices(job: &Past, report: &LoginReport) -> Result<String, String> {
        for gpu in 0..GPUS {
            let foreign = job.foreign.iter().any(|span| overlap(*span, report.span));
            match report.device(gpu) {
                Some(DENIED) if gpu != job.gpu || foreign => {}
                Some(OPENS) if gpu == job.gpu => {}
                Some(answer) => return Err(format!("in {}, GPU {gpu}: {answer}", job.path)),
                None if overlap((job.whole.1, job.seen.1), report.span) => {
                    return Ok("ended with their job".into());
                }
                None => return Err(format!("in {}, and ended", job.path)),
            }
        }
        if report.status == 0 || overlap((job.whole.1, job.seen.1), report.span) {
            let slurms = if job.is_slurms() { " by Slurm" } else { "" };
            return Ok(format!("adopted{slurms}"));
        }
        Err(format!(
            "in {}, and ended with status {}",
            job.path, report.status
        ))
    }

    fn judge_refusal(&self, over: &[Past], report: &LoginReport) -> Result<String, String> {
        let own: Vec<&Past> = over.iter().filter(|job| job.owner == report.user).collect();
        let any = |fits: &dyn Fn(&Past) -> bool| own.iter().any(|job| fits(job));
        // The helper reads one source after the other, and one record after the other.
        let none = !any(&|job| job.whole.0 < report.span.0 && report.span.1 < job.whole.1);
        let ended = any(&|job| overlap((job.whole.1, job.seen.1), report.span));
        let started = any(&|job| overlap((job.seen.0, job.whole.0), report.span));
        let frozen = any(&|job| job.frozen.iter().any(|span| overlap(*span, report.span)));
        let above = self.above.lock().unwrap();
        let foreign = any(&|job| job.foreign.iter().any(|span| overlap(*span, report.span)))
            || above.iter().any(|span| overlap(*span, report.span));
        let fits = match report.code() {
            "01" => none,
            "02" => started || none,
            "03" => ended || none,
            "04" => frozen,
            "06" => foreign,
            "07" => ended || foreign || started,
            // The mode of a daemon's new socket forbids connections only for a moment.
            "09" => started,
            // Killed on its way, before or after the move.
            "" => ended,
            _ => false,
        };
        match report.code() {
            code if !fits => Err(format!("JA{code} does not fit")),
            "" => Ok("ended with their job on the way".into()),
            code => Ok(format!("refused, JA{code}")),
        }
    }
}

/// A generator of numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

/// A source of jobs of one kind, one after the other.
#[derive(Clone, Copy)]
struct Lane {
    owner: User,
    /// Ignored by Slurm, which chooses the GPU.
    gpu: usize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Record,
    /// Its logins have a leaf of their own.
    Leaf,
    Slurm,
}

/// BOB and OPS have a job of a record and a Slurm job at once.
const LANES: [Lane; 6] = [
    Lane {
        owner: ALICE,
        gpu: 0,
        kind: Kind::Record,
    },
    Lane {
        owner: ALICE,
        gpu: 1,
        kind: Kind::Leaf,
    },
    Lane {
        owner: BOB,
        gpu: 2,
        kind: Kind::Record,
    },
    Lane {
        owner: BOB,
        gpu: 3,
        kind: Kind::Slurm,
    },
    Lane {
        owner: OPS,
        gpu: 0,
        kind: Kind::Leaf,
    },
    Lane {
        owner: OPS,
        gpu: 2,
        kind: Kind::Slurm,
    },
];

/// A running job.
enum Running<'a> {
    Record(Job<'a>),
    StandIn(Step),
    Slurm(SlurmJob<'a>),
}

/// Script of the Slurm jobs, which ends on request. It starts no process: cgroup v1 never finishes
/// freezing one that waits in vfork(2).
const SCRIPT: &str =
    "exec bash -c 'exec 9<> <(:); until test -e end-$SLURM_JOB_ID; do read -rt 0.1 -u 9; done'";

impl Running<'_> {
    fn path(&self) -> String {
        match self {
            Self::Record(job) => job.cgroup.path().to_owned(),
            Self::StandIn(step) => step.job.path().to_owned(),
            Self::Slurm(job) => job.path(),
        }
    }

    /// Returns the cgroup to which foreign filters may be attached.
    fn cgroup(&self) -> Option<&Cgroup> {
        match self {
            Self::Record(job) => Some(&job.cgroup),
            Self::StandIn(step) => Some(&step.job),
            Self::Slurm(_) => None,
        }
    }

    fn freeze(&self, frozen: bool) {
        match self {
            Self::Slurm(job) => job.freeze(frozen),
            _ => _ = self.cgroup().unwrap().freeze(frozen),
        }
    }

    /// Ends the job, by itself or through Slurm; returns the number of empty cgroups that Slurm
    /// left.
    fn end(self, node: &Node, by_itself: bool) -> usize {
        match self {
            Self::Record(job) => {
                // `unregister` starts so: a login on its way then sees that the job is over.
                job.unstamp();
                fs::remove_file(node.path(&job.record_path())).unwrap();
                job.finish();
                0
            }
            Self::StandIn(step) => {
                assert!(step.finish(), "a step of Slurm's left cgroups");
                0
            }
            Self::Slurm(job) => {
                if by_itself {
                    node.write(&format!("{}/end-{}", job.owner.home(), job.id), "");
                } else {
                    node.run("scancel", &[&job.id]).ok();
                }
                job.remove_forgotten_cgroups()
            }
        }
    }
}

impl Lane {
    /// Starts and ends jobs until the test is over.
    fn run<'a>(
        self,
        node: &'a Node,
        slurm: Option<&'a Slurm<'a>>,
        history: &History,
        over: &AtomicBool,
        seed: u64,
    ) {
        let mut dice = Dice(seed * 0x9e37_79b9 + 1);
        for number in 0.. {
            if over.load(Ordering::Relaxed) {
                return;
            }
            let began = seconds_now();
            let (job, gpu) = self.start(node, slurm, &format!("{seed}-{number}"), began);
            let mut past = self.live(&job, gpu, began, &mut dice);
            let forgotten = job.end(node, dice.below(2) == 0);
            history.forgotten.fetch_add(forgotten, Ordering::Relaxed);
            past.seen.1 = seconds_now();
            history.over.lock().unwrap().push(past);
            sleep(dice.millis(1, 400));
        }
    }

    /// Starts a job, and returns it with its GPU.
    fn start<'a>(
        self,
        node: &'a Node,
        slurm: Option<&'a Slurm<'a>>,
        id: &str,
        began: f64,
    ) -> (Running<'a>, usize) {
        match (self.kind, slurm) {
            (Kind::Slurm, Some(slurm)) => {
                let job = slurm.script(self.owner, 1, SCRIPT);
                let gpu = job.gpu();
                (Running::Slurm(job), gpu)
            }
            (Kind::Slurm, None) => {
                let others = (0..GPUS).filter(|gpu| *gpu != self.gpu);
                let others: Vec<String> = others.map(|gpu| format!("195:{gpu}")).collect();
                let others: Vec<&str> = others.iter().map(String::as_str).collect();
                // Slurm confines a job before its extern step accepts logins.
                let job = node.cgroup().child("jobs").child("job_4242");
                job.create()
                    .attach(Flags::Override, "Slurm_Cgroup_v2", &others);
                (Running::StandIn(node.step_alone(self.owner, &[])), self.gpu)
            }
            (kind, _) => {
                let job = node.job(self.owner, id).started(began as i64);
                let job = job.devices(&[&format!("/dev/nvidia{}", self.gpu), "/dev/soak"]);
                let job = if kind == Kind::Leaf {
                    job.with("leaf", json!("in"))
                } else {
                    job
                };
                (Running::Record(job.start()), self.gpu)
            }
        }
    }

    /// Keeps a job running until its end begins, with changes of its state.
    fn live(self, job: &Running<'_>, gpu: usize, began: f64, dice: &mut Dice) -> Past {
        let whole = seconds_now();
        let mut frozen = Vec::new();
        let mut foreign = Vec::new();
        let end = Instant::now() + dice.millis(300, 4000);
        while Instant::now() < end {
            sleep(dice.millis(20, 500));
            let change = seconds_now();
            match (dice.below(4), job.cgroup()) {
                (0, _) => {
                    job.freeze(true);
                    sleep(dice.millis(10, 200));
                    job.freeze(false);
                    frozen.push((change, seconds_now()));
                }
                // The kernel refuses it if Slurm's filter is attached with other flags.
                (1, Some(cgroup)) => {
                    let denied = format!("195:{gpu}");
                    if cgroup.try_attach(Flags::Multi, "site", &[&denied]).code == 0 {
                        sleep(dice.millis(10, 200));
                        let filters = cgroup.filters();
                        let own = filters.iter().find(|filter| filter.name == "site").unwrap();
                        cgroup.detach(own);
                        foreign.push((change, seconds_now()));
                    }
                }
                _ => {}
            }
        }
        let seen = (began, f64::MAX);
        let whole = (whole, seconds_now());
        let hierarchies = if job.cgroup().is_some() {
            1
        } else {
            HIERARCHIES.len()
        };
        Past {
            owner: self.owner,
            path: job.path(),
            hierarchies,
            gpu,
            seen,
            whole,
            frozen,
            foreign,
        }
    }
}

/// Attaches and detaches foreign filters above all jobs, with either flag.
fn toggle_filters_above(node: &Node, history: &History, over: &AtomicBool) {
    let jobs = node.cgroup().child("jobs");
    let mut dice = Dice(77);
    while !over.load(Ordering::Relaxed) {
        let began = seconds_now();
        let flags = if dice.below(2) == 0 {
            Flags::Multi
        } else {
            Flags::Override
        };
        jobs.attach(flags, "slice", &["226:128"]);
        sleep(dice.millis(10, 300));
        jobs.filters().iter().for_each(|filter| jobs.detach(filter));
        history.above.lock().unwrap().push((began, seconds_now()));
        sleep(dice.millis(10, 600));
    }
}

/// Slurm's controller keeps the state of jobs for minutes.
const FILES: &str =
    "find /run /tmp /etc /dev /var/spool/slurmd -xdev -path '*/slurmctld/*' -prune -o -print";

/// Resources that must not grow from the beginning to the end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Left {
    processes: usize,
    cgroups: usize,
    /// Our programs, found by the one device that no other test uses.
    programs: usize,
    /// Descriptors of the server.
    descriptors: usize,
    files: BTreeSet<String>,
}

impl Left {
    fn read(sshd: &Sshd<'_>, slurm: Option<&Slurm<'_>>, names: &BTreeSet<String>) -> Self {
        fn cgroups(cgroup: &Cgroup) -> usize {
            1 + cgroup.children().iter().map(cgroups).sum::<usize>()
        }
        let node = sshd.node();
        let loaded = node.run("filter", &["loaded", "/"]).ok().stdout;
        let is_ours = |line: &&str| line.rsplit(' ').next().is_some_and(|it| names.contains(it));
        let files = node.sh(FILES).ok().stdout;
        Self {
            processes: node.processes().len(),
            cgroups: cgroups(node.cgroup()) + slurm.map_or(0, |slurm| slurm.job_cgroups().len()),
            programs: loaded.lines().filter(is_ours).count(),
            descriptors: fs::read_dir(format!("/proc/{}/fd", sshd.pid()))
                .unwrap()
                .count(),
            files: files.lines().map(str::to_owned).collect(),
        }
    }
}

/// Returns the server's private memory in KiB.
fn private_memory(sshd: &Sshd<'_>) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", sshd.pid())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn run_wave(node: &Node, users: &[User]) -> Vec<LoginReport> {
    let names = users.iter().map(|user| user.name);
    let mut clients = node.command("bash");
    clients.args(["-c", CLIENTS, "wave"]).args(names);
    crate::support::Outcome::run(&mut clients).ok();
    let read_report = |(at, user): (usize, &User)| {
        let bytes = fs::read(node.path(&format!("/root/wave/{}.new", at + 1))).unwrap();
        LoginReport::read(*user, String::from_utf8_lossy(&bytes).into_owned())
    };
    users.iter().enumerate().map(read_report).collect()
}

/// Returns the names of our programs for these jobs.
fn program_names(node: &Node, sshd: &Sshd<'_>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for lane in LANES.into_iter().filter(|lane| lane.kind != Kind::Slurm) {
        let devices = [&format!("/dev/nvidia{}", lane.gpu), "/dev/soak"];
        let job = node.job(lane.owner, "name").devices(&devices).start();
        sshd.ssh(lane.owner, "true").ok();
        names.extend(
            job.cgroup
                .our_filters()
                .into_iter()
                .map(|filter| filter.name),
        );
        fs::remove_file(node.path(&job.record_path())).unwrap();
        job.finish();
    }
    names
}

#[test]
fn waves_of_logins_on_cgroup_v1_are_confined_and_leave_nothing() {
    on_slurm_alone(|slurm| {
        // Slurm creates some state for its first job. It exists from here on.
        slurm.batch(BOB, 1).cancel();
        run_soak(slurm.node, Some(slurm));
    });
}

#[test]
fn waves_of_logins_on_cgroup_v2_are_confined_and_leave_nothing() {
    on_node_alone(|node| {
        node.install(&Tool::Extern.path(), "/usr/bin/extern");
        node.create_dir(SPOOL, 0o755);
        node.configure(&format!("slurm_spool = {SPOOL}\n"));
        node.create_dir("/etc/slurm", 0o755);
        node.write("/etc/slurm/slurm.conf", "ClusterName=site\n");
        run_soak(node, None);
    });
}

fn run_soak(node: &Node, slurm: Option<&Slurm<'_>>) {
    let logins = std::env::var("LOGINS").map_or(FEW, |number| number.parse().unwrap());
    node.install(&Tool::Filter.path(), "/usr/bin/filter");
    let minor = std::process::id() & 0xf_ffff;
    node.sh(&format!("mknod -m 666 /dev/soak c 240 {minor}"))
        .ok();
    // The speed of a busy machine does not matter here.
    node.arguments("log_level=info timeout=20");
    let sshd = node.sshd();
    let names = program_names(node, &sshd);
    assert_eq!(names.len(), 3, "{names:?}");
    run_wave(node, &[CAROL; WAVE]);
    let mut first = Left::read(&sshd, slurm, &names);
    eventually("nothing goes on", || {
        let before = std::mem::replace(&mut first, Left::read(&sshd, slurm, &names));
        before == first && first.programs == 0
    });
    let own = private_memory(&sshd);
    let history = History::default();
    let over = AtomicBool::new(false);
    let began = Instant::now();
    let mut reports = Vec::new();
    std::thread::scope(|scope| {
        let history = &history;
        let over = &over;
        // The stand-in has one job at a time.
        let lanes = LANES.len() - usize::from(slurm.is_none());
        for (seed, lane) in (1..).zip(LANES.into_iter().take(lanes)) {
            scope.spawn(move || lane.run(node, slurm, history, over, seed));
        }
        scope.spawn(move || toggle_filters_above(node, history, over));
        let done = || over.store(true, Ordering::Relaxed);
        let _done = Done(&done);
        while reports.len() < logins {
            let count = WAVE.min(logins - reports.len());
            let users = (0..count).map(|at| USERS[at % USERS.len()]);
            reports.extend(run_wave(node, &users.collect::<Vec<_>>()));
        }
    });
    let took = began.elapsed();
    let mut came = BTreeMap::<String, usize>::new();
    let mut wrong = Vec::new();
    for report in &reports {
        match history.judge(report) {
            Ok(what) => *came.entry(what).or_default() += 1,
            Err(why) => wrong.push(format!("{}: {why}\n{}", report.user.name, report.text)),
        }
    }
    let mut last = Left::read(&sshd, slurm, &names);
    let deadline = Instant::now() + SOON;
    while last != first && Instant::now() < deadline {
        sleep(Duration::from_millis(50));
        last = Left::read(&sshd, slurm, &names);
    }
    let past = history.over.lock().unwrap();
    let count = reports.len();
    let jobs = past.len();
    let daemon = if slurm.is_some() {
        "Slurm"
    } else {
        "a stand-in"
    };
    let many = past.iter().filter(|job| job.is_slurms()).count();
    let mut report = format!(
        "soak: {count} logins, {jobs} jobs, {many} of them of {daemon}, in {} s\n",
        took.as_secs()
    );
    let forgotten = history.forgotten.load(Ordering::Relaxed);
    report += &format!("soak: {forgotten} empty cgroups of ended jobs forgotten by Slurm itself\n");
    for (what, times) in &came {
        report += &format!("soak: {times} {what}\n");
    }
    report += &format!(
        "soak: {} confined wrongly or refused without a reason\n",
        wrong.len()
    );
    let grown = private_memory(&sshd).saturating_sub(own);
    let Left {
        processes,
        cgroups,
        programs,
        descriptors,
        ..
    } = &last;
    report += &format!(
        "soak: left: {} processes, {} cgroups, {programs} programs, {} descriptors, {} files, \
             {grown} KiB of the server's\n",
        processes.abs_diff(first.processes),
        cgroups.abs_diff(first.cgroups),
        descriptors.abs_diff(first.descriptors),
        last.files.symmetric_difference(&first.files).count(),
    );
    eprint!("{report}");
    let some: Vec<&String> = wrong.iter().take(10).collect();
    assert!(wrong.is_empty(), "{some:#?}");
    let files: Vec<_> = last.files.symmetric_difference(&first.files).collect();
    assert!(last == first, "{files:?}");
    assert!(grown <= GROWTH_KB, "the server has grown by {grown} KiB");
}

/// Calls the function when it is dropped, also by a panic.
struct Done<'a>(&'a dyn Fn());

impl Drop for Done<'_> {
    fn drop(&mut self) {
        (self.0)();
    }
}
