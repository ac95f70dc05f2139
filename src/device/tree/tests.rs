use std::os::unix::fs::symlink;

use super::*;
use crate::trust::tests::Scratch;

fn tree(scratch: &Scratch) -> Tree {
    Tree::laid_out(scratch.path(), scratch.trust())
}

fn char_device(major: u32, minor: u32) -> Node {
    Node { kind: DeviceType::Char, major, minor }
}

#[test]
fn this_node_has_null() {
    let null = Ok(char_device(1, 3));
    assert_eq!(Tree::here().node("/dev/null"), null);
    assert_eq!(Tree::here().node_behind_links("/dev/null"), null);
    assert_eq!(Tree::here().node("/etc/passwd"), Err(NodeError::NoDevice));
    assert_eq!(Tree::here().node("/dev"), Err(NodeError::NoDevice));
}

#[test]
fn on_a_node_that_is_not_laid_out_no_file_stands_for_a_device() {
    for path in ["/etc/hostname", "/etc/passwd"] {
        assert_eq!(Tree::here().node(path), Err(NodeError::NoDevice));
        assert_eq!(Tree::here().node_behind_links(path), Err(NodeError::NoDevice));
    }
    let scratch = Scratch::new();
    let path = scratch.file("nvidia0", "c 195:0");
    assert!(Tree::here().node(path.to_str().unwrap()).is_err());
    assert!(Tree::here().node_behind_links(path.to_str().unwrap()).is_err());
}

#[test]
fn a_file_stands_for_a_node_where_a_node_is_laid_out() {
    let scratch = Scratch::new();
    scratch.file("dev/nvidia0", "c 195:0\n");
    scratch.file("dev/loop1", "b 7:1");
    let (char, block) = (tree(&scratch).node("/dev/nvidia0"), tree(&scratch).node("/dev/loop1"));
    assert_eq!(char, Ok(char_device(195, 0)));
    assert_eq!(block, Ok(Node { kind: DeviceType::Block, major: 7, minor: 1 }));
    for text in ["", "c", "c 1", "x 1:2", "c 1:-1", "c 1:2:3", "c  1:2"] {
        scratch.file("dev/odd", text);
        assert_eq!(tree(&scratch).node("/dev/odd"), Err(NodeError::NoDevice), "{text:?}");
    }
}

#[test]
fn links_are_followed_only_where_that_is_asked_for_and_never_out() {
    let scratch = Scratch::new();
    scratch.file("dev/real", "c 1:3");
    symlink("/dev/real", scratch.path().join("dev/link")).unwrap();
    symlink("dev", scratch.path().join("devices")).unwrap();
    symlink("/../../../../../../../etc/passwd", scratch.path().join("dev/out")).unwrap();
    let tree = tree(&scratch);
    assert_eq!(tree.node_behind_links("/dev/link"), Ok(char_device(1, 3)));
    assert_eq!(tree.node("/dev/link"), Err(NodeError::Link));
    assert_eq!(tree.node("/devices/real"), Err(NodeError::Link));
    assert_eq!(tree.node("/dev/../dev/real"), Err(NodeError::Link));
    assert_eq!(tree.node_behind_links("/dev/out"), Err(NodeError::Open(Errno::ENOENT)));
}

#[test]
fn what_anyone_could_have_put_there_is_no_node() {
    let scratch = Scratch::new();
    scratch.file("dev/shm/node", "c 195:0");
    scratch.file("dev/shm/dir/node", "c 195:0");
    scratch.mode("dev/shm", 0o1777);
    for path in ["/dev/shm/node", "/dev/shm/dir/node", "/dev/./shm//node"] {
        assert_eq!(tree(&scratch).node(path), Err(NodeError::Everyones), "{path}");
    }
    assert_eq!(tree(&scratch).node("/dev/shm"), Err(NodeError::NoDevice));
}

#[test]
fn files_are_bounded_and_names_sorted() {
    let scratch = Scratch::new();
    let long = "x".repeat(usize::try_from(FILE_MAX).unwrap() + 1);
    scratch.file("proc/long", &long);
    let error = tree(&scratch).text("/proc/long").unwrap_err();
    assert_eq!(error.to_string(), format!("read /proc/long: {}", Errno::EFBIG.desc()));
    assert!(tree(&scratch).text("/proc/none").unwrap_err().is_missing());
    scratch.file("sys/b", "");
    scratch.file("sys/a", "");
    assert_eq!(tree(&scratch).names("/sys").unwrap(), ["a", "b"]);
    assert!(tree(&scratch).names_within("/sys", 2).is_ok());
    let error = tree(&scratch).names_within("/sys", 1).unwrap_err();
    assert_eq!(error.to_string(), format!("list /sys: {}", Errno::EFBIG.desc()));
}

/// One resolution asks for a file again and again, as for the drivers, and has to see one state.
#[test]
fn a_file_is_read_once() {
    let scratch = Scratch::new();
    scratch.file("proc/a", "before");
    let tree = tree(&scratch);
    assert!(tree.text("/proc/b").unwrap_err().is_missing());
    assert_eq!(tree.text("/proc/a").unwrap(), "before");
    scratch.file("proc/a", "after");
    scratch.file("proc/b", "after");
    assert_eq!(tree.text("/proc/a").unwrap(), "before");
    assert!(tree.text("/proc/b").unwrap_err().is_missing());
}
