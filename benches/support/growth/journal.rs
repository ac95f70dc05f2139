//! `metrics` beside a long journal, by a real journald on the node.

use std::process::{Child, Stdio};

use super::figures::Figures;
use super::{Growth, group, on_field, print_heading, print_row};
use crate::support::{Node, eventually};

const LINES: usize = 1_000_000;
/// Lines between two calls.
const NEW_LINES: usize = 10;
const CONF: &str = "[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\nRuntimeMaxUse=8G\nRuntimeMaxFileSize=4G\n\
                    RuntimeKeepFree=1M\nReadKMsg=no\nAudit=no\n";
const MESSAGE: &str = "pam_job_adopt(sshd:session): decision=adopt code=JA00 user=alice uid=1001 rhost=10.1.0.5 \
                       service=sshd phase=session auid=1001 ses=17 source=registry rule=only-job containment=enforce ms=4";
const JOURNALD: &str = "/lib/systemd/systemd-journald";

/// A journald of the node. Dropping it ends it.
struct Journald(Child);

impl Journald {
    fn start(node: &Node) -> Self {
        node.write_root_file("/etc/systemd/journald.conf", CONF);
        node.write_root_file("/etc/machine-id", "0123456789abcdef0123456789abcdef\n");
        node.create_dir("/run/systemd/journal", 0o755);
        node.create_dir("/run/log/journal", 0o755);
        node.sh("echo systemd-journal:x:980: >>/etc/group").ok();
        // The journal knows the program of each line, and `metrics` counts those of sshd.
        node.sh("cp /usr/bin/grow /usr/bin/sshd-session").ok();
        let mut command = node.daemon(&node.outside(), JOURNALD);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let journald = Self(command.spawn().unwrap());
        eventually("journald listens", || {
            node.sh("test -S /run/systemd/journal/socket").code == 0
        });
        journald
    }
}

impl Drop for Journald {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends lines of the module to the journal, and waits until it has them.
fn write_lines(node: &Node, count: usize) {
    node.run("sshd-session", &["journal", &count.to_string(), MESSAGE])
        .ok();
    eventually("the journal has all lines", || {
        let last = node.sh("journalctl --quiet --lines=1 --output=cat").stdout;
        last.trim_end().ends_with(" job=0")
    });
}

pub(super) fn lines() {
    if !std::path::Path::new(JOURNALD).exists() {
        println!("\nlines of the journal: left out, since {JOURNALD} is not there");
        return;
    }
    on_field(|field| {
        let node = field.node;
        let _journald = Journald::start(node);
        let first = "rm -f /run/metrics.json; job-adopt metrics --state /run/metrics.json";
        let measure = || {
            let whole = Figures::of_command(node, &format!("sh -c '{first}'"));
            write_lines(node, NEW_LINES);
            let next = "job-adopt metrics --state /run/metrics.json";
            [whole, Figures::of_command(node, next)]
        };
        write_lines(node, 1);
        let small = measure();
        write_lines(node, LINES);
        let large = measure();
        let title = format!("lines of the journal, 1 to {}", group(LINES));
        print_heading(&title);
        let growths = [
            Growth::Each(1.0, "the first call reads each line, by journalctl"),
            Growth::Flat("the next ones read from their cursor on"),
        ];
        let rows = ["metrics, first call", "metrics, next call"].into_iter();
        for (((name, before), after), growth) in rows.zip(small).zip(large).zip(growths) {
            print_row(&title, name, [before, after], LINES, growth);
        }
    });
}
