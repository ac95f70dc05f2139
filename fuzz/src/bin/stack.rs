//! PAM service files. A line `=` ends each; the first is the file of `sshd`.
//!
//! At most 1024 bytes.
#![no_main]

use helper::stack::{StackFinding, judge_stacks_of_login};
use job_adopt_fuzz::Laid;
use libfuzzer_sys::fuzz_target;
use protocol::SessionLine;

const OTHERS: [&str; 3] = ["common", "deeper", "other"];
/// A line that lets a session continue, and cannot end the stack, jump or undo anything.
const HARMLESS: &str = "session required pam_other.so\n";

fuzz_target!(|text: &str| {
    let laid = Laid::kept();
    let mut parts = text.split("\n=");
    let own = parts.next().unwrap_or_default();
    for other in OTHERS {
        let path = format!("etc/pam.d/{other}");
        match parts.next() {
            Some(text) => laid.file(&path, text),
            None => laid.without(&path),
        }
    }
    let finding = read_stack(laid, own);
    if let StackFinding::Effective(place) = &finding {
        let file = std::fs::read(&place.file).expect("the file of a line of ours");
        let lines: Vec<&[u8]> = file
            .split(|byte| *byte == b'\n')
            .skip(place.line - 1)
            .collect();
        let rest = String::from_utf8_lossy(&lines.join(&b'\n')).into_owned();
        assert!(rest.contains("pam_job_adopt.so"), "{finding}: no such line");
    }
    let more = read_stack(laid, &format!("{HARMLESS}{own}"));
    if finding.session_line() == SessionLine::Missing {
        assert_eq!(
            more.session_line(),
            SessionLine::Missing,
            "a line of others made {finding} into {more}"
        );
    }
});

fn read_stack(laid: &Laid, text: &str) -> StackFinding {
    laid.file("etc/pam.d/sshd", text);
    let [session, _auth] = judge_stacks_of_login(laid.path(), "sshd");
    session
}
