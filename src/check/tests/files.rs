//! Tests of checks of files: module, helper, accounts, configuration, records, schedulers.

use super::*;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use protocol::VERSION;
use std::sync::mpsc;
use std::time::Duration;

/// Returns another version, and this version built from other source.
fn other_versions() -> [String; 2] {
    let number = env!("CARGO_PKG_VERSION");
    ["9.9.9+5eed5eed".to_owned(), format!("{number}+5eed5eed")]
}

#[test]
fn module_must_be_writable_by_root_only_and_of_this_version() {
    let so = "usr/lib/security/pam_job_adopt.so";
    let exposed_site = TestSite::new().mode(so, 0o666);
    exposed_site.assert_bad(&["Error module-file pam_job_adopt.so"]);
    exposed_site.assert_mentions("do not give it back, install both packages again");
    TestSite::new()
        .mode("usr/lib/security", 0o777)
        .assert_bad(&["Error module-file pam_job_adopt.so"]);
    TestSite::new()
        .file(so, "x")
        .assert_bad(&["Unknown module-version pam_job_adopt.so"]);
    for version in other_versions() {
        let other = VERSION_MISMATCH.replace(VERSION, &version);
        let site = TestSite::new().file(so, &format!("x\0\u{fffd}{other}y"));
        site.assert_bad(&["Error module-version pam_job_adopt.so"]);
        site.assert_mentions(&format!("is of version {version}"));
    }
    let site = TestSite::new();
    std::fs::remove_file(site.scratch.path().join(so)).unwrap();
    site.assert_bad(&[
        "Error pam-session sshd:8",
        "Error pam-account sshd:3",
        "Error module-file pam_job_adopt.so",
    ]);
    site.assert_mentions("root's too");
    for finding in site.findings() {
        assert!(!finding.remedy.command().contains("disable"), "{finding:?}");
    }
    site.assert_mentions("job-adopt disable takes our lines out");
    std::fs::remove_file(site.scratch.path().join("usr/lib/security/pam_permit.so")).unwrap();
    site.assert_bad(&["Unknown module-file pam_job_adopt.so"]);
}

#[test]
fn registry_below_distrusted_directory_is_no_finding_of_its_own() {
    let registry = "run/job-adopt/jobs";
    TestSite::new()
        .mode(registry, 0o777)
        .assert_bad(&["Error registry jobs"]);
    // The check of that directory reports it.
    TestSite::new().mode("run/job-adopt", 0o777).assert_bad(&[]);
}

#[test]
fn helper_must_be_executable_and_of_this_version() {
    let helper = "usr/libexec/job-adopt/helper";
    let site = TestSite::new().mode(helper, 0o644);
    site.assert_bad(&["Error helper helper"]);
    let path = site.scratch.path().join(helper).display().to_string();
    let command = format!("chmod 0711 {path}");
    let has_command = |checked: &TestSite| {
        let findings = checked.findings();
        findings
            .iter()
            .any(|finding| finding.remedy.command() == command)
    };
    assert!(has_command(&site));
    let foreign_site = site
        .file(helper, "no program of this project")
        .mode(helper, 0o600);
    assert!(!has_command(&foreign_site));
    foreign_site.assert_mentions(&format!("if it is a program of this project, {command}"));
    std::fs::remove_file(&path).unwrap();
    foreign_site.assert_mentions("install both packages again");
    TestSite::new()
        .mode(helper, 0o700)
        .assert_bad(&["Error helper helper"]);
    TestSite::new()
        .mode(helper, 0o4711)
        .assert_bad(&["Error helper helper"]);
    let exposed_site = TestSite::new().mode(helper, 0o733);
    exposed_site.assert_bad(&["Error helper helper"]);
    exposed_site.assert_mentions("do not give it back, install both packages again");
    let open_site = TestSite::new().mode("usr/libexec", 0o777);
    open_site.assert_bad(&["Error helper helper"]);
    let folder = open_site
        .scratch
        .path()
        .join("usr/libexec")
        .display()
        .to_string();
    open_site.assert_mentions(&format!("others could write {folder}: look at it"));
    let line = "pam_job_adopt.so helper=/opt/helper\n";
    TestSite::new()
        .sshd(&SSHD.replace("pam_job_adopt.so\n", line))
        .assert_bad(&["Error helper helper"]);
    for version in other_versions() {
        let other = VERSION_MISMATCH.replace(VERSION, &version);
        TestSite::new()
            .file(helper, &other)
            .mode(helper, 0o711)
            .assert_bad(&["Error helper helper"]);
    }
}

/// Who may write in the folder of a mistyped `helper=` could keep root's `check` waiting, or fill its memory.
#[test]
fn program_that_others_could_write_is_not_opened() {
    let site = TestSite::new().file("sys/fs/selinux/enforce", "1");
    for name in [
        "usr/lib/security/pam_job_adopt.so",
        "usr/libexec/job-adopt/helper",
        "usr/libexec/job-adopt/keeper",
    ] {
        let path = site.scratch.path().join(name);
        let _ = std::fs::remove_file(&path);
        mkfifo(&path, Mode::from_bits_truncate(0o755)).unwrap();
    }
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(site.bad_findings()));
    let findings = receiver.recv_timeout(Duration::from_secs(20));
    let expected = [
        "Error module-file pam_job_adopt.so",
        "Error helper helper",
        "Error keeper keeper",
        "Error selinux helper",
    ];
    assert_eq!(findings.unwrap(), expected);
}

/// The booted node that enforces tests the good case, a label that its policy knows.
#[test]
fn helper_without_our_label_is_an_error_if_selinux_enforces() {
    let with = |enforce| {
        let site = TestSite::new().file("sys/fs/selinux/enforce", enforce);
        site.file("sys/fs/selinux/context", "")
            .mode("usr/libexec/job-adopt/helper", 0o755)
    };
    with("0").assert_bad(&[]);
    let site = with("1");
    site.assert_bad(&["Error selinux helper"]);
    site.assert_mentions("semodule -X 200 -i");
}

#[test]
fn account_that_is_shared_or_root_is_reported() {
    let with = |line: &str| {
        let own = "job-adopt:x:990:990::/:/usr/sbin/nologin";
        TestSite::new().file("etc/passwd", &PASSWD.replace(own, line))
    };
    with("").assert_bad(&["Error account account job-adopt"]);
    with("job-adopt:x:0:990::/:/usr/sbin/nologin").assert_bad(&["Error account account job-adopt"]);
    with("job-adopt:x:990:0::/:/usr/sbin/nologin").assert_bad(&["Error account account job-adopt"]);
    with("job-adopt:x:64030:990::/:/bin/false").assert_bad(&["Warning account account job-adopt"]);
    with("job-adopt:x:65534:990::/:/bin/false").assert_bad(&["Warning account account job-adopt"]);
}

#[test]
fn module_that_is_off_or_not_enforced_is_reported() {
    TestSite::new()
        .file("run/job-adopt/off", "")
        .assert_bad(&["Error switched-off off"]);
    TestSite::new()
        .conf("enforce = if-exists:/none/such\n")
        .assert_bad(&["Warning enforced such"]);
    let site = TestSite::new();
    let root = site.scratch.path().display().to_string();
    let site = site.conf(&format!("enforce = if-exists:{root}/etc/gpus\n"));
    site.assert_bad(&["Note enforced gpus"]);
    let jobs = TestSite::new().file("run/job-adopt/jobs/1001/7.json", "{}");
    let path = jobs.scratch.path().join("etc/gpus");
    let jobs = jobs.conf(&format!("enforce = if-exists:{}\n", path.display()));
    jobs.assert_bad(&["Error enforced gpus", "Error records 7.json"]);
    site.scratch.file("etc/gpus", "");
    site.assert_bad(&[]);
}

#[test]
fn wrong_or_untrusted_configuration_is_an_error() {
    let conf = "etc/security/job_adopt.conf";
    let site = TestSite::new().file(conf, "# site\nenforced = always\n");
    site.assert_bad(&["Error configuration job_adopt.conf"]);
    site.assert_mentions("job_adopt.conf:2: unknown key enforced");
    TestSite::new()
        .mode(conf, 0o666)
        .assert_bad(&["Error configuration job_adopt.conf"]);
    TestSite::new()
        .mode("etc/security", 0o777)
        .assert_bad(&["Error configuration job_adopt.conf"]);
}

#[test]
fn always_allowed_gpu_is_a_warning() {
    let gpus = |text: &str| {
        TestSite::new()
            .file("proc/devices", "Character devices:\n 10 misc\n195 nvidia\n")
            .file("dev/nvidia0", "c 195:0")
            .file("dev/fuse", "c 10:229")
            .conf(&format!("always_allowed = {text}\n"))
    };
    gpus("/dev/fuse").assert_bad(&[]);
    gpus("/dev/nvidia0").assert_bad(&["Warning always-allowed nvidia0 rw"]);
    gpus("char-nvidia").assert_bad(&["Warning always-allowed always_allowed, char-nvidia rw"]);
    gpus("/dev/gone").assert_bad(&[]);
    gpus("/run/x, /dev/fuse").assert_bad(&["Warning always-allowed x"]);
}

#[test]
fn gpu_that_only_its_owner_can_open_is_a_warning() {
    let function = "sys/bus/pci/devices/0000:03:00.0";
    let site = TestSite::new()
        .file("proc/devices", "Character devices:\n226 drm\n")
        .file(&format!("{function}/drm/renderD128/dev"), "226:128\n")
        .file("dev/dri/renderD128", "c 226:128");
    std::os::unix::fs::symlink("../xe", site.scratch.path().join(function).join("driver")).unwrap();
    site.assert_bad(&[]);
    let site = site.mode("dev/dri/renderD128", 0o600);
    site.assert_bad(&["Warning device-modes renderD128"]);
    site.assert_mentions("mode 0600, for its owner alone: others cannot open them");
    let nobody = r#"{"version":1,"id":"7","uid":65534,"cgroup":"/a","cdi":[]}"#;
    let site = site.file("run/job-adopt/jobs/65534/7.json", nobody);
    site.assert_mentions("for its owner alone, which keeps out users with jobs here: nobody");
}

#[test]
fn limit_of_logins_without_controller_is_a_warning() {
    let site = |controllers: &str| {
        let site = TestSite::new().conf("login_memory = 25%\nlogin_tasks = 99\n");
        site.file("sys/fs/cgroup/cgroup.controllers", controllers)
    };
    site("cpu memory pids\n").assert_bad(&[]);
    site("cpuset memory\n").assert_bad(&["Warning login-limits login_tasks"]);
    site("").assert_bad(&[
        "Warning login-limits login_memory",
        "Warning login-limits login_tasks",
    ]);
}

#[test]
fn limit_that_kills_logins_before_it_slows_them_is_a_warning() {
    let site = |conf: &str| {
        let site = TestSite::new().conf(conf);
        site.file("sys/fs/cgroup/cgroup.controllers", "memory\n")
    };
    for conf in [
        "login_memory_high = 2G\n",
        "login_memory = 3G\nlogin_memory_high = 2G\n",
        "login_memory = 30%\nlogin_memory_high = 25%\n",
        "login_memory = 30%\nlogin_memory_high = 2G\n",
        "login_memory = 3G\nlogin_memory_high = 90%\n",
    ] {
        site(conf).assert_bad(&[]);
    }
    for conf in [
        "login_memory = 2G\nlogin_memory_high = 2G\n",
        "login_memory = 30%\nlogin_memory_high = 31%\n",
    ] {
        site(conf).assert_bad(&["Warning login-limits login_memory_high"]);
    }
}

#[test]
fn weight_that_no_disk_counts_is_noted() {
    let site = |costs: &str, schedulers: &str| {
        TestSite::new()
            .conf("login_io_weight = 50\n")
            .file("sys/fs/cgroup/cgroup.controllers", "io\n")
            .file("sys/fs/cgroup/io.cost.qos", costs)
            .file("sys/block/sda/queue/scheduler", schedulers)
    };
    let note = "Note login-limits login_io_weight";
    site("8:0 enable=0 ctrl=auto\n", "none [mq-deadline] bfq\n").assert_bad(&[note]);
    site("8:0 enable=1 ctrl=auto\n", "[none]\n").assert_bad(&[]);
    site("", "mq-deadline [bfq] none\n").assert_bad(&[]);
}

#[test]
fn broken_record_is_an_error() {
    let record =
        r#"{"version":1,"id":"7","uid":5,"cgroup":"/job","options":{"DevicePolicy":"auto"}}"#;
    let site = TestSite::new().file("run/job-adopt/jobs/5/7.json", record);
    site.assert_bad(&[]);
    let site = site.file("run/job-adopt/jobs/5/8.json", "{");
    site.assert_bad(&["Error records 8.json"]);
    site.assert_mentions("register job 8 again, which replaces the record");
    let site = site.conf("sources = registry\n");
    site.assert_mentions("if it has ended: job-adopt unregister");
    site.mode("run/job-adopt/jobs/5", 0o777)
        .assert_bad(&["Error records 5"]);
    TestSite::new()
        .mode("run/job-adopt/jobs", 0o777)
        .assert_bad(&["Error registry jobs"]);
    let new_site = TestSite::new();
    std::fs::remove_dir(new_site.scratch.path().join("run/job-adopt/jobs")).unwrap();
    new_site.assert_bad(&[]);
}

#[test]
fn record_without_numbers_of_today_has_command() {
    let record = r#"{"version":1,"id":"7","uid":5,"via":"slurm","cdi":[]}"#;
    let path = "run/job-adopt/jobs/5/7.json";
    let old_site = TestSite::new().file(path, record);
    old_site.assert_bad(&["Error records 7.json"]);
    old_site.assert_mentions("(JA09): job 7: its record has no device numbers");
    old_site.assert_mentions("job-adopt register --conf ");
    old_site.assert_mentions(" --again 7");

    // It has no names that could be resolved again.
    let silent = r#"{"version":1,"id":"7","uid":5,"via":"slurm"}"#;
    let silent_site = TestSite::new().file(path, silent);
    silent_site.assert_bad(&["Error records 7.json"]);
    silent_site.assert_mentions("register job 7 again, with its devices or --policy auto");

    let resolved =
        r#","resolved":{"boot_id":"b1","rules":["c:1:3:rw"],"drivers":{"c:1":["mem"]},"gpus":[]}}"#;
    let strict = r#"{"version":1,"id":"7","uid":5,"via":"slurm","options":{"DevicePolicy":"strict","DeviceAllow":[["/dev/null","rw"]]}"#;
    let site = TestSite::new()
        .file(path, &format!("{strict}{resolved}"))
        .file("proc/sys/kernel/random/boot_id", "b1\n")
        .file("proc/devices", "Character devices:\n  1 mem\n")
        .file("dev/null", "c 1:3");
    site.assert_bad(&[]);
    let site = site.file("dev/null", "c 1:5");
    site.assert_bad(&["Warning records 7.json"]);
    site.assert_mentions("its names mean c:1:5:rw in place of c:1:3:rw today");
    let site = site.file("proc/sys/kernel/random/boot_id", "b2\n");
    site.assert_bad(&["Error records 7.json"]);
    site.assert_mentions("before the node's last boot");
}

#[test]
fn slurm_must_make_extern_step_and_confine_devices() {
    const GOOD: &str = "ProctrackType=proctrack/cgroup\nTaskPlugin=task/affinity,task/cgroup\n\
                        PrologFlags=Alloc,Contain\n";
    let slurm = |conf: &str, constrains: &str| {
        TestSite::new().file("etc/slurm/slurm.conf", conf).file(
            "etc/slurm/cgroup.conf",
            &format!("ConstrainDevices={constrains}\n"),
        )
    };
    slurm(GOOD, "yes").assert_bad(&[]);
    slurm(&GOOD.replace("Alloc,Contain", "Alloc"), "yes")
        .assert_bad(&["Error slurm-prolog-flags slurm.conf"]);
    slurm(&GOOD.replace("Alloc,Contain", "X11"), "yes").assert_bad(&[]);
    slurm(&GOOD.replace("Alloc,Contain", "RunInJob"), "yes").assert_bad(&[]);
    slurm(&GOOD.replace("task/cgroup", "task/none"), "yes")
        .assert_bad(&["Warning slurm-cgroups slurm.conf"]);
    slurm(
        &GOOD.replace("proctrack/cgroup", "proctrack/linuxproc"),
        "yes",
    )
    .assert_bad(&["Warning slurm-cgroups slurm.conf"]);
    slurm(GOOD, "no").assert_bad(&["Warning slurm-devices slurm.conf"]);
    slurm(GOOD, "no")
        .conf("slurm_devices = closed\n")
        .assert_bad(&[]);
    let text = SSHD.replace("pam_job_adopt.so", "pam_job_adopt.so require_devices");
    slurm(GOOD, "no")
        .sshd(&text)
        .assert_bad(&["Error slurm-devices slurm.conf"]);
    slurm(GOOD, "maybe").assert_bad(&["Error slurm-conf slurm.conf"]);
    slurm("", "no").conf("sources = registry\n").assert_bad(&[]);
    let site = TestSite::new().conf("slurm_conf = /none/slurm.conf\n");
    site.assert_bad(&["Error slurm-conf slurm.conf"]);
    site.assert_mentions("no login finds a Slurm job");
    let findings = site.findings();
    let is_missing = |finding: &&Finding| finding.text.contains("no login finds a Slurm job");
    let missing = findings.iter().find(is_missing).unwrap();
    // Without the key another cluster's file may count.
    assert_eq!(missing.remedy.command(), "");
}

/// Every login to a job in a user namespace is refused.
#[test]
fn user_namespace_of_slurm_jobs_is_named() {
    let slurm = |plugin: &str, settings: &str| {
        let conf = format!(
            "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\nPrologFlags=Contain\n{plugin}\n"
        );
        TestSite::new()
            .file("etc/slurm/slurm.conf", &conf)
            .file("etc/slurm/cgroup.conf", "ConstrainDevices=yes\n")
            .file("etc/slurm/namespace.yaml", settings)
    };
    let linux = "NamespaceType=namespace/linux";
    let user = "defaults:\n  clone_ns_flags:\n    - \"CLONE_NEWPID\"\n    - \"clone_newuser\"\n";
    let site = slurm(linux, user);
    site.assert_bad(&["Error slurm-namespace namespace.yaml:4"]);
    site.assert_mentions("JA07");
    slurm("JobContainerType=namespace/linux", user)
        .assert_bad(&["Error slurm-namespace namespace.yaml:4"]);
    let nodes = "node_confs:\n- nodes: [n1]\n  options: {clone_ns_flags: CLONE_NEWUSER}\n";
    slurm(linux, nodes).assert_bad(&["Warning slurm-namespace namespace.yaml:3"]);
    slurm(
        linux,
        "defaults:\n  clone_ns_flags: CLONE_NEWPID # CLONE_NEWUSER\n",
    )
    .assert_bad(&[]);
    slurm("NamespaceType=namespace/tmpfs", user).assert_bad(&[]);
    slurm("", user).assert_bad(&[]);
}

#[test]
fn flux_account_must_linger_and_jobs_must_run_in_units() {
    let exec = "[ exec ]\nimp = \"/usr/libexec/flux/flux-imp\"\nservice = 'sdexec'\n";
    let flux = |toml: &str| {
        let passwd = format!("{PASSWD}flux:x:500:500::/:/bin/false\n");
        TestSite::new()
            .file("etc/passwd", &passwd)
            .file("etc/flux/system/conf.d/system.toml", toml)
            .file("etc/flux/system/conf.d/exec.toml", exec)
            .file("var/lib/systemd/linger/flux", "")
            .file("usr/libexec/job-adopt/keeper", "")
            .mode("usr/libexec/job-adopt/keeper", 0o711)
    };
    let good = "exec.sdexec-properties = { OOMPolicy = 'continue', Slice = \"app.slice\" }\n\
                [ systemd ] # units\nenable = true\n";
    flux(good).assert_bad(&[]);
    // A comment may be in Latin-1.
    let latin_1_site = flux(good);
    let path = latin_1_site
        .scratch
        .path()
        .join("etc/flux/system/conf.d/system.toml");
    std::fs::write(path, [b"# f\xfcr alle\n", good.as_bytes()].concat()).unwrap();
    latin_1_site.assert_bad(&[]);
    for (key, without) in [
        ("imp", "imp = \"/usr/libexec/flux/flux-imp\"\n"),
        ("service", "service = 'sdexec'\n"),
    ] {
        let site = flux(good).file(
            "etc/flux/system/conf.d/exec.toml",
            &exec.replace(without, ""),
        );
        site.assert_bad(&["Warning flux-exec conf.d"]);
        site.assert_mentions(&format!("[exec] {key}"));
    }
    for (text, by, says) in [
        ("true", "false", "[systemd] enable"),
        ("true", "\"true\"", "[systemd] enable"),
        (
            "exec.sdexec",
            "exec.method = \"bgexec\"\nexec.sdexec",
            "bgexec",
        ),
        ("app.slice", "jobs.slice", "Slice"),
        // Of several files the last one counts.
        (
            "exec.sdexec",
            "exec.service = \"rexec\"\nexec.sdexec",
            "[exec] service",
        ),
    ] {
        let site = flux(&good.replacen(text, by, 1));
        site.assert_bad(&["Warning flux-exec conf.d"]);
        site.assert_mentions(says);
    }
    for policy in ["", "OOMPolicy = 'stop',"] {
        flux(&good.replace("OOMPolicy = 'continue',", policy))
            .assert_bad(&["Warning flux-oom-policy conf.d"]);
    }
    flux("exec = \n").assert_bad(&["Unknown flux-exec system.toml"]);
    let still_site = flux(good).file("etc/pam.d/flux", "session required pam_limits.so\n");
    still_site.assert_bad(&[]);
    let moving_site = still_site.file("etc/pam.d/flux", "session include common\n");
    moving_site.assert_bad(&["Warning flux-pam common:8"]);
    flux(good).conf("sources = registry\n").assert_bad(&[]);
    flux(good)
        .mode("usr/libexec/job-adopt/keeper", 0o600)
        .assert_bad(&["Error keeper keeper"]);
    let idle_site = flux(good);
    std::fs::remove_file(idle_site.scratch.path().join("var/lib/systemd/linger/flux")).unwrap();
    idle_site.assert_bad(&["Warning flux-linger flux"]);
    std::fs::remove_dir_all(idle_site.scratch.path().join("etc/flux")).unwrap();
    idle_site.assert_bad(&[]);
    TestSite::new()
        .conf("flux_user = fluxx\n")
        .assert_bad(&["Warning flux-account fluxx"]);
    TestSite::new()
        .conf("flux_user = fluxx\nsources = registry\n")
        .assert_bad(&[]);
    TestSite::new()
        .conf("flux_user = root\n")
        .assert_bad(&["Error flux-account root"]);
}

#[test]
fn account_that_is_not_locked_and_expired_is_a_warning() {
    for (fields, good) in [
        ("!*:20000::::::", false),
        ("!*:20000:::::1:", true),
        ("*:20000:::::1:", true),
        ("$y$x:20000:::::1:", false),
        ("!*:20000:::::99999:", false),
    ] {
        let site = TestSite::new().file(
            "etc/shadow",
            &format!("root:*:1::::::\njob-adopt:{fields}\n"),
        );
        if good {
            site.assert_bad(&[]);
        } else {
            site.assert_bad(&["Warning account account job-adopt"]);
        }
    }
}

/// Comments and names of people in passwd(5) and in Flux's files may be in any encoding.
#[test]
fn files_that_are_no_utf8_are_read() {
    let exec = "# f\u{fc}r\n[ exec ]\nimp = \"/usr/libexec/flux/flux-imp\"\nservice = 'sdexec'\n\
                sdexec-properties = { OOMPolicy = 'continue', Slice = 'app.slice' }\n\
                [ systemd ]\nenable = true\n";
    let passwd =
        format!("m:x:1001:1:M\u{fc}ller:/:/bin/sh\n{PASSWD}flux:x:500:500::/:/bin/false\n");
    let site = TestSite::new()
        .file("etc/flux/system/conf.d/system.toml", "")
        .file("var/lib/systemd/linger/flux", "")
        .file("usr/libexec/job-adopt/keeper", "")
        .mode("usr/libexec/job-adopt/keeper", 0o711);
    for (file, text) in [
        ("etc/flux/system/conf.d/system.toml", exec),
        ("etc/passwd", passwd.as_str()),
    ] {
        let latin_1: Vec<u8> = text
            .chars()
            .map(|c| u8::try_from(u32::from(c)).unwrap())
            .collect();
        std::fs::write(site.scratch.path().join(file), latin_1).unwrap();
    }
    site.assert_bad(&[]);
}
