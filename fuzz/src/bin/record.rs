//! Job records.
#![no_main]

use helper::jobs::records::Record;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = Record::parse(bytes) {
        assert!(Record::can_own_job(record.uid), "a job of nobody");
        let text = record.to_json().expect("a record can be written");
        assert!(!text.trim_end().contains('\n'), "more than one line");
        assert_eq!(Record::parse(text.as_bytes()), Ok(record));
    }
});
