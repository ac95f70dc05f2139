//! The unwinder, which turns a panic into a refusal, is a part of the module. `panic` has a panic during a login, in
//! a debug build.

use std::path::Path;
use std::process::Command;

use crate::support::{
    Artifact, Outcome, Tool, artifact_path, built_path, finished_dir, on_node, skip,
};

/// The module's unwinder serves no other library, and the module uses no other's: each knows its own records of an
/// exception alone. A debug build is linked alike, and keeps the name of each function.
#[test]
fn unwinder_is_private_to_module() {
    let debug = built_path(Artifact::Module);
    if !debug.exists() {
        return skip("needs the module of a debug build: make test");
    }
    for file in [&artifact_path(Artifact::Module), &debug] {
        let shared = symbols("-D", file);
        for name in ["_Unwind_", "__register_frame"] {
            assert!(!shared.contains(name), "{}: {shared}", file.display());
        }
    }
    let own = symbols("--defined-only", &debug);
    assert!(own.contains(" t _Unwind_RaiseException\n"), "{own}");
}

fn symbols(option: &str, file: &Path) -> String {
    Outcome::run(Command::new("nm").arg(option).arg(file))
        .ok()
        .stdout
}

/// Panics while a value lives whose end sets a mark; returns 0 if the panic is caught after that.
const LIBRARY: &str = r#"
use std::sync::atomic::{AtomicBool, Ordering};
static MARK: AtomicBool = AtomicBool::new(false);
struct Guard;
impl Drop for Guard {
    fn drop(&mut self) {
        MARK.store(true, Ordering::Relaxed);
    }
}
#[unsafe(no_mangle)]
pub extern "C" fn catch() -> i32 {
    let caught = std::panic::catch_unwind(|| {
        let _guard = Guard;
        panic!("as it should");
    });
    i32::from(caught.is_ok() || !MARK.load(Ordering::Relaxed))
}
"#;

/// For an older C library another linker has another unwinder. Beside libgcc_s it catches the same.
#[test]
fn library_for_older_c_library_catches_its_panic() {
    if std::env::var("GLIBC").is_ok_and(|version| version.is_empty()) || finished_dir().is_none() {
        return skip("needs the linker for glibc 2.28: make test-release");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unwinder");
    std::fs::create_dir_all(&folder).unwrap();
    let [source, library] = ["catch.rs", "libcatch.so"].map(|name| folder.join(name));
    std::fs::write(&source, LIBRARY).unwrap();
    let zig = Outcome::run(&mut Command::new(root.join("packaging/zig"))).ok();
    let linker = root.join("packaging/floor/cc");
    let mut rustc = Command::new(Path::new(env!("CARGO")).with_file_name("rustc"));
    rustc
        .args(["--edition=2024", "--crate-type=cdylib", "-o"])
        .args([&library, &source])
        .arg(format!("-Clinker={}", linker.display()))
        .env("ZIG", zig.stdout.trim_end())
        .env("GLIBC", "2.28");
    Outcome::run(&mut rustc).ok();
    let call = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).catch())";
    for preloaded in ["", "libgcc_s.so.1"] {
        let mut python = Command::new("python3");
        python.env("LD_PRELOAD", preloaded).args(["-c", call]);
        Outcome::run(python.arg(&library)).ok().omits("LD_PRELOAD");
    }
}

/// Such an exception meets two unwinders. Whatever they make of it, nobody is let in.
#[test]
fn exception_of_application_through_module_ends_process() {
    on_node(|node| {
        node.install(&Tool::Raise.path(), "/usr/bin/raise");
        let raised = node.sh("ulimit -c 0; exec raise alice");
        assert!(raised.code > 128, "no signal ended it: {raised}");
        raised.says("[JA01]").omits("account returns");
    });
}
