//! A login of any kind joins its user's job and sees that job's devices.

use crate::support::{
    ALICE, BOB, DENIED, LOOK, Mount, Node, OPENS, eventually, on_node, on_node_with,
};

/// Devices of a login to a job with `/dev/nvidia0`.
const GPU0: [(&str, &str); 4] = [
    ("/dev/nvidia0", OPENS),
    ("/dev/nvidia1", DENIED),
    ("/dev/null", "ok"),
    ("/dev/full", "ok"),
];

#[test]
fn command_login_joins_job() {
    for mount in [Mount::Unified, Mount::Hybrid] {
        on_node_with(mount, |node| {
            let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
            let outcome = node
                .sshd()
                .ssh(ALICE, LOOK)
                .ok()
                .joins_cgroup(&job.cgroup)
                .devices(&GPU0);
            assert_eq!(outcome.stderr, "", "a command's output has to stay clean");
            node.sh(LOOK)
                .ok()
                .devices(&[("/dev/nvidia1", OPENS)])
                .joins_cgroup(&node.outside());
        });
    }
}

#[test]
fn terminal_login_joins_job() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let sshd = node.sshd();
        sshd.ssh_tty(ALICE, LOOK)
            .ok()
            .joins_cgroup(&job.cgroup)
            .devices(&GPU0);
        let shell = sshd
            .shell(ALICE, &format!("{LOOK}\ntty\nexit\n"))
            .ok()
            .joins_cgroup(&job.cgroup);
        shell.devices(&GPU0).says("/dev/pts/");
    });
}

/// With these numbers auditd(8) records each command of the login.
#[test]
fn log_of_session_has_its_audit_login_and_session() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        let run_as = |loginuid: &str, before: &str| {
            node.write_stack(&format!(
                "account required pam_job_adopt.so\n{before}session required pam_job_adopt.so\n\
                 session optional pam_exec.so stdout /usr/bin/grep . /proc/self/sessionid\n"
            ));
            node.log.clear();
            let script = format!(
                "echo {loginuid} >/proc/self/loginuid; pamtester sshd alice acct_mgmt open_session"
            );
            node.sh(&script).ok()
        };
        let decision = |word: &str| {
            let start = format!("decision={word} ");
            node.log.find(word, |entry| entry.text.contains(&start))
        };
        let outcome = run_as("7", "session required pam_loginuid.so\n");
        let adopt = decision("adopt");
        assert_eq!(adopt.field("auid"), Some("1001"), "{}", adopt.text);
        let session = adopt.field("ses").unwrap();
        outcome.says(&format!("{session}\n"));
        // The number before pam_loginuid is the one of whoever started sshd.
        assert_eq!(decision("admit").field("auid"), None);
        run_as("4294967295", "");
        let numberless = decision("adopt");
        assert!(
            !["auid=", "ses="]
                .iter()
                .any(|key| numberless.text.contains(key)),
            "{}",
            numberless.text
        );
    });
}

#[test]
fn interactive_login_reads_joined_job() {
    on_node(|node| {
        let ends = "LC_ALL=C date -d @4000000000 '+%-d %b %H:%M'";
        let ends = node.sh(ends).ok().stdout;
        let job = node
            .job(ALICE, "4242")
            .devices(&["/dev/nvidia0", "/dev/nvidia2"]);
        let _job = job.with("ends", 4_000_000_000_i64.into()).start();
        let line = format!("Joined job 4242 on gpu017: 2 GPUs, ends {}.", ends.trim());
        let shell = node.sshd().shell(ALICE, "exit\n").ok();
        shell.says(&line).says("This login ends with the job.");
    });
}

#[test]
fn password_login_joins_job() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let outcome = node.sshd().ssh_password(ALICE, LOOK).ok();
        outcome.joins_cgroup(&job.cgroup).devices(&GPU0);
        node.log.line("Accepted keyboard-interactive/pam for alice");
    });
}

#[test]
fn file_transfer_joins_job() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let sshd = node.sshd();
        // sftp prints "Permission denied" for an open that the filter denies, and "Failure" for one
        // without a driver.
        let put = |device: &str| {
            sshd.sftp(ALICE, &format!("put /etc/hosts {device}\n"))
                .fails()
        };
        put("/dev/nvidia0")
            .says("Failure")
            .omits("Permission denied");
        put("/dev/nvidia1").says("Permission denied");
        let copy = |device: &str| {
            sshd.scp(&["-O"], "/etc/hosts", &format!("alice@127.0.0.1:{device}"))
                .fails()
        };
        copy("/dev/nvidia0").says("No such device or address");
        copy("/dev/nvidia1").says("Operation not permitted");
        sshd.scp(&[], "/etc/hosts", "alice@127.0.0.1:copy").ok();
        assert!(node.exists("/home/alice/copy"));
    });
}

#[test]
fn second_channel_of_connection_joins_job() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let sshd = node.sshd();
        let master = ["-M", "-S", "/root/mux", "-o", "ControlPersist=yes"];
        sshd.ssh_with(&master, ALICE, LOOK)
            .ok()
            .joins_cgroup(&job.cgroup);
        let mux = ["-S", "/root/mux"];
        sshd.ssh_with(&mux, ALICE, LOOK)
            .ok()
            .joins_cgroup(&job.cgroup)
            .devices(&GPU0);
        let accepted = |of: &Node| {
            of.log
                .entries()
                .iter()
                .filter(|entry| entry.text.contains("Accepted publickey for"))
                .count()
        };
        assert_eq!(
            accepted(node),
            1,
            "the second channel made a connection of its own"
        );
        sshd.ssh_with(&["-S", "/root/mux", "-O", "exit"], ALICE, "")
            .ok();
    });
}

#[test]
fn process_that_outlives_its_login_stays_in_job() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let later = format!(
            "(setsid sh -c 'until [ -e over ]; do sleep 0.05; done; {LOOK}; echo end' >late 2>&1 </dev/null &)"
        );
        node.sshd().ssh(ALICE, &later).ok();
        node.write("/home/alice/over", "");
        eventually("it has looked", || {
            node.read("/home/alice/late").contains("end")
        });
        node.sh("cat /home/alice/late")
            .joins_cgroup(&job.cgroup)
            .devices(&GPU0);
    });
}

#[test]
fn logins_of_two_users_join_their_own_jobs() {
    on_node(|node| {
        let hers = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let his = node.job(BOB, "4243").devices(&["/dev/nvidia1"]).start();
        let sshd = node.sshd();
        std::thread::scope(|scope| {
            let bob = scope.spawn(|| sshd.ssh(BOB, LOOK).ok().joins_cgroup(&his.cgroup));
            sshd.ssh(ALICE, LOOK)
                .ok()
                .joins_cgroup(&hers.cgroup)
                .devices(&GPU0);
            let swapped = [("/dev/nvidia0", DENIED), ("/dev/nvidia1", OPENS)];
            bob.join().unwrap().devices(&swapped);
        });
    });
}

#[test]
fn login_ends_with_job() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let sshd = node.sshd();
        let mut login = sshd.stay(ALICE, "sleep infinity");
        eventually("the login is in the job", || job.cgroup.pids().len() > 2);
        job.finish();
        eventually("the login ends", || login.try_wait().unwrap().is_some());
    });
}

#[test]
fn decision_is_logged_in_one_line() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        node.sshd().ssh(ALICE, "true").ok();
        let session = node.log.find("the session's decision", |entry| {
            entry.text.contains("decision=adopt") && entry.field("phase") == Some("session")
        });
        let expected = [
            ("code", "JA00"),
            ("user", "alice"),
            ("uid", "1001"),
            ("rhost", "127.0.0.1"),
            ("service", "sshd"),
            ("job", "4242"),
            ("source", "registry"),
            ("rule", "only-job"),
            ("cgroup", job.cgroup.path()),
            ("containment", "enforce"),
            ("dropped", "0"),
        ];
        for (key, value) in expected {
            assert_eq!(session.field(key), Some(value), "{key}: {}", session.text);
        }
        assert!(session.field("ms").unwrap().parse::<u32>().is_ok());
        assert_eq!(session.severity(), 6, "{}", session.text);
        assert!(session.is_authpriv(), "{}", session.text);
    });
}

/// The kernel prints a mount point byte by byte, and users mount with `fusermount3`.
#[test]
fn mount_on_non_utf8_name_refuses_no_login() {
    for mount in [Mount::Unified, Mount::Hybrid, Mount::Namespace] {
        on_node_with(mount, |node| {
            let job = node.job(ALICE, "4242").start();
            let mounts = r"d=/tmp/$(printf '\377'); mkdir $d && mount --bind /tmp $d &&
                LC_ALL=C grep -aF $d /proc/self/mountinfo";
            node.sh(mounts).ok();
            node.session(ALICE).ok();
            node.sshd().ssh(ALICE, LOOK).ok().joins_cgroup(&job.cgroup);
        });
    }
}
