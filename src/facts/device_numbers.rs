//! The numbers of a record's devices beside what its names come to today.

use helper::devices::DeviceSettings;
use helper::jobs::records::{NamedGpu, Record, RecordDevices, ResolvedList};
use helper::{Config, contain_by_record};
use naming::{NameResolver, resolve_record};
use protocol::Allowlist;
use std::collections::BTreeSet;

/// How the numbers of a record stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NumberState {
    /// Logins use them, and the names mean the same today; or the record asks for no list.
    Current,
    /// Logins are refused: the record says nothing about devices, so it has no names either.
    Unspecified,
    /// Logins are refused, for this cause: the numbers are missing, or of another boot or driver.
    Refused(String),
    /// Logins use them, and the names mean something else today.
    Outdated(Difference),
    /// Logins use them, and a name does not resolve today, for this cause. It is the job's end that matters to these.
    Unresolved(String),
}

/// The list of a record, and the one that its names come to today.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The rules of the record.
    pub recorded: BTreeSet<String>,
    /// The rules of today.
    pub today: BTreeSet<String>,
}

impl NumberState {
    /// Compares the numbers of a record with what a resolver finds. The caller has a login's rights.
    pub fn read(record: &Record, config: &Config, resolver: &mut NameResolver) -> Self {
        match record.devices() {
            RecordDevices::Uncontained => return Self::Current,
            RecordDevices::Unspecified => return Self::Unspecified,
            RecordDevices::Requested(_) => {}
        }
        if let Err(refusal) = contain_by_record(record, &resolver.specifiers.tree) {
            return Self::Refused(refusal.cause);
        }
        let Some(list) = &record.resolved else {
            return Self::Current;
        };
        resolver.specifiers.settings = settings_of(record, &config.devices);
        match resolve_record(record, config, resolver) {
            Err(error) => Self::Unresolved(error.to_string()),
            Ok(registration) => match registration.list {
                Some(today) if !is_same(list, &today) => {
                    Self::Outdated(Difference::new(&list.rules, &today.rules))
                }
                _ => Self::Current,
            },
        }
    }
}

/// The settings of devices with what Slurm called this node when the job was registered, if that is known.
pub fn settings_of(record: &Record, settings: &DeviceSettings) -> DeviceSettings {
    let before = record.resolved.as_ref();
    let before = before.and_then(|list| list.node_name.clone());
    DeviceSettings {
        node_name: before.or_else(|| settings.node_name.clone()),
        ..settings.clone()
    }
}

/// Tells whether two lists have the same devices, and the same GPUs among them by the same names.
fn is_same(list: &ResolvedList, today: &ResolvedList) -> bool {
    rule_texts(&list.rules) == rule_texts(&today.rules) && own_gpus(list) == own_gpus(today)
}

/// The GPUs of the node that a list has.
fn own_gpus(list: &ResolvedList) -> Vec<&NamedGpu> {
    let rules = rule_texts(&list.rules);
    let is_own = |gpu: &&NamedGpu| rules.contains(&gpu.own_node.rule.to_string());
    list.gpus.iter().filter(is_own).collect()
}

fn rule_texts(rules: &Allowlist) -> BTreeSet<String> {
    rules.rules().iter().map(ToString::to_string).collect()
}

impl Difference {
    fn new(recorded: &Allowlist, today: &Allowlist) -> Self {
        Self {
            recorded: rule_texts(recorded),
            today: rule_texts(today),
        }
    }

    /// Describes what registering the job again would change.
    pub fn describe(&self) -> String {
        let join = |one: &BTreeSet<String>, other: &BTreeSet<String>| {
            let rules: Vec<&str> = one.difference(other).map(String::as_str).collect();
            rules.join(" ")
        };
        let more = join(&self.today, &self.recorded);
        let less = join(&self.recorded, &self.today);
        match (more.as_str(), less.as_str()) {
            ("", "") => "its GPUs have other names today".to_owned(),
            (more, "") => format!("its names mean {more} as well today"),
            ("", less) => format!("its names do not mean {less} any more"),
            (more, less) => format!("its names mean {more} in place of {less} today"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use helper::node::Tree;
    use kernel::trust::Trust;
    use nix::unistd::Uid;

    const DRIVERS: &str = "Character devices:\n195 nvidia\n";

    /// Lays out a node whose CDI device `site.org/gpu=mine` is this node of NVIDIA's driver.
    fn lay_out(device: &str) -> Scratch {
        let scratch = Scratch::new();
        scratch.file("proc/sys/kernel/random/boot_id", "b1\n");
        scratch.file("proc/devices", DRIVERS);
        for minor in 0..3 {
            scratch.file(&format!("dev/nvidia{minor}"), &format!("c 195:{minor}"));
        }
        specify(&scratch, device);
        scratch
    }

    fn specify(scratch: &Scratch, device: &str) {
        let spec = format!(
            r#"{{"cdiVersion":"0.5.0","kind":"site.org/gpu","devices":[{{"name":"mine","containerEdits":{{"deviceNodes":[{device}]}}}}]}}"#
        );
        scratch.file("etc/cdi/site.json", &spec);
    }

    fn resolver(scratch: &Scratch) -> NameResolver {
        let trust = Trust::below(scratch.path(), Uid::effective().as_raw());
        let tree = Tree::with_root(scratch.path(), trust);
        NameResolver::new(tree, DeviceSettings::default())
    }

    fn record(scratch: &Scratch, keys: &str) -> Record {
        let text = format!(r#"{{"version":1,"id":"7","uid":5,"cgroup":"/a",{keys}}}"#);
        let mut record = Record::parse(text.as_bytes()).unwrap();
        let registration = resolve_record(&record, &Config::default(), &resolver(scratch));
        record.resolved = registration.unwrap().list;
        record
    }

    fn state(scratch: &Scratch, record: &Record) -> NumberState {
        NumberState::read(record, &Config::default(), &mut resolver(scratch))
    }

    #[test]
    fn numbers_that_names_do_not_come_to_today_are_outdated() {
        let one = r#"{"path":"/dev/nvidia1"}"#;
        let scratch = lay_out(one);
        let record = record(&scratch, r#""cdi":["site.org/gpu=mine"]"#);
        assert_eq!(state(&scratch, &record), NumberState::Current);
        for (devices, expected) in [
            (
                r#"{"path":"/dev/nvidia2"}"#,
                "its names mean c:195:2:rw in place of c:195:1:rw today",
            ),
            (
                r#"{"path":"/dev/nvidia1"},{"path":"/dev/nvidia2"}"#,
                "its names mean c:195:2:rw as well today",
            ),
        ] {
            specify(&scratch, devices);
            let NumberState::Outdated(difference) = state(&scratch, &record) else {
                panic!("{devices}: {:?}", state(&scratch, &record));
            };
            assert_eq!(difference.describe(), expected);
        }
        let both = r#"{"path":"/dev/nvidia1"},{"path":"/dev/nvidia2"}"#;
        specify(&scratch, both);
        let of_both = self::record(&scratch, r#""cdi":["site.org/gpu=mine"]"#);
        specify(&scratch, one);
        let NumberState::Outdated(difference) = state(&scratch, &of_both) else {
            panic!("{:?}", state(&scratch, &of_both));
        };
        let expected = "its names do not mean c:195:2:rw any more";
        assert_eq!(difference.describe(), expected);
        scratch.file("etc/cdi/site.json", "{");
        let unresolved = state(&scratch, &of_both);
        assert!(
            matches!(unresolved, NumberState::Unresolved(_)),
            "{unresolved:?}"
        );
    }

    #[test]
    fn numbers_that_refuse_logins_are_found_before_names_are_resolved() {
        let scratch = lay_out(r#"{"path":"/dev/nvidia1"}"#);
        let record = record(&scratch, r#""cdi":["site.org/gpu=mine"]"#);
        scratch.file("etc/cdi/site.json", "{");
        scratch.file("proc/devices", "Character devices:\n195 other\n");
        let refused = state(&scratch, &record);
        assert!(matches!(refused, NumberState::Refused(_)), "{refused:?}");
        let without = Record {
            resolved: None,
            ..record
        };
        let NumberState::Refused(cause) = state(&scratch, &without) else {
            panic!();
        };
        assert_eq!(
            cause,
            "job 7: its record has no device numbers: run job-adopt register --again 7"
        );
        let free =
            r#"{"version":1,"id":"7","uid":5,"cgroup":"/a","options":{"DevicePolicy":"auto"}}"#;
        let free = Record::parse(free.as_bytes()).unwrap();
        assert_eq!(state(&scratch, &free), NumberState::Current);
    }

    /// The driver was loaded anew: a GPU has another minor, and the same driver.
    #[test]
    fn gpu_with_another_minor_is_outdated() {
        let scratch = lay_out("");
        let uuid = |minor: u32| format!("GPU-edfee158-11c1-52b8-0517-92f30e7fac8{minor}");
        let number = |minors: [u32; 2]| {
            for (bus, minor) in minors.into_iter().enumerate() {
                let address = format!("0000:1{bus}:00.0");
                let function = format!("sys/bus/pci/devices/{address}");
                scratch.file(&format!("{function}/vendor"), "0x10de\n");
                let driver = scratch.path().join(function).join("driver");
                // The second call finds it.
                let _ = std::os::unix::fs::symlink("../nvidia", driver);
                let bus = u32::try_from(bus).unwrap();
                scratch.file(
                    &format!("proc/driver/nvidia/gpus/{address}/information"),
                    &format!("GPU UUID: \t {}\nDevice Minor: \t {minor}\n", uuid(bus)),
                );
            }
        };
        scratch.file(
            "proc/devices",
            "Character devices:\n195 nvidia\n510 nvidia-uvm\n",
        );
        scratch.file("dev/nvidiactl", "c 195:255");
        number([0, 1]);
        let record = record(&scratch, &format!(r#""gpus":["{}"]"#, uuid(0)));
        assert_eq!(state(&scratch, &record), NumberState::Current);
        number([1, 0]);
        let NumberState::Outdated(difference) = state(&scratch, &record) else {
            panic!("{:?}", state(&scratch, &record));
        };
        assert_eq!(
            difference.describe(),
            "its names mean c:195:1:rw in place of c:195:0:rw today"
        );
    }
}
