//! Keeping a reply within its limit, whatever the names in it are, and the site's own text below a
//! refusal.

use std::path::Path;

use crate::helper::printable;
use crate::kernel::trust::{Trust, TrustError};
use crate::protocol::{Reply, Verdict};

const DETAIL_MAX: usize = 1024;
/// Most bytes of one text in a list, and of a device name.
const TEXT_MAX: usize = 192;
/// Most warnings, and most dropped devices. With full lists of devices, 40 KiB, all of it takes less
/// than 64 KiB.
const WARNINGS_MAX: usize = 24;
const DROPPED_MAX: usize = 40;

/// Most jobs of a refusal, as a list of the reply may have.
const JOBS_MAX: usize = 256;

/// The reply with its texts on one line each, cut to lengths with which it can be sent.
pub(super) fn fit(mut reply: Reply) -> Reply {
    reply.detail = cut(&reply.detail, DETAIL_MAX);
    reply.warnings = list(reply.warnings, WARNINGS_MAX);
    match &mut reply.verdict {
        Verdict::Admit(plan) => plan.dropped = list(std::mem::take(&mut plan.dropped), DROPPED_MAX),
        Verdict::Refuse(refusal) => {
            refusal.device = cut(&refusal.device, TEXT_MAX);
            refusal.jobs.truncate(JOBS_MAX);
        }
        Verdict::NotEnforced => {}
    }
    reply
}

fn list(texts: Vec<String>, most: usize) -> Vec<String> {
    let more = texts.len().saturating_sub(most);
    let kept = if more > 0 { most.saturating_sub(1) } else { texts.len() };
    let mut fitted: Vec<_> = texts.iter().take(kept).map(|text| cut(text, TEXT_MAX)).collect();
    if more > 0 {
        fitted.push(format!("and {} more", texts.len() - kept));
    }
    fitted
}

fn cut(text: &str, most: usize) -> String {
    let text = printable(text);
    if text.len() <= most {
        return text;
    }
    let mut end = most.saturating_sub(3);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", text.get(..end).unwrap_or_default())
}

const MESSAGE_MAX: u64 = 400;

/// Reads the text: plain ASCII, lines kept, anything else replaced.
/// Fails: [`TrustError`] where the file is missing, not believed or too large.
pub(super) fn message(path: &Path, trust: &Trust) -> Result<String, TrustError> {
    let bytes = trust.read(path, MESSAGE_MAX)?;
    let plain = |byte: &u8| match *byte {
        b'\n' => Some('\n'),
        b'\t' => Some(' '),
        byte if byte.is_ascii_control() => None,
        byte if byte.is_ascii() => Some(char::from(byte)),
        _ => Some('?'),
    };
    Ok(bytes.iter().filter_map(plain).collect::<String>().trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{
        Allowlist, Containment, ENVIRONMENT_MAX, MAX_ENTRIES, MAX_PROBES, Placement, Plan,
        REPLY_MAX, Reason, Refusal, Rule, Stack, Variable, Variables,
    };

    /// As many and as long as they may be.
    fn env() -> Variables {
        let mut env = Variables::default();
        for name in ["SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_SUBMIT_DIR", "SLURM_JOB_USER"] {
            let value = "v".repeat(ENVIRONMENT_MAX / 4 - name.len() - 1);
            env.push(Variable::new(name, &value).unwrap()).unwrap();
        }
        env
    }

    #[test]
    fn the_largest_reply_fits_and_is_read() {
        let mut list = Allowlist::new();
        for minor in 0..MAX_ENTRIES {
            list.push(format!("c:4095:{}:rwm", 1_000_000 + minor).parse().unwrap()).unwrap();
        }
        let long = "\u{e4}".repeat(5000);
        let (path, gpu) = ("p".repeat(27), "g".repeat(64));
        let probe = format!("c:4095:1048575:rw /dev/{path} CUDA_VISIBLE_DEVICES={gpu}");
        let probe = probe.parse().unwrap();
        let reply = Reply {
            stack: Stack::Effective,
            detail: long.clone(),
            warnings: vec![long.clone(); 5000],
            hint: "h".repeat(64),
            message: "m".repeat(400),
            verdict: Verdict::Admit(Plan {
                job: "j".repeat(64).parse().unwrap(),
                rule: Rule::Newest,
                placement: Placement::Extern {
                    spool: format!("/{}", "c".repeat(4094)).parse().unwrap(),
                    node: "n".repeat(64).parse().unwrap(),
                },
                ends: Some(i64::MAX),
                gpus: u32::MAX,
                containment: Containment::Enforce(list),
                probes: vec![probe; MAX_PROBES],
                dropped: vec![long; 5000],
                env: env(),
            }),
        };
        let bytes = fit(reply).encode();
        assert!(bytes.len() < REPLY_MAX, "{} bytes", bytes.len());
        let Verdict::Admit(plan) = Reply::decode(&bytes).unwrap().verdict else { panic!() };
        assert_eq!(plan.env, env());
        assert_eq!(plan.dropped.len(), DROPPED_MAX);
        assert_eq!(plan.dropped.last().unwrap(), "and 4961 more");
    }

    #[test]
    fn a_refusal_of_a_user_with_many_jobs_is_read() {
        let jobs = (0..5000).map(|id| format!("{id}").parse().unwrap()).collect();
        let (reason, device) = (Reason::ChoiceNeeded, "d".repeat(5000));
        let reply = Reply {
            stack: Stack::Effective,
            detail: String::new(),
            warnings: Vec::new(),
            hint: String::new(),
            message: String::new(),
            verdict: Verdict::Refuse(Refusal { reason, jobs, ended: None, device }),
        };
        assert!(Reply::decode(&reply.encode()).is_err());
        let Verdict::Refuse(refusal) = Reply::decode(&fit(reply).encode()).unwrap().verdict else {
            panic!()
        };
        assert_eq!(refusal.jobs.len(), JOBS_MAX);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abc...");
        assert_eq!(cut("ab\u{e4}defg", 6), "ab...");
        assert_eq!(cut("a\nb", 6), "a?b");
        assert_eq!(list(vec!["a".into(), "b".into()], 2), ["a", "b"]);
        assert_eq!(list(vec!["a".into(), "b".into(), "c".into()], 2), ["a", "and 2 more"]);
    }

    use crate::kernel::trust::tests::Scratch;

    #[test]
    fn only_plain_text_passes() {
        let scratch = Scratch::new();
        let path = scratch.file("motd", "Help:\thpc@x\r\n\x1b[31mred\x07\u{e4}\n\n");
        assert_eq!(message(&path, &scratch.trust()).unwrap(), "Help: hpc@x\n[31mred??");
        scratch.file("motd", &"x".repeat(401));
        assert!(message(&path, &scratch.trust()).is_err());
    }
}
