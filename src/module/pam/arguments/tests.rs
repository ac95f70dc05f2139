use super::*;

fn parsed(text: &str) -> Result<Settings, ArgumentError> {
    let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    parse(&arguments)
}

#[test]
fn defaults_deny() {
    let settings = parsed("").unwrap();
    assert_eq!(settings, Settings::default());
    assert_eq!(settings.no_jobs, Action::Deny);
    assert_eq!(settings.adopt_failure, Action::Deny);
    assert_eq!(settings.generic_failure, Action::Deny);
    assert_eq!(settings.service, None);
    assert_eq!((settings.timeout, settings.wait_job), (Duration::from_secs(5), Duration::ZERO));
}

#[test]
fn every_argument_is_taken() {
    let settings = parsed(
        "action_no_jobs=ignore action_unknown=deny action_adopt_failure=allow \
         action_generic_failure=ignore service=SSH-alt nodename=gpu017 log_level=debug2 \
         helper=/h conf=/c timeout=9 wait_job=8 require_devices observe exempt_uids=5,6 \
         exempt_groups=wheel,ops",
    )
    .unwrap();
    assert_eq!(settings.no_jobs, Action::Ignore);
    assert_eq!(settings.several, Several::Deny);
    assert_eq!(settings.adopt_failure, Action::Allow);
    assert_eq!(settings.generic_failure, Action::Ignore);
    assert_eq!(settings.service.as_deref(), Some("ssh-alt"));
    assert_eq!(settings.node.as_deref(), Some("gpu017"));
    assert_eq!(settings.log_level, Severity::Debug);
    assert_eq!((settings.helper.as_str(), settings.conf.as_str()), ("/h", "/c"));
    assert_eq!(settings.timeout, Duration::from_secs(9));
    assert_eq!(settings.wait_job, Duration::from_secs(8));
    assert!(settings.require_devices && settings.observe);
    assert_eq!(settings.exempt_uids, [5, 6]);
    assert_eq!(settings.exempt_groups, ["wheel", "ops"]);
}

#[test]
fn mistakes_are_refused_by_name() {
    for argument in [
        "action_no_job=deny",
        "action_no_jobs",
        "action_no_jobs=",
        "action_no_jobs=allow",
        "action_no_jobs=denied",
        "Observe",
        "CONF=/c",
        "disable_x11=0",
        "disable_x11=10",
        "ignore_root=0",
        "join_container=true",
        "join_container=",
        "single_job_skip_rpc=0",
        "service=*",
        "log_level=10",
        "log_level=0x3",
        "action_unknown=allow",
        "action_unknown=ignore",
        "action_adopt_failure=ignore",
        "action_generic_failure=maybe",
        "service=",
        "service=a/b",
        "nodename=a,b",
        "log_level=loud",
        "helper=resolve",
        "conf=",
        "timeout=0",
        "timeout=61",
        "timeout=-1",
        "timeout=+1",
        "timeout=5s",
        "wait_job=5",
        "require_devices=1",
        "observe=no",
        "debug=1",
        "exempt_uids=",
        "exempt_uids=1,",
        "exempt_uids=-1",
        "exempt_uids=root",
        "exempt_groups=,",
        "nonsense",
        "",
        "=",
        "\u{fffd}",
    ] {
        let error = parse(&[argument.to_owned()]).unwrap_err();
        assert_eq!(error.argument, argument);
    }
    assert_eq!(parsed("observe observe").unwrap_err().why, "is given twice");
    assert_eq!(parsed("service=a SERVICE=b").unwrap_err().why, "is given twice");
    assert_eq!(parsed("timeout=5 timeout=6").unwrap_err().why, "is given twice");
}

#[test]
fn what_pam_slurm_adopt_is_told_and_we_do_anyway_changes_nothing() {
    let same = parsed("disable_x11=1 ignore_root=1 join_container=false single_job_skip_rpc=1");
    assert_eq!(same.unwrap(), Settings::default());
}

#[test]
fn its_arguments_are_taken_in_any_case_and_its_levels_by_number() {
    let settings =
        parsed("Action_No_Jobs=IGNORE action_unknown=Newest JOIN_CONTAINER=False log_level=2");
    let settings = settings.unwrap();
    assert_eq!((settings.no_jobs, settings.several), (Action::Ignore, Several::Newest));
    assert_eq!(settings.log_level, Severity::Error);
    assert_eq!(parsed("log_level=DEBUG5").unwrap().log_level, Severity::Debug);
    for (words, severity) in [
        ("quiet 0", Severity::Alert),
        ("fatal 1 error 2", Severity::Error),
        ("info 3", Severity::Info),
        ("verbose 4 debug 5 debug2 6 debug3 7 debug4 8 debug5 9", Severity::Debug),
    ] {
        for word in words.split(' ') {
            let level = parsed(&format!("log_level={word}")).unwrap().log_level;
            assert_eq!(level, severity, "{word}");
        }
    }
    assert_eq!(parsed("nodename=GPU017").unwrap().node.as_deref(), Some("GPU017"));
}

#[test]
fn what_we_do_not_do_is_refused_with_the_way_out() {
    for (argument, way_out) in [
        ("disable_x11=0", "disable_x11=1"),
        ("ignore_root=0", "ignore_root=1"),
        ("join_container=true", "join_container=false"),
        ("single_job_skip_rpc=0", "single_job_skip_rpc=1"),
        ("action_unknown=allow", "newest or deny"),
        ("service=*", "name one"),
    ] {
        let why = parsed(argument).unwrap_err().why;
        assert!(why.contains(way_out), "{argument}: {why}");
    }
}
