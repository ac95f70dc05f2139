//! `job-adopt` as used by prologs, epilogs and people.

use serde_json::{Value, json};

use crate::support::{
    ALICE, BOB, CAROL, Cgroup, DENIED, HELPER, Job, LOOK, Node, OPENS, eventually, on_node,
};

/// Starts a job of alice without a record or a stamp.
fn start_unregistered_job(node: &Node) -> Job<'_> {
    node.job(ALICE, "4242").unstamped().unrecorded().start()
}

fn register_arguments<'a>(job: &'a Job<'_>, more: &[&'a str]) -> Vec<&'a str> {
    let common = [
        "register",
        "--id",
        "4242",
        "--user",
        "alice",
        "--policy",
        "closed",
        "--cgroup",
        job.cgroup.path(),
    ];
    [&common, more].concat()
}

#[test]
fn register_then_unregister_starts_and_ends_job() {
    on_node(|node| {
        let job = start_unregistered_job(node);
        node.pam(ALICE).fails().says("[JA01]");
        node.job_adopt(&register_arguments(&job, &["--device", "/dev/nvidia0"]))
            .ok();
        let gpus = [("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)];
        node.probe_in(&job.cgroup).devices(&gpus);
        node.sshd()
            .ssh(ALICE, LOOK)
            .ok()
            .joins_cgroup(&job.cgroup)
            .devices(&gpus);
        node.unregister("4242").ok();
        node.pam(ALICE).fails().says("[JA03]");
        assert!(
            job.cgroup.exists(),
            "unregister removed a cgroup that it did not make"
        );
        eventually("only the scheduler's own process is left", || {
            job.cgroup.pids().len() == 1
        });
        node.unregister("4242").ok();
        node.unregister("never-was").ok();
    });
}

#[test]
fn register_accepts_record_on_stdin() {
    on_node(|node| {
        node.reporting("");
        let job = start_unregistered_job(node);
        let record = json!({ "version": 1, "id": "4242", "uid": 1001,
            "cgroup": job.cgroup.path(), "options": { "DevicePolicy": "closed" } });
        node.write("/run/record", &record.to_string());
        node.sh("job-adopt register </run/record").ok();
        let written: Value = serde_json::from_str(&node.read(&job.record_path())).unwrap();
        assert!(
            written["started"].as_i64().unwrap() > 1_700_000_000,
            "{written}"
        );
        let owner = node
            .sh(&format!("stat -c '%u %a' {}", job.record_path()))
            .ok()
            .stdout;
        assert_eq!(owner, "0 644\n");
        node.pam(ALICE).ok().joins_cgroup(&job.cgroup);
    });
}

#[test]
fn register_takes_devices_from_input_of_imp_and_the_job_from_options() {
    on_node(|node| {
        node.reporting("");
        let job = start_unregistered_job(node);
        let register_with = |input: &Value, option: &str| {
            node.write("/run/input", &input.to_string());
            let path = job.cgroup.path();
            node.sh(&format!(
                "job-adopt register --json - --id 4242 --user alice --cgroup {path} {option} </run/input"
            ))
        };
        let register = |input: &Value| register_with(input, "");
        let unsaid = json!({ "J": "e30.e30.none" });
        assert!(register(&unsaid).fails().stderr.contains("about devices"));
        let other = json!({ "J": "e30.e30.none", "options": {}, "id": "7" });
        assert!(register(&other).fails().stderr.contains("`id`"));
        // The admin's word is for jobs alone for which Flux asks for nothing.
        let list = json!({ "DevicePolicy": "auto", "DeviceAllow": [] });
        for (options, option) in [
            (list, "--policy auto"),
            (json!({ "DevicePolicy": "closed" }), "--policy auto"),
            (json!({}), "--policy closed"),
        ] {
            let input = json!({ "J": "e30.e30.none", "options": options });
            register_with(&input, option).exits(2);
        }
        assert!(!node.exists(&job.record_path()));
        for options in [json!({}), json!({ "DevicePolicy": "auto" })] {
            let input = json!({ "J": "e30.e30.none", "options": options });
            register_with(&input, "--policy auto").ok();
            node.sh("job-adopt unregister 4242").ok();
        }
        register_with(&unsaid, "--policy auto").ok();
        assert!(job.cgroup.filters().is_empty());
        // More than the limit of a record: the job specification has the user's environment.
        let allow = json!([["/dev/nvidia0", "rw"]]);
        let input = json!({ "J": "x".repeat(100_000),
            "options": { "DevicePolicy": "closed", "DeviceAllow": allow } });
        register(&input).ok();
        let gpus = [("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)];
        node.probe_in(&job.cgroup).devices(&gpus);
        let record: Value = serde_json::from_str(&node.read(&job.record_path())).unwrap();
        assert_eq!(record["options"]["DeviceAllow"], allow);
        assert_eq!(
            (&record["id"], &record["uid"]),
            (&json!("4242"), &json!(1001))
        );
        node.pam(ALICE).ok().joins_cgroup(&job.cgroup);
    });
}

#[test]
fn register_refuses_unsound_input() {
    on_node(|node| {
        let job = start_unregistered_job(node);
        let path = job.cgroup.path();
        let wrong: [&[&str]; 8] = [
            &["register"],
            &[
                "register", "--id", "../x", "--user", "alice", "--policy", "closed", "--cgroup",
                path,
            ],
            &[
                "register",
                "--id",
                "4242",
                "--user",
                "nobody-here",
                "--policy",
                "closed",
                "--cgroup",
                path,
            ],
            &[
                "register", "--id", "4242", "--user", "alice", "--policy", "open", "--cgroup", path,
            ],
            &[
                "register", "--id", "4242", "--user", "alice", "--policy", "closed", "--cgroup",
                "/no/such",
            ],
            &[
                "register", "--id", "4242", "--user", "alice", "--policy", "closed", "--cgroup",
                "/a/../b",
            ],
            &[
                "register", "--id", "4242", "--user", "alice", "--cgroup", path,
            ],
            &["register", "--no-such-option"],
        ];
        for arguments in wrong {
            let outcome = node.job_adopt(arguments);
            assert!(matches!(outcome.code, 2 | 3), "{outcome}");
            assert!(!outcome.stderr.is_empty(), "{outcome}");
            assert!(!node.exists(&job.record_path()), "{outcome}");
        }
    });
}

#[test]
fn id_of_another_owner_is_refused() {
    on_node(|node| {
        let hers = start_unregistered_job(node);
        node.job_adopt(&register_arguments(&hers, &[])).ok();
        node.job_adopt(&register_arguments(&hers, &[])).ok();
        let his = node.job(BOB, "his").unstamped().unrecorded().start();
        let again = [
            "register", "--id", "4242", "--user", "bob", "--policy", "closed", "--cgroup",
        ];
        node.job_adopt(&[&again[..], &[his.cgroup.path()]].concat())
            .fails();
        assert!(!node.exists("/run/job-adopt/jobs/1002/4242.json"));
        node.reporting("");
        node.pam(ALICE).ok().joins_cgroup(&hers.cgroup);
    });
}

#[test]
fn unregister_ends_and_notifies_logins() {
    on_node(|node| {
        let job = start_unregistered_job(node);
        job.cgroup.child("step").create();
        node.job_adopt(&register_arguments(&job, &[])).ok();
        let sshd = node.sshd();
        let login = sshd.stay(ALICE, "script -qc 'sleep infinity' /dev/null");
        let leaf = job.cgroup.child("job-adopt");
        let named =
            |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        eventually("the login has its terminal", || {
            leaf.exists() && leaf.pids().iter().any(|pid| named(pid) == "sleep\n")
        });
        node.unregister("4242").ok();
        let output = login.wait_with_output().unwrap();
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.contains("*** job 4242 has ended; closing this login ***"),
            "{output}"
        );
        assert!(!leaf.exists(), "the leaf is ours and should be gone");
        assert_eq!(job.cgroup.pids().len(), 1);
    });
}

#[test]
fn list_prints_table_and_json() {
    on_node(|node| {
        node.job_adopt(&["list"])
            .exits(0)
            .says("no jobs on this node\n");
        node.job_adopt(&["list", "--user", "bob"])
            .exits(0)
            .says("no jobs of bob on this node\n");
        let _job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        node.job_adopt(&["list"])
            .exits(0)
            .says("4242")
            .says("alice");
        node.job_adopt(&["list", "--verbose"])
            .exits(0)
            .says("  DEVICES  CORES  ")
            .says(" MEM-MAX ");
        let json = node.job_adopt(&["list", "--json"]).exits(0).stdout;
        let parsed: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["schema"], 1, "{json}");
        let limits = &parsed["jobs"][0]["limits"];
        assert!(
            limits["cores"].is_null() || limits["cores"].is_string(),
            "{json}"
        );
        assert!(limits.get("tasks").is_some(), "{json}");
        assert!(json.contains("4242"), "{json}");
    });
}

#[test]
fn resolve_prints_job_and_devices_of_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let outcome = job.resolved().exits(0).says("JA00").says("4242");
        outcome.says(job.cgroup.path()).says("c:195:0:rw");
        assert!(
            job.cgroup.filters().is_empty(),
            "resolve attached something"
        );
        node.job_adopt(&["resolve", "--user", CAROL.name])
            .exits(1)
            .says("JA01");
        node.job_adopt(&["resolve", "--user", "nobody-here"])
            .fails();
        let json = node
            .job_adopt(&["resolve", "--user", "alice", "--json"])
            .exits(0)
            .stdout;
        let parsed: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["schema"], 1, "{json}");
    });
}

/// Returns an id that no other node has. `run` names a cgroup after it, which all nodes of the machine see, and
/// which stays if the test is killed.
fn unique_id(node: &Node) -> String {
    let outside = node.outside();
    let name = outside
        .path()
        .split('/')
        .find(|name| !name.is_empty())
        .unwrap();
    format!("{name}-run")
}

#[test]
fn run_starts_command_as_job() {
    on_node(|node| {
        let id = unique_id(node);
        let script = format!("{LOOK}; exit 7");
        let options = [
            "run",
            "--user",
            "alice",
            "--id",
            &id,
            "--device",
            "/dev/nvidia0",
            "--",
            "sh",
            "-c",
            &script,
        ];
        let outcome = node.job_adopt(&options).exits(7);
        let outcome = outcome.devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)]);
        let cgroup = Cgroup::new(outcome.cgroup());
        assert!(!cgroup.exists(), "{} is left", cgroup.path());
        node.account(ALICE).fails();
        let signalled = [
            "run",
            "--user",
            "alice",
            "--policy",
            "closed",
            "--",
            "sh",
            "-c",
            "kill -9 $$",
        ];
        node.job_adopt(&signalled).exits(137);
        node.job_adopt(&[
            "run", "--user", "alice", "--policy", "closed", "--", "/no/such",
        ])
        .exits(125);
    });
}

#[test]
fn login_joins_job_started_by_run() {
    on_node(|node| {
        let id = unique_id(node);
        let options = [
            "run",
            "--user",
            "alice",
            "--id",
            &id,
            "--device",
            "/dev/nvidia0",
            "--",
        ];
        let mut command = node.daemon(&node.outside(), "job-adopt");
        let mut run = command
            .args(options)
            .args(["sleep", "infinity"])
            .spawn()
            .unwrap();
        eventually("the job is there", || {
            node.exists(&format!("/run/job-adopt/jobs/1001/{id}.json"))
        });
        let gpus = [("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)];
        let outcome = node.sshd().ssh(ALICE, LOOK).ok().devices(&gpus);
        node.unregister(&id).ok();
        eventually("run ends", || run.try_wait().unwrap().is_some());
        assert!(!Cgroup::new(outcome.cgroup()).exists());
    });
}

#[test]
fn unknown_name_gives_same_error_in_every_command() {
    on_node(|node| {
        let job = start_unregistered_job(node);
        let wrong = [
            ("--gpu", "nvidia0"),
            ("--gpu", "0,1"),
            ("--cdi", "nvidia.com/gpu"),
            ("--gres", "gpu:0-3"),
            ("--gres", "gpu::0"),
            ("--device", "@HPC"),
            ("--device-dir", "site"),
        ];
        for (option, value) in wrong {
            let lines = [
                vec!["devices", option, value],
                register_arguments(&job, &[option, value]),
                vec!["run", "--user", "alice", option, value, "--", "true"],
            ];
            for line in lines {
                let message = format!("invalid value '{value}' for '{option} ");
                node.job_adopt(&line).exits(2).says(&message);
            }
        }
        assert!(!node.exists(&job.record_path()));
    });
}

#[test]
fn devices_names_missing_device() {
    on_node(|node| {
        let outcome = node
            .job_adopt(&["devices", "--cgroup", "/nonexist"])
            .exits(3);
        outcome.says("job-adopt: open cgroup /nonexist: ");
        node.sh("mkdir -p /run/site/4242").ok();
        node.job_adopt(&["devices", "--device-dir", "/run/site/4242"])
            .exits(0)
            .says("no device");
        node.job_adopt(&["devices", "imex/2048"])
            .exits(1)
            .says("refused: ");
    });
}

#[test]
fn every_subcommand_prints_help() {
    on_node(|node| {
        for command in [
            "run",
            "register",
            "unregister",
            "list",
            "resolve",
            "devices",
            "use",
        ] {
            node.job_adopt(&[command, "--help"])
                .exits(0)
                .says("job-adopt")
                .says(command);
            node.job_adopt(&[command, "--no-such-option"])
                .exits(2)
                .says("--no-such-option");
        }
        node.job_adopt(&["--help"]).exits(0).says("register");
        node.job_adopt(&["-h"]).exits(0).says("register");
        node.job_adopt(&["-V"]).exits(0).says("job-adopt ");
        node.job_adopt(&["registre"]).exits(2).says("'register'");
        node.job_adopt(&["list", "--jsno"])
            .exits(2)
            .says("'--json'");
        node.job_adopt(&[]).exits(2);
    });
}

/// Usage errors come before root's rights, the configuration and the registry.
#[test]
fn wrong_usage_exits_with_status_2_before_other_checks() {
    on_node(|node| {
        node.configure("no such line\n");
        for line in [
            "run --user alice",
            "run --user root --policy closed -- true",
            "register --id 4242",
            "register --id 4242 --uid 0 --cgroup /a --policy closed",
            "register --id 4242 --uid 1001 --cgroup /a --started 0",
            "unregister",
            "unregister ../x",
            "unregister --timeout x 7",
            "list --jsno",
            "devices --cgroup a",
            "devices --would-deny",
            "check --live alice",
            "guard --uid 1001",
            "callerid x",
            "completions tcsh",
        ] {
            let alone = "setpriv --reuid 1001 --regid 1001 --clear-groups job-adopt";
            let outcome = node.sh(&format!("{alone} {line} </dev/null")).exits(2);
            assert_eq!(outcome.stdout, "", "{outcome}");
            assert!(outcome.stderr.lines().count() <= 2, "{outcome}");
            node.sh(&format!("job-adopt {line} </dev/null")).exits(2);
        }
    });
}

#[test]
fn shell_completes_commands_and_options() {
    on_node(|node| {
        node.sh("job-adopt completions bash >/run/completions").ok();
        let words = "COMP_WORDS=(job-adopt \"$@\"); COMP_CWORD=$#";
        let asked = format!(
            "bash -c '. /run/completions; {words}; _job-adopt job-adopt \"${{@: -1}}\"; echo \"${{COMPREPLY[@]}}\"' bash"
        );
        node.sh(&format!("{asked} unr")).ok().says("unregister");
        node.sh(&format!("{asked} check --ver"))
            .ok()
            .says("--verbose");
        for shell in ["zsh", "fish"] {
            node.job_adopt(&["completions", shell])
                .ok()
                .says("unregister")
                .says("timeout");
        }
    });
}

#[test]
fn user_cannot_hold_lock_of_metrics() {
    on_node(|node| {
        node.write("/usr/bin/journalctl", "#!/bin/sh\n");
        node.set_mode("/usr/bin/journalctl", 0o755);
        node.job_adopt(&["metrics"]).ok();
        let alone = "setpriv --reuid 1001 --regid 1001 --clear-groups";
        let held = node.sh(&format!(
            "{alone} flock /var/lib/job-adopt/.metrics.lock true"
        ));
        held.fails().says("Permission denied");
    });
}

/// The journal has text of all users.
#[test]
fn journal_is_read_without_rights_of_root() {
    on_node(|node| {
        node.write("/run/asked", "");
        node.set_mode("/run/asked", 0o666);
        let note = "#!/bin/sh\necho \"$(id -ru) $(id -u) $(id -G)\" >>/run/asked\n";
        node.write("/usr/bin/journalctl", note);
        node.set_mode("/usr/bin/journalctl", 0o755);
        node.sh("sed -i /^systemd-journal:/d /etc/group").ok();
        node.job_adopt(&["metrics"]).ok();
        node.sh("echo systemd-journal:x:190: >>/etc/group").ok();
        node.job_adopt(&["metrics"]).ok();
        node.job_adopt(&["compare"]).exits(3);
        let uid = HELPER.uid;
        let expected = format!("{uid} {uid} {uid}\n{uid} {uid} 190\n{uid} {uid} 190\n");
        assert_eq!(node.read("/run/asked"), expected);
        node.sh("sed -i /^job-adopt:/d /etc/passwd").ok();
        node.job_adopt(&["compare"])
            .exits(3)
            .says("system user job-adopt does not exist");
        assert_eq!(node.read("/run/asked"), expected);
    });
}

/// Root reads files that no login can.
#[test]
fn names_are_not_resolved_with_rights_of_root() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let register = [
            "register",
            "--id",
            "4242",
            "--user",
            "alice",
            "--device",
            "/dev/nvidia0",
            "--cgroup",
            job.cgroup.path(),
        ];
        let devices = ["devices", "/dev/nvidia0"];
        // Taking the rights fails, and then giving them back.
        let run = |fault: &str, words: &[&str]| {
            let inject = format!("inject={fault}");
            let strace = ["-qq", "-o", "/dev/null", "-e", &inject, "job-adopt"];
            node.run("strace", &[&strace, words].concat())
        };
        let assert_fails_before = |words: &[&str]| {
            for call in ["setgroups", "setresgid", "setresuid"] {
                run(&format!("{call}:error=EPERM:when=1"), words)
                    .exits(3)
                    .says("take the rights of job-adopt: Operation not permitted");
            }
        };
        let assert_fails_behind = |words: &[&str]| {
            for call in ["setgroups", "setresgid", "setresuid"] {
                let outcome = run(&format!("{call}:error=EPERM:when=2+"), words);
                assert!(outcome.code > 128, "{call}: {outcome}");
            }
        };
        assert_fails_before(&devices);
        assert_fails_before(&register);
        assert_fails_behind(&devices);
        assert_fails_behind(&register);
        node.sh("sed -i /^job-adopt:/d /etc/passwd").ok();
        let missing = "the system user job-adopt does not exist";
        node.job_adopt(&devices).exits(3).says(missing);
        node.job_adopt(&register).exits(3).says(missing);
        assert!(!node.exists(&job.record_path()));
        assert_eq!(job.cgroup.filters(), []);
    });
}

#[test]
fn config_shows_each_key_with_its_origin() {
    on_node(|node| {
        node.write(
            "/etc/security/site.conf",
            "# ours\nenv = gpus\n[devices]\nfpga = /dev/fuse\n",
        );
        node.reporting("conf=/etc/security/site.conf");
        let shown = node.job_adopt(&["config", "--json"]).ok().stdout;
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let find = |key: &str| {
            let mut settings = shown["settings"].as_array().unwrap().iter();
            let setting = settings.find(|setting| setting["key"] == key).unwrap();
            ["value", "from"].map(|name| setting[name].as_str().unwrap().to_owned())
        };
        assert_eq!(find("env"), ["gpus", "/etc/security/site.conf:2"]);
        assert_eq!(
            find("[devices] fpga"),
            ["/dev/fuse", "/etc/security/site.conf:4"]
        );
        assert_eq!(find("end_grace"), ["2", "default"]);
        assert_eq!(find("hint"), ["", "default"]);
        for line in ["account line", "session line"] {
            let [arguments, origin] = find(line);
            assert!(
                arguments.contains("conf=/etc/security/site.conf"),
                "{arguments}"
            );
            assert!(origin.starts_with("/etc/pam.d/sshd:"), "{origin}");
        }
        node.job_adopt(&["config"])
            .ok()
            .says("end_grace")
            .says("default");
        let other = node.job_adopt(&["config", "--conf", "/etc/security/none.conf"]);
        other.exits(3);
        node.write("/etc/security/site.conf", "env = gpu\n");
        let wrong = node.job_adopt(&["config"]).exits(3);
        assert!(
            wrong.stderr.contains("site.conf:1: the value of env"),
            "{wrong}"
        );
    });
}
