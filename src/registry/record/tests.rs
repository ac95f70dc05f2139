use super::*;

const FULL: &str = r#"{ "version": 1, "id": "4242", "uid": 1001,
    "cgroup": "/system.slice/site-job-4242.scope", "started": 1795201200, "ends": 1795203000,
    "leaf": "logins",
    "options": { "DevicePolicy": "closed", "DeviceAllow": [["/dev/nvidia0", "rw"], ["char-pts", "rw"]] },
    "cdi": ["nvidia.com/gpu=0"],
    "gpus": ["GPU-edfee158-11c1-52b8-0517-92f30e7fac88", 3, "0000:65:00.0"],
    "gres": {"gpu": [0, 1]}, "device_dir": "/run/devices/4242" }"#;

/// A record of the required keys, with `more` in front of the closing brace.
fn with(more: &str) -> Result<Record, RecordError> {
    Record::parse(format!(r#"{{"version":1,"id":"1","uid":5,"cgroup":"/a"{more}}}"#).as_bytes())
}

#[test]
fn a_full_record_round_trips() {
    let record = Record::parse(FULL.as_bytes()).unwrap();
    assert_eq!(record.started, Some(1_795_201_200));
    assert_eq!(record.gpus.as_ref().unwrap().get(1), Some(&Gpu::Index(3)));
    assert_eq!(Record::parse(record.to_json().unwrap().as_bytes()), Ok(record.clone()));
    let Devices::Wanted(wanted) = record.devices() else { panic!("{:?}", record.devices()) };
    assert_eq!(wanted.policy, Policy::Closed);
    assert_eq!(wanted.allow.len(), 2);
    assert_eq!(wanted.named.first().unwrap().to_string(), "nvidia.com/gpu=0");
    assert_eq!(wanted.named.len(), 7);
}

#[test]
fn a_small_record_round_trips() {
    let record = with("").unwrap();
    assert_eq!(Record::parse(record.to_json().unwrap().as_bytes()), Ok(record));
    let via = br#"{"version":1,"id":"1","uid":5,"via":"flux","options":{}}"#;
    let via = Record::parse(via).unwrap();
    assert_eq!(via.place, Place::Via(Via::Flux));
    assert_eq!(Record::parse(via.to_json().unwrap().as_bytes()), Ok(via));
    let via = br#"{"version":1,"id":"1","uid":5,"via":"slurm","cdi":[],
                   "env":{"SLURM_JOB_NTASKS":"2","SLURM_JOB_WORK_DIR":"/a b"}}"#;
    let via = Record::parse(via).unwrap();
    assert_eq!(via.env.as_ref().unwrap().get("SLURM_JOB_WORK_DIR"), Some("/a b"));
    assert_eq!(Record::parse(via.to_json().unwrap().as_bytes()), Ok(via));
}

#[test]
fn what_it_says_about_devices() {
    let policy = |more: &str| match with(more).unwrap().devices() {
        Devices::Unsaid => "unsaid",
        Devices::Uncontained => "uncontained",
        Devices::Wanted(wanted) => wanted.policy.as_str(),
    };
    for (more, says) in [
        ("", "unsaid"),
        (r#","options":{}"#, "unsaid"),
        (r#","options":{"DevicePolicy":"auto"}"#, "uncontained"),
        (r#","options":{"DevicePolicy":"auto","DeviceAllow":[]}"#, "closed"),
        (r#","options":{"DevicePolicy":"auto"},"gpus":[]"#, "closed"),
        (r#","options":{"DeviceAllow":[]}"#, "closed"),
        (r#","options":{"DevicePolicy":"closed"}"#, "closed"),
        (r#","options":{"DevicePolicy":"strict"}"#, "strict"),
        (r#","options":{"DevicePolicy":"strict"},"cdi":[]"#, "strict"),
        (r#","cdi":[]"#, "closed"),
        (r#","gpus":[0]"#, "closed"),
        (r#","gres":{}"#, "closed"),
        (r#","device_dir":"/d""#, "closed"),
    ] {
        assert_eq!(policy(more), says, "{more}");
    }
}

#[test]
fn malformed_records_are_refused() {
    for more in [
        r#","x":1"#,
        r#","uid":5"#,
        r#","via":"slurm""#,
        r#","started":0"#,
        r#","started":-1"#,
        r#","started":1.5"#,
        r#","started":"1""#,
        r#","started":null"#,
        r#","ends":9223372036854775808"#,
        r#","leaf":"cgroup.procs""#,
        r#","leaf":null"#,
        r#","options":null"#,
        r#","options":["closed",[]]"#,
        r#","options":{"DevicePolicy":"open"}"#,
        r#","options":{"DevicePolicy":"Closed"}"#,
        r#","options":{"DevicePolicy":null}"#,
        r#","options":{"DevicePolicy":1}"#,
        r#","options":{"DevicePolicy":"auto","DevicePolicy":"auto"}"#,
        r#","options":{"x":1}"#,
        r#","options":{"DeviceAllow":null}"#,
        r#","options":{"DeviceAllow":"/dev/null"}"#,
        r#","options":{"DeviceAllow":{}}"#,
        r#","options":{"DeviceAllow":["/dev/null"]}"#,
        r#","options":{"DeviceAllow":[["/dev/null"]]}"#,
        r#","options":{"DeviceAllow":[["/dev/null","r","x"]]}"#,
        r#","options":{"DeviceAllow":[["/dev/null",1]]}"#,
        r#","cdi":"nvidia.com/gpu=0""#,
        r#","cdi":[""]"#,
        r#","cdi":[1]"#,
        r#","gpus":[-1]"#,
        r#","gpus":[0.5]"#,
        r#","gpus":[4294967296]"#,
        r#","gpus":[""]"#,
        r#","gpus":[null]"#,
        r#","gres":[]"#,
        r#","gres":{"gpu":0}"#,
        r#","gres":{"gpu":[-1]}"#,
        r#","gres":{"gpu":[0],"gpu":[1]}"#,
        r#","gres":{"":[0]}"#,
        r#","device_dir":"run""#,
        r#","device_dir":"/a\u000ab""#,
    ] {
        assert!(with(more).is_err(), "{more} was taken");
    }
    for text in [
        "",
        "{}",
        "[]",
        r#"[1,"1",5,"/a"]"#,
        r#"{"version":2,"id":"1","uid":5,"cgroup":"/a"}"#,
        r#"{"version":"1","id":"1","uid":5,"cgroup":"/a"}"#,
        r#"{"version":1,"id":"1","uid":5}"#,
        r#"{"version":1,"id":"1","cgroup":"/a"}"#,
        r#"{"version":1,"id":1,"uid":5,"cgroup":"/a"}"#,
        r#"{"version":1,"id":"../1","uid":5,"cgroup":"/a"}"#,
        r#"{"version":1,"id":"1","uid":-5,"cgroup":"/a"}"#,
        r#"{"version":1,"id":"1","uid":0,"cgroup":"/a"}"#,
        r#"{"version":1,"id":"1","uid":4294967295,"cgroup":"/a"}"#,
        r#"{"version":1,"id":"1","uid":"5","cgroup":"/a"}"#,
        r#"{"version":1,"id":"1","uid":5,"cgroup":"/"}"#,
        r#"{"version":1,"id":"1","uid":5,"cgroup":"a"}"#,
        r#"{"version":1,"id":"1","uid":5,"cgroup":"/a/../b"}"#,
        r#"{"version":1,"id":"1","uid":5,"via":"pbs"}"#,
        r#"{"version":1,"id":"1","uid":5,"cgroup":"/a","env":{}}"#,
        r#"{"version":1,"id":"1","uid":5,"via":"flux","env":{}}"#,
        r#"{"version":1,"id":"1","uid":5,"via":"slurm","env":[]}"#,
        r#"{"version":1,"id":"1","uid":5,"via":"slurm","env":null}"#,
        r#"{"version":1,"id":"1","uid":5,"via":"slurm","env":{"SLURM_JOB_NTASKS":2}}"#,
        r#"{"version":1,"id":"1","uid":5,"via":"slurm","env":{"SLURM_JOB_NTASKS":""}}"#,
        r#"{"version":1,"id":"1","uid":5,"via":"slurm","env":{"PATH":"/x"}}"#,
        r#"{"version":1,"id":"1","uid":5,"via":"slurm","env":{"SLURM_JOB_USER":"a\u000ab"}}"#,
        r#"{"version":1,"id":"1","uid":5,"via":"slurm",
            "env":{"SLURM_JOB_USER":"a","SLURM_JOB_USER":"b"}}"#,
        r#"{"version":1,"id":"1","uid":5,"cgroup":"/a"} x"#,
        r#"{"version":1,"id":"1","uid":5,"cgroup":"/a"}{}"#,
    ] {
        assert!(Record::parse(text.as_bytes()).is_err(), "{text} was taken");
    }
}

#[test]
fn deep_nesting_is_an_error() {
    let deep = format!(r#","gpus":{}"#, "[".repeat(100_000));
    assert!(with(&deep).is_err());
}

#[test]
fn errors_fit_one_line() {
    let error = with(",\"a\\nb\":1").unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error:?}");
}
