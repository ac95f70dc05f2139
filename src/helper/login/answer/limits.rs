//! Shortens a reply's texts to the limits of the protocol, and reads the site's message.

use crate::text::printable;
use kernel::trust::{Trust, TrustError};
use protocol::{Reply, Verdict};
use std::path::Path;

/// Maximum bytes of the detail.
const DETAIL_BYTES_MAX: usize = 1024;
/// Maximum bytes of one text in a list, and of a device name.
const TEXT_BYTES_MAX: usize = 192;
/// Maximum warnings. With all texts and with full lists of devices, 40 KiB, a reply is smaller than
/// 64 KiB.
const WARNINGS_MAX: usize = 24;
/// Maximum dropped devices.
const DROPPED_MAX: usize = 40;
/// Maximum jobs of a refusal, as for any list of a reply.
const JOBS_MAX: usize = 256;
/// Maximum bytes of the site's message.
const MESSAGE_BYTES_MAX: u64 = 400;

/// Puts each text that comes from files or names on one line, and shortens texts and lists so that they can be sent.
/// Hint and message of the site have their limits when they are read.
pub(super) fn shorten_to_limits(mut reply: Reply) -> Reply {
    reply.detail = shorten_text(&reply.detail, DETAIL_BYTES_MAX);
    reply.auth_fault = shorten_text(&reply.auth_fault, DETAIL_BYTES_MAX);
    reply.warnings = shorten_list(reply.warnings, WARNINGS_MAX);
    match &mut reply.verdict {
        Verdict::Admit(plan) => {
            plan.dropped = shorten_list(std::mem::take(&mut plan.dropped), DROPPED_MAX);
        }
        Verdict::Refuse(refusal) => {
            refusal.device = shorten_text(&refusal.device, TEXT_BYTES_MAX);
            refusal.jobs.truncate(JOBS_MAX);
        }
        Verdict::NotEnforced => {}
    }
    reply
}

/// Keeps at most `max` texts; the last one then counts those that are left out.
fn shorten_list(texts: Vec<String>, max: usize) -> Vec<String> {
    let has_more = texts.len() > max;
    let kept = if has_more {
        max.saturating_sub(1)
    } else {
        texts.len()
    };
    let mut list: Vec<_> = texts
        .iter()
        .take(kept)
        .map(|text| shorten_text(text, TEXT_BYTES_MAX))
        .collect();
    if has_more {
        list.push(format!("and {} more", texts.len() - kept));
    }
    list
}

/// Makes a text printable, and cuts it between characters to at most `max` bytes.
fn shorten_text(text: &str, max: usize) -> String {
    let text = printable(text);
    if text.len() <= max {
        return text;
    }
    let mut end = max.saturating_sub(3);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", text.get(..end).unwrap_or_default())
}

/// Reads the site's message as plain ASCII: keeps its lines, removes control characters and blank space at the end, and
/// replaces a tab by a blank and each byte of another character by `?`.
///
/// # Errors
///
/// [`TrustError`] if the file is missing, untrusted or too large.
pub(super) fn read_message(path: &Path, trust: &Trust) -> Result<String, TrustError> {
    let bytes = trust.read(path, MESSAGE_BYTES_MAX)?;
    let plain = |byte: &u8| match *byte {
        b'\n' => Some('\n'),
        b'\t' => Some(' '),
        byte if byte.is_ascii_control() => None,
        byte if byte.is_ascii() => Some(char::from(byte)),
        _ => Some('?'),
    };
    Ok(bytes
        .iter()
        .filter_map(plain)
        .collect::<String>()
        .trim_end()
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use protocol::{
        ALLOWLIST_ENTRIES_MAX, Allowlist, ChoiceRule, Containment, ENVIRONMENT_BYTES_MAX,
        LoginLimits, PROBES_MAX, Placement, Plan, REPLY_BYTES_MAX, Reason, Refusal, SessionLine,
        Variable, Variables,
    };

    /// Makes the largest set of variables of a plan.
    fn largest_environment() -> Variables {
        let mut env = Variables::default();
        for name in [
            "SLURM_JOB_NODELIST",
            "SLURM_NODELIST",
            "SLURM_SUBMIT_DIR",
            "SLURM_JOB_USER",
        ] {
            let value = "v".repeat(ENVIRONMENT_BYTES_MAX / 4 - name.len() - 1);
            env.push(Variable::from_pair(name, &value).unwrap())
                .unwrap();
        }
        env
    }

    #[test]
    fn largest_reply_is_within_the_limits_of_the_protocol() {
        let mut list = Allowlist::new();
        for minor in 0..ALLOWLIST_ENTRIES_MAX {
            list.push(format!("c:4095:{}:rwm", 1_000_000 + minor).parse().unwrap())
                .unwrap();
        }
        let long = "\u{e4}".repeat(5000);
        let path = "p".repeat(27);
        let gpu = "g".repeat(64);
        let probe = format!("c:4095:1048575:rw /dev/{path} CUDA_VISIBLE_DEVICES={gpu}");
        let probe = probe.parse().unwrap();
        let reply = Reply {
            stack: SessionLine::Effective,
            auth_fault: String::new(),
            detail: long.clone(),
            warnings: vec![long.clone(); 5000],
            hint: "h".repeat(64),
            message: "m".repeat(400),
            verdict: Verdict::Admit(Plan {
                job: "j".repeat(64).parse().unwrap(),
                rule: ChoiceRule::Newest,
                placement: Placement::Extern {
                    spool: format!("/{}", "c".repeat(4094)).parse().unwrap(),
                    node: "n".repeat(64).parse().unwrap(),
                },
                ends: Some(i64::MAX),
                gpus: u32::MAX,
                containment: Containment::Enforce(list),
                limits: LoginLimits::default(),
                end_grace: 0,
                namespaces: None,
                probes: vec![probe; PROBES_MAX],
                dropped: vec![long; 5000],
                env: largest_environment(),
            }),
        };
        let bytes = shorten_to_limits(reply).encode();
        assert!(bytes.len() < REPLY_BYTES_MAX, "{} bytes", bytes.len());
        let Verdict::Admit(plan) = Reply::decode(&bytes).unwrap().verdict else {
            panic!()
        };
        assert_eq!(plan.env, largest_environment());
        assert_eq!(plan.dropped.len(), DROPPED_MAX);
        assert_eq!(plan.dropped.last().unwrap(), "and 4961 more");
    }

    #[test]
    fn refusal_of_user_with_many_jobs_is_decodable() {
        let jobs = (0..5000)
            .map(|id| format!("{id}").parse().unwrap())
            .collect();
        let reason = Reason::ChoiceNeeded;
        let device = "d".repeat(5000);
        let reply = Reply {
            stack: SessionLine::Effective,
            auth_fault: String::new(),
            detail: String::new(),
            warnings: Vec::new(),
            hint: String::new(),
            message: String::new(),
            verdict: Verdict::Refuse(Refusal {
                reason,
                jobs,
                ended: None,
                device,
            }),
        };
        assert!(Reply::decode(&reply.encode()).is_err());
        let bytes = shorten_to_limits(reply).encode();
        let Verdict::Refuse(refusal) = Reply::decode(&bytes).unwrap().verdict else {
            panic!()
        };
        assert_eq!(refusal.jobs.len(), JOBS_MAX);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shorten_text("abcdef", 6), "abcdef");
        assert_eq!(shorten_text("abcdefg", 6), "abc...");
        assert_eq!(shorten_text("ab\u{e4}defg", 6), "ab...");
        assert_eq!(shorten_text("a\nb", 6), "a?b");
        assert_eq!(shorten_list(vec!["a".into(), "b".into()], 2), ["a", "b"]);
        let list = shorten_list(vec!["a".into(), "b".into(), "c".into()], 2);
        assert_eq!(list, ["a", "and 2 more"]);
    }

    #[test]
    fn message_is_plain_text_of_limited_size() {
        let scratch = Scratch::new();
        let path = scratch.file("motd", "Help:\thpc@x\r\n\x1b[31mred\x07\u{e4}\n\n");
        let message = read_message(&path, &scratch.trust()).unwrap();
        assert_eq!(message, "Help: hpc@x\n[31mred??");
        scratch.file("motd", &"x".repeat(401));
        assert!(read_message(&path, &scratch.trust()).is_err());
    }
}
