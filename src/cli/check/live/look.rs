//! What the child sees once the session is open.
//!
//! Devices are not opened: that alone changes the state of some. The filters that are in force are
//! read back and asked instead, as `job-adopt devices` does.

use super::event::Place;
use crate::cgroup::{Membership, Mount};
use crate::cli::filters::interpret::Request;
use crate::cli::filters::{Answer, Inspection};
use crate::device::Tree;
use crate::plan::{Access, CgroupPath, DeviceType};
use nix::sys::resource::{Resource, getrlimit, rlim_t};
use std::fs;

/// Devices that are guarded unless the site says otherwise, as far as they have fixed names.
const NAMES: [(&str, &str); 5] = [
    ("/dev", "nvidia"),
    ("/dev/nvidia-caps", "nvidia-cap"),
    ("/dev/dri", "renderD"),
    ("/dev", "kfd"),
    ("/dev/accel", "accel"),
];

/// Limits that logins are given by pam_limits or by their job.
const LIMITS: [(&str, Resource); 9] = [
    ("as", Resource::RLIMIT_AS),
    ("core", Resource::RLIMIT_CORE),
    ("cpu", Resource::RLIMIT_CPU),
    ("data", Resource::RLIMIT_DATA),
    ("fsize", Resource::RLIMIT_FSIZE),
    ("memlock", Resource::RLIMIT_MEMLOCK),
    ("nofile", Resource::RLIMIT_NOFILE),
    ("nproc", Resource::RLIMIT_NPROC),
    ("stack", Resource::RLIMIT_STACK),
];

/// Soft and hard values of [`LIMITS`].
pub(super) fn limits() -> Vec<Option<(rlim_t, rlim_t)>> {
    LIMITS.iter().map(|(_, resource)| getrlimit(*resource).ok()).collect()
}

/// Where this process is, and what holds there.
pub(super) fn place(before: &[Option<(rlim_t, rlim_t)>]) -> Result<Place, String> {
    let membership = Membership::own().map_err(|error| error.to_string())?;
    let unified = membership.unified().unwrap_or("/").to_owned();
    let mut place = Place { cgroups: vec![unified.clone()], ..Place::default() };
    place.cgroups.extend(membership.legacy().map(|(_, path)| path.to_owned()));
    place.limits = changed(before);
    let inspection = inspection(&unified)?;
    for filter in inspection.filters.iter().filter(|filter| filter.in_force) {
        let level = filter.level.as_deref().unwrap_or("above");
        let name = if filter.name.is_empty() { "unnamed" } else { &filter.name };
        place.filters.push(format!("{name} ({}) at {level}", filter.owner.as_str()));
    }
    for (path, kind, major, minor) in nodes() {
        let request = Request { kind, major, minor, access: Access::RW };
        let answer: Answer = inspection.judge.answer(request);
        match answer.allowed() {
            Some(true) => place.opens.push(path),
            Some(false) => place.refuses.push(path),
            None => place.unclear.push(path),
        }
    }
    Ok(place)
}

fn inspection(path: &str) -> Result<Inspection, String> {
    let mount = Mount::open().map_err(|error| error.to_string())?;
    let root = [mount.root().try_clone().map_err(|error| error.to_string())?];
    let found = match path.parse::<CgroupPath>() {
        Ok(path) => {
            let place = mount.place(&path).map_err(|error| error.to_string())?;
            Inspection::of(place.levels())
        }
        Err(_) => Inspection::of(&root),
    };
    found.map_err(|error| error.to_string())
}

/// The nodes that are there.
fn nodes() -> Vec<(String, DeviceType, u32, u32)> {
    let tree = Tree::here();
    let mut found = Vec::new();
    for (folder, prefix) in NAMES {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| name.starts_with(prefix)) else {
                continue;
            };
            let path = format!("{folder}/{name}");
            if let Ok(node) = tree.node(&path) {
                found.push((path, node.kind, node.major, node.minor));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Limits that are others than before.
fn changed(before: &[Option<(rlim_t, rlim_t)>]) -> Vec<String> {
    let now = limits();
    let pairs = LIMITS.iter().zip(before.iter().zip(&now));
    let differs = pairs.filter(|(_, (before, now))| before != now);
    differs.filter_map(|((name, _), (_, now))| now.map(|now| shown(name, now))).collect()
}

fn shown(name: &str, (soft, hard): (rlim_t, rlim_t)) -> String {
    let value = |value: rlim_t| match value {
        libc::RLIM_INFINITY => "unlimited".to_owned(),
        value => value.to_string(),
    };
    format!("{name} {}:{}", value(soft), value(hard))
}
