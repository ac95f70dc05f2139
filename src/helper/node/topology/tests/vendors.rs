use super::layout::{Layout, display_devices, paths};
use crate::node::topology;
use crate::node::topology::{AccelDriver, Numbering};

const SHARED: [&str; 3] = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"];

/// GPUs whose minors differ from the order of the bus, since minors follow the order of start-up.
const EIGHT: [(&str, u32); 8] = [
    ("0000:1b:00.0", 3),
    ("0000:29:00.0", 2),
    ("0000:45:00.0", 0),
    ("0000:4e:00.0", 1),
    ("0000:9b:00.0", 7),
    ("0000:c0:00.0", 4),
    ("2000:01:00.0", 6),
    ("10000:01:00.0", 5),
];

fn with_shared(own: &str) -> Vec<String> {
    let own = [own].into_iter().chain(SHARED);
    own.map(str::to_owned).collect()
}

#[test]
fn numbers_follow_pci_addresses_and_not_nvidia_minors() {
    let layout = Layout::new();
    for (address, minor) in EIGHT.iter().rev() {
        layout.nvidia(address, *minor);
    }
    for (index, (address, minor)) in (0..).zip(EIGHT) {
        let devices = layout.index(index);
        assert_eq!(
            paths(devices.clone()),
            with_shared(&format!("/dev/nvidia{minor}"))
        );
        assert_eq!(devices, layout.address(address));
    }
    assert_eq!(
        layout.index(0).unwrap().first().unwrap(),
        "/dev/nvidia3 c:195:3:rw"
    );
    assert_eq!(
        layout.index(8),
        Err("the node has 8 GPUs, numbers 0 to 7".to_owned())
    );
}

#[test]
fn nvidia_gpu_includes_its_drm_nodes() {
    let layout = Layout::new();
    layout.nvidia("0000:1b:00.0", 0);
    layout.drm("pci/0000:1b:00.0", &["card1", "renderD128"]);
    let all = paths(layout.index(0));
    let mut expected = with_shared("/dev/nvidia0");
    expected.extend([
        "/dev/dri/card1".to_owned(),
        "/dev/dri/renderD128".to_owned(),
    ]);
    assert_eq!(all, expected);
}

#[test]
fn management_graphics_and_excluded_gpus_have_no_number() {
    let layout = Layout::new();
    layout.gpu("0000:03:00.0", "ast", &["card0"]);
    layout.gpu("0000:04:00.0", "mgag200", &["card9"]);
    layout.gpu("0000:1a:00.0", "nvidia", &["card1", "renderD128"]);
    layout.nvidia("0000:1b:00.0", 4);
    assert_eq!(paths(layout.index(0)), with_shared("/dev/nvidia4"));
    assert_eq!(
        layout.index(1),
        Err("the node has one GPU, number 0".to_owned())
    );
}

#[test]
fn amd_card_has_its_own_nodes_and_kfd() {
    let layout = Layout::new();
    layout.amd("0000:05:00.0", 136, 1);
    layout.amd("0000:c1:00.0", 144, 1);
    let first = [
        "/dev/dri/card8 c:226:8:rw",
        "/dev/dri/renderD136 c:226:136:rw",
    ];
    let first: Vec<_> = first.into_iter().chain(["/dev/kfd c:238:0:rw"]).collect();
    assert_eq!(layout.index(0).unwrap(), first);
    let second = ["/dev/dri/card16", "/dev/dri/renderD144", "/dev/kfd"];
    assert_eq!(paths(layout.index(1)), second);
    assert_eq!(layout.index(1), layout.address("c1:00.0"));
    assert_eq!(
        layout.index(2),
        Err("the node has 2 GPUs, numbers 0 to 1".to_owned())
    );
}

#[test]
fn partition_is_its_render_node_and_an_address_the_whole_card() {
    let layout = Layout::new();
    layout.amd("0000:05:00.0", 128, 8);
    layout.amd("0000:c1:00.0", 136, 4);
    for (index, render) in (0..).zip(128..140) {
        let own = [format!("/dev/dri/renderD{render}"), "/dev/kfd".to_owned()];
        assert_eq!(paths(layout.index(index)), own);
    }
    assert_eq!(
        layout.index(12),
        Err("the node has 12 GPUs, numbers 0 to 11".to_owned())
    );
    let mut whole = vec!["/dev/dri/card8".to_owned()];
    whole.extend((136..140).map(|render| format!("/dev/dri/renderD{render}")));
    whole.push("/dev/kfd".to_owned());
    assert_eq!(paths(layout.address("c1:00.0")), whole);
}

/// Covers the GPU of a processor, as on ARM boards. A software renderer does not count.
#[test]
fn gpu_without_an_address_comes_last() {
    let layout = Layout::new();
    for (device, bus, driver, names) in [
        (
            "2d000000.gpu",
            "platform",
            "panthor",
            ["card2", "renderD130"],
        ),
        ("vgem", "platform", "vgem", ["card1", "renderD129"]),
        ("virtual", "faux", "faux_driver", ["card3", "renderD131"]),
    ] {
        layout.drm(&format!("platform/{device}"), &names);
        layout.link(
            &format!("../../../bus/{bus}"),
            &format!("sys/devices/platform/{device}/subsystem"),
        );
        layout.link(
            &format!("../{driver}"),
            &format!("sys/devices/platform/{device}/driver"),
        );
        for name in names {
            layout.link(
                &format!("../../devices/platform/{device}/drm/{name}"),
                &format!("sys/class/drm/{name}"),
            );
        }
    }
    let own = ["/dev/dri/card2", "/dev/dri/renderD130"];
    assert_eq!(paths(layout.index(0)), own);
    assert_eq!(
        layout.index(1),
        Err("the node has one GPU, number 0".to_owned())
    );
    layout.nvidia("0000:1b:00.0", 0);
    assert_eq!(paths(layout.index(0)), with_shared("/dev/nvidia0"));
    assert_eq!(paths(layout.index(1)), own);
    let gpus = topology::list_gpus(&layout.tree()).unwrap();
    let nodes: Vec<_> = gpus.iter().map(|gpu| gpu.own_node.node.as_str()).collect();
    assert_eq!(nodes, ["/dev/nvidia0", "/dev/dri/renderD130"]);
}

#[test]
fn amd_card_unknown_to_kfd_counts_once() {
    let layout = Layout::new();
    layout.kfd();
    layout.gpu("0000:05:00.0", "amdgpu", &["card0", "renderD128"]);
    assert_eq!(
        paths(layout.index(0)),
        ["/dev/dri/card0", "/dev/dri/renderD128", "/dev/kfd"]
    );
}

#[test]
fn gpus_of_other_drivers_have_their_drm_nodes_alone() {
    let layout = Layout::new();
    layout.kfd();
    let drivers = ["i915", "xe", "nouveau", "radeon"];
    for (at, driver) in (0..).zip(drivers) {
        let names = [format!("card{at}"), format!("renderD{}", 128 + at)];
        let names = names.each_ref().map(String::as_str);
        layout.gpu(&format!("0000:0{at}:00.0"), driver, &names);
    }
    for at in 0..4 {
        let own = [
            format!("/dev/dri/card{at}"),
            format!("/dev/dri/renderD{}", 128 + at),
        ];
        assert_eq!(paths(layout.index(at)), own);
    }
    layout.remove("dev/dri/card2");
    assert_eq!(paths(layout.index(2)), ["/dev/dri/renderD130"]);
}

#[test]
fn habana_card_has_its_accelerator_and_control_nodes() {
    let layout = Layout::new();
    layout.habana("0000:33:00.0", 1);
    layout.habana("0000:34:00.0", 0);
    layout.function("0000:00:0b.0", "intel_vpu");
    layout
        .scratch
        .dir("sys/devices/pci/0000:00:0b.0/accel/accel2");
    let first = [
        "/dev/accel/accel1 c:261:1:rw",
        "/dev/accel/accel_controlD1 c:262:1:rw",
    ];
    assert_eq!(layout.index(0).unwrap(), first);
    layout.remove("dev/accel/accel_controlD0");
    assert_eq!(paths(layout.index(1)), ["/dev/accel/accel0"]);
    assert_eq!(
        layout.index(2),
        Err("the node has 2 GPUs, numbers 0 to 1".to_owned())
    );
}

/// Slurm and Flux do not count the graphics of a processor beside two NVIDIA GPUs.
#[test]
fn number_among_gpus_of_several_vendors_is_refused() {
    let layout = Layout::new();
    layout.nvidia("0000:1b:00.0", 0);
    layout.nvidia("0000:29:00.0", 1);
    assert!(layout.index(0).is_ok());
    layout.gpu("0000:f0:02.0", "i915", &["card0", "renderD128"]);
    for (index, address) in (0..).zip(["0000:1b:00.0", "0000:29:00.0", "0000:f0:02.0"]) {
        assert_eq!(
            layout.index(index).unwrap_err(),
            format!(
                "which GPU the number means is not certain among GPUs of several makers: {address} by \
                 address; write one of these"
            )
        );
        assert!(layout.address(address).is_ok());
    }
}

#[test]
fn accelerator_of_a_driver_is_counted_by_address() {
    let layout = Layout::new();
    layout.habana("0000:19:00.0", 0);
    layout.accelerator("0000:43:00.0", "qaic", 2);
    layout.accelerator("0000:21:00.0", "qaic", 1);
    layout.accelerator("0000:c5:00.1", "amdxdna", 3);
    let devices = |driver, index| {
        let found = topology::resolve_accelerator(&layout.tree(), driver, index);
        found
            .map(|found| display_devices(&found))
            .map_err(|error| error.to_string())
    };
    for (driver, index, node) in [
        (AccelDriver::Qaic, 0, "/dev/accel/accel1 c:261:1:rw"),
        (AccelDriver::Qaic, 1, "/dev/accel/accel2 c:261:2:rw"),
        (AccelDriver::Amdxdna, 0, "/dev/accel/accel3 c:261:3:rw"),
    ] {
        assert_eq!(devices(driver, index), Ok(vec![node.to_owned()]));
    }
    assert_eq!(
        devices(AccelDriver::Habanalabs, 0),
        layout.address("19:00.0")
    );
    let two = "the node has 2 accelerators of qaic, numbers 0 to 1";
    assert_eq!(devices(AccelDriver::Qaic, 2), Err(two.to_owned()));
    let none = "the node has no accelerator of intel_vpu";
    assert_eq!(devices(AccelDriver::IntelVpu, 0), Err(none.to_owned()));
    // They are no GPUs, so that they change no number of these.
    assert_eq!(layout.index(0), layout.address("19:00.0"));
    assert!(layout.address("21:00.0").is_err());
    layout.remove("dev/accel/accel1");
    let gone = "0000:21:00.0 has no node in /dev to compute by";
    assert_eq!(devices(AccelDriver::Qaic, 0), Err(gone.to_owned()));
}

/// The card sees what all of its virtual functions work on. Whoever names it by its address means it.
#[test]
fn card_with_virtual_functions_has_no_number() {
    let layout = Layout::new();
    let add = |address: &str, at: u32, functions: Option<&str>| {
        let names = [format!("card{at}"), format!("renderD{}", 128 + at)];
        layout.gpu(address, "xe", &names.each_ref().map(String::as_str));
        if let Some(count) = functions {
            let file = format!("sys/devices/pci/{address}/sriov_numvfs");
            layout.scratch.file(&file, count);
        }
    };
    let own = |at: u32| {
        [
            format!("/dev/dri/card{at}"),
            format!("/dev/dri/renderD{}", 128 + at),
        ]
    };
    add("0000:03:00.0", 0, Some("2\n"));
    let alone =
        "the node has no GPUs: 0000:03:00.0 has virtual functions, and none of them a render node";
    assert_eq!(layout.index(0), Err(alone.to_owned()));
    add("0000:03:00.1", 1, None);
    add("0000:03:00.2", 2, None);
    add("0000:41:00.0", 3, Some("0\n"));
    for (index, at) in [(0, 1), (1, 2), (2, 3)] {
        assert_eq!(paths(layout.index(index)), own(at));
    }
    assert_eq!(
        layout.index(3),
        Err("the node has 3 GPUs, numbers 0 to 2".to_owned())
    );
    let listed = topology::list_gpus(&layout.tree()).unwrap();
    assert_eq!(listed.len(), 3, "{listed:?}");
    assert_eq!(paths(layout.address("03:00.0")), own(0));
    layout.flux();
    for error in [
        layout.number(Numbering::Flux, 0).unwrap_err(),
        layout.index(0).unwrap_err(),
    ] {
        assert!(
            error.contains("0000:03:00.0 has virtual functions"),
            "{error}"
        );
    }
}
