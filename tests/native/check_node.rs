//! `job-adopt check` finds faults of the node itself, and leaves the node as it was.

use serde_json::Value;

use crate::support::{ALICE, BOB, Flags, Mount, Node, Outcome, eventually, on_node, on_node_with};

/// The findings of `check`, whatever its exit status.
pub(crate) struct Checked {
    outcome: Outcome,
    findings: Vec<Value>,
}

impl Checked {
    /// Runs `check` behind this shell command, as in `unshare --mount`.
    pub(crate) fn behind(node: &Node, words: &str, options: &str) -> Self {
        Self::of(node.sh(&format!("{words} job-adopt check --json {options}")))
    }

    fn of(outcome: Outcome) -> Self {
        let report = serde_json::from_str::<Value>(&outcome.stdout);
        let report = report.unwrap_or_else(|error| panic!("{error}: {outcome}"));
        let findings = report["findings"].as_array().unwrap().clone();
        Self { outcome, findings }
    }

    fn all<'a>(&'a self, check: &'a str) -> impl Iterator<Item = &'a Value> {
        self.findings
            .iter()
            .filter(move |finding| finding["check"] == check)
    }

    /// Asserts that a check reports this text with this severity.
    #[track_caller]
    pub(crate) fn says(&self, severity: &str, check: &str, text: &str) -> &Self {
        let says = |finding: &Value| {
            let line = format!("{} {}", finding["object"], finding["text"]);
            finding["severity"] == severity && line.contains(text)
        };
        assert!(
            self.all(check).any(says),
            "no {severity} {check} {text:?}: {}",
            self.outcome
        );
        self
    }

    /// Asserts that a check reports no such text.
    #[track_caller]
    pub(crate) fn spares(&self, check: &str, text: &str) -> &Self {
        let says =
            |finding: &Value| format!("{} {}", finding["object"], finding["text"]).contains(text);
        assert!(
            !self.all(check).any(says),
            "{check} {text:?}: {}",
            self.outcome
        );
        self
    }

    /// Asserts that these checks report nothing graver than a note.
    #[track_caller]
    fn finds_nothing(&self, checks: &[&str]) {
        for check in checks {
            let reported: Vec<&Value> = self.all(check).collect();
            assert!(
                !reported.is_empty(),
                "{check} says nothing: {}",
                self.outcome
            );
            let calm = |finding: &&Value| finding["severity"] == "fine";
            assert!(reported.iter().all(calm), "{check}: {reported:?}");
        }
    }
}

fn check(node: &Node) -> Checked {
    Checked::behind(node, "", "")
}

/// Checks that pass on a node of the tests.
const PASSED: [&str; 11] = [
    "cgroup-mount",
    "sshd-server",
    "kernel-cgroup",
    "kernel-device-filter",
    "kernel-filter-query",
    "kernel-filter-holds",
    "kernel-freezer",
    "kernel-trusted-xattr",
    "kernel-pidfd",
    "proc-hidepid",
    "users-outside-jobs",
];

/// Lists the cgroups in the root of the machine's mount that a check of this node has made.
fn leftover_cgroups(node: &Node) -> Vec<String> {
    let space = node.sh("readlink /proc/self/ns/pid").ok().stdout;
    let space: String = space.chars().filter(char::is_ascii_digit).collect();
    let names = node.sh("ls /sys/fs/cgroup").ok().stdout;
    let ours = format!("job-adopt-check-{space}-");
    names
        .lines()
        .filter(|name| name.starts_with(&ours))
        .map(str::to_owned)
        .collect()
}

#[test]
fn sound_node_has_no_finding_and_no_leftover() {
    on_node(|node| {
        let _sshd = node.sshd();
        let _job = node.job(ALICE, "4242").start();
        check(node).finds_nothing(&PASSED);
        assert_eq!(leftover_cgroups(node), [""; 0]);
    });
}

#[test]
fn leftover_of_killed_check_is_removed() {
    on_node(|node| {
        let space = node
            .sh("readlink /proc/self/ns/pid | tr -dc 0-9")
            .ok()
            .stdout;
        let name = format!("job-adopt-check-{space}-999999");
        node.sh(&format!("mkdir /sys/fs/cgroup/{name}")).ok();
        assert_eq!(leftover_cgroups(node).len(), 1);
        check(node);
        assert_eq!(leftover_cgroups(node), [""; 0]);
    });
}

#[test]
fn check_writes_to_no_other_cgroup_than_its_own() {
    on_node(|node| {
        let _sshd = node.sshd();
        let job = node.job(ALICE, "4242").start();
        let processes = job.cgroup.pids();
        let trace = "trace=open,openat,openat2";
        let strace = ["-f", "-y", "-qq", "-o", "/tmp/strace", "-e", trace];
        node.run(
            "strace",
            &[&strace[..], &["job-adopt", "check", "--verbose"]].concat(),
        );
        let log = node.read("/tmp/strace");
        let writes = |line: &&str| line.contains("</sys/fs/cgroup") && line.contains("O_WRONLY");
        let writes: Vec<&str> = log.lines().filter(writes).collect();
        // A child of it stands where sshd does, and reads there what a login reads.
        let place_of_sshd = format!("{}>, \"cgroup.procs\"", node.outside().path());
        let is_expected = |line: &&str| {
            line.contains("</sys/fs/cgroup/job-adopt-check-") || line.contains(&place_of_sshd)
        };
        assert!(!writes.is_empty(), "{log}");
        assert!(writes.iter().all(is_expected), "{writes:#?}");
        assert_eq!(
            (leftover_cgroups(node), job.cgroup.pids()),
            (Vec::new(), processes)
        );
    });
}

#[test]
fn choices_on_the_file_system_of_run_are_found() {
    on_node(|node| {
        node.sh("install -d -m 0755 /run/job-adopt/use").ok();
        check(node).says(
            "warning",
            "use-mount",
            "any user who has logged in to a job can fill it",
        );
        node.sh("mount -t tmpfs -o mode=0755 tmpfs /run/job-adopt/use")
            .ok();
        check(node).finds_nothing(&["use-mount"]);
    });
}

#[test]
fn read_only_mount_is_found() {
    on_node(|node| {
        let readonly = "unshare --mount sh -c 'mount -o remount,bind,ro /sys/fs/cgroup && exec \
                        \"$@\"' sh";
        let checked = Checked::behind(node, readonly, "");
        checked
            .says("error", "cgroup-mount", "read-only")
            .says("error", "kernel-cgroup", "");
        let covered =
            "unshare --mount sh -c 'mount -t tmpfs tmpfs /sys/fs/cgroup && exec \"$@\"' sh";
        Checked::behind(node, covered, "").says("error", "cgroup-mount", "no cgroup v2");
        let part = "unshare --mount sh -c 'cd /sys/fs/cgroup && mkdir -p ja-check-part && mount --bind \
                    ja-check-part /sys/fs/cgroup && exec \"$@\"' sh";
        Checked::behind(node, part, "").says("error", "cgroup-mount", "another cgroup namespace");
        node.sh("rmdir /sys/fs/cgroup/ja-check-part").ok();
    });
}

/// `ProtectControlGroups=` and a private `/run` of sshd's unit have this effect.
#[test]
fn path_hidden_from_sshd_is_found() {
    on_node(|node| {
        let _sshd = node.sshd();
        let script = "mount -o remount,bind,ro /sys/fs/cgroup; mount -t tmpfs tmpfs /run; \
                      mkdir /run/sshd /run/job-adopt; \
                      exec /usr/sbin/sshd -D -f /etc/ssh/sshd_config -p 2222";
        let mut command = node.daemon(&node.outside(), "unshare");
        let mut other = command
            .args(["--mount", "sh", "-c", script])
            .spawn()
            .unwrap();
        eventually("the other sshd listens", || is_listening(node));
        let checked = check(node);
        checked
            .says("error", "sshd-cgroup-mount", "read-only")
            .says("error", "sshd-files", "/run/job-adopt")
            .says("error", "sshd-files", "does not see it")
            .says("fine", "sshd-server", "the same mounts");
        let _ = other.kill();
        let _ = other.wait();
    });
}

/// Returns whether a process on the node listens, in the node's network namespace.
fn is_listening(node: &Node) -> bool {
    node.sh("cat /proc/net/tcp")
        .stdout
        .contains(":08AE 00000000:0000 0A")
}

#[test]
fn hidden_processes_are_found() {
    on_node(|node| {
        let hidden = |gid: &str| {
            format!(
                "unshare --mount sh -c 'mount -t proc -o hidepid=2{gid} proc /proc && exec \"$@\"' sh"
            )
        };
        Checked::behind(node, &hidden(""), "").says("warning", "proc-hidepid", "hidepid=");
        Checked::behind(node, &hidden(",gid=1100"), "").says("warning", "proc-hidepid", "gid=1100");
        Checked::behind(node, &hidden(",gid=990"), "").says("fine", "proc-hidepid", "gid=990");
    });
}

/// Makes `systemctl show` report every slice but these as closed, as a drop-in does.
fn fake_closed_slices_except(node: &Node, open: &str) {
    node.create_dir("/run/systemd/system", 0o755);
    let text = format!(
        "#!/bin/sh\nfor unit; do case $unit in {open}) printf 'DevicePolicy=auto\\n\\n';; \
         *.slice) printf 'DevicePolicy=closed\\n\\n';; esac; done\n"
    );
    node.write("/run/systemctl", &text);
    node.sh("install -m 0755 /run/systemctl /usr/bin/systemctl")
        .ok();
}

/// The policy files do not count: the bus answers any user.
#[test]
fn permissive_bus_policy_is_found() {
    on_node(|node| {
        fake_closed_slices_except(node, "user-0.slice");
        node.configure("flux_user = no-such-user\n");
        node.create_dir("/run/dbus", 0o755);
        node.sh("rm -f /run/dbus/system_bus_socket").ok();
        check(node).says("fine", "bus-closed", "none on this node");
        node.write("/run/dbus/system_bus_socket", "");
        for (answer, severity) in [
            ("Call failed: Access denied", "fine"),
            (
                "Call failed: Unit job-adopt-no-such.service not loaded.",
                "warning",
            ),
            ("Failed to connect to bus", "unknown"),
        ] {
            let user = "test $(id -u) = 65534 || echo not loaded to root >&2";
            node.write(
                "/run/busctl",
                &format!("#!/bin/sh\n{user}\necho '{answer}' >&2\nexit 1\n"),
            );
            node.sh("install -m 0755 /run/busctl /usr/bin/busctl").ok();
            check(node).says(severity, "bus-closed", "");
        }
    });
}

#[test]
fn open_user_slices_are_found() {
    on_node(|node| {
        check(node).says("note", "slices-drop-in", "systemd does not run");
        fake_closed_slices_except(node, "*.slice");
        check(node).says("warning", "slices-drop-in", "can open every device");
        node.configure("flux_user = no-such-user\n");
        fake_closed_slices_except(node, "user-0.slice");
        check(node)
            .says("fine", "slices-drop-in", "closed")
            .spares("slices-exempt", "");
        node.configure("flux_user = no-such-user\nexempt_uids = 1002\n");
        check(node).says("warning", "slices-exempt", "user-1002.slice");
        fake_closed_slices_except(node, "user-0.slice|user-1002.slice");
        check(node).spares("slices-exempt", "");
        // `check` waits for 10 s, and asks other questions besides.
        let hanging = "#!/bin/sh\ncase $* in *DevicePolicy*) exec sleep 100 ;; esac\n";
        node.write("/run/systemctl", hanging);
        node.sh("install -m 0755 /run/systemctl /usr/bin/systemctl")
            .ok();
        check(node).says("unknown", "slices-drop-in", "no answer in");
    });
}

#[test]
fn closed_slices_with_logins_are_warned_about() {
    on_node(|node| {
        fake_closed_slices_except(node, "user-0.slice");
        let observed = |of: &Node| {
            check(of).says("warning", "slices-observe", "lose their GPUs");
        };
        check(node).spares("slices-observe", "");
        node.arguments("observe");
        observed(node);
        node.arguments("");
        node.configure("enforce = if-exists:/no/such/path\n");
        observed(node);
        fake_closed_slices_except(node, "*.slice");
        check(node)
            .spares("slices-observe", "")
            .spares("slices-drop-in", "");
    });
}

#[test]
fn slice_without_filter_is_found() {
    on_node_with(Mount::Namespace, |node| {
        fake_closed_slices_except(node, "user-0.slice|user-1002.slice");
        node.configure("exempt_uids = 1002\n");
        let users = node.cgroup().child("user.slice").create().clone();
        let [hers, his] = [ALICE, BOB].map(|user| {
            users
                .child(&format!("user-{}.slice", user.uid))
                .create()
                .clone()
        });
        check(node)
            .says("warning", "slices-closed", "user-1001.slice")
            .spares("slices-closed", "user-1002");
        hers.attach(Flags::Multi, "sd_devices", &["195:1"]);
        check(node).says("fine", "slices-closed", "every user's slice");
        his.attach(Flags::Multi, "sd_devices", &["195:1"]);
        check(node).says("warning", "slices-exempt", "user-1002.slice");
        // systemd leaves a filter on a slice that a drop-in no longer closes.
        node.arguments("observe");
        check(node).spares("slices-observe", "user-1001.slice");
        fake_closed_slices_except(node, "user-4294967293.slice|user-1001.slice");
        check(node)
            .says("warning", "slices-observe", "user-1001.slice")
            .spares("slices-observe", "user-1002.slice");
    });
}

#[test]
fn processes_outside_jobs_are_counted() {
    on_node(|node| {
        let _sshd = node.sshd();
        let _job = node.job(ALICE, "4242").start();
        let mut stray = node.daemon(&node.outside(), "setpriv");
        stray.args([
            "--reuid",
            "1001",
            "--regid",
            "1001",
            "--clear-groups",
            "sleep",
            "infinity",
        ]);
        let mut stray = stray.spawn().unwrap();
        let stands = || {
            Checked::behind(node, "", "")
                .all("users-outside-jobs")
                .any(|it| it["severity"] == "note")
        };
        eventually("it is found", stands);
        check(node)
            .says("note", "users-outside-jobs", "1 of their processes")
            .says("note", "users-outside-jobs", "alice");
        // Else the note would name all who are logged in, beside a command that ends their processes.
        node.sh(
            "cp /etc/pam.d/sshd /run/lines; sed -i '/^session.*pam_job_adopt/d' /etc/pam.d/sshd",
        )
        .ok();
        check(node).spares("users-outside-jobs", "alice");
        node.sh("cp /run/lines /etc/pam.d/sshd").ok();
        // Nor does `strays --kill` end anything here.
        node.arguments("action_no_jobs=ignore");
        check(node).spares("users-outside-jobs", "alice");
        let _ = stray.kill();
        let _ = stray.wait();
    });
}

#[test]
fn daemon_that_runs_user_commands_is_found() {
    on_node(|node| {
        fake_closed_slices_except(node, "user-0.slice");
        node.sh("install -m 0755 /bin/sleep /usr/sbin/cron").ok();
        let mut cron = node.daemon(&node.outside(), "/usr/sbin/cron");
        let mut cron = cron.arg("60").spawn().unwrap();
        let stands = || {
            check(node)
                .all("cron-closed")
                .any(|it| it["severity"] == "warning")
        };
        eventually("it is found", stands);
        let _ = cron.kill();
        let _ = cron.wait();
    });
}

/// The scheduler has ended the job without `unregister`.
#[test]
fn record_of_job_that_is_gone_is_found() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        check(node).spares("records", "whose cgroup is gone");
        job.cgroup.remove();
        check(node).says("warning", "records", "is of a job whose cgroup is gone");
        node.pam(ALICE).says("[JA01]");
        node.unregister("4242").ok();
        check(node).spares("records", "whose cgroup is gone");
    });
}

/// The helper reads records without root's rights, and the module joins no cgroup without the stamp.
#[test]
fn record_that_no_login_can_use_is_found() {
    on_node(|node| {
        node.configure("sources = registry\n");
        let job = node.job(ALICE, "4242").start();
        let folder = "/run/job-adopt/jobs/1001";
        check(node).finds_nothing(&["registry"]);
        node.sh(&format!("chmod 700 {folder}")).ok();
        node.pam(ALICE).says("[JA09]");
        check(node).says("error", "records", "makes logins of alice fail (JA09)");
        node.sh(&format!("chmod 755 {folder}")).ok();
        check(node).spares("records", "makes logins of alice");
        job.unstamp();
        node.session(ALICE).fails().says("[JA07]");
        check(node).says(
            "error",
            "records",
            "makes logins of alice to job 4242 fail (JA07)",
        );
    });
}

/// As in a container: root's rights would read what no login can, and content would be untrue.
#[test]
fn files_are_not_judged_where_the_helpers_rights_cannot_be_taken() {
    on_node(|node| {
        node.configure("sources = registry\n");
        let _job = node.job(ALICE, "4242").start();
        let checked = Checked::behind(node, "setpriv --bounding-set=-setuid", "");
        let text = "could not be read as a login reads it";
        checked
            .says("unknown", "configuration", text)
            .says("unknown", "registry", text);
        // Without the account, which is an error itself, root's rights have to do.
        node.configure("sources = nothing\n");
        node.sh("sed -i '/^job-adopt:/d' /etc/passwd").ok();
        check(node).says("error", "account", "job-adopt").says(
            "error",
            "configuration",
            "has a mistake",
        );
    });
}

/// Root reads the file, and the helper, which tells the module of the lines, does not.
#[test]
fn auth_lines_that_no_login_can_read_are_found() {
    on_node(|node| {
        node.write("/etc/pam.d/common-x", "auth required pam_permit.so\n");
        node.write_stack(
            "auth required pam_job_adopt.so\nauth include common-x\nauth required pam_job_adopt.so\n\
             account required pam_job_adopt.so\nsession required pam_job_adopt.so\n",
        );
        let text = "logins to jobs with private files are refused (JA09)";
        check(node).spares("pam-auth", text);
        node.sh("chmod 600 /etc/pam.d/common-x").ok();
        check(node)
            .says("error", "pam-auth", text)
            .says("error", "pam-auth", "common-x");
        // Its lines of all groups are read then, and one finding names the cause.
        let stack = node.read("/etc/pam.d/sshd");
        let all = stack.replace("auth include common-x", "@include common-x");
        node.write("/etc/pam.d/sshd", &all);
        check(node)
            .says("error", "pam-session", "every login is refused (JA09)")
            .spares("pam-auth", text);
    });
}

/// A record that a newer version wrote is broken, and the job runs: `unregister` would end it.
#[test]
fn broken_record_has_command_only_once_its_cgroup_is_gone() {
    on_node(|node| {
        node.configure("sources = registry\n");
        let job = node.job(ALICE, "4242").start();
        let record = "/run/job-adopt/jobs/1001/4242.json";
        node.sh(&format!("sed -i 's/{{/{{\"newer\":1,/' {record}"))
            .ok();
        let commands = || -> Vec<Value> {
            let checked = check(node);
            checked.says("error", "records", "makes logins of alice fail");
            let findings = checked.all("records");
            findings.map(|finding| finding["command"].clone()).collect()
        };
        assert_eq!(commands(), [""]);
        job.cgroup.remove();
        assert_eq!(commands(), ["job-adopt unregister 4242"]);
        node.sh(&format!("rm {record}")).ok();
    });
}
