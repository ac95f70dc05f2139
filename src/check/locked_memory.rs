//! Checks the limit of locked memory that logins inherit from a running sshd.

use super::finding::{Check, Finding};
use kernel::proc;
use std::path::Path;

/// The devices of RDMA, which registers memory with the network card by locking it.
const RDMA_DIR: &str = "/dev/infiniband";
/// The limit of locked memory that systemd sets for the node, too little for most programs of RDMA
/// (`DEFAULT_RLIMIT_MEMLOCK` of systemd).
const DEFAULT_LOCKED_BYTES: u64 = 8 << 20;

/// How much memory a server, and so its logins, may lock.
#[derive(Clone, Debug, Default)]
pub(super) struct LockedMemory {
    /// The server's soft limit; `None` if it is unlimited or cannot be read.
    bytes_max: Option<u64>,
    has_rdma: bool,
}

impl LockedMemory {
    /// Reads the limit from the server's directory in `/proc`.
    pub(super) fn read(proc_dir: &Path) -> Self {
        let limits = proc::read(proc_dir.join("limits")).unwrap_or_default();
        Self {
            bytes_max: parse_locked_memory(&limits),
            has_rdma: Path::new(RDMA_DIR).is_dir(),
        }
    }

    /// Reports a server whose limit is no higher than the usual one on a node with RDMA, which needs more; `None`
    /// otherwise.
    pub(super) fn finding(&self, server: &str) -> Option<Finding> {
        let bytes = self.bytes_max?;
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
    fn little_locked_memory_is_noted_where_there_is_rdma() {
        let limits = |value: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max locked memory         {value}              unlimited            bytes     \n"
            )
        };
        let is_noted = |value: &str, has_rdma| {
            let memory = LockedMemory {
                bytes_max: parse_locked_memory(&limits(value)),
                has_rdma,
            };
            memory.finding("sshd").is_some()
        };
        assert!(is_noted("8388608", true));
        assert!(is_noted("65536", true));
        assert!(!is_noted("65536", false));
        assert!(!is_noted("unlimited", true));
        assert!(!is_noted("17179869184", true));
    }
}
