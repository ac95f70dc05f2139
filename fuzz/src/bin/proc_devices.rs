//! `/proc/devices`.
//!
//! At most 1024 bytes, about the size of the real file: each line is compared with all others.
#![no_main]

use helper::node::ProcDevices;
use libfuzzer_sys::fuzz_target;
use protocol::{DeviceType, MAJOR_MAX};

fuzz_target!(|text: &str| {
    let drivers = ProcDevices::parse(text);
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.trim_end().trim_start_matches(" "))
        .collect();
    // A name can only follow a blank.
    for name in lines
        .iter()
        .filter_map(|line| line.split_once(' '))
        .map(|(_, name)| name)
    {
        for kind in [DeviceType::Char, DeviceType::Block] {
            for major in drivers.majors_of(kind, name) {
                assert!(major <= MAJOR_MAX);
                let says_so = |line: &&str| {
                    line.strip_suffix(name)
                        .and_then(|number| number.trim().parse().ok())
                        == Some(major)
                };
                assert!(
                    lines.iter().any(says_so),
                    "{major} is not a major of {name:?}"
                );
            }
        }
    }
});
