use super::*;

#[test]
fn node_of_another_device_is_refused() {
    let fixture = Fixture::new();
    let gpu = fixture.gpus().unwrap().remove(0);
    let node = || super::resolve_gpu_node(&fixture.tree(), &gpu).map(|found| rules(&found));
    fixture.file("dev/nvidia2", "c 195:3");
    assert_refused(node(), "its minor must be 2");
    fixture.file("dev/nvidia2", "c 226:2");
    assert_refused(node(), "and not of nvidia");
    fixture.file("dev/nvidia2", "b 7:2");
    assert_refused(node(), "and not of nvidia");
    fixture.remove("dev/nvidia2");
    std::os::unix::fs::symlink("nvidia3", fixture.0.path().join("dev/nvidia2")).unwrap();
    assert_refused(node(), "symbolic link");
    fixture.remove("dev/nvidia2");
    let error = node().unwrap_err().to_string();
    assert!(
        error.starts_with("/dev/nvidia2: ") && error.contains("nvidia-modprobe"),
        "{error}"
    );
}

#[test]
fn shared_nodes_have_the_numbers_of_proc_devices() {
    let fixture = Fixture::new();
    let found = resolve_shared_nodes(&fixture.tree()).unwrap();
    assert_eq!(
        (rules(&found), found.warnings),
        (SHARED.map(str::to_owned).to_vec(), vec![])
    );
    for drivers in [
        "195 nvidia-frontend\n",
        "195 nvidia\n195 nvidia-frontend\n",
        "195 nvidiactl\n",
    ] {
        let text = format!("Character devices:\n{drivers}510 nvidia-uvm\n");
        fixture.file("proc/devices", &text);
        assert_eq!(
            rules(&resolve_shared_nodes(&fixture.tree()).unwrap()),
            SHARED,
            "{drivers:?}"
        );
    }
    fixture.file(
        "proc/devices",
        "Character devices:\n195 nvidia\n196 nvidiactl\n",
    );
    assert_refused(
        resolve_shared_nodes(&fixture.tree()),
        "driver nvidiactl has several majors",
    );
}

#[test]
fn missing_shared_node_gets_its_future_numbers_and_a_warning() {
    let fixture = Fixture::new();
    fixture.remove("dev/nvidia-uvm");
    let found = resolve_shared_nodes(&fixture.tree()).unwrap();
    assert_eq!(rules(&found), SHARED);
    assert_eq!(found.warnings.len(), 1);
    assert!(found.warnings[0].starts_with("/dev/nvidia-uvm is not there yet"));
}

#[test]
fn stale_node_is_refused_with_both_numbers() {
    let fixture = Fixture::new();
    fixture.file("dev/nvidia-uvm", "c 511:0");
    let error = resolve_shared_nodes(&fixture.tree())
        .unwrap_err()
        .to_string();
    let text = "/dev/nvidia-uvm is c 511:0, but by /proc/devices it must be c 510:0";
    assert!(error.starts_with(text), "{error}");
    for stale in ["c 510:1", "b 510:0"] {
        fixture.file("dev/nvidia-uvm", stale);
        assert_refused(
            resolve_shared_nodes(&fixture.tree()),
            "but by /proc/devices it must be",
        );
    }
}

#[test]
fn shared_nodes_of_an_unloaded_driver_are_late_and_the_command_is_named() {
    let fixture = Fixture::new();
    fixture.file("proc/devices", &DEVICES.replace("510 nvidia-uvm\n", ""));
    let found = resolve_shared_nodes(&fixture.tree()).unwrap();
    assert_eq!(rules(&found), SHARED[..1]);
    assert_eq!(
        found.late,
        [
            "/dev/nvidia-uvm and /dev/nvidia-uvm-tools: their driver is not loaded: run nvidia-modprobe -u -c 0 (or \
          modprobe nvidia-uvm)"
        ]
    );
    assert!(found.warnings.is_empty());
}

#[test]
fn instance_has_its_parent_the_shared_nodes_and_two_capabilities() {
    let fixture = Fixture::new();
    let found = fixture.instance(1, 2, 0).unwrap();
    let gi = gi_minor(3, 2);
    let ci = gi_minor(3, 2) + 1;
    let caps = [gi, ci].map(|minor| format!("/dev/nvidia-caps/nvidia-cap{minor} c:235:{minor}:r"));
    let mut expected = vec!["/dev/nvidia3 c:195:3:rw".to_owned()];
    expected.extend(SHARED.map(str::to_owned));
    expected.extend(caps);
    assert_eq!(rules(&found), expected);
    fixture.remove("proc/driver/nvidia-caps/mig-minors");
    assert_eq!(rules(&fixture.instance(1, 2, 0).unwrap()), expected);
}

#[test]
fn instance_that_does_not_exist_now_is_an_error() {
    let fixture = Fixture::new();
    for (gpu, gi, ci) in [(1, 3, 0), (1, 1, 1), (2, 1, 0), (4, 1, 0)] {
        assert_refused(fixture.instance(gpu, gi, ci), "no such MIG instance");
    }
    fixture.remove("proc/driver/nvidia/capabilities");
    assert_refused(fixture.instance(1, 2, 0), "no such MIG instance");
}

#[test]
fn capability_is_refused_if_the_driver_files_disagree() {
    let fixture = Fixture::new();
    let path = "gpu3/mig/gi2/ci0/access";
    let minor = gi_minor(3, 2);
    fixture.cap(path, minor + 2);
    assert_refused(
        fixture.instance(1, 2, 0),
        &format!("but mig-minors has {}", minor + 1),
    );
    fixture.file(
        &format!("proc/driver/nvidia/capabilities/{path}"),
        "DeviceFileMinor: -1\n",
    );
    assert_refused(fixture.instance(1, 2, 0), "no DeviceFileMinor");
    fixture.cap(path, minor + 1);
    fixture.file(
        &format!("dev/nvidia-caps/nvidia-cap{minor}"),
        &format!("c 237:{minor}"),
    );
    assert_refused(fixture.instance(1, 2, 0), "but by /proc/devices it must be");
    fixture.file("proc/devices", &DEVICES.replace("235 nvidia-caps\n", ""));
    assert_refused(
        fixture.instance(1, 2, 0),
        "no driver nvidia-caps in /proc/devices",
    );
}

#[test]
fn imex_channel_has_the_channel_major_and_its_own_number() {
    let fixture = Fixture::new();
    // A tree reads each node once.
    let resolve = |channel| resolve_imex_channel(&fixture.tree(), channel);
    let path = "/dev/nvidia-caps-imex-channels/channel";
    for channel in [0, 1, 2047] {
        let found = resolve(channel).unwrap();
        assert_eq!(
            rules(&found),
            [format!("{path}{channel} c:237:{channel}:rw")]
        );
        assert_eq!(found.warnings.len(), 1);
    }
    assert_refused(resolve(2048), "no IMEX channel 2048");
    fixture.file("dev/nvidia-caps-imex-channels/channel2048", "c 237:2048");
    assert_eq!(resolve(2048).unwrap().warnings.len(), 0);
    fixture.file("dev/nvidia-caps-imex-channels/channel1", "c 235:1");
    assert_refused(resolve(1), "but by /proc/devices it must be");
    fixture.file("proc/devices", "Character devices:\n235 nvidia-caps\n");
    assert_refused(
        resolve(0),
        "no driver nvidia-caps-imex-channels in /proc/devices",
    );
}

#[test]
fn future_node_is_known_by_path_unless_jobs_are_denied() {
    let fixture = Fixture::new();
    let unborn = |path: &str| {
        future_node(&fixture.tree(), path).map(|node| node.map(|node| node.to_string()))
    };
    let live = gi_minor(0, 9);
    for (path, numbers) in [
        ("/dev/nvidia-uvm".to_owned(), "c 510:0".to_owned()),
        ("/dev/nvidia-uvm-tools".to_owned(), "c 510:1".to_owned()),
        ("/dev/nvidia-modeset".to_owned(), "c 195:254".to_owned()),
        (
            format!("/dev/nvidia-caps/nvidia-cap{live}"),
            format!("c 235:{live}"),
        ),
        (
            "/dev/nvidia-caps-imex-channels/channel7".to_owned(),
            "c 237:7".to_owned(),
        ),
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
        let path = format!("/dev/nvidia-caps/nvidia-cap{minor}");
        assert_refused(unborn(&path), &format!("{path} is c 235:{minor}"));
    }
    let channel = unborn("/dev/nvidia-caps-imex-channels/channel2048");
    assert_refused(channel, "no IMEX channel 2048");
    fixture.file("proc/devices", "Character devices:\n195 nvidia\n");
    assert_refused(
        unborn("/dev/nvidia-uvm"),
        "no driver nvidia-uvm in /proc/devices",
    );
}
