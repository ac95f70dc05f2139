//! What the unprivileged half answers: the one text of others that root's half reads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pam_job_adopt::plan::{Reason, Reply, Verdict};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(reply) = Reply::decode(bytes) {
        if let Verdict::Refuse(refusal) = &reply.verdict {
            assert_ne!(refusal.reason, Reason::Admitted);
        }
        assert_eq!(reply.encode(), bytes, "a reply has two spellings");
    }
});
