//! Which signals a command waits for.

use kernel::proc;
use nix::sys::signal::{SigSet, Signal};

/// Selects the signals to wait for: those that the caller does not ignore, by the text of `/proc/self/status`. A
/// signal that the caller ignores, for example by nohup(1), stays ignored: while it is blocked the kernel would queue
/// it. `SIGCHLD` is always among them. `None` for a text that is not as documented.
pub fn select_not_ignored(
    status: &str,
    signals: impl IntoIterator<Item = Signal>,
) -> Option<SigSet> {
    let ignored = u64::from_str_radix(proc::find_field(status, "SigIgn:")?, 16).ok()?;
    let is_awaited =
        |signal: &Signal| *signal == Signal::SIGCHLD || ignored >> (*signal as i32 - 1) & 1 == 0;
    Some(signals.into_iter().filter(is_awaited).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_that_caller_ignores_is_not_awaited() {
        let signals = [Signal::SIGHUP, Signal::SIGTERM, Signal::SIGCHLD];
        let select = |status| select_not_ignored(status, signals);
        let all = select("SigIgn:\t0000000000001000\n").unwrap();
        assert!(all.contains(Signal::SIGHUP) && all.contains(Signal::SIGCHLD));
        let without = select("SigIgn:\t0000000000001001\n").unwrap();
        assert!(!without.contains(Signal::SIGHUP) && without.contains(Signal::SIGTERM));
        assert!(select("").is_none() && select("SigIgn:\tx\n").is_none());
    }
}
