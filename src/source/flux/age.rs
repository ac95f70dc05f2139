//! When a process started (proc_pid_stat(5), proc_stat(5)).

use std::path::Path;

use crate::legible;
use nix::unistd::{SysconfVar, sysconf};

/// In seconds since the epoch; `None` for a process that is gone.
pub(super) fn started(proc: &Path, pid: i32) -> Option<i64> {
    let stat = legible::read(proc.join(pid.to_string()).join("stat")).ok()?;
    let boot = legible::read(proc.join("stat")).ok()?;
    let ticks = sysconf(SysconfVar::CLK_TCK).ok()??;
    let boot: i64 =
        boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    boot.checked_add(since_boot(&stat)?.checked_div(ticks)?)
}

/// In ticks: the twenty-second field. The second is the name, in brackets, and may have any sign
/// in it.
fn since_boot(stat: &str) -> Option<i64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::clock;

    #[test]
    fn this_process_started_a_moment_ago() {
        let own = std::process::id().cast_signed();
        let started = started(Path::new("/proc"), own).unwrap();
        assert!((0..3600).contains(&(clock::now() - started)), "{started}");
        assert_eq!(super::started(Path::new("/proc"), -1), None);
    }

    #[test]
    fn a_name_is_no_field() {
        let tail = "S 1 7 7 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 123 0";
        for name in ["imp", "a) b", ") S 1 2 3", ""] {
            assert_eq!(since_boot(&format!("7 ({name}) {tail}")), Some(123), "{name}");
        }
        assert_eq!((since_boot("7 (a) S 1"), since_boot("")), (None, None));
    }
}
