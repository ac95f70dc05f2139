//! Round trips of replies, and damaged messages that decoding must refuse.

use super::*;

fn variables(texts: &[&str]) -> Variables {
    let mut variables = Variables::default();
    texts
        .iter()
        .for_each(|text| variables.push(text.parse::<Variable>().unwrap()).unwrap());
    variables
}

fn plan() -> Plan {
    let mut list = Allowlist::new();
    list.push("c:195:0:rw".parse().unwrap()).unwrap();
    list.push("c:136:-1:rw".parse().unwrap()).unwrap();
    Plan {
        job: "4242".parse().unwrap(),
        rule: ChoiceRule::Newest,
        placement: Placement::Cgroup {
            path: "/system.slice/site-job-4242.scope".parse().unwrap(),
            leaf: Some("logins".parse().unwrap()),
        },
        ends: Some(1_795_201_200),
        gpus: 1,
        containment: Containment::Enforce(list),
        limits: LoginLimits {
            memory_mib: 0,
            memory_percent: 25,
            memory_high_mib: 2048,
            memory_high_percent: 0,
            tasks: 512,
            cpu_weight: 50,
            io_weight: 10,
        },
        end_grace: 60,
        namespaces: None,
        probes: vec!["c:195:1:rw /dev/nvidia1".parse().unwrap()],
        dropped: vec!["/dev/nvidia7: no such file".into()],
        env: Variables::default(),
    }
}

fn registry_placement() -> Placement {
    Placement::Cgroup {
        path: "/a".parse().unwrap(),
        leaf: None,
    }
}

fn slurm_placement() -> Placement {
    Placement::Extern {
        spool: "/var/spool/slurmd".parse().unwrap(),
        node: "gpu017".parse().unwrap(),
    }
}

/// The plan of a Slurm job with variables.
fn slurm_plan() -> Plan {
    let env = variables(&["SLURM_JOB_ID=4242", "CUDA_VISIBLE_DEVICES=0,1"]);
    Plan {
        namespaces: Some("4242".parse().unwrap()),
        placement: slurm_placement(),
        env,
        ..plan()
    }
}

fn reply(verdict: Verdict) -> Reply {
    Reply {
        stack: SessionLine::Effective,
        auth_fault: String::new(),
        detail: "cause".into(),
        warnings: vec!["one".into(), "two".into()],
        hint: "squeue --me".into(),
        message: String::new(),
        verdict,
    }
}

fn refusal() -> Refusal {
    Refusal {
        reason: Reason::ChoiceNeeded,
        jobs: vec!["1".parse().unwrap(), "2".parse().unwrap()],
        ended: None,
        device: String::new(),
    }
}

#[test]
fn reply_round_trips() {
    let placement = registry_placement();
    let both = Containment::InheritAndEnforce(Allowlist::new());
    for verdict in [
        Verdict::Admit(plan()),
        Verdict::Admit(Plan {
            containment: Containment::None,
            placement,
            ..plan()
        }),
        Verdict::Admit(slurm_plan()),
        Verdict::Admit(Plan {
            placement: slurm_placement(),
            probes: Vec::new(),
            ..plan()
        }),
        Verdict::Admit(Plan {
            containment: both,
            ..plan()
        }),
        Verdict::Admit(Plan {
            containment: Containment::Inherit,
            ends: None,
            ..plan()
        }),
        Verdict::Admit(Plan {
            rule: ChoiceRule::OnlyJob,
            ..plan()
        }),
        Verdict::Admit(Plan {
            rule: ChoiceRule::Caller,
            ..plan()
        }),
        Verdict::Admit(Plan {
            rule: ChoiceRule::Chosen,
            ..plan()
        }),
        Verdict::Admit(Plan {
            rule: ChoiceRule::Answered,
            ..plan()
        }),
        Verdict::Refuse(refusal()),
        Verdict::NotEnforced,
    ] {
        let reply = reply(verdict);
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    }
}

#[test]
fn truncated_reply_is_refused() {
    let bytes = reply(Verdict::Admit(plan())).encode();
    for length in 0..bytes.len() {
        assert!(Reply::decode(&bytes[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn missing_doubled_or_swapped_entry_is_refused() {
    let is_refused_reply = |bytes: &[u8]| Reply::decode(bytes).is_err();
    for verdict in [
        Verdict::Admit(plan()),
        Verdict::Admit(slurm_plan()),
        Verdict::Refuse(refusal()),
        Verdict::NotEnforced,
    ] {
        check_every_disorder(&reply(verdict).encode(), is_refused_reply);
    }
    let request = Request {
        phase: Phase::Session,
        user: "alice".into(),
        uid: 1001,
        service: "sshd".into(),
        node: "gpu017".into(),
        rhost: "10.1.0.5".into(),
        ssh_connection: String::new(),
        conf: Request::DEFAULT_CONF.into(),
        several: SeveralJobsPolicy::Deny,
        budget_ms: 5000,
        wait_ms: 0,
        unit: String::new(),
    };
    check_every_disorder(&request.encode(), |bytes| Request::decode(bytes).is_err());
}

/// Leaves out, doubles, and swaps with its neighbour, every single entry.
fn check_every_disorder(bytes: &[u8], is_refused: fn(&[u8]) -> bool) {
    let fields: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == 0).collect();
    let entries: Vec<&[&[u8]]> = fields.chunks(2).collect();
    let assert_refused = |changed: &[&[&[u8]]], disorder: &str| {
        let message = changed.concat().concat();
        assert!(
            is_refused(&message),
            "{disorder}: {:?}",
            String::from_utf8(message)
        );
    };
    for index in 0..entries.len() {
        let mut less = entries.clone();
        less.remove(index);
        assert_refused(&less, "left out");
        let mut more = entries.clone();
        more.insert(index, entries[index]);
        assert_refused(&more, "doubled");
        if index > 0 {
            let mut swapped = entries.clone();
            swapped.swap(index - 1, index);
            assert_refused(&swapped, "swapped");
        }
    }
}

#[test]
fn missing_mode_is_refused() {
    let bytes = reply(Verdict::Admit(Plan {
        containment: Containment::None,
        ..plan()
    }));
    let text = String::from_utf8(bytes.encode()).unwrap();
    let without = text.replace("mode\0snone\0", "");
    assert_ne!(text, without);
    assert_eq!(
        Reply::decode(without.as_bytes()),
        Err(DecodeError::MissingKey("mode".into()))
    );
}

#[test]
fn plan_with_too_many_probes_is_refused() {
    let probes = |count| vec!["c:195:1:rw /dev/nvidia1".parse().unwrap(); count];
    let decode_with = |count| {
        let plan = Plan {
            probes: probes(count),
            ..plan()
        };
        Reply::decode(&reply(Verdict::Admit(plan)).encode())
    };
    assert!(decode_with(PROBES_MAX).is_ok());
    let error = DecodeError::InvalidValue("probe.count".into());
    assert_eq!(decode_with(PROBES_MAX + 1), Err(error));
}

#[test]
fn value_out_of_range_is_refused() {
    let text = String::from_utf8(reply(Verdict::Admit(plan())).encode()).unwrap();
    for (good, bad) in [
        ("device.count\0i2", "device.count\0i1025"),
        ("device.count\0i2", "device.count\0i-1"),
        ("sc:195:0:rw", "sc:4096:0:rw"),
        ("sc:136:-1:rw", "sc:195:0:rw"),
        ("sc:195:0:rw", "sc:136:-1:rw"),
        ("sc:195:0:rw", "sc:195:0:wr"),
        ("sc:195:0:rw", "sc:195:0:rrw"),
        ("warning.count\0i2", "warning.count\0i257"),
        ("ends\0i1795201200", "ends\0i-1"),
        ("/system.slice", "/.."),
        ("job\0s4242", "job\0s../4242"),
        ("leaf\0slogins", "leaf\0scgroup.procs"),
        ("memory\0i0", "memory\0i64"),
        ("memory_percent\0i25", "memory_percent\0i101"),
        (
            "memory\0i0\0memory_percent\0i25",
            "memory\0i63\0memory_percent\0i0",
        ),
        ("memory_high\0i2048", "memory_high\0i63"),
        ("memory_high_percent\0i0", "memory_high_percent\0i1"),
        ("io_weight\0i10", "io_weight\0i10001"),
        ("tasks\0i512", "tasks\0i15"),
        ("tasks\0i512", "tasks\0i4194305"),
        ("cpu_weight\0i50", "cpu_weight\0i10001"),
        ("end_grace\0i60", "end_grace\0i61"),
        ("namespaces\0s\0", "namespaces\0s../7\0"),
        ("rule\0snewest", "rule\0soldest"),
        ("rule\0snewest", "rule\0s"),
    ] {
        let changed = text.replacen(good, bad, 1);
        assert_ne!(changed, text, "{good}");
        assert!(
            Reply::decode(changed.as_bytes()).is_err(),
            "{bad} was taken"
        );
    }
}

#[test]
fn types_of_rfc_38_that_no_message_has_are_refused_with_their_name() {
    let text = String::from_utf8(reply(Verdict::Admit(plan())).encode()).unwrap();
    let decode = |bad: &str| {
        let changed = text.replacen("tasks\0i512", &format!("tasks\0{bad}"), 1);
        assert_ne!(changed, text);
        Reply::decode(changed.as_bytes()).unwrap_err().to_string()
    };
    for (bad, name) in [("d512.0", "d (double)"), ("t1795201200", "t (timestamp)")] {
        let expected = format!("key tasks has the type {name}, which no message has");
        assert_eq!(decode(bad), expected);
    }
    for other in ["s512", "btrue", "x", ""] {
        assert_eq!(decode(other), "key tasks has a value out of range");
    }
}

#[test]
fn overlong_text_and_refusal_with_code_of_admission_are_refused() {
    let error = |reply: Reply| Reply::decode(&reply.encode()).unwrap_err();
    let hint = "h".repeat(80);
    let message = "m".repeat(400);
    let longest = Reply {
        hint,
        message,
        ..reply(Verdict::NotEnforced)
    };
    assert_eq!(Reply::decode(&longest.encode()), Ok(longest.clone()));
    let invalid = |key: &str| DecodeError::InvalidValue(key.into());
    assert_eq!(
        error(Reply {
            hint: "h".repeat(81),
            ..longest.clone()
        }),
        invalid("hint")
    );
    assert_eq!(
        error(Reply {
            message: "m".repeat(401),
            ..longest
        }),
        invalid("message")
    );
    let admitted = Refusal {
        reason: Reason::Admitted,
        ..refusal()
    };
    assert_eq!(error(reply(Verdict::Refuse(admitted))), invalid("code"));
}

#[test]
fn placement_is_written_as_its_source() {
    let unit = Placement::Unit {
        path: "/a".parse().unwrap(),
        flux: 9,
    };
    for placement in [registry_placement(), slurm_placement(), unit] {
        assert_eq!(placement.as_str(), placement.source().as_str());
        let verdict = Verdict::Admit(Plan {
            placement,
            env: Variables::default(),
            ..plan()
        });
        let reply = reply(verdict);
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    }
}

#[test]
fn full_allowlist_fits_reply() {
    let mut list = Allowlist::new();
    for minor in 0..ALLOWLIST_ENTRIES_MAX {
        list.push(format!("c:4095:{}:rwm", 1_000_000 + minor).parse().unwrap())
            .unwrap();
    }
    let plan = Plan {
        containment: Containment::Enforce(list),
        ..plan()
    };
    assert!(reply(Verdict::Admit(plan)).encode().len() < REPLY_BYTES_MAX);
}

/// A subverted helper might send such variables.
#[test]
fn variable_that_does_not_describe_job_is_refused() {
    let text = String::from_utf8(reply(Verdict::Admit(slurm_plan())).encode()).unwrap();
    for bad in [
        "LD_PRELOAD=/tmp/x",
        "PATH=/tmp",
        "BASH_ENV=/tmp/x",
        "SLURM_CONF=/tmp/x",
        "NVIDIA_VISIBLE_DEVICES=all",
        "FLUX_JOB_ID=4242",
        "SLURM_JOB_ID=4242",
        "SLURM_JOBID=4243",
        "SLURM_SUBMIT_DIR=$(id)",
        "SLURM_NNODES=PATH=1",
        "SLURM_NODELIST=-oProxyCommand=/tmp/x",
        "SLURM_JOB_USER=a\nLD_PRELOAD=/tmp/x",
        "SLURM_JOBID",
    ] {
        let changed = text.replace("CUDA_VISIBLE_DEVICES=0,1", bad);
        assert_ne!(changed, text);
        let refused = Err(DecodeError::InvalidValue("env.1".into()));
        assert_eq!(Reply::decode(changed.as_bytes()), refused, "{bad}");
    }
    let many = text.replace("env.count\0i2", "env.count\0i33");
    let refused = Err(DecodeError::InvalidValue("env.count".into()));
    assert_eq!(Reply::decode(many.as_bytes()), refused);
    let without = reply(Verdict::Admit(plan())).encode();
    let without = String::from_utf8(without).unwrap();
    let entries = "env.count\0i1\0env.0\0sSLURM_JOB_ID=4242\0";
    let with = without.replace("env.count\0i0\0", entries);
    let other_refused = Err(DecodeError::InvalidValue("env.0".into()));
    assert_eq!(
        Reply::decode(with.as_bytes()),
        other_refused,
        "in a job of no scheduler"
    );
}
