mod auth_lines;
mod barrier;
mod comparison;
mod files;
mod modules;
mod order;

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
            "sshd:1 has a no-break space (U+00A0)",
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
            "sshd:1 has a carriage return (U+000D)",
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
        format!("session optional\nsession sufficient\nsession [default=ignore]\n{OURS}"),
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
        assert_missing(&[("sshd", &format!("{line}\n{OURS}")), x], "sshd:1 has a");
        let included = ("y", &*format!("{line}\n"));
        let text = format!("@include y\n{OURS}");
        assert_missing(&[("sshd", &text), included, x], "y:1 has a");
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
