//! What `register` resolved the device names of a record to: a login reads these numbers, and no name.

use super::error::RecordError;
use super::strict_json::{ByName, MapOnly, require_value};
use crate::node::Device;
use protocol::{Allowlist, DeviceRule, DeviceType, MAJOR_MAX, Variable, parse_decimal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Maximum bytes of a boot id, a driver's name, a path and the name of a GPU.
const TEXT_BYTES_MAX: usize = 255;

/// The devices of a job in numbers. They hold as long as the node runs: its next boot, or another driver, may give a
/// number to another device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedList {
    /// The kernel's id of the boot (random(4)).
    pub boot_id: String,
    /// What Slurm called this node, whose lines of `gres.conf` counted; `None` if nobody said.
    pub node_name: Option<String>,
    /// The job's allowlist.
    pub rules: Allowlist,
    /// The drivers of the majors in the list, as `/proc/devices` named them. A major that had none is not among them.
    pub drivers: BTreeMap<Major, Vec<String>>,
    /// The GPUs of the node, those of other jobs too: programs are told of none where a login opens none.
    pub gpus: Vec<NamedGpu>,
}

/// A major of one kind of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Major {
    /// Character or block devices.
    pub kind: DeviceType,
    /// Its number, 0 to [`MAJOR_MAX`].
    pub number: u32,
}

/// A GPU, and what names it to programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedGpu {
    /// The node that reaches this GPU and no other.
    pub own_node: Device,
    /// The variable that names GPUs to programs, or `None` if no variable names this GPU; and the GPU's UUID in it, or
    /// `None` if the variable counts GPUs or the driver does not know the UUID.
    pub visible_devices: Option<(String, Option<String>)>,
}

/// The keys of [`ResolvedList`] in a record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireList {
    boot_id: String,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    node_name: Option<String>,
    rules: Vec<String>,
    drivers: ByName<Vec<String>>,
    gpus: Vec<MapOnly<WireGpu>>,
}

/// The keys of [`NamedGpu`] in a record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireGpu {
    device: String,
    node: String,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    variable: Option<String>,
    #[serde(
        default,
        deserialize_with = "require_value",
        skip_serializing_if = "Option::is_none"
    )]
    value: Option<String>,
}

impl WireList {
    pub(super) fn new(list: &ResolvedList) -> Self {
        let rules = list.rules.rules().iter().map(ToString::to_string);
        let drivers = list.drivers.iter();
        Self {
            boot_id: list.boot_id.clone(),
            node_name: list.node_name.clone(),
            rules: rules.collect(),
            drivers: ByName(
                drivers
                    .map(|(major, names)| (major.to_string(), names.clone()))
                    .collect(),
            ),
            gpus: list.gpus.iter().map(WireGpu::new).map(MapOnly).collect(),
        }
    }

    /// Checks the values. `register` alone writes them, so that a fault means that another program wrote the record.
    ///
    /// # Errors
    ///
    /// [`RecordError`] for a value that `register` does not write.
    pub(super) fn check(self) -> Result<ResolvedList, RecordError> {
        let invalid = || RecordError::invalid_value("resolved");
        let mut rules = Allowlist::new();
        for text in &self.rules {
            let rule: DeviceRule = text.parse().map_err(|_| invalid())?;
            rules.push(rule).map_err(|_| invalid())?;
        }
        let mut drivers = BTreeMap::new();
        for (text, names) in self.drivers.0 {
            let major = Major::parse(&text).ok_or_else(invalid)?;
            if names.is_empty() || !names.iter().all(|name| is_short_text(name)) {
                return Err(invalid());
            }
            drivers.insert(major, names);
        }
        let mut gpus = Vec::new();
        for MapOnly(gpu) in self.gpus {
            gpus.push(gpu.check().ok_or_else(invalid)?);
        }
        let texts = [&self.boot_id].into_iter().chain(&self.node_name);
        if !texts.into_iter().all(|text| is_short_text(text)) {
            return Err(invalid());
        }
        Ok(ResolvedList {
            boot_id: self.boot_id,
            node_name: self.node_name,
            rules,
            drivers,
            gpus,
        })
    }
}

impl WireGpu {
    fn new(gpu: &NamedGpu) -> Self {
        let (variable, value) = gpu.visible_devices.clone().unzip();
        Self {
            device: gpu.own_node.rule.to_string(),
            node: gpu.own_node.node.clone(),
            variable,
            value: value.flatten(),
        }
    }

    /// Checks the values; `None` for one that `register` does not write.
    fn check(self) -> Option<NamedGpu> {
        let visible_devices = match (self.variable, self.value) {
            (Some(variable), value) => {
                // The text of a variable that counts GPUs.
                Variable::from_pair(&variable, value.as_deref().unwrap_or("0")).ok()?;
                Some((variable, value))
            }
            (None, Some(_)) => return None,
            (None, None) => None,
        };
        let own_node = Device {
            node: self.node,
            rule: self.device.parse().ok()?,
        };
        let is_path = own_node.node.starts_with('/') && is_short_text(&own_node.node);
        is_path.then_some(NamedGpu {
            own_node,
            visible_devices,
        })
    }
}

impl Major {
    /// The major of a rule.
    pub fn of(rule: &DeviceRule) -> Self {
        Self {
            kind: rule.kind(),
            number: rule.major(),
        }
    }

    /// Parses what `Display` writes; `None` for another text.
    fn parse(text: &str) -> Option<Self> {
        let (kind, number) = text.split_once(':')?;
        let kind = match kind {
            "b" => DeviceType::Block,
            "c" => DeviceType::Char,
            _ => return None,
        };
        let number = parse_decimal(number).filter(|number| *number <= MAJOR_MAX)?;
        Some(Self { kind, number })
    }
}

impl fmt::Display for Major {
    /// Writes the first two parts of a rule's numeric form: `c:195`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.letter(), self.number)
    }
}

/// Tells whether a text is not empty, has at most [`TEXT_BYTES_MAX`] bytes and no control character.
fn is_short_text(text: &str) -> bool {
    (1..=TEXT_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::super::Record;

    /// Parses a record with this text in place of another one in its numbers.
    fn parse_with(old: &str, new: &str) -> Result<Record, String> {
        const GPUS: &str = r#"[{"device":"c:195:0:rw","node":"/dev/nvidia0","variable":"CUDA_VISIBLE_DEVICES","value":"GPU-edfee158-11c1-52b8-0517-92f30e7fac88"},{"device":"c:226:128:rw","node":"/dev/dri/renderD128"}]"#;
        let numbers = format!(
            r#"{{"boot_id":"b1","node_name":"n1","rules":["c:195:0:rw"],"drivers":{{"c:195":["nvidia","nvidiactl"]}},"gpus":{GPUS}}}"#
        );
        assert!(numbers.contains(old), "{old}");
        let numbers = numbers.replace(old, new);
        let text = format!(
            r#"{{"version":1,"id":"1","uid":5,"cgroup":"/a","gpus":[0],"resolved":{numbers}}}"#
        );
        Record::parse(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn numbers_round_trip() {
        let record = parse_with("b1", "b2").unwrap();
        let list = record.resolved.as_ref().unwrap();
        assert_eq!((list.boot_id.as_str(), list.rules.rules().len()), ("b2", 1));
        let text = record.to_json().unwrap();
        assert_eq!(Record::parse(text.as_bytes()), Ok(record));
    }

    /// Only `register` writes them: anything else is another program's.
    #[test]
    fn value_that_register_does_not_write_is_refused() {
        let long = "x".repeat(256);
        for (old, new) in [
            (r#""boot_id":"b1""#, r#""boot_id":"""#),
            (r#""boot_id":"b1""#, &format!(r#""boot_id":"{long}""#)),
            (r#""boot_id":"b1","#, ""),
            (r#""node_name":"n1""#, r#""node_name":null"#),
            (r#""node_name":"n1""#, r#""node_name":"n\n1""#),
            (r#""rules":["c:195:0:rw"]"#, r#""rules":["195:0"]"#),
            (r#""rules":["c:195:0:rw"]"#, r#""rules":["a *:* rwm"]"#),
            (r#""rules":["c:195:0:rw"],"#, ""),
            ("c:195\":", "c:0195\":"),
            ("c:195\":", "c:4096\":"),
            ("c:195\":", "x:195\":"),
            (r#"["nvidia","nvidiactl"]"#, "[]"),
            (r#"["nvidia","nvidiactl"]"#, r#"[""]"#),
            ("/dev/nvidia0", "dev/nvidia0"),
            ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD"),
            ("GPU-edfee158", "GPU edfee158"),
            (r#""variable":"CUDA_VISIBLE_DEVICES","#, ""),
            (
                r#""node":"/dev/dri/renderD128""#,
                r#""node":"/dev/dri/renderD128","x":1"#,
            ),
            (r#""boot_id""#, r#""more":1,"boot_id""#),
            (
                r#"{"device":"c:226:128:rw","node":"/dev/dri/renderD128"}"#,
                r#"["c:226:128:rw","/dev/dri/renderD128",null,null]"#,
            ),
            (
                r#"{"device":"c:226:128:rw","node":"/dev/dri/renderD128"}"#,
                r#"["c:226:128:rw","/dev/dri/renderD128","ROCR_VISIBLE_DEVICES","1"]"#,
            ),
        ] {
            assert!(parse_with(old, new).is_err(), "{old} -> {new}");
        }
    }
}
