use super::*;

#[test]
fn gpus_are_sorted_by_address_and_have_the_minors_of_the_driver() {
    let fixture = Fixture::new();
    let gpus = fixture.gpus().unwrap();
    assert_eq!(gpus.iter().map(|gpu| gpu.minor).collect::<Vec<_>>(), MINORS);
    assert!(
        gpus.windows(2)
            .all(|pair| pair[0].address < pair[1].address)
    );
    for (index, gpu) in gpus.iter().enumerate() {
        assert_eq!(gpu.uuid, Some(uuid(index)));
        let minor = MINORS[index];
        let own = [format!("/dev/nvidia{minor} c:195:{minor}:rw")];
        assert_eq!(rules(&resolve_gpu_node(&fixture.tree(), gpu).unwrap()), own);
    }
}

#[test]
fn pci_domains_sort_as_numbers() {
    let fixture = Fixture::new();
    for (domain, minor) in [("10000", "20"), ("2000", "21")] {
        let path = format!("proc/driver/nvidia/gpus/{domain}:01:00.0/information");
        fixture.file(&path, &information(minor, "", ""));
    }
    let minors: Vec<u32> = fixture
        .gpus()
        .unwrap()
        .iter()
        .map(|gpu| gpu.minor)
        .collect();
    assert_eq!(minors[8..], [21, 20]);
}

#[test]
fn node_without_the_driver_has_no_gpus() {
    let scratch = Scratch::new();
    assert_eq!(
        list_gpus(&Tree::with_root(scratch.path(), scratch.trust())),
        Ok(Vec::new())
    );
    let why = find_by_uuid(&[], &uuid(0)).unwrap_err();
    assert_eq!(
        why.to_string(),
        "NVIDIA's driver is not loaded, or has no GPU: nvidia-modprobe -u -c 0 loads it"
    );
}

#[test]
fn gpu_whose_uuid_the_driver_does_not_know_yet_has_none() {
    let fixture = Fixture::new();
    for line in [
        "",
        "GPU UUID: \t GPU-????????-????-????-????-????????????\n",
        "GPU UUID: \t N/A\n",
    ] {
        fixture.gpu("0a", &information("2", line, "GPU Excluded:\t No\n"));
        let gpus = fixture.gpus().unwrap();
        assert_eq!(
            (gpus.len(), &gpus[0].uuid, gpus[0].minor),
            (8, &None, 2),
            "{line:?}"
        );
    }
    let error = fixture.instance(0, 1, 0).unwrap_err();
    let error = error.to_string();
    let start = format!("NVIDIA's driver has no GPU-{}; of 1 of its GPUs", uuid(0));
    assert!(
        error.starts_with(&start) && error.contains("nvidia-persistenced"),
        "{error}"
    );
}

#[test]
fn excluded_gpu_is_not_listed() {
    let fixture = Fixture::new();
    for line in ["GPU Excluded:\t Yes\n", "Blacklisted:\t Yes\n"] {
        fixture.gpu("0a", &information("", "", line));
        assert_eq!(fixture.gpus().unwrap().len(), 7, "{line:?}");
    }
    fixture.gpu("0a", &information("2", "", ""));
    assert_eq!(fixture.gpus().unwrap().len(), 8);
}

#[test]
fn invalid_minor_is_an_error_that_names_the_file() {
    let fixture = Fixture::new();
    for minor in ["", "248", "255", "-1", "+2", "02", "2 ", "x", "4294967298"] {
        fixture.gpu("0a", &information(minor, "", ""));
        let text = match minor.trim_end() {
            "2" => continue,
            _ => fixture.gpus().unwrap_err().to_string(),
        };
        let path = "/proc/driver/nvidia/gpus/0000:0a:00.0/information";
        assert_eq!(
            text,
            format!("{path}: no Device Minor from 0 to 247"),
            "{minor:?}"
        );
    }
    fixture.gpu("0a", "Device Minor: \t 247\n");
    assert_eq!(fixture.gpus().unwrap()[0].minor, 247);
}

#[test]
fn shuffled_lines_parse_the_same_and_noise_gives_no_minor_out_of_range() {
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let fixture = Fixture::new();
    let expected = fixture.gpus().unwrap();
    let text = fixture
        .tree()
        .read_text("/proc/driver/nvidia/gpus/0000:0a:00.0/information")
        .unwrap();
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
fn two_gpus_with_one_minor_or_uuid_are_an_error() {
    let fixture = Fixture::new();
    fixture.gpu("0a", &information("3", "", ""));
    let error = fixture.gpus().unwrap_err().to_string();
    assert_eq!(
        error,
        "GPUs 0000:0a:00.0 and 0000:1b:00.0 both have minor 3"
    );
    let twin = format!("GPU UUID: GPU-{}\n", uuid(7).to_string().to_uppercase());
    fixture.gpu("0a", &information("2", &twin, ""));
    let other_error = fixture.gpus().unwrap_err().to_string();
    let both = format!("both have UUID GPU-{}", uuid(7));
    assert_eq!(
        other_error,
        format!("GPUs 0000:0a:00.0 and 0000:df:00.0 {both}")
    );
}

#[test]
fn driver_directory_is_bounded_and_contains_addresses_only() {
    let fixture = Fixture::new();
    fixture.file("proc/driver/nvidia/gpus/card0/information", "");
    assert_refused(
        fixture.gpus(),
        "card0/information: not below the PCI address of a GPU",
    );
    for number in 0..250 {
        fixture
            .0
            .dir(&format!("proc/driver/nvidia/gpus/{number:04x}:00:00.0"));
    }
    assert_refused(fixture.gpus(), "more than 256 entries");
}
