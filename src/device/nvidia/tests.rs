use super::*;
use crate::device::gpu_name::Uuid;
use crate::device::{Found, Misfit, Tree};
use crate::random::Random;
use crate::trust::tests::Scratch;

/// A node of eight GPUs whose minors are not in the order of the bus; the second and the third
/// have MIG instances.
pub(in crate::device) struct Fixture(pub(in crate::device) Scratch);

/// `/proc/devices` as a recent driver fills it.
pub(in crate::device) const DEVICES: &str = "Character devices:\n  1 mem\n 10 misc\n195 nvidia\n\
    195 nvidiactl\n195 nvidia-modeset\n226 drm\n234 nvidia-nvlink\n235 nvidia-caps\n\
    237 nvidia-caps-imex-channels\n510 nvidia-uvm\n511 nvidia-nvswitch\n\nBlock devices:\n  7 loop\n";

const BUSES: [&str; 8] = ["0a", "1b", "43", "52", "9d", "c3", "d1", "df"];
const MINORS: [u32; 8] = [2, 3, 0, 1, 6, 7, 4, 5];
/// Minor of a capability as the driver counts them.
const GI: u32 = 9;
const GPU: u32 = 135;

fn gi_minor(gpu: u32, gi: u32) -> u32 {
    3 + gpu * GPU + gi * GI
}

pub(in crate::device) fn uuid(gpu: usize) -> Uuid {
    format!("edfee158-11c1-52b8-0517-92f30e7fac8{gpu}").parse().unwrap()
}

fn information(minor: &str, uuid: &str, excluded: &str) -> String {
    format!(
        "Model: \t\t NVIDIA H200\nIRQ:   \t\t 345\n{uuid}Video BIOS: \t 96.00.cf.00.01\n\
         Bus Type: \t PCIe\nDMA Mask: \t 0xfffffffffffff\nDevice Minor: \t {minor}\n{excluded}"
    )
}

impl Fixture {
    pub(in crate::device) fn new() -> Self {
        let this = Self(Scratch::new());
        this.file("proc/devices", DEVICES);
        for (index, (bus, minor)) in BUSES.iter().zip(MINORS).enumerate() {
            let line = format!("GPU UUID: \t GPU-{}\n", uuid(index));
            this.gpu(bus, &information(&minor.to_string(), &line, "GPU Excluded:\t No\n"));
            this.file(&format!("dev/nvidia{minor}"), &format!("c 195:{minor}"));
        }
        this.file("dev/nvidiactl", "c 195:255");
        this.file("dev/nvidia-modeset", "c 195:254");
        this.file("dev/nvidia-uvm", "c 510:0");
        this.file("dev/nvidia-uvm-tools", "c 510:1");
        this.caps();
        this
    }

    fn caps(&self) {
        let mut table = "config 1\nmonitor 2\n".to_owned();
        for (gpu, gi) in (0..8).flat_map(|gpu| (0..15).map(move |gi| (gpu, gi))) {
            let minor = gi_minor(gpu, gi);
            table.push_str(&format!("gpu{gpu}/gi{gi}/access {minor}\n"));
            for ci in 0..8 {
                table.push_str(&format!("gpu{gpu}/gi{gi}/ci{ci}/access {}\n", minor + 1 + ci));
            }
        }
        self.file("proc/driver/nvidia-caps/mig-minors", &table);
        self.file("proc/driver/nvidia-caps/nvlink-minors", "fabric-mgmt 0\n");
        self.file("proc/driver/nvidia-caps/sys-minors", "fabric-imex-mgmt 4323\n");
        self.cap("mig/config", 1);
        self.cap("mig/monitor", 2);
        self.cap("fabric-imex-mgmt", 4323);
        for (gpu, gi) in [(3, 1), (3, 2), (0, 9)] {
            let minor = gi_minor(gpu, gi);
            self.cap(&format!("gpu{gpu}/mig/gi{gi}/access"), minor);
            self.cap(&format!("gpu{gpu}/mig/gi{gi}/ci0/access"), minor + 1);
        }
    }

    fn cap(&self, path: &str, minor: u32) {
        let text = format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
        self.file(&format!("proc/driver/nvidia/capabilities/{path}"), &text);
        self.file(&format!("dev/nvidia-caps/nvidia-cap{minor}"), &format!("c 235:{minor}"));
    }

    fn gpu(&self, bus: &str, text: &str) {
        self.file(&format!("proc/driver/nvidia/gpus/0000:{bus}:00.0/information"), text);
    }

    pub(in crate::device) fn file(&self, path: &str, text: &str) {
        self.0.file(path, text);
    }

    pub(in crate::device) fn remove(&self, path: &str) {
        let path = self.0.path().join(path);
        match path.is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        }
    }

    pub(in crate::device) fn tree(&self) -> Tree {
        Tree::laid_out(self.0.path(), self.0.trust())
    }

    fn gpus(&self) -> Result<Vec<Gpu>, NvidiaError> {
        gpus(&self.tree())
    }

    fn instance(&self, gpu: usize, gi: u32, ci: u32) -> Result<Found, NvidiaError> {
        instance(&self.tree(), &uuid(gpu), gi, ci)
    }
}

fn rules(found: &Found) -> Vec<String> {
    assert!(found.devices.iter().all(|device| device.rule.minor().is_some()));
    found.devices.iter().map(|device| format!("{} {}", device.node, device.rule)).collect()
}

const SHARED: [&str; 3] = [
    "/dev/nvidiactl c:195:255:rw",
    "/dev/nvidia-uvm c:510:0:rw",
    "/dev/nvidia-uvm-tools c:510:1:rw",
];

#[test]
fn gpus_are_in_the_order_of_the_bus_with_the_minors_that_the_driver_says() {
    let fixture = Fixture::new();
    let gpus = fixture.gpus().unwrap();
    assert_eq!(gpus.iter().map(|gpu| gpu.minor).collect::<Vec<_>>(), MINORS);
    assert!(gpus.windows(2).all(|pair| pair[0].address < pair[1].address));
    for (index, gpu) in gpus.iter().enumerate() {
        assert_eq!(gpu.uuid, Some(uuid(index)));
        let minor = MINORS[index];
        let own = [format!("/dev/nvidia{minor} c:195:{minor}:rw")];
        assert_eq!(rules(&node(&fixture.tree(), gpu).unwrap()), own);
    }
}

#[test]
fn domains_are_ordered_as_numbers() {
    let fixture = Fixture::new();
    for (domain, minor) in [("10000", "20"), ("2000", "21")] {
        let path = format!("proc/driver/nvidia/gpus/{domain}:01:00.0/information");
        fixture.file(&path, &information(minor, "", ""));
    }
    let minors: Vec<u32> = fixture.gpus().unwrap().iter().map(|gpu| gpu.minor).collect();
    assert_eq!(minors[8..], [21, 20]);
}

#[test]
fn a_node_without_the_driver_has_no_gpus() {
    let scratch = Scratch::new();
    assert_eq!(gpus(&Tree::laid_out(scratch.path(), scratch.trust())), Ok(Vec::new()));
}

#[test]
fn a_uuid_that_the_driver_does_not_know_yet_is_none() {
    let fixture = Fixture::new();
    for line in
        ["", "GPU UUID: \t GPU-????????-????-????-????-????????????\n", "GPU UUID: \t N/A\n"]
    {
        fixture.gpu("0a", &information("2", line, "GPU Excluded:\t No\n"));
        let gpus = fixture.gpus().unwrap();
        assert_eq!((gpus.len(), &gpus[0].uuid, gpus[0].minor), (8, &None, 2), "{line:?}");
    }
    let error = fixture.instance(0, 1, 0).unwrap_err();
    assert_eq!(error, NvidiaError::NoUuid { uuid: uuid(0), silent: 1 });
    assert!(error.to_string().contains("nvidia-persistenced"), "{error}");
}

#[test]
fn an_excluded_gpu_is_absent() {
    let fixture = Fixture::new();
    for line in ["GPU Excluded:\t Yes\n", "Blacklisted:\t Yes\n"] {
        fixture.gpu("0a", &information("", "", line));
        assert_eq!(fixture.gpus().unwrap().len(), 7, "{line:?}");
    }
    fixture.gpu("0a", &information("2", "", ""));
    assert_eq!(fixture.gpus().unwrap().len(), 8);
}

#[test]
fn a_minor_that_is_none_of_a_gpu_is_an_error_that_names_the_file() {
    let fixture = Fixture::new();
    for minor in ["", "248", "255", "-1", "+2", "02", "2 ", "x", "4294967298"] {
        fixture.gpu("0a", &information(minor, "", ""));
        let text = match minor.trim_end() {
            "2" => continue,
            _ => fixture.gpus().unwrap_err().to_string(),
        };
        let path = "/proc/driver/nvidia/gpus/0000:0a:00.0/information";
        assert_eq!(text, format!("{path}: no Device Minor from 0 to 247"), "{minor:?}");
    }
    fixture.gpu("0a", "Device Minor: \t 247\n");
    assert_eq!(fixture.gpus().unwrap()[0].minor, 247);
}

#[test]
fn the_order_of_the_lines_never_matters_and_noise_gives_no_minor_out_of_range() {
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let fixture = Fixture::new();
    let expected = fixture.gpus().unwrap();
    let text = fixture.tree().text("/proc/driver/nvidia/gpus/0000:0a:00.0/information").unwrap();
    for _ in 0..200 {
        let mut lines: Vec<&str> = text.lines().collect();
        for last in (1..lines.len()).rev() {
            lines.swap(last, random.index(last + 1));
        }
        fixture.gpu("0a", &lines.join("\n"));
        assert_eq!(fixture.gpus().as_ref(), Ok(&expected));
        let mut noise = text.clone().into_bytes();
        for _ in 0..4 {
            let at = random.index(noise.len());
            noise[at] = u8::try_from(random.index(256)).unwrap();
        }
        fixture.gpu("0a", &String::from_utf8_lossy(&noise));
        if let Ok(gpus) = fixture.gpus() {
            assert!(gpus.iter().all(|gpu| gpu.minor <= 247), "{noise:?}");
        }
    }
}

#[test]
fn two_gpus_of_one_name_are_an_error() {
    let fixture = Fixture::new();
    fixture.gpu("0a", &information("3", "", ""));
    let error = fixture.gpus().unwrap_err().to_string();
    assert_eq!(error, "GPUs 0000:0a:00.0 and 0000:1b:00.0 both have minor 3");
    let twin = format!("GPU UUID: GPU-{}\n", uuid(7).to_string().to_uppercase());
    fixture.gpu("0a", &information("2", &twin, ""));
    let error = fixture.gpus().unwrap_err().to_string();
    let both = format!("both have UUID GPU-{}", uuid(7));
    assert_eq!(error, format!("GPUs 0000:0a:00.0 and 0000:df:00.0 {both}"));
}

#[test]
fn the_driver_s_directory_is_bounded_and_holds_addresses_only() {
    let fixture = Fixture::new();
    fixture.file("proc/driver/nvidia/gpus/card0/information", "");
    assert!(matches!(fixture.gpus(), Err(NvidiaError::Odd { path, .. }) if path.contains("card0")));
    for number in 0..250 {
        fixture.0.dir(&format!("proc/driver/nvidia/gpus/{number:04x}:00:00.0"));
    }
    assert!(matches!(fixture.gpus(), Err(NvidiaError::Crowded { most: 256, .. })));
}

#[test]
fn a_node_that_is_not_the_gpu_s_is_refused() {
    let fixture = Fixture::new();
    let gpu = fixture.gpus().unwrap().remove(0);
    let node = || super::node(&fixture.tree(), &gpu).map(|found| rules(&found));
    fixture.file("dev/nvidia2", "c 195:3");
    assert!(matches!(node(), Err(NvidiaError::Misfit(Misfit::Minor { promised: 2, .. }))));
    fixture.file("dev/nvidia2", "c 226:2");
    assert!(matches!(node(), Err(NvidiaError::Misfit(Misfit::Driver { .. }))));
    fixture.file("dev/nvidia2", "b 7:2");
    assert!(matches!(node(), Err(NvidiaError::Misfit(Misfit::Driver { .. }))));
    fixture.remove("dev/nvidia2");
    std::os::unix::fs::symlink("nvidia3", fixture.0.path().join("dev/nvidia2")).unwrap();
    assert!(matches!(node(), Err(NvidiaError::Node { .. })));
    fixture.remove("dev/nvidia2");
    let error = node().unwrap_err().to_string();
    assert!(error.starts_with("/dev/nvidia2: ") && error.contains("nvidia-modprobe"), "{error}");
}

#[test]
fn what_gpus_share_has_the_numbers_of_proc_devices() {
    let fixture = Fixture::new();
    let found = shared(&fixture.tree()).unwrap();
    assert_eq!((rules(&found), found.warnings), (SHARED.map(str::to_owned).to_vec(), vec![]));
    for drivers in ["195 nvidia-frontend\n", "195 nvidia\n195 nvidia-frontend\n", "195 nvidiactl\n"]
    {
        let text = format!("Character devices:\n{drivers}510 nvidia-uvm\n");
        fixture.file("proc/devices", &text);
        assert_eq!(rules(&shared(&fixture.tree()).unwrap()), SHARED, "{drivers:?}");
    }
    fixture.file("proc/devices", "Character devices:\n195 nvidia\n196 nvidiactl\n");
    assert_eq!(shared(&fixture.tree()), Err(NvidiaError::Majors("nvidiactl")));
}

#[test]
fn a_node_that_is_not_made_yet_is_promised_its_numbers_with_a_warning() {
    let fixture = Fixture::new();
    fixture.remove("dev/nvidia-uvm");
    let found = shared(&fixture.tree()).unwrap();
    assert_eq!(rules(&found), SHARED);
    assert_eq!(found.warnings.len(), 1);
    assert!(found.warnings[0].starts_with("/dev/nvidia-uvm is not there yet"));
}

#[test]
fn a_stale_node_is_refused_with_both_numbers() {
    let fixture = Fixture::new();
    fixture.file("dev/nvidia-uvm", "c 511:0");
    let error = shared(&fixture.tree()).unwrap_err().to_string();
    let text = "/dev/nvidia-uvm is c 511:0, but by /proc/devices it has to be c 510:0";
    assert!(error.starts_with(text), "{error}");
    for stale in ["c 510:1", "b 510:0"] {
        fixture.file("dev/nvidia-uvm", stale);
        assert!(matches!(shared(&fixture.tree()), Err(NvidiaError::Stale { .. })), "{stale}");
    }
}

#[test]
fn a_driver_that_is_not_loaded_leaves_its_devices_out_with_a_warning() {
    let fixture = Fixture::new();
    fixture.file("proc/devices", &DEVICES.replace("510 nvidia-uvm\n", ""));
    let found = shared(&fixture.tree()).unwrap();
    assert_eq!(rules(&found), SHARED[..1]);
    assert_eq!(found.warnings.len(), 1);
    assert!(found.warnings[0].contains("load nvidia-uvm before the job is registered"));
}

#[test]
fn an_instance_is_its_parent_what_gpus_share_and_two_capabilities() {
    let fixture = Fixture::new();
    let found = fixture.instance(1, 2, 0).unwrap();
    let (gi, ci) = (gi_minor(3, 2), gi_minor(3, 2) + 1);
    let caps = [gi, ci].map(|minor| format!("/dev/nvidia-caps/nvidia-cap{minor} c:235:{minor}:r"));
    let mut expected = vec!["/dev/nvidia3 c:195:3:rw".to_owned()];
    expected.extend(SHARED.map(str::to_owned));
    expected.extend(caps);
    assert_eq!(rules(&found), expected);
    fixture.remove("proc/driver/nvidia-caps/mig-minors");
    assert_eq!(rules(&fixture.instance(1, 2, 0).unwrap()), expected);
}

#[test]
fn an_instance_that_is_gone_is_an_error() {
    let fixture = Fixture::new();
    for (gpu, gi, ci) in [(1, 3, 0), (1, 1, 1), (2, 1, 0), (4, 1, 0)] {
        let error = fixture.instance(gpu, gi, ci).unwrap_err();
        assert!(matches!(error, NvidiaError::NoInstance { .. }), "{error}");
    }
    fixture.remove("proc/driver/nvidia/capabilities");
    assert!(matches!(fixture.instance(1, 2, 0), Err(NvidiaError::NoInstance { .. })));
}

#[test]
fn files_that_disagree_on_a_capability_refuse_it() {
    let fixture = Fixture::new();
    let (path, minor) = ("gpu3/mig/gi2/ci0/access", gi_minor(3, 2));
    fixture.cap(path, minor + 2);
    let error = fixture.instance(1, 2, 0).unwrap_err();
    assert!(matches!(error, NvidiaError::Disagree { listed: Some(_), .. }), "{error}");
    fixture.file(&format!("proc/driver/nvidia/capabilities/{path}"), "DeviceFileMinor: -1\n");
    assert!(matches!(fixture.instance(1, 2, 0), Err(NvidiaError::Odd { .. })));
    fixture.cap(path, minor + 1);
    fixture.file(&format!("dev/nvidia-caps/nvidia-cap{minor}"), &format!("c 237:{minor}"));
    assert!(matches!(fixture.instance(1, 2, 0), Err(NvidiaError::Stale { .. })));
    fixture.file("proc/devices", &DEVICES.replace("235 nvidia-caps\n", ""));
    let error = fixture.instance(1, 2, 0).unwrap_err();
    assert_eq!(error, NvidiaError::NotLoaded("nvidia-caps"));
}

#[test]
fn a_channel_has_the_major_of_channels_and_its_own_number() {
    let fixture = Fixture::new();
    let tree = fixture.tree();
    let path = "/dev/nvidia-caps-imex-channels/channel";
    for channel in [0, 1, 2047] {
        let found = imex(&tree, channel).unwrap();
        assert_eq!(rules(&found), [format!("{path}{channel} c:237:{channel}:rw")]);
        assert_eq!(found.warnings.len(), 1);
    }
    assert_eq!(imex(&tree, 2048), Err(NvidiaError::Channel(2048)));
    fixture.file("dev/nvidia-caps-imex-channels/channel2048", "c 237:2048");
    assert_eq!(imex(&tree, 2048).unwrap().warnings.len(), 0);
    fixture.file("dev/nvidia-caps-imex-channels/channel1", "c 235:1");
    assert!(matches!(imex(&tree, 1), Err(NvidiaError::Stale { .. })));
    fixture.file("proc/devices", "Character devices:\n235 nvidia-caps\n");
    let none = Err(NvidiaError::NotLoaded("nvidia-caps-imex-channels"));
    assert_eq!(imex(&fixture.tree(), 0), none);
}

#[test]
fn a_node_to_be_made_is_told_by_path_and_only_where_a_job_may_have_it() {
    let fixture = Fixture::new();
    let unborn = |path: &str| {
        unborn_node(&fixture.tree(), path).map(|node| node.map(|node| node.to_string()))
    };
    let live = gi_minor(0, 9);
    for (path, numbers) in [
        ("/dev/nvidia-uvm".to_owned(), "c 510:0".to_owned()),
        ("/dev/nvidia-uvm-tools".to_owned(), "c 510:1".to_owned()),
        (format!("/dev/nvidia-caps/nvidia-cap{live}"), format!("c 235:{live}")),
        ("/dev/nvidia-caps-imex-channels/channel7".to_owned(), "c 237:7".to_owned()),
    ] {
        assert_eq!(unborn(&path), Ok(Some(numbers)), "{path}");
    }
    for path in [
        "/dev/nvidia0",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm2",
        "/dev/nvidia-caps/nvidia-cap",
        "/dev/nvidia-caps/nvidia-cap012",
        "/dev/nvidia-caps/../nvidia-uvm",
        "/run/nvidia/driver/dev/nvidia-uvm",
        "/dev//nvidia-uvm",
    ] {
        assert_eq!(unborn(path), Ok(None), "{path}");
    }
    for minor in [0, 1, 2, 3, 4323, 9999] {
        let error = unborn(&format!("/dev/nvidia-caps/nvidia-cap{minor}"));
        assert!(matches!(error, Err(NvidiaError::Misfit(_))), "{minor}");
    }
    let channel = unborn("/dev/nvidia-caps-imex-channels/channel2048");
    assert_eq!(channel, Err(NvidiaError::Channel(2048)));
    fixture.file("proc/devices", "Character devices:\n195 nvidia\n");
    assert_eq!(unborn("/dev/nvidia-uvm"), Err(NvidiaError::NotLoaded("nvidia-uvm")));
}
