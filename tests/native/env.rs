//! Variables and groups that devices of a job ask for: given by name, or not at all.

use pam_job_adopt::plan::{Reply, Variables, Verdict};

use serde_json::json;

use crate::helper::admit;
use crate::support::{ALICE, BOB, Cgroup, Fake, Node, Outcome, Tool, on_node};

const VARIABLE: &str = "NVIDIA_VISIBLE_DEVICES=void";
const GROUPS: [&str; 2] = ["5044", "5105"];
const TELL: &str = "env; echo groups \" $(id -G) \"; cat /proc/self/cgroup";

/// As a helper that found a specification with a variable and two groups would say it.
fn asking(job: &str, cgroup: &Cgroup) -> Reply {
    let mut reply = admit(job, cgroup);
    if let Verdict::Admit(plan) = &mut reply.verdict {
        plan.env = Variables::default();
        plan.env.push(VARIABLE.parse().unwrap()).unwrap();
        plan.groups = GROUPS.map(|gid| gid.parse().unwrap()).into();
    }
    reply
}

/// Both lines with these arguments, and an `auth` line of ours before all others.
fn three_lines(node: &Node, auth: &str, arguments: &str) {
    node.arguments(arguments);
    let stack = node.read("/etc/pam.d/sshd");
    node.stack(&format!("{auth}{stack}"));
}

const AUTH: &str = "auth optional pam_job_adopt.so\n";
const ALL: &str = "cdi_env=NVIDIA_VISIBLE_DEVICES cdi_gids=5044,5105";

fn has_group(outcome: &Outcome, group: &str) -> bool {
    let line = outcome.stdout.lines().find(|line| line.starts_with("groups ")).unwrap();
    line.contains(&format!(" {group} "))
}

#[test]
fn what_the_session_line_names_reaches_the_login() {
    on_node(|node| {
        node.sh("echo more:x:5200:alice >>/etc/group").ok();
        let job = node.job(ALICE, "4242").start();
        Fake::new().answers(&asking("4242", &job.cgroup)).install(node);
        three_lines(node, AUTH, ALL);
        let sshd = node.sshd();
        for outcome in
            [sshd.ssh(ALICE, TELL), sshd.ssh_tty(ALICE, TELL), sshd.ssh_password(ALICE, TELL)]
        {
            let outcome = outcome.ok().says(VARIABLE).stands_in(&job.cgroup);
            for group in ["1001", "5200", "5044", "5105"] {
                assert!(has_group(&outcome, group), "{group}: {outcome}");
            }
            assert!(!has_group(&outcome, "0"), "{outcome}");
        }
        node.log.line("env=NVIDIA_VISIBLE_DEVICES groups=\"5044 5105\"");
        node.log.line("pam_job_adopt(sshd:setcred): user=alice uid=1001 groups=\"5044 5105\"");
    });
}

#[test]
fn what_no_argument_names_is_withheld_and_logged() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        Fake::new().answers(&asking("4242", &job.cgroup)).install(node);
        let sshd = node.sshd();
        three_lines(node, AUTH, "");
        let outcome = sshd.ssh(ALICE, TELL).ok().keeps_quiet_about("NVIDIA");
        assert!(GROUPS.iter().all(|group| !has_group(&outcome, group)), "{outcome}");
        node.log.line("argument cdi_env does not name NVIDIA_VISIBLE_DEVICES");
        node.log.line("argument cdi_gids does not name 5044 5105");
        three_lines(node, AUTH, "cdi_env=OTHER cdi_gids=5105,7");
        let outcome = sshd.ssh(ALICE, TELL).ok().keeps_quiet_about("NVIDIA");
        let had = ["5044", "5105", "7"].map(|group| has_group(&outcome, group));
        assert_eq!(had, [false, true, false], "{outcome}");
    });
}

/// The variable needs no line in `auth`; groups do.
#[test]
fn without_an_auth_line_no_group_is_added() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        Fake::new().answers(&asking("4242", &job.cgroup)).install(node);
        let sshd = node.sshd();
        for auth in
            ["", "auth optional pam_job_adopt.so observe\n", "auth optional pam_job_adopt.so x\n"]
        {
            three_lines(node, auth, ALL);
            let outcome = sshd.ssh(ALICE, TELL).ok().says(VARIABLE);
            assert!(GROUPS.iter().all(|group| !has_group(&outcome, group)), "{auth}: {outcome}");
        }
        node.log.line("error=\"argument x: is unknown, or lacks its value\"");
    });
}

#[test]
fn observe_and_exemptions_give_nothing() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        Fake::new().answers(&asking("4242", &job.cgroup)).install(node);
        let sshd = node.sshd();
        for knob in ["observe", "exempt_uids=1001"] {
            three_lines(node, AUTH, &format!("{ALL} {knob}"));
            let outcome = sshd.ssh(ALICE, TELL).ok().keeps_quiet_about("NVIDIA");
            assert!(GROUPS.iter().all(|group| !has_group(&outcome, group)), "{knob}: {outcome}");
        }
    });
}

/// Opens the session and asks for the credentials, with what refuses passed over; prints PAM's
/// environment, and traces what becomes of the groups.
fn session_passed_over(node: &Node, options: &[&str]) -> Outcome {
    node.stack(&format!(
        "{AUTH}auth required pam_permit.so\nsession required pam_permit.so\n\
         session [default=ignore] pam_job_adopt.so {ALL}\n\
         session optional pam_exec.so stdout /usr/bin/env\n"
    ));
    let trace = ["-f", "-qq", "-o", "/tmp/strace"];
    let tested = ["pamtester", "sshd", "alice", "open_session", "setcred(PAM_REINITIALIZE_CRED)"];
    node.run("strace", &[&trace, options, &tested].concat()).ok()
}

/// Calls that add to groups, other than the helper's own which has none.
fn groups_set(node: &Node) -> usize {
    let trace = node.read("/tmp/strace");
    trace.lines().filter(|line| line.contains("setgroups(") && line.contains("5044")).count()
}

#[test]
fn nothing_stays_after_a_refusal() {
    on_node(|node| {
        let hers = node.job(ALICE, "4242").start();
        let his = node.job(BOB, "777").start();
        Fake::new().answers(&asking("4242", &hers.cgroup)).install(node);
        session_passed_over(node, &["-e", "trace=setgroups"]).says(VARIABLE);
        assert_eq!(groups_set(node), 1, "{}", node.read("/tmp/strace"));
        let after_the_move = "inject=fgetxattr:error=ENODATA:when=2";
        let options = ["-e", "trace=setgroups,fgetxattr", "-e", after_the_move];
        session_passed_over(node, &options).keeps_quiet_about("NVIDIA");
        assert!(node.read("/tmp/strace").contains("INJECTED"));
        assert_eq!(groups_set(node), 0, "{}", node.read("/tmp/strace"));
        Fake::new().answers(&asking("777", &his.cgroup)).install(node);
        session_passed_over(node, &["-e", "trace=setgroups"]).keeps_quiet_about("NVIDIA");
        assert_eq!(groups_set(node), 0, "{}", node.read("/tmp/strace"));
        assert_eq!((hers.cgroup.pids().len(), his.cgroup.pids().len()), (1, 1));
    });
}

#[test]
fn what_another_module_has_set_stays_as_it_is() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        Fake::new().answers(&asking("4242", &job.cgroup)).install(node);
        node.write("/etc/security/pam_env.conf", "NVIDIA_VISIBLE_DEVICES DEFAULT=roots\n");
        let ours = format!("session required pam_job_adopt.so {ALL}\n");
        node.stack(&format!(
            "account required pam_job_adopt.so\nsession required pam_env.so\n{ours}"
        ));
        let sshd = node.sshd();
        sshd.ssh(ALICE, TELL).ok().says("NVIDIA_VISIBLE_DEVICES=roots");
        node.log.line("set by another module: NVIDIA_VISIBLE_DEVICES");
    });
}

/// Only to the user of the session, only when credentials are made, and never in place of others.
#[test]
fn groups_are_added_to_the_sessions_user_alone() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        Fake::new().answers(&asking("4242", &job.cgroup)).install(node);
        three_lines(node, &format!("{AUTH}auth required pam_permit.so\n"), ALL);
        node.install(&Tool::Credentials.path(), "/usr/bin/credentials");
        let outcome = node.run("credentials", &["alice", "bob"]).ok();
        assert_eq!(
            outcome.stdout,
            "early 0: 2001 5044\n\
             session 0\n\
             establish 0: 2001 5044 5105\n\
             reinitialize 0: 2001 5044 5105\n\
             refresh 0: 2001 5044\n\
             delete 0: 2001 5044\n\
             other 0: 2001 5044\n\
             root 0: 2001 5044\n",
            "{outcome}"
        );
    });
}

/// The process that opens the session stays as it is, and so do its variables and groups.
#[test]
fn sshd_itself_is_given_nothing() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        Fake::new().answers(&asking("4242", &job.cgroup)).install(node);
        three_lines(node, AUTH, ALL);
        node.install(&Tool::Cycles.path(), "/usr/bin/cycles");
        let outcome = node.run("cycles", &["alice", "2"]).exits(0);
        outcome.keeps_quiet_about("CHANGED").stands_in(&job.cgroup);
        node.log.line("env=NVIDIA_VISIBLE_DEVICES");
    });
}

/// With the real helper: what a specification asks for, less what the configuration does not name,
/// less what the `session` line does not name.
#[test]
fn a_specification_gives_what_both_name() {
    on_node(|node| {
        let spec = json!({
            "cdiVersion": "0.7.0", "kind": "site.org/thing",
            "containerEdits": {
                "env": ["THING=all", "BOTH=1", "LD_PRELOAD=/tmp/x.so"],
                "additionalGids": [0, 5044, 5105, 5300],
            },
            "devices": [{ "name": "one", "containerEdits": {
                "deviceNodes": [{ "path": "/dev/fuse" }], "env": ["THING=one"],
            } }],
        });
        node.folder("/etc/cdi", 0o755);
        node.write("/etc/cdi/site.json", &spec.to_string());
        node.sh("echo things:x:5044: >>/etc/group").ok();
        let job = node.job(ALICE, "4242").with("cdi", json!(["site.org/thing=one"])).start();
        let sshd = node.sshd();
        three_lines(node, AUTH, "cdi_env=THING,OTHER cdi_gids=5044,5105");
        let given = |outcome: Outcome| {
            let outcome = outcome.ok().stands_in(&job.cgroup).keeps_quiet_about("LD_PRELOAD");
            let groups = ["5044", "5105", "5300", "0"].map(|gid| has_group(&outcome, gid));
            let names = ["THING=one", "BOTH="].map(|text| outcome.stdout.contains(text));
            (names, groups)
        };
        let nothing = ([false; 2], [false; 4]);
        assert_eq!(given(sshd.ssh(ALICE, TELL)), nothing, "nothing is configured");
        node.configure("cdi_env = THING, BOTH\ncdi_gids = things, no-such-group, 5300\n");
        let expected = ([true, false], [true, false, false, false]);
        assert_eq!(given(sshd.ssh(ALICE, TELL)), expected, "{}", node.log);
        node.log.line("argument cdi_env does not name BOTH");
        node.log.line("argument cdi_gids does not name 5300");
        node.log.line("cdi_gids: group no-such-group: there is no such group");
        node.job_adopt(&["resolve", "--user", "alice"]).says("env: THING=one").says("group: 5044");
        three_lines(node, AUTH, "");
        assert_eq!(given(sshd.ssh(ALICE, TELL)), nothing, "no argument names anything");
        node.configure("cdi_env = LD_PRELOAD\n");
        sshd.ssh(ALICE, TELL).failed().says("[JA09]");
        node.log.line("entry \\\"LD_PRELOAD\\\" of cdi_env");
    });
}

/// What a subverted helper might ask for, although the arguments would let it through.
#[test]
fn neither_code_to_load_nor_roots_group_can_be_asked_for() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        three_lines(node, AUTH, ALL);
        let sshd = node.sshd();
        let good = String::from_utf8(asking("4242", &job.cgroup).encode()).unwrap();
        for (from, to) in [
            (VARIABLE, "LD_PRELOAD=/tmp/x.so"),
            (VARIABLE, "PATH=/tmp"),
            (VARIABLE, "BASH_ENV=/tmp/x"),
            (VARIABLE, "NVIDIA_VISIBLE_DEVICES=a\nLD_PRELOAD=/tmp/x.so"),
            ("group.0\0s5044", "group.0\0s0"),
        ] {
            let bad = good.replace(from, to);
            assert_ne!(bad, good, "{to}");
            Fake::new().says(bad).install(node);
            let outcome = sshd.ssh(ALICE, TELL).failed().says("[JA09]");
            assert!(!outcome.stdout.contains('='), "{to}: {outcome}");
        }
        for argument in ["cdi_env=LD_PRELOAD", "cdi_gids=0", "cdi_gids=disk"] {
            three_lines(node, AUTH, argument);
            sshd.ssh(ALICE, TELL).failed().says("[JA09]");
            node.log.line(&format!("argument {argument}: "));
        }
    });
}
