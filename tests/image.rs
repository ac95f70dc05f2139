//! The cache of images for booted nodes keeps no image that could not be completed.
#![allow(clippy::unwrap_used, reason = "a failing test must report at once")]
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A cache, and programs in place of apt and mmdebstrap: these need root and an archive.
struct Cache {
    folder: PathBuf,
}

impl Cache {
    fn new() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("images");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("packages"), "attr\n").unwrap();
        let cache = Self { folder };
        cache.write_program("apt-get", "echo Debian bookworm http://archive main");
        cache.write_program("apt-config", "true");
        cache
    }

    fn write_program(&self, name: &str, script: &str) {
        let path = self.folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Builds an image. The script of mmdebstrap knows the image's root as `$made`.
    fn build(&self, mmdebstrap: &str) -> Output {
        let find_root = "for root; do [ \"$root\" = http://archive ] || made=$root; done";
        self.write_program("mmdebstrap", &format!("{find_root}; {mmdebstrap}"));
        Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/image/build"))
            .args(["bookworm", "packages"])
            .current_dir(&self.folder)
            .env("JOB_ADOPT_IMAGES", self.folder.join("cache"))
            .env(
                "PATH",
                format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.folder.display()),
            )
            .output()
            .unwrap()
    }

    fn images(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.join("cache")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.ends_with(".lock")).collect()
    }
}

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn failed_image_is_reported_in_one_line_and_leaves_nothing() {
    let cache = Cache::new();
    for reason in [
        "E: Failed to fetch http://archive/x.deb",
        "tar: x: No space left on device",
    ] {
        let script = format!("mkdir -p \"$made/usr\"; echo '{reason}'; echo 'E: failed'; exit 25");
        let failed = cache.build(&script);
        assert!(!failed.status.success());
        let output = output_text(&failed);
        assert_eq!(output.lines().count(), 1, "{output}");
        assert!(
            output.contains(&format!("no image of bookworm: http://archive: {reason}")),
            "{output}"
        );
        assert!(cache.images().is_empty(), "{:?}", cache.images());
    }
    let built = cache.build("mkdir -p \"$made/etc/systemd/system\"");
    let image = output_text(&built);
    assert!(built.status.success(), "{image}");
    assert!(
        Path::new(image.trim()).join("root/etc/hosts").exists(),
        "{image}"
    );
}
