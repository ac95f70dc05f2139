use super::*;
use crate::jobs::records::Record;
use crate::node::topology::tests::layout::Layout;
use protocol::{Allowlist, Placement};

const SLURM_ENV: &str = r#""SLURM_JOB_NODELIST":"n[1-2]","SLURM_JOB_NUM_NODES":"2",
    "SLURM_JOB_CPUS_PER_NODE":"4(x2)","SLURM_JOB_NTASKS":"4","SLURM_CLUSTER_NAME":"c""#;

/// A Slurm job whose record has these variables and devices.
fn job(env: &str, devices: &str) -> Job {
    let text =
        format!(r#"{{"version":1,"id":"7","uid":5,"via":"slurm","env":{{{env}}},{devices}}}"#);
    let placement = Placement::Extern {
        spool: "/spool".parse().unwrap(),
        node: "n1".parse().unwrap(),
    };
    let id = "7".parse().unwrap();
    let record = Some(Record::parse(text.as_bytes()).unwrap());
    Job {
        id,
        started: 0,
        ends: None,
        placement,
        slurm: None,
        record,
    }
}

const LIST: &str = r#""gres":{"gpu":[2]}"#;
const NO_LIST: &str = r#""options":{"DevicePolicy":"auto"}"#;

/// The variables of a login, and the warnings.
fn variables_of(
    job: &Job,
    env: JobEnvironment,
    containment: &Containment,
) -> (String, Vec<String>) {
    let login = login_variables(job, env, containment);
    let pairs: Vec<_> = login.variables.iter().map(ToString::to_string).collect();
    (pairs.join(" "), login.warnings)
}

/// Returns what `env = full` gives in a job with this environment, under Slurm's own filter.
fn full_of(env: &str) -> (String, Vec<String>) {
    variables_of(
        &job(env, NO_LIST),
        JobEnvironment::Full,
        &Containment::Inherit,
    )
}

#[test]
fn none_gives_no_variable_and_id_gives_the_id() {
    let job = job(SLURM_ENV, LIST);
    let of = |env| variables_of(&job, env, &Containment::Inherit);
    assert_eq!(of(JobEnvironment::None), (String::new(), vec![]));
    assert_eq!(of(JobEnvironment::Id), ("SLURM_JOB_ID=7".into(), vec![]));
    assert_eq!(of(JobEnvironment::Gpus), ("SLURM_JOB_ID=7".into(), vec![]));
}

/// The probes of a scheduler, or of all GPUs of the node, with their names.
fn probe_names(layout: &Layout, probes: &[&str]) -> Vec<String> {
    let probes = probes.iter().map(|text| text.parse().unwrap()).collect();
    let gpus = list_nameable_gpus(&layout.tree()).unwrap();
    name_probes(probes, &gpus)
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn each_gpu_is_probed_with_its_name_for_programs() {
    let layout = Layout::new();
    layout.nvidia("0000:1b:00.0", 1);
    layout.amd("0000:c1:00.0", 128, 1);
    layout.amd("0000:c2:00.0", 136, 2);
    layout.gpu("0000:d0:00.0", "xe", &["card20", "renderD180"]);
    layout.gpu("0000:d1:00.0", "xe", &["card21", "renderD181"]);
    layout.gpu("0000:d2:00.0", "other", &["card22", "renderD182"]);
    layout.habana("0000:e0:00.0", 0);
    for (function, vendor) in [("d0", "0x8086"), ("d1", "0x8086"), ("d2", "0x1002")] {
        let path = format!("sys/devices/pci/0000:{function}:00.0/vendor");
        layout.scratch.file(&path, &format!("{vendor}\n"));
    }
    layout.scratch.dir("sys/devices/pci/0000:d1:00.0/tile1");
    let uuid = "GPU-00000000-0000-0000-0000-000000000001";
    let all = [
        format!("c:195:1:rw /dev/nvidia1 CUDA_VISIBLE_DEVICES={uuid}"),
        "c:226:128:rw /dev/dri/renderD128 ROCR_VISIBLE_DEVICES=0".into(),
        "c:226:136:rw /dev/dri/renderD136 ROCR_VISIBLE_DEVICES=0".into(),
        "c:226:137:rw /dev/dri/renderD137 ROCR_VISIBLE_DEVICES=0".into(),
        "c:226:180:rw /dev/dri/renderD180 ZE_AFFINITY_MASK=0".into(),
        "c:226:181:rw /dev/dri/renderD181".into(),
        "c:226:182:rw /dev/dri/renderD182".into(),
        "c:261:0:rw /dev/accel/accel0".into(),
    ];
    assert_eq!(probe_names(&layout, &[]), all);
    let some = [
        "c:226:128:rw /dev/dri/renderD128",
        "c:195:7:rw /dev/nvidia7",
    ];
    assert_eq!(probe_names(&layout, &some), [&all[1], some[1]]);
    // If the driver does not know one UUID yet, all GPUs are named by number.
    layout.nvidia("0000:1c:00.0", 0);
    let unknown = "proc/driver/nvidia/gpus/0000:1c:00.0/information";
    layout.scratch.file(unknown, "Device Minor: \t 0\n");
    let cuda = |node| probe_names(node, &["c:195:1:rw /dev/nvidia1"]);
    assert_eq!(
        cuda(&layout),
        ["c:195:1:rw /dev/nvidia1 CUDA_VISIBLE_DEVICES=0"]
    );
    let live = "proc/driver/nvidia/capabilities/gpu0/mig/gi1/access";
    layout.scratch.file(live, "DeviceFileMinor: 12\n");
    assert_eq!(cuda(&layout), ["c:195:1:rw /dev/nvidia1"]);
}

/// A registered job whose record has these keys.
fn registered_job(id: &str, keys: &str) -> Job {
    let text = format!(r#"{{"version":1,"id":"{id}","uid":5,"cgroup":"/a",{keys}}}"#);
    let placement = Placement::Cgroup {
        path: "/a".parse().unwrap(),
        leaf: None,
    };
    Job {
        id: id.parse().unwrap(),
        placement,
        record: Some(Record::parse(text.as_bytes()).unwrap()),
        ..job(SLURM_ENV, LIST)
    }
}

#[test]
fn registered_job_has_its_id_by_the_name_of_its_scheduler() {
    for (scheduler, id, expected) in [
        (r#""scheduler":"gridengine","#, "77.3", "JOB_ID=77.3"),
        (
            r#""scheduler":"htcondor","#,
            "1.0-slot1",
            "JOB_ADOPT_JOB_ID=1.0-slot1",
        ),
        (r#""scheduler":"lsf","#, "77.0", "LSB_JOBID=77.0"),
        (r#""scheduler":"oar","#, "77", "OAR_JOB_ID=77"),
        (r#""scheduler":"openpbs","#, "77.site", "PBS_JOBID=77.site"),
        (r#""scheduler":"other","#, "77", "JOB_ADOPT_JOB_ID=77"),
        ("", "77", "JOB_ADOPT_JOB_ID=77"),
    ] {
        let job = registered_job(id, &format!(r#"{scheduler}"cdi":[]"#));
        let of = |env| variables_of(&job, env, &Containment::None);
        assert_eq!(of(JobEnvironment::None), (String::new(), vec![]));
        for env in [
            JobEnvironment::Id,
            JobEnvironment::Gpus,
            JobEnvironment::Full,
        ] {
            assert_eq!(of(env), (expected.to_owned(), vec![]), "{scheduler}");
        }
    }
}

#[test]
fn registered_job_has_all_variables_of_its_record_under_full_alone() {
    let keys = r#""cdi":[],"scheduler":"gridengine",
        "env":{"JOB_ID":"77","SGE_TASK_ID":"3","NSLOTS":"8","TMPDIR":"/tmp/77.3.all.q"}"#;
    let job = registered_job("77.3", keys);
    let all = "JOB_ID=77 NSLOTS=8 SGE_TASK_ID=3 TMPDIR=/tmp/77.3.all.q";
    for (env, expected) in [
        (JobEnvironment::None, ""),
        (JobEnvironment::Id, "JOB_ID=77"),
        (JobEnvironment::Gpus, "JOB_ID=77"),
        (JobEnvironment::Full, all),
    ] {
        assert_eq!(
            variables_of(&job, env, &Containment::None),
            (expected.to_owned(), vec![])
        );
    }
}

/// GPUs are named by what opens, but for those that only the prolog can name.
#[test]
fn list_of_the_prolog_stays_if_the_login_opens_more_or_no_name_is_known() {
    let layout = Layout::new();
    layout.nvidia("0000:1b:00.0", 0);
    layout.nvidia("0000:1c:00.0", 1);
    let env = format!(r#"{SLURM_ENV},"CUDA_VISIBLE_DEVICES":"1""#);
    let name_gpus = |containment: &Containment, gpus: &[NamedGpu]| {
        let job = job(&env, NO_LIST);
        let mut login = login_variables(&job, JobEnvironment::Full, containment);
        let probes = login.name_gpus(Vec::new(), gpus, &job, containment);
        let named = probes
            .iter()
            .filter(|probe| probe.variable.is_some())
            .count();
        let list = |text: &String| {
            text.strip_prefix("CUDA_VISIBLE_DEVICES=")
                .map(str::to_owned)
        };
        (
            login
                .variables
                .iter()
                .map(ToString::to_string)
                .find_map(|text| list(&text)),
            named,
        )
    };
    let gpus = list_nameable_gpus(&layout.tree()).unwrap();
    assert_eq!(name_gpus(&Containment::Inherit, &gpus), (None, 2));
    assert_eq!(
        name_gpus(&Containment::None, &gpus),
        (Some("1".to_owned()), 0)
    );
    let live = "proc/driver/nvidia/capabilities/gpu0/mig/gi1/access";
    layout.scratch.file(live, "DeviceFileMinor: 12\n");
    let unnamed = list_nameable_gpus(&layout.tree()).unwrap();
    assert_eq!(
        name_gpus(&Containment::Inherit, &unnamed),
        (Some("0".to_owned()), 0)
    );
}

#[test]
fn flux_job_has_its_id_alone() {
    let placement = Placement::Unit {
        path: "/a".parse().unwrap(),
        flux: 992,
    };
    let job = Job {
        id: "fxyzzy".parse().unwrap(),
        placement,
        ..job(SLURM_ENV, LIST)
    };
    for (env, expected) in [
        (JobEnvironment::None, ""),
        (JobEnvironment::Id, "FLUX_JOB_ID=fxyzzy"),
        (JobEnvironment::Gpus, "FLUX_JOB_ID=fxyzzy"),
        (JobEnvironment::Full, "FLUX_JOB_ID=fxyzzy"),
    ] {
        assert_eq!(
            variables_of(&job, env, &Containment::Inherit),
            (expected.to_owned(), vec![])
        );
    }
}

#[test]
fn full_gives_the_set_of_an_allocation_shell_and_no_step_variable() {
    let (given, warnings) = full_of(SLURM_ENV);
    let set = "SLURM_JOB_ID=7 SLURM_JOBID=7 SLURM_JOB_UID=5 SLURM_JOB_NODELIST=n[1-2] \
               SLURM_NODELIST=n[1-2] SLURM_JOB_NUM_NODES=2 SLURM_NNODES=2 \
               SLURM_JOB_CPUS_PER_NODE=4(x2) SLURM_TASKS_PER_NODE=2(x2) SLURM_CLUSTER_NAME=c";
    assert_eq!((given.as_str(), warnings), (set, vec![]));
    for step in [
        "SLURM_PROCID",
        "SLURM_STEP",
        "SLURM_NTASKS",
        "SLURM_LOCALID",
        "SLURM_NODEID",
    ] {
        assert!(!given.contains(step), "{step}");
    }
}

#[test]
fn missing_required_variable_leaves_the_id_alone() {
    let without = |name: &str| {
        let kept = SLURM_ENV.split(',').filter(|pair| !pair.contains(name));
        full_of(&kept.collect::<Vec<_>>().join(","))
    };
    for name in ["NODELIST", "NUM_NODES", "CPUS_PER_NODE", "NTASKS"] {
        let (given, warnings) = without(name);
        assert_eq!(given, "SLURM_JOB_ID=7", "{name}");
        let [warning] = warnings.as_slice() else {
            panic!("{warnings:?}")
        };
        assert!(
            warning.starts_with("env: only SLURM_JOB_ID is set: "),
            "{warning}"
        );
        assert!(warning.contains(name) || name == "NTASKS", "{warning}");
    }
    let (given, warnings) = full_of(&SLURM_ENV.replace("n[1-2]", "$(n)"));
    assert_eq!((given.as_str(), warnings.len()), ("SLURM_JOB_ID=7", 1));
    let without_record = Job {
        record: None,
        ..job(SLURM_ENV, LIST)
    };
    let (other_given, other_warnings) =
        variables_of(&without_record, JobEnvironment::Full, &Containment::Inherit);
    assert_eq!(other_given, "SLURM_JOB_ID=7");
    assert_eq!(
        other_warnings,
        ["env: only SLURM_JOB_ID is set: the job has no record"]
    );
}

#[test]
fn invalid_submit_dir_is_left_out_with_a_warning() {
    let env = |dir: &str| full_of(&format!(r#"{SLURM_ENV},"SLURM_JOB_WORK_DIR":"{dir}""#));
    assert!(env("/home/a").0.ends_with(" SLURM_SUBMIT_DIR=/home/a"));
    let (given, warnings) = env("/home/a b");
    assert!(
        given.contains("SLURM_NNODES=2") && !given.contains("SLURM_SUBMIT_DIR"),
        "{given}"
    );
    assert_eq!(warnings.len(), 1);
}

#[test]
fn gpus_count_from_0_if_the_others_are_hidden() {
    let cuda = |value: &str, devices: &str, containment: &Containment| {
        let env = format!(r#"{SLURM_ENV},"CUDA_VISIBLE_DEVICES":"{value}""#);
        let (given, _) = variables_of(&job(&env, devices), JobEnvironment::Full, containment);
        given.split(' ').find_map(|pair| {
            pair.strip_prefix("CUDA_VISIBLE_DEVICES=")
                .map(str::to_owned)
        })
    };
    let ours = Containment::Enforce(Allowlist::new());
    let both = Containment::InheritAndEnforce(Allowlist::new());
    for (devices, containment, seen) in [
        (NO_LIST, &Containment::None, "2,3"),
        (NO_LIST, &Containment::Inherit, "0,1"),
        (LIST, &ours, "0,1"),
        (LIST, &both, "0,1"),
        // The site's own list contains all GPUs.
        (NO_LIST, &ours, "2,3"),
        (NO_LIST, &both, "0,1"),
    ] {
        assert_eq!(
            cuda("2,3", devices, containment).as_deref(),
            Some(seen),
            "{containment:?}"
        );
        let uuids = "GPU-1,MIG-GPU-2/1/0";
        assert_eq!(cuda(uuids, devices, containment).as_deref(), Some(uuids));
    }
    assert_eq!(cuda("GPU-1,2", NO_LIST, &Containment::Inherit), None);
}

#[test]
fn tasks_per_node_are_given_only_if_certain() {
    for (tasks, nodes, cpus, expected) in [
        ("3", "1", "8", Some("3")),
        ("4", "2", "4(x2)", Some("2(x2)")),
        ("2", "2", "64(x2)", Some("1(x2)")),
        ("4", "2", "3,1", Some("3,1")),
        ("10", "3", "4(x2),2", Some("4(x2),2")),
        ("3", "2", "4(x2)", None),
        // Slurm could place 2 and 2, or 3 and 1 with two processors for each task.
        ("4", "2", "6,2", None),
        ("0", "1", "8", None),
        ("4", "3", "4(x2)", None),
        ("4", "2", "4(y2)", None),
        ("4", "2", "4(x2", None),
        ("4", "2", "", None),
        ("x", "1", "8", None),
        ("4", "2", "4294967295(x2)", None),
        ("4", "2", "8(x3)", None),
        ("4", "0", "8(x0)", None),
        ("4", "2", "8", None),
    ] {
        let actual = tasks_per_node(Some(tasks), nodes, cpus);
        assert_eq!(actual.as_deref(), expected, "{tasks} {nodes} {cpus}");
    }
    assert_eq!(tasks_per_node(None, "3", "1(x3)").as_deref(), Some("1(x3)"));
    assert_eq!(tasks_per_node(None, "1", "2"), None);
}
