use std::os::unix::fs::symlink;

use super::*;
use crate::testing::Scratch;

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
