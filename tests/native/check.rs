//! `job-adopt check` on a node with a real sshd: a sound set-up has no finding above a note, and
//! each fault is named.

use serde_json::Value;

use crate::support::{ALICE, CAROL, Node, Outcome, ROOT, eventually, on_node};
use crate::switch::admitted;

fn check(node: &Node, options: &[&str]) -> Outcome {
    node.job_adopt(&[&["check"], options].concat())
}

/// Lists the findings of the site's checks that are graver than a note.
fn findings(node: &Node) -> Vec<String> {
    let outcome = check(node, &["--json"]);
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let bad = ["error", "warning", "unknown"];
    let found = report["findings"].as_array().unwrap().iter();
    let shown = found
        .filter(|one| bad.contains(&one["severity"].as_str().unwrap()))
        .map(|one| {
            assert_ne!(one["remedy"], "", "{one}");
            format!(
                "{} {}",
                one["severity"].as_str().unwrap(),
                one["check"].as_str().unwrap()
            )
        });
    shown.collect()
}

#[test]
fn sound_setup_has_no_finding() {
    on_node(|node| {
        let _sshd = node.sshd();
        check(node, &[])
            .exits(0)
            .says("errors: 0, warnings: 0, unknown: 0");
        let outcome = check(node, &["--verbose"]).exits(0);
        for fine in [
            "fine pam-session /etc/pam.d/sshd:5: ",
            "fine pam-account /etc/pam.d/sshd:2: ",
            "fine module-version ",
            "can be loaded",
            "fine helper /usr/libexec/job-adopt/helper: can be used, and is of version ",
            "fine sshd-pam /usr/sbin/sshd -f /etc/ssh/sshd_config: UsePAM yes",
            "fine sources registry: answers",
        ] {
            let outcome = &outcome;
            assert!(outcome.stdout.contains(fine), "{fine}: {outcome}");
        }
    });
}

#[test]
fn json_report_has_schema_1() {
    on_node(|node| {
        node.write_stack("session required pam_permit.so\n");
        let outcome = check(node, &["--json"]).exits(1);
        let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(report["schema"], 1);
        let found = report["findings"].as_array().unwrap();
        for severity in ["error", "warning", "unknown", "note", "fine"] {
            let count = found
                .iter()
                .filter(|one| one["severity"] == severity)
                .count();
            assert_eq!(report["counts"][severity], count, "{severity}");
        }
        for key in ["check", "object", "text", "remedy"] {
            assert!(found.iter().all(|one| one[key].is_string()), "{key}");
        }
        assert_eq!(found[0]["severity"], "error", "the gravest comes first");
    });
}

/// Makes sshd read its configuration anew.
fn reload(node: &Node) {
    node.sh("kill -HUP $(cat /run/sshd.pid)").ok();
}

/// Writes a file of sshd's, so that it is newer than what sshd has read: the clock of files ticks every few milliseconds.
fn edit_after_start(node: &Node, path: &str, text: &str) {
    eventually("the file is newer than sshd's start", || {
        node.write(path, text);
        node.sh(&format!("[ {path} -nt /run/sshd.pid ]")).code == 0
    });
}

/// sshd goes on with what it has read, so the file shows nothing of it.
#[test]
fn edited_configuration_without_reload_is_not_called_fine() {
    on_node(|node| {
        let _sshd = node.sshd();
        let config = node.read("/etc/ssh/sshd_config");
        edit_after_start(node, "/etc/ssh/sshd_config", &format!("{config}# edited\n"));
        assert_eq!(findings(node), ["warning sshd-config"]);
        let outcome = check(node, &["--verbose"]).exits(1).omits("fine sshd-pam");
        outcome
            .says("/etc/ssh/sshd_config: was changed after sshd (process ")
            .says("do: have it read that file: kill -HUP ");
        reload(node);
        eventually("it is read", || findings(node).is_empty());
        // A file that the first one includes.
        node.create_dir("/etc/ssh/site.d", 0o755);
        let included = format!("Include /etc/ssh/site.d/*.conf\n{config}");
        node.write("/etc/ssh/sshd_config", &included);
        reload(node);
        eventually("it is read", || findings(node).is_empty());
        edit_after_start(node, "/etc/ssh/site.d/00-off.conf", "# x\nUsePAM no\n");
        check(node, &[])
            .exits(1)
            .says("warning sshd-config /etc/ssh/site.d");
        reload(node);
        eventually("it is read", || findings(node) == ["error sshd-pam"]);
        // The first value counts, so the main file is no place for another.
        check(node, &[])
            .says(
                "do: /etc/ssh/site.d/00-off.conf:2: in place of \"UsePAM no\" write \"UsePAM yes\", then: kill -HUP ",
            );
    });
}

#[test]
fn remedy_names_the_file_of_the_running_sshd() {
    on_node(|node| {
        let _sshd = node.sshd();
        let config = node.read("/etc/ssh/sshd_config");
        let other = config.replace("UsePAM yes\n", "");
        node.write("/etc/site_config", &other);
        node.sh("/usr/sbin/sshd -f /etc/site_config -p 2222 -o PidFile=/run/second.pid")
            .ok();
        eventually("both have their titles", || {
            node.sh(TITLES).stdout.matches("[listener]").count() == 2
        });
        check(node, &[])
            .exits(1)
            .says("do: /etc/site_config:1: above it write \"UsePAM yes\", then: kill -HUP ");
        node.sh("kill $(cat /run/second.pid)").ok();
    });
}

/// systemd's socket starts the first sshd at the first connection, and its unit makes the folder.
#[test]
fn missing_folder_of_an_sshd_that_did_not_start_is_no_error() {
    on_node(|node| {
        drop(node.sshd());
        node.sh("rm -rf /run/sshd").ok();
        let outcome = check(node, &["--verbose"]).omits("sshd -T fails");
        outcome.says("fine sshd-pam ");
        node.sh("test ! -e /run/sshd").ok();
    });
}

/// A jump past the end refuses only those who take it.
#[test]
fn jump_past_the_end_is_an_error_exactly_if_nobody_gets_in() {
    on_node(|node| {
        let _sshd = node.sshd();
        let _jobs = [
            node.job(ALICE, "4242").start(),
            node.job(CAROL, "4343").start(),
        ];
        let good = node.read("/etc/pam.d/sshd");
        for (line, admits, expected) in [
            (
                "[success=1 default=ignore] pam_succeed_if.so quiet user = carol",
                &["alice", "root"][..],
                "warning pam-account",
            ),
            (
                "[success=1 default=bad] pam_permit.so",
                &[],
                "error pam-account",
            ),
        ] {
            node.write("/etc/pam.d/sshd", &format!("{good}account {line}\n"));
            assert_eq!(admitted(node, &[ALICE, CAROL, ROOT]), admits, "{line}");
            assert_eq!(findings(node), [expected], "{line}");
        }
    });
}

/// Each fault is corrected before the next one is made.
#[test]
fn each_fault_is_named() {
    on_node(|node| {
        let sshd = node.sshd();
        let good = node.read("/etc/pam.d/sshd");
        let config = node.read("/etc/ssh/sshd_config");
        assert_eq!(findings(node), [""; 0]);
        let module = node.module();
        for (breaks, mends, expected) in [
            (
                "touch /run/job-adopt/off",
                "rm /run/job-adopt/off",
                "error switched-off",
            ),
            (
                "chmod 0777 /run/job-adopt/jobs",
                "chmod 0755 /run/job-adopt/jobs",
                "error registry",
            ),
            (
                "chown alice /usr/libexec/job-adopt/helper",
                "chown root /usr/libexec/job-adopt/helper",
                "error helper",
            ),
            (
                "sed -i s/^job-adopt:/job-adoptee:/ /etc/passwd",
                "sed -i s/^job-adoptee:/job-adopt:/ /etc/passwd",
                "error account",
            ),
            (
                &format!("chmod 0666 {module}"),
                &format!("chmod 0644 {module}"),
                "error module-file",
            ),
            (
                &format!("sed -i 's/ speaks to version [0-9]/ speaks to version 9/' {module}"),
                &format!("sed -i 's/ speaks to version 9/ speaks to version 0/' {module}"),
                "error module-version",
            ),
            // A module for another C library.
            (
                &format!(r"sed -i 's/GLIBC_2\.\([1-9][0-9]\)/GLIBC_9.\1/' {module}"),
                &format!(r"sed -i 's/GLIBC_9\.\([1-9][0-9]\)/GLIBC_2.\1/' {module}"),
                "error module-loaded",
            ),
        ] {
            node.sh(breaks).ok();
            let found = findings(node);
            assert!(
                found.iter().any(|one| one == expected),
                "{breaks}: {found:?}"
            );
            node.sh(mends).ok();
        }
        assert_eq!(findings(node), [""; 0]);
        for (text, expected) in [
            (
                good.replace("session required pam_job", "session optional pam_job"),
                "error pam-session",
            ),
            (
                format!("{good}session optional pam_systemd.so\n"),
                "error pam-order",
            ),
            (
                good.replace("pam_job_adopt.so", "pam_job_adopt.so typo"),
                "error pam-arguments",
            ),
            (
                good.replace("pam_job_adopt.so", "pam_job_adopt.so observe"),
                "warning pam-open",
            ),
            (
                good.replace("account required pam_job_adopt.so", ""),
                "warning pam-account",
            ),
        ] {
            node.write_stack(&text);
            let found = findings(node);
            assert!(found.iter().any(|one| one == expected), "{text}: {found:?}");
        }
        node.write_stack(&good);
        node.write(
            "/etc/ssh/sshd_config",
            &config.replace("UsePAM yes", "UsePAM no"),
        );
        reload(node);
        eventually("sshd runs no PAM", || findings(node) == ["error sshd-pam"]);
        node.write("/etc/ssh/sshd_config", &format!("{config}NoSuchKey yes\n"));
        assert_eq!(findings(node), ["error sshd-config"]);
        check(node, &[]).exits(1).says("NoSuchKey");
        node.write("/etc/ssh/sshd_config", &config);
        reload(node);
        eventually("sshd runs PAM again", || findings(node).is_empty());
        drop(sshd);
    });
}

/// The helper runs with fewer rights than root.
#[test]
fn file_unreadable_to_helper_is_error() {
    on_node(|node| {
        let _sshd = node.sshd();
        node.configure("env = id\n");
        node.set_mode("/etc/security/job_adopt.conf", 0o600);
        assert_eq!(findings(node), ["error configuration"]);
        check(node, &[])
            .exits(1)
            .says("cannot open: Permission denied");
    });
}

/// Prints the command line of each process, which the process can set.
const TITLES: &str = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '";

#[test]
fn each_sshd_is_checked_with_its_own_configuration() {
    on_node(|node| {
        let _sshd = node.sshd();
        node.sh("/usr/sbin/sshd -o UsePAM=no -p 2222 -o PidFile=/run/second.pid")
            .ok();
        eventually("both have their titles", || {
            node.sh(TITLES).stdout.matches("[listener]").count() == 2
        });
        let second = "error sshd-pam /usr/sbin/sshd -o UsePAM=no -o PidFile=/run/second.pid: ";
        let outcome = check(node, &[]).exits(1).says(second);
        assert_eq!(outcome.stdout.matches("error ").count(), 1, "{outcome}");
        node.sh("kill $(cat /run/second.pid)").ok();
    });
}

/// Root does not run the program that a user's process claims to be.
#[test]
fn process_of_user_is_not_taken_for_sshd() {
    on_node(|node| {
        let _sshd = node.sshd();
        node.sh("cp /usr/bin/sleep /tmp/sshd").ok();
        let forged = "exec -a 'sshd: /tmp/sshd -f /tmp/x [listener] 0' /tmp/sshd 60";
        let mut stranger = node.daemon(&node.outside(), "setpriv");
        let uid = ALICE.uid.to_string();
        stranger.args([
            "--reuid",
            &uid,
            "--regid",
            &uid,
            "--clear-groups",
            "bash",
            "-c",
            forged,
        ]);
        let mut stranger = stranger.spawn().unwrap();
        eventually("it has its title", || {
            node.sh(TITLES).stdout.contains("/tmp/x [listener]")
        });
        check(node, &["--verbose"]).exits(0).omits("/tmp/");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    });
}

#[test]
fn unprivileged_check_names_checks_that_need_root() {
    on_node(|node| {
        let _sshd = node.sshd();
        let alone = "setpriv --reuid 1001 --regid 1001 --clear-groups job-adopt check";
        let outcome = node.sh(alone).exits(3).says("unknown sshd-config ");
        outcome
            .says("do: run this as root")
            .says("errors: 0, warnings: 0");
    });
}

#[test]
fn wrong_usage_exits_with_status_2() {
    on_node(|node| {
        for options in [
            &["--service", "a/b"][..],
            &["--service="],
            &["--live", "alice"],
            &["--nonsense"],
            &["operand"],
        ] {
            check(node, options)
                .exits(2)
                .says("try: job-adopt check --help");
        }
        check(node, &["--conf", "/none"])
            .exits(3)
            .says("read /none");
    });
}

#[test]
fn check_changes_nothing() {
    on_node(|node| {
        let _sshd = node.sshd();
        let list = "find /etc /run /usr/libexec/job-adopt -path /run/.overlay -prune -o \
                    -printf '%p %m %U %T@\\n' | sort";
        let before = node.sh(list).ok().stdout;
        check(node, &[]).exits(0);
        assert_eq!(node.sh(list).ok().stdout, before);
    });
}
