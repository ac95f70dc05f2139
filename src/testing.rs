//! What unit tests of several crates share: a directory of a test's own, and numbers that look random.

#![allow(dead_code, reason = "a crate that uses a part of it has all of it")]

use kernel::trust::Trust;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of a test's own, removed when the test is over.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("job-adopt-unit-{}-{number}", std::process::id());
        let path = std::env::temp_dir().canonicalize().unwrap().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Believes what the test's own user wrote below the directory.
    pub(crate) fn trust(&self) -> Trust {
        Trust::below(&self.0, nix::unistd::Uid::effective().as_raw())
    }

    /// A directory with its parents, writable by its owner only.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let mut path = self.0.clone();
        for part in name.split('/') {
            path.push(part);
            if !path.exists() {
                std::fs::create_dir(&path).unwrap();
            }
            self.mode(path.strip_prefix(&self.0).unwrap().to_str().unwrap(), 0o755);
        }
        path
    }

    /// A file with its directories, writable by its owner only.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        if let Some((dir, _)) = name.rsplit_once('/') {
            self.dir(dir);
        }
        std::fs::write(self.0.join(name), text).unwrap();
        self.mode(name, 0o644);
        self.0.join(name)
    }

    pub(crate) fn mode(&self, name: &str, mode: u32) {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.0.join(name), permissions).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The generator of Marsaglia's "Xorshift RNGs" with the shifts 13, 7 and 17.
pub(crate) struct Random(u64);

impl Random {
    /// A sequence for a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32 % bound
    }

    /// A place among so many.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        self.below(u32::try_from(count).unwrap()) as usize
    }

    /// One of several.
    pub(crate) fn one_of<T: Copy>(&mut self, several: &[T]) -> T {
        several[self.index(several.len())]
    }
}
