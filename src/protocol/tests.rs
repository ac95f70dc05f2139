//! Round trips, and every disorder that must be refused.

use super::*;

fn env(variables: &[&str]) -> Variables {
    let mut env = Variables::default();
    variables.iter().for_each(|text| env.push(text.parse::<Variable>().unwrap()).unwrap());
    env
}

fn plan() -> Plan {
    let mut list = Allowlist::new();
    list.push("c:195:0:rw".parse().unwrap()).unwrap();
    list.push("c:136:-1:rw".parse().unwrap()).unwrap();
    Plan {
        job: "4242".parse().unwrap(),
        rule: Rule::Newest,
        placement: Placement::Cgroup {
            path: "/system.slice/site-job-4242.scope".parse().unwrap(),
            leaf: Some("logins".parse().unwrap()),
        },
        ends: Some(1_795_201_200),
        gpus: 1,
        containment: Containment::Enforce(list),
        probes: vec!["c:195:1:rw /dev/nvidia1".parse().unwrap()],
        dropped: vec!["/dev/nvidia7: no such file".into()],
        env: Variables::default(),
    }
}

fn plain() -> Placement {
    Placement::Cgroup { path: "/a".parse().unwrap(), leaf: None }
}

fn of_slurm() -> Placement {
    Placement::Extern {
        spool: "/var/spool/slurmd".parse().unwrap(),
        node: "gpu017".parse().unwrap(),
    }
}

/// Of a job of Slurm's, with variables.
fn plan_of_slurm() -> Plan {
    let env = env(&["SLURM_JOB_ID=4242", "CUDA_VISIBLE_DEVICES=0,1"]);
    Plan { placement: of_slurm(), env, ..plan() }
}

fn reply(verdict: Verdict) -> Reply {
    Reply {
        stack: Stack::Effective,
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
fn round_trips() {
    for verdict in [
        Verdict::Admit(plan()),
        Verdict::Admit(Plan { containment: Containment::None, placement: plain(), ..plan() }),
        Verdict::Admit(plan_of_slurm()),
        Verdict::Admit(Plan { placement: of_slurm(), probes: Vec::new(), ..plan() }),
        Verdict::Admit(Plan { containment: Containment::Both(Allowlist::new()), ..plan() }),
        Verdict::Admit(Plan { containment: Containment::Inherit, ends: None, ..plan() }),
        Verdict::Admit(Plan { rule: Rule::OnlyJob, ..plan() }),
        Verdict::Admit(Plan { rule: Rule::Caller, ..plan() }),
        Verdict::Admit(Plan { rule: Rule::Chosen, ..plan() }),
        Verdict::Admit(Plan { rule: Rule::Answered, ..plan() }),
        Verdict::Refuse(refusal()),
        Verdict::NotEnforced,
    ] {
        let reply = reply(verdict);
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    }
}

#[test]
fn every_truncation_is_refused() {
    let bytes = reply(Verdict::Admit(plan())).encode();
    for length in 0..bytes.len() {
        assert!(Reply::decode(&bytes[..length]).is_err(), "{length} bytes");
    }
}

/// Every single entry left out, doubled, or swapped with its neighbour.
#[test]
fn every_disorder_is_refused() {
    let reply_is_refused = |bytes: &[u8]| Reply::decode(bytes).is_err();
    for verdict in [
        Verdict::Admit(plan()),
        Verdict::Admit(plan_of_slurm()),
        Verdict::Refuse(refusal()),
        Verdict::NotEnforced,
    ] {
        every_disorder_of(&reply(verdict).encode(), reply_is_refused);
    }
    let request = Request {
        phase: Phase::Session,
        user: "alice".into(),
        uid: 1001,
        service: "sshd".into(),
        node: "gpu017".into(),
        rhost: "10.1.0.5".into(),
        ssh_connection: String::new(),
        conf: Request::CONF.into(),
        several: Several::Deny,
        budget_ms: 5000,
        wait_ms: 0,
        unit: String::new(),
    };
    every_disorder_of(&request.encode(), |bytes| Request::decode(bytes).is_err());
}

fn every_disorder_of(bytes: &[u8], is_refused: fn(&[u8]) -> bool) {
    let fields: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == 0).collect();
    let entries: Vec<&[&[u8]]> = fields.chunks(2).collect();
    let refused = |entries: &[&[&[u8]]], what: &str| {
        let bytes = entries.concat().concat();
        assert!(is_refused(&bytes), "{what}: {:?}", String::from_utf8(bytes));
    };
    for index in 0..entries.len() {
        let mut less = entries.clone();
        less.remove(index);
        refused(&less, "left out");
        let mut more = entries.clone();
        more.insert(index, entries[index]);
        refused(&more, "doubled");
        if index > 0 {
            let mut swapped = entries.clone();
            swapped.swap(index - 1, index);
            refused(&swapped, "swapped");
        }
    }
}

#[test]
fn a_missing_mode_is_fatal() {
    let bytes = reply(Verdict::Admit(Plan { containment: Containment::None, ..plan() }));
    let text = String::from_utf8(bytes.encode()).unwrap();
    let without = text.replace("mode\0snone\0", "");
    assert_ne!(text, without);
    assert_eq!(Reply::decode(without.as_bytes()), Err(DecodeError::Key("mode".into())));
}

#[test]
fn no_more_is_tried_than_may_be() {
    let probes = |count| vec!["c:195:1:rw /dev/nvidia1".parse().unwrap(); count];
    let decoded = |count| {
        let plan = Plan { probes: probes(count), ..plan() };
        Reply::decode(&reply(Verdict::Admit(plan)).encode())
    };
    assert!(decoded(MAX_PROBES).is_ok());
    assert_eq!(decoded(MAX_PROBES + 1), Err(DecodeError::Value("probe.count".into())));
}

#[test]
fn values_out_of_range_are_refused() {
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
        ("rule\0snewest", "rule\0soldest"),
        ("rule\0snewest", "rule\0s"),
    ] {
        let changed = text.replacen(good, bad, 1);
        assert_ne!(changed, text, "{good}");
        assert!(Reply::decode(changed.as_bytes()).is_err(), "{bad} was taken");
    }
}

/// What no key tells by its type.
#[test]
fn texts_that_are_too_long_and_a_refusal_that_admits_are_refused() {
    let wrong = |reply: Reply| Reply::decode(&reply.encode()).unwrap_err();
    let (hint, message) = ("h".repeat(80), "m".repeat(400));
    let longest = Reply { hint, message, ..reply(Verdict::NotEnforced) };
    assert_eq!(Reply::decode(&longest.encode()), Ok(longest.clone()));
    let value = |key: &str| DecodeError::Value(key.into());
    assert_eq!(wrong(Reply { hint: "h".repeat(81), ..longest.clone() }), value("hint"));
    assert_eq!(wrong(Reply { message: "m".repeat(401), ..longest }), value("message"));
    let admitted = Refusal { reason: Reason::Admitted, ..refusal() };
    assert_eq!(wrong(reply(Verdict::Refuse(admitted))), value("code"));
}

#[test]
fn a_placement_is_written_as_its_source() {
    for placement in [plain(), of_slurm(), Placement::Unit { path: "/a".parse().unwrap(), flux: 9 }]
    {
        assert_eq!(placement.as_str(), placement.source().as_str());
        let verdict = Verdict::Admit(Plan { placement, env: Variables::default(), ..plan() });
        let reply = reply(verdict);
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    }
}

#[test]
fn a_full_allowlist_fits_the_limit() {
    let mut list = Allowlist::new();
    for minor in 0..MAX_ENTRIES {
        list.push(format!("c:4095:{}:rwm", 1_000_000 + minor).parse().unwrap()).unwrap();
    }
    let plan = Plan { containment: Containment::Enforce(list), ..plan() };
    assert!(reply(Verdict::Admit(plan)).encode().len() < REPLY_MAX);
}

/// What a subverted helper might try.
#[test]
fn no_variable_is_taken_but_those_that_describe_the_job() {
    let text = String::from_utf8(reply(Verdict::Admit(plan_of_slurm())).encode()).unwrap();
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
        let refused = Err(DecodeError::Value("env.1".into()));
        assert_eq!(Reply::decode(changed.as_bytes()), refused, "{bad}");
    }
    let many = text.replace("env.count\0i2", "env.count\0i20");
    let refused = Err(DecodeError::Value("env.count".into()));
    assert_eq!(Reply::decode(many.as_bytes()), refused);
    let none = reply(Verdict::Admit(plan())).encode();
    let none = String::from_utf8(none).unwrap();
    let with = "env.count\0i1\0env.0\0sSLURM_JOB_ID=4242\0";
    let with = none.replace("env.count\0i0\0", with);
    let refused = Err(DecodeError::Value("env.0".into()));
    assert_eq!(Reply::decode(with.as_bytes()), refused, "in a job of no scheduler");
}
