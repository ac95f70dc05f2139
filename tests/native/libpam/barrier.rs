//! Compares what `check` says of stacks in which no login succeeds with what this machine's libpam does: where each module's
//! answer is known, exactly those are named that libpam lets nobody through.

use helper::stack::{Group, StackFinding, find_barrier};

use super::{Kind, Libpam, Random, Stack};
use crate::support::on_node;

/// Controls of all kinds, with modules whose answers are known.
const KNOWN: Kind = Kind {
    controls: &[
        "required",
        "required",
        "requisite",
        "optional",
        "sufficient",
        "[success=1 default=ignore]",
        "[success=2 default=bad]",
        "[success=4 default=ignore]",
        "[default=1]",
        "[success=ok default=1]",
        "[default=bad success=ok auth_err=ignore session_err=ignore]",
        "[success=ok ignore=ignore default=die]",
        "[default=reset]",
        "[default=bad]",
        "[]",
        "[default=ignore]",
        "[success=bad default=ignore]",
        "[perm_denied=ok default=bad]",
        "[module_unknown=ignore success=ok default=bad]",
    ],
    modules: &[
        "pam_permit.so",
        "pam_permit.so",
        "pam_permit.so",
        "pam_deny.so",
        "pam_gone.so",
        "",
    ],
    odd: 0,
};

#[test]
fn stack_is_called_closed_exactly_if_libpam_lets_nobody_through() {
    on_node(|node| {
        let mut libpam = Libpam::start(node);
        let mut random = Random::new();
        let root = node.path("/");
        let mut closed = 0;
        let mut open = 0;
        for number in 0..2000 {
            let stack = Stack::generate(&mut random, &KNOWN);
            let files = stack.render(&mut random, &["success"]);
            let verdict = libpam.ask(&files);
            let groups = [Group::Account, Group::Session];
            for ((group, finding), admits) in groups
                .into_iter()
                .zip(&verdict.findings)
                .zip(verdict.admits())
            {
                // These are errors of their own.
                if matches!(
                    finding,
                    StackFinding::Rejected(..) | StackFinding::Unreadable(_)
                ) {
                    continue;
                }
                let barrier = find_barrier(&root, "sshd", group);
                assert_eq!(
                    barrier.is_none(),
                    admits,
                    "{} stack {number}, {group:?}: {barrier:?} {verdict:?}\n{files}",
                    random.seed
                );
                closed += usize::from(!admits);
                open += usize::from(admits);
            }
        }
        assert!(closed > 300 && open > 300, "{closed} closed, {open} open");
    });
}

/// Such lines refuse as their control says, and `optional` and `sufficient` ignore that.
#[test]
fn line_that_libpam_ignores_refuses_nobody() {
    on_node(|node| {
        let mut libpam = Libpam::start(node);
        let ours = "account required pam_job_adopt.so\nsession required pam_job_adopt.so\n";
        for line in [
            "account optional\nsession optional",
            "account sufficient\nsession sufficient",
            "account [default=ignore]\nsession [default=ignore]",
            "-account optional\n-session optional",
        ] {
            let files = super::Files(vec![("sshd", format!("{ours}{line}\n"))]);
            let verdict = libpam.ask(&files);
            assert_eq!(verdict.admits(), [true, true], "{line}");
            assert!(
                verdict.findings.iter().all(super::is_effective),
                "{verdict:?}"
            );
        }
        for line in ["account required\nsession requisite", "account\nsession"] {
            let files = super::Files(vec![("sshd", format!("{ours}{line}\n"))]);
            let verdict = libpam.ask(&files);
            assert_eq!(verdict.admits(), [false, false], "{line}");
            assert!(
                !verdict.findings.iter().any(super::is_effective),
                "{verdict:?}"
            );
        }
    });
}
