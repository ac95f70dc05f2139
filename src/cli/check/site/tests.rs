//! The checks, over sites laid out in a folder.

use super::*;
use crate::cli::check::Severity;
use crate::plan::SPEAKS_TO;
use crate::resolve::Config;
use crate::trust::tests::Scratch;

/// A good site, with the stack of the fragment for Debian.
struct Laid {
    scratch: Scratch,
    conf: String,
}

const SSHD: &str = "auth required pam_unix.so\naccount required pam_nologin.so\n\
    account required pam_job_adopt.so\naccount include common\nsession required pam_loginuid.so\n\
    session include common\nsession required pam_limits.so\nsession required pam_job_adopt.so\n";
const COMMON: &str = "account [success=1 new_authtok_reqd=done default=ignore] pam_unix.so\n\
    account requisite pam_deny.so\naccount required pam_permit.so\n\
    session [default=1] pam_permit.so\nsession requisite pam_deny.so\n\
    session required pam_permit.so\nsession required pam_unix.so\nsession optional pam_systemd.so\n";
const PASSWD: &str = "root:x:0:0::/root:/bin/bash\njob-adopt:x:990:990::/:/usr/sbin/nologin\n\
    slurm:x:64030:64030::/:/usr/sbin/nologin\n";

impl Laid {
    fn new() -> Self {
        let scratch = Scratch::new();
        for (name, text) in [
            ("etc/pam.d/sshd", SSHD),
            ("etc/pam.d/common", COMMON),
            ("etc/passwd", PASSWD),
            ("etc/security/job_adopt.conf", ""),
            ("usr/lib/security/pam_permit.so", ""),
            ("usr/lib/security/pam_job_adopt.so", SPEAKS_TO),
            ("usr/libexec/job-adopt/resolve", SPEAKS_TO),
        ] {
            scratch.file(name, text);
        }
        scratch.mode("usr/libexec/job-adopt/resolve", 0o711);
        scratch.dir("run/job-adopt/jobs");
        Self { scratch, conf: String::new() }
    }

    fn file(self, name: &str, text: &str) -> Self {
        self.scratch.file(name, text);
        self
    }

    fn mode(self, name: &str, mode: u32) -> Self {
        self.scratch.mode(name, mode);
        self
    }

    fn sshd(self, text: &str) -> Self {
        self.file("etc/pam.d/sshd", text)
    }

    fn conf(mut self, text: &str) -> Self {
        self.conf = text.to_owned();
        self.file("etc/security/job_adopt.conf", text)
    }

    fn found(&self) -> Vec<Finding> {
        let root = self.scratch.path().to_owned();
        let registry = format!("registry = {}/run/job-adopt/jobs\n", root.display());
        let text = format!("{registry}{}", self.conf);
        let config = Config::parse(text.as_bytes()).unwrap_or_default();
        let conf = root.join("etc/security/job_adopt.conf");
        findings(&Scene { root, service: "sshd".into(), conf, config })
    }

    /// Every finding that is not fine: severity, check and where, the last part of its object.
    fn amiss(&self) -> Vec<String> {
        let bad = self.found().into_iter().filter(|one| one.severity != Severity::Fine);
        let shown = |one: Finding| {
            assert!(!one.text.is_empty(), "{one:?}");
            let end = one.object.rsplit('/').next().unwrap_or_default().to_owned();
            format!("{:?} {} {end}", one.severity, one.check)
        };
        bad.map(shown).collect()
    }

    #[track_caller]
    fn is(&self, expected: &[&str]) {
        assert_eq!(self.amiss(), expected, "{:#?}", self.found());
    }

    /// Whether a text or remedy of a finding that is not fine says this.
    #[track_caller]
    fn says(&self, part: &str) {
        let found = self.found();
        let says = |one: &Finding| one.text.contains(part) || one.remedy.contains(part);
        assert!(found.iter().any(says), "{part}: {found:#?}");
    }
}

#[test]
fn a_good_site_has_nothing_amiss() {
    Laid::new().is(&[]);
}

#[test]
fn a_session_line_that_cannot_be_relied_on_is_an_error() {
    let line = "session required pam_job_adopt.so";
    for (instead, at) in [
        ("session optional pam_job_adopt.so", "sshd:8"),
        ("session sufficient pam_job_adopt.so", "sshd:8"),
        ("session [success=ok default=ignore] pam_job_adopt.so", "sshd:8"),
        ("-session required pam_job_adopt.so", "sshd:8"),
        ("session required pam_job_adopt.so service=login", "sshd:8"),
        ("session required pam_unix.so", "service sshd"),
    ] {
        let laid = Laid::new().sshd(&SSHD.replace(line, instead));
        laid.is(&[&format!("Error pam-session {at}")]);
    }
    for same in [
        "session requisite pam_job_adopt.so",
        "session [success=ok ignore=ignore default=die] pam_job_adopt.so",
        "session required pam_job_adopt.so service=sshd",
    ] {
        Laid::new().sshd(&SSHD.replace(line, same)).is(&[]);
    }
}

#[test]
fn what_skips_the_session_line_is_named() {
    let common = format!("{COMMON}session [success=1 default=ignore] pam_x.so\n");
    let text = SSHD.replace("session required pam_limits.so\n", "");
    let text = format!("{text}session optional pam_motd.so\n");
    let laid = Laid::new().file("etc/pam.d/common", &common).sshd(&text);
    laid.is(&["Error pam-session sshd:7"]);
    laid.says("common:9, which may end the stack or leap over it");
    laid.says("by substack instead of include");
    let common = format!("session sufficient pam_x.so\n{COMMON}");
    let laid = Laid::new().file("etc/pam.d/common", &common);
    laid.is(&["Error pam-session sshd:8"]);
    laid.says("common:1, ");
    let undone = "session [default=reset] pam_x.so\nsession required pam_y.so\n";
    let laid = Laid::new().sshd(&format!("{SSHD}{undone}"));
    laid.is(&["Error pam-session sshd:9"]);
}

#[test]
fn what_skips_the_account_line_is_named() {
    let ours = "account required pam_job_adopt.so\n";
    let late = SSHD.replace(ours, "").replace("common\nsession", &format!("common\n{ours}session"));
    let laid = Laid::new().sshd(&late);
    laid.is(&["Warning pam-account sshd:4"]);
    laid.says("common:1, which may end the stack");
    let local = COMMON.replace("new_authtok_reqd=done", "new_authtok_reqd=ok");
    Laid::new().sshd(&late).file("etc/pam.d/common", &local).is(&[]);
    let local = format!("account sufficient pam_localuser.so\n{local}");
    let laid = Laid::new().sshd(&late).file("etc/pam.d/common", &local);
    laid.is(&["Warning pam-account sshd:4"]);
    laid.says("common:1, ");
    let substack = late.replace("account include", "account substack");
    Laid::new().sshd(&substack).file("etc/pam.d/common", &local).is(&[]);
    Laid::new().sshd(&SSHD.replace(ours, "")).is(&["Warning pam-account service sshd"]);
    let optional = SSHD.replace("account required pam_job", "account optional pam_job");
    Laid::new().sshd(&optional).is(&["Warning pam-account sshd:3"]);
}

#[test]
fn a_stack_without_our_session_line_tells_who_gets_in() {
    let neither = SSHD.replace("pam_job_adopt.so", "pam_unix.so");
    let laid = Laid::new().sshd(&neither);
    laid.is(&["Error pam-session service sshd", "Warning pam-account service sshd"]);
    laid.says("logins are in no job");
    let account = SSHD.replace("session required pam_job_adopt.so", "");
    Laid::new().sshd(&account).says("every login is refused (JA09)");
}

#[test]
fn a_stack_that_cannot_be_read_lets_nobody_in() {
    let laid = Laid::new().sshd(&format!("{SSHD}session include gone\n"));
    assert!(laid.amiss().contains(&"Error pam-session service sshd".to_owned()));
    laid.says("gone: no such service file");
}

#[test]
fn what_moves_logins_after_ours_is_an_error() {
    let common = COMMON.replace("session optional pam_systemd.so\n", "");
    for (module, severity) in [
        ("pam_systemd.so", "Error"),
        ("/lib/security/pam_elogind.so", "Error"),
        ("pam_flux.so", "Error"),
        ("pam_oar_adopt.so", "Error"),
        ("pam_cgfs.so -c memory", "Error"),
        ("pam_cgroup.so", "Error"),
        ("pam_exec.so /usr/bin/x", "Warning"),
        ("pam_loginuid.so", "Note"),
    ] {
        for kind in ["session", "-session"] {
            let text = format!("{SSHD}{kind} optional {module}\n");
            let laid = Laid::new().file("etc/pam.d/common", &common).sshd(&text);
            laid.is(&[&format!("{severity} pam-order sshd:9")]);
        }
    }
    for module in ["pam_motd.so", "pam_limits.so", "pam_keyinit.so"] {
        Laid::new().sshd(&format!("{SSHD}session optional {module}\n")).is(&[]);
    }
    let included = SSHD.replace("session include common\n", "") + "session substack common\n";
    Laid::new().sshd(&included).is(&["Error pam-order common:8"]);
    let limits = format!("{SSHD}session required pam_limits.so\n");
    Laid::new().sshd(&limits).conf("limits = job\n").is(&["Note pam-order sshd:9"]);
}

#[test]
fn another_module_that_decides_is_named() {
    for module in ["pam_slurm_adopt.so", "pam_slurm.so", "pam_flux.so", "pam_oar_adopt.so"] {
        let laid = Laid::new().sshd(&format!("-account required {module}\n{SSHD}"));
        laid.is(&["Warning pam-rival sshd:1"]);
    }
    let laid = Laid::new().sshd(&format!("session required pam_flux.so\n{SSHD}"));
    laid.is(&["Warning pam-rival sshd:1"]);
}

#[test]
fn arguments_are_read_as_the_module_reads_them() {
    let with = |arguments: &str| {
        let line = format!("session required pam_job_adopt.so {arguments}\n");
        Laid::new().sshd(&SSHD.replace("session required pam_job_adopt.so\n", &line))
    };
    let laid = with("action_no_job=deny");
    laid.is(&["Error pam-arguments sshd:8"]);
    laid.says("argument action_no_job=deny: is unknown");
    for knob in [
        "action_no_jobs=ignore",
        "action_adopt_failure=allow",
        "action_generic_failure=ignore",
        "observe",
    ] {
        with(knob).is(&["Warning pam-open sshd:8"]);
    }
    with("action_no_jobs=deny require_devices wait_job=2 debug").is(&[]);
    with("exempt_uids=5").is(&["Note pam-exemptions sshd:8"]);
    with("exempt_uids=5,6").conf("exempt_uids = 6, 5\n").is(&[]);
    with("exempt_uids=5").conf("exempt_uids = 6\n").says("exempt_uids 6 only in the configuration");
}

#[test]
fn groups_need_an_auth_line() {
    let line = "session required pam_job_adopt.so cdi_gids=44\n";
    let text = SSHD.replace("session required pam_job_adopt.so\n", line);
    Laid::new().sshd(&text).is(&["Warning pam-auth sshd:8"]);
    let auth = "auth optional pam_job_adopt.so\n";
    Laid::new().sshd(&format!("{auth}{text}")).is(&[]);
    let late =
        text.replace("account required pam_nologin", &format!("{auth}account required pam_n"));
    Laid::new().sshd(&late).is(&["Note pam-auth sshd:2"]);
    Laid::new().conf("cdi_gids = 44\n").is(&["Warning pam-auth sshd:8"]);
}

#[test]
fn other_services_are_told_of() {
    let laid = Laid::new()
        .file("etc/pam.d/common", &format!("{COMMON}session required pam_job_adopt.so\n"))
        .file("etc/pam.d/su", "session include common\n")
        .file("etc/pam.d/login", "session required pam_unix.so\n")
        .file("usr/lib/pam.d/cockpit", "session required pam_unix.so\n")
        .file("etc/pam.d/vsftpd", "session required pam_job_adopt.so service=vsftpd\n");
    let amiss = laid.amiss();
    for expected in [
        "Note pam-services common, su",
        "Note pam-services vsftpd",
        "Note pam-doors cockpit, login",
    ] {
        assert!(amiss.iter().any(|one| one == expected), "{expected}: {amiss:?}");
    }
}

#[test]
fn the_modules_file_is_roots_and_of_this_version() {
    let so = "usr/lib/security/pam_job_adopt.so";
    Laid::new().mode(so, 0o666).is(&["Error module-file pam_job_adopt.so"]);
    Laid::new().mode("usr/lib/security", 0o777).is(&["Error module-file pam_job_adopt.so"]);
    Laid::new().file(so, "x").is(&["Unknown module-version pam_job_adopt.so"]);
    let other = SPEAKS_TO.replace(crate::plan::VERSION, "9.9.9");
    let laid = Laid::new().file(so, &format!("x\0\u{fffd}{other}y"));
    laid.is(&["Error module-version pam_job_adopt.so"]);
    laid.says("is of version 9.9.9");
    let laid = Laid::new();
    std::fs::remove_file(laid.scratch.path().join(so)).unwrap();
    laid.is(&["Error module-file pam_job_adopt.so"]);
    laid.says("root's too");
    std::fs::remove_file(laid.scratch.path().join("usr/lib/security/pam_permit.so")).unwrap();
    laid.is(&["Unknown module-file pam_job_adopt.so"]);
}

#[test]
fn the_helper_is_fit_to_be_run() {
    let helper = "usr/libexec/job-adopt/resolve";
    Laid::new().mode(helper, 0o644).is(&["Error helper resolve"]);
    Laid::new().mode(helper, 0o4711).is(&["Error helper resolve"]);
    Laid::new().mode(helper, 0o733).is(&["Error helper resolve"]);
    Laid::new().mode(helper, 0o755).is(&["Note helper resolve"]);
    Laid::new().mode("usr/libexec", 0o777).is(&["Error helper resolve"]);
    let line = "pam_job_adopt.so helper=/opt/resolve\n";
    Laid::new().sshd(&SSHD.replace("pam_job_adopt.so\n", line)).is(&["Error helper resolve"]);
    let other = SPEAKS_TO.replace(crate::plan::VERSION, "9.9.9");
    Laid::new().file(helper, &other).mode(helper, 0o711).is(&["Error helper resolve"]);
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
    with("job-adopt:x:990:990::/:/bin/sh").is(&["Note account account job-adopt"]);
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
    let laid = Laid::new();
    std::fs::remove_file(laid.scratch.path().join(conf)).unwrap();
    laid.is(&[]);
}

#[test]
fn keys_that_open_are_told() {
    Laid::new().conf("guarded = none\n").is(&["Warning guarded job_adopt.conf"]);
    Laid::new()
        .conf("exempt_groups = no-such-group\n")
        .is(&["Note pam-exemptions sshd:8", "Note groups job_adopt.conf"]);
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
    gpus("/dev/gone").is(&["Note always-allowed gone rw"]);
    Laid::new().conf("message_file = /none\n").is(&["Warning message-file none"]);
}

#[test]
fn records_are_read() {
    let record =
        |cgroup: &str| format!(r#"{{"version":1,"id":"7","uid":5,"cgroup":"{cgroup}","cdi":[]}}"#);
    let laid = Laid::new().file("run/job-adopt/jobs/5/7.json", &record("/job"));
    laid.is(&["Note records 7.json"]);
    laid.scratch.dir("sys/fs/cgroup/job");
    laid.is(&[]);
    let laid = laid.file("run/job-adopt/jobs/5/8.json", "{");
    laid.is(&["Error records 8.json"]);
    laid.mode("run/job-adopt/jobs/5", 0o777).is(&["Error records 5"]);
    Laid::new().mode("run/job-adopt/jobs", 0o777).is(&["Error registry jobs"]);
    let laid = Laid::new();
    std::fs::remove_dir(laid.scratch.path().join("run/job-adopt/jobs")).unwrap();
    laid.is(&["Note registry jobs"]);
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
    let good = "[exec]\nimp = \"/usr/libexec/flux/flux-imp\"\nservice = \"sdexec\" # units\n";
    flux(good).is(&[]);
    flux(&good.replace("sdexec", "rexec")).is(&["Warning flux-exec conf.d"]);
    flux(&good.replace("[exec]", "[other]")).is(&["Warning flux-exec conf.d"]);
    flux(good).conf("sources = registry\n").is(&[]);
    flux(good).mode("usr/libexec/job-adopt/keeper", 0o600).is(&["Error keeper keeper"]);
    let laid = flux(good);
    std::fs::remove_file(laid.scratch.path().join("var/lib/systemd/linger/flux")).unwrap();
    laid.is(&["Warning flux-linger flux"]);
}
