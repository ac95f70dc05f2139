//! Subverted helpers: the module asks the step daemon itself.

use protocol::{Placement, Reply, Verdict};

use crate::helper::admitting_reply;
use crate::support::{ALICE, BOB, Fake, SPOOL, Slurm, on_slurm};

/// Returns a reply that admits to the job with that id, through the sockets in `spool`.
fn reply_naming(slurm: &Slurm<'_>, id: &str, spool: &str) -> Reply {
    let mut reply = admitting_reply(id, &slurm.node.outside());
    if let Verdict::Admit(plan) = &mut reply.verdict {
        plan.placement = Placement::Extern {
            spool: spool.parse().unwrap(),
            node: slurm.node.name().parse().unwrap(),
        };
    }
    reply
}

#[test]
fn reply_naming_job_of_another_user_refuses() {
    on_slurm(|slurm| {
        let node = slurm.node;
        let hers = slurm.alloc(ALICE, 1);
        let his = slurm.alloc(BOB, 1);
        node.session_reporting("");
        Fake::new()
            .answers(&reply_naming(slurm, &hers.id, SPOOL))
            .install(node);
        node.session(ALICE).joins(&hers);
        Fake::new()
            .answers(&reply_naming(slurm, &his.id, SPOOL))
            .install(node);
        node.session(ALICE).stays_outside();
        node.log.line("the job is uid 1002's");
        node.log.decision("JA07");
        Fake::new()
            .answers(&reply_naming(slurm, &his.id, SPOOL))
            .install(node);
        node.session_alone("");
        node.session(ALICE).fails();
    });
}

#[test]
fn reply_naming_untrusted_directory_refuses() {
    on_slurm(|slurm| {
        let node = slurm.node;
        let hers = slurm.alloc(ALICE, 1);
        node.create_dir("/var/spool/alices", 0o755);
        // The daemon's own socket, in another directory.
        let copy = hers.socket().replace(SPOOL, "/var/spool/alices");
        node.sh(&format!("ln {} {copy}", hers.socket())).ok();
        node.sh("chown alice /var/spool/alices; ln -s /var/spool/slurmd /var/spool/link")
            .ok();
        for spool in ["/var/spool/alices", "/var/spool/link", "/var/spool/nowhere"] {
            node.session_reporting("");
            Fake::new()
                .answers(&reply_naming(slurm, &hers.id, spool))
                .install(node);
            node.log.clear();
            node.session(ALICE).stays_outside();
            node.log.decision("JA09");
            // The log names the directory as the reason, not the socket.
            node.log.line(&format!("Slurm's spool directory {spool}"));
        }
        node.session_reporting("");
        Fake::new()
            .answers(&reply_naming(slurm, &hers.id, SPOOL))
            .install(node);
        node.session(ALICE).ok().joins(&hers);
    });
}
