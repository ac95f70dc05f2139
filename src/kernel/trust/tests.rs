use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::helper::devices::tree::Entry;

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

fn cause(result: Result<Vec<u8>, TrustError>) -> Distrust {
    result.unwrap_err().cause().clone()
}

#[test]
fn a_file_of_the_owner_is_read() {
    let scratch = Scratch::new();
    let path = scratch.file("a/b/conf", "text");
    assert_eq!(scratch.trust().read(&path, 4), Ok(b"text".to_vec()));
}

#[test]
fn what_others_can_change_is_not() {
    let scratch = Scratch::new();
    let path = scratch.file("a/b/conf", "text");
    for mode in [0o664, 0o646, 0o620] {
        scratch.mode("a/b/conf", mode);
        assert_eq!(cause(scratch.trust().read(&path, 9)), Distrust::Writable(mode));
    }
    scratch.mode("a/b/conf", 0o644);
    scratch.mode("a", 0o1777);
    let error = scratch.trust().read(&path, 9).unwrap_err();
    assert_eq!(error.cause(), &Distrust::Writable(0o1777));
    assert_eq!(error.path(), scratch.path().join("a"));
}

#[test]
fn what_belongs_to_someone_else_is_not() {
    let scratch = Scratch::new();
    let path = scratch.file("conf", "text");
    let me = nix::unistd::Uid::effective().as_raw();
    let trust = Trust::below(scratch.path(), me + 1);
    assert_eq!(cause(trust.read(&path, 9)), Distrust::Owner(me));
    if me == 0 {
        std::os::unix::fs::chown(&path, Some(1), None).unwrap();
        assert_eq!(cause(scratch.trust().read(&path, 9)), Distrust::Owner(1));
    } else {
        println!("not root: the half with chown is skipped");
    }
}

#[test]
fn links_pipes_and_large_files_are_not() {
    let scratch = Scratch::new();
    let path = scratch.file("conf", "text");
    let trust = scratch.trust();
    assert_eq!(cause(trust.read(&path, 3)), Distrust::TooLarge(3));

    symlink("conf", scratch.path().join("link")).unwrap();
    let linked = trust.read(&scratch.path().join("link"), 9);
    assert_eq!(cause(linked), Distrust::Open(nix::errno::Errno::ELOOP));

    scratch.file("real/conf", "text");
    symlink("real", scratch.path().join("dir")).unwrap();
    let below = trust.read(&scratch.path().join("dir/conf"), 9);
    assert_eq!(cause(below), Distrust::Open(nix::errno::Errno::ENOTDIR));

    std::fs::hard_link(&path, scratch.path().join("second")).unwrap();
    assert_eq!(cause(trust.read(&path, 9)), Distrust::Links(2));

    let fifo = scratch.path().join("fifo");
    nix::unistd::mkfifo(&fifo, Mode::from_bits_truncate(0o644)).unwrap();
    assert_eq!(cause(trust.read(&fifo, 9)), Distrust::NotRegular);
    assert_eq!(cause(trust.read(&scratch.dir("sub"), 9)), Distrust::NotRegular);
}

#[test]
fn paths_stay_below_the_anchor() {
    let scratch = Scratch::new();
    scratch.file("a/conf", "text");
    let trust = scratch.trust();
    for path in ["a/../a/conf", "../conf"] {
        assert_eq!(cause(trust.read(&scratch.path().join(path), 9)), Distrust::Outside);
    }
    assert_eq!(cause(trust.read(Path::new("conf"), 9)), Distrust::Outside);
    assert!(trust.read(&scratch.path().join("none"), 9).unwrap_err().is_missing());
}

#[test]
fn names_are_sorted_and_bounded() {
    let scratch = Scratch::new();
    for name in ["d/b", "d/a", "d/.hidden"] {
        scratch.file(name, "");
    }
    let dir = scratch.trust().dir(&scratch.path().join("d")).unwrap();
    assert_eq!(dir.names(2), Ok(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(dir.names(1).unwrap_err().cause(), &Distrust::Crowded(1));
    assert_eq!(dir.all_names(3).unwrap(), [".hidden", "a", "b"]);
    assert_eq!(dir.all_names(2).unwrap_err().cause(), &Distrust::Crowded(2));
}

#[test]
fn entries_are_told_apart_without_opening_them() {
    let scratch = Scratch::new();
    for name in ["d/file", "d/dir/x", "d/open/x"] {
        scratch.file(name, "");
    }
    scratch.mode("d/open", 0o777);
    symlink("file", scratch.path().join("d/link")).unwrap();
    symlink("dir", scratch.path().join("d/linked-dir")).unwrap();
    nix::unistd::mkfifo(&scratch.path().join("d/fifo"), Mode::S_IRUSR).unwrap();
    let dir = scratch.trust().dir(&scratch.path().join("d")).unwrap();
    let entry = |name: &str| dir.entry(Path::new(name));
    assert!(matches!(entry("file"), Ok(Entry::File)));
    assert!(matches!(entry("dir"), Ok(Entry::Dir(below)) if below.path().ends_with("d/dir")));
    for name in ["link", "linked-dir", "fifo"] {
        assert!(matches!(entry(name), Ok(Entry::Other)), "{name}");
    }
    assert_eq!(entry("open").unwrap_err().cause(), &Distrust::Writable(0o777));
    assert!(entry("none").unwrap_err().is_missing());
    let dev = Trust::below(Path::new("/dev"), 0).dir(Path::new("/dev")).unwrap();
    let here = dev.entry(Path::new("null"));
    assert!(matches!(here, Ok(Entry::CharDevice)));
}
