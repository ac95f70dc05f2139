//! Qualified names of CDI devices.
#![no_main]

use libfuzzer_sys::fuzz_target;
use naming::cdi::QualifiedName;

fuzz_target!(|text: &str| {
    if let Ok(name) = text.parse::<QualifiedName>() {
        assert_eq!(name.to_string(), text);
        assert!(name.kind().split('/').count() == 2 && !name.name().contains(['/', '=', '*']));
    }
});
