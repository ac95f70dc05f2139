//! Stacks with pam_slurm_adopt.so as sites write them, and what becomes of each.
//!
//! The shapes below `tests/fixtures/pam` name the package that ships them. The first recipe and the
//! one for EL are those of Slurm's page `pam_slurm_adopt.html`; pam_access.so above the old module is
//! in its `contribs/pam/README`.

use super::lines::changed_lines;
use super::lines::{REPLACED_MARK, decode};
use super::plan::AUTH_LINE;
use super::tests::{node, planned, read, text_of};
use crate::testing::Scratch;

const SLURM_SUFFICIENT: &str = "account sufficient pam_slurm_adopt.so\n";
const SLURM_REQUIRED: &str = "account required pam_slurm_adopt.so\n";
const STAFF: &str = "exempt_groups=staff";
const NAMES_GROUPS: &str = "--arguments exempt_groups=NAMES";
const BEFORE: &str = "lets users in before pam_slurm_adopt.so is asked";

/// The line by which each shape includes the lines that all services have.
fn common_line(shape: &str) -> &'static str {
    match shape {
        "debian" | "ubuntu" => "@include common-account\n",
        "suse" | "suse-sss" => "account     include     common-account\n",
        _ => "account    include      password-auth\n",
    }
}

/// Lines of the service's own file above and below the common ones.
type Lines<'a> = (&'a str, &'a str);

/// Lays out a node of that shape with the recipe in it.
fn lay_out(shape: &str, (above, below): Lines<'_>) -> Scratch {
    let scratch = node(shape);
    let common = common_line(shape);
    let old = text_of(&scratch);
    assert!(old.contains(common), "{shape}");
    scratch.file(
        "etc/pam.d/sshd",
        &old.replacen(common, &format!("{above}{common}{below}"), 1),
    );
    scratch
}

/// Asserts that these lines are commented out and no others, and that all come back.
#[track_caller]
fn assert_replaces(shape: &str, lines: Lines<'_>, arguments: &str, expected: &[&str]) {
    let scratch = lay_out(shape, lines);
    let old = text_of(&scratch);
    let plan = read(&scratch).with_our_lines(Some(arguments));
    let plan = plan.unwrap_or_else(|why| panic!("{shape} {arguments}: {old}{why}"));
    let text = decode(&plan.text);
    let marked: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix(REPLACED_MARK))
        .collect();
    assert_eq!(marked, expected, "{shape} {arguments}: {text}");
    read(&scratch).write(text.as_bytes()).unwrap();
    assert_eq!(
        read(&scratch).without_our_lines().unwrap().text,
        old.as_bytes()
    );
    assert_eq!(planned(&scratch, None), text);
}

/// Asserts that the recipe is refused, with these parts in the text.
#[track_caller]
fn assert_refuses(shape: &str, lines: Lines<'_>, arguments: &str, parts: &[&str]) {
    let scratch = lay_out(shape, lines);
    let old = text_of(&scratch);
    match read(&scratch).with_our_lines(Some(arguments)) {
        Ok(plan) => panic!("{shape} {arguments}: {}", decode(&plan.text)),
        Err(why) => {
            let why = why.to_string();
            assert!(
                parts.iter().all(|part| why.contains(part)),
                "{shape} {arguments}: {old}{why}"
            );
        }
    }
}

const ACCESS: &str = "account required pam_access.so";
const LISTFILE: &str = "account required pam_listfile.so item=group sense=allow file=/etc/staff";
const TIME: &str = "account requisite pam_time.so";
const SUCCEED_IF: &str = "account required pam_succeed_if.so user ingroup staff";

/// A line behind a sufficient old line judged only users whom the old line had not let in. Users whom that
/// line lets in must then be exempt in ours.
#[test]
fn lines_that_never_judged_job_owners_go_with_a_sufficient_line() {
    let slurm = SLURM_SUFFICIENT.trim_end();
    let whom = "lets users in whom pam_slurm_adopt.so refuses";
    for (gate, both) in [
        (ACCESS, [SLURM_SUFFICIENT.trim_end(), ACCESS]),
        (LISTFILE, [slurm, LISTFILE]),
        (TIME, [slurm, TIME]),
        (SUCCEED_IF, [slurm, SUCCEED_IF]),
    ] {
        let below = format!("{SLURM_SUFFICIENT}{gate}\n");
        let module = gate.split(' ').nth(2).unwrap();
        for shape in ["debian", "suse"] {
            let named = &[module, whom, NAMES_GROUPS];
            assert_refuses(shape, ("", &below), "", named);
        }
        for shape in [
            "debian",
            "suse",
            "ubuntu",
            "el",
            "el7",
            "el-sssd",
            "el-winbind",
            "suse-sss",
        ] {
            assert_replaces(shape, ("", &below), STAFF, &both);
        }
        // Above the common lines all of them are below the old line.
        assert_replaces("debian", (&below, ""), STAFF, &both);
    }
    // pam_deny lets no user in, so the arguments need not name any.
    let deny = "account required pam_deny.so";
    let before_deny = format!("{SLURM_SUFFICIENT}{deny}\n");
    assert_replaces(
        "debian",
        ("", &before_deny),
        "",
        &[
            "account sufficient pam_slurm_adopt.so",
            "account required pam_deny.so",
        ],
    );
    // The same by a jump.
    let jump = "account [success=1 default=ignore] pam_slurm_adopt.so";
    let jump_over_gate = format!("{jump}\n{ACCESS}\n");
    assert_refuses(
        "debian",
        ("", &jump_over_gate),
        "",
        &["pam_access.so", whom],
    );
    assert_replaces(
        "debian",
        ("", &jump_over_gate),
        STAFF,
        &[
            "account [success=1 default=ignore] pam_slurm_adopt.so",
            ACCESS,
        ],
    );
}

/// A required old line leaves users with a job to the lines around it, which must go on to judge them.
#[test]
fn lines_that_judged_job_owners_stay() {
    for gate in [ACCESS, LISTFILE, TIME, SUCCEED_IF] {
        for (above, below) in [
            (String::new(), format!("{SLURM_REQUIRED}{gate}\n")),
            (String::new(), format!("{gate}\n{SLURM_REQUIRED}")),
            (format!("{gate}\n"), SLURM_REQUIRED.to_owned()),
        ] {
            for shape in ["debian", "suse"] {
                let slurm = &[SLURM_REQUIRED.trim_end()];
                assert_replaces(shape, (&above, &below), "", slurm);
            }
        }
    }
    // Modules that only check the account would refuse few owners of jobs, and rightly.
    for check in [
        "pam_faillock.so",
        "pam_unix.so",
        "pam_sss.so",
        "pam_winbind.so",
        "pam_tally2.so",
    ] {
        let below = format!("{SLURM_SUFFICIENT}{ACCESS}\naccount required {check}\n");
        let gone = &[SLURM_SUFFICIENT.trim_end(), ACCESS];
        assert_replaces("debian", ("", &below), STAFF, gone);
        assert_replaces("el-sssd", ("", &below), STAFF, gone);
    }
}

/// A line above the old one that ends the stack lets users in without a job: ours refuses them unless its
/// arguments exempt them.
#[test]
fn users_let_in_before_the_old_line_have_to_be_named() {
    for gate in [
        "account sufficient pam_access.so",
        "account sufficient pam_listfile.so item=user sense=allow file=/etc/staff",
        "account sufficient pam_time.so",
        "account [success=done default=ignore] pam_succeed_if.so user ingroup staff",
    ] {
        let below = format!("{gate}\n{SLURM_REQUIRED}");
        let slurm = &[SLURM_REQUIRED.trim_end()];
        assert_refuses("debian", ("", &below), "", &[BEFORE, NAMES_GROUPS]);
        for shape in ["debian", "suse", "el-sssd"] {
            assert_replaces(shape, ("", &below), STAFF, slurm);
        }
        assert_replaces("debian", (&below, ""), STAFF, slurm);
    }
    // The common lines of these let local users in.
    let dashed = "-account required pam_slurm_adopt.so";
    for (shape, module) in [
        ("el", "pam_localuser.so"),
        ("el7", "pam_localuser.so"),
        ("el-sssd", "pam_localuser.so"),
        ("el-winbind", "pam_localuser.so"),
        ("el-sssd-features", "pam_systemd_home.so"),
        ("el-winbind-features", "pam_systemd_home.so"),
        ("ubuntu", "pam_localuser.so"),
        ("suse-sss", "pam_localuser.so"),
    ] {
        let below = format!("{dashed}\n");
        let named = &[module, BEFORE, "exempt_uids=0 if there are none"];
        assert_refuses(shape, ("", &below), "", named);
        assert_replaces(
            shape,
            ("", &below),
            "exempt_uids=0",
            &["-account required pam_slurm_adopt.so"],
        );
    }
    assert_replaces(
        "debian",
        ("", &format!("{dashed}\n")),
        "",
        &["-account required pam_slurm_adopt.so"],
    );
}

/// A jump that spares users the old line goes with it, and our arguments must exempt these users instead. The
/// change is refused if the jump also spares them a line that stays.
#[test]
fn jump_over_old_line_is_replaced_or_refuses_change() {
    for jump in [
        "account [success=1 default=ignore] pam_sss.so",
        "account [success=1 default=ignore] pam_winbind.so",
        "account [success=1 default=ignore] pam_succeed_if.so user ingroup staff",
    ] {
        let recipe = format!("{jump}\n{SLURM_REQUIRED}");
        let before_unix = format!("{recipe}account required pam_unix.so\n");
        let both = [jump, SLURM_REQUIRED.trim_end()];
        // Our line has no argument that exempts those who jump.
        assert_refuses("debian", ("", &before_unix), "", &[BEFORE]);
        for shape in ["debian", "suse", "el-sssd"] {
            assert_replaces(shape, (&recipe, ""), STAFF, &both);
            assert_replaces(shape, ("", &before_unix), STAFF, &both);
        }
    }
    // The jump is over a line that stays, too.
    let two = format!(
        "account [success=2 default=ignore] pam_sss.so\n{SLURM_REQUIRED}{ACCESS}\n\
         account required pam_unix.so\n"
    );
    assert_refuses("debian", ("", &two), STAFF, &["jumps over", "need no jump"]);
    // Over a line that goes as well.
    let two_that_go = format!(
        "account [success=2 default=ignore] pam_succeed_if.so user ingroup staff\n\
         {SLURM_SUFFICIENT}{ACCESS}\naccount required pam_unix.so\n"
    );
    assert_replaces(
        "debian",
        ("", &two_that_go),
        STAFF,
        &[
            "account [success=2 default=ignore] pam_succeed_if.so user ingroup staff",
            "account sufficient pam_slurm_adopt.so",
            ACCESS,
        ],
    );
    // Without the line that jumps, users would get in whom it refuses.
    let refusing = format!(
        "account [success=1 default=bad] pam_sss.so\n{SLURM_REQUIRED}account required pam_unix.so\n"
    );
    assert_refuses(
        "debian",
        ("", &refusing),
        STAFF,
        &["would no longer refuse"],
    );
    // In the session stack any jump over the old line is refused.
    let session = "session [success=1 default=ignore] pam_succeed_if.so user ingroup staff\n\
                   session required pam_slurm_adopt.so\n";
    let below = format!("{SLURM_REQUIRED}{session}");
    assert_refuses(
        "debian",
        ("", &below),
        STAFF,
        &["pam_succeed_if.so at", "jumps over"],
    );
    // A jump over other lines stays where it is.
    let other = format!("account [success=1 default=ignore] pam_x.so\n{ACCESS}\n{SLURM_REQUIRED}");
    assert_replaces("debian", ("", &other), "", &[SLURM_REQUIRED.trim_end()]);
}

/// Modules of the auth stack decide who a user is, and not who has a job: they stay.
#[test]
fn second_factors_stay() {
    for line in [
        "auth required pam_duo.so",
        "auth required pam_google_authenticator.so nullok",
        "auth [success=1 default=ignore] pam_duo.so",
    ] {
        let below = format!("{line}\n{SLURM_REQUIRED}");
        assert_replaces("debian", ("", &below), "", &[SLURM_REQUIRED.trim_end()]);
        let with_gate = format!("{line}\n{SLURM_SUFFICIENT}{ACCESS}\n");
        let gone = &[SLURM_SUFFICIENT.trim_end(), ACCESS];
        assert_replaces("el-sssd", ("", &with_gate), STAFF, gone);
    }
}

/// If a line behind a sufficient old line can be neither kept nor commented out, the refusal names it and
/// what the admin can do.
#[test]
fn line_that_must_stay_refuses_change_with_remedy() {
    let unknown = format!("{SLURM_SUFFICIENT}account required pam_site.so\n");
    let rules = "may refuse users with a job, by rules of its own";
    assert_refuses(
        "debian",
        ("", &unknown),
        STAFF,
        &[rules, "put that line above"],
    );
    let done = "write \"account [success=done ignore=ignore default=die] pam_job_adopt.so";
    assert_refuses("debian", (&unknown, ""), STAFF, &[rules, done]);
    // with-pamaccess: the line is in a file of all services.
    let shared = &[
        "pam_access.so at",
        "password-auth",
        "put the lines of that file into",
    ];
    for shape in ["el-sssd-features", "el-winbind-features"] {
        assert_refuses(shape, (SLURM_SUFFICIENT, ""), STAFF, shared);
    }
    let ignores =
        format!("account sufficient pam_slurm_adopt.so action_no_jobs=ignore\n{ACCESS}\n");
    assert_refuses("debian", ("", &ignores), STAFF, &["users without a job"]);
}

/// The old line let users without a job in, and ours would refuse them: the admin must say which of both is
/// meant.
#[test]
fn old_line_that_kept_no_user_out_refuses() {
    let why = &["keeps no user out", "action_no_jobs=deny"];
    for line in [
        "account sufficient pam_slurm_adopt.so",
        "account optional pam_slurm_adopt.so",
    ] {
        let gone = &[line];
        let below = format!("{line}\n");
        for arguments in ["", STAFF] {
            assert_refuses("debian", ("", &below), arguments, why);
        }
        for arguments in ["action_no_jobs=deny", "action_no_jobs=ignore"] {
            assert_replaces("debian", ("", &below), arguments, gone);
        }
    }
}

/// The changed lines without their neighbours.
fn changes(old: &str, new: &str) -> Vec<String> {
    let mut lines = changed_lines(old.as_bytes(), new.as_bytes());
    lines.retain(|line| line.starts_with(['+', '-']));
    lines
}

/// Both auth lines are equal: only their places tell them apart.
#[test]
fn changed_lines_are_shown_with_their_places() {
    let old = "# head\n@include common-auth\n\naccount required a.so\n# note\n@include common-account\n\
               session required b.so\n@include common-session\n";
    let new = "# head\nauth ours\n@include common-auth\nauth ours\n\naccount required a.so\naccount ours\n# note\n\
               @include common-account\nsession required b.so\n@include common-session\nsession ours\n";
    let shown = [
        "+ auth ours",
        "  @include common-auth",
        "+ auth ours",
        "  account required a.so",
        "+ account ours",
        "  @include common-account",
        "  …",
        "  @include common-session",
        "+ session ours",
    ];
    assert_eq!(changed_lines(old.as_bytes(), new.as_bytes()), shown);
    assert_eq!(changed_lines(new.as_bytes(), new.as_bytes()), [""; 0]);
}

/// The admin sees each old line right above the line that replaces it.
#[test]
fn changed_lines_are_shown_in_pairs() {
    let scratch = lay_out("debian", ("", &format!("{SLURM_SUFFICIENT}{ACCESS}\n")));
    let old = text_of(&scratch);
    let new = planned(&scratch, Some(STAFF));
    let ours = "required     pam_job_adopt.so exempt_groups=staff";
    let auth = &format!("+ {AUTH_LINE}");
    assert_eq!(
        changes(&old, &new),
        [
            auth,
            auth,
            &format!("+ account    {ours}"),
            "- account sufficient pam_slurm_adopt.so",
            "+ #job-adopt: account sufficient pam_slurm_adopt.so",
            "- account required pam_access.so",
            "+ #job-adopt: account required pam_access.so",
            &format!("+ session    {ours}"),
        ]
    );
    assert_eq!(changes(&new, &old).len(), 8);
    assert_eq!(changes(&new, &new), [""; 0]);
    let other = new.replace(STAFF, "exempt_uids=7");
    assert_eq!(
        changes(&new, &other),
        [
            format!("- account    {ours}"),
            "+ account    required     pam_job_adopt.so exempt_uids=7".to_owned(),
            format!("- session    {ours}"),
            "+ session    required     pam_job_adopt.so exempt_uids=7".to_owned(),
        ]
    );
}

/// `pam_access.so` admitted root and staff. It goes with the old line, since it would refuse owners of jobs below ours.
/// What is left, `pam_nologin.so` and ours, ignores root and staff, and libpam refuses whom every line ignores.
#[test]
fn change_is_refused_if_no_line_would_admit_exempt_users() {
    let scratch = node("debian");
    let text = format!(
        "account required pam_nologin.so\n{SLURM_SUFFICIENT}{ACCESS}\n\
         session required pam_permit.so\n"
    );
    scratch.file("etc/pam.d/sshd", &text);
    let why = read(&scratch)
        .with_our_lines(Some(STAFF))
        .unwrap_err()
        .to_string();
    assert!(why.contains("would refuse exempt users or root"), "{why}");
}

/// The line that a refusal proposes is effective, and spares users with a job the lines below it.
#[test]
fn proposed_line_is_effective() {
    let scratch = node("debian");
    let text = text_of(&scratch).replace(
        "@include common-account\n",
        "account [success=done ignore=ignore default=die] pam_job_adopt.so exempt_groups=staff\n\
         account required pam_site.so\n@include common-account\n",
    ) + "session required pam_job_adopt.so exempt_groups=staff\n";
    read(&scratch).require_effective(text.as_bytes()).unwrap();
}

/// Each line that is commented out has a note with the reason.
#[test]
fn notes_name_each_line_that_goes() {
    let scratch = node("debian");
    let include = "@include common-account\n";
    let lines = format!(
        "account [success=2 default=ignore] pam_sss.so\n{SLURM_SUFFICIENT}{ACCESS}\n{include}"
    );
    let text = text_of(&scratch).replace(include, &lines);
    scratch.file("etc/pam.d/sshd", &text);
    let notes = read(&scratch).with_our_lines(Some(STAFF)).unwrap().notes;
    let require_note = |parts: [&str; 2]| {
        assert!(
            notes
                .iter()
                .any(|note| parts.iter().all(|part| note.contains(part))),
            "{notes:?}"
        );
    };
    require_note(["pam_access.so at", "it never judged users with a job"]);
    require_note(["pam_sss.so at", "all that it jumps over"]);
    require_note(["pam_slurm_adopt.so", "action_adopt_failure"]);
}

/// The first of these is what a cluster kit writes.
const DIFFERENT: [&str; 4] = [
    "-account sufficient pam_slurm_adopt.so action_no_jobs=ignore\n\
     -account sufficient pam_listfile.so item=user sense=allow file=/etc/ok onerr=fail\n\
     -account required pam_slurm_adopt.so\n",
    "account sufficient pam_slurm_adopt.so action_no_jobs=ignore\n\
     account required pam_slurm_adopt.so action_no_jobs=deny\n",
    "account required pam_slurm_adopt.so\n\
     account required pam_slurm_adopt.so Action_No_Jobs=ignore service=sshd\n",
    "account sufficient pam_slurm_adopt.so action_no_jobs=ignore\n\
     account sufficient pam_slurm_adopt.so action_no_jobs=ignore\n\
     account required pam_slurm_adopt.so action_no_jobs=deny\n",
];

/// Old lines may be for different logins: without equal arguments only the admin knows those of ours.
#[test]
fn arguments_of_old_lines_that_differ_are_not_taken_over() {
    let slurm = |below: &str| -> Vec<String> {
        below
            .lines()
            .filter(|line| line.contains("slurm"))
            .map(str::to_owned)
            .collect()
    };
    for below in DIFFERENT {
        for arguments in ["", "timeout=9", STAFF] {
            let parts = &[
                "if all have the same",
                "--arguments '",
                "action_no_jobs=deny",
            ];
            assert_refuses("debian", ("", below), arguments, parts);
        }
        // The old lines refuse users without a job, so this would let them in.
        let opens = "action_no_jobs=ignore service=sshd exempt_groups=staff";
        assert_refuses(
            "debian",
            ("", below),
            opens,
            &["no longer refuse users without a job"],
        );
        let closes = "action_no_jobs=deny service=sshd exempt_groups=staff";
        let old = slurm(below);
        let old: Vec<&str> = old.iter().map(String::as_str).collect();
        assert_replaces("debian", ("", below), closes, &old);
    }
}

#[test]
fn arguments_that_old_lines_agree_on_are_taken_over() {
    let line = "account required pam_slurm_adopt.so nodename=n1 action_adopt_failure=deny";
    let other = "account required pam_slurm_adopt.so action_adopt_failure=deny nodename=n1";
    let scratch = lay_out("debian", ("", &format!("{line}\n{other}\n")));
    let text = planned(&scratch, None);
    let ours = "pam_job_adopt.so nodename=n1 action_adopt_failure=deny\n";
    assert_eq!(text.matches(ours).count(), 2);
}

/// An old line for another service ignores everybody here.
#[test]
fn old_line_of_another_service_admits_users_without_a_job() {
    let below = "account required pam_slurm_adopt.so service=login\n";
    for arguments in ["", "service=sshd"] {
        let part = &["keeps no user out who has no job", "action_no_jobs=deny"];
        assert_refuses("debian", ("", below), arguments, part);
    }
    assert_replaces(
        "debian",
        ("", below),
        "service=sshd action_no_jobs=deny",
        &["account required pam_slurm_adopt.so service=login"],
    );
}
