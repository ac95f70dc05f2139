//! Slurm's `gres.conf`.
#![no_main]

use helper::devices::gres::GresConf;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let conf = GresConf::parse(text, "gpu017")
        .and_then(|conf| conf.resources("gpu").map_err(|(at, fault)| (at.line, fault)));
    match conf {
        Ok(conf) => {
            for index in 0..conf.count().min(100) {
                let (record, files) = conf.resource(index).expect("an index below the count");
                assert!((1..=text.lines().count()).contains(&record.at.line));
                for file in files {
                    let climbs = file.split('/').any(|part| part == "..");
                    assert!(file.starts_with("/dev/") && !climbs, "{file:?}");
                }
            }
            assert_eq!(conf.resource(conf.count()), None);
        }
        Err((line, fault)) => {
            assert!((1..=text.lines().count()).contains(&line), "line {line}: {fault}");
        }
    }
});
