//! Names that cross the boundary.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::{CgroupPath, JobId, LeafName};

fuzz_target!(|text: &str| {
    if let Ok(id) = text.parse::<JobId>() {
        assert_eq!(id.as_str(), text);
        assert!(
            !text.contains('/') && !matches!(text, "." | ".."),
            "{text:?} leaves its folder"
        );
    }
    if let Ok(leaf) = text.parse::<LeafName>() {
        assert_eq!(leaf.as_str(), text);
        assert!(!text.contains(['/', '.']), "{text:?} is no plain child");
    }
    if let Ok(path) = text.parse::<CgroupPath>() {
        let parts: Vec<&str> = path.relative().split('/').collect();
        assert!(
            parts.iter().all(|part| !matches!(*part, "" | "." | "..")),
            "{text:?}"
        );
        assert_eq!(format!("/{}", parts.join("/")), text);
    }
});
