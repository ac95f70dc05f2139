//! The note that a job ended.
#![no_main]

use helper::jobs::records::Note;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(note) = Note::parse(bytes) {
        assert!(note.ended() > 0);
        assert_eq!(Note::parse(note.to_json().as_bytes()), Ok(note));
    }
});
