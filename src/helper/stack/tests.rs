use super::*;
use crate::testing::Scratch;

/// The finding on service `sshd`, with the scratch directory cut out of its text.
fn found(files: &[(&str, &str)]) -> (Stack, String) {
    let scratch = Scratch::new();
    for (name, text) in files {
        let name =
            if name.contains('/') { (*name).to_owned() } else { format!("etc/pam.d/{name}") };
        scratch.file(&name, text);
    }
    let finding = judge(scratch.path(), "sshd");
    let text = finding.to_string().replace(&format!("{}/", scratch.path().display()), "");
    (finding.stack(), text)
}

#[track_caller]
fn effective(files: &[(&str, &str)]) {
    let (stack, text) = found(files);
    assert_eq!(stack, Stack::Effective, "{text}");
}

#[track_caller]
fn missing(files: &[(&str, &str)], part: &str) {
    let (stack, text) = found(files);
    assert_eq!(stack, Stack::Missing);
    assert!(text.contains(part), "{text:?} lacks {part:?}");
}

const OURS: &str = "session required pam_job_adopt.so\n";

#[test]
fn plain_lines() {
    effective(&[("sshd", OURS)]);
    effective(&[("sshd", "SESSION\tRequisite /usr/lib/security/pam_job_adopt.so service=sshd")]);
    effective(&[("sshd", "session required pam_job_adopt.so Service=SSHd")]);
    effective(&[("sshd", "session [success=ok ignore=ignore default=die] libpam_job_adopt.so")]);
    effective(&[("sshd", "session \\\n# why\n required pam_job_adopt.so # last\n")]);
    missing(
        &[("sshd", "account required pam_job_adopt.so\nsession required pam_unix.so")],
        "no session",
    );
    missing(&[("sshd", "# session required pam_job_adopt.so\n")], "no session line");
    missing(&[("sshd", "session required pam_job_adopt.so.bak\n")], "no session line");
    missing(&[], "no session line");
}

#[test]
fn unfit_lines() {
    for (line, why) in [
        ("session optional pam_job_adopt.so", "is not required"),
        ("session sufficient pam_job_adopt.so", "is not required"),
        ("session [success=ok default=ignore] pam_job_adopt.so", "is not required"),
        ("session [success=ok session_err=ok default=bad] pam_job_adopt.so", "is not required"),
        ("session [success=okay] pam_job_adopt.so", "is not required"),
        ("-session required pam_job_adopt.so", "has a leading -"),
        ("session required pam_job_adopt.so service=login", "is for service login"),
        ("session required pam_job_adopt.so SERVICE=login", "is for service login"),
        ("session required pam_job_adopt.so service=sshd service=su", "is for service su"),
    ] {
        missing(&[("sshd", line)], &format!("etc/pam.d/sshd:1 {why}"));
        if !line.contains("sufficient") {
            effective(&[("sshd", &format!("{line}\n{OURS}"))]);
        }
    }
}

/// A session line that only observes confines nobody whom an account line has admitted.
#[test]
fn a_session_line_that_observes() {
    let lines = |account: &str, session: &str| {
        format!(
            "account required pam_job_adopt.so {account}\nsession required pam_job_adopt.so {session}\n"
        )
    };
    let why = "etc/pam.d/sshd:2 observes, and the account line does not";
    missing(&[("sshd", &lines("", "observe"))], why);
    missing(&[("sshd", &lines("debug", "conf=/c observe"))], why);
    effective(&[("sshd", &lines("observe", "observe"))]);
    effective(&[("sshd", &lines("observe", ""))]);
    effective(&[("sshd", &lines("service=su", "observe"))]);
    effective(&[("sshd", &format!("{}{OURS}", lines("", "observe")))]);
}

#[test]
fn earlier_lines_that_may_end_the_stack() {
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
        missing(&[("sshd", &text)], "can be skipped by etc/pam.d/sshd:");
    }
    for line in [
        "session required pam_x.so",
        "session requisite pam_x.so",
        "session optional pam_x.so",
        "session [success=die default=die] pam_x.so",
        "session [success=1 default=ignore] pam_x.so\nsession required pam_unix.so",
        "session [default=1] pam_permit.so\nsession requisite pam_deny.so",
        "auth sufficient pam_x.so\naccount sufficient pam_x.so\npassword [default=1] pam_x.so",
        "session [success=junk] pam_x.so",
        "session [default=reset] pam_x.so",
    ] {
        effective(&[("sshd", &format!("{}session required pam_permit.so", ours_after(line)))]);
    }
}

#[test]
fn a_jump_past_the_end_is_a_failure() {
    effective(&[("sshd", &format!("session [success=2 default=ignore] pam_x.so\n{OURS}"))]);
    // Over ours onto nothing: the stack ends without a favourable word, which is none.
    effective(&[("sshd", &format!("session [success=1 default=ignore] pam_x.so\n{OURS}"))]);
}

#[test]
fn later_lines_matter_only_by_undoing() {
    effective(&[(
        "sshd",
        &format!("{OURS}session sufficient pam_x.so\nsession optional pam_y.so"),
    )]);
    effective(&[("sshd", &format!("{OURS}session [default=1] pam_x.so\n{OURS}"))]);
    let undone = format!("{OURS}session [default=reset] pam_x.so\nsession required pam_y.so");
    missing(&[("sshd", &undone)], "can be undone by etc/pam.d/sshd:2");
    let requisite = undone.replace("required pam_job", "requisite pam_job");
    effective(&[("sshd", &requisite)]);
}

/// A `sufficient` line ends what includes it, but only the substack that it stands in.
#[test]
fn includes_share_a_fate_and_substacks_do_not() {
    let auth = ("password-auth", "session sufficient pam_localuser.so\nsession required pam_y.so");
    let after = |word: &str| format!("session {word} password-auth\n{OURS}");
    let by = "skipped by etc/pam.d/password-auth:1";
    missing(&[("sshd", &after("include")), auth], by);
    effective(&[("sshd", &after("substack")), auth]);
    effective(&[("sshd", &format!("{OURS}session include password-auth")), auth]);
    missing(&[("sshd", &format!("@include password-auth\n{OURS}")), auth], by);
}

/// The end of an included file does not stop a jump; the end of a substack does.
#[test]
fn jumps_reach_out_of_includes() {
    let x = ("x", "session required pam_y.so\nsession [success=1 default=ignore] pam_x.so");
    let after = |word: &str| format!("session {word} x\n{OURS}session optional pam_z.so");
    missing(&[("sshd", &after("include")), x], "sshd:2 can be skipped by etc/pam.d/x:2");
    effective(&[("sshd", &after("substack")), x]);
}

#[test]
fn a_jump_counts_a_substack_as_one() {
    let x = ("x", "session required pam_a.so\nsession required pam_b.so");
    let ours = |count: u32| {
        format!(
            "session required pam_p.so\nsession [success={count} default=ignore] pam_x.so\n\
             session substack x\n{OURS}session required pam_z.so"
        )
    };
    effective(&[("sshd", &ours(1)), x]);
    missing(&[("sshd", &ours(2)), x], "skipped by etc/pam.d/sshd:2");
    let in_substack = (
        "x",
        "session [success=1 default=ignore] pam_a.so\nsession required pam_job_adopt.so\nsession required pam_b.so",
    );
    missing(&[("sshd", "session substack x"), in_substack], "etc/pam.d/x:2 can be skipped by");
    missing(
        &[
            (
                "sshd",
                "session required pam_p.so\nsession [success=1 default=ignore] pam_q.so\nsession substack x",
            ),
            ("x", OURS),
        ],
        "etc/pam.d/x:1 can be skipped by etc/pam.d/sshd:2",
    );
    effective(&[("sshd", "session required pam_p.so\nsession substack x"), ("x", OURS)]);
}

/// A reset within a substack goes back to the verdict at its entry, not before.
#[test]
fn a_reset_reaches_to_the_entry_of_its_substack() {
    let x = ("x", "session [default=reset] pam_x.so");
    let files = |word: &str| format!("{OURS}session {word} x\nsession required pam_y.so");
    effective(&[("sshd", &files("substack")), x]);
    missing(&[("sshd", &files("include")), x], "undone by etc/pam.d/x:1");
}

#[test]
fn files_are_found_where_libpam_finds_them() {
    effective(&[("usr/lib/pam.d/sshd", OURS)]);
    missing(
        &[("usr/lib/pam.d/sshd", OURS), ("sshd", "session required pam_unix.so")],
        "no session",
    );
    effective(&[("sshd", "session include a"), ("usr/lib/pam.d/a", OURS)]);
    effective(&[("sshd", "session include /opt/a"), ("opt/a", OURS)]);
    effective(&[("other", OURS)]);
    effective(&[("sshd", "auth required pam_unix.so"), ("other", OURS)]);
    missing(&[("sshd", "session required pam_unix.so"), ("other", OURS)], "no session line");
}

#[test]
fn what_cannot_be_read_is_not_effective() {
    missing(&[("sshd", &format!("{OURS}session include gone"))], "gone: no such service file");
    missing(&[("sshd", &format!("{OURS}session include"))], "sshd:2: includes nothing");
    missing(&[("sshd", &format!("{OURS}@include sshd"))], "more than 16 deep");
    missing(&[("sshd", &format!("{OURS}session substack sshd"))], "more than 16 deep");
    missing(&[("sshd", "session required pam_job_adopt.so \\\n")], "line's middle");
    missing(&[("sshd", &OURS.repeat(1001))], "more than 1000 session lines");
    effective(&[("sshd", &format!("{OURS}auth include gone"))]);
}

fn account(files: &[(&str, &str)]) -> String {
    let scratch = Scratch::new();
    for (name, text) in files {
        scratch.file(&format!("etc/pam.d/{name}"), text);
    }
    let finding = judge_group(scratch.path(), "sshd", Group::Account);
    finding.to_string().replace(&format!("{}/", scratch.path().display()), "")
}

/// A password that is due lets an account in (pam_acct_mgmt(3)), but opens no session.
#[test]
fn an_account_stack_that_ends_in_a_new_password_lets_in() {
    let ours = "account required pam_job_adopt.so\n";
    let common = "account [success=1 new_authtok_reqd=done default=ignore] pam_unix.so\n\
                  account requisite pam_deny.so\naccount required pam_permit.so\n";
    let after = account(&[("sshd", &format!("{common}{ours}"))]);
    assert!(after.ends_with("sshd:4 can be skipped by etc/pam.d/sshd:1"), "{after}");
    let before = account(&[("sshd", &format!("{ours}{common}"))]);
    assert!(before.ends_with("sshd:1 is effective"), "{before}");
    let stays = common.replace("=done", "=ok");
    let after = account(&[("sshd", &format!("{stays}{ours}"))]);
    assert!(after.ends_with("sshd:4 is effective"), "{after}");
    effective(&[("sshd", &format!("{}{OURS}", common.replace("account", "session")))]);
}

#[test]
fn entries_are_the_lines_of_a_group_in_their_order() {
    let scratch = Scratch::new();
    let sshd = "auth required pam_a.so\naccount include x\nsession substack x\n\
                session [success=ok default=bad] /lib/pam_b.so a [b c]\n-session required \
                pam_job_adopt.so conf=/c\nnonsense\n";
    scratch.file("etc/pam.d/sshd", sshd);
    scratch.file("etc/pam.d/x", "account required pam_c.so\nsession required pam_d.so\n");
    let shown = |group| {
        let entries = entries(scratch.path(), "sshd", group).unwrap();
        let entry = |entry: &Entry| {
            let line = entry.place.line;
            format!("{line} {} {} {:?}", entry.file(), entry.arguments.join("|"), entry.ours)
        };
        entries.iter().map(entry).collect::<Vec<_>>()
    };
    assert_eq!(shown(Group::Auth), ["1 pam_a.so  None", "6   None"]);
    assert_eq!(shown(Group::Account), ["1 pam_c.so  None"]);
    let session =
        ["2 pam_d.so  None", "4 pam_b.so a|b c None", "5 pam_job_adopt.so conf=/c Some(Err(Dash))"];
    assert_eq!(shown(Group::Session), session);
}

/// The stacks that distributions ship, with the line where our fragments put it.
#[test]
fn distributions() {
    let debian = "auth required pam_x.so\n@include common-account\n\
        session [success=ok ignore=ignore module_unknown=ignore default=bad] pam_selinux.so close\n\
        session    required     pam_loginuid.so\nsession    optional     pam_keyinit.so force revoke\n\
        @include common-session\nsession    optional     pam_motd.so  motd=/run/motd.dynamic\n\
        session    required     pam_limits.so\nsession    required     pam_env.so # [1]\n";
    let common = "session\t[default=1]\t\t\tpam_permit.so\nsession\trequisite\t\t\tpam_deny.so\n\
        session\trequired\t\t\tpam_permit.so\nsession\trequired\tpam_unix.so \nsession\toptional\tpam_systemd.so \n";
    let account = "account sufficient pam_localuser.so\n";
    let files = |text: &str| {
        found(&[("sshd", text), ("common-session", common), ("common-account", account)])
    };
    let (stack, text) = files(&format!("{debian}{OURS}"));
    assert_eq!(stack, Stack::Effective, "{text}");
    assert_eq!(files(debian).0, Stack::Missing);

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
    effective(&[("sshd", &text), ("password-auth", password), ("postlogin", postlogin)]);
    let edited = postlogin.lines().take(2).collect::<Vec<_>>().join("\n");
    missing(
        &[
            ("sshd", &format!("{text}session optional pam_z.so")),
            ("password-auth", password),
            ("postlogin", &edited),
        ],
        "sshd:7 can be skipped by etc/pam.d/postlogin:2",
    );
}
