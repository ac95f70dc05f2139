//! Names of GPUs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use naming::GpuName;

fuzz_target!(|text: &str| {
    if let Ok(name) = text.parse::<GpuName>() {
        assert_eq!(name.to_string().parse(), Ok(name));
    }
});
