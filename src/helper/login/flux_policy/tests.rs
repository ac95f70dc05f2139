use super::*;
use crate::config::Config;
use crate::devices::{DeviceSettings, Resolver};
use crate::jobs::Job;
use crate::jobs::records::Record;
use crate::login::device_numbers::tests::register_text;
use crate::node::Tree;
use crate::testing::Scratch;

const UNIT_HEAD: &str = "[Unit]\nDescription=x\n\n[Service]\n";

/// A node with GPUs, and a Flux job on it.
struct UnitBench {
    scratch: Scratch,
    config: Config,
    job: Job,
}

impl UnitBench {
    fn new() -> Self {
        let scratch = Scratch::new();
        scratch.file(
            "proc/devices",
            "Character devices:\n 10 misc\n136 pts\n195 nvidia\n",
        );
        scratch.file("proc/sys/kernel/random/boot_id", "b1\n");
        for (name, numbers) in [
            ("null", "c 1:3"),
            ("nvidia0", "c 195:0"),
            ("nvidia1", "c 195:1"),
            ("fuse", "c 10:229"),
        ] {
            scratch.file(&format!("dev/{name}"), numbers);
        }
        let path = "/user.slice/user-992.slice/user@992.service/imp-shell-0-fxyzzy.service";
        let placement = Placement::Unit {
            path: path.parse().unwrap(),
            flux: 992,
        };
        let id = "fxyzzy".parse().unwrap();
        let job = Job {
            id,
            started: 1,
            ends: None,
            placement,
            slurm: None,
            record: None,
        };
        Self {
            scratch,
            config: Config::default(),
            job,
        }
    }

    fn record(&mut self, more: &str) {
        let text = format!(r#"{{"version":1,"id":"fxyzzy","uid":5,"via":"flux",{more}}}"#);
        let text = register_text(&text, &self.config, &self.resolver());
        self.job.record = Some(Record::parse(text.as_bytes()).unwrap());
    }

    fn resolver(&self) -> Resolver {
        let tree = Tree::with_root(self.scratch.path(), self.scratch.trust());
        Resolver::new(tree, DeviceSettings::default())
    }

    fn contain(&self, unit: &str) -> Result<JobContainment, LoginRefusal> {
        Planner::new(&self.job, &self.config, &self.resolver()).contain_by_flux(unit)
    }

    #[track_caller]
    fn list(&self, lines: &str) -> String {
        match self
            .contain(&format!("{UNIT_HEAD}{lines}\n"))
            .unwrap()
            .containment
        {
            Containment::Enforce(list) => {
                let rules: Vec<_> = list.rules().iter().map(ToString::to_string).collect();
                rules.join(" ")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn filter_of_the_imp_is_inherited() {
    let mut bench = UnitBench::new();
    let contained = bench.contain("").unwrap();
    assert_eq!(contained.containment, Containment::Inherit);
    bench.record(r#""options":{"DevicePolicy":"auto"}"#);
    assert_eq!(bench.contain("").unwrap().containment, Containment::Inherit);
    bench.record(r#""options":{"DevicePolicy":"strict","DeviceAllow":[["/dev/nvidia0","rw"]]}"#);
    let Containment::InheritAndEnforce(list) = bench.contain("").unwrap().containment else {
        panic!()
    };
    assert_eq!(list.rules(), ["c:195:0:rw".parse().unwrap()]);
}

#[test]
fn policy_of_the_unit_applies_without_a_filter() {
    let mut bench = UnitBench::new();
    assert_eq!(
        bench.list("DevicePolicy=strict\nDeviceAllow=/dev/nvidia1 rw"),
        "c:195:1:rw"
    );
    assert_eq!(bench.list("DevicePolicy=closed"), "c:1:3:rwm c:136:-1:rw");
    let closed = "c:1:3:rwm c:136:-1:rw c:195:1:rw";
    assert_eq!(
        bench.list("DevicePolicy=closed\nDeviceAllow=/dev/nvidia1 rw"),
        closed
    );
    assert_eq!(bench.list("DeviceAllow=/dev/nvidia1 rw"), closed);
    assert_eq!(bench.list("DevicePolicy=strict"), "");
    for none in [
        "",
        "DevicePolicy=auto",
        "DeviceAllow=/dev/nvidia1 rw\nDeviceAllow=",
    ] {
        let contained = bench.contain(&format!("{UNIT_HEAD}{none}\n")).unwrap();
        assert_eq!(contained.containment, Containment::None, "{none}");
    }
    bench.config.always_allowed = vec!["/dev/fuse rw".parse().unwrap()];
    assert_eq!(
        bench.list("DevicePolicy=closed"),
        "c:1:3:rwm c:136:-1:rw c:10:229:rw"
    );
    assert_eq!(bench.list("DevicePolicy=strict"), "");
}

#[test]
fn entries_that_the_imp_would_not_resolve_are_dropped() {
    let bench = UnitBench::new();
    let lines = "DevicePolicy=strict\nDeviceAllow=char-nvid* rw\nDeviceAllow=@hpc rw\n\
                 DeviceAllow=char-195 rw\nDeviceAllow=/dev/nvidia[01] rw\nDeviceAllow=/dev/none rw\n\
                 DeviceAllow=/dev/null rz\nDeviceAllow=char-misc r";
    assert_eq!(bench.list(lines), "c:10:-1:r");
    let contained = bench.contain(&format!("{UNIT_HEAD}{lines}\n")).unwrap();
    assert_eq!(contained.dropped.len(), 6, "{:?}", contained.dropped);
}

#[test]
fn lists_of_record_and_unit_are_intersected() {
    let mut bench = UnitBench::new();
    bench.record(
        r#""options":{"DevicePolicy":"strict",
           "DeviceAllow":[["/dev/nvidia0","rw"],["/dev/nvidia1","r"]]}"#,
    );
    assert_eq!(
        bench.list("DevicePolicy=strict\nDeviceAllow=/dev/nvidia1 rw"),
        "c:195:1:r"
    );
    assert_eq!(bench.list("DevicePolicy=auto"), "c:195:0:rw c:195:1:r");
}

#[test]
fn malformed_unit_refuses_the_login() {
    let bench = UnitBench::new();
    let LoginRefusal { refusal, cause } =
        bench.contain("[Service]\nDevicePolicy=open\n").unwrap_err();
    assert_eq!(refusal.reason, protocol::Reason::Configuration);
    assert_eq!(
        cause,
        "job fxyzzy: unit imp-shell-0-fxyzzy.service: line 2: DevicePolicy=open: DevicePolicy is \
         auto, closed or strict"
    );
}

fn list(rules: &str) -> Allowlist {
    let mut list = Allowlist::new();
    for rule in rules.split_whitespace() {
        list.push(rule.parse().unwrap()).unwrap();
    }
    list
}

#[test]
fn intersection_allows_the_common_devices() {
    for (one, other, both) in [
        ("c:195:0:rw", "c:195:0:rwm", "c:195:0:rw"),
        ("c:195:-1:rw", "c:195:1:r c:195:2:w", "c:195:1:r c:195:2:w"),
        ("c:195:0:rw", "b:195:0:rw", ""),
        ("c:195:0:rw", "c:195:1:rw", ""),
        ("c:195:0:r", "c:195:0:w", ""),
        ("c:195:0:r c:195:0:w", "c:195:0:rw", "c:195:0:rw"),
        ("c:1:-1:r", "c:1:-1:rm", "c:1:-1:r"),
        ("c:1:3:rw", "", ""),
    ] {
        assert_eq!(
            intersect(&list(one), &list(other)),
            Ok(list(both)),
            "{one} and {other}"
        );
        assert_eq!(
            intersect(&list(other), &list(one)),
            Ok(list(both)),
            "{other} and {one}"
        );
    }
}
