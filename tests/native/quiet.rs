//! A login set-up that says nothing of its own where a program reads: launchers and copies take
//! every byte for what the other end wrote.

use pam_job_adopt::protocol::{Reply, Rule, Verdict};

use crate::helper::admit;
use crate::support::{ALICE, Cgroup, Fake, Node, Sshd, on_node};

/// Every way in which a program logs in passes on what was asked for and no byte besides.
#[track_caller]
fn is_quiet(node: &Node, sshd: &Sshd<'_>, what: &str) {
    let silent = sshd.ssh(ALICE, "true").ok();
    assert_eq!((silent.stdout.as_str(), silent.stderr.as_str()), ("", ""), "{what}");
    let password = sshd.ssh_password(ALICE, "true").ok();
    assert_eq!(password.stdout, "", "{what}");
    let terminal = sshd.ssh_tty(ALICE, "true").ok();
    assert_eq!(terminal.stdout, "", "{what}: with a terminal, a command is a command");
    let text = node.read("/home/alice/data");
    let read = sshd.ssh(ALICE, "cat data").ok();
    assert_eq!((read.stdout, read.stderr), (text.clone(), String::new()), "{what}");
    for options in [&["-q"][..], &["-q", "-O"]] {
        let copied = sshd.scp(options, "alice@127.0.0.1:data", "/root/copy").ok();
        assert_eq!((copied.stdout.as_str(), copied.stderr.as_str()), ("", ""), "{what}");
        assert_eq!(node.read("/root/copy"), text, "{what}: {options:?}");
        sshd.scp(options, "/root/copy", "alice@127.0.0.1:back").ok();
        assert_eq!(node.read("/home/alice/back"), text, "{what}: {options:?}");
    }
    sshd.sftp(ALICE, "get data /root/copy\nput /root/copy back\n").ok();
}

fn with_data(body: impl FnOnce(&Node, &Sshd<'_>)) {
    on_node(|node| {
        let lines: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
        node.write("/home/alice/data", &lines);
        let sshd = node.sshd();
        body(node, &sshd);
    });
}

#[test]
fn a_command_and_a_copy_read_nothing_of_ours() {
    with_data(|node, sshd| {
        let job = node.job(ALICE, "4250").started(1_795_200_000).devices(&["/dev/nvidia9"]).start();
        is_quiet(node, sshd, "one job, a device that does not resolve");
        node.log.line("rule=only-job");
        node.configure("env = full\n");
        is_quiet(node, sshd, "with an environment");
        let _newer = node.job(ALICE, "4242").start();
        is_quiet(node, sshd, "two jobs");
        node.log.line("rule=newest");
        node.write("/run/job-adopt/jobs/1001/7.json", "{");
        node.configure("always_allowed = /dev/not-here\n");
        node.log.clear();
        is_quiet(node, sshd, "a broken record and a device that is not there");
        node.log.line("warning=");
        drop(job);
    });
}

/// As a helper says it that went by this rule and has much to warn of.
fn by(rule: Rule, cgroup: &Cgroup) -> Reply {
    let mut reply = admit("4242", cgroup);
    reply.warnings = (0..9).map(|number| format!("warning {number}")).collect();
    if let Verdict::Admit(plan) = &mut reply.verdict {
        plan.rule = rule;
        plan.dropped = vec!["/dev/nvidia9: no such file".into()];
    }
    reply
}

#[test]
fn whichever_rule_chose_the_job() {
    for rule in [Rule::OnlyJob, Rule::Caller, Rule::Chosen, Rule::Newest] {
        with_data(|node, sshd| {
            let job = node.job(ALICE, "4242").start();
            Fake::new().answers(&by(rule, &job.cgroup)).install(node);
            is_quiet(node, sshd, rule.as_str());
            node.log.line(&format!("rule={}", rule.as_str()));
            node.log.line("warning 8");
        });
    }
}
