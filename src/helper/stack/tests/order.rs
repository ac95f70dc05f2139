//! The order in which libpam runs lines: jumps, includes, substacks and what ends a stack.

use super::*;

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
