//! Limits the memory, tasks and processor time of a job's logins.
//!
//! A limit is set only on a leaf that has nothing but logins, and only if its parent has enabled the
//! controller: enabling it would change the job's own cgroup. A key that does not apply is ignored;
//! `job-adopt resolve` shows why.

use crate::error::Failure;
use kernel::cgroup::{self, CgroupChain, Dir, MADE_XATTR, has_mark};
use protocol::{LimitKey, LoginLimits};

/// A limit for one leaf: its file (cgroup-v2.rst) and its value there, which is bytes for `memory.max`, a number
/// of tasks for `pids.max`, and a weight of 1 to 10,000 for `cpu.weight`.
pub type LeafLimit = (&'static str, u64);

/// Minimum of a limit by percentage, unless the job itself has less: with less no login starts.
const LOGIN_BYTES_MIN: u64 = (LoginLimits::MEMORY_MIB_MIN as u64) << 20;

/// Computes the limits that apply to a leaf below the cgroups `above`, the nearest first: those whose controller the
/// nearest one gives to its children. None exceeds one of the job's own.
pub(super) fn plan_limits(limits: &LoginLimits, above: &[Dir]) -> cgroup::Result<Vec<LeafLimit>> {
    let mut leaf_limits = Vec::new();
    for LimitKey {
        controller, file, ..
    } in limits.list_keys()
    {
        let is_enabled = above
            .first()
            .map_or(Ok(false), |dir| dir.enables_controller(controller));
        let value = match file {
            _ if !is_enabled? => None,
            "memory.max" => choose_memory_limit(limits, find_lowest_limit(file, above)?),
            // A weight is no maximum, so none above limits it.
            "cpu.weight" => Some(limits.cpu_weight.into()),
            _ => Some(find_lowest_limit(file, above)?.min(limits.tasks.into())),
        };
        leaf_limits.extend(value.map(|value| (file, value)));
    }
    Ok(leaf_limits)
}

/// Returns the bytes for the logins of a job whose limit is `job_bytes`, where `u64::MAX` stands for no limit.
/// `None` for a percentage of a job without a limit.
fn choose_memory_limit(limits: &LoginLimits, job_bytes: u64) -> Option<u64> {
    let percent = u64::from(limits.memory_percent);
    match job_bytes {
        _ if percent == 0 => Some(job_bytes.min(u64::from(limits.memory_mib) << 20)),
        u64::MAX => None,
        _ => Some(
            (job_bytes.saturating_mul(percent) / 100)
                .max(LOGIN_BYTES_MIN)
                .min(job_bytes),
        ),
    }
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

/// Returns the lowest limit in a file of these cgroups; `u64::MAX` if none is set. The root has no such
/// file, and "max" is no number.
fn find_lowest_limit(file: &str, levels: &[Dir]) -> cgroup::Result<u64> {
    levels.iter().try_fold(u64::MAX, |lowest, dir| {
        let limit = dir
            .read(file)?
            .and_then(|text| text.trim_end().parse().ok());
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
        let controllers = ("cgroup.subtree_control", "cpu memory pids\n");
        let job = cgroup(&scratch, "job", &[controllers, ("memory.max", "max\n")]);
        let outer = cgroup(
            &scratch,
            "outer",
            &[("memory.max", "1073741824\n"), ("pids.max", "99\n")],
        );
        let limits = LoginLimits {
            memory_mib: 256,
            tasks: 64,
            cpu_weight: 500,
            memory_percent: 0,
        };
        let above = [job.clone(), outer];
        let expected = vec![
            ("memory.max", 256 << 20),
            ("pids.max", 64),
            ("cpu.weight", 500),
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
        assert_eq!(plan(&hundredth, &[small]), [("memory.max", 50_000_000)]);
        assert!(plan(&hundredth, &[job]).is_empty());
        assert!(plan(&LoginLimits::default(), &[]).is_empty());
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
