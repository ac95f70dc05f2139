//! Limits memory, tasks, processor time and disk accesses of a job's logins.
//!
//! A limit is set only on a leaf that has nothing but logins, and only if its parent has enabled the
//! controller: enabling it would change the job's own cgroup. A key that does not apply is ignored;
//! `job-adopt resolve` shows why.

use crate::error::Failure;
use kernel::cgroup::{self, CgroupChain, Dir, MADE_XATTR, find_lowest_limit, has_mark};
use protocol::{LimitKey, LimitValue, LoginLimits};

/// A limit for one leaf: its file (cgroup-v2.rst) and its value there, which is bytes for `memory.max` and
/// `memory.high`, a number of tasks for `pids.max`, and a weight for `cpu.weight` and `io.weight`.
pub type LeafLimit = (&'static str, u64);

/// Minimum of a limit by percentage, unless the job itself has less: with less no login starts.
const LOGIN_BYTES_MIN: u64 = (LoginLimits::MEMORY_MIB_MIN as u64) << 20;

/// Computes the limits that apply to a leaf below the cgroups `above`, the nearest first: those whose controller the
/// nearest one gives to its children. None exceeds one of the job's own.
pub(super) fn plan_limits(limits: &LoginLimits, above: &[Dir]) -> cgroup::Result<Vec<LeafLimit>> {
    let mut leaf_limits = Vec::new();
    let Some(parent) = above.first() else {
        return Ok(leaf_limits);
    };
    for LimitKey {
        controller,
        file,
        value,
        ..
    } in limits.list_keys()
    {
        if !parent.enables_controller(controller)? {
            continue;
        }
        let value = match value {
            LimitValue::Memory { mib, percent } => {
                choose_memory_limit(mib, percent, find_lowest_limit("memory.max", above)?)
            }
            // A weight is no maximum, so none above limits it. The read only tells whether the kernel has this file:
            // not every one has both of those for disks.
            LimitValue::Weight(weight) => parent.read(file)?.map(|_| weight.into()),
            LimitValue::Tasks(tasks) => Some(find_lowest_limit(file, above)?.min(tasks.into())),
        };
        leaf_limits.extend(value.map(|value| (file, value)));
    }
    Ok(leaf_limits)
}

/// Returns the bytes for the logins of a job whose limit is `job_bytes`, where `u64::MAX` stands for no limit. The
/// configuration has a size or, if `percent` is not 0, a percentage. `None` for a percentage of a job without a limit.
fn choose_memory_limit(mib: u32, percent: u32, job_bytes: u64) -> Option<u64> {
    if percent == 0 {
        return Some(job_bytes.min(u64::from(mib) << 20));
    }
    if job_bytes == u64::MAX {
        return None;
    }
    let part = job_bytes.saturating_mul(percent.into()) / 100;
    Some(part.max(LOGIN_BYTES_MIN).min(job_bytes))
}

/// Computes the limits of a leaf. None applies to a cgroup that this module has not made: it may have
/// processes of the job.
pub(super) fn plan_leaf_limits(
    limits: &LoginLimits,
    leaf: &CgroupChain,
) -> cgroup::Result<Vec<LeafLimit>> {
    let is_child = leaf.job()?.1 > 0;
    if *limits == LoginLimits::default() || !is_child || !has_mark(leaf.dir()?, MADE_XATTR)? {
        return Ok(Vec::new());
    }
    plan_limits(limits, leaf.levels().get(1..).unwrap_or_default())
}

/// Sets limits, and reads them back. It raises no maximum: the logins that came before, and whoever has
/// set a lower one, rely on it.
///
/// # Errors
///
/// A limit cannot be set; [`Failure::CgroupGone`] if the leaf is gone.
pub(super) fn set_limits(limits: &[LeafLimit], leaf: &Dir) -> Result<(), Failure> {
    for &(file, value) in limits {
        // A lower maximum is kept, and the kernel rounds memory down to pages. A weight is no maximum: it must be this
        // one.
        let is_weight = file.ends_with(".weight");
        let fits = |current: u64| current == value || current < value && !is_weight;
        if !read_limit(leaf, file)?.is_some_and(fits) {
            leaf.write(file, &value.to_string())?;
        }
        if !read_limit(leaf, file)?.is_some_and(fits) {
            let why = format!("does not keep the limit that was written to {file}");
            return Err(cgroup::Error::unfit(leaf.path(), &why).into());
        }
    }
    Ok(())
}

/// Reads a limit; `None` for "max". Weights for disks begin with the one for every disk, as `default 100`, and those
/// for single disks follow.
fn read_limit(leaf: &Dir, file: &str) -> cgroup::Result<Option<u64>> {
    let text = leaf.read(file)?.unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    Ok(line.strip_prefix("default ").unwrap_or(line).parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::fs::File;

    /// Makes a folder that looks like a cgroup.
    fn cgroup(scratch: &Scratch, name: &str, files: &[(&str, &str)]) -> Dir {
        for (file, text) in [("cgroup.procs", "")].iter().chain(files) {
            scratch.file(&format!("{name}/{file}"), text);
        }
        Dir::new(
            File::open(scratch.path().join(name)).unwrap().into(),
            format!("/{name}"),
        )
    }

    fn plan(limits: &LoginLimits, above: &[Dir]) -> Vec<LeafLimit> {
        plan_limits(limits, above).unwrap()
    }

    #[test]
    fn limits_are_those_of_configuration_within_those_of_job() {
        let scratch = Scratch::new();
        let controllers = ("cgroup.subtree_control", "cpu io memory pids\n");
        let files = [
            controllers,
            ("memory.max", "max\n"),
            ("cpu.weight", "100\n"),
            ("io.weight", "default 100\n"),
        ];
        let job = cgroup(&scratch, "job", &files);
        let outer = cgroup(
            &scratch,
            "outer",
            &[("memory.max", "1073741824\n"), ("pids.max", "99\n")],
        );
        let limits = LoginLimits {
            memory_mib: 256,
            memory_high_percent: 12,
            tasks: 64,
            cpu_weight: 500,
            io_weight: 5000,
            ..LoginLimits::default()
        };
        let above = [job.clone(), outer];
        let expected = vec![
            ("memory.max", 256 << 20),
            ("memory.high", (1 << 30) * 12 / 100),
            ("pids.max", 64),
            ("cpu.weight", 500),
            ("io.weight", 5000),
        ];
        assert_eq!(plan(&limits, &above), expected);
        let beyond_job = LoginLimits {
            memory_mib: 4096,
            tasks: 100,
            ..LoginLimits::default()
        };
        assert_eq!(
            plan(&beyond_job, &above),
            [("memory.max", 1 << 30), ("pids.max", 99)]
        );
        let quarter = LoginLimits {
            memory_percent: 25,
            ..LoginLimits::default()
        };
        assert_eq!(plan(&quarter, &above), [("memory.max", 256 << 20)]);
        let hundredth = LoginLimits {
            memory_percent: 1,
            ..LoginLimits::default()
        };
        assert_eq!(plan(&hundredth, &above), [("memory.max", 64 << 20)]);
        let small = cgroup(
            &scratch,
            "small",
            &[controllers, ("memory.max", "50000000\n")],
        );
        let above_small = std::slice::from_ref(&small);
        assert_eq!(plan(&hundredth, above_small), [("memory.max", 50_000_000)]);
        assert!(plan(&hundredth, std::slice::from_ref(&job)).is_empty());
        scratch.file("job/io.bfq.weight", "default 100\n");
        let weight = LoginLimits {
            io_weight: 5000,
            ..LoginLimits::default()
        };
        let both = [("io.weight", 5000), ("io.bfq.weight", 1000)];
        assert_eq!(plan(&weight, &[job]), both);
        assert!(plan(&weight, &[small]).is_empty(), "a kernel without it");
        assert!(plan(&LoginLimits::default(), &[]).is_empty());
    }

    #[test]
    fn weight_for_disks_is_read_and_set_whatever_single_disks_have() {
        let scratch = Scratch::new();
        let leaf = cgroup(&scratch, "leaf", &[("io.weight", "default 50\n8:0 70\n")]);
        set_limits(&[("io.weight", 50)], &leaf).unwrap();
        let text = || leaf.read("io.weight").unwrap().unwrap();
        assert_eq!(text(), "default 50\n8:0 70\n", "it was written again");
        scratch.file("leaf/io.weight", "default 20\n");
        // A file keeps the rest of its text, which a kernel would not.
        let failure = set_limits(&[("io.weight", 50)], &leaf).unwrap_err();
        assert!(failure.to_string().contains("io.weight"), "{failure}");
        assert!(text().starts_with("50"), "it was not written");
    }

    /// A file that keeps its old text behind the new one stands for a kernel that changes the value.
    #[test]
    fn limit_that_is_not_kept_is_an_error() {
        let scratch = Scratch::new();
        let limit = |value| ("pids.max", value);
        let leaf = cgroup(&scratch, "leaf", &[("pids.max", "4000\n")]);
        let failure = set_limits(&[limit(20)], &leaf).unwrap_err();
        assert_eq!(
            failure.to_string(),
            "cgroup /leaf does not keep the limit that was written to pids.max"
        );
        assert_eq!(failure.reason(), protocol::Reason::AdoptionFailed);
        let kept = cgroup(&scratch, "other", &[("pids.max", "40\n")]);
        set_limits(&[limit(20)], &kept).unwrap();
        assert_eq!(kept.read("pids.max").unwrap().unwrap(), "20\n");
        set_limits(&[limit(90)], &kept).unwrap();
        assert_eq!(kept.read("pids.max").unwrap().unwrap(), "20\n");
    }
}
