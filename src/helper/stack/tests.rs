mod auth_lines;

use super::*;
use crate::testing::Scratch;
use protocol::SessionLine;
use std::path::Path;

/// Analyses the service `sshd`; cuts the scratch directory out of the text.
fn judge_files(files: &[(&str, &str)]) -> (SessionLine, String) {
    let scratch = Scratch::new();
    for (name, text) in files {
        let name = if name.contains('/') {
            (*name).to_owned()
        } else {
            format!("etc/pam.d/{name}")
        };
        scratch.file(&name, text);
    }
    let finding = judge_stack(scratch.path(), "sshd", Group::Session);
    let text = finding
        .to_string()
        .replace(&format!("{}/", scratch.path().display()), "");
    (finding.session_line(), text)
}

#[track_caller]
fn assert_effective(files: &[(&str, &str)]) {
    let (stack, text) = judge_files(files);
    assert_eq!(stack, SessionLine::Effective, "{text}");
}

#[track_caller]
fn assert_missing(files: &[(&str, &str)], part: &str) {
    let (stack, text) = judge_files(files);
    assert_eq!(stack, SessionLine::Missing);
    assert!(text.contains(part), "{text:?} lacks {part:?}");
}

const OURS: &str = "session required pam_job_adopt.so\n";

#[test]
fn required_line_for_service_is_effective() {
    assert_effective(&[("sshd", OURS)]);
    assert_effective(&[
        (
            "sshd",
            "SESSION\tRequisite /opt/lib/pam_job_adopt.so service=sshd",
        ),
        ("opt/lib/pam_job_adopt.so", ""),
    ]);
    assert_effective(&[("sshd", "session required pam_job_adopt.so Service=SSHd")]);
    assert_effective(&[(
        "sshd",
        "session [success=ok ignore=ignore default=die] libpam_job_adopt.so",
    )]);
    assert_effective(&[(
        "sshd",
        "session \\\n required \\ \n pam_job_adopt.so # last \\\n",
    )]);
    assert_missing(
        &[(
            "sshd",
            "account required pam_job_adopt.so\nsession required pam_unix.so",
        )],
        "no session",
    );
    assert_missing(
        &[("sshd", "# session required pam_job_adopt.so\n")],
        "no session line",
    );
    assert_missing(
        &[("sshd", "session required pam_job_adopt.so.bak\n")],
        "no session line",
    );
    assert_missing(&[], "no session line");
}

#[test]
fn unreliable_line_is_missing_with_its_fault() {
    for (line, why) in [
        ("session optional pam_job_adopt.so", "is not required"),
        ("session sufficient pam_job_adopt.so", "is not required"),
        (
            "session [success=ok default=ignore] pam_job_adopt.so",
            "is not required",
        ),
        (
            "session [success=ok session_err=ok default=bad] pam_job_adopt.so",
            "is not required",
        ),
        ("session [] pam_job_adopt.so", "is not required"),
        ("-session required pam_job_adopt.so", "has a leading -"),
        (
            "session required pam_job_adopt.so service=login",
            "is for service login",
        ),
        (
            "session required pam_job_adopt.so SERVICE=login",
            "is for service login",
        ),
        (
            "session required pam_job_adopt.so service=sshd service=su",
            "is for service su",
        ),
    ] {
        assert_missing(&[("sshd", line)], &format!("etc/pam.d/sshd:1 {why}"));
        if !line.contains("sufficient") {
            assert_effective(&[("sshd", &format!("{line}\n{OURS}"))]);
        }
    }
}

/// A session line that observes does not confine the users whom an account line admits.
#[test]
fn observing_session_line_beside_judging_account_line_is_missing() {
    let lines = |account: &str, session: &str| {
        format!(
            "account required pam_job_adopt.so {account}\nsession required pam_job_adopt.so {session}\n"
        )
    };
    let why = "etc/pam.d/sshd:2 observes, and the account line does not";
    assert_missing(&[("sshd", &lines("", "observe"))], why);
    assert_missing(&[("sshd", &lines("debug", "conf=/c observe"))], why);
    assert_effective(&[("sshd", &lines("observe", "observe"))]);
    assert_effective(&[("sshd", &lines("observe", ""))]);
    assert_effective(&[("sshd", &lines("service=su", "observe"))]);
    assert_effective(&[("sshd", &format!("{}{OURS}", lines("", "observe")))]);
}

#[test]
fn earlier_line_that_can_skip_ours_is_named() {
    let ours_after = |line: &str| format!("{line}\n{OURS}");
    for line in [
        "session sufficient pam_x.so",
        "session [success=done default=ignore] pam_x.so",
        "session [default=1] pam_x.so",
        "session [success=ok session_err=1 default=bad] pam_x.so",
        "session required pam_permit.so\nsession [success=1 default=ignore] pam_x.so",
        "session required pam_permit.so\nsession sufficient pam_x.so",
    ] {
        let text = format!("{}session required pam_permit.so", ours_after(line));
        assert_missing(&[("sshd", &text)], "can be skipped by etc/pam.d/sshd:");
    }
    for line in [
        "session required pam_x.so",
        "session requisite pam_x.so",
        "session optional pam_x.so",
        "session [success=die default=die] pam_x.so",
        "session [success=1 default=ignore] pam_x.so\nsession required pam_unix.so",
        "session [default=1] pam_permit.so\nsession requisite pam_deny.so",
        "auth sufficient pam_x.so\naccount sufficient pam_x.so\npassword [default=1] pam_x.so",
        "session [] pam_x.so",
        "session [default=reset] pam_x.so",
    ] {
        assert_effective(&[(
            "sshd",
            &format!("{}session required pam_permit.so", ours_after(line)),
        )]);
    }
}

#[test]
fn jump_past_end_refuses() {
    assert_effective(&[(
        "sshd",
        &format!("session [success=2 default=ignore] pam_x.so\n{OURS}"),
    )]);
    // The jump over ours ends the stack without a favourable verdict, which is a refusal.
    assert_effective(&[(
        "sshd",
        &format!("session [success=1 default=ignore] pam_x.so\n{OURS}"),
    )]);
}

#[test]
fn later_line_matters_only_by_a_reset() {
    assert_effective(&[(
        "sshd",
        &format!("{OURS}session sufficient pam_x.so\nsession optional pam_y.so"),
    )]);
    assert_effective(&[(
        "sshd",
        &format!("{OURS}session [default=1] pam_x.so\n{OURS}"),
    )]);
    let undone = format!("{OURS}session [default=reset] pam_x.so\nsession required pam_y.so");
    assert_missing(&[("sshd", &undone)], "can be undone by etc/pam.d/sshd:2");
    let requisite = undone.replace("required pam_job", "requisite pam_job");
    assert_effective(&[("sshd", &requisite)]);
}

/// A `sufficient` line ends the file that includes it, but of substacks only its own.
#[test]
fn sufficient_line_ends_includes_but_not_substacks() {
    let auth = (
        "password-auth",
        "session sufficient pam_localuser.so\nsession required pam_y.so",
    );
    let after = |word: &str| format!("session {word} password-auth\n{OURS}");
    let by = "skipped by etc/pam.d/password-auth:1";
    assert_missing(&[("sshd", &after("include")), auth], by);
    assert_effective(&[("sshd", &after("substack")), auth]);
    assert_effective(&[
        ("sshd", &format!("{OURS}session include password-auth")),
        auth,
    ]);
    assert_missing(
        &[("sshd", &format!("@include password-auth\n{OURS}")), auth],
        by,
    );
}

/// The end of an included file does not stop a jump; the end of a substack does.
#[test]
fn jump_leaves_include_but_not_substack() {
    let x = (
        "x",
        "session required pam_y.so\nsession [success=1 default=ignore] pam_x.so",
    );
    let after = |word: &str| format!("session {word} x\n{OURS}session optional pam_z.so");
    assert_missing(
        &[("sshd", &after("include")), x],
        "sshd:2 can be skipped by etc/pam.d/x:2",
    );
    assert_effective(&[("sshd", &after("substack")), x]);
}

#[test]
fn jump_counts_substack_as_one_line() {
    let x = ("x", "session required pam_a.so\nsession required pam_b.so");
    let ours = |count: u32| {
        format!(
            "session required pam_p.so\nsession [success={count} default=ignore] pam_x.so\n\
             session substack x\n{OURS}session required pam_z.so"
        )
    };
    assert_effective(&[("sshd", &ours(1)), x]);
    assert_missing(&[("sshd", &ours(2)), x], "skipped by etc/pam.d/sshd:2");
    let in_substack = (
        "x",
        "session [success=1 default=ignore] pam_a.so\nsession required pam_job_adopt.so\nsession required pam_b.so",
    );
    assert_missing(
        &[("sshd", "session substack x"), in_substack],
        "etc/pam.d/x:2 can be skipped by",
    );
    assert_missing(
        &[
            (
                "sshd",
                "session required pam_p.so\nsession [success=1 default=ignore] pam_q.so\nsession substack x",
            ),
            ("x", OURS),
        ],
        "etc/pam.d/x:1 can be skipped by etc/pam.d/sshd:2",
    );
    assert_effective(&[
        ("sshd", "session required pam_p.so\nsession substack x"),
        ("x", OURS),
    ]);
}

/// A reset within a substack restores the verdict at its entry.
#[test]
fn reset_in_substack_restores_verdict_at_its_entry() {
    let x = ("x", "session [default=reset] pam_x.so");
    let files = |word: &str| format!("{OURS}session {word} x\nsession required pam_y.so");
    assert_effective(&[("sshd", &files("substack")), x]);
    assert_missing(&[("sshd", &files("include")), x], "undone by etc/pam.d/x:1");
}

#[test]
fn service_files_are_found_in_libpams_order() {
    assert_effective(&[("usr/lib/pam.d/sshd", OURS)]);
    assert_missing(
        &[
            ("usr/lib/pam.d/sshd", OURS),
            ("sshd", "session required pam_unix.so"),
        ],
        "no session",
    );
    assert_effective(&[("sshd", "session include a"), ("usr/lib/pam.d/a", OURS)]);
    assert_effective(&[("sshd", "session include /opt/a"), ("opt/a", OURS)]);
    assert_effective(&[("other", OURS)]);
    assert_effective(&[("sshd", "auth required pam_unix.so"), ("other", OURS)]);
    assert_missing(
        &[("sshd", "session required pam_unix.so"), ("other", OURS)],
        "no session line",
    );
}

#[test]
fn unreadable_stack_is_missing() {
    assert_missing(
        &[("sshd", &format!("{OURS}session include gone"))],
        "gone: no such service file",
    );
    assert_missing(
        &[("sshd", &format!("{OURS}session include"))],
        "sshd:2 includes nothing",
    );
    assert_missing(
        &[("sshd", &format!("{OURS}@include sshd"))],
        "more than 16 deep",
    );
    assert_missing(
        &[("sshd", &format!("{OURS}session substack sshd"))],
        "more than 16 deep",
    );
    assert_missing(
        &[("sshd", &format!("{OURS}session \\\n"))],
        "sshd:2 ends in a line's middle",
    );
    assert_missing(
        &[("sshd", &OURS.repeat(1001))],
        "more than 1000 session lines",
    );
    assert_effective(&[("sshd", &format!("{OURS}auth include gone"))]);
}

fn judge_account(files: &[(&str, &str)]) -> String {
    let scratch = Scratch::new();
    for (name, text) in files {
        scratch.file(&format!("etc/pam.d/{name}"), text);
    }
    let finding = judge_stack(scratch.path(), "sshd", Group::Account);
    finding
        .describe(Group::Account)
        .replace(&format!("{}/", scratch.path().display()), "")
}

/// An account whose password is due is admitted (pam_acct_mgmt(3)), but gets no session.
#[test]
fn account_stack_done_at_expired_password_skips_ours() {
    let ours = "account required pam_job_adopt.so\n";
    let common = "account [success=1 new_authtok_reqd=done default=ignore] pam_unix.so\n\
                  account requisite pam_deny.so\naccount required pam_permit.so\n";
    let after = judge_account(&[("sshd", &format!("{common}{ours}"))]);
    assert!(
        after.ends_with("sshd:4 can be skipped by etc/pam.d/sshd:1"),
        "{after}"
    );
    let before = judge_account(&[("sshd", &format!("{ours}{common}"))]);
    assert!(before.ends_with("sshd:1 is effective"), "{before}");
    let stays = common.replace("=done", "=ok");
    let without_jump = judge_account(&[("sshd", &format!("{stays}{ours}"))]);
    assert!(
        without_jump.ends_with("sshd:4 is effective"),
        "{without_jump}"
    );
    assert_effective(&[(
        "sshd",
        &format!("{}{OURS}", common.replace("account", "session")),
    )]);
}

#[test]
fn entries_are_lines_of_one_group_in_order() {
    let scratch = Scratch::new();
    let sshd = "auth required pam_a.so\naccount include x\nsession substack x\n\
                session [success=ok default=bad] /lib/pam_b.so a [b c]\n-session required \
                pam_job_adopt.so conf=/c\nnonsense\n";
    scratch.file("etc/pam.d/sshd", sshd);
    scratch.file(
        "etc/pam.d/x",
        "account required pam_c.so\nsession required pam_d.so\n",
    );
    let shown = |group| {
        let entries = read_entries(scratch.path(), "sshd", group).unwrap();
        let entry = |entry: &Entry| {
            let line = entry.place.line;
            format!(
                "{line} {} {} {:?}",
                entry.file(),
                entry.arguments.join("|"),
                entry.ours
            )
        };
        entries.iter().map(entry).collect::<Vec<_>>()
    };
    assert_eq!(shown(Group::Auth), ["1 pam_a.so  None", "6   None"]);
    assert_eq!(shown(Group::Account), ["1 pam_c.so  None"]);
    let session = [
        "2 pam_d.so  None",
        "4 pam_b.so a|b c None",
        "5 pam_job_adopt.so conf=/c Some(Err(LeadingDash))",
    ];
    assert_eq!(shown(Group::Session), session);
}

/// What a version of libpam rejects or reads in another way than others is never effective.
#[test]
fn line_that_not_every_libpam_runs_alike_is_rejected() {
    let jump = |number: &str| format!("session [success={number} default=ignore] pam_x.so\n{OURS}");
    let group = "a-group-of-some-length,".repeat(45);
    let other = |text: &'static str| vec![("sshd", OURS), ("other", text)];
    let one = |text: String| vec![("sshd", text.leak() as &str)];
    let gap = "sshd:1 is continued over an empty line or a comment";
    for (files, why) in [
        (
            one(format!(
                "session optional pam_x.so \\\n\nsession sufficient pam_y.so\n{OURS}"
            )),
            gap,
        ),
        (
            one(format!("session optional pam_x.so \\\n#\n a\n{OURS}")),
            gap,
        ),
        (
            one("session required \\\n# why\n pam_job_adopt.so\n".into()),
            gap,
        ),
        (one(format!("account required pam_x.so \\\n\n{OURS}")), gap),
        (
            one(jump("4294967294")),
            "sshd:1 jumps over 4294967294 lines",
        ),
        (
            one(jump("4294967297")),
            "sshd:1 jumps over 4294967297 lines",
        ),
        (
            one(jump("2147483648")),
            "sshd:1 jumps over 2147483648 lines",
        ),
        (
            one(jump("0")),
            "sshd:1 has the control [success=0 default=ignore], which libpam does not",
        ),
        (
            one(jump("junk")),
            "sshd:1 has the control [success=junk default=ignore]",
        ),
        (
            one(jump("1\u{a0}ignore=ok")),
            "sshd:1 has the character U+00A0",
        ),
        (
            one(format!("session mandatory pam_x.so\n{OURS}")),
            "sshd:1 has the control [mandatory]",
        ),
        (one(format!("{OURS}session\n")), "sshd:2 has no control"),
        (
            one(format!("{OURS}-session required\n")),
            "sshd:2 names no module",
        ),
        (
            one(format!("{OURS}session [success=ok pam_x.so\n")),
            "sshd:2 has the control [success=ok",
        ),
        (
            one(OURS.replace('\n', "\r\n")),
            "sshd:1 has the character U+000D",
        ),
        (
            one(format!("{OURS}# {}\n", "-".repeat(1022))),
            "sshd:2 has 1024 bytes",
        ),
        (
            one(OURS.replace('\n', &format!(" exempt_groups={group}\n"))),
            "sshd:1 has 1083 bytes",
        ),
        (
            one(format!("{OURS}session required /lib/.so\n")),
            "has the module name \"/lib/.so\"",
        ),
        (
            one(format!("{OURS}auth include\n")),
            "sshd:2 includes nothing",
        ),
        (one(format!("{OURS}@include\n")), "sshd:2 includes nothing"),
        (
            one(format!("{OURS}auth required ?.x\n")),
            "has the module name \"?.x\"",
        ),
        (
            one(format!("{OURS}password substack .x\n")),
            "has the module name \".x\"",
        ),
        (
            one("session required /no/pam_job_adopt.so".into()),
            "sshd:1 names /no/pam_job_adopt.so, which does not exist",
        ),
        (
            one(format!("{OURS}session optional /no/pam_job_adopt.so\n")),
            "sshd:2 names /no/",
        ),
        (other("auth include\n"), "other:1 includes nothing"),
        (
            other("auth required pam_deny.so \\\n"),
            "other:1 ends in a line's middle",
        ),
        (
            other("auth required pam_deny.so\nx y .so\n"),
            "other:2 has the module name \".so\"",
        ),
        (
            other("account include gone\n@include gone\n"),
            "other:2: gone: no such service file",
        ),
        (
            vec![
                ("sshd", "session include x"),
                ("x", "session required pam_job_adopt.so\nx y z"),
            ],
            "x:2 begins with x, which is no group",
        ),
        (
            vec![
                ("other", OURS),
                ("etc/pam.conf", "# x\nsshd session required pam_permit.so\n"),
            ],
            "etc/pam.conf:2 may have the service's lines",
        ),
    ] {
        assert_missing(&files, why);
    }
    for text in [
        jump("2147483647"),
        format!("nonsense\nauth\n{OURS}"),
        format!("# {}\n{OURS}", "-".repeat(1021)),
        format!("auth required ?.x.so\nauth include .x\n{OURS}"),
    ] {
        assert_effective(&[("sshd", &text), ("etc/pam.conf", "sshd session\n")]);
    }
}

/// libpam takes a false blank for a part of a word, in all versions. In arguments of other modules and in
/// other groups that changes nothing for our line.
#[test]
fn false_blank_is_rejected_where_it_decides_what_the_stack_does() {
    for line in [
        "account\u{a0}required pam_x.so",
        "\u{feff}# words",
        "\u{feff}auth required pam_x.so",
        "\r",
        "-session\u{a0}required pam_x.so",
        "session required\u{a0}pam_x.so",
        "session [success=1\u{a0}default=ignore] pam_x.so",
        "session required pam_x.so\r",
        "session required pam_x.so\u{a0}words",
        "session optional \\\n pam_x.so\u{b}words",
        "session include \u{a0}x",
        "@include \u{a0}x",
        "session required pam_job_adopt.so debug\u{a0}observe",
        "session required pam_job_adopt.so service=su debug\r",
        "account required pam_job_adopt.so service=su\u{200b}",
    ] {
        let x = ("\u{a0}x", "session required pam_x.so\n");
        assert_missing(
            &[("sshd", &format!("{line}\n{OURS}")), x],
            "sshd:1 has the character U+",
        );
        let included = ("y", &*format!("{line}\n"));
        let text = format!("@include y\n{OURS}");
        assert_missing(&[("sshd", &text), included, x], "y:1 has the character U+");
    }
    for line in [
        "auth required pam_x.so authtok_prompt=a\u{a0}b",
        "auth required\u{a0}pam_x.so",
        "auth [success=1\u{a0}default=ignore] pam_x.so\r",
        "account required pam_x.so\r",
        "account include \u{a0}gone",
        "session optional pam_x.so motd=/run/motd\r",
        "session required pam_x.so [a\u{a0}b]",
        "@include x words\r",
    ] {
        let x = ("x", "session required pam_x.so\n");
        assert_effective(&[("sshd", &format!("{line}\n{OURS}")), x]);
        let included = ("y", &*format!("{line}\n"));
        assert_effective(&[("sshd", &format!("@include y\n{OURS}")), included, x]);
    }
    let included = (
        "x",
        "auth required pam_x.so a\u{a0}b\nsession required pam_y.so\n",
    );
    assert_effective(&[("sshd", &format!("session include x\n{OURS}")), included]);
}

/// libpam runs no line of a service `other` that is not used: versions need not read them alike.
#[test]
fn unused_fallback_needs_only_to_be_loadable() {
    for other in [
        "auth required pam_deny.so\r\n".to_owned(),
        "\u{feff}# words\nsession\u{a0}required pam_deny.so\n".to_owned(),
        format!("# {}\n", "-".repeat(1100)),
        "\nauth required \\\n#\n pam_deny.so\n".to_owned(),
    ] {
        assert_effective(&[("sshd", OURS), ("other", &other)]);
    }
    let used = "session required pam_job_adopt.so debug\r\n";
    assert_missing(&[("other", used)], "other:1 has the character U+000D");
}

#[test]
fn null_device_and_folder_are_files_without_lines() {
    let scratch = Scratch::new();
    let dir = scratch.dir("etc/pam.d");
    let null = Path::new("/dev/null");
    let judge = || judge_stack(scratch.path(), "sshd", Group::Session);
    scratch.file("etc/pam.d/sshd", &format!("session include x\n{OURS}"));
    for name in ["x", "other"] {
        std::os::unix::fs::symlink(null, dir.join(name)).unwrap();
    }
    assert_eq!(
        judge().session_line(),
        SessionLine::Effective,
        "{}",
        judge()
    );
    std::fs::remove_file(dir.join("other")).unwrap();
    scratch.dir("etc/pam.d/other");
    assert_eq!(
        judge().session_line(),
        SessionLine::Effective,
        "{}",
        judge()
    );
    std::fs::remove_file(dir.join("x")).unwrap();
    nix::unistd::mkfifo(&dir.join("x"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(
        judge().to_string().ends_with("x: not a regular file"),
        "{}",
        judge()
    );
    std::fs::remove_file(dir.join("sshd")).unwrap();
    std::os::unix::fs::symlink(null, dir.join("sshd")).unwrap();
    assert_eq!(judge(), StackFinding::Absent);
}

#[test]
fn include_of_fallback_that_the_helper_may_not_look_for_is_there() {
    let scratch = Scratch::new();
    scratch.file("etc/pam.d/sshd", OURS);
    scratch.file("etc/pam.d/other", "@include /hidden/common-auth\n");
    scratch.file("hidden/common-auth", "auth required pam_deny.so\n");
    scratch.mode("hidden", 0);
    scratch.mode("", 0o755);
    // A thread of its own: root's user for file access stays as it is in all others.
    let finding = std::thread::scope(|scope| {
        let judge = || {
            nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65534));
            judge_stack(scratch.path(), "sshd", Group::Session)
        };
        scope.spawn(judge).join().unwrap()
    });
    scratch.mode("hidden", 0o700);
    assert_eq!(finding.session_line(), SessionLine::Effective, "{finding}");
}

/// A byte that is no UTF-8 counts as one, in the file and in what replaces its content.
#[test]
fn comment_in_another_encoding_has_as_many_bytes_as_the_file() {
    let scratch = Scratch::new();
    let path = scratch.file("etc/pam.d/sshd", "");
    let judge = |bytes: usize, replacement: bool| {
        let text = [b"#".as_slice(), &vec![0xe4; bytes], b"\n", OURS.as_bytes()].concat();
        if replacement {
            let file = Some((path.as_path(), text.as_slice()));
            return judge_stack_with(scratch.path(), "sshd", Group::Session, file);
        }
        std::fs::write(&path, &text).unwrap();
        judge_stack(scratch.path(), "sshd", Group::Session)
    };
    for replacement in [true, false] {
        for bytes in [350, 1022] {
            let finding = judge(bytes, replacement);
            assert_eq!(finding.session_line(), SessionLine::Effective, "{finding}");
        }
        let rejected = Rejection::TooLong(1024);
        let place = FileLine {
            file: path.clone(),
            line: 1,
        };
        assert_eq!(
            judge(1023, replacement),
            StackFinding::Rejected(place, rejected)
        );
    }
}

#[test]
fn broken_fallback_that_the_helper_may_not_read_is_left_alone() {
    let scratch = Scratch::new();
    scratch.file("etc/pam.d/sshd", OURS);
    scratch.file("etc/pam.d/other", "auth \\\n");
    scratch.mode("etc/pam.d/other", 0);
    let finding = judge_stack(scratch.path(), "sshd", Group::Session);
    // Root may read every file.
    let may_read = std::fs::File::open(scratch.path().join("etc/pam.d/other")).is_ok();
    assert_eq!(
        finding.session_line() == SessionLine::Missing,
        may_read,
        "{finding}"
    );
}

/// Debian's libpam takes in files by `@include`, and looks for included files in `/etc` alone.
/// Without a library that tells, both ways of reading must run our line.
#[test]
fn include_of_debian_counts_as_its_libpam_reads_it() {
    let library = |text: &'static str| ("usr/lib64/libpam.so.0", text);
    let debian = library("\0...\0@include\0");
    let upstream = library("\0include\0");
    let x = ("x", OURS);
    let skips = ("y", "session sufficient pam_x.so");
    for line in ["@include", "-@include", "@INCLUDE"] {
        let sshd = format!("{line} x\n");
        assert_effective(&[("sshd", &sshd), x, debian]);
        assert_missing(&[("sshd", &sshd), x, upstream], "no session line");
        assert_missing(&[("sshd", &sshd), x], "no session line");
        let before_ours = format!("{line} y\n{OURS}");
        assert_missing(
            &[("sshd", &before_ours), skips, debian],
            "can be skipped by etc/pam.d/y:1",
        );
        assert_missing(
            &[("sshd", &before_ours), skips],
            "can be skipped by etc/pam.d/y:1",
        );
        assert_effective(&[("sshd", &before_ours), skips, upstream]);
    }
    let nested = ("z", "@include x\n");
    assert_effective(&[("sshd", "session include z"), nested, x, debian]);
    assert_missing(
        &[("sshd", "session include z"), nested, x, upstream],
        "z:1 begins with @include",
    );
    let vendor = [("sshd", "session include a"), ("usr/lib/pam.d/a", OURS)];
    assert_effective(&[&vendor[..], &[upstream]].concat());
    assert_missing(
        &[&vendor[..], &[debian]].concat(),
        "sshd:1: a: no such service file",
    );
}

#[test]
fn name_of_module_counts_if_a_folder_of_modules_has_it() {
    let stock = ("usr/lib64/security/pam_permit.so", "");
    let ours = ("lib/security/pam_job_adopt.so", "");
    assert_missing(
        &[("sshd", OURS), stock],
        "sshd:1 names pam_job_adopt.so, which does not exist",
    );
    assert_effective(&[("sshd", OURS), stock, ours]);
    let other = OURS.replace("pam_job", "libpam_job");
    assert_missing(
        &[("sshd", &other), stock, ours],
        "names libpam_job_adopt.so",
    );
    assert_effective(&[("sshd", &other)]);
}

/// libpam looks into the folder of its own word size; Debian's also into those that all share.
#[test]
fn module_is_missing_if_libpam_looks_into_no_folder_that_has_it() {
    let multiarch = format!("usr/lib/{}-linux-gnu/security", std::env::consts::ARCH);
    let other_size = ["usr/lib64/security", "lib64/security"];
    let common = ["usr/lib/security", "lib/security"];
    let is_missing = |stock: &str, folder: &str, library: &str| {
        let scratch = Scratch::new();
        scratch.file(&format!("{stock}/pam_permit.so"), "");
        scratch.file(&format!("{folder}/pam_x.so"), "");
        scratch.file("usr/lib/libpam.so.0", library);
        is_missing_module(scratch.path(), "pam_x.so")
    };
    let debian = "\0@include\0";
    let upstream = "\0include\0";
    for folder in common {
        assert!(!is_missing(&multiarch, folder, debian), "{folder}");
        assert!(
            is_missing("usr/lib64/security", folder, upstream),
            "{folder}"
        );
        assert!(!is_missing(folder, folder, upstream), "{folder}");
    }
    for folder in other_size {
        assert!(is_missing(&multiarch, folder, debian), "{folder}");
        assert!(is_missing("usr/lib/security", folder, upstream), "{folder}");
        assert!(!is_missing(folder, folder, upstream), "{folder}");
    }
    assert!(is_missing("lib/security", &multiarch, debian));
    assert!(!is_missing(&multiarch, &multiarch, debian));
}

/// libpam puts a folder for `$ISA`, and the loader for `$LIB`.
#[test]
fn module_with_variable_in_its_path_is_not_missing() {
    let stock = ("lib/security/pam_permit.so", "");
    for path in [
        "/lib/security/$ISA/pam_job_adopt.so",
        "$ISA/pam_job_adopt.so",
    ] {
        assert_effective(&[("sshd", &OURS.replace("pam_job_adopt.so", path)), stock]);
    }
}

/// Of two failures libpam keeps the first, and with `PAM_NEW_AUTHTOK_REQD` applications admit an
/// account whatever the second one is.
#[test]
fn renewal_that_counts_as_bad_outweighs_our_refusal() {
    let ours = "account required pam_job_adopt.so\n";
    let sss = "account [default=bad success=ok user_unknown=ignore] pam_sss.so\n";
    let why = "account line at etc/pam.d/sshd:2 does not count where etc/pam.d/sshd:1 asks";
    for control in [
        "[default=bad success=ok user_unknown=ignore]",
        "[new_authtok_reqd=bad default=ok]",
    ] {
        for control_of_ours in ["required", "requisite"] {
            let line = ours.replace("required", control_of_ours);
            let text = judge_account(&[("sshd", &format!("account {control} pam_sss.so\n{line}"))]);
            assert!(text.contains(why), "{text}");
        }
    }
    for effective in [
        format!("{ours}{sss}"),
        format!("account required pam_unix.so\n{ours}"),
        // Our module never asks for a new password.
        ours.replace("required", "[success=ok ignore=ignore default=bad]"),
        format!("account [default=bad new_authtok_reqd=ok] pam_sss.so\n{ours}"),
        // The failure before it is another one.
        format!("account requisite pam_deny.so\naccount [success=9 default=bad] pam_x.so\n{ours}")
            .replace("default=bad", "new_authtok_reqd=9 default=bad"),
    ] {
        let text = judge_account(&[("sshd", &effective)]);
        assert!(text.ends_with("is effective"), "{effective}{text}");
    }
    // A session with such a result does not open.
    assert_effective(&[(
        "sshd",
        &format!("{}{OURS}", sss.replace("account", "session")),
    )]);
    // A reset takes the first failure back; a jump that leads too far takes its place.
    let substack = format!("account substack x\n{ours}");
    let taken_back = judge_account(&[
        ("sshd", &substack),
        (
            "x",
            "account [default=bad] pam_x.so\naccount [default=reset] pam_y.so\n",
        ),
    ]);
    assert!(taken_back.ends_with("is effective"), "{taken_back}");
    let replaced = judge_account(&[
        ("sshd", &format!("{substack}account [default=9] pam_y.so\n")),
        ("x", sss),
    ]);
    assert!(replaced.ends_with("is effective"), "{replaced}");
}

/// Tests the stacks that distributions ship, with our line at the place of our fragments.
#[test]
fn stacks_of_distributions_are_effective_with_our_fragment() {
    let debian = "auth required pam_x.so\n@include common-account\n\
        session [success=ok ignore=ignore module_unknown=ignore default=bad] pam_selinux.so close\n\
        session    required     pam_loginuid.so\nsession    optional     pam_keyinit.so force revoke\n\
        @include common-session\nsession    optional     pam_motd.so  motd=/run/motd.dynamic\n\
        session    required     pam_limits.so\nsession    required     pam_env.so # [1]\n";
    let common = "session\t[default=1]\t\t\tpam_permit.so\nsession\trequisite\t\t\tpam_deny.so\n\
        session\trequired\t\t\tpam_permit.so\nsession\trequired\tpam_unix.so \nsession\toptional\tpam_systemd.so \n";
    let account = "account sufficient pam_localuser.so\n";
    let files = |text: &str| {
        judge_files(&[
            ("sshd", text),
            ("common-session", common),
            ("common-account", account),
        ])
    };
    let (stack, detail) = files(&format!("{debian}{OURS}"));
    assert_eq!(stack, SessionLine::Effective, "{detail}");
    assert_eq!(files(debian).0, SessionLine::Missing);

    let redhat = "session    required     pam_selinux.so close\nsession    required     pam_loginuid.so\n\
        session    required     pam_selinux.so open env_params\nsession    optional     pam_keyinit.so force revoke\n\
        session    include      password-auth\nsession    include      postlogin\n";
    let password = "session     optional      pam_keyinit.so revoke\nsession     required      pam_limits.so\n\
        -session     optional      pam_systemd.so\n\
        session     [success=1 default=ignore] pam_succeed_if.so service in crond quiet use_uid\n\
        session     required      pam_unix.so\n";
    let postlogin = "session     optional                   pam_umask.so silent\n\
        session     [success=1 default=ignore] pam_succeed_if.so service !~ gdm* service !~ su* quiet\n\
        session     [default=1]   pam_lastlog.so nowtmp showfailed\n\
        session     optional      pam_lastlog.so silent noupdate showfailed\n";
    let text = format!("{redhat}{OURS}");
    assert_effective(&[
        ("sshd", &text),
        ("password-auth", password),
        ("postlogin", postlogin),
    ]);
    let edited = postlogin.lines().take(2).collect::<Vec<_>>().join("\n");
    assert_missing(
        &[
            ("sshd", &format!("{text}session optional pam_z.so")),
            ("password-auth", password),
            ("postlogin", &edited),
        ],
        "sshd:7 can be skipped by etc/pam.d/postlogin:2",
    );
}

/// Compares two account stacks whose modules are named after their positions. Returns the steps of a
/// login that only `side` admits.
fn compare_accounts(before: &str, after: &str, side: Side) -> Option<Vec<Step>> {
    let entries = |text: &str| {
        let scratch = Scratch::new();
        scratch.file("etc/pam.d/sshd", text);
        scratch.file(
            "etc/pam.d/x",
            "account sufficient 50\naccount required 51\n",
        );
        read_entries_with(scratch.path(), "sshd", Group::Account, None).unwrap()
    };
    let line = |entry: &Entry| ComparedLine {
        position: entry.file().parse().unwrap_or(49),
        returns: match entry.arguments.first().map(String::as_str) {
            Some("check") => ModuleReturn::AccountCheck,
            Some("success") => ModuleReturn::Success,
            Some("denied") => ModuleReturn::Denied,
            Some("ignore") => ModuleReturn::Ignore,
            _ => ModuleReturn::Any,
        },
    };
    let before = entries(before);
    let after = entries(after);
    let lines = |stack: &[Entry]| stack.iter().map(line).collect::<Vec<_>>();
    match compare_stacks((&before, &lines(&before)), (&after, &lines(&after)), side) {
        Comparison::Same => None,
        Comparison::Differs(path) => Some(path),
        Comparison::TooManyPaths => panic!("too many paths"),
    }
}

#[test]
fn stacks_that_admit_the_same_logins_are_the_same() {
    for (before, after) in [
        ("account required 1\n", "account required 1\n"),
        (
            "account required 1 check\naccount required 2 success\n",
            "account required 1 check\n",
        ),
        (
            "account sufficient 1 denied\naccount required 2\n",
            "account required 2\n",
        ),
        (
            "account required 1 check\naccount optional 2\n",
            "account required 1 check\naccount optional 3\n",
        ),
        // The line that is reached only after the change checks the account.
        (
            "account sufficient 1 success\naccount required 2\n",
            "account required 0 success\naccount required 2 check\n",
        ),
        (
            "account include x\n",
            "account [success=done default=ignore] 50\naccount required 51\n",
        ),
        (
            "account substack x\naccount required 60 check\n",
            "account substack x\naccount optional 55\naccount required 60 check\n",
        ),
        // Ignored lines alone admit no login.
        ("account required 1 ignore\n", "account required 1 denied\n"),
    ] {
        for side in [Side::Before, Side::After] {
            assert_eq!(
                compare_accounts(before, after, side),
                None,
                "{before} {after} {side:?}"
            );
        }
    }
}

#[test]
fn line_by_which_stacks_differ_is_on_the_path() {
    let refusing = |before: &str, after: &str, side: Side, alone: Side| {
        let path = compare_accounts(before, after, side).unwrap();
        let other = if side == Side::Before {
            Side::After
        } else {
            Side::Before
        };
        assert!(compare_accounts(after, before, other).is_some());
        let by = path
            .iter()
            .find(|step| step.alone == Some(alone) && step.refuses);
        by.map(|step| step.position)
    };
    // The `sufficient` line spares the login the line below it.
    let sufficient = "account sufficient 1 success\naccount required 2\n";
    let required = "account required 0 success\naccount required 2\n";
    assert_eq!(
        refusing(sufficient, required, Side::Before, Side::After),
        Some(2)
    );
    // The jump skips another line than before.
    let jump = "account [success=1 default=ignore] 1\naccount optional 2\naccount required 3\n\
                  account required 4\n";
    let shorter = &jump.replace("account optional 2\n", "");
    assert_eq!(refusing(jump, shorter, Side::After, Side::Before), Some(3));
    // A substack counts as one line.
    let substack =
        "account [success=1 default=ignore] 1\naccount substack x\naccount required 60\n";
    let without = "account [success=1 default=ignore] 1\naccount required 60 success\n";
    assert_eq!(
        compare_accounts(substack, without, Side::Before)
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn target_of_jump_is_last_skipped_line() {
    let scratch = Scratch::new();
    scratch.file(
        "etc/pam.d/sshd",
        "account [success=1 perm_denied=2 default=9] pam_a.so\naccount substack x\n\
         account required pam_b.so\n",
    );
    scratch.file(
        "etc/pam.d/x",
        "account [success=1 default=ignore] pam_c.so\n",
    );
    let stack = read_entries_with(scratch.path(), "sshd", Group::Account, None).unwrap();
    let targets = |at: usize| jump_targets(&stack, at);
    assert_eq!(targets(0), [Some(2), Some(3), None]);
    assert_eq!(targets(2), [None], "a jump does not leave its substack");
    assert_eq!(targets(3), []);
}
