//! Directories of specifications. A line `=` ends each file: one of the lower rank, two of the
//! higher one.
//!
//! At most 1024 bytes: `cdi_yaml` and `cdi_json` try the contents of a file.
#![no_main]

use job_adopt_fuzz::Laid;
use libfuzzer_sys::fuzz_target;
use naming::cdi::{self, Catalog, Format, QualifiedName, Spec};

const FILES: [&str; 3] = ["etc/cdi/low.yaml", "run/cdi/high.yaml", "run/cdi/high.json"];
/// Sorts after every other file, and is unusable.
const BROKEN: &str = "run/cdi/zz.json";
const NODES: [(&str, &str); 4] = [
    (
        "proc/devices",
        "Character devices:\n195 nvidia\n195 nvidiactl\n",
    ),
    ("dev/nvidia0", "c 195:0"),
    ("dev/nvidia1", "c 195:1"),
    ("dev/nvidiactl", "c 195:255"),
];
const NAMES: [&str; 4] = ["v.com/gpu=0", "v.com/gpu=1", "w.com/gpu=0", "w.com/gpu=1"];

fuzz_target!(|text: &str| {
    let laid = Laid::kept();
    NODES.iter().for_each(|(path, text)| laid.file(path, text));
    let mut parts = text.split("=\n");
    let mut specs: [Option<Spec>; 3] = [None, None, None];
    laid.without(BROKEN);
    for (path, spec) in FILES.into_iter().zip(&mut specs) {
        let format = if path.ends_with("json") {
            Format::Json
        } else {
            Format::Yaml
        };
        match parts.next() {
            Some(text) => {
                laid.file(path, text);
                *spec = Spec::parse(text.as_bytes(), format).ok();
            }
            None => laid.without(path),
        }
    }
    let tree = laid.tree();
    let dirs = ["/etc/cdi".into(), "/run/cdi".into()];
    let read = || Catalog::read(&tree, &dirs).expect("directories of this process");
    let catalog = read();
    laid.file(BROKEN, "{");
    let broken = read();
    for name in NAMES {
        let parsed: QualifiedName = name.parse().expect("a name");
        let has = |spec: &Option<Spec>| {
            spec.as_ref()
                .is_some_and(|spec| spec.device(&parsed).is_some())
        };
        let [low, one, other] = specs.each_ref().map(has);
        let ask = |catalog| cdi::resolve(&tree, catalog, &[name.to_owned()]);
        let found = ask(&catalog);
        let later = ask(&broken);
        let fault = found.as_ref().err().map(|error| error.why.to_string());
        let fault = fault.unwrap_or_default();
        // A fault of a node names the file that asks for it.
        let of_node = ["/etc/cdi/", "/run/cdi/"]
            .iter()
            .any(|dir| fault.starts_with(dir));
        let expected = match (one, other) {
            (true, true) => fault.starts_with("defined in both "),
            // This definition counts whatever is wrong with other files.
            (true, false) | (false, true) => fault.is_empty() || of_node,
            (false, false) if low => {
                fault.is_empty() || of_node || fault.ends_with("repair or remove it")
            }
            (false, false) => {
                fault.starts_with("no specification of kind ")
                    || fault.contains(" has no such device; it has ")
            }
        };
        assert!(expected, "{found:?}");
        // An unreadable file hides no definition beside it, and reveals none below.
        let devices = |found: &Result<_, _>| -> Option<Vec<_>> {
            let found: &helper::node::ResolvedDevices = found.as_ref().ok()?;
            Some(found.devices.clone())
        };
        match one || other {
            true => assert_eq!(devices(&found), devices(&later), "{name}"),
            false => assert!(later.is_err(), "{later:?}"),
        }
        for device in devices(&found).into_iter().flatten() {
            assert!(
                device.rule.major() == 195 && device.rule.minor().is_some(),
                "{device:?}"
            );
        }
    }
});
