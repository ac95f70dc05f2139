//! Resource limits of a job of Slurm's, for its logins.

use crate::support::{ALICE, on_slurm};

#[test]
fn a_login_has_those_of_the_batch_script_and_none_of_an_allocation_without_steps() {
    on_slurm(|slurm| {
        slurm.node.configure("limits = job\n");
        let sshd = slurm.node.sshd();
        let files = || sshd.ssh(ALICE, "ulimit -n").ok().stdout.trim().to_owned();
        let empty = slurm.alloc(ALICE, 0);
        let own = files();
        slurm.node.log.line("has no process to take limits from");
        empty.cancel();
        let job = slurm.script(ALICE, 0, "ulimit -n 777; sleep infinity; true");
        let mut found = String::new();
        crate::support::eventually("the script has set its limit", || {
            found = files();
            found == "777"
        });
        assert_ne!(own, "777");
        job.cancel();
    });
}
