//! Entries of an allowlist in the form that crosses the boundary.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::{Access, DeviceRule, MAJOR_MAX, MINOR_MAX};

fuzz_target!(|text: &str| {
    if let Ok(rule) = text.parse::<DeviceRule>() {
        assert!(rule.major() <= MAJOR_MAX && rule.minor().is_none_or(|minor| minor <= MINOR_MAX));
        assert_ne!(rule.access(), Access::NONE);
        assert_eq!(
            rule.minor().is_none(),
            text.contains(":-1:"),
            "a wildcard not written"
        );
        assert_eq!(rule.to_string().parse(), Ok(rule));
    }
});
