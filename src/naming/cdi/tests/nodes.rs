//! Resolution of the nodes in a specification.

use super::super::*;
use crate::cdi::tests::at;
use crate::testing::Scratch;

/// Lays out a node where `/dev/a` is `c 240:5` and `/dev/b` is `b 7:1`.
fn machine() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("dev/a", "c 240:5");
    scratch.file("dev/b", "b 7:1");
    std::os::unix::fs::symlink("a", scratch.path().join("dev/link")).unwrap();
    let drivers =
        "Character devices:\n  1 mem\n240 toy\n510 nvidia-uvm\n\nBlock devices:\n7 loop\n";
    scratch.file("proc/devices", drivers);
    scratch
}

fn found(scratch: &Scratch, edit: &NodeEdit) -> Result<ResolvedDevices, String> {
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    resolve_node_edit(&tree, edit).map_err(|error| error.to_string())
}

/// The device that an edit resolves to on that node.
fn resolve(edit: &NodeEdit) -> Result<Option<String>, String> {
    let found = found(&machine(), edit)?;
    assert_eq!(found.warnings, [""; 0]);
    assert!(found.devices.len() <= 1);
    Ok(found
        .devices
        .first()
        .map(|device| format!("{} {}", device.node, device.rule)))
}

fn some(text: &str) -> Result<Option<String>, String> {
    Ok(Some(text.to_owned()))
}

#[test]
fn missing_numbers_come_from_the_node() {
    assert_eq!(resolve(&at("/dev/a")), some("/dev/a c:240:5:rw"));
    assert_eq!(resolve(&at("/dev/b")), some("/dev/b b:7:1:rw"));
}

/// Nobody opens the device then, and the file looks as if somebody could.
#[test]
fn permission_to_make_nodes_alone_is_a_warning() {
    for (access, warnings) in [
        (Access::MKNOD, 1),
        (Access::NONE, 0),
        (Access::READ.union(Access::MKNOD), 0),
    ] {
        let edit = NodeEdit {
            access: Some(access),
            ..at("/dev/a")
        };
        let found = found(&machine(), &edit).unwrap();
        assert_eq!(found.warnings.len(), warnings, "{found:?}");
        let is_granted = access.union(Access::MKNOD) != Access::MKNOD;
        assert_eq!(found.devices.len(), usize::from(is_granted), "{found:?}");
    }
}

#[test]
fn host_path_overrides_the_path() {
    let edit = NodeEdit {
        host_path: Some("/dev/b".into()),
        ..at("/dev/a")
    };
    assert_eq!(resolve(&edit), some("/dev/b b:7:1:rw"));
}

#[test]
fn numbers_that_agree_with_the_node_are_accepted() {
    let full = NodeEdit {
        kind: Some(NodeKind::Char),
        major: Some(240),
        minor: Some(5),
        ..at("/dev/a")
    };
    assert_eq!(resolve(&full), some("/dev/a c:240:5:rw"));
    let major = NodeEdit {
        major: Some(240),
        ..at("/dev/a")
    };
    assert_eq!(resolve(&major), some("/dev/a c:240:5:rw"));
}

#[test]
fn stale_specification_is_refused() {
    let stale = |edit: NodeEdit, is: &str, specified: &str| {
        let path = edit.path.clone();
        let end = "the specification is stale; generate it anew";
        assert_eq!(
            resolve(&edit),
            Err(format!("{path} is {is} and not {specified}: {end}"))
        );
    };
    let a = "c 240:5";
    stale(
        NodeEdit {
            major: Some(241),
            ..at("/dev/a")
        },
        a,
        "major 241",
    );
    stale(
        NodeEdit {
            major: Some(0),
            ..at("/dev/a")
        },
        a,
        "major 0",
    );
    stale(
        NodeEdit {
            minor: Some(0),
            ..at("/dev/a")
        },
        a,
        "minor 0",
    );
    stale(
        NodeEdit {
            kind: Some(NodeKind::Block),
            ..at("/dev/a")
        },
        a,
        "type b",
    );
    stale(
        NodeEdit {
            kind: Some(NodeKind::Char),
            ..at("/dev/b")
        },
        "b 7:1",
        "type c",
    );
    let full = NodeEdit {
        kind: Some(NodeKind::Char),
        major: Some(240),
        minor: Some(6),
        ..at("/dev/a")
    };
    stale(full, a, "type c, major 240, minor 6");
}

#[test]
fn access_is_granted_without_mknod() {
    let granted = |text: &str| NodeEdit {
        access: Some(text.parse().unwrap()),
        ..at("/dev/a")
    };
    for (text, access) in [
        ("r", "r"),
        ("w", "w"),
        ("rm", "r"),
        ("wrm", "rw"),
        ("rw", "rw"),
    ] {
        assert_eq!(
            resolve(&granted(text)),
            some(&format!("/dev/a c:240:5:{access}")),
            "{text}"
        );
    }
    assert_eq!(
        resolve(&NodeEdit {
            access: Some(Access::NONE),
            ..at("/dev/a")
        }),
        Ok(None)
    );
}

#[test]
fn fifo_gives_no_device() {
    assert_eq!(
        resolve(&NodeEdit {
            kind: Some(NodeKind::Fifo),
            ..at("/dev/none")
        }),
        Ok(None)
    );
    assert_eq!(
        resolve(&NodeEdit {
            kind: Some(NodeKind::Fifo),
            ..at("/dev/a")
        }),
        Ok(None)
    );
}

#[test]
fn missing_node_is_not_derived_from_the_numbers() {
    let numbered = NodeEdit {
        kind: Some(NodeKind::Char),
        major: Some(240),
        minor: Some(5),
        ..at("/dev/none")
    };
    assert_eq!(
        resolve(&numbered),
        Err("/dev/none: No such file or directory".into())
    );
}

#[test]
fn links_and_other_files_are_refused() {
    let link = "there is a symbolic link or .. in the path";
    for path in ["/dev/link", "/dev/../dev/a"] {
        assert_eq!(resolve(&at(path)), Err(format!("{path}: {link}")));
    }
    assert_eq!(resolve(&at("/dev")), Err("/dev: not a device".into()));
}

#[test]
fn late_node_has_the_numbers_of_its_driver() {
    let uvm = |major| {
        found(
            &machine(),
            &NodeEdit {
                major,
                ..at("/dev/nvidia-uvm")
            },
        )
    };
    for major in [None, Some(510)] {
        let found = uvm(major).unwrap();
        let rules: Vec<_> = found
            .devices
            .iter()
            .map(|device| device.rule.to_string())
            .collect();
        assert_eq!(rules, ["c:510:0:rw"]);
        assert_eq!(
            found.warnings,
            [nvidia::future_node_warning("/dev/nvidia-uvm")]
        );
    }
    let stale = uvm(Some(509)).unwrap_err();
    assert!(
        stale.starts_with("/dev/nvidia-uvm is c 510:0 and not major 509"),
        "{stale}"
    );
    let path = "/run/nvidia/driver/dev/nvidia-uvm";
    let elsewhere = NodeEdit {
        host_path: Some(path.into()),
        ..at("/dev/nvidia-uvm")
    };
    let absent = Err(format!("{path}: No such file or directory"));
    assert_eq!(found(&machine(), &elsewhere), absent);
}

#[test]
fn other_file_in_the_place_of_a_late_node_is_refused() {
    let scratch = machine();
    std::os::unix::fs::symlink("a", scratch.path().join("dev/nvidia-uvm")).unwrap();
    scratch.file("dev/nvidia-uvm-tools", "no device");
    for path in ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"] {
        assert!(found(&scratch, &at(path)).is_err(), "{path}");
    }
}

#[test]
fn node_of_another_driver_is_refused() {
    let scratch = machine();
    scratch.file("dev/nvidia0", "c 240:0");
    scratch.file("dev/mem", "c 1:1");
    scratch.file("dev/lost", "c 241:0");
    for path in ["/dev/nvidia0", "/dev/mem", "/dev/lost"] {
        let refused = found(&scratch, &at(path)).unwrap_err();
        assert!(refused.starts_with(&format!("{path} is c ")), "{refused}");
    }
}
