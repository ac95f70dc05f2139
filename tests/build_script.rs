//! The build script names each build after its source.
#![allow(clippy::unwrap_used, reason = "a failing test must report at once")]
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// A patched build has the same version, and may have another protocol.
#[test]
fn builds_of_different_source_have_different_names() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("build-name");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let script = folder.join("build");
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/build.rs");
    let compiled = Command::new(rustc)
        .args(["--edition=2024", source, "-o"])
        .arg(&script)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", output_text(&compiled));
    let name_of = |case: &str, file: &str, text: &str| {
        let path = folder.join(case).join("src/below").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        let output = Command::new(&script)
            .current_dir(folder.join(case))
            .env("CARGO_PKG_VERSION", "1.2.3")
            .env_remove("OUT_DIR")
            .output()
            .unwrap();
        let output = output_text(&output);
        let name = output
            .lines()
            .find_map(|line| line.strip_prefix("cargo:rustc-env=BUILD="));
        name.map(str::to_owned)
    };
    let first = name_of("one", "a.rs", "fn a() {}").unwrap();
    assert!(
        first
            .strip_prefix("1.2.3+")
            .is_some_and(|sum| sum.len() == 8),
        "{first}"
    );
    let same = name_of("another", "a.rs", "fn a() {}").unwrap();
    assert_eq!(same, first);
    for (case, file, text) in [("text", "a.rs", "fn b() {}"), ("file", "b.rs", "fn a() {}")] {
        assert_ne!(name_of(case, file, text).unwrap(), first, "{case}");
    }
}
