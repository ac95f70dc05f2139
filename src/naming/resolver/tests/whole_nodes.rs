use std::collections::BTreeSet;

use crate::layout::{Layout, display_devices};
use crate::resolver::NameResolver;
use crate::testing::Random;
use helper::devices::{DeviceName, DeviceSettings};

const SHARED: [&str; 4] = [
    "/dev/nvidiactl ",
    "/dev/nvidia-uvm ",
    "/dev/nvidia-uvm-tools ",
    "/dev/kfd ",
];

/// Lays out a node with random hardware, and GPUs of one vendor; returns the address of each GPU and how
/// many numbers it has.
fn random_node(random: &mut Random) -> (Layout, Vec<(String, u32)>) {
    let layout = Layout::new();
    let vendor = 2 + random.below(4);
    let mut gpus = Vec::new();
    let addresses: BTreeSet<(u32, u32)> = (0..1 + random.below(7))
        .map(|_| (random.below(2), 1 + random.below(250)))
        .collect();
    let (mut minors, mut drm): (Vec<u32>, u32) = ((0..8).collect(), 128);
    for (domain, bus) in addresses {
        let address = format!("{domain:04x}:{bus:02x}:00.0");
        let parts = match [random.below(2), vendor, vendor][random.below(3) as usize] {
            0 => {
                layout.gpu(&address, "ast", &[&format!("card{}", drm - 128)]);
                0
            }
            1 => {
                layout.function(
                    &address,
                    ["", "mlx5_core", "vfio-pci"][random.below(3) as usize],
                );
                0
            }
            2 => {
                let names = [format!("card{}", drm - 128), format!("renderD{drm}")];
                layout.gpu(&address, "xe", &names.each_ref().map(String::as_str));
                1
            }
            3 => {
                layout.habana(&address, drm - 128);
                1
            }
            4 => {
                let parts = [1, 2, 4, 8][random.below(4) as usize];
                layout.amd(&address, drm, parts);
                parts
            }
            _ => {
                let minor = minors.remove(random.below(minors.len() as u32) as usize);
                layout.nvidia(&address, minor);
                1
            }
        };
        drm += 8;
        if parts > 0 {
            gpus.push((address, parts));
        }
    }
    (layout, gpus)
}

fn device_set(devices: Result<Vec<String>, String>) -> BTreeSet<String> {
    devices.unwrap().into_iter().collect()
}

fn without_shared(devices: &BTreeSet<String>) -> BTreeSet<String> {
    let shared = |device: &String| SHARED.iter().any(|prefix| device.starts_with(prefix));
    devices
        .iter()
        .filter(|device| !shared(device))
        .cloned()
        .collect()
}

#[test]
fn every_number_is_one_gpu_or_partition() {
    let mut random = Random::new(0x746f_706f_6c6f_6779);
    for _ in 0..60 {
        let (layout, gpus) = random_node(&mut random);
        let mut index = 0;
        let mut given = BTreeSet::new();
        for (address, parts) in gpus {
            let whole = device_set(layout.address(&address));
            for _ in 0..parts {
                let one = device_set(layout.index(index));
                assert!(one.is_subset(&whole), "{one:?} of {address}");
                assert!(parts > 1 || one == whole, "{one:?} of {address}");
                let exact = |device: &String| device.ends_with(":rw") && !device.contains(":-1:");
                assert!(one.iter().all(exact), "{one:?}");
                let own = without_shared(&one);
                assert!(!own.is_empty() && given.is_disjoint(&own), "{own:?} twice");
                given.extend(own);
                index += 1;
            }
        }
        assert!(
            layout
                .index(index)
                .unwrap_err()
                .starts_with("the node has ")
        );
    }
}

#[test]
fn several_gpus_resolve_to_the_devices_of_each() {
    let mut random = Random::new(99);
    for _ in 0..30 {
        let (layout, gpus) = random_node(&mut random);
        let count: u32 = gpus.iter().map(|(_, parts)| parts).sum();
        if count == 0 {
            continue;
        }
        let resolver = NameResolver::new(layout.tree(), DeviceSettings::default());
        let first = random.below(count);
        let second = random.below(count);
        let together = |names: [u32; 2]| {
            let names = names.map(|index| DeviceName::Gpu(index.to_string()));
            display_devices(&resolver.resolve_names(&names).unwrap())
        };
        let each: BTreeSet<_> = device_set(layout.index(first))
            .union(&device_set(layout.index(second)))
            .cloned()
            .collect();
        assert_eq!(
            together([first, second])
                .into_iter()
                .collect::<BTreeSet<_>>(),
            each
        );
        assert_eq!(
            together([second, first])
                .into_iter()
                .collect::<BTreeSet<_>>(),
            each
        );
    }
}
