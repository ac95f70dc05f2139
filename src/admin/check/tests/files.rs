//! Files: module, helper, accounts, configuration, records, schedulers.

use super::*;
use protocol::VERSION;

/// Another version, and a build of this one from other source.
fn others() -> [String; 2] {
    let number = env!("CARGO_PKG_VERSION");
    ["9.9.9+5eed5eed".to_owned(), format!("{number}+5eed5eed")]
}

#[test]
fn the_modules_file_is_roots_and_of_this_version() {
    let so = "usr/lib/security/pam_job_adopt.so";
    Laid::new().mode(so, 0o666).is(&["Error module-file pam_job_adopt.so"]);
    Laid::new().mode("usr/lib/security", 0o777).is(&["Error module-file pam_job_adopt.so"]);
    Laid::new().file(so, "x").is(&["Unknown module-version pam_job_adopt.so"]);
    for version in others() {
        let other = SPEAKS_TO.replace(VERSION, &version);
        let laid = Laid::new().file(so, &format!("x\0\u{fffd}{other}y"));
        laid.is(&["Error module-version pam_job_adopt.so"]);
        laid.says(&format!("is of version {version}"));
    }
    let laid = Laid::new();
    std::fs::remove_file(laid.scratch.path().join(so)).unwrap();
    laid.is(&["Error module-file pam_job_adopt.so"]);
    laid.says("root's too");
    std::fs::remove_file(laid.scratch.path().join("usr/lib/security/pam_permit.so")).unwrap();
    laid.is(&["Unknown module-file pam_job_adopt.so"]);
}

#[test]
fn what_an_upgrade_has_left_is_named() {
    for (file, end) in [
        ("usr/lib/security/pam_job_adopt.so", ".dpkg-new"),
        ("usr/libexec/job-adopt/resolve", ".new"),
        ("usr/libexec/job-adopt/keeper", ".dpkg-tmp"),
        ("usr/bin/job-adopt", ";65a1f0c3"),
    ] {
        let name = file.rsplit('/').next().unwrap();
        let left = format!("Warning upgrade {name}{end}");
        Laid::new().file(&format!("{file}{end}"), "").is(&[&left]);
        Laid::new().file(&format!("{file}-notes"), "").is(&[]);
    }
}

#[test]
fn the_helper_is_fit_to_be_run() {
    let helper = "usr/libexec/job-adopt/resolve";
    Laid::new().mode(helper, 0o644).is(&["Error helper resolve"]);
    Laid::new().mode(helper, 0o700).is(&["Error helper resolve"]);
    Laid::new().mode(helper, 0o4711).is(&["Error helper resolve"]);
    Laid::new().mode(helper, 0o733).is(&["Error helper resolve"]);
    Laid::new().mode("usr/libexec", 0o777).is(&["Error helper resolve"]);
    let line = "pam_job_adopt.so helper=/opt/resolve\n";
    Laid::new().sshd(&SSHD.replace("pam_job_adopt.so\n", line)).is(&["Error helper resolve"]);
    for version in others() {
        let other = SPEAKS_TO.replace(VERSION, &version);
        Laid::new().file(helper, &other).mode(helper, 0o711).is(&["Error helper resolve"]);
    }
}

/// With a label of ours that the policy in force knows: on the booted node that enforces.
#[test]
fn where_selinux_enforces_the_helper_has_our_label() {
    let with = |enforce| {
        let laid = Laid::new().file("sys/fs/selinux/enforce", enforce);
        laid.file("sys/fs/selinux/context", "").mode("usr/libexec/job-adopt/resolve", 0o755)
    };
    with("0").is(&[]);
    let laid = with("1");
    laid.is(&["Error selinux resolve"]);
    laid.says("semodule -i");
}

#[test]
fn the_account_is_of_its_own() {
    let with = |line: &str| {
        let own = "job-adopt:x:990:990::/:/usr/sbin/nologin";
        Laid::new().file("etc/passwd", &PASSWD.replace(own, line))
    };
    with("").is(&["Error account account job-adopt"]);
    with("job-adopt:x:0:990::/:/usr/sbin/nologin").is(&["Error account account job-adopt"]);
    with("job-adopt:x:990:0::/:/usr/sbin/nologin").is(&["Error account account job-adopt"]);
    with("job-adopt:x:64030:990::/:/bin/false").is(&["Warning account account job-adopt"]);
    with("job-adopt:x:65534:990::/:/bin/false").is(&["Warning account account job-adopt"]);
}

#[test]
fn what_switches_the_module_off_is_told() {
    Laid::new().file("run/job-adopt/off", "").is(&["Error switched-off off"]);
    Laid::new().conf("enforce = if-exists:/none/such\n").is(&["Warning enforced such"]);
    let laid = Laid::new();
    let root = laid.scratch.path().display().to_string();
    let laid = laid.conf(&format!("enforce = if-exists:{root}/etc/gpus\n"));
    laid.is(&["Note enforced gpus"]);
    laid.scratch.file("etc/gpus", "");
    laid.is(&[]);
}

#[test]
fn the_configuration_is_believed_and_right() {
    let conf = "etc/security/job_adopt.conf";
    let laid = Laid::new().file(conf, "# site\nenforced = always\n");
    laid.is(&["Error configuration job_adopt.conf"]);
    laid.says("job_adopt.conf:2: unknown key enforced");
    Laid::new().mode(conf, 0o666).is(&["Error configuration job_adopt.conf"]);
    Laid::new().mode("etc/security", 0o777).is(&["Error configuration job_adopt.conf"]);
}

#[test]
fn keys_that_open_are_told() {
    let gpus = |text: &str| {
        Laid::new()
            .file("proc/devices", "Character devices:\n 10 misc\n195 nvidia\n")
            .file("dev/nvidia0", "c 195:0")
            .file("dev/fuse", "c 10:229")
            .conf(&format!("always_allowed = {text}\n"))
    };
    gpus("/dev/fuse").is(&[]);
    gpus("/dev/nvidia0").is(&["Warning always-allowed nvidia0 rw"]);
    gpus("char-nvidia").is(&["Warning always-allowed always_allowed, char-nvidia rw"]);
    gpus("/dev/gone").is(&[]);
}

#[test]
fn records_are_read() {
    let record = r#"{"version":1,"id":"7","uid":5,"cgroup":"/job","cdi":[]}"#;
    let laid = Laid::new().file("run/job-adopt/jobs/5/7.json", record);
    laid.is(&[]);
    let laid = laid.file("run/job-adopt/jobs/5/8.json", "{");
    laid.is(&["Error records 8.json"]);
    laid.mode("run/job-adopt/jobs/5", 0o777).is(&["Error records 5"]);
    Laid::new().mode("run/job-adopt/jobs", 0o777).is(&["Error registry jobs"]);
    let laid = Laid::new();
    std::fs::remove_dir(laid.scratch.path().join("run/job-adopt/jobs")).unwrap();
    laid.is(&[]);
}

#[test]
fn slurms_configuration_has_what_logins_need() {
    const GOOD: &str = "ProctrackType=proctrack/cgroup\nTaskPlugin=task/affinity,task/cgroup\n\
                        PrologFlags=Alloc,Contain\n";
    let slurm = |conf: &str, constrains: &str| {
        Laid::new()
            .file("etc/slurm/slurm.conf", conf)
            .file("etc/slurm/cgroup.conf", &format!("ConstrainDevices={constrains}\n"))
    };
    slurm(GOOD, "yes").is(&[]);
    slurm(&GOOD.replace("Alloc,Contain", "Alloc"), "yes")
        .is(&["Error slurm-prolog-flags slurm.conf"]);
    slurm(&GOOD.replace("Alloc,Contain", "X11"), "yes").is(&[]);
    slurm(&GOOD.replace("task/cgroup", "task/none"), "yes")
        .is(&["Warning slurm-cgroups slurm.conf"]);
    slurm(&GOOD.replace("proctrack/cgroup", "proctrack/linuxproc"), "yes")
        .is(&["Warning slurm-cgroups slurm.conf"]);
    slurm(GOOD, "no").is(&["Warning slurm-devices slurm.conf"]);
    slurm(GOOD, "no").conf("slurm_devices = closed\n").is(&[]);
    let line = "session required pam_job_adopt.so require_devices\n";
    let text = SSHD.replace("session required pam_job_adopt.so\n", line);
    slurm(GOOD, "no").sshd(&text).is(&["Error slurm-devices slurm.conf"]);
    slurm(GOOD, "maybe").is(&["Error slurm-conf slurm.conf"]);
    slurm("", "no").conf("sources = registry\n").is(&[]);
    let laid = Laid::new().conf("slurm_conf = /none/slurm.conf\n");
    laid.is(&["Error slurm-conf slurm.conf"]);
    laid.says("find none");
}

#[test]
fn fluxs_account_lingers_and_its_jobs_have_units() {
    let flux = |toml: &str| {
        let passwd = format!("{PASSWD}flux:x:500:500::/:/bin/false\n");
        Laid::new()
            .file("etc/passwd", &passwd)
            .file("etc/flux/system/conf.d/system.toml", toml)
            .file("var/lib/systemd/linger/flux", "")
            .file("usr/libexec/job-adopt/keeper", "")
            .mode("usr/libexec/job-adopt/keeper", 0o711)
    };
    let good = "exec.sdexec-properties = { OOMPolicy = 'continue', Slice = \"app.slice\" }\n\
                [ systemd ] # units\nenable = true\n";
    let exec = "[ exec ]\nimp = \"/usr/libexec/flux/flux-imp\"\nservice = 'sdexec'\n";
    let flux = |toml: &str| flux(toml).file("etc/flux/system/conf.d/exec.toml", exec);
    flux(good).is(&[]);
    for (key, without) in
        [("imp", "imp = \"/usr/libexec/flux/flux-imp\"\n"), ("service", "service = 'sdexec'\n")]
    {
        let laid = flux(good).file("etc/flux/system/conf.d/exec.toml", &exec.replace(without, ""));
        laid.is(&["Warning flux-exec conf.d"]);
        laid.says(&format!("[exec] {key}"));
    }
    for (text, by, says) in [
        ("true", "false", "[systemd] enable"),
        ("true", "\"true\"", "[systemd] enable"),
        ("exec.sdexec", "exec.method = \"bgexec\"\nexec.sdexec", "bgexec"),
        ("app.slice", "jobs.slice", "Slice"),
        // Of several files the last one counts.
        ("exec.sdexec", "exec.service = \"rexec\"\nexec.sdexec", "[exec] service"),
    ] {
        let laid = flux(&good.replacen(text, by, 1));
        laid.is(&["Warning flux-exec conf.d"]);
        laid.says(says);
    }
    for policy in ["", "OOMPolicy = 'stop',"] {
        flux(&good.replace("OOMPolicy = 'continue',", policy))
            .is(&["Warning flux-oom-policy conf.d"]);
    }
    flux("exec = \n").is(&["Unknown flux-exec system.toml"]);
    let laid = flux(good).file("etc/pam.d/flux", "session required pam_limits.so\n");
    laid.is(&[]);
    let laid = laid.file("etc/pam.d/flux", "session include common\n");
    laid.is(&["Warning flux-pam common:8"]);
    flux(good).conf("sources = registry\n").is(&[]);
    flux(good).mode("usr/libexec/job-adopt/keeper", 0o600).is(&["Error keeper keeper"]);
    let laid = flux(good);
    std::fs::remove_file(laid.scratch.path().join("var/lib/systemd/linger/flux")).unwrap();
    laid.is(&["Warning flux-linger flux"]);
    std::fs::remove_dir_all(laid.scratch.path().join("etc/flux")).unwrap();
    laid.is(&[]);
    Laid::new().conf("flux_user = fluxx\n").is(&["Warning flux-account fluxx"]);
    Laid::new().conf("flux_user = fluxx\nsources = registry\n").is(&[]);
    Laid::new().conf("flux_user = root\n").is(&["Error flux-account root"]);
}

#[test]
fn the_helpers_account_is_locked_and_expired() {
    for (fields, good) in [
        ("!*:20000::::::", false),
        ("!*:20000:::::1:", true),
        ("*:20000:::::1:", true),
        ("$y$x:20000:::::1:", false),
        ("!*:20000:::::99999:", false),
    ] {
        let laid = Laid::new().file("etc/shadow", &format!("root:*:1::::::\njob-adopt:{fields}\n"));
        match good {
            true => laid.is(&[]),
            false => laid.is(&["Warning account account job-adopt"]),
        }
    }
}
