//! Stacks of PAM.

use super::*;

#[test]
fn a_session_line_that_cannot_be_relied_on_is_an_error() {
    let line = "session required pam_job_adopt.so";
    for (instead, at) in [
        ("session optional pam_job_adopt.so", "sshd:8"),
        ("session sufficient pam_job_adopt.so", "sshd:8"),
        ("session [success=ok default=ignore] pam_job_adopt.so", "sshd:8"),
        ("-session required pam_job_adopt.so", "sshd:8"),
        ("session required pam_job_adopt.so service=login", "sshd:8"),
        ("session required pam_job_adopt.so service=shhd", "sshd:8"),
        ("session required pam_unix.so", "service sshd"),
    ] {
        let laid = Laid::new().sshd(&SSHD.replace(line, instead));
        laid.is(&[&format!("Error pam-session {at}")]);
    }
    for same in [
        "session requisite pam_job_adopt.so",
        "session [success=ok ignore=ignore default=die] pam_job_adopt.so",
        "session required pam_job_adopt.so service=SSHd",
    ] {
        Laid::new().sshd(&SSHD.replace(line, same)).is(&[]);
    }
}

#[test]
fn what_skips_the_session_line_is_named() {
    let common = format!("{COMMON}session [success=1 default=ignore] pam_umask.so\n");
    let text = SSHD.replace("session required pam_limits.so\n", "");
    let text = format!("{text}session optional pam_motd.so\n");
    let laid = Laid::new().file("etc/pam.d/common", &common).sshd(&text);
    laid.is(&["Error pam-session sshd:7"]);
    laid.says("common:9, which may end the stack or leap over it");
    laid.says("by substack instead of include");
    let common = format!("session sufficient pam_umask.so\n{COMMON}");
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
    ] {
        for kind in ["session", "-session"] {
            let text = format!("{SSHD}{kind} optional {module}\n");
            let laid = Laid::new().file("etc/pam.d/common", &common).sshd(&text);
            laid.is(&[&format!("{severity} pam-order sshd:9")]);
        }
    }
    for module in ["pam_motd.so", "pam_limits.so", "pam_loginuid.so"] {
        Laid::new().sshd(&format!("{SSHD}session optional {module}\n")).is(&[]);
    }
    let included = SSHD.replace("session include common\n", "") + "session substack common\n";
    Laid::new().sshd(&included).is(&["Error pam-order common:8"]);
}

#[test]
fn another_module_that_decides_is_named() {
    for module in ["pam_slurm_adopt.so", "pam_slurm.so", "pam_flux.so", "pam_oar_adopt.so"] {
        let laid = Laid::new().sshd(&format!("-account required {module}\n{SSHD}"));
        laid.is(&["Warning pam-rival sshd:1"]);
    }
    let laid = Laid::new().sshd(&format!("session required pam_flux.so\n{SSHD}"));
    laid.is(&["Warning pam-rival sshd:1"]);
    // That is what observing beside it is for.
    let observing = SSHD.replace("pam_job_adopt.so", "pam_job_adopt.so observe");
    let laid = Laid::new().sshd(&format!("session required pam_flux.so\n{observing}"));
    laid.is(&["Warning pam-open sshd:4", "Warning pam-open sshd:9", "Note pam-rival sshd:1"]);
    laid.says("job-adopt compare");
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
    for knob in
        ["action_no_jobs=ignore", "action_adopt_failure=allow", "action_generic_failure=ignore"]
    {
        with(knob).is(&["Warning pam-open sshd:8"]);
    }
    let laid = with("observe");
    laid.is(&["Error pam-session sshd:8", "Warning pam-open sshd:8"]);
    laid.says("observes, and the account line does not");
    let laid = laid.sshd(&SSHD.replace("pam_job_adopt.so", "pam_job_adopt.so observe"));
    laid.is(&["Warning pam-open sshd:3", "Warning pam-open sshd:8"]);
    with("action_no_jobs=deny require_devices wait_job=2 debug").is(&[]);
    with("conf=/no/such/file").is(&["Error pam-arguments sshd:8"]);
    with("exempt_uids=5 exempt_groups=no-such-group").is(&[]);
}

#[test]
fn module_that_closes_in_the_jobs_files_is_named() {
    let exec = "session optional pam_exec.so /x\n";
    let warned = SSHD.replace("session include", &format!("{exec}session include"));
    let laid = Laid::new().sshd(&warned);
    laid.is(&["Warning pam-close sshd:6"]);
    laid.says("close_only");
    let first = "session optional pam_job_adopt.so close_only\n";
    Laid::new().sshd(&format!("{first}{warned}")).is(&[]);
    let late = warned.replace(exec, &format!("{exec}{first}"));
    Laid::new().sshd(&late).is(&["Warning pam-close sshd:6"]);
    let outside = "pam_job_adopt.so join_container=false";
    Laid::new().sshd(&warned.replace("pam_job_adopt.so", outside)).is(&[]);
    // It confines nobody.
    let alone = SSHD.replace("session required pam_job_adopt.so\n", first);
    Laid::new().sshd(&alone).is(&["Error pam-session service sshd"]);
}
