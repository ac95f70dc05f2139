//! Debian's profile of pam_slurm_adopt, and the commands of the migration page for it.

use crate::support::{ALICE, CAROL, Node, OPS, ROOT, on_node};
use crate::switch::{admitted, fake_systemd, lay_out_recipes};

const PROFILE: &str = "Name: Slurm\nDefault: no\nPriority: 0\nAccount-Type: Additional\nAccount:\n\
                       \trequired\tpam_slurm_adopt.so\n";

/// The blocks of the page for nodes with that profile, in their order.
fn blocks() -> Vec<&'static str> {
    let page = include_str!("../../docs/migrate.md");
    let fence = "```sh norun: it is for nodes with that profile\n";
    let blocks = page.split(fence).skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

/// Lays out a node whose logins the profile judges: a stand-in for its module lets alice and root in.
fn lay_out_profile(node: &Node) {
    lay_out_recipes(node);
    fake_systemd(node);
    node.create_dir("/usr/share/pam-configs", 0o755);
    node.write("/usr/share/pam-configs/slurm-adopt", PROFILE);
    node.write(
        "/etc/pam.d/sshd",
        "@include common-auth\naccount required pam_nologin.so\n@include common-account\n\
         @include common-session-noninteractive\n",
    );
    node.sh(
        "pam-auth-update --enable slurm-adopt && grep pam_slurm_adopt /etc/pam.d/common-account",
    )
    .ok();
}

#[test]
fn blocks_of_the_page_open_the_node_at_no_moment() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_profile(node);
        let everybody = [ALICE, CAROL, OPS, ROOT];
        assert_eq!(admitted(node, &everybody), ["alice", "root"]);
        node.job_adopt(&["enable", "--arguments", "exempt_groups=ops"])
            .exits(3)
            .says("take the line out there (pam-auth-update, or by hand)");
        let [there, back] = blocks().try_into().expect("a block for each way");
        // After each command of the page.
        let follow = |block: &str, expected: &[&[&str]]| {
            let commands: Vec<&str> = block
                .lines()
                .filter(|line| !line.starts_with('#'))
                .collect();
            assert_eq!(commands.len(), expected.len(), "{block}");
            for (command, admits) in commands.iter().zip(expected) {
                node.sh(command).exits(0);
                assert_eq!(&admitted(node, &everybody), admits, "{command}");
            }
        };
        let with_staff: &[&str] = &["alice", "opsuser", "root"];
        follow(there, &[&["root"], &["root"], &["root"], with_staff]);
        // Everybody would get in.
        let stack = node.read("/etc/pam.d/sshd");
        for words in [
            &["disable"][..],
            &["disable", "--only", "pam"],
            &["disable", "--dry-run"],
        ] {
            node.job_adopt(words)
                .exits(3)
                .says("nothing keeps users without a job out: run pam-auth-update --enable slurm-adopt, and then this")
                .omits("disabled");
        }
        assert_eq!(node.read("/etc/pam.d/sshd"), stack);
        assert_eq!(admitted(node, &everybody), with_staff);
        follow(back, &[&["alice", "root"], &["alice", "root"]]);
        assert!(!node.read("/etc/pam.d/sshd").contains("pam_job_adopt"));
    });
}

/// The admin may let everybody in, and says so.
#[test]
fn nologin_lets_our_lines_go_before_the_profile_is_back() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_profile(node);
        node.sh("pam-auth-update --disable slurm-adopt").ok();
        node.job_adopt(&["enable", "--only", "pam"]).exits(0);
        node.sh("touch /etc/nologin").ok();
        node.job_adopt(&["disable", "--only", "pam"])
            .exits(0)
            .says("run pam-auth-update --enable slurm-adopt before you remove it");
        assert_eq!(admitted(node, &[ALICE, CAROL, ROOT]), ["root"]);
        // Without the module there is nothing to turn on.
        node.sh("rm /etc/nologin").ok();
        node.job_adopt(&["enable", "--only", "pam"]).exits(0);
        node.sh("rm /usr/share/pam-configs/slurm-adopt").ok();
        node.job_adopt(&["disable", "--only", "pam"])
            .exits(0)
            .says("no other line keeps users without a job out");
    });
}

/// The way back of that try would leave a door, and the service of `disable` none.
#[test]
fn disable_that_refuses_takes_no_try_of_another_service_back() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_profile(node);
        node.sh("pam-auth-update --disable slurm-adopt").ok();
        node.job_adopt(&["enable"]).exits(0);
        let other = "@include common-auth\naccount required pam_nologin.so\n\
                     account required pam_slurm_adopt.so action_adopt_failure=deny\n\
                     @include common-account\n\
                     @include common-session-noninteractive\n";
        node.write("/etc/pam.d/hpcd", other);
        node.job_adopt(&[
            "enable",
            "--only",
            "pam",
            "--service",
            "hpcd",
            "--try",
            "5m",
            "--arguments",
            "action_no_jobs=deny",
            "alice",
        ])
        .exits(0);
        let tried = node.read("/etc/pam.d/hpcd");
        assert!(tried.contains("pam_job_adopt"), "{tried}");
        node.job_adopt(&["disable"]).exits(3).says(
            "nothing keeps users without a job out: run pam-auth-update --enable slurm-adopt",
        );
        assert_eq!(node.read("/etc/pam.d/hpcd"), tried);
        node.job_adopt(&["enable", "--keep"]).exits(0);
    });
}

/// The undo of a try takes our lines out as well, whatever else `disable` is asked for.
#[test]
fn disable_during_a_try_refuses_before_it_takes_the_try_back() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_profile(node);
        node.sh("pam-auth-update --disable slurm-adopt").ok();
        let enable_try = ["enable", "--try", "5m", "--without-job", "carol", "alice"];
        node.job_adopt(&enable_try).exits(0);
        let stack = node.read("/etc/pam.d/sshd");
        let everybody = [ALICE, CAROL, ROOT];
        for words in [
            &["disable"][..],
            &["disable", "--only", "pam"],
            &["disable", "--only", "slices"],
            &["disable", "--service", "cron"],
            &["disable", "--dry-run"],
            &["disable", "--dry-run", "--only", "slices"],
        ] {
            node.job_adopt(words)
                .exits(3)
                .says("nothing keeps users without a job out: run pam-auth-update --enable slurm-adopt, and then this")
                .omits("disabled");
            assert_eq!(node.read("/etc/pam.d/sshd"), stack, "{words:?}");
            assert_eq!(admitted(node, &everybody), ["alice", "root"], "{words:?}");
        }
        // The try goes on.
        node.job_adopt(&["enable", "--keep"]).exits(0);
        assert_eq!(node.read("/etc/pam.d/sshd"), stack);
        node.sh("pam-auth-update --enable slurm-adopt").ok();
        node.job_adopt(&["disable"]).exits(0).says("disabled");
        assert_eq!(admitted(node, &everybody), ["alice", "root"]);
        // Nothing else keeps carol out after the way back of a try, which is as the node was.
        node.sh("pam-auth-update --disable slurm-adopt").ok();
        node.job_adopt(&enable_try).exits(0);
        node.job_adopt(&["enable", "--undo"])
            .exits(1)
            .says("nothing keeps users without a job out now: pam-auth-update --enable slurm-adopt")
            .says("taken back: the node is as it was");
        // With the profile on, the try goes back in disable.
        node.job_adopt(&enable_try).exits(0);
        node.sh("pam-auth-update --enable slurm-adopt").ok();
        node.job_adopt(&["disable"]).exits(0).says("disabled");
        assert_eq!(admitted(node, &everybody), ["alice", "root"]);
        assert!(!node.read("/etc/pam.d/sshd").contains("pam_job_adopt"));
    });
}

/// The undo of an interrupted change takes our lines out, and what follows may fail.
#[test]
fn enable_after_interrupted_one_leaves_node_closed_where_it_fails() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_profile(node);
        node.sh("pam-auth-update --disable slurm-adopt").ok();
        node.write(
            "/run/fails",
            "[ \"$1\" != reload ] || { rm /run/fails; kill -KILL $PPID; }\n",
        );
        assert_ne!(node.job_adopt(&["enable"]).code, 0);
        let stack = node.read("/etc/pam.d/sshd");
        assert!(stack.contains("pam_job_adopt"));
        let refuse = |words: &[&str], why: &str| {
            node.job_adopt(words).exits(3).says(why);
            assert_eq!(node.read("/etc/pam.d/sshd"), stack, "{words:?}");
        };
        let remedy =
            "run pam-auth-update --enable slurm-adopt and job-adopt enable --undo, and begin again";
        for words in [
            &["enable"][..],
            &["enable", "--only", "slices"],
            &["enable", "--arguments", "mistyped"],
            &["enable", "--dry-run"],
        ] {
            refuse(words, remedy);
            assert_eq!(admitted(node, &[ALICE, CAROL, ROOT]), ["alice", "root"]);
        }
        node.sh("touch /etc/nologin").ok();
        refuse(&["enable", "--arguments", "mistyped"], "mistyped");
        node.job_adopt(&["enable"])
            .exits(0)
            .says("an earlier job-adopt enable was interrupted");
        node.sh("rm /etc/nologin").ok();
        assert_eq!(admitted(node, &[ALICE, CAROL, ROOT]), ["alice", "root"]);
    });
}
