mod files;
mod nodes;
mod reference;

use std::collections::BTreeSet;

use super::catalog::{SpecFile, UnusableSpec};
use super::*;
use crate::testing::Random;
use crate::testing::Scratch;

/// An edit with a path alone.
pub(super) fn at(path: &str) -> NodeEdit {
    NodeEdit {
        path: path.to_owned(),
        host_path: None,
        kind: None,
        major: None,
        minor: None,
        access: None,
    }
}

pub(super) fn nodes(paths: &[&str]) -> Edits {
    Edits {
        nodes: paths.iter().map(|path| at(path)).collect(),
        ..Edits::default()
    }
}

pub(super) fn device(name: &str, edits: Edits) -> SpecDevice {
    SpecDevice {
        name: name.to_owned(),
        edits,
    }
}

pub(super) fn file(path: &str, rank: usize, kind: &str, devices: &[SpecDevice]) -> SpecFile {
    with_edits(path, rank, kind, devices, Edits::default())
}

fn with_edits(
    path: &str,
    rank: usize,
    kind: &str,
    devices: &[SpecDevice],
    edits: Edits,
) -> SpecFile {
    let spec = Spec {
        kind: kind.to_owned(),
        edits,
        devices: devices.to_vec(),
        second_document: None,
    };
    SpecFile::from_result(path.into(), rank, Ok(spec))
}

fn names(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn paths(found: &ResolvedDevices) -> Vec<&str> {
    found
        .devices
        .iter()
        .map(|device| device.node.as_str())
        .collect()
}

/// Lays out eight GPUs in two files of one kind, with a control node in each file.
fn gpus() -> (Scratch, Tree, Catalog) {
    let scratch = Scratch::new();
    for number in 0..8 {
        scratch.file(&format!("dev/gpu{number}"), &format!("c 240:{number}"));
    }
    scratch.file("proc/devices", "Character devices:\n240 toy\n");
    scratch.file("dev/ctl0", "c 240:254");
    scratch.file("dev/ctl1", "c 240:255");
    let mut catalog = Catalog::default();
    for half in 0..2 {
        let range = half * 4..half * 4 + 4;
        let path = |number| format!("/dev/gpu{number}");
        let mut devices: Vec<_> = range
            .clone()
            .map(|number: usize| device(&number.to_string(), nodes(&[&path(number)])))
            .collect();
        let all = range.map(|number| at(&path(number))).collect();
        let all = Edits {
            nodes: all,
            ..Edits::default()
        };
        devices.push(device(&format!("all{half}"), all));
        let edits = nodes(&[&format!("/dev/ctl{half}")]);
        let file = with_edits(
            &format!("/etc/cdi/{half}.json"),
            0,
            "v.com/gpu",
            &devices,
            edits,
        );
        catalog.files.push(file);
    }
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    (scratch, tree, catalog)
}

#[test]
fn edits_for_all_devices_count_once_and_first() {
    let (_scratch, tree, catalog) = gpus();
    let found = |texts: &[&str]| resolve(&tree, &catalog, &names(texts)).unwrap();
    let both = found(&["v.com/gpu=3", "v.com/gpu=0"]);
    assert_eq!(paths(&both), ["/dev/ctl0", "/dev/gpu3", "/dev/gpu0"]);
    let mixed = found(&["v.com/gpu=4", "v.com/gpu=0", "v.com/gpu=5"]);
    let expected = [
        "/dev/ctl1",
        "/dev/gpu4",
        "/dev/ctl0",
        "/dev/gpu0",
        "/dev/gpu5",
    ];
    assert_eq!(paths(&mixed), expected);
    assert_eq!(
        paths(&found(&["v.com/gpu=0", "v.com/gpu=0"])),
        ["/dev/ctl0", "/dev/gpu0"]
    );
}

#[test]
fn invalid_name_refuses_all_names_and_is_reported() {
    let (_scratch, tree, catalog) = gpus();
    for bad in ["v.com/gpu=8", "w.com/gpu=0", "v.com/gpu", "/dev/gpu0"] {
        let error = resolve(&tree, &catalog, &names(&["v.com/gpu=0", bad])).unwrap_err();
        assert_eq!(error.name, bad);
        assert!(!error.why.to_string().contains(bad), "{error}");
    }
}

#[test]
fn all_is_no_special_name() {
    let (_scratch, tree, catalog) = gpus();
    for name in ["v.com/gpu=all", "v.com/gpu=*", "v.com/gpu=", "v.com/*=0"] {
        assert!(resolve(&tree, &catalog, &names(&[name])).is_err(), "{name}");
    }
    assert_eq!(
        resolve(&tree, &catalog, &[]),
        Ok(ResolvedDevices::default())
    );
}

/// Each node is compared with all before it, so that the nodes of a maximum file would take minutes.
#[test]
fn more_nodes_than_an_allowlist_needs_are_an_error() {
    let scratch = Scratch::new();
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    scratch.file("proc/devices", "Character devices:\n 10 misc\n");
    let nodes = |from: u32, to: u32| {
        let node = |number| {
            scratch.file(&format!("dev/d{number}"), &format!("c 10:{number}"));
            at(&format!("/dev/d{number}"))
        };
        Edits {
            nodes: (from..to).map(node).collect(),
            ..Edits::default()
        }
    };
    let too_many = Edits {
        nodes: vec![at("/dev/x"); 4097],
        ..Edits::default()
    };
    let devices = [
        device("most", nodes(0, 4096)),
        device("one", nodes(4096, 4097)),
        device("nodes", too_many),
    ];
    let mut catalog = Catalog::default();
    catalog
        .files
        .push(file("/etc/cdi/a.json", 0, "v.com/d", &devices));
    let fault = |texts: &[&str]| {
        resolve(&tree, &catalog, &names(texts))
            .err()
            .map(|error| error.why)
    };
    assert_eq!(fault(&["v.com/d=most"]), None);
    let other_too_many = Some(super::too_many());
    assert_eq!(fault(&["v.com/d=most", "v.com/d=one"]), other_too_many);
    assert_eq!(fault(&["v.com/d=nodes"]), other_too_many);
}

#[test]
fn unusable_file_that_does_not_matter_gives_a_warning() {
    let (_scratch, tree, mut catalog) = gpus();
    let fault = UnusableSpec {
        why: "the name is no UTF-8".to_owned(),
        kind: None,
        stem: None,
    };
    catalog.files.push(SpecFile::from_result(
        "/etc/cdi/bad.json".into(),
        0,
        Err(fault),
    ));
    let found = resolve(&tree, &catalog, &names(&["v.com/gpu=0", "v.com/gpu=1"])).unwrap();
    assert_eq!(found.warnings, ["/etc/cdi/bad.json: the name is no UTF-8"]);
}

#[test]
fn names_only_add_devices_in_any_order() {
    let (_scratch, tree, catalog) = gpus();
    let known: Vec<String> = (0..8)
        .map(|number| format!("v.com/gpu={number}"))
        .chain((0..2).map(|half| format!("v.com/gpu=all{half}")))
        .collect();
    let found = |names: &[String]| {
        let found = resolve(&tree, &catalog, names).unwrap();
        assert!(
            found
                .devices
                .iter()
                .all(|device| device.rule.minor().is_some()),
            "{names:?}"
        );
        let distinct: BTreeSet<_> = found.devices.iter().cloned().collect();
        assert_eq!(distinct.len(), found.devices.len(), "{names:?}");
        distinct
    };
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    for _ in 0..500 {
        let mut some: Vec<String> = (0..random.index(6))
            .map(|_| known[random.index(known.len())].clone())
            .collect();
        let before = found(&some);
        for at in (1..some.len()).rev() {
            some.swap(at, random.index(at + 1));
        }
        assert_eq!(found(&some), before, "{some:?}");
        some.insert(
            random.index(some.len() + 1),
            known[random.index(known.len())].clone(),
        );
        assert!(found(&some).is_superset(&before), "{some:?}");
    }
}

#[test]
fn error_of_a_node_names_its_file() {
    let (scratch, tree, catalog) = gpus();
    std::fs::remove_file(scratch.path().join("dev/gpu1")).unwrap();
    let error = resolve(&tree, &catalog, &names(&["v.com/gpu=1"])).unwrap_err();
    let expected = "/etc/cdi/0.json: /dev/gpu1: No such file or directory";
    assert_eq!(error.why.to_string(), expected);
}
