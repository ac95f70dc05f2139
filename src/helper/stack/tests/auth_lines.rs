//! The two auth lines, by which a login joins private files.

use super::*;

/// Analyses the auth lines of `sshd`, which includes `common`.
fn judge_auth(sshd: &str, common: &str) -> String {
    let scratch = Scratch::new();
    scratch.file("etc/pam.d/sshd", sshd);
    scratch.file("etc/pam.d/common", common);
    let finding = judge_stack(scratch.path(), "sshd", Group::Auth);
    finding
        .describe(Group::Auth)
        .replace(&format!("{}/etc/pam.d/", scratch.path().display()), "")
}

const FIRST_AND_LAST: [&str; 2] = [
    "auth required pam_job_adopt.so\nauth include common\nauth required pam_job_adopt.so\n",
    "auth requisite pam_job_adopt.so\nauth substack common\nauth requisite pam_job_adopt.so\n",
];

#[test]
fn first_and_last_auth_lines_that_no_success_skips_are_effective() {
    let [included, substack] = FIRST_AND_LAST;
    let debian = "auth [success=1 default=ignore] pam_unix.so\nauth requisite pam_deny.so\n\
                  auth required pam_permit.so\n";
    let el = "auth required pam_env.so\nauth sufficient pam_unix.so\nauth required pam_deny.so\n";
    let effective = "is effective";
    assert!(
        judge_auth(included, debian).ends_with(effective),
        "{}",
        judge_auth(included, debian)
    );
    assert!(judge_auth(substack, debian).ends_with(effective));
    assert!(judge_auth(substack, el).ends_with(effective));
    assert_eq!(
        judge_auth(included, el),
        "auth line at sshd:3 can be skipped by common:2"
    );
    let far = debian.replace("success=1", "success=3");
    assert_eq!(
        judge_auth(included, &far),
        "auth line at sshd:3 can be skipped by common:1"
    );
    // A service for others than sshd needs no argument.
    let named = included.replace("adopt.so", "adopt.so service=login");
    assert!(judge_auth(&named, debian).ends_with(effective));
    let broken = debian.replace("requisite", "requisit");
    assert!(judge_auth(included, &broken).starts_with("common:2 has the control [requisit]"));
}

#[test]
fn auth_lines_at_other_places_are_named() {
    let unix = "auth required pam_unix.so\n";
    let ours = "auth required pam_job_adopt.so\n";
    let optional = "auth optional pam_job_adopt.so\n";
    for (lines, expected) in [
        (unix.to_owned(), "no auth line for pam_job_adopt.so"),
        (
            ours.to_owned(),
            "auth line at sshd:1 is one of 1 auth lines of this module, where two are due",
        ),
        (
            format!("{ours}{unix}{ours}{ours}"),
            "auth line at sshd:1 is one of 3 auth lines of this module, where two are due",
        ),
        (
            format!("{ours}{unix}"),
            "auth line at sshd:1 and a second one have to enclose all other auth lines",
        ),
        (
            format!("{unix}{ours}{ours}"),
            "auth line at sshd:2 and a second one have to enclose all other auth lines",
        ),
        (
            format!("{ours}{ours}{unix}{ours}{unix}"),
            "auth line at sshd:1 and a second one have to enclose all other auth lines",
        ),
        (
            format!("{optional}{unix}{ours}"),
            "auth line at sshd:1 is not required, requisite or an equal of theirs",
        ),
        (
            format!("{ours}{unix}{optional}"),
            "auth line at sshd:3 is not required, requisite or an equal of theirs",
        ),
        (
            format!("-{ours}{unix}{ours}"),
            "auth line at sshd:1 has a leading -",
        ),
    ] {
        assert_eq!(judge_auth(&lines, ""), expected, "{lines}");
    }
}
