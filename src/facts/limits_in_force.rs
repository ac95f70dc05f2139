//! The limits to which the kernel holds a job: the lowest of its cgroup and all above it.

use kernel::cgroup::{self, Dir, find_lowest_limit};
use serde::Serialize;

/// Limits from here on are none: cgroup v1 writes the largest number of pages in place of `max`.
pub const NO_LIMIT_BYTES_MIN: u64 = 1 << 62;

/// A limit of cgroups (cgroup-v2.rst, cgroup-v1/memory.rst).
pub struct LimitFile {
    /// Its name in the evidence.
    pub key: &'static str,
    /// The controller that enforces it.
    pub controller: &'static str,
    /// Its file on cgroup v2.
    pub v2: &'static str,
    /// Its file on cgroup v1, if there is one.
    pub v1: Option<&'static str>,
}

const MEMORY: LimitFile = LimitFile {
    key: "memory",
    controller: "memory",
    v2: "memory.max",
    v1: Some("memory.limit_in_bytes"),
};
const MEMORY_HIGH: LimitFile = LimitFile {
    key: "memory, slowed",
    controller: "memory",
    v2: "memory.high",
    v1: None,
};
const SWAP: LimitFile = LimitFile {
    key: "swap",
    controller: "memory",
    v2: "memory.swap.max",
    v1: None,
};
const TASKS: LimitFile = LimitFile {
    key: "tasks",
    controller: "pids",
    v2: "pids.max",
    v1: Some("pids.max"),
};

/// The limits of memory and tasks that logins show.
pub const LIMITS: [&LimitFile; 4] = [&MEMORY, &MEMORY_HIGH, &SWAP, &TASKS];

/// Shows a limit to people.
pub fn show_limit(limit: u64) -> String {
    if limit >= NO_LIMIT_BYTES_MIN {
        "no limit".to_owned()
    } else {
        limit.to_string()
    }
}

/// The limits in force for a job on cgroup v2. A value is empty if there is no limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitsInForce {
    /// The cores on which the kernel runs the job, as it lists them.
    cores: Option<String>,
    memory_nodes: Option<String>,
    /// Bytes of memory.
    memory: Option<u64>,
    /// Bytes of memory above which the job is slowed down.
    memory_high: Option<u64>,
    /// Bytes of swap.
    swap: Option<u64>,
    tasks: Option<u64>,
}

/// The heads of [`show_limits`].
pub const LIMIT_HEADS: [&str; 6] = [
    "CORES",
    "MEM-NODES",
    "MEM-MAX",
    "MEM-HIGH",
    "SWAP-MAX",
    "TASKS-MAX",
];

impl LimitsInForce {
    /// Reads the limits of a job's cgroup, which is the first of these, and of all above it.
    ///
    /// # Errors
    ///
    /// As [`Dir::read`].
    pub fn read(levels: &[Dir]) -> cgroup::Result<Self> {
        let limit = |file: &LimitFile| {
            let lowest = find_lowest_limit(file.v2, levels)?;
            cgroup::Result::Ok((lowest < NO_LIMIT_BYTES_MIN).then_some(lowest))
        };
        Ok(Self {
            cores: read_nearest("cpuset.cpus.effective", levels)?,
            memory_nodes: read_nearest("cpuset.mems.effective", levels)?,
            memory: limit(&MEMORY)?,
            memory_high: limit(&MEMORY_HIGH)?,
            swap: limit(&SWAP)?,
            tasks: limit(&TASKS)?,
        })
    }
}

/// Shows limits for people, memory in MiB: `-` for no limit, and `?` if they are unknown.
pub fn show_limits(limits: Option<&LimitsInForce>) -> [String; LIMIT_HEADS.len()] {
    let Some(limits) = limits else {
        return ["?"; LIMIT_HEADS.len()].map(str::to_owned);
    };
    [
        limits.cores.clone(),
        limits.memory_nodes.clone(),
        limits.memory.map(show_mib),
        limits.memory_high.map(show_mib),
        limits.swap.map(show_mib),
        limits.tasks.map(|tasks| tasks.to_string()),
    ]
    .map(|column| column.unwrap_or_else(|| "-".to_owned()))
}

fn show_mib(bytes: u64) -> String {
    format!("{}M", bytes >> 20)
}

/// Reads a file of the nearest cgroup that has it: without the controller a cgroup has what the one above has. `None` if
/// none has it.
fn read_nearest(file: &str, levels: &[Dir]) -> cgroup::Result<Option<String>> {
    for dir in levels {
        if let Some(text) = dir.read(file)? {
            return Ok(Some(text.trim_end().to_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    /// Makes folders that look like a job's cgroup and the two above it.
    fn make_levels(scratch: &Scratch) -> [Dir; 3] {
        let dirs = ["job", "slice", "root"].map(|name| {
            scratch.file(&format!("{name}/cgroup.procs"), "");
            let file = std::fs::File::open(scratch.path().join(name)).unwrap();
            Dir::new(file.into(), format!("/{name}"))
        });
        scratch.file("job/memory.max", "max\n");
        scratch.file("slice/memory.max", "314572800\n");
        scratch.file("slice/cpuset.cpus.effective", "0-3\n");
        scratch.file("root/cpuset.cpus.effective", "0-7\n");
        scratch.file("root/cpuset.mems.effective", "0\n");
        dirs
    }

    #[test]
    fn lowest_limit_of_the_path_counts() {
        let scratch = Scratch::new();
        let dirs = make_levels(&scratch);
        let lowest = |file: &str| find_lowest_limit(file, &dirs).unwrap();
        assert_eq!(lowest("memory.max"), 300 << 20);
        assert_eq!(lowest("pids.max"), u64::MAX);
        assert_eq!(show_limit(300), "300");
        // What cgroup v1 writes for no limit, and cgroup v2 without the controller.
        for limit in [9_223_372_036_854_771_712, u64::MAX] {
            assert_eq!(show_limit(limit), "no limit");
        }
    }

    #[test]
    fn limits_in_force_are_those_of_the_nearest_cgroup_with_the_controller() {
        let scratch = Scratch::new();
        let dirs = make_levels(&scratch);
        let read = || LimitsInForce::read(&dirs).unwrap();
        assert_eq!(
            show_limits(Some(&read())),
            ["0-3", "0", "300M", "-", "-", "-"]
        );
        scratch.file("job/cpuset.cpus.effective", "2\n");
        scratch.file("job/pids.max", "64\n");
        assert_eq!(
            show_limits(Some(&read())),
            ["2", "0", "300M", "-", "-", "64"]
        );
        let json = serde_json::to_value(read()).unwrap();
        assert_eq!(json["memory"], 300 << 20);
    }
}
