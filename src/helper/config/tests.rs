use super::*;
use crate::testing::Scratch;

#[test]
fn keys_set_their_values() {
    let config = Config::parse(
        b"# site\nsources = registry\n\n enforce=if-exists:/etc/compute # nodes\n\
          registry = /run/x\nalways_allowed = /dev/fuse, char-pts r\n\
          message_file = /etc/motd.jobs\nhint = qstat -u $USER#1\n\
          callerid_networks = 10.1.0.0/16, fd77::5\ncallerid_timeout = 150\n",
    );
    let config = config.unwrap();
    assert_eq!(config.enforce, Some("/etc/compute".into()));
    assert_eq!(config.registry.dir(), Path::new("/run/x"));
    let allowed: Vec<_> = config
        .always_allowed
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(allowed, ["/dev/fuse rw", "char-pts r"]);
    assert_eq!(config.message_file, Some("/etc/motd.jobs".into()));
    assert_eq!(config.hint.as_deref(), Some("qstat -u $USER#1"));
    let networks = ["10.1.0.0/16", "fd77::5"].map(|text| text.parse::<Network>().unwrap());
    assert_eq!(config.callerid_networks, networks);
    assert_eq!(config.callerid_timeout, Duration::from_millis(150));
}

#[test]
fn empty_file_gives_the_defaults_of_caller_identity() {
    let config = Config::parse(b"").unwrap();
    assert!(
        config.callerid_networks.is_empty(),
        "a host is queried by default"
    );
    assert_eq!(config.callerid_timeout, Duration::from_millis(300));
}

#[test]
fn notice_is_a_list_of_minutes_or_none() {
    let notice = |text: &str| Config::parse(text.as_bytes()).map(|config| config.notice);
    assert_eq!(notice(""), Ok(vec![15, 5, 1]));
    assert_eq!(notice("notice = 1440, 1"), Ok(vec![1440, 1]));
    assert_eq!(notice("notice = none"), Ok(vec![]));
    for wrong in ["0", "1441", "5,", "5 min", "none, 5", "-1"] {
        let (line, fault) = notice(&format!("notice = {wrong}")).unwrap_err();
        let expected = "the value of notice is not none or a list of minutes, 1 to 1440";
        assert_eq!((line, fault.to_string().as_str()), (1, expected), "{wrong}");
    }
}

#[test]
fn callerid_timeout_is_accepted_at_its_bounds() {
    for millis in [10, 2000] {
        let config = Config::parse(format!("callerid_timeout = {millis}").as_bytes());
        assert_eq!(
            config.unwrap().callerid_timeout,
            Duration::from_millis(millis)
        );
    }
}

#[test]
fn limits_of_logins_are_accepted_at_their_bounds() {
    let memory = |text: &str| {
        let lines = format!("login_memory = {text}\nlogin_memory_high = {text}");
        Config::parse(lines.as_bytes()).map(|config| {
            let limits = config.login_limits;
            let high = (limits.memory_high_mib, limits.memory_high_percent);
            assert_eq!((limits.memory_mib, limits.memory_percent), high);
            high
        })
    };
    for (text, expected) in [
        ("64M", (64, 0)),
        ("4G", (4096, 0)),
        ("2T", (2 << 20, 0)),
        ("1%", (0, 1)),
        ("100%", (0, 100)),
    ] {
        assert_eq!(memory(text), Ok(expected), "{text}");
    }
    for text in [
        "63M", "0%", "101%", "0M", "4", "4g", "4 G", "4.5G", "-1%", "4096T", "%", "G",
    ] {
        for key in ["login_memory", "login_memory_high"] {
            let line = format!("{key} = {text}");
            assert!(Config::parse(line.as_bytes()).is_err(), "{line}");
        }
    }
    for (key, bounds, wrong) in [
        ("login_tasks", ["16", "4194304"], ["15", "4194305"]),
        ("login_cpu_weight", ["1", "10000"], ["0", "10001"]),
        ("login_io_weight", ["1", "10000"], ["0", "10001"]),
        ("end_grace", ["0", "60"], ["61", "1.5"]),
    ] {
        let parse = |value: &str| Config::parse(format!("{key} = {value}").as_bytes());
        assert!(
            bounds.into_iter().all(|value| parse(value).is_ok()),
            "{key}"
        );
        assert!(
            wrong.into_iter().all(|value| parse(value).is_err()),
            "{key}"
        );
    }
}

#[test]
fn errors_name_line_and_key() {
    for (text, line, expected) in [
        ("\nregistry\n", 2, "not of the form key = value"),
        ("x = 1", 1, "unknown key x"),
        (
            "enforce = always\n#\nenforce = always",
            3,
            "key enforce stands twice",
        ),
        (
            "enforce = never",
            1,
            "the value of enforce is not always or if-exists:/PATH",
        ),
        (
            "enforce = if-exists:x",
            1,
            "the value of enforce is not always or if-exists:/PATH",
        ),
        (
            "registry = run",
            1,
            "the value of registry is not an absolute path",
        ),
        (
            "registry =",
            1,
            "the value of registry is not text: it is empty or has a control character",
        ),
        (
            "sources = pbs",
            1,
            "the value of sources is not a list of: registry, slurm, flux",
        ),
        (
            "sources = registry,registry",
            1,
            "the value of sources is not a list of: registry, slurm, flux",
        ),
        (
            "always_allowed = /dev/fuse, null",
            1,
            "entry \"null\" of always_allowed: not a path below /dev, char-NAME, block-NAME or @hpc",
        ),
        (
            "always_allowed = /dev",
            1,
            "entry \"/dev\" of always_allowed: not a path below /dev, char-NAME, block-NAME or @hpc",
        ),
        (
            "always_allowed = /dev/**",
            1,
            "entry \"/dev/**\" of always_allowed: ** does not stand for directories: write one * for \
             each, as in /dev/*/*",
        ),
        (
            "always_allowed = @hpc, @all",
            1,
            "entry \"@all rw\" of always_allowed: not in [devices]",
        ),
        (
            "nodename = a b",
            1,
            "the value of nodename is not a host name",
        ),
        (
            "message_file = a",
            1,
            "the value of message_file is not an absolute path",
        ),
        (
            "Registry = /a",
            1,
            "unknown key Registry, did you mean registry?",
        ),
        (
            "source = slurm",
            1,
            "unknown key source, did you mean sources?",
        ),
        (
            "slurm-spool = /a",
            1,
            "unknown key slurm-spool, did you mean slurm_spool?",
        ),
        (
            "cdi_dir = /a",
            1,
            "unknown key cdi_dir, did you mean cdi_dirs?",
        ),
        ("exempt_users = a", 1, "unknown key exempt_users"),
        (
            "callerid_networks = 10.1.0.0/16, 10.2.0.5/16",
            1,
            "entry \"10.2.0.5/16\" of callerid_networks: an address in a network, not the network; \
             write 10.2.0.0/16 for that",
        ),
        (
            "callerid_networks = node-5",
            1,
            "entry \"node-5\" of callerid_networks: not an address (10.1.0.5) or a network \
             (10.1.0.0/16)",
        ),
        (
            "callerid_timeout = 9",
            1,
            "the value of callerid_timeout is not a number of milliseconds, 10 to 2000",
        ),
        (
            "callerid_timeout = 2001",
            1,
            "the value of callerid_timeout is not a number of milliseconds, 10 to 2000",
        ),
        (
            "callerid_timeout = 1s",
            1,
            "the value of callerid_timeout is not a number of milliseconds, 10 to 2000",
        ),
    ] {
        let (number, fault) = Config::parse(text.as_bytes()).unwrap_err();
        assert_eq!(
            (number, fault.to_string().as_str()),
            (line, expected),
            "{text:?}"
        );
    }
    assert_eq!(
        Config::parse(b"hint = \xff"),
        Err((1, ConfigFault::NotUtf8))
    );
    assert!(Config::parse("hint = \u{e4}".as_bytes()).is_err());
}

#[test]
fn comment_may_have_any_encoding() {
    for text in [
        &b"# f\xfcr alle\nhint = x"[..],
        b"hint = x\t# f\xfcr alle\n",
    ] {
        assert_eq!(Config::parse(text).unwrap().hint.as_deref(), Some("x"));
    }
}

#[test]
fn group_names_may_have_blanks() {
    let groups = |text: &str| Config::parse(text.as_bytes()).map(|config| config.exempt_groups);
    let expected = vec!["hpc admins@ad.example".to_owned(), "ops".to_owned()];
    assert_eq!(
        groups("exempt_groups = hpc admins@ad.example, ops\n"),
        Ok(expected)
    );
    for wrong in ["", "a,,b", "a:b", "a\tb"] {
        assert!(
            groups(&format!("exempt_groups = {wrong}\n")).is_err(),
            "{wrong}"
        );
    }
}

#[test]
fn registry_and_grace_are_read_despite_mistakes_elsewhere() {
    let scratch = Scratch::new();
    let path = scratch.path().join("job_adopt.conf");
    let found = || Config::read_for_end(&path, &scratch.trust());
    scratch.file("job_adopt.conf", "");
    assert_eq!(found(), Ok((Config::default(), None)));
    scratch.file(
        "job_adopt.conf",
        "enforce = newer\nregistry = /r\nend_grace = 7\n?\n",
    );
    let (config, fault) = found().unwrap();
    assert_eq!(config.registry.dir(), Path::new("/r"));
    assert_eq!(config.end_grace, 7);
    assert!(
        fault
            .unwrap()
            .to_string()
            .contains(":1: the value of enforce")
    );
    scratch.file("job_adopt.conf", "end_grace = soon\n");
    assert_eq!(found().unwrap().0.end_grace, 2);
    scratch.file("job_adopt.conf", "x = 1\nregistry = r");
    assert!(matches!(found(), Err(ConfigError::InvalidLine(_, 2, _))));
    scratch.mode("job_adopt.conf", 0o666);
    assert!(matches!(found(), Err(ConfigError::UntrustedFile(_))));
}

#[test]
fn missing_default_file_gives_the_defaults_and_any_other_an_error() {
    let scratch = Scratch::new();
    let named = Config::read(&scratch.path().join("typo.conf"), &scratch.trust());
    assert!(matches!(named, Err(ConfigError::UntrustedFile(error)) if error.is_missing()));
    let usual = Path::new(Request::DEFAULT_CONF);
    if !usual.exists() {
        assert_eq!(Config::read(usual, &Trust::root()), Ok(Config::default()));
    }
}

#[test]
fn malformed_or_untrusted_file_is_an_error() {
    let scratch = Scratch::new();
    let path = scratch.path().join("job_adopt.conf");
    scratch.file("job_adopt.conf", "x = 1");
    let error = Config::read(&path, &scratch.trust()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{}:1: unknown key x", path.display())
    );
    scratch.file("job_adopt.conf", "");
    assert!(Config::read(&path, &scratch.trust()).is_ok());
    scratch.mode("job_adopt.conf", 0o666);
    assert!(matches!(
        Config::read(&path, &scratch.trust()),
        Err(ConfigError::UntrustedFile(_))
    ));
}

#[test]
fn device_list_is_taken_as_flux_has_it() {
    let list = |text: &str| -> Vec<String> {
        let config = Config::parse(text.as_bytes()).unwrap();
        let shown = config.always_allowed.iter().map(ToString::to_string);
        shown.collect()
    };
    for blanks in [" ", "  ", "\t", " \t "] {
        let text = format!("always_allowed = /dev/cxi*{blanks}rw,/dev/xpmem{blanks}r");
        assert_eq!(list(&text), ["/dev/cxi* rw", "/dev/xpmem r"], "{blanks:?}");
    }
    assert_eq!(list("always_allowed ="), ["an empty entry"]);
    let mixed = list("always_allowed = /run/x rw, /dev/fuse,, /devil");
    assert_eq!(
        mixed,
        ["/run/x rw", "/dev/fuse rw", "an empty entry", "/devil"]
    );
    for text in ["hint = a\tb", "hint =", "registry =\t"] {
        assert!(Config::parse(text.as_bytes()).is_err(), "{text:?}");
    }
}

#[test]
fn section_gives_a_sites_names_of_devices() {
    let text = "# a comment\nalways_allowed = @fpga0 r\n\n[devices]\n# names\nfpga0 = /dev/xrt0,\t/dev/xrt0_ctl r\n\
                reg = /dev/reg\nve:1 = @hpc, /dev/ve*\n";
    let config = Config::parse(text.as_bytes()).unwrap();
    let shown: Vec<String> = config
        .devices
        .names
        .iter()
        .map(|(name, entries)| {
            let entries: Vec<String> = entries.iter().map(ToString::to_string).collect();
            format!("{name}: {}", entries.join(", "))
        })
        .collect();
    assert_eq!(
        shown,
        [
            "fpga0: /dev/xrt0 rw, /dev/xrt0_ctl r",
            "reg: /dev/reg rw",
            "ve:1: @hpc rw, /dev/ve* rw",
        ]
    );
    for (body, line, message) in [
        (
            "[devices]\n[devices]",
            2,
            "section [devices]: only [devices] is known, once",
        ),
        ("[gpus]", 1, "section [gpus]: only [devices] is known, once"),
        ("[devices]\nfpga", 2, "not of the form key = value"),
        (
            "[devices]\nFPGA = /dev/x",
            2,
            "\"FPGA\" is no name of devices: lower-case letters, digits, _, -, . and :, and not hpc",
        ),
        (
            "[devices]\nhpc = /dev/x",
            2,
            "\"hpc\" is no name of devices: lower-case letters, digits, _, -, . and :, and not hpc",
        ),
        (
            "[devices]\na = /dev/x\nalways_allowed = /dev/fuse",
            3,
            "always_allowed is a key: it stands above [devices]",
        ),
        ("[devices]\na = /dev/x\na = /dev/y", 3, "key a stands twice"),
        (
            "[devices]\na = @b",
            2,
            "entry \"@b\" of a: a name stands for no other name",
        ),
        (
            "[devices]\na = /etc/x",
            2,
            "entry \"/etc/x\" of a: not a path below /dev, char-NAME, block-NAME or @hpc",
        ),
        (
            "[devices]\na =",
            2,
            "entry \"\" of a: not a path below /dev, char-NAME, block-NAME or @hpc",
        ),
        (
            "\nalways_allowed = /dev/a, @b\n[devices]\na = /dev/x",
            2,
            "entry \"@b rw\" of always_allowed: not in [devices]",
        ),
    ] {
        let (at, fault) = Config::parse(body.as_bytes()).unwrap_err();
        assert_eq!((at, fault.to_string().as_str()), (line, message), "{body}");
    }
}
