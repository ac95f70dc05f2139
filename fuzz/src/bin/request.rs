//! The requests of the privileged half.
#![no_main]

use job_adopt_fuzz::with_version;
use libfuzzer_sys::fuzz_target;
use protocol::Request;

fuzz_target!(|bytes: &[u8]| {
    let bytes = with_version(bytes);
    if let Ok(request) = Request::decode(&bytes) {
        assert!(request.encode() == bytes, "a request has two spellings");
    }
});
