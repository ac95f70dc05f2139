//! What is left of a record that is broken.

use super::{Place, Record};
use crate::plan::{CgroupPath, JobId};

impl Record {
    /// The place of the job `id` of `uid`, out of JSON that is no record any more; `None` where
    /// not even the path of its cgroup is there. Good for nothing but to end what carries the
    /// job's own stamp: the devices are lost.
    pub(super) fn salvage(bytes: &[u8], uid: u32, id: &JobId) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
        let text = |key: &str| value.get(key).and_then(serde_json::Value::as_str);
        let path: CgroupPath = text("cgroup")?.parse().ok()?;
        Some(Self {
            id: id.clone(),
            uid,
            place: Place::Cgroup(path),
            started: None,
            ends: None,
            leaf: text("leaf").and_then(|leaf| leaf.parse().ok()),
            options: None,
            cdi: None,
            gpus: None,
            gres: None,
            device_dir: None,
            env: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_outlives_what_stands_beside_it() {
        let salvage = |text: &str| Record::salvage(text.as_bytes(), 5, &"7".parse().unwrap());
        let left = salvage(r#"{"version":9,"cgroup":"/a","leaf":"l","options":7}"#).unwrap();
        assert_eq!((left.uid, left.place), (5, Place::Cgroup("/a".parse().unwrap())));
        assert_eq!(left.leaf.unwrap().as_str(), "l");
        for text in ["", "{", "[]", "{}", r#"{"cgroup":7}"#, r#"{"cgroup":"/a/../b"}"#] {
            assert_eq!(salvage(text), None, "{text}");
        }
    }
}
