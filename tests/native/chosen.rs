//! Jobs that a user has chosen with `job-adopt use`.

use std::time::Duration;

use crate::support::{
    ALICE, BOB, DENIED, HELPER, Job, LOOK, Node, OPENS, Outcome, Tool, User, eventually, on_node,
};

const USE: &str = "/run/job-adopt/use";
const DIR: &str = "/run/job-adopt/use/1001";
const FILE: &str = "/run/job-adopt/use/1001/job";
const DENY: &str = "action_unknown=deny";

/// Two jobs of one user. Only a choice selects the older one.
struct Two<'a> {
    node: &'a Node,
    older: Job<'a>,
    newer: Job<'a>,
}

impl<'a> Two<'a> {
    fn start(node: &'a Node) -> Self {
        let older = node.job(ALICE, "4242").started(1_795_200_000).start();
        let newer = node.job(ALICE, "4250").started(1_795_200_100).start();
        Self { node, older, newer }
    }

    /// Starts both jobs and chooses the older one for the next logins.
    fn chosen(node: &'a Node) -> Self {
        node.reporting("");
        let two = Self::start(node);
        node.pam(ALICE).ok().joins_cgroup(&two.newer.cgroup);
        two.choose(&["4242"]).exits(0);
        two
    }

    /// Runs `job-adopt use` as the user, inside a job.
    fn choose(&self, arguments: &[&str]) -> Outcome {
        run_as(
            self.node,
            &self.newer,
            ALICE,
            &[&["job-adopt", "use"], arguments].concat(),
        )
    }

    /// Asserts that the next login ignores the choice; returns the log.
    #[track_caller]
    fn assert_choice_ignored(&self) -> String {
        self.node.log.clear();
        self.node.pam(ALICE).ok().joins_cgroup(&self.newer.cgroup);
        assert_eq!(self.rule(), "newest");
        let entries = self.node.log.entries();
        let texts: Vec<String> = entries.into_iter().map(|entry| entry.text).collect();
        texts.join("\n")
    }

    #[track_caller]
    fn rule(&self) -> String {
        let rule = self
            .node
            .log
            .decision("JA00")
            .field("rule")
            .map(str::to_owned);
        rule.unwrap()
    }
}

/// Runs a command as this user inside a job.
fn run_as(node: &Node, job: &Job<'_>, user: User, command: &[&str]) -> Outcome {
    let id = user.uid.to_string();
    let mut run = node.daemon(&job.cgroup, "setpriv");
    run.args(["--reuid", &id, "--regid", &id, "--clear-groups"])
        .args(command);
    Outcome::run(&mut run)
}

fn stat(node: &Node, path: &str) -> String {
    node.run("stat", &["-c", "%F %u %g %a", path])
        .ok()
        .stdout
        .trim()
        .to_owned()
}

#[test]
fn refused_user_chooses_from_inside_job() {
    on_node(|node| {
        node.reporting(DENY);
        let two = Two::start(node);
        let refused = node.account(ALICE).fails().says("[JA05]");
        refused
            .says("In a shell or script of one of them: job-adopt use 4242   [JA05]")
            .says("(4242, 4250)");
        assert_eq!(
            stat(node, DIR),
            format!("directory 1001 {} 2750", HELPER.uid)
        );
        assert_eq!(stat(node, USE), "directory 0 0 755");
        let message =
            "logins to gpu017 from outside your jobs now join job 4242 while it runs here\n";
        assert_eq!(two.choose(&["4242"]).exits(0).stdout, message);
        assert_eq!(two.choose(&[]).exits(0).stdout, message);
        node.log.clear();
        node.pam(ALICE).ok().joins_cgroup(&two.older.cgroup);
        assert_eq!(two.rule(), "chosen");
        two.choose(&["4250"]).exits(0);
        node.pam(ALICE).ok().joins_cgroup(&two.newer.cgroup);
        two.choose(&["--clear"]).exits(0).says("no job is chosen");
        two.choose(&[]).exits(0).says("no job is chosen");
        node.account(ALICE).fails().says("[JA05]");
        node.reporting("");
        two.assert_choice_ignored();
    });
}

#[test]
fn login_joins_chosen_job_until_choice_is_withdrawn() {
    on_node(|node| {
        let two = Two::chosen(node);
        for _ in 0..2 {
            node.pam(ALICE).ok().joins_cgroup(&two.older.cgroup);
        }
        two.older.resolved().exits(0).says("rule: chosen (4242)");
        node.sshd()
            .ssh(ALICE, LOOK)
            .ok()
            .joins_cgroup(&two.older.cgroup);
        two.choose(&["--clear"]).exits(0);
        two.choose(&["--clear"]).exits(0);
        assert!(!two.assert_choice_ignored().contains("warning="));
    });
}

#[test]
fn login_to_one_of_two_jobs_opens_no_device_of_the_other() {
    on_node(|node| {
        let start = |id, started, gpu| {
            let job = node.job(ALICE, id).started(started);
            job.devices(&[gpu]).start()
        };
        let older = start("4250", 1_795_200_000, "/dev/nvidia0");
        let newer = start("4242", 1_795_200_100, "/dev/nvidia1");
        let sshd = node.sshd();
        let login = sshd.ssh(ALICE, LOOK).ok().joins_cgroup(&newer.cgroup);
        login.devices(&[("/dev/nvidia0", DENIED), ("/dev/nvidia1", OPENS)]);
        // One login for each job, as the users' page says.
        run_as(node, &older, ALICE, &["job-adopt", "use", "4250"]).ok();
        let older_login = sshd.ssh(ALICE, LOOK).ok().joins_cgroup(&older.cgroup);
        older_login.devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)]);
    });
}

#[test]
fn adoption_creates_directory_and_observation_does_not() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.arguments("observe");
        node.pam(ALICE);
        assert!(!node.exists(USE));
        node.arguments("");
        node.account(ALICE).ok();
        assert!(!node.exists(USE));
        node.sh("umask 077; pamtester sshd alice open_session close_session")
            .ok();
        assert_eq!(stat(node, USE), "directory 0 0 755");
        assert_eq!(
            stat(node, DIR),
            format!("directory 1001 {} 2750", HELPER.uid)
        );
    });
}

#[test]
fn sixty_four_concurrent_logins_create_one_directory() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        std::thread::scope(|scope| {
            let logins: Vec<_> = (0..64)
                .map(|_| scope.spawn(|| node.session(ALICE)))
                .collect();
            logins
                .into_iter()
                .for_each(|login| drop(login.join().unwrap().ok()));
        });
        assert_eq!(
            node.sh(&format!("find {USE} -mindepth 1")).ok().stdout,
            format!("{DIR}\n")
        );
        assert_eq!(
            stat(node, DIR),
            format!("directory 1001 {} 2750", HELPER.uid)
        );
        assert!(!node.log.to_string().contains("warning="), "{}", node.log);
    });
}

#[test]
fn foreign_entry_in_place_of_directory_is_left_alone() {
    for (make, is) in [
        ("mkdir D; chown bob D", "directory 1002 0 755"),
        ("echo hers > D", "regular file 0 0 644"),
        (
            "mkdir -m 0700 /run/secret; ln -s /run/secret D",
            "symbolic link 0 0 777",
        ),
    ] {
        on_node(|node| {
            node.reporting("");
            node.create_dir(USE, 0o755);
            node.sh(&make.replace('D', DIR)).ok();
            let job = node.job(ALICE, "4242").start();
            node.pam(ALICE).ok().joins_cgroup(&job.cgroup);
            node.log.line(&format!("warning=\"{DIR}: "));
            assert_eq!(stat(node, DIR), is);
            if is.starts_with("symbolic") {
                assert_eq!(stat(node, "/run/secret"), "directory 0 0 700");
            }
        });
    }
}

#[test]
fn directory_damaged_by_user_is_repaired_by_next_login() {
    on_node(|node| {
        let two = Two::chosen(node);
        run_as(node, &two.newer, ALICE, &["chmod", "0700", DIR]).ok();
        two.choose(&["4250"])
            .exits(3)
            .says("has mode 0700")
            .says("log in to gpu017 by ssh once");
        assert!(two.assert_choice_ignored().contains("choice not used"));
        node.pam(ALICE).ok().joins_cgroup(&two.older.cgroup);
        let right = format!("directory 1001 {} 2750", HELPER.uid);
        assert_eq!(stat(node, DIR), right);
        run_as(node, &two.newer, ALICE, &["chgrp", "1001", DIR]).ok();
        node.pam(ALICE).ok();
        assert_eq!(stat(node, DIR), right);
    });
}

#[test]
fn chosen_job_of_another_user_is_not_joined() {
    on_node(|node| {
        let two = Two::chosen(node);
        let his = node.job(BOB, "9").started(1_795_300_000).start();
        for id in [his.id.as_str(), "4000"] {
            node.write(FILE, &format!("{id}\n"));
            let log = two.assert_choice_ignored();
            assert!(
                log.contains(&format!("chosen job {id} is not running here")),
                "{log}"
            );
            let refused = two.choose(&[id]).exits(1).says("4242, 4250");
            let refused = refused.says(&format!("job {id} was not chosen: on gpu017 alice has"));
            refused.omits("bob");
        }
        two.choose(&["4242"]).exits(0);
        two.older.finish();
        let third = node.job(ALICE, "4300").started(1).start();
        let log = two.assert_choice_ignored();
        assert!(log.contains("chosen job 4242 is not running here"), "{log}");
        assert_eq!(
            log.matches("warning=").count(),
            2,
            "one for each phase: {log}"
        );
        two.choose(&[]).exits(1).says("4242").says("4300");
        drop(third);
    });
}

#[test]
fn malformed_choice_is_ignored_without_delay() {
    on_node(|node| {
        node.write("/run/root", "4242\n");
        let two = Two::chosen(node);
        node.reporting("timeout=10");
        for (make, why) in [
            ("printf '4242\\n4250\\n' > F", "holds no job"),
            ("printf 4242 > F", "holds no job"),
            ("printf '../4242\\n' > F", "holds no job"),
            ("head -c 200M /dev/zero > F", "larger"),
            ("chown bob F", "owned by uid 1002"),
            ("chown root F", "owned by uid 0"),
            ("chmod 0660 F", "has mode 0660"),
            ("chmod 0642 F", "has mode 0642"),
            (
                "chmod 0600 F; chgrp alice F",
                "cannot open|Permission denied",
            ),
            ("rm F; mkfifo F", "not a regular file"),
            ("rm F; mkdir F", "not a regular file"),
            ("rm F; ln -s /run/root F", "not a regular file"),
            ("rm F; ln /run/root F", "has 2 names"),
            ("rm F; mknod F c 1 5", "not a regular file"),
            ("chmod 2770 D", "has mode 2770"),
            ("chmod 2752 D", "has mode 2752"),
        ] {
            let make = make.replace('F', FILE).replace('D', DIR);
            node.sh(&make).ok();
            node.log.clear();
            let outcome = node.account(ALICE).ok();
            assert!(outcome.took < Duration::from_secs(8), "{make}: {outcome}");
            let log = node.log.line("choice not used").text;
            assert!(why.split('|').any(|why| log.contains(why)), "{make}: {log}");
            assert_eq!(two.rule(), "newest", "{make}");
            node.sh(&format!("rm -rf {FILE}; chmod 2750 {DIR}")).ok();
            two.choose(&["4242"]).exits(0);
            node.account(ALICE).ok();
        }
        assert_eq!(node.read("/run/root"), "4242\n");
    });
}

#[test]
fn file_system_of_user_is_never_read() {
    on_node(|node| {
        node.install(&Tool::StuckFs.path(), "/usr/bin/stuckfs");
        let two = Two::chosen(node);
        node.reporting("timeout=10");
        let mut stuckfs = node
            .daemon(&node.outside(), "stuckfs")
            .arg(DIR)
            .spawn()
            .unwrap();
        eventually("it is mounted", || {
            node.read("/proc/1/mounts").contains("/use/1001 fuse ")
        });
        node.log.clear();
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| send.send((node.pam(ALICE), two.choose(&["4242"]))).unwrap());
            let outcomes = receive.recv_timeout(Duration::from_secs(30));
            // The end of the file system frees everything that waits for it.
            node.sh(&format!("umount --force --lazy {DIR}")).ok();
            let (login, choice) = outcomes.expect("somebody waits for the file system");
            login.ok().joins_cgroup(&two.newer.cgroup);
            choice.exits(3).says("mounted there");
        });
        assert_eq!(two.rule(), "newest");
        let log = node.log.to_string();
        assert_eq!(
            log.matches("a file system is mounted there").count(),
            3,
            "{log}"
        );
        eventually("it ends", || stuckfs.try_wait().unwrap().is_some());
        node.pam(ALICE).ok().joins_cgroup(&two.older.cgroup);
    });
}

#[test]
fn choice_is_private_to_its_user() {
    on_node(|node| {
        let two = Two::chosen(node);
        run_as(node, &two.newer, BOB, &["cat", FILE])
            .fails()
            .says("Permission denied");
        run_as(node, &two.newer, BOB, &["ls", DIR])
            .fails()
            .says("Permission denied");
        run_as(node, &two.newer, BOB, &["mkdir", &format!("{USE}/1002")]).fails();
        run_as(node, &two.newer, BOB, &["job-adopt", "use", "4242"]).exits(1);
        let helper = run_as(node, &two.newer, HELPER, &["cat", FILE]);
        assert_eq!(helper.ok().stdout, "4242\n");
        assert_eq!(
            stat(node, FILE),
            format!("regular file 1001 {} 640", HELPER.uid)
        );
    });
}

/// Asserts that each line fits into 80 columns.
#[track_caller]
fn assert_fits_terminal(outcome: &Outcome) {
    let lines = outcome.stdout.lines().chain(outcome.stderr.lines());
    lines.for_each(|line| assert!(line.len() <= 80, "{line}"));
}

/// Files there have the helper's group, which can read the choices of other users.
#[test]
fn program_made_there_does_not_run_with_helpers_group() {
    on_node(|node| {
        let two = Two::chosen(node);
        let make = "use Fcntl ':DEFAULT'; umask 0; chdir shift; open(ID, '</usr/bin/id'); \
                    local $/; my $id = <ID>; \
                    for my $mode (02755, 02745) { \
                        my $name = sprintf('%o', $mode); \
                        sysopen(F, $name, O_CREAT | O_EXCL | O_WRONLY, $mode) or die; \
                        print F $id; close F; \
                        print +(stat $name)[5], ':', `./$name -g`; \
                        chmod 02755, $name; print `./$name -g`; \
                    }";
        let outcome = run_as(node, &two.newer, ALICE, &["perl", "-e", make, DIR]).ok();
        let groups: Vec<&str> = outcome.stdout.split_whitespace().collect();
        let owner = format!("{}:1001", HELPER.uid);
        assert_eq!(groups, [&*owner, "1001", &*owner, "1001"], "{outcome}");
    });
}

#[test]
fn use_prints_remedy_for_each_failure() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let hers = |arguments: &[&str]| {
            run_as(
                node,
                &job,
                ALICE,
                &[&["job-adopt", "use"], arguments].concat(),
            )
        };
        hers(&["4242"])
            .exits(3)
            .says("log in to gpu017 by ssh once, then try again");
        hers(&[]).exits(0).says("no job is chosen");
        hers(&["--clear"]).exits(0).says("no job is chosen");
        node.session(ALICE).ok();
        hers(&["4242"]).exits(0);
        hers(&["4243"]).exits(1).says("4243").says("4242");
        assert_eq!(node.read(FILE), "4242\n");
        for wrong in [&["../x"][..], &["1", "2"], &["--clear", "4242"]] {
            hers(wrong).exits(2);
        }
        node.job_adopt(&["use", "4242"]).exits(3).says("root");
        run_as(node, &job, BOB, &["job-adopt", "use", "4242"])
            .exits(1)
            .says("bob has no running job on gpu017\ntype this on the node of your job\n");
        assert_fits_terminal(&hers(&["4243"]));
        run_as(
            node,
            &job,
            ALICE,
            &["sh", "-c", &format!("echo ../4242 >{FILE}")],
        )
        .ok();
        assert_fits_terminal(
            &hers(&[])
                .exits(3)
                .says("your choice cannot be used; remove it: job-adopt use --clear")
                .says("holds no job's id"),
        );
        hers(&["--clear"]).exits(0);
        hers(&[]).exits(0).says("no job is chosen");
        node.set_mode(USE, 0o777);
        let report = "gpu017 is not set up correctly; not your fault, please report:\n";
        assert_fits_terminal(
            &hers(&["4242"])
                .exits(3)
                .says(report)
                .says("writable by others"),
        );
        node.set_mode(USE, 0o755);
        node.write(&job.record_path(), "{");
        let warning =
            "job-adopt: warning: cannot tell whether job 4243 runs here; choosing it anyway\n";
        hers(&["4243"]).exits(0).says(warning);
        hers(&[]).exits(0).says("join job 4243");
    });
}
