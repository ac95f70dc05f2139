//! Helpers that misbehave: each refuses the login in time and leaves no process.

use std::time::Duration;

use protocol::{
    Allowlist, ChoiceRule, Containment, LoginLimits, Placement, Plan, Reply, SessionLine,
    Variables, Verdict,
};

use crate::support::{
    ALICE, BOB, Cgroup, Fake, HELPER, Node, Outcome, eventually, on_node, retry_until_in_time,
};

const HELPER_PATH: &str = "/usr/libexec/job-adopt/helper";

/// Returns the real helper's reply that admits to that cgroup.
pub(crate) fn admitting_reply(job: &str, cgroup: &Cgroup) -> Reply {
    Reply {
        stack: SessionLine::Effective,
        auth_fault: String::new(),
        detail: String::new(),
        warnings: Vec::new(),
        hint: String::new(),
        message: String::new(),
        verdict: Verdict::Admit(Plan {
            job: job.parse().unwrap(),
            rule: ChoiceRule::OnlyJob,
            placement: Placement::Cgroup {
                path: cgroup.path().parse().unwrap(),
                leaf: None,
            },
            ends: None,
            gpus: 0,
            containment: Containment::None,
            limits: LoginLimits::default(),
            end_grace: 0,
            namespaces: None,
            probes: Vec::new(),
            dropped: Vec::new(),
            env: Variables::default(),
        }),
    }
}

/// Asserts that both phases refuse with that code and leave no helper.
#[track_caller]
fn assert_both_phases_refuse(node: &Node, what: &str, code: &str) -> Outcome {
    node.log.clear();
    let account = node.account(ALICE);
    assert!(account.code != 0, "{what}: {account}");
    assert!(
        account.output().contains(code),
        "{what}, not {code}: {account}"
    );
    let session = node.session(ALICE);
    assert!(session.code != 0, "{what}: {session}");
    eventually("no helper is left", || node.helpers().is_empty());
    account
}

fn assert_fake_refused(what: &str, code: &str, fake: Fake) {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.arguments("timeout=1");
        fake.install(node);
        retry_until_in_time(Duration::from_secs(4), || {
            assert_both_phases_refuse(node, what, code)
        });
        assert_eq!(job.cgroup.pids().len(), 1, "{what}: something joined");
    });
}

/// The fakes take the place of the helper: a good reply of one admits.
#[test]
fn good_reply_admits() {
    on_node(|node| {
        node.reporting("");
        let job = node.job(ALICE, "4242").start();
        Fake::new()
            .answers(&admitting_reply("4242", &job.cgroup))
            .install(node);
        node.pam(ALICE).ok().joins_cgroup(&job.cgroup);
    });
}

#[test]
fn empty_or_oversized_reply_refuses_login() {
    assert_fake_refused("silent", "[JA0", Fake::new());
    assert_fake_refused("garbage", "[JA0", Fake::new().says("no job today\n"));
    assert_fake_refused("nothing but NULs", "[JA0", Fake::new().says(vec![0; 4096]));
    assert_fake_refused("1 MiB", "[JA0", Fake::new().verb("flood", 1 << 20));
}

#[test]
fn failing_helper_refuses_login() {
    assert_fake_refused("killed", "[JA0", Fake::new().verb("raise", 9));
    assert_fake_refused("crashed", "[JA0", Fake::new().verb("crash", 0));
    assert_fake_refused("status 1", "[JA0", Fake::new().verb("exit", 1));
}

/// A good reply counts only from a helper that exits with status 0.
#[test]
fn helper_that_fails_after_its_reply_refuses_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        for (verb, number) in [("exit", 1), ("raise", 9), ("crash", 0)] {
            Fake::new()
                .answers(&admitting_reply("4242", &job.cgroup))
                .verb(verb, number)
                .install(node);
            assert_both_phases_refuse(node, verb, "[JA0");
        }
    });
}

#[test]
fn hanging_helper_refuses_login() {
    assert_fake_refused("hung", "[JA08]", Fake::new().verb("sleep", 3600));
    assert_fake_refused(
        "hung, ignoring signals",
        "[JA08]",
        Fake::new().verb("deaf", 0).verb("sleep", 3600),
    );
    assert_fake_refused(
        "hung with its output closed",
        "[JA0",
        Fake::new().verb("close", 0).verb("sleep", 3600),
    );
    assert_fake_refused(
        "hung without reading",
        "[JA08]",
        Fake::default().verb("sleep", 3600),
    );
}

/// A helper can resist its end in many ways, but it does not outlive its phase.
#[test]
fn helper_that_resists_its_end_is_killed() {
    let undying = || Fake::new().verb("undying", 0);
    assert_fake_refused("undying", "[JA08]", undying().verb("sleep", 3600));
    assert_fake_refused(
        "undying and stopped",
        "[JA08]",
        undying().verb("raise", 19).verb("sleep", 3600),
    );
    assert_fake_refused(
        "undying, its output closed",
        "[JA08]",
        undying().verb("close", 0).verb("sleep", 3600),
    );
    assert_fake_refused(
        "undying, and too much",
        "[JA0",
        undying().verb("flood", 1 << 20).verb("sleep", 3600),
    );
}

/// A complete reply counts once, from a helper that has exited.
#[test]
fn helper_that_stays_or_replies_twice_counts_once() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.arguments("timeout=1");
        let good = admitting_reply("4242", &job.cgroup).encode();
        let fake = |bytes: &[u8]| Fake::new().verb("undying", 0).says(bytes);
        fake(&good)
            .verb("close", 0)
            .verb("sleep", 3600)
            .install(node);
        assert_both_phases_refuse(node, "answered, and stayed", "[JA08]");
        fake(&good).verb("reply", 0).install(node);
        assert_both_phases_refuse(node, "answered twice", "[JA0");
        fake(&good[..good.len() / 2]).verb("raise", 9).install(node);
        assert_both_phases_refuse(node, "died over its answer", "[JA0");
        assert_eq!(job.cgroup.pids().len(), 1);
    });
}

/// The helper can stop other helpers, which share its uid, and even a process that is about to
/// become one. sshd waits for the exec of such a process. Each login ends in time all the same.
#[test]
fn helper_that_stops_others_delays_no_login() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.arguments("timeout=2");
        Fake::new()
            .verb("undying", 0)
            .verb("stop-others", 0)
            .install(node);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let outcome = node.account(ALICE).fails();
                    assert!(outcome.took < Duration::from_secs(8), "{outcome}");
                });
            }
        });
        eventually("no helper is left", || node.helpers().is_empty());
    });
}

/// The helper is stopped between the change of its identity and its exec.
#[test]
fn helper_stopped_before_exec_refuses_login_in_time() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.session_alone("timeout=2");
        let before = node.processes().len();
        for call in ["setresuid", "capset"] {
            let inject = format!("inject={call}:signal=SIGSTOP:when=1");
            let trace = format!("trace={call}");
            let options = ["-e", &trace, "-e", &inject];
            let outcome = retry_until_in_time(Duration::from_secs(15), || {
                node.log.clear();
                node.session_under_strace("/tmp/strace", &options, ALICE)
            });
            outcome.fails();
            node.log.decision("JA08");
            eventually("nothing is left", || node.processes().len() == before);
        }
        node.session_alone("");
        node.session(ALICE).ok();
    });
}

/// A child of the helper keeps the pipe open, and must not delay the login.
#[test]
fn child_of_helper_delays_no_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.arguments("timeout=1");
        let fake = Fake::new()
            .verb("describe", 0)
            .answers(&admitting_reply("4242", &job.cgroup));
        fake.verb("linger", 0).install(node);
        retry_until_in_time(Duration::from_secs(4), || node.account(ALICE));
        node.log.line("helper: end");
        eventually("no child of the helper is left", || {
            node.helpers().is_empty()
        });
    });
}

#[test]
fn damaged_plan_refuses_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let good = String::from_utf8(admitting_reply("4242", &job.cgroup).encode()).unwrap();
        let cut = &good[..good.len() - 10];
        let version = format!("s{}\0", protocol::VERSION);
        let swapped = good.replace("hint\0s\0message\0s\0", "message\0s\0hint\0s\0");
        let damaged = [
            ("truncated", cut.to_owned(), "[JA0"),
            (
                "doubled",
                good.replace("hint\0s\0", "hint\0s\0hint\0s\0"),
                "[JA0",
            ),
            ("reordered", swapped, "[JA0"),
            (
                "without its mode",
                good.replace("mode\0snone\0", ""),
                "[JA0",
            ),
            ("with more behind", format!("{good}more\0s\0"), "[JA0"),
            ("twice", format!("{good}{good}"), "[JA0"),
            (
                "of another version",
                good.replacen(&version, "s0.0.9\0", 1),
                "is being upgraded.",
            ),
            (
                "with a path upwards",
                good.replace(job.cgroup.path(), "/../.."),
                "[JA0",
            ),
        ];
        for (what, bytes, code) in damaged {
            assert_ne!(bytes, good, "{what}: nothing was damaged");
            Fake::new().says(bytes).install(node);
            assert_both_phases_refuse(node, what, code);
        }
        assert_eq!(job.cgroup.pids().len(), 1);
    });
}

/// Returns the reply of [`admit`] with a leaf and a filter, both of which a refusal must leave
/// unmade.
fn harmful_reply(job: &str, cgroup: &Cgroup) -> Reply {
    let mut reply = admitting_reply(job, cgroup);
    if let Verdict::Admit(plan) = &mut reply.verdict {
        let leaf = Some("logins".parse().unwrap());
        plan.placement = Placement::Cgroup {
            path: cgroup.path().parse().unwrap(),
            leaf,
        };
        plan.containment = Containment::Enforce(Allowlist::new());
    }
    reply
}

/// Plans that a subverted helper might send.
#[test]
fn plan_for_job_of_another_user_refuses_login() {
    on_node(|node| {
        let hers = node.job(ALICE, "4242").start();
        Fake::new()
            .answers(&harmful_reply("4242", &hers.cgroup))
            .install(node);
        node.session(ALICE).ok();
        assert_eq!(
            (
                hers.cgroup.children().len(),
                hers.cgroup.our_filters().len()
            ),
            (1, 1)
        );
        let his = node.job(BOB, "777").start();
        let bare = node.cgroup().child("jobs").child("bare");
        bare.create();
        for (what, job, cgroup) in [
            ("another user's job", "777", &his.cgroup),
            ("another user's cgroup", "4242", &his.cgroup),
            ("a cgroup without a stamp", "4242", &bare),
            ("the node's own cgroup", "4242", node.cgroup()),
            (
                "a cgroup that is not there",
                "4242",
                &Cgroup::new("/ja-no-such"),
            ),
            ("another job of the user's", "4243", &hers.cgroup),
        ] {
            Fake::new()
                .answers(&harmful_reply(job, cgroup))
                .install(node);
            let outcome = node.session(ALICE);
            assert!(outcome.code != 0, "{what}: {outcome}");
        }
        for untouched in [&his.cgroup, &bare] {
            assert!(untouched.filters().is_empty() && untouched.children().is_empty());
        }
        assert!(node.cgroup().filters().is_empty());
        assert_eq!(his.cgroup.pids().len(), 1);
    });
}

#[test]
fn unusable_helper_file_refuses_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.account(ALICE).ok();
        let damage = |script: &str| {
            node.sh(&format!("cp -p {HELPER_PATH} /run/kept")).ok();
            node.sh(script).ok();
            assert_both_phases_refuse(node, script, "[JA09]");
            node.sh(&format!(
                "rm -rf {HELPER_PATH}; cp -p /run/kept {HELPER_PATH}"
            ))
            .ok();
        };
        damage(&format!("rm {HELPER_PATH}"));
        damage(&format!("chmod 644 {HELPER_PATH}"));
        damage(&format!("chmod 775 {HELPER_PATH}"));
        damage(&format!("chmod 757 {HELPER_PATH}"));
        damage(&format!("chown alice {HELPER_PATH}"));
        damage(&format!("rm {HELPER_PATH}; ln -s /run/kept {HELPER_PATH}"));
        damage(&format!("rm {HELPER_PATH}; mkdir {HELPER_PATH}"));
        damage(&format!("echo no program >{HELPER_PATH}"));
        node.account(ALICE).ok();
        node.set_mode("/usr/libexec/job-adopt", 0o777);
        assert_both_phases_refuse(node, "in a folder that all can write", "[JA09]");
        drop(job);
    });
}

/// No other account stands in for the helper's.
#[test]
fn missing_helper_account_refuses_login() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.sh("sed -i /^job-adopt:/d /etc/passwd").ok();
        assert_both_phases_refuse(node, "no account", "[JA09]");
        node.log.line("job-adopt");
    });
}

/// The helper describes itself: another account, no privilege, nothing inherited.
#[test]
fn helper_runs_without_privilege_and_inheritance() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        Fake::new().verb("describe", 0).install(node);
        node.run(
            "env",
            &["SECRET=1", "pamtester", "sshd", "alice", "acct_mgmt"],
        )
        .fails();
        node.log.line("helper: end");
        let log = node.log.to_string();
        let seen: String = log
            .lines()
            .filter_map(|line| Some(format!("{}\n", line.split_once(": helper: ")?.1)))
            .collect();
        let value = |key: &str| {
            let line = seen.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_else(|| panic!("no {key}\n{seen}"))
                .trim()
                .to_owned()
        };
        let ids = format!("{0}\t{0}\t{0}\t{0}", HELPER.uid);
        assert_eq!((value("Uid:"), value("Gid:")), (ids.clone(), ids));
        assert_eq!(value("Groups:"), "");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(value(set), "0".repeat(16), "{set}");
        }
        assert_eq!(value("NoNewPrivs:"), "1");
        // The helper runs at once, at a nice value that neither it nor its children keep.
        assert_eq!(
            (value("nice "), value("then nice ")),
            ("-20".into(), "0".into())
        );
        let slice = value("slice ");
        assert!(
            slice.starts_with("100000 of ") || slice.ends_with(" of 0"),
            "{slice}"
        );
        for limit in ["Max nice priority", "Max realtime priority"] {
            assert_eq!(value(limit).split_whitespace().next(), Some("0"), "{limit}");
        }
        assert!(!seen.contains("\nenv "), "an environment\n{seen}");
        let descriptors: Vec<&str> = seen
            .lines()
            .filter(|line| line.starts_with("fd "))
            .collect();
        assert_eq!(descriptors, ["fd 0", "fd 1", "fd 2"]);
        for limit in ["Max file size", "Max core file size", "Max processes"] {
            assert_eq!(value(limit).split_whitespace().next(), Some("0"), "{limit}");
        }
    });
}

/// pam_keyinit gives sshd the session keyring that the user's keys go to.
#[test]
fn helper_has_empty_session_keyring() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        Fake::new().verb("describe", 0).install(node);
        node.in_keyring(&["pamtester", "sshd", "alice", "acct_mgmt"])
            .fails();
        node.log.line("helper: end");
        node.log.line("helper: keyring _ses of 0 keys");
    });
}

/// No process of another user, nor another one of the helper's account, may read the helper's
/// memory.
#[test]
fn helper_is_not_dumpable() {
    on_node(|node| {
        node.arguments("wait_job=30");
        std::thread::scope(|scope| {
            let login = scope.spawn(|| node.account(ALICE));
            // The helper polls for a job again and again.
            let looks = |pid: &i32| {
                let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
                let slept = status
                    .lines()
                    .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
                let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
                program.ends_with("helper") && slept.unwrap().trim().parse::<u32>().unwrap() > 4
            };
            eventually("the helper waits", || {
                node.helpers().first().is_some_and(looks)
            });
            let pid = node.helpers()[0];
            // Root owns the /proc files of a process that is not dumpable (proc(5)).
            let owner = std::fs::metadata(format!("/proc/{pid}/mem")).unwrap();
            assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), 0);
            let _job = node.job(ALICE, "4242").start();
            login.join().unwrap().ok();
        });
    });
}

/// Without close_range(2) the limit is the number of descriptors that sshd may have, not that of
/// the helper.
#[test]
fn every_descriptor_is_closed_without_close_range() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        Fake::new().verb("describe", 0).install(node);
        let login = "exec 1000</dev/null && exec strace -f -qq -o /tmp/strace \
                     -e trace=close_range -e inject=close_range:error=ENOSYS \
                     pamtester sshd alice acct_mgmt";
        node.run("bash", &["-c", login]).fails();
        node.log.line("helper: end");
        assert!(node.read("/tmp/strace").contains("INJECTED"));
        let log = node.log.to_string();
        let open: Vec<&str> = log
            .lines()
            .filter_map(|line| Some(line.split_once("helper: fd ")?.1))
            .collect();
        assert_eq!(open, ["0", "1", "2"]);
    });
}
