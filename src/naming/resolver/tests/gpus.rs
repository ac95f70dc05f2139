//! GPUs by their names, on laid-out nodes.

use crate::layout::{Layout, display_devices, pci};
use crate::resolver::NameResolver;
use helper::devices::{DeviceName, DeviceSettings};
use std::collections::BTreeSet;

#[test]
fn gpu_is_the_same_by_number_address_and_uuid() {
    let layout = Layout::new();
    layout.nvidia("0000:1b:00.0", 1);
    layout.nvidia("0000:29:00.0", 0);
    layout.drm("pci/0000:29:00.0", &["card1", "renderD128"]);
    let resolver = NameResolver::new(layout.tree(), DeviceSettings::default());
    let devices = |name| display_devices(&resolver.resolve_names(&[name]).unwrap());
    for name in ["1", "29:00.0", "GPU-00000000-0000-0000-0000-000000000000"] {
        assert_eq!(
            devices(DeviceName::Gpu(name.to_owned())),
            layout.index(1).unwrap(),
            "{name}"
        );
    }
    let all: BTreeSet<_> = devices(DeviceName::AllGpus).into_iter().collect();
    let each = [layout.index(0), layout.index(1)]
        .into_iter()
        .flat_map(Result::unwrap);
    assert_eq!(all, each.collect());
}

/// NVIDIA's driver lists the display of the processor at an address outside the bus, and CUDA uses
/// nodes of other drivers.
#[test]
fn gpu_of_a_jetson_resolves_by_its_specification() {
    let layout = Layout::new();
    layout.nvidia("0002:00:00.0", 0);
    layout.remove(&pci("0002:00:00.0"));
    assert!(
        layout
            .index(0)
            .unwrap_err()
            .contains("which is not bound to it in sysfs")
    );
    let compatible = "nvidia,p3768-0000+p3767-0005\0nvidia,tegra234\0";
    layout
        .scratch
        .file("sys/firmware/devicetree/base/compatible", compatible);
    layout.drm("platform/13e00000.host1x", &["card0", "renderD128"]);
    let drivers = "Character devices:\n10 misc\n195 nvidia\n226 drm\n480 nvgpu\n";
    layout.scratch.file("proc/devices", drivers);
    let spec = include_str!("../../../../tests/fixtures/cdi/nvidia-jetson.yaml");
    let nodes = ["as", "channel", "ctrl", "tsg"].map(|name| format!("nvgpu/igpu0/{name}"));
    let hosts = ["nvhost-as-gpu", "nvhost-ctrl-gpu"].map(str::to_owned);
    for (minor, node) in (0..).zip(nodes.iter().chain(&hosts)) {
        layout
            .scratch
            .file(&format!("dev/{node}"), &format!("c 480:{minor}"));
    }
    layout.scratch.file("dev/nvmap", "c 10:120");
    let resolved = |name| {
        let resolver = NameResolver::new(layout.tree(), DeviceSettings::default());
        resolver
            .resolve_names(&[name])
            .map(|found| display_devices(&found).len())
    };
    let why = resolved(DeviceName::Gpu("0".into()))
        .unwrap_err()
        .to_string();
    assert!(
        why.starts_with("GPU 0: the GPU of a Tegra processor has no PCI address"),
        "{why}"
    );
    layout.scratch.file("etc/cdi/nvidia.yaml", spec);
    for name in [
        DeviceName::Gpu("0".into()),
        DeviceName::AllGpus,
        DeviceName::Cdi("nvidia.com/gpu=0".into()),
    ] {
        assert_eq!(resolved(name.clone()), Ok(10), "{name}");
    }
}
