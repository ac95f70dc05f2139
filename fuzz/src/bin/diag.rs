//! The kernel's description of a connection (sock_diag(7)).
#![no_main]

use std::net::SocketAddr;

use helper::callerid::diag;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let ends: [SocketAddr; 2] = [([10, 1, 0, 5], 5000).into(), ([10, 1, 0, 6], 22).into()];
    let [local, remote] = ends;
    if let Ok(Some(owner)) = diag::parse_answer(bytes, local, remote) {
        // Bytes after the end of the message do not count.
        let longer = [bytes, b"more"].concat();
        assert_eq!(diag::parse_answer(&longer, local, remote), Ok(Some(owner)));
        assert_eq!(
            diag::parse_answer(bytes, remote, local),
            Ok(None),
            "one socket has two directions"
        );
        for length in 0..bytes.len().min(72) {
            let cut = bytes.get(..length).unwrap_or_default();
            assert!(
                diag::parse_answer(cut, local, remote).is_err(),
                "{length} bytes are an answer"
            );
        }
    }
});
