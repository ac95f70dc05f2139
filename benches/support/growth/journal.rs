//! `metrics` beside a long journal, by a real journald on the node.

use std::path::Path;
use std::process::{Child, Stdio};

use super::figures::Figures;
use super::{Growth, group, on_field, print_heading, print_row};
use crate::support::{Node, eventually};

const LINES: usize = 1_000_000;
/// Lines that a first call reads.
const READ_LINES: usize = 50_000;
/// Lines between two calls.
const NEW_LINES: usize = 10;
const CONF: &str = "[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\nRuntimeMaxUse=8G\nRuntimeMaxFileSize=4G\n\
                    RuntimeKeepFree=1M\nReadKMsg=no\nAudit=no\n";
const MESSAGE: &str = "pam_job_adopt(sshd:session): decision=adopt code=JA00 user=alice uid=1001 rhost=10.1.0.5 \
                       service=sshd phase=session auid=1001 ses=17 source=registry rule=only-job containment=enforce ms=4";
const STATE: &str = "/run/metrics.json";
const METRICS: &str = "job-adopt metrics --state /run/metrics.json";
const JOURNALD: &str = "/lib/systemd/systemd-journald";

/// A journald of the node. Dropping it ends it.
struct Journald(Child);

impl Journald {
    fn start(node: &Node) -> Self {
        node.write_root_file("/etc/systemd/journald.conf", CONF);
        node.write_root_file("/etc/machine-id", "0123456789abcdef0123456789abcdef\n");
        node.create_dir("/run/systemd/journal", 0o755);
        node.create_dir("/run/log/journal", 0o755);
        // As the files of systemd-tmpfiles(8) do, so that `metrics` may read it.
        node.sh("echo systemd-journal:x:980: >>/etc/group && chgrp 980 /run/log/journal && chmod 2755 /run/log/journal")
            .ok();
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

/// The first call after a boot reads all lines. That takes minutes for [`LINES`], so fewer show its slope; beside all of
/// them the next call is measured, as a timer makes it.
pub(super) fn lines() {
    if !Path::new(JOURNALD).exists() {
        println!("\nlines of the journal: left out, since {JOURNALD} is not there");
        return;
    }
    on_field(|field| {
        let node = field.node;
        let _journald = Journald::start(node);
        let next = || {
            write_lines(node, NEW_LINES);
            Figures::of_command(node, METRICS)
        };
        let first = || Figures::of_command(node, &format!("sh -c 'rm -f {STATE}; {METRICS}'"));
        write_lines(node, 1);
        let firsts_small = first();
        let next_small = next();
        write_lines(node, READ_LINES);
        let firsts = [firsts_small, first()];
        write_lines(node, LINES - READ_LINES);
        node.sh(METRICS).ok();
        let nexts = [next_small, next()];
        let floor = "each is read once, and journalctl takes nine tenths of the time";
        let rows = [
            (
                "metrics, first call",
                READ_LINES,
                firsts,
                Growth::Each(1.5, floor),
            ),
            (
                "metrics, next call",
                LINES,
                nexts,
                Growth::Flat("it reads from its cursor on"),
            ),
        ];
        for (name, count, figures, growth) in rows {
            let title = format!("lines of the journal, 1 to {}", group(count));
            print_heading(&title);
            print_row(&title, name, figures, count, growth);
        }
    });
}
