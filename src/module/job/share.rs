//! Limits what the logins of a job can take of its memory, tasks and processor time.
//!
//! A limit stands on the leaf, and only if nothing but logins is there and the scheduler has given
//! the controller to the cgroups beside it: to enable one would change the job's own cgroup. Other
//! limits of the configuration do not apply, and `job-adopt resolve` shows why.

use crate::Failure;
use kernel::cgroup::{self, CgroupChain, Dir, MADE_XATTR, has_mark};
use protocol::LoginLimits;

/// A limit for one leaf: its file (cgroup-v2.rst) and value.
pub type LeafLimit = (&'static str, u64);

/// Least memory for the logins of a job, unless the job itself has less: with less none starts.
const LOGIN_BYTES_MIN: u64 = (LoginLimits::MEMORY_MIB_MIN as u64) << 20;

/// Works out the limits that apply to a leaf below these cgroups, the nearest first. None exceeds one
/// of the job's own.
pub(super) fn plan_limits(limits: &LoginLimits, above: &[Dir]) -> cgroup::Result<Vec<LeafLimit>> {
    let percent = u64::from(limits.memory_percent);
    let mut planned = Vec::new();
    for (controller, file, amount) in [
        ("memory", "memory.max", percent.max(u64::from(limits.memory_mib) << 20)),
        ("pids", "pids.max", limits.tasks.into()),
        ("cpu", "cpu.weight", limits.cpu_weight.into()),
    ] {
        let parent = above.first().filter(|_| amount != 0);
        let enabled = parent.map_or(Ok(None), |parent| parent.read("cgroup.subtree_control"))?;
        if enabled.is_some_and(|text| text.split_whitespace().any(|name| name == controller)) {
            // A weight is no maximum, so none above limits it.
            let highest = if file == "cpu.weight" { u64::MAX } else { find_lowest(file, above)? };
            let is_percentage = file == "memory.max" && percent != 0;
            match highest {
                u64::MAX if is_percentage => {}
                limit if is_percentage => {
                    let part = limit.saturating_mul(percent) / 100;
                    planned.push((file, part.max(LOGIN_BYTES_MIN).min(limit)));
                }
                limit => planned.push((file, limit.min(amount))),
            }
        }
    }
    Ok(planned)
}

/// Works out the limits of a leaf. None applies to a cgroup that this module has not made: it may have
/// processes of the job.
pub(super) fn plan_leaf_limits(
    limits: &LoginLimits,
    leaf: &CgroupChain,
) -> cgroup::Result<Vec<LeafLimit>> {
    let is_child = leaf.job()?.1 > 0;
    let is_for_logins =
        *limits != LoginLimits::default() && is_child && has_mark(leaf.dir()?, MADE_XATTR)?;
    let above = leaf.levels().get(1..).filter(|_| is_for_logins).unwrap_or_default();
    plan_limits(limits, above)
}

/// Returns the lowest limit in a file of these cgroups; `u64::MAX` if none is set. The root has no such
/// file, and "max" is no number.
fn find_lowest(file: &str, levels: &[Dir]) -> cgroup::Result<u64> {
    levels.iter().try_fold(u64::MAX, |lowest, dir| {
        let limit = dir.read(file)?.and_then(|text| text.trim_end().parse().ok());
        Ok(lowest.min(limit.unwrap_or(u64::MAX)))
    })
}

/// Sets limits, and reads them back. It raises no maximum: the logins that came before, and whoever has
/// set a lower one, rely on it.
///
/// # Errors
///
/// A limit cannot be set; [`Failure::CgroupGone`] if the leaf is gone.
pub(super) fn set_limits(limits: &[LeafLimit], leaf: &Dir) -> Result<(), Failure> {
    for &(file, value) in limits {
        // The kernel rounds memory down to pages. A weight is no maximum.
        let fits = |now: u64| now == value || now < value && file != "cpu.weight";
        let read = || Ok::<_, Failure>(leaf.read(file)?.unwrap_or_default().trim_end().parse());
        if !read()?.is_ok_and(fits) {
            leaf.write(file, &value.to_string())?;
        }
        if !read()?.is_ok_and(fits) {
            let why = format!("does not keep the limit that was written to {file}");
            return Err(cgroup::Error::unfit(leaf.path(), &why).into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, create_dir_all, write};
    use std::path::PathBuf;

    /// A directory with folders that look like cgroups, removed at its end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("job-adopt-{name}-{}", std::process::id())))
        }

        fn cgroup(&self, name: &str, files: &[(&str, &str)]) -> Dir {
            let path = self.0.join(name);
            create_dir_all(&path).unwrap();
            for (file, text) in [("cgroup.procs", "")].iter().chain(files) {
                write(path.join(file), text).unwrap();
            }
            Dir::new(File::open(path).unwrap().into(), format!("/{name}"))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn planned(limits: &LoginLimits, above: &[Dir]) -> Vec<LeafLimit> {
        plan_limits(limits, above).unwrap()
    }

    #[test]
    fn limits_are_those_of_configuration_within_those_of_job() {
        let scratch = Scratch::new("plan");
        let controllers = ("cgroup.subtree_control", "cpu memory pids\n");
        let job = scratch.cgroup("job", &[controllers, ("memory.max", "max\n")]);
        let outer =
            scratch.cgroup("outer", &[("memory.max", "1073741824\n"), ("pids.max", "99\n")]);
        let limits = LoginLimits { memory_mib: 256, tasks: 64, cpu_weight: 500, memory_percent: 0 };
        let above = [job.clone(), outer];
        let expected = vec![("memory.max", 256 << 20), ("pids.max", 64), ("cpu.weight", 500)];
        assert_eq!(planned(&limits, &above), expected);
        let limits = LoginLimits { memory_mib: 4096, tasks: 100, ..LoginLimits::default() };
        let expected = vec![("memory.max", 1 << 30), ("pids.max", 99)];
        assert_eq!(planned(&limits, &above), expected);
        let limits = LoginLimits { memory_percent: 25, ..LoginLimits::default() };
        assert_eq!(planned(&limits, &above), [("memory.max", 256 << 20)]);
        let limits = LoginLimits { memory_percent: 1, ..LoginLimits::default() };
        assert_eq!(planned(&limits, &above), [("memory.max", 64 << 20)]);
        let small = scratch.cgroup("small", &[controllers, ("memory.max", "50000000\n")]);
        assert_eq!(planned(&limits, &[small]), [("memory.max", 50_000_000)]);
        assert!(planned(&limits, &[job]).is_empty());
        assert!(planned(&LoginLimits::default(), &[]).is_empty());
    }

    /// A file that keeps its old text behind the new one stands for a kernel that changes the value.
    #[test]
    fn limit_that_is_not_kept_is_an_error() {
        let scratch = Scratch::new("set");
        let limit = |value| ("pids.max", value);
        let leaf = scratch.cgroup("leaf", &[("pids.max", "4000\n")]);
        let failure = set_limits(&[limit(20)], &leaf).unwrap_err();
        assert_eq!(
            failure.to_string(),
            "cgroup /leaf does not keep the limit that was written to pids.max"
        );
        assert_eq!(failure.reason(), protocol::Reason::AdoptionFailed);
        let leaf = scratch.cgroup("other", &[("pids.max", "40\n")]);
        set_limits(&[limit(20)], &leaf).unwrap();
        assert_eq!(leaf.read("pids.max").unwrap().unwrap(), "20\n");
        set_limits(&[limit(90)], &leaf).unwrap();
        assert_eq!(leaf.read("pids.max").unwrap().unwrap(), "20\n");
    }
}
