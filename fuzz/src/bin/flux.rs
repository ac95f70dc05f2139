//! Ids and units of Flux jobs.
#![no_main]

use helper::jobs::FluxId;
use libfuzzer_sys::fuzz_target;
use protocol::{CgroupPath, JobId};
use schedulers::flux::{Unit, unit_at, unit_parents};

fuzz_target!(|text: &str| {
    if let Some(id) = FluxId::parse_canonical(text) {
        assert_eq!(id.to_string(), text, "two texts for one id");
        assert!(text.parse::<JobId>().is_ok(), "{text:?} is no job's id");
    }
    if let Some(id) = FluxId::parse(text) {
        assert_eq!(FluxId::parse_canonical(&id.to_string()), Some(id));
    }
    if let Some(unit) = Unit::parse(text) {
        assert_eq!(format!("imp-shell-{}-{}.service", unit.rank, unit.id), text);
        for folder in unit_parents(992) {
            let path = format!("{folder}/{text}");
            assert_eq!(unit_at(&path, 992), Some(unit));
            assert_eq!(unit_at(&path, 99), None);
            assert!(
                path.parse::<CgroupPath>().is_ok(),
                "{path:?} is no cgroup's path"
            );
        }
    }
    if unit_at(text, 992).is_some() {
        assert!(
            unit_parents(992)
                .iter()
                .any(|folder| text.starts_with(folder.as_str())),
            "{text:?}"
        );
    }
});
