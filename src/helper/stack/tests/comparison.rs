//! Whether two stacks admit the same logins.

use super::*;

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
