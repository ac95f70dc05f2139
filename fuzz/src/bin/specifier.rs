//! Device specifiers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pam_job_adopt::device::Specifier;

fuzz_target!(|text: &str| {
    if let Ok(specifier) = text.parse::<Specifier>() {
        let shown = specifier.to_string();
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        let climbs = shown.starts_with('/') && shown.split('/').any(|part| part == "..");
        assert!(!climbs, "{shown:?} may leave /dev");
        assert_eq!(shown.parse(), Ok(specifier));
    }
});
