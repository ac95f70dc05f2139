//! The replies of the unprivileged half: the only foreign text that root's half parses.
#![no_main]

use job_adopt_fuzz::with_version;
use libfuzzer_sys::fuzz_target;
use protocol::{Reason, Reply, Verdict};

fuzz_target!(|bytes: &[u8]| {
    let bytes = with_version(bytes);
    if let Ok(reply) = Reply::decode(&bytes) {
        if let Verdict::Refuse(refusal) = &reply.verdict {
            assert_ne!(refusal.reason, Reason::Admitted);
        }
        assert!(reply.encode() == bytes, "a reply has two spellings");
    }
});
