//! Checks what logins inherit from a running sshd and do not always get from their job: its cores, its limit of locked
//! memory, and its priorities.

use super::finding::{Check, Finding};
use super::priorities::Priorities;
use crate::number_list::NumberList;
use kernel::proc;
use std::fs;
use std::path::Path;

/// The cores of the node that run, in the form of `Cpus_allowed_list` (`admin-guide/cputopology.rst`).
const ONLINE_FILE: &str = "/sys/devices/system/cpu/online";
/// The devices of RDMA, which registers memory with the network card by locking it.
const RDMA_DIR: &str = "/dev/infiniband";
/// The limit of locked memory that systemd sets for the node, too little for most programs of RDMA
/// (`DEFAULT_RLIMIT_MEMLOCK` of systemd).
const DEFAULT_LOCKED_BYTES: u64 = 8 << 20;

/// Counts the cores of the node that run, also those that this process may not use; `None` if they cannot be read.
pub(super) fn count_online_cores() -> Option<usize> {
    let online: NumberList = fs::read_to_string(ONLINE_FILE)
        .ok()?
        .trim_end()
        .parse()
        .ok()?;
    Some(online.numbers().count())
}

/// What was found out about a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Inheritance {
    /// The cores on which the server may run, as the kernel lists them; empty if they cannot be read.
    allowed_cores: String,
    /// The running cores of the node, in the same form.
    online_cores: String,
    /// The server's soft limit of locked memory; `None` if it is unlimited or cannot be read.
    locked_bytes_max: Option<u64>,
    has_rdma: bool,
    priorities: Priorities,
}

impl Inheritance {
    /// Reads the facts from the server's directory in `/proc` and its `status`. What cannot be read leads to no
    /// finding.
    pub(super) fn read(pid: i32, proc_dir: &Path, status: &str) -> Self {
        let limits = proc::read(proc_dir.join("limits")).unwrap_or_default();
        Self {
            allowed_cores: proc::find_field(status, "Cpus_allowed_list:")
                .unwrap_or_default()
                .to_owned(),
            online_cores: fs::read_to_string(ONLINE_FILE).unwrap_or_default(),
            locked_bytes_max: parse_locked_memory(&limits),
            has_rdma: Path::new(RDMA_DIR).is_dir(),
            priorities: Priorities::read(pid),
        }
    }

    pub(super) fn findings(&self, server: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        findings.extend(self.judge_cores(server));
        findings.extend(self.judge_locked_memory(server));
        findings.extend(self.priorities.findings());
        findings
    }

    /// Reports a server that may not run on all cores of the node; `None` if it may, or if the cores cannot
    /// be read.
    fn judge_cores(&self, server: &str) -> Option<Finding> {
        let allowed: NumberList = self.allowed_cores.trim_end().parse().ok()?;
        let online = self.online_cores.trim_end().parse().ok()?;
        if allowed.contains_all(&online) {
            return None;
        }
        let text = format!(
            "runs on cores {} of {}: so do logins to jobs without cores of their own",
            self.allowed_cores,
            self.online_cores.trim_end()
        );
        let remedy = "give jobs their cores (ConstrainCores=yes in cgroup.conf, AllowedCPUs= of a job's \
                      unit), or remove CPUAffinity= from its unit (systemctl edit ssh, or sshd)";
        Some(Finding::note(Check::SshdCores, server, text, remedy))
    }

    /// Reports a server whose limit of locked memory is no higher than the usual one on a node with RDMA,
    /// which needs more; `None` otherwise.
    fn judge_locked_memory(&self, server: &str) -> Option<Finding> {
        let bytes = self.locked_bytes_max?;
        if !self.has_rdma || bytes > DEFAULT_LOCKED_BYTES {
            return None;
        }
        let text = format!("may lock {bytes} bytes of memory, too few for RDMA: so may logins");
        let remedy = "set LimitMEMLOCK=infinity in its unit (systemctl edit ssh, or sshd), or memlock in \
                      limits.conf(5)";
        Some(Finding::note(Check::SshdMemlock, server, text, remedy))
    }
}

/// Parses the soft limit of locked memory in `/proc/PID/limits` (proc_pid_limits(5)), in bytes; `None` for
/// "unlimited" and for another text.
fn parse_locked_memory(limits: &str) -> Option<u64> {
    let values = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory "))?;
    values.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_that_a_server_lacks_are_noted() {
        let judge = |allowed: &str, online: &str| {
            let facts = Inheritance {
                allowed_cores: allowed.to_owned(),
                online_cores: online.to_owned(),
                ..Inheritance::default()
            };
            facts
                .findings("sshd")
                .first()
                .map(|finding| finding.text.clone())
        };
        let text = "runs on cores 0 of 0-7: so do logins to jobs without cores of their own";
        assert_eq!(judge("0", "0-7\n").as_deref(), Some(text));
        assert!(judge("0-2,4-7", "0-7\n").is_some());
        for (allowed, online) in [
            ("0-7", "0-7\n"),
            ("0-127", "0-7\n"),
            ("", "0-7\n"),
            ("0", ""),
        ] {
            assert_eq!(judge(allowed, online), None, "{allowed} {online}");
        }
    }

    #[test]
    fn little_locked_memory_is_noted_where_there_is_rdma() {
        let limits = |value: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max locked memory         {value}              unlimited            bytes     \n"
            )
        };
        let judge = |value: &str, has_rdma| {
            let facts = Inheritance {
                locked_bytes_max: parse_locked_memory(&limits(value)),
                has_rdma,
                ..Inheritance::default()
            };
            facts.findings("sshd").len()
        };
        assert_eq!(judge("8388608", true), 1);
        assert_eq!(judge("65536", true), 1);
        assert_eq!(judge("65536", false), 0);
        assert_eq!(judge("unlimited", true), 0);
        assert_eq!(judge("17179869184", true), 0);
    }
}
