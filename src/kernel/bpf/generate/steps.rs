//! The entries of one device type as a step function over all device numbers.

use std::collections::{BTreeMap, BTreeSet};

use super::MINOR_BITS;
use crate::protocol::{Access, DeviceRule, DeviceType};

/// From `start` up to the next step, the same access is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Major above minor.
    pub(super) start: u32,
    /// Union of all entries for these devices; empty where there is none.
    pub(super) access: Access,
}

/// The steps of `kind`: the first begins at 0, starts ascend, neighbours differ in access.
///
/// Entries for the same device are added up, and so are those for all minors of its major.
pub(super) fn steps(kind: DeviceType, rules: &[DeviceRule]) -> Vec<Step> {
    let mut listed = Listed::default();
    for rule in rules.iter().filter(|rule| rule.kind() == kind) {
        listed.add(rule);
    }
    let mut steps: Vec<Step> = listed
        .starts()
        .into_iter()
        .map(|start| Step { start, access: listed.access(start) })
        .collect();
    steps.dedup_by_key(|step| step.access);
    steps
}

/// Accesses by key, and by major where every minor is meant.
#[derive(Default)]
struct Listed {
    devices: BTreeMap<u32, Access>,
    majors: BTreeMap<u32, Access>,
}

impl Listed {
    fn add(&mut self, rule: &DeviceRule) {
        let access = match rule.minor() {
            Some(minor) => self.devices.entry(rule.major() << MINOR_BITS | minor),
            None => self.majors.entry(rule.major()),
        }
        .or_default();
        *access = access.union(rule.access());
    }

    /// Every key at which the access may change: the first of each entry, and the first after it.
    fn starts(&self) -> BTreeSet<u32> {
        let majors = self.majors.keys().flat_map(|major| [Some(*major), major.checked_add(1)]);
        // There is no key after the last major's.
        let majors = majors.flatten().filter_map(|major| major.checked_mul(1 << MINOR_BITS));
        let devices = self.devices.keys().flat_map(|key| [Some(*key), key.checked_add(1)]);
        devices.flatten().chain(majors).chain([0]).collect()
    }

    fn access(&self, key: u32) -> Access {
        let device = self.devices.get(&key).copied().unwrap_or_default();
        let major = self.majors.get(&(key >> MINOR_BITS)).copied().unwrap_or_default();
        device.union(major)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rules: &[&str]) -> Vec<(u32, u32, String)> {
        let rules: Vec<DeviceRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let minor = (1 << MINOR_BITS) - 1;
        let split = |step: Step| (step.start >> MINOR_BITS, step.start & minor, step.access);
        let steps = steps(DeviceType::Char, &rules).into_iter().map(split);
        steps.map(|(major, minor, access)| (major, minor, access.to_string())).collect()
    }

    fn step(major: u32, minor: u32, access: &str) -> (u32, u32, String) {
        (major, minor, access.to_owned())
    }

    #[test]
    fn nothing_listed_is_one_step() {
        assert_eq!(of(&["b:1:3:rw"]), [step(0, 0, "")]);
    }

    #[test]
    fn consecutive_minors_are_one_step() {
        let rules = ["c:195:2:rw", "c:195:0:rw", "c:195:1:rw", "c:195:4:rw"];
        let steps = [(0, 0, ""), (195, 0, "rw"), (195, 3, ""), (195, 4, "rw"), (195, 5, "")];
        assert_eq!(of(&rules), steps.map(|(major, minor, access)| step(major, minor, access)));
    }

    #[test]
    fn equal_devices_and_wildcards_add_up() {
        let rules = ["c:1:-1:r", "c:1:3:w", "c:1:5:m", "c:1:5:w", "c:1:7:r"];
        let steps = [
            (0, 0, ""),
            (1, 0, "r"),
            (1, 3, "rw"),
            (1, 4, "r"),
            (1, 5, "rwm"),
            (1, 6, "r"),
            (2, 0, ""),
        ];
        assert_eq!(of(&rules), steps.map(|(major, minor, access)| step(major, minor, access)));
    }

    #[test]
    fn the_ends_of_the_numbers_are_steps_too() {
        let rules = ["c:0:0:r", "c:4095:1048575:w"];
        let steps = [step(0, 0, "r"), step(0, 1, ""), step(4095, 1_048_575, "w")];
        assert_eq!(of(&rules), steps);
        assert_eq!(of(&["c:4095:-1:r"]), [step(0, 0, ""), step(4095, 0, "r")]);
        assert_eq!(of(&["c:0:-1:r"]), [step(0, 0, "r"), step(1, 0, "")]);
    }
}
