//! A panic in the module refuses the login and never ends sshd.

use crate::support::{ALICE, Artifact, Outcome, built_path, on_node};

#[test]
fn panic_after_move_is_undone_and_refused() {
    on_node(|node| {
        // A debug build panics for a job with a certain name.
        node.install(&built_path(Artifact::Module), &node.module());
        node.reporting("");
        let sound = node.job(ALICE, "4242").start();
        node.pam(ALICE).ok().joins_cgroup(&sound.cgroup);
        let fatal = node
            .job(ALICE, "provoke-panic")
            .started(1_795_300_000)
            .start();
        let outcome = node.session(ALICE).exits(1);
        assert_eq!(fatal.cgroup.pids().len(), 1, "{outcome}");
        let entry = node.log.line("internal error, please report");
        assert_eq!(
            (entry.severity(), entry.field("code")),
            (1, Some("JA09")),
            "{}",
            entry.text
        );
        let sshd = node.sshd();
        sshd.ssh(ALICE, "echo a''shell").fails().omits("ashell");
        std::fs::remove_file(node.path(&fatal.record_path())).unwrap();
        node.pam(ALICE).ok().joins_cgroup(&sound.cgroup);
    });
}

/// Another module in C++ brings libgcc_s, whose functions have the names of those that are linked in.
#[test]
fn panic_beside_another_unwinder_is_refused() {
    on_node(|node| {
        node.install(&built_path(Artifact::Module), &node.module());
        node.reporting("");
        let _fatal = node.job(ALICE, "provoke-panic").start();
        let mut session = node.command("env");
        session.args(["LD_PRELOAD=libgcc_s.so.1", "pamtester", "sshd", ALICE.name]);
        Outcome::run(session.arg("open_session"))
            .exits(1)
            .omits("LD_PRELOAD");
        node.log.line("internal error, please report");
    });
}
