//! Names of GPUs.
#![no_main]

use naming::GpuName;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(name) = text.parse::<GpuName>() {
        assert_eq!(name.to_string().parse(), Ok(name));
    }
});
