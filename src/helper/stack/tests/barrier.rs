//! Stacks in which no login succeeds.

use super::*;

/// Returns the line and the cause for which nobody gets past the session stack.
fn find(text: &str) -> Option<String> {
    let scratch = Scratch::new();
    for module in [
        "pam_permit.so",
        "pam_deny.so",
        "pam_x.so",
        "pam_job_adopt.so",
    ] {
        scratch.file(&format!("usr/lib64/security/{module}"), "");
    }
    scratch.file("etc/pam.d/sshd", text);
    let (place, barrier) = find_barrier(scratch.path(), "sshd", Group::Session)?;
    Some(format!("{} {barrier}", place.line))
}

#[test]
fn line_that_keeps_everybody_out_is_named() {
    for (text, expected) in [
        (
            "session required pam_gone.so\n",
            "1 names pam_gone.so, which does not exist",
        ),
        (
            "session optional pam_x.so\nsession [default=bad] pam_gone.so\n",
            "2 names pam_gone.so, which",
        ),
        (
            "session [] pam_x.so\n",
            "1 has a control by which every result",
        ),
        (
            "session [success=3 default=ignore] pam_x.so\n",
            "1 jumps over more lines than",
        ),
        (
            "session required pam_deny.so\nsession required pam_gone.so\n",
            "1 calls pam_deny.so",
        ),
        ("session required pam_deny.so\n", "1 calls pam_deny.so"),
        ("session optional pam_gone.so\n", "2 is the last line"),
    ] {
        let ours = if expected.starts_with("2 is") {
            "session [default=ignore] pam_x.so\n".to_owned()
        } else {
            OURS.to_owned()
        };
        let found = find(&format!("{text}{ours}")).unwrap_or_default();
        assert!(found.starts_with(expected), "{text}: {found}");
    }
}

#[test]
fn stack_that_lets_somebody_through_has_no_such_line() {
    for text in [
        "# words\n",
        "session optional pam_gone.so\n",
        "session [module_unknown=ignore default=bad] pam_gone.so\n",
        "session [success=1 default=ignore] pam_x.so\nsession requisite pam_deny.so\n",
        "session optional\n",
    ] {
        assert_eq!(find(&format!("{text}{OURS}")), None, "{text}");
    }
}
