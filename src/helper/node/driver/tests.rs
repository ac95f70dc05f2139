use super::*;
use crate::node::nvidia::tests::{DEVICES, Fixture};

fn node(text: &str) -> DeviceNode {
    let (kind, numbers) = text.split_once(' ').unwrap();
    let (major, minor) = numbers.split_once(':').unwrap();
    let kind = if kind == "b" {
        DeviceType::Block
    } else {
        DeviceType::Char
    };
    DeviceNode {
        kind,
        major: major.parse().unwrap(),
        minor: minor.parse().unwrap(),
    }
}

fn assert_refused(result: Result<(), DeviceError>, why: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

fn char_device(major: u32, minor: u32) -> DeviceNode {
    DeviceNode {
        kind: DeviceType::Char,
        major,
        minor,
    }
}

#[test]
fn node_of_the_promised_driver_passes() {
    let fixture = Fixture::new();
    let more = "162 raw\n231 infiniband_mad\n231 infiniband_verbs\n240 habanalabs\n261 accel\n\
                508 kfd\n509 gdrdrv\n";
    fixture.file(
        "proc/devices",
        &DEVICES.replace("226 drm\n", &format!("226 drm\n{more}")),
    );
    let tree = fixture.tree();
    for (path, numbers) in [
        ("/dev/nvidia0", "c 195:0"),
        ("/dev/nvidia247", "c 195:247"),
        ("/dev/nvidiactl", "c 195:255"),
        ("/dev/nvidia-modeset", "c 195:254"),
        ("/dev/nvidia-uvm", "c 510:0"),
        ("/run/nvidia/driver/dev/nvidia-uvm-tools", "c 510:1"),
        ("/dev/nvidia-caps-imex-channels/channel1", "c 237:1"),
        ("/dev/dri/card1", "c 226:1"),
        ("/dev/dri/renderD128", "c 226:128"),
        ("/dev/kfd", "c 508:0"),
        ("/dev/accel/accel3", "c 261:3"),
        ("/dev/accel/accel3", "c 240:6"),
        ("/dev/infiniband/uverbs0", "c 231:192"),
        ("/dev/gdrdrv", "c 509:0"),
        ("/dev/fuse", "c 10:229"),
        ("/dev/null", "c 1:3"),
        ("/dev/loop0", "b 7:0"),
        ("/dev/of-no-family", "c 10:77"),
    ] {
        assert_eq!(
            check_node(&tree, path, node(numbers)),
            Ok(()),
            "{path} {numbers}"
        );
    }
}

#[test]
fn node_of_another_driver_is_refused_with_both_names() {
    let fixture = Fixture::new();
    let tree = fixture.tree();
    let error = check_node(&tree, "/dev/nvidia-uvm", node("c 237:0"))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "/dev/nvidia-uvm is c 237:0, which is a device of nvidia-caps-imex-channels and not of \
         nvidia-uvm: made when an older driver was loaded"
    );
    for (path, numbers) in [
        ("/dev/nvidia0", "c 226:0"),
        ("/dev/nvidia-caps/nvidia-cap5", "c 237:5"),
        ("/dev/nvidia-caps-imex-channels/channel0", "c 195:0"),
        ("/dev/dri/renderD128", "c 195:128"),
        ("/dev/kfd", "c 10:0"),
        ("/dev/nvidia7", "b 7:7"),
        ("/dev/null", "c 10:3"),
    ] {
        assert_refused(check_node(&tree, path, node(numbers)), " and not of ");
    }
}

#[test]
fn major_without_a_driver_of_its_kind_is_refused() {
    let fixture = Fixture::new();
    for (path, numbers) in [
        ("/dev/nvidia-uvm", "c 509:0"),
        ("/dev/of-no-family", "c 250:0"),
        ("/dev/nvidia0", "b 195:0"),
        ("/dev/loop0", "c 7:0"),
    ] {
        assert_refused(
            check_node(&fixture.tree(), path, node(numbers)),
            "no driver has that major",
        );
    }
    fixture.file("proc/devices", "Block devices:\n195 nvidia\n");
    assert_refused(
        check_node(&fixture.tree(), "/dev/nvidia0", node("b 195:0")),
        " and not of ",
    );
    fixture.remove("proc/devices");
    assert_refused(
        check_node(&fixture.tree(), "/dev/nvidia0", node("b 195:0")),
        "read /proc/devices: ",
    );
}

#[test]
fn minor_other_than_the_promised_one_is_refused() {
    let fixture = Fixture::new();
    for (path, numbers, promised) in [
        ("/dev/nvidia0", "c 195:1", 0),
        ("/dev/nvidia0", "c 195:255", 0),
        ("/dev/nvidiactl", "c 195:0", 255),
        ("/dev/nvidia-uvm", "c 510:1", 0),
        ("/dev/dri/renderD128", "c 226:129", 128),
        ("/dev/dri/card0", "c 226:128", 0),
        ("/dev/nvidia-caps-imex-channels/channel0", "c 237:1", 0),
        ("/dev/zero", "c 1:3", 5),
    ] {
        let why = format!("{path} is {numbers}, but its minor must be {promised}");
        assert_refused(check_node(&fixture.tree(), path, node(numbers)), &why);
    }
}

#[test]
fn management_device_is_refused_under_any_path() {
    let fixture = Fixture::new();
    let text = DEVICES.replace("  1 mem\n", "  1 mem\n162 raw\n202 cpu/msr\n244 ipmidev\n");
    fixture.file("proc/devices", &text);
    for path in [
        "/dev/nvidia0",
        "/dev/null",
        "/dev/of-no-family",
        "/tmp/dev/kfd",
    ] {
        for numbers in [
            "c 1:1",
            "c 1:2",
            "c 1:4",
            "c 1:11",
            "c 162:1",
            "c 202:0",
            "c 244:0",
            "c 234:0",
            "c 511:0",
            "c 511:255",
            "c 235:0",
            "c 235:1",
            "c 235:2",
            "c 235:4323",
        ] {
            assert_refused(
                check_node(&fixture.tree(), path, node(numbers)),
                "manages the node",
            );
        }
    }
    let error = check_node(&fixture.tree(), "/dev/x", node("c 235:1"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("nvidia-caps (config)"), "{error}");
}

#[test]
fn only_capabilities_of_live_instances_pass() {
    let fixture = Fixture::new();
    let check = |minor: u32| {
        let path = format!("/dev/nvidia-caps/nvidia-cap{minor}");
        check_node(&fixture.tree(), &path, char_device(235, minor))
    };
    let live: Vec<u32> = (0..450).filter(|minor| check(*minor).is_ok()).collect();
    assert_eq!(live, [84, 85, 417, 418, 426, 427]);
    let error = check(3).unwrap_err().to_string();
    assert!(error.contains("gpu0/gi0/access"), "{error}");
    fixture.remove("proc/driver/nvidia-caps");
    assert!(check(84).is_ok());
    assert_refused(check(3), "manages the node");
    fixture.remove("proc/driver/nvidia/capabilities/gpu0/mig/gi9/ci0");
    assert!(check(84).is_ok() && check(85).is_err());
}

#[test]
fn only_gpus_and_control_devices_of_the_nvidia_major_pass() {
    let fixture = Fixture::new();
    let passes =
        |minor: &u32| check_node(&fixture.tree(), "/dev/x", char_device(195, *minor)).is_ok();
    let minors: Vec<u32> = (0..600).filter(passes).collect();
    let expected: Vec<u32> = (0..248).chain(254..256).collect();
    assert_eq!(minors, expected);
}

#[test]
fn only_harmless_devices_of_the_memory_driver_pass() {
    let fixture = Fixture::new();
    let passes =
        |minor: &u32| check_node(&fixture.tree(), "/dev/x", char_device(1, *minor)).is_ok();
    assert_eq!(
        (0..300).filter(passes).collect::<Vec<_>>(),
        HARMLESS_MEM_MINORS
    );
}

mod of_paths {
    use super::super::*;

    fn minors(path: &str) -> Vec<Option<u32>> {
        find_families(path)
            .into_iter()
            .map(|(family, number)| family.expected_minor(number))
            .collect()
    }

    #[test]
    fn path_promises_its_minor() {
        assert_eq!(minors("/dev/nvidia12"), [Some(12)]);
        assert_eq!(minors("/dev/nvidiactl"), [Some(255)]);
        assert_eq!(minors("/dev/nvidia-uvm-tools"), [Some(1)]);
        assert_eq!(minors("/dev/nvidia-caps/nvidia-cap102"), [Some(102)]);
        assert_eq!(minors("/dev/nvidia-caps-imex-channels/channel7"), [Some(7)]);
        assert_eq!(minors("/dev/dri/renderD128"), [Some(128)]);
        assert_eq!(minors("/dev/accel/accel0"), [Some(0), None]);
        assert_eq!(minors("/run/nvidia/driver/dev/nvidia3"), [Some(3)]);
        assert_eq!(minors("/dev//./nvidia-uvm"), [Some(0)]);
        assert_eq!(minors("/dev/shm/driver/dev/nvidia3"), [Some(3)]);
    }

    #[test]
    fn similar_paths_have_no_family() {
        for path in [
            "/dev/nvidia",
            "/dev/nvidia00",
            "/dev/nvidia-1",
            "/dev/nvidia4294967296",
            "/dev/nvidiactl0",
            "/dev/dri/card",
            "/dev/dri/by-path/card0",
            "/dev/nvidia-uvm2",
            "/dev/x/nvidia0",
        ] {
            assert!(find_families(path).is_empty(), "{path}");
        }
    }
}
