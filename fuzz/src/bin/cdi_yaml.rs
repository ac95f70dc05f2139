//! Device specifications as YAML.
#![no_main]

use job_adopt_fuzz::assert_fit;
use libfuzzer_sys::fuzz_target;
use naming::cdi::{Format, Spec};

fuzz_target!(|bytes: &[u8]| {
    match Spec::parse(bytes, Format::Yaml) {
        Ok(spec) => assert_fit(&spec),
        Err(error) => assert!(!error.to_string().contains('\n'), "{error:?}"),
    }
});
