//! Logins to Flux jobs: they run below the unit under its filter, and end with the IMP.

use std::os::unix::fs::{chown, symlink};

use protocol::{Access, Allowlist, Containment, DeviceRule, DeviceType};

use crate::support::{
    ALICE, BOB, DENIED, FLUX, Fake, FluxJob, Node, OPENS, Outcome, Tool, eventually, on_flux,
    run_while_delayed, run_while_held, unit_reply,
};

const JOB: &str = "fxyzzy";
const KEEPER: &str = "/usr/libexec/job-adopt/keeper";
/// Rules of the IMP's filter: one GPU, and the devices of every program.
pub(crate) const ONE_GPU: [&str; 4] = ["--rule", "c:195:0:rw", "--rule", "c:1:*:rwm"];

/// Starts a job of alice under the IMP's filter, and a helper that answers with it.
fn start_contained_job(node: &Node) -> FluxJob {
    let job = node.start_flux_job(ALICE, JOB, &ONE_GPU);
    Fake::new()
        .answers(&job.reply(Containment::Inherit))
        .install(node);
    job
}

/// Returns an allowlist with one GPU.
fn one_gpu_list() -> Containment {
    let mut list = Allowlist::new();
    for (major, minor) in [(195, Some(0)), (1, None)] {
        list.push(DeviceRule::from_numbers(DeviceType::Char, major, minor, Access::ALL).unwrap())
            .unwrap();
    }
    Containment::Enforce(list)
}

/// Asserts that both phases refuse with that code and leave nothing.
#[track_caller]
fn assert_both_phases_refuse(node: &Node, job: &FluxJob, what: &str, code: &str) {
    let outcomes = [node.account(ALICE), node.session(ALICE)];
    for outcome in &outcomes {
        assert!(outcome.code != 0, "{what}: {outcome}");
    }
    assert!(
        outcomes[0].output().contains(code),
        "{what}, not {code}: {}",
        outcomes[0]
    );
    assert_nothing_left(node, job, what);
}

#[track_caller]
fn assert_nothing_left(node: &Node, job: &FluxJob, what: &str) {
    eventually(&format!("{what}: no keeper is left"), || {
        node.keepers().is_empty()
    });
    assert!(!job.leaf().exists(), "{what}: a leaf is left");
}

/// Keeps a login open below the unit while `inside` runs.
fn run_during_login<T>(node: &Node, job: &FluxJob, inside: impl FnOnce() -> T) -> (T, Outcome) {
    let sshd = node.sshd();
    std::thread::scope(|scope| {
        let login = scope.spawn(|| sshd.ssh(ALICE, "sleep 50"));
        eventually("the login is in", || job.leaf().pids_or_empty().len() > 1);
        let result = inside();
        (result, login.join().unwrap())
    })
}

#[test]
fn login_joins_job_below_unit() {
    on_flux(|node| {
        let job = start_contained_job(node);
        let sshd = node.sshd();
        let look = "cat /proc/self/cgroup; probe /dev/nvidia0 /dev/nvidia1 /dev/null";
        for _ in 0..3 {
            let login = sshd.ssh(ALICE, look).ok();
            assert_eq!(login.cgroup(), job.leaf().path());
            login.devices(&[
                ("/dev/nvidia0", OPENS),
                ("/dev/nvidia1", DENIED),
                ("/dev/null", "ok"),
            ]);
        }
        let entry = node.log.decision("JA00");
        assert_eq!(entry.field("source"), Some("flux"));
        assert_eq!(entry.field("containment"), Some("inherit"));
        assert!(job.unit.our_filters().is_empty() && job.leaf().filters().is_empty());
        assert_eq!(node.keepers().len(), 1);
    });
}

/// With the real helper, the IMP's filter is kept. If the IMP attached none, the helper reads the
/// unit's file, and its second reply holds the list for our filter.
#[test]
fn login_with_real_helper_is_confined() {
    for (options, policy, containment) in [
        (&ONE_GPU[..], "", "inherit"),
        (
            &[],
            "DevicePolicy=closed\nDeviceAllow=/dev/nvidia0 rw\n",
            "enforce",
        ),
        (&[], "", "none"),
    ] {
        on_flux(|node| {
            let job = node.start_flux_job(ALICE, JOB, options);
            let file = format!("{}/imp-shell-0-{JOB}.service", node.transient());
            node.write(&file, &format!("[Service]\nType=notify\n{policy}"));
            let resolved = node.job_adopt(&["resolve", "--user", ALICE.name]).ok();
            resolved.says(&format!("in force: {containment}"));
            let login = node
                .sshd()
                .ssh(ALICE, "cat /proc/self/cgroup; probe /dev/nvidia1")
                .ok();
            assert_eq!(login.cgroup(), job.leaf().path());
            let open = if containment == "none" { OPENS } else { DENIED };
            login.devices(&[("/dev/nvidia1", open)]);
            assert_eq!(
                node.log.decision("JA00").field("containment"),
                Some(containment)
            );
        });
    }
}

/// A job can run any number of processes, also after its shell has ended. Logins of other users
/// inspect only some of them, and the owner reads that the job is ending.
#[test]
fn full_unit_delays_logins_of_others_little() {
    const CROWD: &str = "for i in $(seq 3000); do (read x) <>/run/block & done; wait";
    on_flux(|node| {
        node.sh("mkfifo -m 666 /run/block").ok();
        // strace slows the helper down.
        node.arguments("timeout=60");
        let crowd = node.start_flux_job_with_command(ALICE, "f1", &[], &["sh", "-c", CROWD]);
        let bobs = node.start_flux_job(BOB, JOB, &[]);
        let file = format!("{}/imp-shell-0-{JOB}.service", node.transient());
        node.write(&file, "[Service]\n");
        eventually("the crowd is there", || crowd.unit.pids().len() > 3000);
        let looked_at = || {
            let traced = ["--seccomp-bpf", "-e", "trace=openat"];
            node.account_under_strace(&traced, BOB).ok();
            node.read("/tmp/strace")
                .lines()
                .filter(|line| line.contains("/status\""))
                .count()
        };
        let count = looked_at();
        assert!(
            count < 100,
            "{count} processes of the running job were looked at"
        );
        send_signal(crowd.shells()[0], nix::sys::signal::Signal::SIGKILL);
        eventually("its owner reads so", || {
            let refusal = node.account(ALICE).fails();
            refusal.output().contains("your job f1 here is ending.")
        });
        // The limit counts twice, since bob's unit has no filter. Without a limit it would be
        // 6,000.
        let lingering = looked_at();
        assert!(
            (1024..3000).contains(&lingering),
            "{lingering} lingering processes were looked at"
        );
        assert_eq!(crowd.unit.pids().len(), 3001);
        for account in ["flux", "992"] {
            node.configure(&format!("flux_user = {account}\n"));
            node.job_adopt(&["strays", "--user", ALICE.name]).ok();
        }
        node.arguments("");
        node.sshd()
            .ssh(BOB, "cat /proc/self/cgroup")
            .ok()
            .joins_cgroup(&bobs.leaf());
    });
}

/// Prologs and housekeeping get the id in different notations.
#[test]
fn id_in_any_notation_names_same_record() {
    on_flux(|node| {
        let notations = [
            "\u{192}xyzzy",
            "633528662",
            "0x25c2e156",
            "job.0000.0000.25c2.e156",
            JOB,
        ];
        for (given, back) in notations.iter().zip(notations.iter().rev()) {
            let options = ["--via", "flux", "--user", "alice", "--policy", "closed"];
            node.job_adopt(&[&["register", "--id", given], &options[..]].concat())
                .ok();
            assert_eq!(
                node.sh("ls /run/job-adopt/jobs/1001").ok().stdout,
                "fxyzzy.json\n"
            );
            node.unregister(back).ok();
            let left = node.sh("ls -A /run/job-adopt/jobs/1001").ok().stdout;
            assert_eq!(left, "fxyzzy.ended\n", "{given}, then {back}");
        }
        let none = [
            "register", "--id", "xyzzy", "--via", "flux", "--uid", "1001", "--cdi", "x/y=z",
        ];
        node.job_adopt(&none).exits(2).says("id");
    });
}

/// A keeper is outside of the session and the job, and has inherited nothing of sshd.
#[test]
fn keeper_inherits_nothing_of_sshd() {
    on_flux(|node| {
        let job = start_contained_job(node);
        run_during_login(node, &job, || {
            let pid = node.keepers()[0];
            let file = |name: &str| {
                let bytes = std::fs::read(format!("/proc/{pid}/{name}")).unwrap();
                String::from_utf8(bytes).unwrap()
            };
            assert_eq!(file("cmdline"), format!("job-adopt keeper {JOB}\0"));
            assert_eq!(file("environ"), "");
            // In a container root may lack the right to lower the OOM score.
            let spares = node.sh("echo -1000 >/proc/self/oom_score_adj").code == 0;
            assert!(!spares || file("oom_score_adj") == "-1000\n");
            let root = node.cgroup().dir();
            let root = root.file_name().unwrap().to_str().unwrap();
            assert!(file("cgroup").contains(&format!("0::/{root}\n")));
            let status = file("status");
            // The keeper blocks the signals that end it, to end its logins first: SIGHUP, SIGINT,
            // SIGQUIT and SIGTERM.
            for line in ["SigBlk:\t0000000000004007", "Uid:\t0\t0\t0\t0"] {
                assert!(status.contains(line), "{status}");
            }
            // Signals 32 and 33 belong to the C library.
            let ignored = status
                .lines()
                .find_map(|line| line.strip_prefix("SigIgn:\t"))
                .unwrap();
            let ignored = u64::from_str_radix(ignored, 16).unwrap() & !(3 << 31);
            assert_eq!(ignored, 1 << 12, "SIGPIPE alone: {status}");
            let stat = file("stat");
            let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
            let parent: i32 = fields[1].parse().unwrap();
            let parents = std::fs::read_to_string(format!("/proc/{parent}/status")).unwrap();
            assert!(
                parents.contains("\t1\n"),
                "not the first process's: {parents}"
            );
            assert_eq!(fields[4], "0", "it has a terminal: {stat}");
            let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
            assert_eq!(cwd.to_str(), Some("/"));
            let open = std::fs::read_dir(format!("/proc/{pid}/fd"))
                .unwrap()
                .count();
            // Three times /dev/null, then IMP, signals, unit, leaf and lock.
            assert!(open <= 9, "{open} descriptors");
            job.end_shell();
        });
        eventually("it ends", || node.keepers().is_empty());
    });
}

/// A keeper that kept them would hold them, and all that a login has mounted there, as long as the
/// job runs.
#[test]
fn keeper_keeps_no_mounts_of_its_login() {
    on_flux(|node| {
        let job = start_contained_job(node);
        node.sh("exec unshare --mount pamtester sshd alice open_session")
            .ok();
        let keeper = node.keepers()[0];
        let mounts = std::fs::read_link(format!("/proc/{keeper}/ns/mnt")).unwrap();
        let first = node.sh("readlink /proc/1/ns/mnt").ok();
        assert_eq!(first.stdout.trim(), mounts.to_str().unwrap());
        job.end_shell();
        eventually("it ends", || node.keepers().is_empty());
    });
}

/// pam_keyinit gives sshd the session keyring that the user's keys go to.
#[test]
fn keeper_has_empty_session_keyring() {
    on_flux(|node| {
        let _job = start_contained_job(node);
        Fake::new().verb("describe", 0).install_as(node, "keeper");
        node.in_keyring(&["pamtester", "sshd", "alice", "open_session"])
            .fails();
        node.log.line("helper: end");
        node.log.line("helper: keyring _ses of 0 keys");
    });
}

/// pam_limits may have set the nice value of its user.
#[test]
fn keeper_has_the_usual_nice_value() {
    on_flux(|node| {
        let job = start_contained_job(node);
        node.sh("exec nice -n 7 pamtester sshd alice open_session")
            .ok();
        let keeper = node.keepers()[0];
        let stat = std::fs::read_to_string(format!("/proc/{keeper}/stat")).unwrap();
        let fields = stat.rsplit(')').next().unwrap();
        assert_eq!(fields.split_whitespace().nth(16), Some("0"), "{stat}");
        job.end_shell();
        eventually("it ends", || node.keepers().is_empty());
    });
}

/// Flux ends a job so: the shell ends, the IMP waits until it is alone, and exits.
#[test]
fn login_ends_with_imp() {
    for kill in [false, true] {
        on_flux(|node| {
            let mut job = start_contained_job(node);
            let sshd = node.sshd();
            std::thread::scope(|scope| {
                let login = scope.spawn(|| sshd.ssh(ALICE, "trap '' TERM HUP; sleep 1000"));
                eventually("the login is in", || job.leaf().pids_or_empty().len() > 1);
                // The IMP does not wait for this process.
                if kill {
                    job.kill_imp()
                } else {
                    job.finish()
                }
                eventually("the leaf is gone", || !job.leaf().exists());
                login.join().unwrap().fails();
            });
            let shells = if kill { 1 } else { 0 };
            assert_eq!(
                job.unit.pids().len(),
                shells,
                "the unit's own are Flux's to end"
            );
            eventually("the keeper is gone", || node.keepers().is_empty());
            assert!(!node.log.to_string().contains("keeper="), "{}", node.log);
        });
    }
}

/// A service manager that has forgotten a unit leaves the removal of its cgroup to the keeper.
#[test]
fn cgroup_of_unit_is_removed_after_its_logins() {
    on_flux(|node| {
        let job = start_contained_job(node);
        run_during_login(node, &job, || job.end_shell()).1.fails();
        eventually("the unit is gone", || !job.unit.exists());
        eventually("the keeper is gone", || node.keepers().is_empty());
        assert!(!node.log.to_string().contains("keeper="), "{}", node.log);
    });
}

#[test]
fn new_cgroup_with_name_of_unit_stays() {
    on_flux(|node| {
        let job = start_contained_job(node);
        let late = || {
            let keeper = node.keepers()[0];
            send_signal(keeper, nix::sys::signal::Signal::SIGSTOP);
            job.end_shell();
            eventually("the IMP is gone", || job.unit.pids().is_empty());
            job.unit.remove();
            job.unit.create();
            send_signal(keeper, nix::sys::signal::Signal::SIGCONT);
        };
        run_during_login(node, &job, late).1.fails();
        eventually("the keeper is gone", || node.keepers().is_empty());
        assert!(job.unit.exists());
        assert!(!node.log.to_string().contains("keeper="), "{}", node.log);
    });
}

/// Fifty logins start one keeper, and so does the next login after a kill of the keeper.
#[test]
fn all_logins_of_job_share_one_keeper() {
    on_flux(|node| {
        let job = start_contained_job(node);
        let sshd = node.sshd();
        let burst = sshd.burst(ALICE, 50, &[], || {
            assert_eq!(node.keepers().len(), 1);
        });
        assert!(burst.complaints.is_empty(), "{:?}", burst.complaints);
        assert!(
            burst
                .cgroups
                .iter()
                .all(|line| line.ends_with("/job-adopt"))
        );
        let first = node.keepers()[0];
        let pid = nix::unistd::Pid::from_raw(first);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        eventually("it is gone", || node.keepers().is_empty());
        sshd.ssh(ALICE, "true").ok();
        assert!(node.keepers().len() == 1 && node.keepers()[0] != first);
        drop(job);
        eventually("that one ends as well", || node.keepers().is_empty());
    });
}

#[test]
fn job_of_another_user_refuses_login() {
    on_flux(|node| {
        let job = node.start_flux_job(BOB, JOB, &ONE_GPU);
        Fake::new()
            .answers(&job.reply(Containment::Inherit))
            .install(node);
        assert_both_phases_refuse(node, &job, "Bob's", "[JA07]");
        node.log.line("uid 1002");
    });
}

/// Names and uids that nearly match those of the IMP.
#[test]
fn process_resembling_imp_is_not_accepted() {
    // The saved uid follows the effective one at exec.
    for uids in [
        "--reuid 992",
        "--ruid 992 --euid 1001",
        "--ruid 1001 --euid 0",
        "--reuid 0",
    ] {
        on_flux(|node| {
            let unit = node.unit(FLUX.uid, &format!("imp-shell-0-{JOB}.service"));
            let child = "setpriv --reuid 1001 --clear-groups sleep infinity";
            let script = format!("{child} & exec setpriv {uids} --clear-groups sleep infinity");
            let mut command = node.daemon(&unit, "sh");
            command.args(["-c", &script]);
            let mut shell = command.spawn().unwrap();
            let runs = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/comm"));
            let sleeps = |pid: &i32| runs(*pid).is_ok_and(|name| name == "sleep\n");
            eventually("both run", || {
                unit.pids().iter().filter(|pid| sleeps(pid)).count() == 2
            });
            let job = unit_reply(JOB, unit.path(), FLUX.uid, Containment::None);
            Fake::new().answers(&job).install(node);
            for outcome in [node.account(ALICE), node.session(ALICE)] {
                assert!(outcome.code != 0, "{uids}: {outcome}");
            }
            node.log.decision("JA03");
            assert!(unit.children().is_empty() && node.keepers().is_empty());
            unit.remove();
            let _ = shell.wait();
        });
    }
}

#[test]
fn job_without_shell_refuses_login_for_now() {
    on_flux(|node| {
        let job = node.start_flux_job_without_shell(ALICE, JOB, &["--wait", "/run/go"]);
        Fake::new()
            .answers(&job.reply(Containment::Inherit))
            .install(node);
        assert_both_phases_refuse(node, &job, "no shell yet", "[JA02]");
        node.write("/run/go", "");
    });
}

/// Delays the move into the leaf, and calls `meanwhile` during the delay.
fn delay_move(node: &Node, job: &FluxJob, meanwhile: impl FnOnce()) -> Outcome {
    let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.leaf().path());
    let delay = [
        "-P",
        &procs,
        "-e",
        "inject=write:delay_enter=60000000:when=1",
    ];
    node.session_alone("");
    run_while_held(
        node,
        || node.session_under_strace("/tmp/strace", &delay, ALICE),
        || {
            assert!(
                !node.keepers().is_empty() && job.leaf().pids().is_empty(),
                "it has moved"
            );
            meanwhile();
        },
    )
}

#[test]
fn job_that_ends_before_move_refuses_login() {
    on_flux(|node| {
        let job = start_contained_job(node);
        let outcome = delay_move(node, &job, || {
            job.end_shell();
            // Keeper and login race here, and either may be first.
            eventually("the leaf is gone", || !job.leaf().exists());
        });
        outcome.fails();
        node.log.decision("JA03");
        assert_nothing_left(node, &job, "ended");
    });
}

/// The keeper is stopped, so the leaf still exists: only the proof after the move notices.
#[test]
fn imp_that_ends_before_move_refuses_login() {
    on_flux(|node| {
        let job = start_contained_job(node);
        let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.leaf().path());
        let delay = [
            "-P",
            &procs,
            "-e",
            "inject=write:delay_enter=1500000:when=1",
        ];
        node.session_alone("");
        let login = || node.session_under_strace("/tmp/strace", &delay, ALICE);
        let outcome = run_while_delayed(node, login, || {
            send_signal(node.keepers()[0], nix::sys::signal::Signal::SIGSTOP);
            job.end_shell();
            eventually("the IMP is gone", || job.unit.pids().is_empty());
            node.log.decision("JA03");
            assert!(job.leaf().pids_or_empty().is_empty(), "it is in the leaf");
            // The harness waits for the end of this process too.
            send_signal(node.keepers()[0], nix::sys::signal::Signal::SIGCONT);
        });
        outcome.fails();
        assert_nothing_left(node, &job, "ended");
    });
}

/// No login may stay in a leaf that nothing empties.
#[test]
fn keeper_that_dies_before_move_refuses_login() {
    on_flux(|node| {
        let job = start_contained_job(node);
        delay_move(node, &job, || {
            send_signal(node.keepers()[0], nix::sys::signal::Signal::SIGKILL);
            eventually("it is gone", || node.keepers().is_empty());
        })
        .fails();
        node.log.line("no keeper lives");
        assert_nothing_left(node, &job, "without a keeper");
    });
}

/// The login finds the leaf gone, and joins a new one under a new keeper.
#[test]
fn keeper_terminated_before_move_is_replaced() {
    on_flux(|node| {
        let job = start_contained_job(node);
        let keepers = node.keepers();
        assert!(keepers.is_empty());
        let mut first = 0;
        delay_move(node, &job, || {
            first = node.keepers()[0];
            send_signal(first, nix::sys::signal::Signal::SIGTERM);
            eventually("the leaf is gone", || !job.leaf().exists());
        })
        .ok();
        eventually("the first is gone", || !node.keepers().contains(&first));
        assert_eq!(node.keepers().len(), 1, "it is kept by another");
        job.end_shell();
        eventually("that one ends as well", || node.keepers().is_empty());
    });
}

/// No login may stay in a leaf without a keeper.
#[test]
fn terminated_keeper_kills_its_logins_first() {
    on_flux(|node| {
        let job = start_contained_job(node);
        let (_, login) = run_during_login(node, &job, || {
            send_signal(node.keepers()[0], nix::sys::signal::Signal::SIGTERM);
            eventually("the leaf is gone", || !job.leaf().exists());
        });
        login.fails();
        assert_nothing_left(node, &job, "told to end");
        assert_eq!(job.shells().len(), 1, "the job runs on");
        node.sshd().ssh(ALICE, "true").ok();
    });
}

fn send_signal(pid: i32, which: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), which).unwrap();
}

#[test]
fn failed_login_leaves_neither_leaf_nor_keeper() {
    on_flux(|node| {
        let job = start_contained_job(node);
        node.session_reporting("");
        let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.leaf().path());
        let fails = ["-P", &procs, "-e", "inject=write:error=EIO"];
        let outcome = node.session_under_strace("/tmp/strace", &fails, ALICE);
        assert!(node.read("/tmp/strace").contains("INJECTED"), "{outcome}");
        node.log.decision("JA07");
        assert_nothing_left(node, &job, "refused");
    });
}

#[test]
fn killed_login_leaves_neither_leaf_nor_keeper() {
    on_flux(|node| {
        let job = start_contained_job(node);
        let outcome = delay_move(node, &job, || node.kill_program("pamtester"));
        assert!(outcome.code != 0, "{outcome}");
        eventually("the leaf is gone", || !job.leaf().exists());
        assert_nothing_left(node, &job, "killed");
    });
}

#[test]
fn check_names_unit_without_filter_of_imp() {
    on_flux(|node| {
        let find = || {
            let shown = node.job_adopt(&["check", "--json"]).stdout;
            let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
            let mut findings = shown["findings"].as_array().unwrap().clone();
            findings.retain(|finding| finding["check"] == "flux-filter");
            findings
        };
        assert_eq!(find().len(), 0, "no job runs");
        let closed = node.start_flux_job(ALICE, JOB, &ONE_GPU);
        assert_eq!(find()[0]["severity"], "fine");
        let open = node.start_flux_job(BOB, "fxyzzz", &[]);
        let finding = &find()[0];
        assert_eq!(finding["severity"], "warning");
        assert_eq!(finding["object"], open.unit.path());
        // The site has decided it.
        let conf = "/etc/flux/system/conf.d/exec.toml";
        node.sh("mkdir -p /etc/flux/system/conf.d").ok();
        for (line, severity) in [("false", "note"), ("true", "warning")] {
            let text = format!("[exec]\nsdexec-constrain-resources = {line}\n");
            node.write(conf, &text);
            assert_eq!(find()[0]["severity"], severity, "{line}");
        }
        drop(closed);
    });
}

/// If Flux wanted a filter and attached none, the helper works out a list for ours.
#[test]
fn unit_with_policy_and_without_filter_gets_our_filter_once() {
    on_flux(|node| {
        let job = node.start_flux_job(ALICE, JOB, &[]);
        let folder = node.transient();
        let file = format!("{folder}/imp-shell-0-{JOB}.service");
        node.write(
            &file,
            "[Service]\nDevicePolicy=closed\nDeviceAllow=/dev/nvidia0 rw\n",
        );
        let first = job.reply(Containment::Inherit);
        let second = job.reply(one_gpu_list());
        Fake::new().answers(&first).then(&second).install(node);
        for _ in 0..3 {
            node.pam(ALICE).ok();
        }
        let ours = job.unit.our_filters();
        assert_eq!((ours.len(), job.unit.filters().len()), (1, 1));
        node.probe_in(&job.unit)
            .devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)]);
        assert_eq!(
            node.log.decision("JA00").field("containment"),
            Some("enforce")
        );
    });
}

#[test]
fn unit_without_policy_is_not_contained() {
    on_flux(|node| {
        let job = node.start_flux_job(ALICE, JOB, &[]);
        let folder = node.transient();
        node.write(
            &format!("{folder}/imp-shell-0-{JOB}.service"),
            "[Service]\nType=notify\n",
        );
        let first = job.reply(Containment::Inherit);
        let second = job.reply(Containment::None);
        Fake::new().answers(&first).then(&second).install(node);
        node.arguments("require_devices");
        assert_both_phases_refuse(node, &job, "nothing in force", "[JA06]");
        node.arguments("");
        node.pam(ALICE).ok();
        assert_eq!(node.log.decision("JA00").field("containment"), Some("none"));
    });
}

#[test]
fn foreign_unit_file_is_not_read() {
    for (what, spoil) in [
        ("missing", (|_, _| {}) as fn(&Node, &str)),
        ("a link", |node, file| {
            node.write("/run/elsewhere", "[Service]\n");
            symlink("/run/elsewhere", node.path(file)).unwrap();
        }),
        ("another user's", |node, file| {
            node.write(file, "[Service]\n");
            chown(node.path(file), Some(ALICE.uid), None).unwrap();
        }),
        ("writable by others", |node, file| {
            node.write(file, "[Service]\n");
            node.set_mode(file, 0o666);
        }),
        ("too big", |node, file| {
            node.write(file, &"#".repeat(40 * 1024 + 1))
        }),
        ("no text", |node, file| node.write(file, "[Service]\n\0")),
        ("a directory", |node, file| node.create_dir(file, 0o755)),
    ] {
        on_flux(|node| {
            let job = node.start_flux_job(ALICE, JOB, &[]);
            let folder = node.transient();
            spoil(node, &format!("{folder}/imp-shell-0-{JOB}.service"));
            let first = job.reply(Containment::Inherit);
            let second = job.reply(Containment::None);
            Fake::new().answers(&first).then(&second).install(node);
            assert_both_phases_refuse(node, &job, what, "[JA06]");
            node.log.line("no filter is in force");
        });
    }
}

/// Mounts file systems that never answer where the account of Flux could: on its directory, as a
/// user's FUSE does, and below. logind has mounted a tmpfs there.
#[test]
fn file_system_of_account_is_never_read() {
    // Linux before 5.6 has no openat2(2).
    for fault in [
        &["-e", "trace=openat2"][..],
        &["-e", "inject=openat2:error=ENOSYS"],
    ] {
        on_flux(|node| {
            node.install(&Tool::StuckFs.path(), "/usr/bin/stuckfs");
            let job = node.start_flux_job(ALICE, JOB, &[]);
            let run = format!("/run/user/{}", FLUX.uid);
            node.create_dir(&run, 0o755);
            node.sh(&format!(
                "mount -t tmpfs -o mode=700,uid={} tmpfs {run}",
                FLUX.uid
            ))
            .ok();
            let folder = node.transient();
            let file = format!("{folder}/imp-shell-0-{JOB}.service");
            node.write(&file, "[Service]\n");
            let first = job.reply(Containment::Inherit);
            let second = job.reply(Containment::None);
            Fake::new().answers(&first).then(&second).install(node);
            let account = || node.account_under_strace(fault, ALICE);
            account().ok();
            for covered in [&run, &format!("{run}/systemd"), &folder, &file] {
                node.log.clear();
                let outcome = run_beside_stuck_mount(node, covered, account);
                outcome.fails().says("[JA06]");
                node.log
                    .line(&format!("{covered}: a file system is mounted there"));
            }
            account().ok();
            assert!(fault[1].starts_with("trace") || node.read("/tmp/strace").contains("INJECTED"));
        });
    }
}

/// Runs `login` while a file system that answers nothing is mounted on a path.
fn run_beside_stuck_mount(node: &Node, path: &str, login: impl Fn() -> Outcome + Sync) -> Outcome {
    let mut stuckfs = node.daemon(&node.outside(), "stuckfs");
    let mut stuckfs = stuckfs.args([path, "silent"]).spawn().unwrap();
    let mounted = format!(" {path} fuse ");
    eventually("it is mounted", || {
        node.read("/proc/1/mounts").contains(&mounted)
    });
    let (send, receive) = std::sync::mpsc::channel();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| send.send(login()).unwrap());
        let outcome = receive.recv_timeout(std::time::Duration::from_secs(30));
        // The end of the file system frees everything that waits for it.
        node.sh(&format!("umount --force --lazy {path}")).ok();
        outcome.expect("the login waits for the file system")
    });
    eventually("it ends", || stuckfs.try_wait().unwrap().is_some());
    outcome
}

#[test]
fn second_reply_about_another_job_refuses() {
    on_flux(|node| {
        let job = node.start_flux_job(ALICE, JOB, &[]);
        let other = node.start_flux_job(ALICE, "f1", &[]);
        let folder = node.transient();
        node.write(
            &format!("{folder}/imp-shell-0-{JOB}.service"),
            "[Service]\n",
        );
        let none = Containment::None;
        let elsewhere = unit_reply(JOB, &other.path(), FLUX.uid, none.clone());
        let first = job.reply(Containment::Inherit);
        for (what, second) in [
            ("another job", other.reply(none.clone())),
            ("another unit", elsewhere),
            ("another account", unit_reply(JOB, &job.path(), 991, none)),
        ] {
            Fake::new().answers(&first).then(&second).install(node);
            assert_both_phases_refuse(node, &job, what, "[JA07]");
            assert!(!other.leaf().exists(), "{what}");
        }
        Fake::new()
            .answers(&first)
            .then(&job.reply(Containment::Inherit))
            .install(node);
        assert_both_phases_refuse(node, &job, "inherits once more", "[JA06]");
    });
}

#[test]
fn keeper_writable_by_others_is_not_run() {
    on_flux(|node| {
        let job = start_contained_job(node);
        let spoil = |script: &str| {
            node.sh(&format!("cp -p {KEEPER} /run/kept; {script}")).ok();
            assert_both_phases_refuse(node, &job, script, "[JA09]");
            node.log.line("keeper /usr/libexec/job-adopt/keeper");
            node.sh(&format!("rm -rf {KEEPER}; cp -p /run/kept {KEEPER}"))
                .ok();
        };
        spoil(&format!("rm {KEEPER}"));
        spoil(&format!("chmod 644 {KEEPER}"));
        spoil(&format!("chmod 775 {KEEPER}"));
        spoil(&format!("chown alice {KEEPER}"));
        spoil(&format!("rm {KEEPER}; ln -s /run/kept {KEEPER}"));
        node.sh(&format!("echo no program >{KEEPER}")).ok();
        node.session(ALICE).fails();
        node.log.line("start keeper: execveat");
        assert_nothing_left(node, &job, "no program");
    });
}

/// Paths that a subverted helper might send.
#[test]
fn plan_for_path_outside_flux_units_refuses() {
    on_flux(|node| {
        let job = start_contained_job(node);
        let own = node.unit(ALICE.uid, &format!("imp-shell-0-{JOB}.service"));
        let bobs = node.unit(BOB.uid, &format!("imp-shell-0-{JOB}.service"));
        let other = node.unit(FLUX.uid, "other.service");
        let below = job.unit.child("below");
        below.create();
        for (what, id, path, flux) in [
            ("her own manager's", JOB, own.path().to_owned(), ALICE.uid),
            (
                "her own manager's as Flux's",
                JOB,
                own.path().to_owned(),
                FLUX.uid,
            ),
            ("another user's", JOB, bobs.path().to_owned(), BOB.uid),
            (
                "another user's as Flux's",
                JOB,
                bobs.path().to_owned(),
                FLUX.uid,
            ),
            ("another job's", "f1", job.path(), FLUX.uid),
            ("another account's", JOB, job.path(), 991),
            ("root's", JOB, job.path().replace("992", "0"), 0),
            ("of another form", JOB, other.path().to_owned(), FLUX.uid),
            ("below the unit", JOB, below.path().to_owned(), FLUX.uid),
            (
                "above the unit",
                JOB,
                "/user.slice/user-992.slice".into(),
                FLUX.uid,
            ),
            ("not there", "f2", job.path().replace(JOB, "f2"), FLUX.uid),
        ] {
            let reply = unit_reply(id, &path, flux, Containment::Inherit);
            Fake::new().answers(&reply).install(node);
            for outcome in [node.account(ALICE), node.session(ALICE)] {
                assert!(outcome.code != 0, "{what}: {outcome}");
            }
            assert!(node.keepers().is_empty(), "{what}");
        }
        let dots = job.reply(Containment::Inherit).encode();
        let dots = String::from_utf8(dots)
            .unwrap()
            .replace("user@992.service", "../../../..");
        Fake::new().says(dots).install(node);
        node.account(ALICE).fails();
        for cgroup in [&own, &bobs, &other, &below] {
            assert!(
                cgroup.children().is_empty() && cgroup.is_empty(),
                "{}",
                cgroup.path()
            );
        }
        assert!(!job.leaf().exists());
    });
}
