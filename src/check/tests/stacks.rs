//! Tests of checks of PAM stacks.

use super::*;
use crate::finding::Check;
use crate::remedy::Remedy;

#[test]
fn unreliable_session_line_is_an_error() {
    let line = "session required pam_job_adopt.so";
    for (instead, at) in [
        ("session optional pam_job_adopt.so", "sshd:8"),
        ("session sufficient pam_job_adopt.so", "sshd:8"),
        (
            "session [success=ok default=ignore] pam_job_adopt.so",
            "sshd:8",
        ),
        ("-session required pam_job_adopt.so", "sshd:8"),
        ("session required pam_job_adopt.so service=login", "sshd:8"),
        ("session required pam_job_adopt.so service=shhd", "sshd:8"),
        ("session required pam_unix.so", "service sshd"),
    ] {
        let site = TestSite::new().sshd(&SSHD.replace(line, instead));
        site.assert_bad(&[&format!("Error pam-session {at}")]);
    }
    for same in [
        "session requisite pam_job_adopt.so",
        "session [success=ok ignore=ignore default=die] pam_job_adopt.so",
        "session required pam_job_adopt.so service=SSHd",
    ] {
        TestSite::new()
            .sshd(&SSHD.replace(line, same))
            .assert_bad(&[]);
    }
}

/// On a new node, what is pasted must not enforce untried; on one that has lost its lines it restores them.
#[test]
fn command_that_writes_lines_is_not_for_new_nodes() {
    let lines = |site: &TestSite| {
        let findings = site.findings().into_iter();
        let found: Vec<String> = findings
            .filter(|finding| finding.check == finding::Check::PamSession)
            .flat_map(|finding| finding.remedy.lines())
            .collect();
        found.join("\n")
    };
    let none: String = SSHD
        .lines()
        .filter(|line| !line.contains("pam_job_adopt"))
        .map(|line| format!("{line}\n"))
        .collect();
    let site = TestSite::new().sshd(&none);
    assert!(
        lines(&site).starts_with("  do: try it: job-adopt enable --try 15m USER"),
        "{}",
        lines(&site)
    );
    assert!(!lines(&site).contains("run:"));
    let rival = none.replace("session", "account required pam_slurm_adopt.so\nsession");
    let migrating = TestSite::new().sshd(&rival);
    assert!(
        migrating
            .findings()
            .iter()
            .all(|finding| !finding.remedy.command().contains("enable"))
    );
    let site = site.file("etc/systemd/system/user-.slice.d/job-adopt.conf", "");
    assert!(
        lines(&site).starts_with("  run: job-adopt enable --only pam"),
        "{}",
        lines(&site)
    );
}

#[test]
fn line_that_skips_our_session_line_is_named() {
    let common = format!("{COMMON}session [success=1 default=ignore] pam_umask.so\n");
    let text =
        SSHD.replace("session required pam_limits.so\n", "") + "session optional pam_motd.so\n";
    let site = TestSite::new()
        .file("etc/pam.d/common", &common)
        .sshd(&text);
    site.assert_bad(&["Error pam-session sshd:7"]);
    site.assert_mentions("common:9 may end the stack or jump over it");
    site.assert_mentions("common:9: lower the number of its jump");
    let sufficient = format!("session sufficient pam_umask.so\n{COMMON}");
    let included_site = TestSite::new().file("etc/pam.d/common", &sufficient);
    included_site.assert_bad(&["Error pam-session sshd:8"]);
    included_site.assert_mentions("common:1 may");
    let undone = "session [default=reset] pam_x.so\nsession required pam_y.so\n";
    let undone_site = TestSite::new().sshd(&format!("{SSHD}{undone}"));
    undone_site.assert_bad(&["Error pam-session sshd:9"]);
}

/// The file of the line is taken in where it can be a substack; the line itself is named where it can not.
#[test]
fn line_that_skips_ours_is_shown_as_it_should_be() {
    let advice = |site: &TestSite| {
        let mut findings = site.findings().into_iter();
        let skipped = findings
            .find(|finding| finding.check == Check::PamSession)
            .unwrap();
        assert_eq!(skipped.remedy.command(), "");
        skipped.remedy.advice().to_owned()
    };
    let sufficient = "session sufficient pam_umask.so\n";
    let own = TestSite::new().sshd(&format!("{sufficient}{SSHD}"));
    let file = own.scratch.path().join("etc/pam.d/sshd");
    assert_eq!(
        advice(&own),
        format!(
            "{}:1: in place of \"session sufficient pam_umask.so\" write \"session optional pam_umask.so\"",
            file.display()
        )
    );
    let included = TestSite::new().file("etc/pam.d/common", &format!("{sufficient}{COMMON}"));
    let text = advice(&included);
    assert!(
        text.contains("in place of \"session include common\" write \"session substack common\""),
        "{text}"
    );
    // Where both lines are in one file, a substack would change nothing.
    let ours = "session required pam_job_adopt.so\n";
    let both = TestSite::new()
        .sshd(&SSHD.replace(ours, ""))
        .file("etc/pam.d/common", &format!("{sufficient}{COMMON}{ours}"));
    let of_both = advice(&both);
    assert!(!of_both.contains("substack"), "{of_both}");
    assert!(of_both.contains("common:1: in place of"), "{of_both}");
}

#[test]
fn line_that_skips_our_account_line_is_named() {
    let ours = "account required pam_job_adopt.so\n";
    let late =
        SSHD.replace(ours, "")
            .replacen("common\nsession", &format!("common\n{ours}session"), 1);
    let site = TestSite::new().sshd(&late);
    site.assert_bad(&["Warning pam-account sshd:4"]);
    site.assert_mentions("common:1 may end the stack");
    let local = COMMON.replace("new_authtok_reqd=done", "new_authtok_reqd=ok");
    TestSite::new()
        .sshd(&late)
        .file("etc/pam.d/common", &local)
        .assert_bad(&[]);
    let sufficient = format!("account sufficient pam_localuser.so\n{local}");
    let local_site = TestSite::new()
        .sshd(&late)
        .file("etc/pam.d/common", &sufficient);
    local_site.assert_bad(&["Warning pam-account sshd:4"]);
    local_site.assert_mentions("common:1 may");
    let substack = late.replace("account include", "account substack");
    TestSite::new()
        .sshd(&substack)
        .file("etc/pam.d/common", &sufficient)
        .assert_bad(&[]);
    TestSite::new()
        .sshd(&SSHD.replace(ours, ""))
        .assert_bad(&["Warning pam-account service sshd"]);
    let optional = SSHD.replace("account required pam_job", "account optional pam_job");
    TestSite::new()
        .sshd(&optional)
        .assert_bad(&["Warning pam-account sshd:3"]);
}

/// Whoever is to renew a password gets in by the first failure, whatever ours is.
#[test]
fn line_whose_failure_outweighs_our_account_line_is_named() {
    let ours = "account required pam_job_adopt.so\n";
    let sss = "account [default=bad success=ok user_unknown=ignore] pam_sss.so\n";
    let site = TestSite::new().sshd(&SSHD.replace(ours, &format!("{sss}{ours}")));
    site.assert_bad(&["Warning pam-account sshd:4"]);
    site.assert_mentions("sshd:3 asks for a new password");
    TestSite::new()
        .sshd(&SSHD.replace(ours, &format!("{ours}{sss}")))
        .assert_bad(&[]);
}

#[test]
fn line_that_libpam_rejects_or_reads_by_version_is_an_error() {
    let both = ["Error pam-session sshd:9", "Error pam-account sshd:9"];
    for (line, remedy) in [
        (
            "password optional pam_x.so \\\n\n\n",
            "remove the empty lines and comments",
        ),
        ("\r\n", "the line ends of Unix (dos2unix)"),
        ("password\u{a0}optional pam_x.so\n", "ordinary blank"),
        ("password optional pam_x.so \\\n", "remove the backslash"),
        ("password optional .so\n", "correct this line"),
        (&format!("#{}\n", "-".repeat(1023)), "less than 1,024 bytes"),
    ] {
        let site = TestSite::new().sshd(&format!("{SSHD}{line}"));
        site.assert_bad(&both);
        site.assert_mentions(remedy);
        site.assert_mentions("every login is refused (JA09)");
    }
    for (line, remedy) in [
        (
            "session optional pam_x.so\r",
            "the line ends of Unix (dos2unix)",
        ),
        ("session optional\u{a0}pam_x.so", "ordinary blank"),
        ("session", "correct this line"),
        ("session required", "correct this line"),
        (
            "session mandatory pam_x.so",
            "in place of \"session mandatory pam_x.so\" write \"session required pam_x.so\"",
        ),
        (
            "session [success=4294967297 default=ignore] pam_x.so",
            "the number of lines",
        ),
    ] {
        let site = TestSite::new().sshd(&format!("{SSHD}{line}\n"));
        site.assert_bad(&["Error pam-session sshd:9"]);
        site.assert_mentions(remedy);
    }
    let site = TestSite::new().sshd(&format!("{SSHD}session required /no/pam_job_adopt.so\n"));
    assert!(
        site.bad_findings()
            .contains(&"Error pam-session sshd:9".to_owned())
    );
    site.assert_mentions("without a path");
    let other_site = TestSite::new().file("etc/pam.d/other", "auth required pam_deny.so \\\n");
    other_site.assert_bad(&["Error pam-session other:1", "Error pam-account other:1"]);
}

#[test]
fn stack_without_our_session_line_is_an_error() {
    let neither = SSHD.replace("pam_job_adopt.so", "pam_unix.so");
    let site = TestSite::new().sshd(&neither);
    site.assert_bad(&[
        "Error pam-session service sshd",
        "Warning pam-account service sshd",
    ]);
    site.assert_mentions("logins are in no job");
    let account = SSHD.replace("session required pam_job_adopt.so", "");
    TestSite::new()
        .sshd(&account)
        .assert_mentions("every login is refused (JA09)");
}

#[test]
fn unreadable_stack_is_an_error() {
    let site = TestSite::new().sshd(&format!("{SSHD}session include gone\n"));
    assert!(
        site.bad_findings()
            .contains(&"Error pam-session service sshd".to_owned())
    );
    site.assert_mentions("gone: no such service file");
}

const OAR_PROGRAM: &str = "pam_exec.so quiet stdout /usr/sbin/pam_oar_adopt -a";

#[test]
fn module_that_moves_logins_after_ours_is_reported() {
    let common = COMMON.replace("session optional pam_systemd.so\n", "");
    for (module, severity) in [
        ("pam_systemd.so", "Error"),
        ("/lib/security/pam_elogind.so", "Error"),
        ("pam_flux.so", "Error"),
        (
            "pam_exec.so quiet stdout /usr/sbin/pam_oar_adopt -s",
            "Error",
        ),
        ("pam_cgfs.so -c memory", "Error"),
        ("pam_cgroup.so", "Error"),
        ("pam_exec.so /usr/bin/x", "Warning"),
    ] {
        for kind in ["session", "-session"] {
            let text = format!("{SSHD}{kind} optional {module}\n");
            let site = TestSite::new()
                .file("etc/pam.d/common", &common)
                .sshd(&text);
            site.assert_bad(&[&format!("{severity} pam-order sshd:9")]);
        }
    }
    for module in ["pam_motd.so", "pam_limits.so", "pam_loginuid.so"] {
        TestSite::new()
            .sshd(&format!("{SSHD}session optional {module}\n"))
            .assert_bad(&[]);
    }
    let included = SSHD.replace("session include common\n", "") + "session substack common\n";
    TestSite::new()
        .sshd(&included)
        .assert_bad(&["Error pam-order common:8"]);
}

#[test]
fn script_after_ours_that_has_variables_of_records_is_named() {
    let site = |conf: &str| {
        TestSite::new()
            .sshd(&format!("{SSHD}session optional pam_exec.so /usr/bin/x\n"))
            .conf(conf)
    };
    site("env = full\n").assert_mentions("writes to TMPDIR");
    let findings = format!("{:?}", site("").findings());
    assert!(!findings.contains("TMPDIR"), "{findings}");
}

#[test]
fn rival_module_is_named() {
    for module in [
        "pam_slurm_adopt.so",
        "pam_slurm.so",
        "pam_flux.so",
        OAR_PROGRAM,
    ] {
        let site = TestSite::new().sshd(&format!("-account required {module}\n{SSHD}"));
        site.assert_bad(&["Warning pam-rival sshd:1"]);
    }
    let site = TestSite::new().sshd(&format!("session required pam_flux.so\n{SSHD}"));
    site.assert_bad(&["Warning pam-rival sshd:1"]);
    // Behind a line of ours that libpam may skip, a rival that is not known to move logins is one all the same.
    let skippable =
        format!("session sufficient pam_permit.so\n{SSHD}session required pam_slurm.so\n");
    let skippable_site = TestSite::new().sshd(&skippable);
    skippable_site.assert_mentions("pam_slurm.so decides on logins too");
    // A site that observes compares both modules on purpose.
    let observing = SSHD.replace("pam_job_adopt.so", "pam_job_adopt.so observe");
    let observing_site =
        TestSite::new().sshd(&format!("session required pam_flux.so\n{observing}"));
    observing_site.assert_bad(&[
        "Warning pam-open sshd:4",
        "Warning pam-open sshd:9",
        "Note pam-rival sshd:1",
    ]);
    observing_site.assert_mentions("job-adopt compare");
}

/// Without the rival nobody would judge logins.
#[test]
fn no_command_takes_a_rival_away_while_ours_does_not_decide() {
    let rival = "account required pam_slurm_adopt.so\n";
    let profile = |text: &str| {
        TestSite::new()
            .file("usr/share/pam-configs/slurm-adopt", "")
            .file("etc/pam.d/common", &format!("{rival}{COMMON}"))
            .sshd(text)
    };
    let with = |arguments: &str| {
        let line = format!("pam_job_adopt.so {arguments}\n");
        SSHD.replace("pam_job_adopt.so\n", &line)
    };
    let ours = "account required pam_job_adopt.so\n";
    for site in [
        profile(&SSHD.replace("pam_job_adopt.so", "pam_unix.so")),
        profile(&SSHD.replace(ours, "")),
        profile(&with("action_no_jobs=ignore")),
        profile(&with("action_generic_failure=allow")),
        profile(SSHD).file("run/job-adopt/off", ""),
        profile(SSHD).conf("enforce = if-exists:/none/such\n"),
        TestSite::new().sshd(&format!("{rival}{}", with("action_no_jobs=ignore"))),
    ] {
        let remedy = rival_remedy(&site);
        assert_eq!(remedy.command(), "", "{remedy}");
        assert!(remedy.advice().starts_with("leave it"), "{remedy}");
    }
    let remedy = rival_remedy(&profile(SSHD));
    assert!(
        remedy
            .advice()
            .contains("pam-auth-update --disable slurm-adopt"),
        "{remedy}"
    );
    let own_file = TestSite::new().sshd(&format!("{rival}{SSHD}"));
    assert_eq!(
        rival_remedy(&own_file).command(),
        "job-adopt enable --only pam"
    );
}

/// `enable` takes the rival's line away.
#[test]
fn no_command_replaces_a_rival_by_lines_that_leave_users_to_it() {
    let rival = "account required pam_slurm_adopt.so\n";
    let text = SSHD.replace("pam_job_adopt.so", "pam_unix.so");
    let site = TestSite::new()
        .sshd(&format!("{rival}{text}"))
        .file("run/job-adopt/off", "");
    for finding in site.findings() {
        let command = finding.remedy.command();
        assert!(!command.starts_with("job-adopt enable"), "{command}");
    }
    site.assert_mentions("enforce before job-adopt enable --only pam: it takes away the line");
}

/// `enable` gives both lines the arguments of one, here those that open more.
#[test]
fn no_command_gives_a_line_the_arguments_of_another() {
    for (account, session) in [
        ("", "require_devices"),
        ("action_no_jobs=ignore", "action_no_jobs=deny"),
        ("", "disable_x11=1"),
    ] {
        let text = SSHD
            .replacen(
                "pam_job_adopt.so\n",
                &format!("pam_job_adopt.so {account}\n"),
                1,
            )
            .replace(
                "session required pam_job_adopt.so\n",
                &format!(
                    "session required pam_job_adopt.so {session}\nsession optional pam_systemd.so\n"
                ),
            );
        let site = TestSite::new().sshd(&text);
        for finding in site.findings() {
            let command = finding.remedy.command();
            assert!(!command.starts_with("job-adopt enable"), "{command}");
        }
        site.assert_mentions("same arguments before job-adopt enable --only pam: it takes");
    }
}

/// The remedy of the one rival of a site.
fn rival_remedy(site: &TestSite) -> Remedy {
    let mut findings = site.findings();
    findings.retain(|finding| finding.check == Check::PamRival);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings.remove(0).remedy
}

#[test]
fn wrong_or_opening_arguments_are_reported() {
    let with = |arguments: &str| {
        let line = format!("session required pam_job_adopt.so {arguments}\n");
        TestSite::new().sshd(&SSHD.replace("session required pam_job_adopt.so\n", &line))
    };
    let site = with("action_no_job=deny");
    site.assert_bad(&["Error pam-arguments sshd:8"]);
    site.assert_mentions("argument action_no_job=deny: is unknown");
    for knob in [
        "action_no_jobs=ignore",
        "action_adopt_failure=allow",
        "action_generic_failure=ignore",
    ] {
        with(knob).assert_bad(&["Warning pam-open sshd:8"]);
    }
    let one_line_site = with("observe");
    one_line_site.assert_bad(&["Error pam-session sshd:8", "Warning pam-open sshd:8"]);
    one_line_site.assert_mentions("observes, and the account line does not");
    let observing_site =
        one_line_site.sshd(&SSHD.replace("pam_job_adopt.so", "pam_job_adopt.so observe"));
    observing_site.assert_bad(&["Warning pam-open sshd:3", "Warning pam-open sshd:8"]);
    with("action_no_jobs=deny wait_job=2 debug").assert_bad(&[]);
    with("conf=/no/such/file")
        .assert_bad(&["Error pam-arguments sshd:8", "Warning pam-arguments sshd:8"]);
    let exempt_site = with("exempt_uids=5 exempt_groups=ops");
    exempt_site.assert_bad(&[
        "Note pam-open sshd:8",
        "Note pam-open sshd:8",
        "Warning pam-arguments sshd:8",
    ]);
    exempt_site.assert_mentions("exempt_uids=5 opens: these users log in outside of jobs");
    exempt_site
        .assert_mentions("exempt_groups=ops opens: members of these groups log in outside of jobs");
    let joining_site = with("exempt_groups=ops exempt_join");
    joining_site
        .assert_mentions("members of these groups log in to their job, and outside of jobs if");
    let exempt = SSHD.replace("pam_job_adopt.so", "pam_job_adopt.so exempt_join");
    TestSite::new().sshd(&exempt).assert_bad(&[
        "Warning pam-arguments sshd:3",
        "Warning pam-arguments sshd:8",
    ]);
}

/// The first command would end the observation, and a script pastes it.
#[test]
fn observing_node_has_no_command() {
    let observing = SSHD.replace("pam_job_adopt.so", "pam_job_adopt.so observe");
    let rival = format!("account required pam_slurm_adopt.so\n{observing}");
    for text in [observing, rival] {
        let site = TestSite::new().sshd(&text);
        for finding in site.findings() {
            assert_eq!(finding.remedy.command(), "", "{finding:?}");
        }
        site.assert_mentions("write \"session required pam_job_adopt.so\"");
    }
}

/// Without the argument its default holds, and without `conf=` another configuration.
#[test]
fn no_command_removes_an_argument_that_may_close_the_node() {
    for argument in ["require_devces", "wait_job=soon", "conf=/no/such/file"] {
        let line = format!("pam_job_adopt.so {argument}\n");
        let site = TestSite::new().sshd(&SSHD.replace("pam_job_adopt.so\n", &line));
        let findings = site.findings();
        let bad: Vec<&Finding> = findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .collect();
        assert_eq!(bad.len(), 2, "{bad:#?}");
        for finding in bad {
            assert_eq!(finding.remedy.command(), "", "{argument}");
            assert!(finding.remedy.advice().contains("correct"), "{argument}");
        }
    }
}

#[test]
fn our_lines_that_decide_differently_are_reported() {
    for argument in [
        "action_unknown=deny",
        "require_devices",
        "nodename=other",
        "private_dirs=/scratch",
    ] {
        let line = format!("session required pam_job_adopt.so {argument}\n");
        let text = SSHD.replace("session required pam_job_adopt.so\n", &line);
        let site = TestSite::new().sshd(&text);
        site.assert_bad(&["Warning pam-arguments sshd:8"]);
        site.assert_mentions("has other arguments than");
        site.assert_mentions("job-adopt enable --only pam");
    }
    let second = format!("{SSHD}session required pam_job_adopt.so\n");
    let site = TestSite::new().sshd(&second);
    site.assert_bad(&["Warning pam-arguments sshd:9"]);
    site.assert_mentions("is a second session line");
}

#[test]
fn module_in_go_is_named_where_logins_join_private_files() {
    let ours = "auth required pam_job_adopt.so\n";
    let with = |auth: &str, text: &str| {
        TestSite::new()
            .file("etc/pam.d/login-auth", auth)
            .file("opt/pam_crypt.so", text)
    };
    let auth = format!("{ours}auth optional /opt/pam_crypt.so\n{ours}");
    let bytes = b"\x7fELF \xff Go buildinf:\x08\x02";
    let go = |lines: &str| {
        let site = with(lines, "");
        std::fs::write(site.scratch.path().join("opt/pam_crypt.so"), bytes).unwrap();
        site
    };
    go(&auth).assert_bad(&["Warning pam-auth login-auth:2"]);
    go(&auth).assert_mentions("pam_crypt.so is written in Go");
    with(&auth, "\x7fELF").assert_bad(&[]);
    // Once, though it has several lines.
    let session = SSHD.replace(
        "session required pam_job_adopt.so\n",
        "session optional /opt/pam_crypt.so\nsession required pam_job_adopt.so\n",
    );
    let both = go(&auth).sshd(&session);
    both.assert_bad(&["Warning pam-auth login-auth:2"]);
    let outside = SSHD.replace("pam_job_adopt.so", "pam_job_adopt.so join_container=false");
    go(&auth).sshd(&outside).assert_bad(&[]);
}

#[test]
fn missing_or_misplaced_auth_line_is_named() {
    let ours = "auth required pam_job_adopt.so\n";
    let with = |lines: &str| TestSite::new().file("etc/pam.d/login-auth", lines);
    let site = with("auth required pam_unix.so\n");
    site.assert_bad(&["Note pam-auth service sshd"]);
    site.assert_mentions("logins to jobs with private files are refused");
    for lines in [
        ours.to_owned(),
        format!("{ours}auth required pam_unix.so\n"),
        format!("auth required pam_unix.so\n{ours}{ours}"),
        format!("{ours}{ours}auth required pam_unix.so\n{ours}"),
        format!("-{ours}auth required pam_unix.so\n{ours}"),
        format!(
            "{ours}auth required pam_unix.so\n{}",
            ours.replace("required", "optional")
        ),
    ] {
        let bad = with(&lines).bad_findings();
        assert!(
            bad.len() == 1 && bad[0].starts_with("Warning pam-auth login-auth:"),
            "{bad:?}"
        );
    }
    let skipped = with(&format!("{ours}auth sufficient pam_unix.so\n{ours}"));
    skipped.assert_bad(&["Warning pam-auth login-auth:3"]);
    skipped.assert_mentions("login-auth:2 may end the stack");
    skipped.assert_mentions("into a file of their own");
    let outside = SSHD.replace("pam_job_adopt.so", "pam_job_adopt.so join_container=false");
    with("auth required pam_unix.so\n")
        .sshd(&outside)
        .assert_bad(&[]);
    // An old line for the end of the session confines no login.
    let old = "session optional pam_job_adopt.so close_only\n";
    TestSite::new()
        .sshd(&format!("{old}{SSHD}"))
        .assert_bad(&[]);
    let alone = SSHD.replace("session required pam_job_adopt.so\n", old);
    TestSite::new()
        .sshd(&alone)
        .assert_bad(&["Error pam-session service sshd"]);
}

#[test]
fn module_that_is_not_known_after_ours_is_named_as_unknown() {
    for module in ["pam_site.so", "/opt/lib/pam_vendor.so", "pam_bright.so"] {
        let site = TestSite::new().sshd(&format!("{SSHD}session optional {module}\n"));
        site.assert_bad(&["Unknown pam-order sshd:9"]);
        site.assert_mentions("it is not known here whether it moves the login");
    }
    for module in ["pam_crane.so", "libcsmpam.so", "pam_csession.so"] {
        let site = TestSite::new().sshd(&format!("{SSHD}session required {module}\n"));
        site.assert_bad(&["Error pam-order sshd:9"]);
    }
    for module in ["pam_winbind.so", "pam_namespace.so", "pam_lastlog2.so"] {
        TestSite::new()
            .sshd(&format!("{SSHD}session optional {module}\n"))
            .assert_bad(&[]);
    }
}

#[test]
fn rivals_of_other_schedulers_are_named() {
    for module in [
        "pam_crane.so",
        "libcsmpam.so",
        "pam_csession.so",
        "pam_bright.so",
        "pam_pbssimpleauth.so",
        "pam_sge_authorize.so",
    ] {
        let site = TestSite::new().sshd(&format!("account required {module}\n{SSHD}"));
        site.assert_bad(&["Warning pam-rival sshd:1"]);
    }
}

#[test]
fn other_name_of_the_stack_is_reported() {
    let site = TestSite::new();
    let pam = site.scratch.path().join("etc/pam.d");
    std::os::unix::fs::symlink("sshd", pam.join("tailscale")).unwrap();
    site.assert_bad(&["Warning pam-alias tailscale"]);
    site.assert_mentions("service=tailscale");
    std::fs::remove_file(pam.join("tailscale")).unwrap();
    std::fs::hard_link(pam.join("sshd"), pam.join("ssh-alt")).unwrap();
    site.assert_bad(&["Warning pam-alias ssh-alt"]);
    std::fs::remove_file(pam.join("ssh-alt")).unwrap();
    site.file("etc/pam.d/copy", SSHD).assert_bad(&[]);
}
