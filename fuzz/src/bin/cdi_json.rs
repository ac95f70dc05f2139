//! Device specifications as JSON.
#![no_main]

use job_adopt_fuzz::assert_fit;
use libfuzzer_sys::fuzz_target;
use naming::cdi::{Format, Spec};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(spec) = Spec::parse(bytes, Format::Json) {
        assert_fit(&spec);
        // Most JSON is YAML too.
        if let Ok(other) = Spec::parse(bytes, Format::Yaml) {
            assert_eq!(spec, other, "one text, two meanings");
        }
    }
});
