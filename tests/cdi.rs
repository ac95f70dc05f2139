//! Device specifications in the forms that generators write, and broken ones.
#![allow(
    clippy::unwrap_used,
    reason = "a test that fails has to say so at once"
)]
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use naming::cdi::{Edits, Format, Spec, SpecError};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/cdi"))
}

fn parse(file: &str) -> Result<Spec, SpecError> {
    let format = if file.ends_with(".json") {
        Format::Json
    } else {
        Format::Yaml
    };
    Spec::parse(&fs::read(folder().join(file)).unwrap(), format)
}

/// Returns the kind, and the names of nodes without `/dev/`, for the whole file and by device.
fn format_outline(spec: &Spec) -> String {
    let nodes = |edits: &Edits| {
        let path = |path: &str| path.strip_prefix("/dev/").unwrap_or(path).to_owned();
        edits
            .nodes
            .iter()
            .map(|node| path(&node.path))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let devices = spec.devices.iter().map(|device| {
        let name = &device.name;
        format!("; {name}: {}", nodes(&device.edits))
    });
    format!(
        "{}: {}{}",
        spec.kind,
        nodes(&spec.edits),
        devices.collect::<String>()
    )
}

/// Specifications of generators, and everything that the versions 0.8.0 and 1.1.0 have.
const GOOD: [(&str, &str); 16] = [
    (
        "nvidia-older.yaml",
        "nvidia.com/gpu: nvidia-modeset nvidia-uvm nvidia-uvm-tools nvidiactl; 0: nvidia0; \
         1: nvidia1; GPU-edfee158-11c1-52b8-0517-92f30e7fac88: nvidia0; \
         GPU-1c2d3e4f-0011-2233-4455-66778899aabb: nvidia1; all: nvidia0 nvidia1",
    ),
    (
        "nvidia-newer.yaml",
        "nvidia.com/gpu: nvidia-modeset nvidia-uvm nvidia-uvm-tools nvidiactl; \
         0: nvidia0 dri/card1 dri/renderD128; GPU-1c2d3e4f-0011-2233-4455-66778899aabb: nvidia1; \
         none: ",
    ),
    (
        "nvidia-mig.yaml",
        "nvidia.com/gpu: nvidiactl; \
         1:0: nvidia-caps/nvidia-cap147 nvidia-caps/nvidia-cap148 nvidia1; \
         MIG-5a6b7c8d-1111-2222-3333-444455556666: \
         nvidia-caps/nvidia-cap147 nvidia-caps/nvidia-cap148 nvidia1",
    ),
    (
        "nvidia-dra-claim.yaml",
        "k8s.gpu.nvidia.com/claim: ; 3f8a1c2e-77d0-4b59-9a53-0c1d2e3f4a5b-gpu-0-mig-1g18gb-19-3: \
         nvidia-caps/nvidia-cap102 nvidia-caps/nvidia-cap103 nvidia0",
    ),
    (
        "nvidia-management.yaml",
        "management.nvidia.com/gpu: ; all: nvidia-caps-imex-channels/channel0 \
         nvidia-caps/nvidia-cap1 nvidia-caps/nvidia-cap2 nvidia-modeset nvidia-nvlink \
         nvidia-nvswitchctl nvidia-uvm nvidia-uvm-tools nvidia0 nvidiactl",
    ),
    (
        "nvidia-imex-channel.yaml",
        "nvidia.com/imex-channel: ; 0: nvidia-caps-imex-channels/channel0; \
         2047: nvidia-caps-imex-channels/channel2047",
    ),
    (
        "nvidia-device-plugin.json",
        "k8s.device-plugin.nvidia.com/gpu: nvidiactl; \
         GPU-edfee158-11c1-52b8-0517-92f30e7fac88: nvidia0",
    ),
    (
        "amd-cpx.json",
        "amd.com/gpu: ; 0: dri/card1 dri/renderD128 kfd; 1: dri/card2 dri/renderD129 kfd; \
         2: dri/card3 dri/renderD130 kfd; 3: dri/card4 dri/renderD131 kfd; \
         4: dri/card5 dri/renderD132 kfd; 5: dri/card6 dri/renderD133 kfd; \
         6: dri/card7 dri/renderD134 kfd; 7: dri/card8 dri/renderD135 kfd; \
         all: dri/card1 dri/renderD128 dri/card2 dri/renderD129 dri/card3 dri/renderD130 \
         dri/card4 dri/renderD131 dri/card5 dri/renderD132 dri/card6 dri/renderD133 \
         dri/card7 dri/renderD134 dri/card8 dri/renderD135 kfd",
    ),
    (
        "intel-gpu.yaml",
        "intel.com/gpu: ; 0000-00-02-0-0x56c0: dri/card0 dri/renderD128",
    ),
    (
        "intel-gaudi.yaml",
        "intel.com/gaudi: ; 0000-0f-00-0-0x1020: accel/accel0 accel/accel_controlD0 \
         infiniband/uverbs0",
    ),
    (
        "nvidia-jetson.yaml",
        "nvidia.com/gpu: dri/card0 dri/renderD128 nvgpu/igpu0/as nvgpu/igpu0/channel \
         nvgpu/igpu0/ctrl nvgpu/igpu0/tsg nvhost-as-gpu nvhost-ctrl-gpu nvmap; 0: nvidia0; \
         all: nvidia0",
    ),
    ("words-as-text.yaml", "vendor.example/device: ; foo: foo"),
    ("two-documents.yaml", "vendor.example/gpu: ; a: "),
    ("byte-order-mark.json", "vendor.example/gpu: ; 0: gpu0"),
    (
        "everything.yaml",
        "vendor.example/some.class_of-1: a b u p unsaid; 0: ; a:b.c-d_e: ",
    ),
    (
        "everything-0.8.json",
        "vendor.example/widget.v2: ; w0: widget",
    ),
];

/// Specifications that must be refused, and how the error begins, without the parsers' own texts.
const BROKEN: [(&str, &str); 13] = [
    (
        "broken-alias-bomb.yaml",
        "line 6: an anchor (&) is not taken",
    ),
    ("broken-cut-short.json", "line 11: "),
    ("broken-cut-short.yaml", "line 14: "),
    (
        "broken-doubled-annotation.json",
        "line 1: key \"a\" stands twice",
    ),
    (
        "broken-doubled-key.yaml",
        "line 8: key \"path\" stands twice",
    ),
    ("broken-empty.json", "line 1: "),
    ("broken-empty.yaml", "line 1: no document"),
    ("broken-indent.yaml", "line 5: "),
    (
        "broken-newer-version.yaml",
        "cdiVersion: version \"1.2.0\" is not known, 0.3.0 to 1.1.0 are",
    ),
    (
        "broken-null-node.json",
        "devices[0] \"a\": containerEdits.deviceNodes[0]: not an object",
    ),
    (
        "broken-unknown-key.yaml",
        "devices[0] \"a\": containerEdits.deviceNodes[0]: unknown key \"hostpath\"",
    ),
    (
        "broken-wildcard.yaml",
        "devices[0] \"all\": containerEdits.deviceNodes[0].minor: -1 is not from 0 to 1048575",
    ),
    (
        "broken-yaml-in-json.json",
        "line 1: this is YAML: name the file .yaml",
    ),
];

#[test]
fn specification_of_generator_is_read() {
    for (file, expected) in GOOD {
        assert_eq!(
            parse(file).map(|spec| format_outline(&spec)),
            Ok(expected.to_owned()),
            "{file}"
        );
    }
}

#[test]
fn broken_file_is_refused_with_its_position() {
    for (file, expected) in BROKEN {
        let error = parse(file).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{file}: {error}");
    }
}

#[test]
fn every_fixture_is_tested() {
    let names = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let there: BTreeSet<String> = names.map(|name| name.into_string().unwrap()).collect();
    let looked_at = GOOD
        .iter()
        .chain(&BROKEN)
        .map(|(file, _)| (*file).to_owned())
        .collect();
    assert_eq!(there, looked_at);
}
