//! The site's configuration.
#![no_main]

use helper::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    match Config::parse(bytes) {
        Ok(config) => {
            // Names of devices are the last part of the file.
            let is_section = |line: &&[u8]| {
                let text = String::from_utf8_lossy(line);
                text.trim_start().starts_with('[')
            };
            let keys_end = lines.iter().position(is_section).unwrap_or(lines.len());
            let (keys, names) = lines.split_at(keys_end);
            let mut reversed: Vec<&[u8]> = keys.iter().rev().copied().collect();
            if let Some((section, names)) = names.split_first() {
                reversed.push(section);
                reversed.extend(names.iter().rev());
            }
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
