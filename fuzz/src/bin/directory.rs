//! Lists of devices as a directory: each line is the name of a file below it.
//!
//! At most 512 bytes.
#![no_main]

use std::path::Path;

use helper::devices::DeviceName;
use job_adopt_fuzz::Laid;
use libfuzzer_sys::fuzz_target;
use naming::directory;

const LIST: &str = "/run/devices";

fuzz_target!(|text: &str| {
    let laid = Laid::kept();
    let list = laid.path().join("run/devices");
    _ = std::fs::remove_dir_all(&list);
    std::fs::create_dir_all(&list).expect("a directory");
    let mut files = 0;
    for name in text.lines().take(30) {
        let parts: Vec<&str> = name.split('/').collect();
        let odd = |part: &&str| matches!(*part, "" | "." | "..") || part.len() > 200;
        if parts.iter().any(odd) || parts.len() > 8 || name.contains('\0') {
            continue;
        }
        let path = list.join(name);
        let made = path
            .parent()
            .is_some_and(|dir| std::fs::create_dir_all(dir).is_ok());
        files += usize::from(made && !path.exists() && std::fs::write(&path, "").is_ok());
    }
    let tree = laid.tree();
    let read = || directory::read(&tree, Path::new(LIST));
    if let Ok(devices) = read() {
        assert!(devices.len() <= files, "{devices:?} of {files} files");
        let nested =
            |device: &DeviceName| matches!(device, DeviceName::Dir(_) | DeviceName::Gres { .. });
        assert!(!devices.iter().any(nested), "{devices:?}");
        std::fs::write(list.join("GPU-unknown"), "").expect("a file");
        assert!(
            read().is_err(),
            "an unknown name was left out of {devices:?}"
        );
    }
});
