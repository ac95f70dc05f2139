//! The PAM module's arguments.
#![no_main]

use libfuzzer_sys::fuzz_target;
use module::Settings;

fuzz_target!(|text: &str| {
    let mut arguments: Vec<String> = text.split_ascii_whitespace().map(str::to_owned).collect();
    match Settings::parse(&arguments) {
        Ok(settings) => {
            assert!(settings.wait_job < settings.timeout);
            assert!(settings.helper.starts_with('/') && settings.conf.starts_with('/'));
            arguments.reverse();
            let reversed = Settings::parse(&arguments).map(|reversed| Settings {
                // `debug` is a synonym of this argument, and the later of the two counts.
                log_level: settings.log_level,
                ..reversed
            });
            assert_eq!(reversed, Ok(settings), "the order of arguments matters");
            if let Some(first) = arguments.first().cloned() {
                arguments.push(first);
                assert!(
                    Settings::parse(&arguments).is_err(),
                    "an argument counts twice"
                );
            }
        }
        Err(error) => assert!(error.starts_with("argument ")),
    }
});
