use std::time::Duration;

use super::*;
use crate::jobs::find_by_name;
use crate::jobs::sources::PossibleOwners;
use crate::testing::Scratch;

const FLUX: u32 = 992;

/// A node with units of jobs and their processes, laid out as files.
struct FluxBench {
    scratch: Scratch,
}

impl FluxBench {
    fn new() -> Self {
        let scratch = Scratch::new();
        scratch.file("proc/stat", "cpu 1 2\nbtime 1000\nprocesses 9\n");
        let bench = Self { scratch };
        bench.process(1, 0, [0; 4]);
        bench.scratch.dir("cg/user.slice/user-992.slice");
        bench
    }

    /// Writes a process that started `pid` seconds after boot.
    fn process(&self, pid: i32, parent: i32, uids: [u32; 4]) {
        let [real, effective, saved, files] = uids;
        let status = format!(
            "Name:\tx\nState:\tS (sleeping)\nPPid:\t{parent}\nUid:\t{real}\t{effective}\t{saved}\t\
             {files}\n"
        );
        let ticks = i64::from(pid) * sysconf_ticks();
        let stat =
            format!("{pid} (x) S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} 0 0\n");
        self.scratch.file(&format!("proc/{pid}/status"), &status);
        self.scratch.file(&format!("proc/{pid}/stat"), &stat);
    }

    fn children(&self, pid: i32, list: &str) {
        self.scratch
            .file(&format!("proc/{pid}/task/{pid}/children"), list);
    }

    /// Writes a unit with these processes.
    fn unit(&self, manager: u32, below: &str, name: &str, pids: &[i32]) {
        let pids: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
        let path =
            format!("cg/user.slice/user-{manager}.slice/user@{manager}.service/{below}{name}");
        self.scratch.file(&format!("{path}/cgroup.procs"), &pids);
    }

    /// Writes a Flux unit in which an IMP has a shell of `owner`.
    fn running(&self, name: &str, imp: i32, owner: u32) {
        self.process(imp, 1, [FLUX, 0, 0, 0]);
        self.process(imp + 1, imp, [owner; 4]);
        self.children(imp, &format!("{} ", imp + 1));
        self.unit(FLUX, "app.slice/", name, &[imp, imp + 1]);
    }

    fn source(&self) -> FluxSource {
        let path = self.scratch.path();
        FluxSource::new(&FLUX.to_string(), path.join("cg"), path)
    }

    fn report(&self) -> SourceReport {
        self.source()
            .jobs(5, Deadline::after(Duration::from_secs(60)))
            .unwrap()
    }
}

fn sysconf_ticks() -> i64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
        .unwrap()
        .unwrap()
}

fn ids(report: &SourceReport) -> Vec<&str> {
    report.jobs.iter().map(|job| job.id.as_str()).collect()
}

#[test]
fn only_the_users_jobs_are_found() {
    let bench = FluxBench::new();
    bench.running("imp-shell-0-f1.service", 10, 5);
    bench.running("imp-shell-0-fzz.service", 20, 6);
    // Without a slice of applications, and without the kernel's list of children.
    bench.process(30, 1, [FLUX, 0, 0, 0]);
    bench.process(31, 30, [5; 4]);
    bench.unit(FLUX, "", "imp-shell-3-fxyzzy.service", &[30, 31]);
    let report = bench.report();
    assert_eq!(ids(&report), ["f1", "fxyzzy"]);
    let manager = "/user.slice/user-992.slice/user@992.service";
    let at = |path: String| Placement::Unit {
        path: path.parse().unwrap(),
        flux: FLUX,
    };
    let [one, two] = report.jobs.as_slice() else {
        panic!()
    };
    assert_eq!(
        one.placement,
        at(format!("{manager}/app.slice/imp-shell-0-f1.service"))
    );
    assert_eq!(
        two.placement,
        at(format!("{manager}/imp-shell-3-fxyzzy.service"))
    );
    assert_eq!((one.started, two.started), (1010, 1030));
    assert!(report.broken.is_empty() && report.silent.is_empty() && report.skipped.is_empty());
    assert_eq!(
        report.seen,
        ["account 992: 3 units run a job, 0 have no shell, 0 are left over"]
    );
    let all = bench
        .source()
        .jobs_of_all_users(Deadline::after(Duration::from_secs(60)))
        .unwrap();
    let all: Vec<_> = all
        .jobs
        .iter()
        .map(|(uid, job)| (*uid, job.id.as_str()))
        .collect();
    assert_eq!(all, [(5, "f1"), (6, "fzz"), (5, "fxyzzy")]);
}

#[test]
fn unit_outside_flux_manager_is_no_job() {
    let bench = FluxBench::new();
    bench.process(10, 1, [FLUX, 0, 0, 0]);
    bench.process(11, 10, [5; 4]);
    // A user's own service manager, and other cgroups of the Flux account.
    bench.unit(5, "app.slice/", "imp-shell-0-f1.service", &[10, 11]);
    bench.unit(
        FLUX,
        "background.slice/",
        "imp-shell-0-f2.service",
        &[10, 11],
    );
    bench.unit(
        FLUX,
        "app.slice/x.service/",
        "imp-shell-0-f3.service",
        &[10, 11],
    );
    for name in [
        "shell-0-f4.service",
        "imp-shell-0-f11.service",
        "imp-shell-0-f5.scope",
    ] {
        bench.unit(FLUX, "app.slice/", name, &[10, 11]);
    }
    assert_eq!(bench.report().jobs, []);
    assert_eq!(
        bench.report().seen,
        ["account 992: 0 units run a job, 0 have no shell, 0 are left over"]
    );
}

#[test]
fn unit_without_imp_is_left_over() {
    let bench = FluxBench::new();
    bench.running("imp-shell-0-f1.service", 10, 5);
    let left = |uids| {
        bench.process(10, 1, uids);
        let report = bench.report();
        assert_eq!(ids(&report), Vec::<&str>::new(), "{uids:?}");
        assert!(
            report.seen.first().unwrap().ends_with("1 are left over"),
            "{uids:?} {report:?}"
        );
        assert!(report.broken.is_empty() && report.skipped.is_empty());
    };
    // A user's processes do not have the uids of an IMP.
    for uids in [[5; 4], [5, 0, 0, 0], [0; 4], [FLUX; 4], [FLUX, FLUX, 0, 0]] {
        left(uids);
    }
    let text = "Name:\tx\nState:\tZ (zombie)\nPPid:\t1\nUid:\t992\t0\t0\t0\n";
    bench.scratch.file("proc/10/status", text);
    assert_eq!(ids(&bench.report()), Vec::<&str>::new());
    bench.unit(FLUX, "app.slice/", "imp-shell-0-f1.service", &[]);
    assert_eq!(ids(&bench.report()), Vec::<&str>::new());
}

#[test]
fn unit_without_shell_is_skipped() {
    let bench = FluxBench::new();
    bench.process(10, 1, [FLUX, 0, 0, 0]);
    bench.process(11, 10, [FLUX; 4]);
    bench.children(10, "11 ");
    bench.unit(FLUX, "app.slice/", "imp-shell-0-f1.service", &[10, 11]);
    let report = bench.report();
    assert_eq!(
        (report.jobs.as_slice(), report.broken.as_slice()),
        (&[][..], &[][..])
    );
    let [skipped] = report.skipped.as_slice() else {
        panic!("{report:?}")
    };
    assert!(
        skipped.contains("imp-shell-0-f1.service: its shell is not there"),
        "{skipped}"
    );
}

#[test]
fn hidden_processes_are_a_fault() {
    let bench = FluxBench::new();
    bench.unit(FLUX, "app.slice/", "imp-shell-0-f1.service", &[10]);
    // A process that ended in between is no fault.
    assert!(bench.report().broken.is_empty());
    std::fs::remove_dir_all(bench.scratch.path().join("proc/1")).unwrap();
    let report = bench.report();
    assert!(
        report.broken.first().unwrap().contains("hidepid"),
        "{report:?}"
    );
    bench.process(1, 0, [0; 4]);
    bench.unit(FLUX, "app.slice/", "imp-shell-0-f1.service", &[0]);
    assert!(
        bench
            .report()
            .broken
            .first()
            .unwrap()
            .contains("no numbers here")
    );
}

#[test]
fn units_of_several_brokers_are_one_job() {
    let bench = FluxBench::new();
    bench.running("imp-shell-10-f1.service", 10, 5);
    bench.running("imp-shell-9-f1.service", 20, 5);
    let report = bench.report();
    let [job] = report.jobs.as_slice() else {
        panic!("{report:?}")
    };
    assert!(
        job.placement.cgroup().ends_with("/imp-shell-9-f1.service"),
        "{job:?}"
    );
    assert!(
        report
            .skipped
            .first()
            .unwrap()
            .contains("imp-shell-10-f1.service")
    );
    // A unit whose IMP has ended does not hide the other.
    bench.process(20, 1, [5; 4]);
    let other_job = bench.report().jobs.pop().unwrap();
    assert!(
        other_job
            .placement
            .cgroup()
            .ends_with("/imp-shell-10-f1.service"),
        "{job:?}"
    );
}

#[test]
fn imp_with_children_of_two_users_is_a_fault() {
    let bench = FluxBench::new();
    bench.running("imp-shell-0-f1.service", 10, 5);
    bench.running("imp-shell-0-f2.service", 20, 5);
    bench.process(12, 10, [6; 4]);
    bench.children(10, "11 12 ");
    let report = bench.report();
    assert_eq!(ids(&report), ["f2"]);
    assert!(
        report.broken.first().unwrap().contains("several users'"),
        "{report:?}"
    );
    let deadline = Deadline::after(Duration::from_secs(60));
    let others = bench.source().jobs(7, deadline).unwrap();
    assert!(others.broken.is_empty() && others.foreign.len() == 1);
    let all = bench.source().jobs_of_all_users(deadline).unwrap();
    let owners: Vec<_> = all.doubts.into_iter().map(|doubt| doubt.owners).collect();
    let users = [5, 6].into_iter().collect();
    assert_eq!(owners, [PossibleOwners::Only(users)]);
}

/// A process that ends while it is read is nobody's who is not seen; one that is hidden or cannot be read may be
/// anybody's.
#[test]
fn process_that_has_ended_leaves_owners_of_unit_known() {
    let bench = FluxBench::new();
    bench.process(10, 1, [FLUX, 0, 0, 0]);
    bench.process(11, 10, [5; 4]);
    bench.process(12, 10, [6; 4]);
    bench.children(10, "11 12 ");
    bench.unit(FLUX, "app.slice/", "imp-shell-0-f1.service", &[13, 10]);
    let owners = || {
        let deadline = Deadline::after(Duration::from_secs(60));
        let all = bench.source().jobs_of_all_users(deadline).unwrap();
        let owners: Vec<_> = all.doubts.into_iter().map(|doubt| doubt.owners).collect();
        owners
    };
    let users = [5, 6].into_iter().collect();
    assert_eq!(owners(), [PossibleOwners::Only(users)]);
    bench.scratch.file("proc/13/status", "no status");
    assert_eq!(owners(), [PossibleOwners::Any]);
    let proc = bench.scratch.path().join("proc");
    std::fs::remove_dir_all(proc.join("13")).unwrap();
    std::fs::remove_dir_all(proc.join("1")).unwrap();
    assert_eq!(owners(), [PossibleOwners::Any]);
}

/// It may be the IMP.
#[test]
fn unit_with_unreadable_process_and_without_imp_is_a_fault() {
    let bench = FluxBench::new();
    bench.process(11, 1, [5; 4]);
    bench.unit(FLUX, "app.slice/", "imp-shell-0-f1.service", &[10, 11]);
    assert_eq!(bench.report().broken, [""; 0], "the IMP has ended");
    bench.scratch.file("proc/10/status", "no status");
    let broken = bench.report().broken;
    assert!(
        broken.first().unwrap().contains("cannot be read"),
        "{broken:?}"
    );
}

#[test]
fn missing_account_or_slice_is_absent() {
    let bench = FluxBench::new();
    let path = bench.scratch.path();
    let ask = |account: &str| {
        let source = FluxSource::new(account, path.join("cg"), path);
        source.jobs(5, Deadline::after(Duration::from_secs(60)))
    };
    let absent = |result| matches!(result, Err(SourceError::Absent(_)));
    assert!(absent(ask("no-such-account")));
    assert!(absent(ask("993")));
    assert!(ask(&FLUX.to_string()).is_ok());
    assert!(matches!(ask("0"), Err(SourceError::Failed(_))));
    assert!(matches!(ask("root"), Err(SourceError::Failed(_))));
}

#[test]
fn units_after_deadline_are_silent() {
    let bench = FluxBench::new();
    for number in 0..300 {
        let id = super::FluxId(1_000_000 + number);
        let pid = 100 + 2 * i32::try_from(number).unwrap();
        bench.running(
            &format!("imp-shell-0-{id}.service"),
            pid,
            5 + (u32::try_from(pid).unwrap() & 2),
        );
    }
    assert_eq!(bench.report().jobs.len(), 150);
    let late = bench
        .source()
        .jobs(5, Deadline::after(Duration::ZERO))
        .unwrap();
    assert_eq!((late.jobs.len(), late.silent.len()), (0, 1));
    assert_eq!(
        late.silent,
        ["flux: 300 units could not be looked at in time"]
    );
}

/// A second IMP would make the unit invalid; the result shows that it was not read.
#[test]
fn imp_and_shell_are_found_without_reading_all_processes() {
    let bench = FluxBench::new();
    bench.running("imp-shell-0-f1.service", 10, 5);
    bench.process(12, 1, [FLUX, 0, 0, 0]);
    bench.unit(FLUX, "app.slice/", "imp-shell-0-f1.service", &[10, 11, 12]);
    assert_eq!(ids(&bench.report()), ["f1"]);
    bench.unit(FLUX, "app.slice/", "imp-shell-0-f1.service", &[11, 10, 12]);
    assert_eq!(ids(&bench.report()), ["f1"]);
    bench.unit(FLUX, "app.slice/", "imp-shell-0-f1.service", &[12, 10, 11]);
    assert_eq!(ids(&bench.report()), Vec::<&str>::new());
}

/// Processes that a job left behind delay other users' logins only up to this limit.
#[test]
fn processes_beyond_limit_are_not_read() {
    let bench = FluxBench::new();
    bench.running("imp-shell-0-f2.service", 20, 6);
    bench.process(10, 1, [FLUX, 0, 0, 0]);
    bench.process(11, 10, [5; 4]);
    bench.process(12, 1, [5; 4]);
    let max = i32::try_from(flux::UNIT_PROCESSES_MAX).unwrap();
    let look = |first: &[i32], others: i32, last: &[i32]| {
        let others = 100_000..100_000 + others - i32::try_from(first.len()).unwrap();
        let all: Vec<i32> = first
            .iter()
            .copied()
            .chain(others)
            .chain(last.iter().copied())
            .collect();
        bench.unit(FLUX, "app.slice/", "imp-shell-0-f1.service", &all);
        let report = bench.report();
        assert!(
            report.broken.is_empty() && report.silent.is_empty(),
            "{report:?}"
        );
        let other_all = bench
            .source()
            .jobs_of_all_users(Deadline::after(Duration::from_secs(60)))
            .unwrap();
        assert!(
            other_all
                .jobs
                .iter()
                .any(|(uid, job)| (*uid, job.id.as_str()) == (6, "f2"))
        );
        (
            report.jobs.len(),
            report.starting.len() + report.ending.len(),
            report.skipped.concat(),
        )
    };
    // The IMP is the last process that is read, then the first that is not.
    assert_eq!(look(&[], max - 2, &[10, 11]), (1, 0, String::new()));
    let (jobs, passing, skipped) = look(&[], max, &[10, 11]);
    assert_eq!((jobs, passing), (0, 0));
    assert!(skipped.contains("no IMP among its first 1024"), "{skipped}");
    // A lingering task is within the limit, then beyond it.
    assert_eq!(look(&[10], max - 1, &[12]).1, 1);
    assert_eq!(look(&[10], max, &[12]).1, 0);
}

#[test]
fn job_with_lingering_tasks_is_ending_for_its_owner() {
    let bench = FluxBench::new();
    bench.process(10, 1, [FLUX, 0, 0, 0]);
    bench.process(12, 1, [5; 4]);
    bench.unit(FLUX, "app.slice/", "imp-shell-0-f1.service", &[10, 12]);
    let report = bench.report();
    assert_eq!(report.ending, ["f1".parse().unwrap()]);
    assert_eq!(report.starting, []);
    assert!(
        report
            .skipped
            .first()
            .unwrap()
            .contains("its shell has ended"),
        "{report:?}"
    );
    let other = bench
        .source()
        .jobs(6, Deadline::after(Duration::from_secs(60)))
        .unwrap();
    assert_eq!((other.starting, other.ending), (vec![], vec![]));
}

#[test]
fn job_is_starting_while_its_prolog_runs() {
    let bench = FluxBench::new();
    let prolog = |name: &str, uid: u32| {
        let text = format!("FLUX_JOB_ID=1\nFLUX_JOB_USERID={uid}\nFLUX_X=FLUX_JOB_USERID=5\n");
        bench.scratch.file(&format!("run/{name}"), &text)
    };
    prolog("flux-prolog@f2.env", 55);
    prolog("flux-epilog@f3.env", 5);
    prolog("flux-prolog@flux.env", 5);
    assert_eq!(
        (bench.report().starting, bench.report().ending),
        (vec![], vec![])
    );
    let file = prolog("flux-prolog@fxyzzy.env", 5);
    assert_eq!(bench.report().starting, ["fxyzzy".parse().unwrap()]);
    std::fs::remove_file(file).unwrap();
    assert_eq!(
        (bench.report().starting, bench.report().ending),
        (vec![], vec![])
    );
}

#[test]
fn flux_job_has_each_notation_of_its_id_as_name() {
    let bench = FluxBench::new();
    bench.running("imp-shell-0-fxyzzy.service", 10, 5);
    let job = bench.report().jobs.pop().unwrap();
    for (name, is) in [
        ("fxyzzy", true),
        ("633528662", true),
        ("0x25c2e156", true),
        ("0000.0000.25c2.e156", true),
        ("633528663", false),
        ("xyzzy", false),
    ] {
        assert_eq!(job.has_name(&name.parse().unwrap()), is, "{name}");
    }
    let placement = Placement::Cgroup {
        path: "/a".parse().unwrap(),
        leaf: None,
    };
    let other = Job {
        placement: placement.clone(),
        ..job.clone()
    };
    let number: JobId = "633528662".parse().unwrap();
    assert!(!other.has_name(&number));
    // The job with this very id comes before one with it in another notation.
    let called = Job {
        id: number.clone(),
        placement,
        ..job.clone()
    };
    let jobs = [other, job, called];
    let at = |list, id| find_by_name(list, &id).map(|found| found.id.as_str().to_owned());
    assert_eq!(at(&jobs[..], number.clone()).as_deref(), Some("633528662"));
    assert_eq!(at(&jobs[..2], number).as_deref(), Some("fxyzzy"));
    assert_eq!(at(&jobs, "1".parse().unwrap()), None);
}
