//! The node's users, and their processes that are in none of their jobs.

use super::{Check, Finding, Scene};
use crate::admin::ending::real_uid;
use crate::admin::people;
use crate::admin::slices::exempt;
use crate::helper::sources::processes as listed;
use crate::kernel::cgroup::{Membership, Mount, Stamp};
use crate::protocol::CgroupPath;
use crate::schedulers::flux::unit_at;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const STRAYS: Check = "users-outside-jobs";
/// Most users that are named.
const NAMED: usize = 8;

pub(super) fn findings(scene: &Scene) -> Vec<Finding> {
    let users = Users::of(scene);
    let flux = scene.account(&scene.config.flux_user).map(|account| account.uid);
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    let mut jobs: BTreeMap<(u32, String), bool> = BTreeMap::new();
    for (pid, uid) in processes().filter(|(_, uid)| users.is_bound(*uid)) {
        // One that is gone by now is nowhere.
        let Ok(membership) = Membership::of(pid) else { continue };
        let path = membership.unified().unwrap_or("/").to_owned();
        let known = jobs.entry((uid, path.clone())).or_insert_with(|| is_stamped(&path, uid));
        if *known || is_of_scheduler(&membership, flux) {
            continue;
        }
        *counts.entry(uid).or_default() += 1;
    }
    vec![found(&counts)]
}

fn found(counts: &BTreeMap<u32, usize>) -> Finding {
    if counts.is_empty() {
        return Finding::fine(STRAYS, "users", "no user has a process outside of their jobs");
    }
    let mut names: Vec<String> =
        counts.keys().take(NAMED).map(|uid| people::name_of(*uid)).collect();
    if counts.len() > NAMED {
        names.push(format!("and {} more", counts.len() - NAMED));
    }
    let sum: usize = counts.values().sum();
    let text = format!("{sum} of their processes are in none of their jobs");
    let remedy = "see which they are: ps -u USER -o pid,cgroup,args; what was started before the \
                  module was enabled stays until it is ended";
    Finding::note(STRAYS, names.join(", "), text, remedy)
}

/// Every process, and whose it is.
fn processes() -> impl Iterator<Item = (i32, u32)> {
    let pids = listed::numbers(Path::new("/proc")).into_iter().flatten().flatten();
    pids.filter_map(|pid| Some((pid, real_uid(pid)?.as_raw())))
}

/// Whether the cgroup, or one above it, carries the stamp of a job of this user.
fn is_stamped(path: &str, uid: u32) -> bool {
    let Ok(path) = path.parse::<CgroupPath>() else { return false };
    let Ok(place) = Mount::open().and_then(|mount| mount.place(&path)) else { return false };
    let stamps = place.levels().iter().filter_map(|dir| Stamp::read(dir).ok().flatten());
    stamps.into_iter().any(|stamp| stamp.uid == uid)
}

/// Whether a scheduler has put the process there, by how Slurm and Flux name their cgroups. In
/// slices of theirs users make any name, but for those of the account that Flux runs as.
fn is_of_scheduler(membership: &Membership, flux: Option<u32>) -> bool {
    let unified = membership.unified().into_iter();
    let mut paths = unified.chain(membership.legacy().map(|(_, path)| path));
    paths.any(|path| is_schedulers(path, flux))
}

fn is_schedulers(path: &str, flux: Option<u32>) -> bool {
    if path.starts_with("/user.slice/") {
        return flux.is_some_and(|flux| is_below_unit(path, flux));
    }
    let is_job = |name: &str| {
        name.strip_prefix("job_").is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    let slurm = names.iter().position(|name| name.contains("slurm"));
    let below = slurm.and_then(|at| names.get(at + 1..)).unwrap_or_default();
    below.iter().any(|name| is_job(name))
}

/// Whether it is the cgroup of a Flux unit, or below one.
fn is_below_unit(path: &str, flux: u32) -> bool {
    let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
    ends.filter_map(|end| path.get(..end)).any(|above| unit_at(above, flux).is_some())
}

/// Where login.defs(5) says nothing.
const UID_MIN: u32 = 1000;
/// The account of nobody in particular, and the highest number that is one.
const NOBODY: [u32; 2] = [65_534, u32::MAX];

/// The accounts of a node.
struct Users {
    first: u32,
    exempt: BTreeMap<u32, String>,
}

impl Users {
    /// What cannot be looked up makes nobody exempt.
    fn of(scene: &Scene) -> Self {
        let defs = fs::read_to_string(scene.at("/etc/login.defs")).unwrap_or_default();
        let exempt = exempt(&scene.config).unwrap_or_default();
        Self { first: uid_min(&defs).unwrap_or(UID_MIN), exempt }
    }

    /// Whether it is a person who is not exempt.
    fn is_bound(&self, uid: u32) -> bool {
        uid >= self.first && !NOBODY.contains(&uid) && !self.exempt.contains_key(&uid)
    }
}

/// `UID_MIN` of login.defs(5).
fn uid_min(defs: &str) -> Option<u32> {
    defs.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == "UID_MIN").then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::check::finding::Severity;

    #[test]
    fn schedulers_cgroups_are_known_by_their_names() {
        for path in [
            "/system.slice/node_slurmstepd.scope/job_7/step_0/user/task_0",
            "/slurm_node/uid_1001/job_7/step_extern",
            "/user.slice/user-5.slice/user@5.service/imp-shell-0-f2.service",
            "/user.slice/user-5.slice/user@5.service/app.slice/imp-shell-0-f2.service/job-adopt",
        ] {
            assert!(is_schedulers(path, Some(5)), "{path}");
        }
        for path in
            ["/", "/user.slice/user-5.slice/session-1.scope", "/job_7", "/slurm/job_x", "/slurmd"]
        {
            assert!(!is_schedulers(path, Some(5)), "{path}");
        }
    }

    /// Users name their own units, and the cgroups inside of them.
    #[test]
    fn a_users_own_slice_is_no_schedulers() {
        for path in [
            "/user.slice/user-6.slice/user@6.service/imp-shell-0-f2.service",
            "/user.slice/user-6.slice/user@6.service/app.slice/x.service/slurm/job_7",
        ] {
            assert!(!is_schedulers(path, Some(5)) && !is_schedulers(path, None), "{path}");
        }
    }

    #[test]
    fn they_are_counted() {
        assert_eq!(found(&BTreeMap::new()).severity, Severity::Fine);
        let counts = (0..10).map(|uid| (4_000_000_000 + uid, 3));
        let finding = found(&counts.collect());
        assert_eq!(finding.severity, Severity::Note);
        assert!(finding.text.starts_with("30 of"), "{}", finding.text);
        assert!(finding.object.ends_with("and 2 more"), "{}", finding.object);
    }

    #[test]
    fn people_begin_where_login_defs_says() {
        assert_eq!(uid_min("#UID_MIN 5\nUID_MAX 9\nUID_MIN\t\t 500\n"), Some(500));
        assert_eq!(uid_min("UID_MIN x\n"), None);
        assert_eq!(uid_min(""), None);
    }
}
