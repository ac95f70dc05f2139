use super::*;
use crate::device::cdi::tests::at;
use crate::trust::tests::Scratch;

/// What an edit stands for where `/dev/a` is `c 240:5` and `/dev/b` is `b 7:1`.
fn resolve(edit: &NodeEdit) -> Result<Option<String>, String> {
    let scratch = Scratch::new();
    scratch.file("dev/a", "c 240:5");
    scratch.file("dev/b", "b 7:1");
    scratch.file("proc/devices", "Character devices:\n240 toy\n\nBlock devices:\n7 loop\n");
    std::os::unix::fs::symlink("a", scratch.path().join("dev/link")).unwrap();
    let tree = Tree::laid_out(scratch.path(), scratch.trust());
    match device(&tree, edit) {
        Ok(device) => Ok(device.map(|device| format!("{} {}", device.node, device.rule))),
        Err(error) => Err(error.to_string()),
    }
}

fn some(text: &str) -> Result<Option<String>, String> {
    Ok(Some(text.to_owned()))
}

#[test]
fn what_is_not_said_the_node_tells() {
    assert_eq!(resolve(&at("/dev/a")), some("/dev/a c:240:5:rw"));
    assert_eq!(resolve(&at("/dev/b")), some("/dev/b b:7:1:rw"));
}

#[test]
fn the_path_on_the_host_is_the_one_that_counts() {
    let edit = NodeEdit { host_path: Some("/dev/b".into()), ..at("/dev/a") };
    assert_eq!(resolve(&edit), some("/dev/b b:7:1:rw"));
}

#[test]
fn numbers_that_agree_with_the_node_change_nothing() {
    let full =
        NodeEdit { kind: Some(NodeKind::Char), major: Some(240), minor: Some(5), ..at("/dev/a") };
    assert_eq!(resolve(&full), some("/dev/a c:240:5:rw"));
    let major = NodeEdit { major: Some(240), ..at("/dev/a") };
    assert_eq!(resolve(&major), some("/dev/a c:240:5:rw"));
}

#[test]
fn a_stale_specification_is_never_believed() {
    let end = "the specification is stale: generate it anew";
    let stale = |edit: NodeEdit, said: &str| {
        let expected = format!("it is character device 240:5, not {said}; {end}");
        assert_eq!(resolve(&edit), Err(expected));
    };
    stale(NodeEdit { major: Some(241), ..at("/dev/a") }, "major 241");
    stale(NodeEdit { major: Some(0), ..at("/dev/a") }, "major 0");
    stale(NodeEdit { minor: Some(0), ..at("/dev/a") }, "minor 0");
    stale(NodeEdit { kind: Some(NodeKind::Block), ..at("/dev/a") }, "block");
    let full =
        NodeEdit { kind: Some(NodeKind::Char), major: Some(240), minor: Some(6), ..at("/dev/a") };
    stale(full, "character, major 240, minor 6");
    let block = NodeEdit { kind: Some(NodeKind::Char), ..at("/dev/b") };
    assert_eq!(resolve(&block), Err(format!("it is block device 7:1, not character; {end}")));
}

#[test]
fn access_is_what_is_granted_without_making_nodes() {
    let granted = |text: &str| NodeEdit { access: Some(text.parse().unwrap()), ..at("/dev/a") };
    for (text, access) in [("r", "r"), ("w", "w"), ("rm", "r"), ("wrm", "rw"), ("rw", "rw")] {
        assert_eq!(resolve(&granted(text)), some(&format!("/dev/a c:240:5:{access}")), "{text}");
    }
    assert_eq!(resolve(&granted("m")), Ok(None));
    assert_eq!(resolve(&NodeEdit { access: Some(Access::NONE), ..at("/dev/a") }), Ok(None));
}

#[test]
fn a_fifo_is_nothing_to_allow() {
    assert_eq!(resolve(&NodeEdit { kind: Some(NodeKind::Fifo), ..at("/dev/none") }), Ok(None));
    assert_eq!(resolve(&NodeEdit { kind: Some(NodeKind::Fifo), ..at("/dev/a") }), Ok(None));
}

#[test]
fn a_node_that_is_not_there_is_not_made_up_from_the_numbers() {
    let numbered = NodeEdit {
        kind: Some(NodeKind::Char),
        major: Some(240),
        minor: Some(5),
        ..at("/dev/none")
    };
    assert_eq!(resolve(&numbered), Err("No such file or directory".into()));
}

#[test]
fn links_and_other_files_are_no_nodes() {
    let link = "there is a symbolic link or .. in the path";
    assert_eq!(resolve(&at("/dev/link")), Err(link.into()));
    assert_eq!(resolve(&at("/dev/../dev/a")), Err(link.into()));
    assert_eq!(resolve(&at("/dev")), Err("not a device".into()));
}
