use std::os::unix::fs::symlink;

use super::*;
use crate::testing::Random;
use crate::testing::Scratch;

const UUID: &str = "edfee158-11c1-52b8-0517-92f30e7fac88";

fn listed(scratch: &Scratch) -> Result<Vec<String>, DeviceError> {
    let tree = Tree::laid_out(scratch.path(), scratch.trust());
    let list = read(&tree, Path::new("/run/list"))?;
    Ok(list.iter().map(ToString::to_string).collect())
}

fn refused(result: Result<Vec<String>, DeviceError>, why: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

fn list(names: &[&str]) -> Result<Vec<String>, DeviceError> {
    let scratch = Scratch::new();
    scratch.dir("run/list");
    for name in names {
        scratch.file(&format!("run/list/{name}"), "");
    }
    listed(&scratch)
}

#[test]
fn every_form_of_an_entry_is_read() {
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
    let devices = list(&names.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    let expected = [
        &names[0], &names[2], &names[3], &names[1], "all GPUs", "nvidia.com/gpu=0",
        "nvidia.com/gpu=1:0", "vendor.com/net=eth0", "imex/0", "imex/12",
    ];
    assert_eq!(devices, expected);
}

#[test]
fn the_list_of_the_design_document_is_read() {
    let names = [
        "GPU-edfee158-11c1-52b8-0517-92f30e7fac88",
        "GPU-f22fb098-d1b3-3806-2655-ba25f02229c1",
        "GPU-f613f823-1032-b3ec-a876-50f2e35e6f9e",
        "MIG-GPU-82a956cb-4353-571f-83bf-4b9e76bf44d2/2/0",
        "MIG-GPU-82a956cb-4353-571f-83bf-4b9e76bf44d2/3/0",
        "MIG-GPU-82a956cb-4353-571f-83bf-4b9e76bf44d2/9/0",
    ];
    assert_eq!(list(&names).unwrap(), names);
}

#[test]
fn an_empty_directory_or_none_alone_means_no_device() {
    assert_eq!(list(&[]), Ok(vec![]));
    assert_eq!(list(&["none"]), Ok(vec![]));
    assert_eq!(list(&["void"]), Ok(vec![]));
    for names in [["none", "all"], ["void", "none"], ["void", "imex/1"]] {
        refused(list(&names), "stands beside other entries");
    }
}

#[test]
fn one_unknown_entry_refuses_the_list_and_is_named() {
    let gpu = format!("GPU-{UUID}");
    let prefixed = |end: &str| format!("MIG-GPU-{UUID}{end}");
    for odd in [
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
        let error = list(&["all", odd.as_str()][usize::from(odd.starts_with("all"))..]).err();
        let Some(error) = error else { panic!("{odd:?} was taken") };
        let first = odd.split('/').next().unwrap().replace('\n', "?");
        assert!(error.to_string().contains(&format!("/run/list/{first}")), "{odd:?}: {error}");
        assert!(!error.to_string().contains('\n'));
    }
}

#[test]
fn a_hidden_entry_refuses_the_list_at_any_depth() {
    let mig = [format!("MIG-GPU-{UUID}/0/0"), format!("MIG-GPU-{UUID}/.0/0")];
    for [good, hidden] in [
        ["imex/0", "imex/.1"],
        ["cdi/a.b/c/0", "cdi/a.b/c/.1"],
        ["cdi/a.b/c/0", "cdi/a.b/.c=1"],
        ["cdi/a.b/c/0", "cdi/.a/c/0"],
        [&mig[0], &mig[1]],
    ] {
        let error = list(&[good, hidden]).err();
        assert_eq!(list(&[good]).unwrap().len(), 1);
        let name = |error: DeviceError| error.to_string().contains("/.");
        assert!(error.is_some_and(name), "{hidden}");
    }
}

#[test]
fn a_name_that_is_no_utf_8_refuses_the_list() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::new();
    let name = std::ffi::OsStr::from_bytes(b"GPU-\xff");
    std::fs::write(scratch.dir("run/list").join(name), "").unwrap();
    assert!(listed(&scratch).is_err());
}

#[test]
fn what_is_no_file_refuses_the_list() {
    let scratch = Scratch::new();
    let dir = scratch.dir("run/list");
    scratch.file("run/real", "");
    symlink("../real", dir.join("all")).unwrap();
    refused(listed(&scratch), "/run/list/all: neither a file nor a character device");
    std::fs::remove_file(dir.join("all")).unwrap();
    nix::unistd::mkfifo(&dir.join("none"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert!(listed(&scratch).is_err());
    std::fs::remove_file(dir.join("none")).unwrap();
    symlink("..", dir.join("cdi")).unwrap();
    assert!(listed(&scratch).is_err());
    std::fs::remove_file(dir.join("cdi")).unwrap();
    let gpu = scratch.dir(&format!("run/list/GPU-{UUID}"));
    refused(listed(&scratch), &format!("{}: names no device", gpu.display()));
}

#[test]
fn an_empty_directory_in_it_refuses_the_list() {
    let mig = format!("MIG-GPU-{UUID}");
    for name in ["cdi", "cdi/a", "cdi/a/b", "imex", &mig, &format!("{mig}/0")] {
        let scratch = Scratch::new();
        let dir = scratch.dir(&format!("run/list/{name}"));
        refused(listed(&scratch), &format!("{}: empty", dir.display()));
    }
}

#[test]
fn what_others_can_write_or_is_missing_lists_nothing() {
    let scratch = Scratch::new();
    scratch.dir("run");
    refused(listed(&scratch), "No such file or directory");
    scratch.file("run/list/imex/0", "");
    assert_eq!(listed(&scratch), Ok(vec!["imex/0".to_owned()]));
    for dir in ["run", "run/list", "run/list/imex"] {
        scratch.mode(dir, 0o777);
        refused(listed(&scratch), "mode 0777");
        scratch.mode(dir, 0o755);
    }
    // Of a file only the name counts: a mounted /dev/null may be written by anyone.
    scratch.file("run/list/imex/0", "GPU-x");
    scratch.mode("run/list/imex/0", 0o666);
    assert_eq!(listed(&scratch), Ok(vec!["imex/0".to_owned()]));
    scratch.mode("run/list/imex/0", 0o000);
    assert_eq!(listed(&scratch), Ok(vec!["imex/0".to_owned()]));
}

/// A file of the list, and how the device that it names is shown.
fn random_entry(random: &mut Random) -> (String, String) {
    let uuid = format!("{:08x}-0000-4000-8000-{:012x}", random.index(4), random.index(4));
    let number = random.index(12);
    let same = |text: String| (text.clone(), text);
    match random.index(7) {
        0 => same(format!("GPU-{uuid}")),
        1 => same(format!("MIG-{uuid}")),
        2 => same(format!("MIG-GPU-{uuid}/{number}/{}", random.index(8))),
        3 => (format!("cdi/a.b/c{}/{number}", random.index(3)), String::new()),
        4 => (format!("cdi/a.b/c{}={number}", random.index(3)), String::new()),
        5 => same(format!("imex/{number}")),
        _ => ("all".to_owned(), "all GPUs".to_owned()),
    }
}

#[test]
fn the_list_is_what_was_put_into_it_in_any_order_and_one_more_removes_none() {
    let mut random = Random::new(0x2545_f491_4f6c_dd1d);
    for _ in 0..20 {
        let scratch = Scratch::new();
        scratch.dir("run/list");
        let mut expected = std::collections::BTreeSet::new();
        for _ in 0..random.index(12) {
            let (file, mut shown) = random_entry(&mut random);
            if let Some((class, name)) =
                file.strip_prefix("cdi/").and_then(|it| it.rsplit_once(['/', '=']))
            {
                shown = format!("{class}={name}");
            }
            scratch.file(&format!("run/list/{file}"), "");
            expected.insert(shown);
            let devices = listed(&scratch).unwrap();
            assert_eq!(devices.into_iter().collect::<std::collections::BTreeSet<_>>(), expected);
        }
    }
}

#[test]
fn the_path_is_absolute_and_has_no_dots() {
    let scratch = Scratch::new();
    scratch.dir("run/list");
    let tree = Tree::laid_out(scratch.path(), scratch.trust());
    for path in ["run/list", "", ".", "/run/../run/list"] {
        assert!(read(&tree, Path::new(path)).is_err(), "{path:?}");
    }
    assert_eq!(read(&tree, Path::new("/run/list/")), Ok(vec![]));
}

#[test]
fn the_entries_are_bounded() {
    let scratch = Scratch::new();
    for channel in 0..1024 {
        scratch.file(&format!("run/list/imex/{channel}"), "");
    }
    assert_eq!(listed(&scratch).unwrap().len(), 1024);
    scratch.file("run/list/all", "");
    refused(listed(&scratch), "more than 1024 entries");
    scratch.file("run/list/imex/1024", "");
    refused(listed(&scratch), "more than 1024");
}
