//! Our lines print nothing where a program reads: launchers and copies take every byte for output
//! of the other end.

use protocol::{ChoiceRule, Reply, Verdict};

use crate::helper::admitting_reply;
use crate::support::{ALICE, Cgroup, Fake, Node, Sshd, on_node};

/// Asserts that every way in which a program logs in passes on exactly the requested bytes.
#[track_caller]
fn assert_quiet(node: &Node, sshd: &Sshd<'_>, what: &str) {
    let silent = sshd.ssh(ALICE, "true").ok();
    assert_eq!(
        (silent.stdout.as_str(), silent.stderr.as_str()),
        ("", ""),
        "{what}"
    );
    let password = sshd.ssh_password(ALICE, "true").ok();
    assert_eq!(password.stdout, "", "{what}");
    let terminal = sshd.ssh_tty(ALICE, "true").ok();
    assert_eq!(
        terminal.stdout, "",
        "{what}: with a terminal, a command is a command"
    );
    let text = node.read("/home/alice/data");
    let read = sshd.ssh(ALICE, "cat data").ok();
    assert_eq!(
        (read.stdout, read.stderr),
        (text.clone(), String::new()),
        "{what}"
    );
    for options in [&["-q"][..], &["-q", "-O"]] {
        let copied = sshd.scp(options, "alice@127.0.0.1:data", "/root/copy").ok();
        assert_eq!(
            (copied.stdout.as_str(), copied.stderr.as_str()),
            ("", ""),
            "{what}"
        );
        assert_eq!(node.read("/root/copy"), text, "{what}: {options:?}");
        sshd.scp(options, "/root/copy", "alice@127.0.0.1:back").ok();
        assert_eq!(node.read("/home/alice/back"), text, "{what}: {options:?}");
    }
    sshd.sftp(ALICE, "get data /root/copy\nput /root/copy back\n")
        .ok();
}

fn with_data(body: impl FnOnce(&Node, &Sshd<'_>)) {
    on_node(|node| {
        let lines: String = (0..20_000)
            .map(|number| format!("line {number}\n"))
            .collect();
        node.write("/home/alice/data", &lines);
        let sshd = node.sshd();
        body(node, &sshd);
    });
}

#[test]
fn command_and_copy_read_no_text_of_ours() {
    with_data(|node, sshd| {
        let job = node
            .job(ALICE, "4250")
            .started(1_795_200_000)
            .devices(&["/dev/nvidia9"])
            .start();
        assert_quiet(node, sshd, "one job, a device that does not resolve");
        node.log.line("rule=only-job");
        node.configure("env = full\n");
        assert_quiet(node, sshd, "with an environment");
        let _newer = node.job(ALICE, "4242").start();
        assert_quiet(node, sshd, "two jobs");
        node.log.line("rule=newest");
        node.write("/run/job-adopt/jobs/1001/7.json", "{");
        node.configure("always_allowed = /dev/not-here\n");
        node.log.clear();
        assert_quiet(node, sshd, "a broken record and a device that is not there");
        node.log.line("warning=");
        drop(job);
    });
}

/// Returns the reply of a helper that chose by this rule and has many warnings.
fn reply_by_rule(rule: ChoiceRule, cgroup: &Cgroup) -> Reply {
    let mut reply = admitting_reply("4242", cgroup);
    reply.warnings = (0..9).map(|number| format!("warning {number}")).collect();
    if let Verdict::Admit(plan) = &mut reply.verdict {
        plan.rule = rule;
        plan.dropped = vec!["/dev/nvidia9: no such file".into()];
    }
    reply
}

#[test]
fn no_selection_rule_prints_to_programs() {
    for rule in [
        ChoiceRule::OnlyJob,
        ChoiceRule::Caller,
        ChoiceRule::Chosen,
        ChoiceRule::Newest,
        ChoiceRule::Answered,
    ] {
        with_data(|node, sshd| {
            let job = node.job(ALICE, "4242").start();
            Fake::new()
                .answers(&reply_by_rule(rule, &job.cgroup))
                .install(node);
            assert_quiet(node, sshd, rule.as_str());
            node.log.line(&format!("rule={}", rule.as_str()));
            node.log.line("warning 8");
        });
    }
}
