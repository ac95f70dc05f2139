//! Commands of systemd, and what it has not read yet.

pub(super) use crate::closed_slices::DevicePolicy;

use crate::child_process::query_in_clean_environment;
use crate::closed_slices::{UNUSED_SLICE, parse_device_policy};
use crate::error::Error;
use nix::time::{ClockId, clock_gettime};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// Whether systemd runs here and reads the files below `root`.
pub(super) fn reads(root: &Path) -> bool {
    root == Path::new("/") && Path::new("/run/systemd/system").exists()
}

pub(super) fn systemctl(words: &[&str]) -> Result<(), Error> {
    run("systemctl", words)
}

/// Prepares a program without input, whose output is dropped and whose messages go to standard error.
fn command_without_output(program: &str, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// Runs `systemctl` and ignores its result: usually there is nothing to do for it, and it says so.
pub(super) fn systemctl_if_needed(words: &[&str]) {
    let _ = command_without_output("systemctl", words)
        .stderr(Stdio::null())
        .status();
}

/// Runs a program without input, and drops its output. It fails with [`Error::Failed`] if the program cannot be
/// started or does not succeed.
pub(super) fn run(program: &str, words: &[&str]) -> Result<(), Error> {
    let why = match command_without_output(program, words).status() {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    Err(Error::failed(
        "run",
        format!("{program} {}", words.join(" ")),
        why,
    ))
}

/// Makes systemd read its units again, and apply them to the slices that exist.
pub(super) fn reload_units() -> Result<(), Error> {
    systemctl(&["daemon-reload"])?;
    systemctl_if_needed(&["show", "--property=Id", UNUSED_SLICE]);
    Ok(())
}

/// Makes the system bus read its policies again. A bus that does not run reads them when it starts.
pub(super) fn reload_bus() -> Result<(), Error> {
    if !is_active("dbus.service") {
        return Ok(());
    }
    systemctl(&["reload", "dbus.service"])
}

pub(super) fn is_active(unit: &str) -> bool {
    systemctl(&["is-active", "--quiet", unit]).is_ok()
}

/// Whether a unit that runs once is at it.
pub(super) fn is_starting(unit: &str) -> bool {
    show(&["--property=ActiveState", unit]).contains("ActiveState=activating")
}

pub(super) fn read_device_policy(unit: &str) -> DevicePolicy {
    parse_device_policy(&show(&["--property=DevicePolicy,DeviceAllow", unit]))
}

/// The number of the running systemd's version; `None` if it does not show one.
pub(super) fn read_version() -> Option<u32> {
    parse_version(&show(&["--property=Version"]))
}

/// Parses this property of the manager, such as `252.39-1~deb12u1` or `v258-rc1`.
fn parse_version(property: &str) -> Option<u32> {
    let version = property.trim().strip_prefix("Version=")?;
    let number = version.trim_start_matches('v');
    number
        .split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// Whether systemd has loaded users' slices from other files than there are now.
pub(super) fn has_old_slices() -> bool {
    show(&["--property=NeedDaemonReload", "user-*.slice"]).contains("NeedDaemonReload=yes")
}

/// Whether a policy has changed since the system bus last read its policies; `false` if that cannot be told.
pub(super) fn has_old_bus(policy: &Path) -> bool {
    // The state of the bus changes when it starts and when it is reloaded, and then it reads its policies.
    let shown = show(&["--property=StateChangeTimestampMonotonic", "dbus.service"]);
    let since_boot = shown
        .trim()
        .strip_prefix("StateChangeTimestampMonotonic=")
        .and_then(|number| number.parse().ok())
        .map(Duration::from_micros);
    let age = since_boot.and_then(|since_boot| {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).ok()?;
        Duration::from(now).checked_sub(since_boot)
    });
    let Some(age) = age else {
        return false;
    };
    let Some(read_at) = SystemTime::now().checked_sub(age) else {
        return false;
    };
    let Ok(meta) = fs::symlink_metadata(policy) else {
        return false;
    };
    let nanoseconds = u32::try_from(meta.ctime_nsec()).unwrap_or_default();
    let seconds = u64::try_from(meta.ctime()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds) > read_at
}

/// Runs `systemctl show`; returns nothing if that fails.
fn show(words: &[&str]) -> String {
    let mut command = Command::new("systemctl");
    command.args(["--no-pager", "show"]).args(words);
    query_in_clean_environment(&mut command).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_a_version_is_found_in_the_forms_of_distributions() {
        for (property, expected) in [
            ("Version=252.39-1~deb12u1\n", Some(252)),
            ("Version=239 (239-82.el8)\n", Some(239)),
            ("Version=249.11-0ubuntu3\n", Some(249)),
            ("Version=v258-rc1\n", Some(258)),
            ("Version=\n", None),
            ("", None),
        ] {
            assert_eq!(parse_version(property), expected, "{property}");
        }
    }
}
