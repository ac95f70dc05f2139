//! Notes about skipped tests: every test program of one `cargo test` adds its own, the last program
//! reports them all.

#![allow(dead_code, reason = "each program uses only a part")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

/// Returns the folder of the notes: `target/debug/skipped`.
fn folder() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.parent()?.join("skipped"))
}

/// Returns the file of this run, named after the process that started the test program.
fn file() -> Option<PathBuf> {
    Some(folder()?.join(std::os::unix::process::parent_id().to_string()))
}

/// Adds the note that the calling test is skipped. A note that cannot be written is lost: a test
/// never fails for it.
pub(crate) fn add(why: &str) {
    let Some(file) = file() else { return };
    // libtest names a test's thread after the test.
    let thread = std::thread::current();
    let line = format!(
        "{why}\t{}\t{}\n",
        env!("CARGO_PKG_NAME"),
        thread.name().unwrap_or_default()
    );
    let _ = file.parent().map(fs::create_dir_all);
    let opened = File::options().create(true).append(true).open(file);
    let _ = opened.and_then(|mut notes| notes.write_all(line.as_bytes()));
}

/// Returns the reasons of this run, once for each skipped test, and removes all notes of runs that
/// have ended.
pub(crate) fn take() -> Vec<String> {
    let lines = file()
        .and_then(|file| fs::read_to_string(file).ok())
        .unwrap_or_default();
    let tests: BTreeSet<&str> = lines.lines().collect();
    let reasons = tests.iter().filter_map(|line| line.split('\t').next());
    let reasons = reasons.map(str::to_owned).collect();
    let _ = file().map(fs::remove_file);
    for note in folder()
        .and_then(|folder| fs::read_dir(folder).ok())
        .into_iter()
        .flatten()
        .flatten()
    {
        if !PathBuf::from("/proc").join(note.file_name()).exists() {
            let _ = fs::remove_file(note.path());
        }
    }
    reasons
}
