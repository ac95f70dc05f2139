//! Jobs that do not simply run: about to start, suspended, or one of many.

use std::time::Duration;

use crate::support::{ALICE, LOOK, Outcome, Slurm, eventually, on_slurm};

/// Makes Slurm start jobs only when `/run/go` exists.
fn install_slow_prolog(slurm: &Slurm<'_>) {
    let node = slurm.node;
    node.write(
        "/etc/slurm/slow.sh",
        "#!/bin/sh\nuntil test -e /run/go; do sleep 0.05; done\n",
    );
    node.set_mode("/etc/slurm/slow.sh", 0o755);
    let conf = node.read("/etc/slurm/slurm.conf");
    node.write(
        "/etc/slurm/slurm.conf",
        &format!("{conf}Prolog=/etc/slurm/slow.sh\n"),
    );
    node.sh("scontrol reconfigure").ok();
    slurm.restart_slurmd();
}

/// While the prolog runs, the job has no step daemon yet.
#[test]
fn job_with_slow_prolog_is_awaited_where_configured() {
    on_slurm(|slurm| {
        let node = slurm.node;
        install_slow_prolog(slurm);
        std::thread::scope(|scope| {
            let starting = scope.spawn(|| slurm.alloc(ALICE, 1));
            eventually("the prolog runs", || !slurm.running("slow.sh").is_empty());
            node.account(ALICE).fails().says("[JA01]");
            node.reporting("timeout=40 wait_job=30");
            let login = scope.spawn(|| node.pam(ALICE));
            eventually("the login waits", || !node.helpers().is_empty());
            assert!(!login.is_finished(), "the login did not wait");
            node.write("/run/go", "");
            let job = starting.join().unwrap();
            login.join().unwrap().ok().joins(&job);
        });
    });
}

#[test]
fn suspended_job_refuses_login_until_resumed() {
    on_slurm(|slurm| {
        let job = slurm.batch(ALICE, 1);
        let sshd = slurm.node.sshd();
        slurm.node.run("scontrol", &["suspend", &job.id]).ok();
        // Slurm first asks the tasks to stop, and freezes the steps two seconds later.
        let freezer = job.dir("freezer").join("step_extern/freezer.state");
        let state = || std::fs::read_to_string(&freezer).unwrap();
        eventually("Slurm has frozen it", || state().trim_end() == "FROZEN");
        let refused = sshd.ssh(ALICE, LOOK).fails();
        assert!(refused.took < Duration::from_secs(15), "{refused}");
        let text = format!("login refused: your job {} is suspended here.", job.id);
        let refused = refused.says(&text).says("[JA04]");
        assert!(refused.stdout.is_empty(), "{refused}");
        assert_eq!(slurm.node.log.decision("JA04").field("job"), Some(&*job.id));
        slurm.node.run("scontrol", &["resume", &job.id]).ok();
        eventually("Slurm has thawed it", || state().trim_end() == "THAWED");
        sshd.ssh(ALICE, LOOK).ok().joins(&job);
        job.cancel();
        slurm.assert_nothing_left();
    });
}

/// Each task is a job with its own number and GPUs.
#[test]
fn each_task_of_array_is_a_job() {
    on_slurm(|slurm| {
        let tasks = slurm.array(ALICE, 1, 2);
        let sshd = slurm.node.sshd();
        slurm.node.arguments("action_unknown=deny");
        let asked = slurm.node.account(ALICE).fails().says("[JA05]");
        asked.says(&tasks[0].id).says(&tasks[1].id);
        slurm.node.arguments("");
        sshd.ssh(ALICE, LOOK).ok();
        // Slurm itself names a task by the array's number and its own.
        slurm
            .node
            .run("scancel", &[&format!("{}_1", tasks[0].id)])
            .ok();
        tasks[1].await_end();
        let login = sshd.ssh(ALICE, LOOK).ok().joins(&tasks[0]);
        assert_eq!(login.gpus(), tasks[0].gpus());
        assert_eq!(login.gpus().len(), 1);
        tasks[0].cancel();
        slurm.assert_nothing_left();
    });
}

/// The first login stays in its job after a second one has joined a newer job.
#[test]
fn concurrent_logins_join_different_jobs_of_one_user() {
    on_slurm(|slurm| {
        let sshd = slurm.node.sshd();
        let older = slurm.alloc(ALICE, 1);
        let mut first = sshd.stay(ALICE, &format!("touch in; read _; {LOOK}"));
        eventually("the first login is in", || {
            slurm.node.exists("/home/alice/in")
        });
        let newer = slurm.alloc(ALICE, 2);
        let second = sshd.ssh(ALICE, LOOK).ok().joins(&newer);
        drop(first.stdin.take());
        let output = first.wait_with_output().unwrap();
        let outcome = Outcome::from_output("the first login".into(), &output, Duration::ZERO);
        let outcome = outcome.ok().joins(&older);
        assert_eq!(
            (outcome.gpus(), second.gpus()),
            (older.gpus(), newer.gpus())
        );
        assert_eq!((outcome.gpus().len(), second.gpus().len()), (1, 2));
    });
}
