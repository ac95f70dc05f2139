//! Device specifiers, and the devices of a node that they name.
#![no_main]

use helper::devices::{DeviceSettings, Resolver, Specifier};
use job_adopt_fuzz::Laid;
use libfuzzer_sys::fuzz_target;

const FILES: [(&str, &str); 9] = [
    (
        "proc/devices",
        "Character devices:\n  1 mem\n  5 /dev/tty\n136 pts\n195 nvidia\n226 drm\n\
         237 infiniband_verbs\n511 nvidia-uvm\n\nBlock devices:\n  7 loop\n259 blkext\n",
    ),
    ("dev/null", "c 1:3"),
    ("dev/nvidia0", "c 195:0"),
    ("dev/nvidia1", "c 195:1"),
    ("dev/nvidiactl", "c 195:255"),
    ("dev/dri/renderD128", "c 226:128"),
    ("dev/infiniband/uverbs0", "c 237:192"),
    ("dev/cpu/0/msr", "c 202:0"),
    ("dev/loop0", "b 7:0"),
];

fuzz_target!(|text: &str| {
    let Ok(specifier) = text.parse::<Specifier>() else {
        return;
    };
    let shown = specifier.to_string();
    assert!(!shown.chars().any(char::is_control), "{shown:?}");
    let climbs = shown.starts_with('/') && shown.split('/').any(|part| part == "..");
    assert!(!climbs, "{shown:?} may leave /dev");
    assert_eq!(shown.parse().as_ref(), Ok(&specifier));

    let Ok(found) = RESOLVER.with(|node| node.resolve_specifier(&specifier)) else {
        return;
    };
    let is_class =
        shown.starts_with("char-") || shown.starts_with("block-") || shown.starts_with('@');
    for device in found.devices {
        assert!(
            is_class || device.rule.minor().is_some(),
            "{shown:?} became {}",
            device.rule
        );
        assert!(
            specifier.access().contains(device.rule.access()),
            "{shown:?}: {}",
            device.rule
        );
    }
});

thread_local! {
    static RESOLVER: Resolver = {
        let laid = Laid::kept();
        for (path, text) in FILES {
            laid.file(path, text);
        }
        Resolver::new(laid.tree(), DeviceSettings::default())
    };
}
