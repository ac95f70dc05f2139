//! PAM service files. A line `=NAME` begins the next file; the first is that of `sshd`.
#![no_main]

use std::path::Path;

use job_adopt_fuzz::scratch;
use libfuzzer_sys::fuzz_target;
use pam_job_adopt::plan::Stack;
use pam_job_adopt::resolve::stack::{Finding, judge};

const SERVICE: &str = "sshd";
const OTHERS: [&str; 3] = ["common", "deeper", "other"];
/// A line that lets a session go on, and cannot end the stack, leap or undo anything.
const HARMLESS: &str = "session required pam_other.so\n";

fuzz_target!(|text: &str| {
    let root = scratch();
    let services = root.join("etc/pam.d");
    std::fs::create_dir_all(&services).expect("a directory");
    let mut parts = text.split("\n=");
    let own = parts.next().unwrap_or_default();
    for other in OTHERS {
        let path = services.join(other);
        match parts.next() {
            Some(text) => std::fs::write(path, text).expect("a file"),
            None => _ = std::fs::remove_file(path),
        }
    }
    let finding = judged(root, own);
    if let Finding::Effective(place) = &finding {
        let file = std::fs::read_to_string(&place.file).expect("the file of a line of ours");
        assert!(file.lines().count() >= place.line && file.contains("pam_job_adopt.so"));
    }
    let more = judged(root, &format!("{HARMLESS}{own}"));
    if finding.stack() == Stack::Missing {
        assert_eq!(more.stack(), Stack::Missing, "a line of others made {finding} into {more}");
    }
});

fn judged(root: &Path, text: &str) -> Finding {
    std::fs::write(root.join("etc/pam.d").join(SERVICE), text).expect("a file");
    judge(root, SERVICE)
}
