//! Slurm's `gres.conf`.
#![no_main]

use helper::devices::gres::{Dialect, GresConf};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let lines = 1..=text.lines().count();
    let conf = match GresConf::parse(text, "gpu017", Dialect::default()) {
        Ok(conf) => conf,
        Err(faulty) => {
            assert!(lines.contains(&faulty.at.line), "{faulty}");
            return;
        }
    };
    match conf.resources("gpu") {
        Ok(conf) => {
            for index in 0..conf.count().min(100) {
                let (record, files) = conf.resource(index).expect("an index below the count");
                assert!(lines.contains(&record.at.line));
                for file in files {
                    let climbs = file.split('/').any(|part| part == "..");
                    assert!(file.starts_with("/dev/") && !climbs, "{file:?}");
                }
            }
            assert_eq!(conf.resource(conf.count()), None);
        }
        Err(faulty) => {
            assert!(lines.contains(&faulty.at.line), "{faulty}");
        }
    }
});
