use std::os::unix::fs::symlink;

use super::*;
use crate::testing::Scratch;

fn cause(result: Result<Vec<u8>, TrustError>) -> Distrust {
    result.unwrap_err().cause().clone()
}

#[test]
fn file_of_owner_is_read() {
    let scratch = Scratch::new();
    let path = scratch.file("a/b/conf", "text");
    assert_eq!(scratch.trust().read(&path, 4), Ok(b"text".to_vec()));
}

#[test]
fn file_writable_by_others_is_refused() {
    let scratch = Scratch::new();
    let path = scratch.file("a/b/conf", "text");
    for mode in [0o664, 0o646, 0o620] {
        scratch.mode("a/b/conf", mode);
        assert_eq!(
            cause(scratch.trust().read(&path, 9)),
            Distrust::Writable(mode)
        );
    }
    scratch.mode("a/b/conf", 0o644);
    scratch.mode("a", 0o1777);
    let error = scratch.trust().read(&path, 9).unwrap_err();
    assert_eq!(error.cause(), &Distrust::Writable(0o1777));
    assert_eq!(error.path(), scratch.path().join("a"));
}

#[test]
fn file_of_other_account_is_refused() {
    let scratch = Scratch::new();
    let path = scratch.file("conf", "text");
    let own_uid = nix::unistd::Uid::effective().as_raw();
    let trust = Trust::below(scratch.path(), own_uid + 1);
    assert_eq!(cause(trust.read(&path, 9)), Distrust::WrongOwner(own_uid));
}

#[test]
fn link_pipe_and_large_file_are_refused() {
    let scratch = Scratch::new();
    let path = scratch.file("conf", "text");
    let trust = scratch.trust();
    assert_eq!(cause(trust.read(&path, 3)), Distrust::TooLarge(3));

    symlink("conf", scratch.path().join("link")).unwrap();
    let result = trust.read(&scratch.path().join("link"), 9);
    assert_eq!(cause(result), Distrust::Open(nix::errno::Errno::ELOOP));

    scratch.file("real/conf", "text");
    symlink("real", scratch.path().join("dir")).unwrap();
    let other_result = trust.read(&scratch.path().join("dir/conf"), 9);
    assert_eq!(
        cause(other_result),
        Distrust::Open(nix::errno::Errno::ENOTDIR)
    );

    std::fs::hard_link(&path, scratch.path().join("second")).unwrap();
    assert_eq!(cause(trust.read(&path, 9)), Distrust::SeveralNames(2));

    let fifo = scratch.path().join("fifo");
    nix::unistd::mkfifo(&fifo, Mode::from_bits_truncate(0o644)).unwrap();
    assert_eq!(cause(trust.read(&fifo, 9)), Distrust::NotRegular);
    assert_eq!(
        cause(trust.read(&scratch.dir("sub"), 9)),
        Distrust::NotRegular
    );
}

#[test]
fn path_outside_anchor_is_refused() {
    let scratch = Scratch::new();
    scratch.file("a/conf", "text");
    let trust = scratch.trust();
    for path in ["a/../a/conf", "../conf"] {
        assert_eq!(
            cause(trust.read(&scratch.path().join(path), 9)),
            Distrust::OutsideAnchor
        );
    }
    assert_eq!(
        cause(trust.read(Path::new("conf"), 9)),
        Distrust::OutsideAnchor
    );
    assert!(
        trust
            .read(&scratch.path().join("none"), 9)
            .unwrap_err()
            .is_missing()
    );
}

#[test]
fn directory_that_cannot_be_made_is_reported_with_the_cause() {
    // No file system of the kernel lets anybody make a directory here.
    let anchor = Path::new("/sys/kernel");
    let path = anchor.join("job-adopt");
    let error = Trust::below(anchor, 0).make_dir(&path).unwrap_err();
    assert_eq!(error.path(), path);
    assert!(
        matches!(
            error.cause(),
            Distrust::Cannot {
                operation: "mkdir",
                ..
            }
        ),
        "{error}"
    );
}
