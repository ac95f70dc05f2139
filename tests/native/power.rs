//! Power cuts while `job-adopt enable` and `disable` change a node. `/etc` lies on a disk of its own, an image that is
//! copied at the moment of the cut: the copy lacks what the kernel has not written by then, and is what the next boot
//! finds.

use crate::support::{ALICE, Node, Outcome, on_node};
use crate::switch::{ENABLE, assert_enabled, lay_out_node, state, try_for};

/// The disk of a node as it is before a test changes it.
const OLD: &str = "/run/old.img";
/// That of the node with our set-up.
const ON: &str = "/run/on.img";
/// Each sync of a command is a case of its own, so these change few files.
const ENABLE_TWO_PARTS: [&str; 5] = ["enable", "--only", "pam,bus", "--arguments", "timeout=40"];
const DISABLE_TWO_PARTS: [&str; 3] = ["disable", "--only", "pam,bus"];

/// Moves `/etc` to a disk. Its file system writes nothing by itself for longer than a test takes.
fn put_etc_on_a_disk(node: &Node) {
    node.sh(
        "[ -e /dev/loop-control ] || mknod /dev/loop-control c 10 237
         for n in $(seq 0 63); do [ -e /dev/loop$n ] || mknod /dev/loop$n b 7 $n; done
         mkdir /run/disk && truncate -s 12M /run/disk.img && mkfs.ext4 -q /run/disk.img &&
         mount -o loop /run/disk.img /run/disk && cp -a /etc/. /run/disk && umount /run/disk &&
         mv /run/disk.img /run/old.img",
    )
    .ok();
    boot_from(node, OLD);
}

/// Takes `/etc` from a copy of this image, and starts what systemd would start there.
fn boot_from(node: &Node, image: &str) {
    node.sh(&format!(
        "! grep -q ' /etc ext4 ' /proc/mounts || umount -l /etc
         cp {image} /run/next.img && mv /run/next.img /run/disk.img && mount -o loop,commit=900 /run/disk.img /etc &&
         if [ -e /etc/systemd/system/sysinit.target.wants/job-adopt-undo.service ]; then
             systemctl start job-adopt-undo.service || :
         fi"
    ))
    .ok();
}

/// Keeps what is on the disk at this moment, as a power cut does, under the name of an image.
fn copy_disk(node: &Node, image: &str) {
    node.sh(&format!("cp /run/disk.img {image}")).ok();
}

fn lose_power(node: &Node) {
    copy_disk(node, "/run/cut.img");
    boot_from(node, "/run/cut.img");
}

fn settled(node: &Node) -> String {
    settled_text(&state(node))
}

/// The state of a node but for what a change needs until it is over, and folders, which may be left empty.
fn settled_text(state: &str) -> String {
    let mut lines = String::new();
    for line in state.lines() {
        let is_empty_folder = line.starts_with('d') && line.contains(".slice.d");
        if !line.contains("job-adopt-undo") && !line.contains("/.") && !is_empty_folder {
            lines += &format!("{line}\n");
        }
    }
    lines
}

/// Runs a command, in which this happens at the sync with this number.
fn run_with_fault(node: &Node, command: &[&str], fault: &str, number: usize) -> Outcome {
    let inject = format!("inject=fsync:{fault}:when={number}");
    let strace = [
        "-qq",
        "-o",
        "/run/trace",
        "-e",
        "trace=fsync",
        "-e",
        &inject,
        "job-adopt",
    ];
    node.run("strace", &[&strace[..], command].concat())
}

#[test]
fn reported_change_survives_power_cut() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_node(node);
        put_etc_on_a_disk(node);
        let before = state(node);
        node.job_adopt(&ENABLE).exits(0).says("enabled;");
        let enabled = state(node);
        lose_power(node);
        assert_enabled(node);
        assert_eq!(state(node), enabled);
        node.job_adopt(&["disable"]).exits(0).says("disabled");
        lose_power(node);
        assert_eq!(state(node), before);
        try_for(node, "timeout=40")
            .exits(0)
            .says("when the node starts");
        lose_power(node);
        assert_eq!(state(node), before);
        try_for(node, "timeout=40").exits(0);
        node.job_adopt(&["enable", "--undo"])
            .exits(0)
            .says("as it was");
        lose_power(node);
        assert_eq!(state(node), before);
        try_for(node, "timeout=40").exits(0);
        node.job_adopt(&["enable", "--keep"]).exits(0).says("kept;");
        lose_power(node);
        assert_enabled(node);
        assert_eq!(state(node), enabled);
    });
}

/// A call that was killed may have changed what another one then finds as asked.
#[test]
fn reported_state_survives_power_cut() {
    on_node(|node| {
        lay_out_node(node);
        put_etc_on_a_disk(node);
        let before = state(node);
        node.job_adopt(&ENABLE).exits(0);
        let enabled = state(node);
        boot_from(node, OLD);
        let cases = [
            (&ENABLE[..], settled_text(&enabled), ""),
            (
                &["disable"],
                settled_text(&before),
                "[ $1 != is-active ] || exit 3\n",
            ),
        ];
        for (command, expected, answers) in cases {
            node.write("/run/fails", answers);
            let unlink = "-P /etc/systemd/system/job-adopt-undo.json -e inject=unlink,unlinkat:signal=KILL:when=1";
            node.sh(&format!(
                "strace -qq -o /run/trace {unlink} job-adopt {}",
                command.join(" ")
            ));
            // The call below would take it back.
            node.sh("cd /etc/systemd/system && rm -f job-adopt-undo.json /etc/pam.d/.*before-job-adopt *.d/.*before-job-adopt")
                .ok();
            node.job_adopt(command).exits(0).says("unchanged");
            lose_power(node);
            assert_eq!(settled(node), expected, "{command:?}");
        }
    });
}

/// Whatever has reached the disk by then, the boot makes one of both of it.
#[test]
fn power_cut_at_each_sync_leaves_the_old_node_or_the_new_one() {
    on_node(|node| {
        lay_out_node(node);
        put_etc_on_a_disk(node);
        let off = settled(node);
        node.job_adopt(&ENABLE).exits(0);
        let on = settled(node);
        lose_power(node);
        copy_disk(node, ON);
        for (command, image, end) in [(&ENABLE[..], OLD, &on), (&["disable"], ON, &off)] {
            let mut number = 0;
            loop {
                number += 1;
                boot_from(node, image);
                let outcome = run_with_fault(node, command, "signal=KILL", number);
                lose_power(node);
                let found = settled(node);
                if outcome.code == 0 {
                    assert_eq!(&found, end, "{command:?}");
                    break;
                }
                assert!(found == on || found == off, "{command:?} {number}: {found}");
            }
            assert!(number > 12, "{command:?}: {number}");
        }
    });
}

/// The power is cut between the removal of the journal and that of the unit, and in the next change again.
#[test]
fn unit_of_an_earlier_change_takes_no_later_one_back() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_node(node);
        put_etc_on_a_disk(node);
        try_for(node, "timeout=40").exits(0);
        node.sh("cp /etc/systemd/system/job-adopt-undo.service /run/unit")
            .ok();
        node.job_adopt(&["enable", "--keep"]).exits(0);
        let on = settled(node);
        node.sh(
            "cd /etc/systemd/system && cp /run/unit job-adopt-undo.service &&
                 ln -s ../job-adopt-undo.service sysinit.target.wants/ && sync",
        )
        .ok();
        copy_disk(node, ON);
        node.job_adopt(&DISABLE_TWO_PARTS).exits(0);
        let off = settled(node);
        for number in 1.. {
            boot_from(node, ON);
            let outcome = run_with_fault(node, &DISABLE_TWO_PARTS, "signal=KILL", number);
            lose_power(node);
            let found = settled(node);
            if outcome.code == 0 {
                assert_eq!(found, off);
                break;
            }
            assert!(found == on || found == off, "{number}: {found}");
        }
    });
}

/// Nothing is reported as done then. The node is as before, or all of the change is there but for its way back.
#[test]
fn failed_sync_is_reported() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        lay_out_node(node);
        put_etc_on_a_disk(node);
        let off = settled(node);
        node.job_adopt(&ENABLE_TWO_PARTS).exits(0);
        let on = settled(node);
        lose_power(node);
        copy_disk(node, ON);
        boot_from(node, OLD);
        try_for(node, "timeout=40").exits(0);
        let tried = settled(node);
        // The boot takes a try back.
        let resume = |image: &str| {
            node.sh(&format!(
                "umount -l /etc; cp {image} /run/next.img && mv /run/next.img /run/disk.img &&
                 mount -o loop,commit=900 /run/disk.img /etc"
            ))
            .ok();
        };
        copy_disk(node, "/run/try.img");
        let cases = [
            (&ENABLE_TWO_PARTS[..], OLD, &off, &on, "enabled;"),
            (&DISABLE_TWO_PARTS, ON, &on, &off, "disabled\n"),
            (
                &["enable", "--keep"],
                "/run/try.img",
                &tried,
                &tried,
                "kept;",
            ),
            (
                &["enable", "--undo"],
                "/run/try.img",
                &tried,
                &off,
                "as it was\n",
            ),
        ];
        for (command, image, begin, end, report) in cases {
            for number in 1.. {
                resume(image);
                let outcome = run_with_fault(node, command, "error=EIO", number);
                if !node.read("/run/trace").contains("INJECTED") {
                    assert_eq!((outcome.code, &settled(node)), (0, end), "{command:?}");
                    assert!(number > 4, "{command:?}: {number}");
                    break;
                }
                let outcome = outcome.exits(3).says("Input/output error").omits(report);
                let found = settled(node);
                assert!(
                    &found == begin || &found == end,
                    "{command:?} {number}: {outcome}{found}"
                );
            }
        }
    });
}
