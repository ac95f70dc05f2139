//! What the privileged half asks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pam_job_adopt::plan::Request;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = Request::decode(bytes) {
        assert_eq!(request.encode(), bytes, "a request has two spellings");
    }
});
