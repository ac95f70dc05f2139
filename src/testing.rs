//! Support for the unit tests of several crates: temporary directories, pseudo-random numbers, and
//! notes about skipped tests.

#![allow(dead_code, reason = "each crate uses only a part")]

#[path = "../tests/skipped/notes.rs"]
mod notes;

use kernel::trust::Trust;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::unistd::{AccessFlags, access};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Notes that the calling test is skipped; the last program of `cargo test` reports it.
pub(crate) fn skip(why: &str) {
    notes::add(why);
}

/// Makes a file without a name, on which this process has so many locks: the kernel takes long to describe a descriptor
/// of it.
pub(crate) fn make_file_with_locks(count: i64) -> File {
    let scratch = Scratch::new();
    let file = File::create(scratch.path().join("locked")).unwrap();
    for place in 0..count {
        // Locks of bytes side by side would become one.
        let lock = libc::flock {
            l_type: i16::try_from(libc::F_WRLCK).unwrap(),
            l_whence: i16::try_from(libc::SEEK_SET).unwrap(),
            l_start: 2 * place,
            l_len: 1,
            l_pid: 0,
        };
        fcntl(&file, FcntlArg::F_SETLK(&lock)).unwrap();
    }
    file
}

/// A directory for one test, removed at its end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("job-adopt-unit-{}-{number}", std::process::id());
        let path = Self::parent().canonicalize().unwrap().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Returns the directory for files of tests: in memory, where thousands of them take a tenth of the time.
    fn parent() -> PathBuf {
        let memory = Path::new("/dev/shm");
        if std::env::var_os("TMPDIR").is_none() && access(memory, AccessFlags::W_OK).is_ok() {
            return memory.to_owned();
        }
        std::env::temp_dir()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns a trust in files that the test's user wrote below the directory.
    pub(crate) fn trust(&self) -> Trust {
        Trust::below(&self.0, nix::unistd::Uid::effective().as_raw())
    }

    /// Makes a directory and its parents, writable only by their owner.
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

    /// Writes a file and makes its directories, writable only by their owner.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        if let Some((dir, _)) = name.rsplit_once('/') {
            self.dir(dir);
        }
        std::fs::write(self.0.join(name), text).unwrap();
        self.mode(name, 0o644);
        self.0.join(name)
    }

    /// Sets the mode of a file or directory.
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
    /// Starts the sequence of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32 % bound
    }

    /// Returns an index below `count`.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        self.below(u32::try_from(count).unwrap()) as usize
    }

    /// Returns one of several values.
    pub(crate) fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.index(values.len())]
    }
}
