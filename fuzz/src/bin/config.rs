//! The site's configuration.
#![no_main]

use helper::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    match Config::parse(bytes) {
        Ok(config) => {
            let reversed: Vec<&[u8]> = lines.iter().rev().copied().collect();
            let reversed = Config::parse(&reversed.join(&b'\n'));
            assert_eq!(reversed, Ok(config), "the order of lines matters");
        }
        Err((line, fault)) => {
            assert!(
                (1..=lines.len()).contains(&line),
                "line {line} of {}",
                lines.len()
            );
            assert!(!fault.to_string().chars().any(char::is_control), "{fault}");
        }
    }
});
