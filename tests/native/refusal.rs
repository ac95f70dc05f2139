//! Which logins are refused, and the texts for users and admins.

use serde_json::json;

use crate::support::{ALICE, BOB, CAROL, DENIED, LOOK, Node, OPENS, ROOT, User, on_node};

const NO_JOB: &str = "gpu017: login refused: you (carol) have no running job on this node.";

/// A command and its output. No typed command contains the output, so only a shell prints it.
const SHELL: (&str, &str) = ("printf 'a%s\\n' shell", "ashell");

#[test]
fn user_without_job_is_refused_with_reason() {
    on_node(|node| {
        let sshd = node.sshd();
        let reads = |outcome: crate::support::Outcome| {
            outcome.fails().says(NO_JOB).says("[JA01]").omits(SHELL.1)
        };
        reads(sshd.ssh(CAROL, SHELL.0));
        reads(sshd.shell(CAROL, &format!("{}\n", SHELL.0)));
        reads(sshd.ssh_password(CAROL, SHELL.0));
        reads(sshd.sftp(CAROL, "ls\n"));
        reads(sshd.scp(&[], "/etc/hosts", "carol@127.0.0.1:copy"));
        let entry = node.log.decision("JA01");
        assert_eq!(entry.field("user"), Some("carol"), "{}", entry.text);
        assert_eq!(entry.field("phase"), Some("account"), "{}", entry.text);
        assert_eq!(entry.severity(), 5, "{}", entry.text);
        assert!(entry.is_authpriv(), "{}", entry.text);
    });
}

#[test]
fn refusal_text_is_short_and_names_no_other_user() {
    on_node(|node| {
        let _job = node.job(BOB, "777").start();
        let outcome = node.account(CAROL).fails().says("[JA01]").omits("777");
        let text = outcome.omits("bob").omits("/").output();
        let ours = text.lines().filter(|line| !line.starts_with("pamtester:"));
        for line in ours {
            assert!(line.len() <= 80 && line.is_ascii(), "{line}");
        }
        let log = node.log.to_string();
        assert!(!log.contains("authentication failure"), "{log}");
        assert!(
            !log.contains(NO_JOB),
            "the text is logged a second time\n{log}"
        );
    });
}

/// Without an account line the session alone decides, and no shell starts.
#[test]
fn refused_session_starts_no_shell() {
    on_node(|node| {
        node.write_stack(
            "auth required pam_unix.so\naccount required pam_unix.so\n\
             session required pam_permit.so\nsession required pam_job_adopt.so\n",
        );
        let sshd = node.sshd();
        sshd.ssh(CAROL, SHELL.0).fails().omits(SHELL.1);
        sshd.shell(CAROL, &format!("{}\n", SHELL.0))
            .fails()
            .omits(SHELL.1);
        sshd.sftp(CAROL, "ls -a\n").fails().omits(".ssh");
        assert_eq!(node.log.decision("JA01").field("phase"), Some("session"));
    });
}

/// The session line that account requires, and the ways in which a line does not hold.
#[test]
fn account_without_effective_session_line_refuses() {
    let broken = [
        ("alone", ""),
        ("optional", "session optional pam_job_adopt.so\n"),
        ("sufficient", "session sufficient pam_job_adopt.so\n"),
        ("another type", "password required pam_job_adopt.so\n"),
        ("a comment", "# session required pam_job_adopt.so\n"),
        ("a muted absence", "-session required pam_job_adopt.so\n"),
        (
            "jumped over",
            "session [success=1 default=ignore] pam_permit.so\nsession required pam_job_adopt.so\n",
        ),
        (
            "behind a sufficient",
            "session sufficient pam_permit.so\nsession required pam_job_adopt.so\n",
        ),
        ("in an include", "session include absent-stack\n"),
        (
            "one that observes",
            "session required pam_job_adopt.so observe\n",
        ),
    ];
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        for (what, session) in broken {
            write_stack(node, session);
            node.log.clear();
            let outcome = node.account(ALICE);
            assert!(outcome.code != 0, "{what}: {outcome}");
            outcome.says("[JA09]");
            let line = node.log.decision("JA09");
            assert_eq!(line.severity(), 3);
            // The refusal's own line names the cause.
            let cause = line.field("error").unwrap_or_default();
            assert!(cause.starts_with("service sshd: "), "{what}: {}", line.text);
        }
    });
}

/// A session line that some version of libpam skips, or with which it lets nobody in.
#[test]
fn account_names_the_line_that_not_every_libpam_reads_alike() {
    const OURS: &str = "session required pam_job_adopt.so\n";
    let long = format!("#{}\n{OURS}", "-".repeat(1023));
    let other = "session optional pam_umask.so";
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        for (session, named) in [
            (
                format!("{other} \\\n\nsession sufficient pam_permit.so\n{OURS}"),
                "sshd:4 is continued",
            ),
            (
                "session required \\\n# why\n pam_job_adopt.so\n".to_owned(),
                "sshd:4 is continued",
            ),
            (
                format!("session [success=4294967297 default=ignore] pam_permit.so\n{OURS}"),
                "sshd:4 jumps",
            ),
            (long, "sshd:4 has 1024 bytes"),
            (
                format!("{other}\r\n{OURS}"),
                "sshd:4 has a carriage return (U+000D)",
            ),
            (
                format!("{OURS}session required /no/pam_job_adopt.so\n"),
                "sshd:5 names /no/pam_job",
            ),
        ] {
            let account = "account required pam_job_adopt.so timeout=60\n\
                           account required pam_unix.so\nsession required pam_unix.so\n";
            node.write("/etc/pam.d/sshd", &format!("{account}{session}"));
            node.log.clear();
            node.account(ALICE).fails().says("[JA09]");
            node.log.line(named);
        }
    });
}

#[test]
fn account_with_effective_session_line_admits() {
    let sound = [
        "session required pam_job_adopt.so\n",
        "session requisite pam_job_adopt.so debug\n",
        "session [success=ok new_authtok_reqd=ok ignore=ignore default=bad] pam_job_adopt.so\n",
        "session include job-adopt-lines\n",
        "session substack job-adopt-lines\n",
        "@include job-adopt-lines\n",
        "session required \\\n    pam_job_adopt.so\n",
    ];
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.write(
            "/etc/pam.d/job-adopt-lines",
            "session required pam_job_adopt.so\n",
        );
        for session in sound {
            write_stack(node, session);
            let outcome = node.account(ALICE);
            assert!(outcome.code == 0, "{session}: {outcome}");
        }
    });
}

fn write_stack(node: &Node, session: &str) {
    node.write_stack(&format!(
        "account required pam_job_adopt.so\naccount required pam_unix.so\n\
         session required pam_unix.so\n{session}"
    ));
}

#[test]
fn root_is_never_refused() {
    on_node(|node| {
        let sshd = node.sshd();
        sshd.ssh(ROOT, "id -u").ok();
        node.arguments("no_such_argument");
        sshd.ssh(ROOT, "id -u").ok();
        node.arguments("helper=/nonexistent");
        sshd.ssh(ROOT, "cat /proc/self/cgroup")
            .ok()
            .joins_cgroup(&node.outside());
    });
}

#[test]
fn service_argument_limits_module_to_that_service() {
    on_node(|node| {
        let lines = |argument: &str| {
            format!(
                "account required pam_permit.so\naccount required pam_job_adopt.so {argument}\n\
                 session required pam_permit.so\nsession required pam_job_adopt.so {argument}\n"
            )
        };
        let phases = ["acct_mgmt", "open_session", "close_session"];
        node.write("/etc/pam.d/other", &lines(""));
        node.phases("other", CAROL, &phases).ok();
        node.write("/etc/pam.d/other", &lines("service=other"));
        node.phases("other", CAROL, &phases).fails().says("[JA01]");
        node.log.clear();
        let job = node.job(ALICE, "4242").start();
        node.phases("other", ALICE, &phases).ok();
        drop(job);
        // libpam has the name of a service in lower case, whatever the application passes.
        node.write("/etc/pam.d/other", &lines("service=OTHER"));
        node.phases("other", CAROL, &phases).fails().says("[JA01]");
        node.phases("Other", CAROL, &phases).fails().says("[JA01]");
    });
}

/// OpenSSH names its service by the program's name, from 9.8 on by an option.
#[test]
fn second_sshd_with_its_own_service_refuses_and_joins() {
    on_node(|node| {
        let lines = "account required pam_permit.so\naccount required pam_job_adopt.so service=ssh-alt\n\
                     session required pam_permit.so\nsession required pam_job_adopt.so service=ssh-alt\n";
        node.write("/etc/pam.d/ssh-alt", lines);
        let script = "conf=/etc/ssh/sshd_config; name=-oPAMServiceName=ssh-alt; \
                      /usr/sbin/sshd -t -f $conf $name || name=; ln -s /usr/sbin/sshd /tmp/ssh-alt; \
                      exec /tmp/ssh-alt -D -f $conf $name";
        let sshd = node.sshd_after(script, "");
        sshd.ssh(CAROL, "true").fails().says("[JA01]");
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let login = sshd.ssh(ALICE, LOOK).ok().joins_cgroup(&job.cgroup);
        login.devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)]);
        let entry = node.log.decision("JA00");
        assert_eq!(entry.field("service"), Some("ssh-alt"), "{}", entry.text);
        job.finish();
        sshd.ssh(ALICE, "true").fails().says("[JA0");
    });
}

/// A mistyped name admits everybody. Lines for other services are common, so they log nothing by
/// default.
#[test]
fn line_for_another_service_is_logged() {
    on_node(|node| {
        let lines = |argument: &str| {
            format!(
                "account required pam_permit.so\naccount required pam_job_adopt.so {argument}\n\
                 session required pam_permit.so\nsession required pam_job_adopt.so {argument}\n"
            )
        };
        node.write_stack(&lines("service=shhd"));
        for phase in ["acct_mgmt", "open_session"] {
            node.log.clear();
            node.phases("sshd", CAROL, &[phase]).ok();
            let entry = node.log.line("knob=service=shhd");
            assert!(entry.text.contains("decision=ignore"), "{}", entry.text);
            assert_eq!(entry.severity(), 4, "{}", entry.text);
        }
        node.log.clear();
        node.write("/etc/pam.d/other", &lines(""));
        node.phases("other", CAROL, &["acct_mgmt", "open_session"])
            .ok();
        let log = &node.log;
        assert!(
            log.entries().is_empty(),
            "a line without service= is for sshd alone:\n{log}"
        );
        // A second sshd, of whatever name, whose stack lacks the argument.
        let connection = "-E SSH_CONNECTION='10.1.0.5 4000 10.1.0.6 22'";
        node.sh(&format!(
            "pamtester {connection} other carol acct_mgmt open_session"
        ))
        .ok();
        for phase in ["account", "session"] {
            let entry = node.log.line(&format!("phase={phase}"));
            assert!(entry.text.contains("knob=service=sshd"), "{}", entry.text);
        }
    });
}

/// A mail server, for example, has accounts that the node's own files lack.
#[test]
fn unknown_user_of_another_service_is_ignored() {
    on_node(|node| {
        let virtual_user = User {
            name: "virtual",
            ..ALICE
        };
        let phases = ["acct_mgmt", "open_session", "close_session"];
        let lines = "account required pam_permit.so\naccount required pam_job_adopt.so\n\
                     session required pam_permit.so\nsession required pam_job_adopt.so\n";
        node.write("/etc/pam.d/other", lines);
        node.phases("other", virtual_user, &phases).ok();
        node.write_stack(lines);
        node.phases("sshd", virtual_user, &phases).fails();
        node.write("/run/job-adopt/off", "");
        node.phases("sshd", virtual_user, &phases).ok();
    });
}

#[test]
fn silent_application_gets_no_message() {
    on_node(|node| {
        let silent = ["acct_mgmt(PAM_SILENT)"];
        node.phases("sshd", CAROL, &silent).fails().omits("JA01");
        node.log.decision("JA01");
    });
}

#[test]
fn wrong_argument_refuses_login_and_is_logged() {
    let wrong = [
        "acton_no_jobs=ignore",
        "action_no_jobs=maybe",
        "action_unknown=allow",
        "action_adopt_failure=ignore",
        "action_generic_failure=",
        "timeout=0",
        "timeout=-1",
        "timeout=soon",
        "wait_job=1x",
        "helper=helper",
        "conf=relative",
        "conf=/etc/security/job_adpt.conf",
        "exempt_uids=1-",
        "debug=yes",
        "require_devices=1",
    ];
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        for argument in wrong {
            node.arguments(argument);
            node.log.clear();
            let outcome = node.account(ALICE);
            assert!(outcome.code != 0, "{argument}: {outcome}");
            outcome.says("[JA09]");
            node.session(ALICE).fails();
            let name = argument.split('=').next().unwrap();
            assert!(
                node.log.decision("JA09").text.contains(name),
                "{argument}: {}",
                node.log
            );
        }
    });
}

/// No argument opens such a job, and another job of the user takes the login.
#[test]
fn user_whose_only_job_takes_no_logins_is_refused() {
    on_node(|node| {
        let _closed = node.job(ALICE, "4242").with("logins", json!(false)).start();
        let text = "login refused: your job 4242 here takes no logins.";
        for arguments in ["", "action_no_jobs=ignore action_adopt_failure=allow"] {
            node.arguments(arguments);
            node.log.clear();
            node.account(ALICE).fails().says(text).says("[JA12]");
            node.session(ALICE).fails();
            node.log.decision("JA12");
        }
        node.job_adopt(&["resolve", "--user", "alice"])
            .says("takes no logins: 4242")
            .says("JA12");
        let _open = node.job(ALICE, "4243").start();
        node.pam(ALICE).ok().says("Joined job 4243");
    });
}

/// Packages make the registry on a login node too.
#[test]
fn node_that_never_had_a_job_refuses_with_no_job_service() {
    on_node(|node| {
        node.sh("rm /run/job-adopt/lock").ok();
        let text = "login refused: no scheduler with jobs was found on this node.";
        node.account(CAROL).fails().says(text).says("[JA11]");
        node.job_adopt(&["check"])
            .says("no scheduler runs here and no job is registered");
        node.configure("sources = registry\n");
        node.account(CAROL).fails().says("[JA01]");
        node.configure("");
        let _job = node.job(ALICE, "4242").start();
        node.account(CAROL).fails().says("[JA01]");
    });
}
