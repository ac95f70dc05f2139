//! A login is in its user's job in every hierarchy, and sees the same devices as the job's steps.

use crate::support::{ALICE, BOB, CAROL, LOOK, Outcome, Slurm, SlurmJob, Sshd, on_slurm};

/// The devices that [`LOOK`] probes.
const DEVICES: [&str; 7] = [
    "/dev/nvidia0",
    "/dev/nvidia1",
    "/dev/nvidia2",
    "/dev/nvidia3",
    "/dev/dri/renderD128",
    "/dev/null",
    "/dev/full",
];

/// Asserts that a login is in this job and opens exactly the devices that a step of it opens.
#[track_caller]
fn assert_like_step(login: Outcome, job: &SlurmJob<'_>) -> Outcome {
    let step = job.step(LOOK).ok();
    for device in DEVICES {
        assert_eq!(
            login.device(device),
            step.device(device),
            "{device}: {login}"
        );
    }
    login.joins(job)
}

#[test]
fn login_joins_job_started_in_any_way() {
    on_slurm(|slurm| {
        let sshd = slurm.node.sshd();
        for start in [Slurm::batch, Slurm::alloc, Slurm::srun] {
            let job = start(slurm, ALICE, 2);
            let login = assert_like_step(sshd.ssh(ALICE, LOOK).ok(), &job);
            assert_eq!(login.gpus().len(), 2, "{login}");
            assert_eq!(login.stderr, "", "a command's output has to stay clean");
            job.cancel();
        }
        slurm.assert_nothing_left();
    });
}

#[test]
fn login_of_any_kind_joins_job() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        let sshd = slurm.node.sshd();
        assert_like_step(sshd.ssh_password(ALICE, LOOK).ok(), &job);
        assert_like_step(sshd.ssh_tty(ALICE, LOOK).ok(), &job);
        let shell = sshd.shell(ALICE, &format!("{LOOK}\nexit\n")).ok();
        let welcome = format!("Joined job {} on {}: 1 GPU.", job.id, slurm.node.name());
        assert_like_step(shell, &job).says(&welcome);
        assert_file_transfers(slurm, &sshd, &job);
    });
}

/// sftp prints "Permission denied" for an open that the filter denies, and "Failure" for one
/// without a driver.
fn assert_file_transfers(slurm: &Slurm<'_>, sshd: &Sshd<'_>, job: &SlurmJob<'_>) {
    let put = |device: &str| {
        sshd.sftp(ALICE, &format!("put /etc/hosts {device}\n"))
            .fails()
    };
    let gpus = job.gpus();
    for device in &DEVICES[..4] {
        if gpus.contains(device) {
            put(device).says("Failure").omits("Permission denied");
        } else {
            put(device).says("Permission denied");
        }
    }
    sshd.scp(&[], "/etc/hosts", "alice@127.0.0.1:copy").ok();
    assert!(slurm.node.exists("/home/alice/copy"));
}

#[test]
fn two_users_join_their_own_jobs_and_third_is_refused() {
    on_slurm(|slurm| {
        let hers = slurm.alloc(ALICE, 1);
        let his = slurm.batch(BOB, 2);
        let sshd = slurm.node.sshd();
        assert_like_step(sshd.ssh(ALICE, LOOK).ok(), &hers);
        assert_like_step(sshd.ssh(BOB, LOOK).ok(), &his);
        let text = format!(
            "{}: login refused: you (carol) have no running job",
            slurm.node.name()
        );
        sshd.ssh(CAROL, LOOK)
            .fails()
            .says(&text)
            .says("squeue --me")
            .says("[JA01]");
        slurm.node.session_reporting("");
        slurm.node.session(CAROL).stays_outside();
    });
}

#[test]
fn login_joins_newest_job_unless_site_requires_choice() {
    on_slurm(|slurm| {
        let older = slurm.alloc(ALICE, 1);
        let newer = slurm.alloc(ALICE, 2);
        let sshd = slurm.node.sshd();
        assert_like_step(sshd.ssh(ALICE, LOOK).ok(), &newer);
        assert_eq!(
            slurm.node.log.decision("JA00").field("rule"),
            Some("newest")
        );
        slurm.node.arguments("action_unknown=deny");
        let asked = slurm.node.pam(ALICE).fails().says("[JA05]");
        asked
            .says("you have 2 jobs here")
            .says(&older.id)
            .says(&newer.id);
        newer.cancel();
        assert_like_step(sshd.ssh(ALICE, LOOK).ok(), &older);
    });
}

#[test]
fn login_joins_job_while_slurmd_restarts_or_is_down() {
    on_slurm(|slurm| {
        let job = slurm.batch(ALICE, 1);
        let sshd = slurm.node.sshd();
        slurm.stop_slurmd();
        assert_like_login(&sshd, &job);
        slurm.start_slurmd();
        assert_like_step(sshd.ssh(ALICE, LOOK).ok(), &job);
        job.cancel();
        slurm.assert_nothing_left();
    });
}

/// Compares with a login: without slurmd no further step can start.
fn assert_like_login(sshd: &Sshd<'_>, job: &SlurmJob<'_>) {
    let login = sshd.ssh(ALICE, LOOK).ok().joins(job);
    assert_eq!(login.gpus().len(), 1, "{login}");
}

#[test]
fn twenty_concurrent_logins_join_job() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        let gpus = job.gpus();
        let sshd = slurm.node.sshd();
        std::thread::scope(|scope| {
            let logins: Vec<_> = (0..20)
                .map(|_| scope.spawn(|| sshd.ssh(ALICE, LOOK).ok()))
                .collect();
            for login in logins {
                assert_eq!(login.join().unwrap().joins(&job).gpus(), gpus);
            }
        });
        job.cancel();
        slurm.assert_nothing_left();
    });
}

#[test]
fn account_and_observe_move_no_process() {
    on_slurm(|slurm| {
        let _job = slurm.alloc(ALICE, 1);
        let node = slurm.node;
        let report = "pam_exec.so stdout /usr/bin/cat /proc/self/cgroup\n";
        let session = "session required pam_job_adopt.so\n";
        node.write_stack(&format!(
            "account required pam_job_adopt.so\naccount optional {report}{session}"
        ));
        node.account(ALICE).ok().stays_outside();
        node.reporting("observe");
        node.pam(ALICE).ok().stays_outside();
        node.pam(CAROL).ok().stays_outside();
        node.log.line("code=JA01");
    });
}

#[test]
fn decision_is_logged_in_one_line() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 2);
        slurm.node.pam(ALICE).ok();
        let session = slurm.node.log.find("the session's decision", |entry| {
            entry.text.contains("decision=adopt") && entry.field("phase") == Some("session")
        });
        let expected = [
            ("code", "JA00"),
            ("user", "alice"),
            ("job", &job.id),
            ("source", "slurm"),
            ("rule", "only-job"),
            ("containment", "inherit"),
            ("devices", "2"),
        ];
        for (key, value) in expected {
            assert_eq!(session.field(key), Some(value), "{key}: {}", session.text);
        }
        assert!(session.text.contains(&job.path()), "{}", session.text);
    });
}

#[test]
fn environment_names_job_or_nothing() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        let sshd = slurm.node.sshd();
        let variables = || {
            sshd.ssh(ALICE, "env | grep -e ^SLURM -e ^CUDA; true")
                .ok()
                .stdout
        };
        assert_eq!(variables(), format!("SLURM_JOB_ID={}\n", job.id));
        slurm.node.configure("env = none\n");
        assert_eq!(variables(), "");
    });
}
