//! `job-adopt check` finds what of the node itself is amiss, and leaves it as it was.

use serde_json::Value;

use crate::support::{ALICE, Mount, Node, Outcome, User, eventually, on_node, on_node_with};

/// What `check` says, whatever its exit status.
pub(crate) struct Checked {
    outcome: Outcome,
    findings: Vec<Value>,
}

impl Checked {
    /// Runs it behind these words of a shell, as in `unshare --mount`.
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
        self.findings.iter().filter(move |finding| finding["check"] == check)
    }

    /// Asserts that a check says this of what it is about.
    #[track_caller]
    pub(crate) fn says(&self, severity: &str, check: &str, text: &str) -> &Self {
        let says = |finding: &Value| {
            let told = format!("{} {}", finding["object"], finding["text"]);
            finding["severity"] == severity && told.contains(text)
        };
        assert!(self.all(check).any(says), "no {severity} {check} {text:?}: {}", self.outcome);
        self
    }

    /// Asserts that a check says nothing of this kind.
    #[track_caller]
    pub(crate) fn spares(&self, check: &str, text: &str) -> &Self {
        let says =
            |finding: &Value| format!("{} {}", finding["object"], finding["text"]).contains(text);
        assert!(!self.all(check).any(says), "{check} {text:?}: {}", self.outcome);
        self
    }

    /// Asserts that these checks have nothing to say that is graver than a note.
    #[track_caller]
    fn finds_nothing(&self, checks: &[&str]) {
        for check in checks {
            let said: Vec<&Value> = self.all(check).collect();
            assert!(!said.is_empty(), "{check} says nothing: {}", self.outcome);
            let calm = |finding: &&Value| finding["severity"] == "fine";
            assert!(said.iter().all(calm), "{check}: {said:?}");
        }
    }
}

fn check(node: &Node) -> Checked {
    Checked::behind(node, "", "")
}

/// The checks that a node of the tests passes.
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

/// Cgroups in the root of the machine's mount that a check of this node made.
fn left(node: &Node) -> Vec<String> {
    let space = node.sh("readlink /proc/self/ns/pid").ok().stdout;
    let space: String = space.chars().filter(char::is_ascii_digit).collect();
    let names = node.sh("ls /sys/fs/cgroup").ok().stdout;
    let ours = format!("job-adopt-check-{space}-");
    names.lines().filter(|name| name.starts_with(&ours)).map(str::to_owned).collect()
}

#[test]
fn a_good_node_has_nothing_amiss_and_nothing_left() {
    on_node(|node| {
        let _sshd = node.sshd();
        let _job = node.job(ALICE, "4242").start();
        check(node).finds_nothing(&PASSED);
        assert_eq!(left(node), [""; 0]);
    });
}

#[test]
fn what_an_earlier_check_left_that_was_killed_is_removed() {
    on_node(|node| {
        let space = node.sh("readlink /proc/self/ns/pid | tr -dc 0-9").ok().stdout;
        let name = format!("job-adopt-check-{space}-999999");
        node.sh(&format!("mkdir /sys/fs/cgroup/{name}")).ok();
        assert_eq!(left(node).len(), 1);
        check(node);
        assert_eq!(left(node), [""; 0]);
    });
}

#[test]
fn a_mount_that_is_read_only_is_found() {
    on_node(|node| {
        let readonly = "unshare --mount sh -c 'mount -o remount,bind,ro /sys/fs/cgroup && exec \
                        \"$@\"' sh";
        let checked = Checked::behind(node, readonly, "");
        checked.says("error", "cgroup-mount", "read-only").says("error", "kernel-cgroup", "");
        let covered =
            "unshare --mount sh -c 'mount -t tmpfs tmpfs /sys/fs/cgroup && exec \"$@\"' sh";
        Checked::behind(node, covered, "").says("error", "cgroup-mount", "no cgroup v2");
    });
}

/// As `ProtectControlGroups=` and a private `/run` of its unit would have it.
#[test]
fn what_sshd_does_not_see_is_found() {
    on_node(|node| {
        let _sshd = node.sshd();
        let script = "mount -o remount,bind,ro /sys/fs/cgroup; mount -t tmpfs tmpfs /run; \
                      mkdir /run/sshd /run/job-adopt; \
                      exec /usr/sbin/sshd -D -f /etc/ssh/sshd_config -p 2222";
        let mut command = node.daemon(&node.outside(), "unshare");
        let mut other = command.args(["--mount", "sh", "-c", script]).spawn().unwrap();
        eventually("the other sshd listens", || listens(node));
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

/// By a process on the node, whose network it is.
fn listens(node: &Node) -> bool {
    node.sh("cat /proc/net/tcp").stdout.contains(":08AE 00000000:0000 0A")
}

#[test]
fn processes_that_are_hidden_are_found() {
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

#[test]
fn users_who_linger_are_found_unless_they_are_exempt() {
    on_node(|node| {
        node.folder("/var/lib/systemd/linger", 0o755);
        for name in ["alice", "opsuser", "root"] {
            node.write(&format!("/var/lib/systemd/linger/{name}"), "");
        }
        node.configure("exempt_groups = ops\n");
        let checked = check(node);
        checked.says("warning", "users-lingering", "alice");
        checked.spares("users-lingering", "opsuser").spares("users-lingering", "root");
    });
}

#[test]
fn a_drop_in_is_believed_when_systemd_knows_it() {
    on_node(|node| {
        node.folder("/run/systemd/system", 0o755);
        let systemctl = |lines: &str, reload: &str| {
            let text = format!(
                "#!/bin/sh\ncase \"$*\" in *cat*) printf '{lines}';; *) echo {reload};; esac\n"
            );
            node.write("/run/systemctl", &text);
            node.sh("install -m 0755 /run/systemctl /usr/bin/systemctl").ok();
        };
        systemctl("[Service]\\nExecStart=/lib/systemd/x\\n", "no");
        check(node).says("warning", "guard-drop-in", "nothing guards");
        systemctl("[Service]\\nExecStartPost=/usr/bin/job-adopt guard --uid %%i\\n", "no");
        check(node).says("fine", "guard-drop-in", "is guarded");
        systemctl("ExecStartPost=/usr/bin/job-adopt guard --uid %%i\\n", "yes");
        check(node).says("warning", "guard-drop-in", "not read it");
        systemctl("ExecStartPost=-/usr/bin/job-adopt guard --uid %%i\\n", "no");
        check(node).says("warning", "guard-drop-in", "may fail");
        node.write("/run/systemctl", "#!/bin/sh\nsleep 100\n");
        node.sh("install -m 0755 /run/systemctl /usr/bin/systemctl").ok();
        check(node).says("unknown", "guard-drop-in", "timed out");
    });
}

#[test]
fn a_slice_without_its_guard_is_found() {
    on_node_with(Mount::Namespace, |node| {
        node.cgroup().child("user.slice").create();
        let slice = |user: User| {
            let name = format!("user-{}.slice", user.uid);
            node.cgroup().child("user.slice").child(&name).create().clone()
        };
        slice(ALICE);
        check(node).says("warning", "guard-slice", "user-1001.slice").says(
            "warning",
            "guard-slice",
            "not guarded",
        );
        node.job_adopt(&["guard", "--uid", "1001"]).ok();
        check(node).says("fine", "guard-slice", "user-1001.slice");
        node.configure("guarded = char-mem\n");
        check(node).says("warning", "guard-slice", "another list");
        node.configure("exempt_uids = 1001\n");
        check(node).spares("guard-slice", "user-1001");
        node.configure("guarded = none\n");
        check(node).says("warning", "guard-devices", "every device");
        node.configure("guarded = /dev/no-such-device\n");
        let checked = check(node);
        checked.says("warning", "guard-devices", "nothing is guarded");
        checked.spares("guard-slice", "");
        node.configure("enforce = if-exists:/no/such/path\n");
        let checked = check(node);
        checked.spares("guard-slice", "").spares("guard-drop-in", "");
    });
}

#[test]
fn a_slice_that_holds_a_job_is_not_missed() {
    on_node_with(Mount::Namespace, |node| {
        let job = "/user.slice/user-1001.slice/job";
        node.sh(&format!("mkdir -p /sys/fs/cgroup{job}")).ok();
        let record = ["register", "--id", "7", "--uid", "1001", "--policy", "closed"];
        node.job_adopt(&[&record[..], &["--cgroup", job]].concat()).ok();
        check(node).says("note", "guard-slice", "job 7").spares("guard-slice", "every device");
        node.job_adopt(&["unregister", "7"]).ok();
    });
}

#[test]
fn processes_outside_of_jobs_are_counted() {
    on_node(|node| {
        let _sshd = node.sshd();
        let _job = node.job(ALICE, "4242").start();
        let mut stray = node.daemon(&node.outside(), "setpriv");
        stray.args(["--reuid", "1001", "--regid", "1001", "--clear-groups", "sleep", "infinity"]);
        let mut stray = stray.spawn().unwrap();
        let stands = || {
            Checked::behind(node, "", "")
                .all("users-outside-jobs")
                .any(|it| it["severity"] == "note")
        };
        eventually("it is found", stands);
        check(node).says("note", "users-outside-jobs", "1 of their processes").says(
            "note",
            "users-outside-jobs",
            "alice",
        );
        let _ = stray.kill();
        let _ = stray.wait();
    });
}
