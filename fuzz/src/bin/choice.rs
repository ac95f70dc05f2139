//! The job that a user chose, in a file owned by the user.
#![no_main]

use helper::parse_choice;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(id) = parse_choice(bytes) {
        assert_eq!(
            format!("{id}\n").as_bytes(),
            bytes,
            "a choice has two spellings"
        );
        assert!(bytes.len() <= 65 && !id.as_str().contains(['/', '\0', '\n']));
    }
});
