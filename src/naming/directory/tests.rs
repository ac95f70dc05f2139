mod toolkit;

use std::os::unix::fs::symlink;

use super::*;
use crate::testing::Random;
use crate::testing::Scratch;

const UUID: &str = "edfee158-11c1-52b8-0517-92f30e7fac88";

/// Reads `/run/list` and returns how its devices are displayed.
fn read_list(scratch: &Scratch) -> Result<Vec<String>, DeviceError> {
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    let list = read(&tree, Path::new("/run/list"))?;
    Ok(list.iter().map(ToString::to_string).collect())
}

fn assert_refused(result: Result<Vec<String>, DeviceError>, why: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

/// Reads a list of files with these names.
fn read_list_of(names: &[&str]) -> Result<Vec<String>, DeviceError> {
    let scratch = Scratch::new();
    scratch.dir("run/list");
    for name in names {
        scratch.file(&format!("run/list/{name}"), "");
    }
    read_list(&scratch)
}

#[test]
fn every_form_of_an_entry_names_its_device() {
    let names = [
        format!("GPU-{UUID}"),
        format!("MIG-{UUID}"),
        format!("MIG-GPU-{UUID}/2/0"),
        format!("MIG-GPU-{UUID}/9/0"),
        "all".to_owned(),
        "cdi/nvidia.com/gpu/0".to_owned(),
        "cdi/nvidia.com/gpu=1:0".to_owned(),
        "cdi/vendor.com/net/eth0".to_owned(),
        "imex/0".to_owned(),
        "imex/12".to_owned(),
    ];
    let devices = read_list_of(&names.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    let expected = [
        &names[0],
        &names[2],
        &names[3],
        &names[1],
        "all GPUs",
        "nvidia.com/gpu=0",
        "nvidia.com/gpu=1:0",
        "vendor.com/net=eth0",
        "imex/0",
        "imex/12",
    ];
    assert_eq!(devices, expected);
}

#[test]
fn example_of_the_design_document_is_accepted() {
    let names = [
        "GPU-edfee158-11c1-52b8-0517-92f30e7fac88",
        "GPU-f22fb098-d1b3-3806-2655-ba25f02229c1",
        "GPU-f613f823-1032-b3ec-a876-50f2e35e6f9e",
        "MIG-GPU-82a956cb-4353-571f-83bf-4b9e76bf44d2/2/0",
        "MIG-GPU-82a956cb-4353-571f-83bf-4b9e76bf44d2/3/0",
        "MIG-GPU-82a956cb-4353-571f-83bf-4b9e76bf44d2/9/0",
    ];
    assert_eq!(read_list_of(&names).unwrap(), names);
}

#[test]
fn empty_directory_or_none_alone_lists_no_device() {
    assert_eq!(read_list_of(&[]), Ok(vec![]));
    assert_eq!(read_list_of(&["none"]), Ok(vec![]));
    assert_eq!(read_list_of(&["void"]), Ok(vec![]));
    for names in [["none", "all"], ["void", "none"], ["void", "imex/1"]] {
        assert_refused(read_list_of(&names), "stands beside other entries");
    }
}

#[test]
fn unknown_entry_refuses_the_list_and_is_named() {
    let gpu = format!("GPU-{UUID}");
    let prefixed = |rest: &str| format!("MIG-GPU-{UUID}{rest}");
    for entry in [
        "0".to_owned(),
        ".hidden".to_owned(),
        format!(".GPU-{UUID}"),
        format!("{gpu}0"),
        format!("{gpu}/0/0"),
        "GPU-0".to_owned(),
        "0000:1b:00.0".to_owned(),
        "nvidia0".to_owned(),
        "ALL".to_owned(),
        "All GPUs".to_owned(),
        "all/x".to_owned(),
        "none/x".to_owned(),
        prefixed(""),
        prefixed("/0"),
        prefixed("/0/0/0"),
        prefixed("/15/0"),
        prefixed("/00/0"),
        prefixed("/0/8"),
        "MIG-GPU-x/0/0".to_owned(),
        "cdi".to_owned(),
        "cdi/nvidia.com".to_owned(),
        "cdi/nvidia.com/gpu".to_owned(),
        "cdi/nvidia.com/gpu/0/1".to_owned(),
        "cdi/nvidia.com/gpu=".to_owned(),
        "cdi/nvidia.com/gpu/a b".to_owned(),
        "cdi/nvidia.com/gpu/0=1".to_owned(),
        "cdi/nvidia.com/gpu/.hidden/x".to_owned(),
        "imex".to_owned(),
        "imex/01".to_owned(),
        "imex/all".to_owned(),
        "imex/+1".to_owned(),
        "imex/4294967296".to_owned(),
        "imex/0/0".to_owned(),
        "a\u{e4}\nb".to_owned(),
    ] {
        let entries = &["all", entry.as_str()][usize::from(entry.starts_with("all"))..];
        let Some(error) = read_list_of(entries).err() else {
            panic!("{entry:?} was accepted")
        };
        let first = entry.split('/').next().unwrap().replace('\n', "?");
        assert!(
            error.to_string().contains(&format!("/run/list/{first}")),
            "{entry:?}: {error}"
        );
        assert!(!error.to_string().contains('\n'));
    }
}

#[test]
fn hidden_entry_refuses_the_list_at_any_depth() {
    let mig = [
        format!("MIG-GPU-{UUID}/0/0"),
        format!("MIG-GPU-{UUID}/.0/0"),
    ];
    for [good, hidden] in [
        ["imex/0", "imex/.1"],
        ["cdi/a.b/c/0", "cdi/a.b/c/.1"],
        ["cdi/a.b/c/0", "cdi/a.b/.c=1"],
        ["cdi/a.b/c/0", "cdi/.a/c/0"],
        [&mig[0], &mig[1]],
    ] {
        let error = read_list_of(&[good, hidden]).unwrap_err();
        assert_eq!(read_list_of(&[good]).unwrap().len(), 1);
        assert!(error.to_string().contains("/."), "{hidden}");
    }
}

#[test]
fn name_that_is_no_utf_8_refuses_the_list() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::new();
    let name = std::ffi::OsStr::from_bytes(b"GPU-\xff");
    std::fs::write(scratch.dir("run/list").join(name), "").unwrap();
    assert!(read_list(&scratch).is_err());
}

#[test]
fn links_pipes_and_directories_refuse_the_list() {
    let scratch = Scratch::new();
    let dir = scratch.dir("run/list");
    scratch.file("run/real", "");
    symlink("../real", dir.join("all")).unwrap();
    assert_refused(
        read_list(&scratch),
        "/run/list/all: neither a file nor /dev/null",
    );
    std::fs::remove_file(dir.join("all")).unwrap();
    nix::unistd::mkfifo(&dir.join("none"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert!(read_list(&scratch).is_err());
    std::fs::remove_file(dir.join("none")).unwrap();
    symlink("..", dir.join("cdi")).unwrap();
    assert!(read_list(&scratch).is_err());
    std::fs::remove_file(dir.join("cdi")).unwrap();
    let gpu = scratch.dir(&format!("run/list/GPU-{UUID}"));
    assert_refused(
        read_list(&scratch),
        &format!("{}: names no device", gpu.display()),
    );
}

#[test]
fn empty_subdirectory_refuses_the_list() {
    let mig = format!("MIG-GPU-{UUID}");
    for name in ["cdi", "cdi/a", "cdi/a/b", "imex", &mig, &format!("{mig}/0")] {
        let scratch = Scratch::new();
        let dir = scratch.dir(&format!("run/list/{name}"));
        assert_refused(read_list(&scratch), &format!("{}: empty", dir.display()));
    }
}

#[test]
fn missing_or_writable_directory_is_refused() {
    let scratch = Scratch::new();
    scratch.dir("run");
    assert_refused(read_list(&scratch), "No such file or directory");
    scratch.file("run/list/imex/0", "");
    assert_eq!(read_list(&scratch), Ok(vec!["imex/0".to_owned()]));
    for dir in ["run", "run/list", "run/list/imex"] {
        scratch.mode(dir, 0o777);
        assert_refused(read_list(&scratch), "mode 0777");
        scratch.mode(dir, 0o755);
    }
    // Only the name of a file counts: anyone may write a mounted /dev/null.
    scratch.file("run/list/imex/0", "GPU-x");
    scratch.mode("run/list/imex/0", 0o666);
    assert_eq!(read_list(&scratch), Ok(vec!["imex/0".to_owned()]));
    scratch.mode("run/list/imex/0", 0o000);
    assert_eq!(read_list(&scratch), Ok(vec!["imex/0".to_owned()]));
}

/// A random file of the list, and how its device is displayed.
fn random_entry(random: &mut Random) -> (String, String) {
    let uuid = format!(
        "{:08x}-0000-4000-8000-{:012x}",
        random.index(4),
        random.index(4)
    );
    let number = random.index(12);
    let same = |text: String| (text.clone(), text);
    match random.index(7) {
        0 => same(format!("GPU-{uuid}")),
        1 => same(format!("MIG-{uuid}")),
        2 => same(format!("MIG-GPU-{uuid}/{number}/{}", random.index(8))),
        3 => (
            format!("cdi/a.b/c{}/{number}", random.index(3)),
            String::new(),
        ),
        4 => (
            format!("cdi/a.b/c{}={number}", random.index(3)),
            String::new(),
        ),
        5 => same(format!("imex/{number}")),
        _ => ("all".to_owned(), "all GPUs".to_owned()),
    }
}

#[test]
fn list_contains_every_entry_in_any_order() {
    let mut random = Random::new(0x2545_f491_4f6c_dd1d);
    for _ in 0..20 {
        let scratch = Scratch::new();
        scratch.dir("run/list");
        let mut expected = std::collections::BTreeSet::new();
        for _ in 0..random.index(12) {
            let (file, mut displayed) = random_entry(&mut random);
            if let Some((class, name)) = file
                .strip_prefix("cdi/")
                .and_then(|it| it.rsplit_once(['/', '=']))
            {
                displayed = format!("{class}={name}");
            }
            scratch.file(&format!("run/list/{file}"), "");
            expected.insert(displayed);
            let devices = read_list(&scratch).unwrap();
            assert_eq!(
                devices
                    .into_iter()
                    .collect::<std::collections::BTreeSet<_>>(),
                expected
            );
        }
    }
}

#[test]
fn relative_path_and_dots_are_refused() {
    let scratch = Scratch::new();
    scratch.dir("run/list");
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    for path in ["run/list", "", ".", "/run/../run/list"] {
        assert!(read(&tree, Path::new(path)).is_err(), "{path:?}");
    }
    assert_eq!(read(&tree, Path::new("/run/list/")), Ok(vec![]));
}

#[test]
fn more_than_1024_entries_are_refused() {
    let scratch = Scratch::new();
    for channel in 0..1024 {
        scratch.file(&format!("run/list/imex/{channel}"), "");
    }
    assert_eq!(read_list(&scratch).unwrap().len(), 1024);
    scratch.file("run/list/all", "");
    assert_refused(read_list(&scratch), "more than 1024 entries");
    scratch.file("run/list/imex/1024", "");
    assert_refused(read_list(&scratch), "more than 1024");
}
