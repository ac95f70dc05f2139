//! Stacks in which no login succeeds.

use super::*;

/// Makes a folder with modules and this stack.
fn lay_out(text: &str) -> Scratch {
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
    scratch
}

/// Returns the line and the cause for which nobody gets past the session stack.
fn find(text: &str) -> Option<String> {
    let scratch = lay_out(text);
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
            "session [success=3 default=bad] pam_x.so\n",
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
        // It refuses only those for whom the module succeeds.
        "session [success=3 default=ignore] pam_x.so\n",
    ] {
        assert_eq!(find(&format!("{text}{OURS}")), None, "{text}");
    }
}

#[test]
fn jump_past_the_end_is_found_though_others_get_in() {
    let find = |text: &str| {
        let scratch = lay_out(text);
        let place = find_jump_past_end(scratch.path(), "sshd", Group::Session)?;
        Some(place.line)
    };
    let last = "session [success=1 default=ignore] pam_x.so\n";
    assert_eq!(find(&format!("{OURS}{last}")), Some(2));
    assert_eq!(find(&format!("{last}{OURS}")), None);
    // Only where its module fails.
    let failing = "session [success=ok default=1] pam_x.so\n";
    assert_eq!(find(&format!("{OURS}{failing}")), None);
    // In a substack, of which the lines behind it are no part.
    let substack = "session substack inner\n";
    let scratch = lay_out(&format!("{substack}{OURS}"));
    scratch.file("etc/pam.d/inner", last);
    let place = find_jump_past_end(scratch.path(), "sshd", Group::Session).unwrap();
    assert!(place.file.ends_with("inner"), "{place}");
}
